"""A day of a Kubernetes cluster in minutes: cap halved, nodes cordoned, API server and scheduler restarted.

    python benchmarks/kubernetes_cluster.py --write [--nodes 200 --pods 1000 --seed 1 --seeds 2]

Starts a real API server (`real_kubernetes.py`), submits pods, among them gangs of 2 to 8, and runs
``wattsched kubernetes --apply``. In the middle the power cap is halved, announced some seconds before, two
nodes are cordoned, the API server is killed and started again, and the scheduler is killed (SIGKILL) and
started again. This script is kubelet and controller: it lets pods run when all of their gang are bound and
end after their seconds, removes those that were evicted, and makes them anew. It takes down every event of
the pods, each binding and each end, and works the draw out of them by code of its own.
"""

from __future__ import annotations

import heapq
import json
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cluster_trial import BASE_W, IDLE_W, MOST_W, Scheduler, run_and_write
from real_kubernetes import GPUS, ControlPlane, missing, pod_body, real_kubernetes

from wattsched.adapters.kubernetes.api import Api, KubernetesError

NOTICE_S = 40.0
"""How long before it is in force the cut of the cap is announced."""
PREFIX = "wattsched.io/"


@dataclass
class Job:
    """A pod on its own, or a gang.

    Attributes
    ----------
    bodies : list of dict
        Its pods as they are made, and made again.
    begun_s : float
        When the last of its pods was bound; 0 before.
    """

    name: str
    bodies: list[dict[str, Any]]
    seconds: float
    others: bool = False
    runs: int = 0
    begun_s: float = 0.0
    ended: bool = False
    split_s: float = 0.0


@dataclass
class Seen:
    """A pod as the watch showed it last."""

    name: str
    job: str
    node: str = ""
    power_w: float = 0.0
    gpus: int = 0
    phase: str = ""
    leaving: bool = False


@dataclass
class Trial:
    """A cluster, the scheduler on it, and what was seen of both."""

    plane: ControlPlane
    nodes: int
    seed: int
    jobs: dict[str, Job] = field(default_factory=dict)
    pods: dict[str, Seen] = field(default_factory=dict)
    bindings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    samples: list[tuple[float, float, float]] = field(default_factory=list)
    cordoned: dict[str, float] = field(default_factory=dict)
    on_cordoned: int = 0
    succeeded: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    overfull: int = 0
    evicted: int = 0
    partly: list[float] = field(default_factory=list)
    unanswered: int = 0
    _due: list[tuple[float, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.api = Api(str(self.plane.kubeconfig))
        self.idle_w = self.nodes * (BASE_W + GPUS * IDLE_W)
        self.scheduler = Scheduler(self.plane.folder)
        self._power_w = self.idle_w
        self._used: dict[str, int] = defaultdict(int)

    # -- pods --------------------------------------------------------------------------------------------

    def submit(self, pods: int, seconds: tuple[int, int], largest: int) -> None:
        """Make pods that take so many seconds, most of them in gangs, and a few of another scheduler."""
        rng, made = np.random.default_rng(self.seed), 0
        for i in range(max(1, pods // 50)):
            body = pod_body(f"other-{i}", int(rng.integers(1, 4)), scheduler="somebody-else")
            body["spec"]["nodeName"] = f"gpu-{1 + int(rng.integers(self.nodes))}"
            self._make(Job(f"other-{i}", [body], float(2 * rng.integers(*seconds)), others=True))
        while made < pods:
            size = min(int(rng.integers(2, largest + 1)), pods - made) if rng.random() < 0.25 else 1
            self._make(self._job(f"job-{made}", size, rng, seconds))
            made += size

    def _job(self, name: str, size: int, rng: np.random.Generator, seconds: tuple[int, int]) -> Job:
        gpus = int(rng.choice([1, 2, 4, 8], p=[0.35, 0.3, 0.2, 0.15]))
        said = {PREFIX + "weight": str(int(rng.integers(1, 4)))}
        if rng.random() < 0.7:
            total = size * gpus
            option = {"gpus": [total] * 3, "pool": ["A100"] * 3, "rate": [1.0, 0.9, 0.75]}
            option |= {"power_w": [watts * total for watts in (400.0, 300.0, 200.0)]}
            said[PREFIX + "options"] = json.dumps(option | {"power_limit_w": [400.0, 300.0, 200.0]})
        if rng.random() < 0.6:
            said |= {PREFIX + "preemptible": "true", PREFIX + "restart-s": "2"}
        labels = {"job": name}
        if size > 1:
            labels |= {PREFIX + "gang": name}
            said |= {PREFIX + "gang-size": str(size)}
        bodies = [pod_body(f"{name}-{i}", gpus, said, labels) for i in range(size)]
        return Job(name, bodies, float(rng.integers(*seconds)))

    def _make(self, job: Job) -> None:
        self.jobs[job.name] = job
        self._make_pods(job)

    def _make_pods(self, job: Job) -> None:
        """Make the pods of a job, each run under other names, as controllers do."""
        for body in job.bodies:
            metadata = {**body["metadata"], "name": f"{body['metadata']['name']}-{job.runs}"}
            metadata["labels"] = {**metadata["labels"], "job": job.name}
            self._surely(self.api.core.create_namespaced_pod, "default", {**body, "metadata": metadata})

    def _surely(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Ask until there is an answer; that it is there, or gone, already will do."""
        while not self._stop.is_set():
            try:
                self.api.call(method, *arguments, **named)
                return
            except KubernetesError as error:
                if error.certain:
                    if error.status not in (404, 409):
                        raise
                    return
                time.sleep(0.2)

    # -- what the watch shows ----------------------------------------------------------------------------

    def follow(self) -> None:
        """Take down every event of the pods; after a break those since then, or all as they are."""
        version = "0"
        while not self._stop.is_set():
            try:
                if version == "0":
                    found, version = self.api.listed(self.api.core.list_pod_for_all_namespaces)
                    kept = {one["metadata"]["uid"] for one in found}
                    for uid in self.pods.keys() - kept:
                        self._see(uid, None)
                    for one in found:
                        self._see(one["metadata"]["uid"], one)
                for event in self.api.watched(self.api.core.list_pod_for_all_namespaces, version):
                    if self._stop.is_set():
                        return
                    if event:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            gone = event["type"] == "DELETED"
                            uid = event["object"]["metadata"]["uid"]
                            self._see(uid, None if gone else event["object"])
            except KubernetesError as error:
                version = "0" if error.status == 410 else version
                self.unanswered += 1
                time.sleep(0.2)

    def _see(self, uid: str, found: dict[str, Any] | None) -> None:
        with self._lock:
            before = self.pods.get(uid)
            if found is None:
                if before is not None:
                    del self.pods[uid]
                    self._recount(before, None)
                return
            now = self._seen(found)
            self.pods[uid] = now
            if now.phase == "Succeeded":
                self.succeeded[now.job].add(now.name)
            if now.node and (before is None or not before.node):
                self.bindings[uid].append(now.node)
                late_s = self.cordoned.get(now.node)
                self.on_cordoned += (
                    late_s is not None and time.time() > late_s + 2.0 and not self.jobs[now.job].others
                )
            elif now.node and before is not None and before.node != now.node:
                self.bindings[uid].append(now.node)
            self._recount(before, now)

    def _seen(self, found: dict[str, Any]) -> Seen:
        metadata, spec = found["metadata"], found["spec"]
        gpus = int(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        launch = json.loads((metadata.get("annotations") or {}).get(PREFIX + "launch", "null"))
        power_w = MOST_W * gpus if launch is None else launch["power_w"]
        leaving = bool(metadata.get("deletionTimestamp"))
        phase = found["status"].get("phase", "")
        job, node = metadata["labels"]["job"], spec.get("nodeName", "")
        return Seen(metadata["name"], job, node, power_w, gpus, phase, leaving)

    def _recount(self, before: Seen | None, now: Seen | None) -> None:
        """Add what a pod draws now to what all draw, and hold it against the cap."""
        for seen, sign in ((before, -1), (now, 1)):
            if seen is not None and seen.node and seen.phase not in ("Succeeded", "Failed"):
                self._power_w += sign * (seen.power_w - seen.gpus * IDLE_W)
                self._used[seen.node] += sign * seen.gpus
                self.overfull += sign > 0 and self._used[seen.node] > GPUS
        now_s = time.time()
        if self.scheduler.caps:
            self.samples.append((now_s, self._power_w, self.scheduler.cap_w(now_s)))

    # -- kubelet and controller --------------------------------------------------------------------------

    def tend(self) -> int:
        """Let jobs run and end, and make those anew that were evicted; how many have not ended."""
        now_s = time.time()
        by_job: dict[str, list[Seen]] = defaultdict(list)
        with self._lock:
            for seen in self.pods.values():
                # Of runs before this one some pods may still be shown.
                if seen.name.endswith(f"-{self.jobs[seen.job].runs}"):
                    by_job[seen.job].append(seen)
        for name, pods in by_job.items():
            job = self.jobs[name]
            bound = sum(bool(seen.node) for seen in pods)
            if any(seen.leaving for seen in pods):
                self._make_anew(job)
            elif 0 < bound < len(job.bodies):
                job.split_s = job.split_s or now_s
            elif bound == len(job.bodies) and not job.begun_s:
                if job.split_s:
                    self.partly.append(now_s - job.split_s)
                    job.split_s = 0.0
                job.begun_s = now_s
                heapq.heappush(self._due, (now_s + job.seconds, name))
                self._set_phase(self._names(job), "Running")
        while self._due and self._due[0][0] <= now_s:
            due_s, name = heapq.heappop(self._due)
            job = self.jobs[name]
            if job.begun_s and abs(job.begun_s + job.seconds - due_s) < 1e-6 and not job.ended:
                job.ended = True
                self._set_phase(self._names(job), "Succeeded")
        return sum(not job.ended for job in self.jobs.values())

    def _names(self, job: Job) -> list[str]:
        """Pods of a job's run."""
        return [f"{body['metadata']['name']}-{job.runs}" for body in job.bodies]

    def _make_anew(self, job: Job) -> None:
        """Remove pods that were evicted, whole gangs, and make the next run of the job."""
        for name in self._names(job):
            self._surely(self.api.core.delete_namespaced_pod, name, "default", grace_period_seconds=0)
        if not job.ended:
            job.runs, job.begun_s, job.split_s = job.runs + 1, 0.0, 0.0
            self.evicted += 1
            self._make_pods(job)

    def _set_phase(self, names: list[str], phase: str) -> None:
        for name in names:
            self._surely(
                self.api.core.patch_namespaced_pod_status, name, "default", {"status": {"phase": phase}}
            )

    # -- the scheduler -----------------------------------------------------------------------------------

    def start_scheduler(self) -> None:
        """Start ``wattsched kubernetes --apply``."""
        files = {"--budget": "cap.json", "--journal": "journal", "--kubeconfig": "kubeconfig"}
        files["--options"] = "site.json"
        words = ("--every", "1", "--deadline", "2", "--lease-namespace", "default")
        self.scheduler.start("kubernetes", *words, files=files)

    def close(self) -> None:
        """End the watch."""
        self._stop.set()


def run(
    folder: Path,
    nodes: int,
    pods: int,
    seed: int,
    limit_s: float = 1_500.0,
    seconds: tuple[int, int] = (20, 90),
    largest: int = 8,
) -> dict[str, Any]:
    """Run everything; what came of it."""
    allow = {"own_options": True, "own_power_w": True, "weight": [1, 3], "restart_s": [1, 10]}
    (folder / "site.json").write_text(json.dumps({"allow": allow}))
    with real_kubernetes(folder, nodes) as plane:
        trial = Trial(plane, nodes, seed)
        trial.submit(pods, seconds, largest)
        # Of what the cluster draws beyond idle, so much at most.
        share_w = nodes * GPUS * 250.0
        trial.scheduler.set_cap(trial.idle_w + share_w)
        threading.Thread(target=trial.follow, daemon=True).start()

        def cordon() -> None:
            for i in (1, 2):
                trial._surely(trial.api.core.patch_node, f"gpu-{i}", {"spec": {"unschedulable": True}})
                trial.cordoned[f"gpu-{i}"] = time.time()

        def restart_server() -> None:
            plane.stop_server()
            time.sleep(3.0)
            plane.start_server()

        def kill_scheduler() -> None:
            trial.scheduler.end(signal.SIGKILL)
            trial.start_scheduler()

        events: list[tuple[float, Callable[[], Any]]] = [
            (0.15, kill_scheduler),
            (0.25, lambda: trial.scheduler.set_cap(trial.idle_w + share_w / 2, NOTICE_S)),
            (0.40, cordon),
            (0.50, restart_server),
            (0.60, kill_scheduler),
        ]
        with trial.scheduler:
            trial.start_scheduler()
            begun = time.monotonic()
            while (left := trial.tend()) and time.monotonic() - begun < limit_s:
                if events and 1 - left / len(trial.jobs) >= events[0][0]:
                    events.pop(0)[1]()
                time.sleep(0.3)
            took_s = time.monotonic() - begun
            code = trial.scheduler.end(signal.SIGTERM)
        time.sleep(3.0)  # the last events
        trial.close()
        return figures(trial, took_s) | {"exit code": code}


def figures(trial: Trial, took_s: float) -> dict[str, Any]:
    """What was seen, in numbers."""
    ours = [job for job in trial.jobs.values() if not job.others]
    succeeded = {job.name: len(trial.succeeded[job.name]) for job in ours}
    gangs = [job for job in ours if len(job.bodies) > 1]
    return {
        "nodes": trial.nodes,
        "pods": sum(len(job.bodies) for job in ours),
        "gangs": len(gangs),
        "lost": sum(max(0, len(job.bodies) - succeeded[job.name]) for job in ours),
        "run twice": sum(max(0, succeeded[job.name] - len(job.bodies)) for job in ours),
        "bound twice": sum(len(nodes) > 1 for nodes in trial.bindings.values()),
        "never whole": sum(bool(job.split_s) for job in gangs),
        "split, s": max(trial.partly, default=0.0),
        "evicted": trial.evicted,
        "overfull": trial.overfull,
        "samples": len(trial.samples),
        "above the cap": sum(power_w > cap_w + 1e-6 for _, power_w, cap_w in trial.samples),
        "most, of the cap": max(power_w / cap_w for _, power_w, cap_w in trial.samples),
        "bound to cordoned nodes": trial.on_cordoned,
        **trial.scheduler.of_rounds(),
        "minutes": took_s / 60,
    }


ROWS = {
    "nodes": "nodes of eight GPUs",
    "pods": "pods submitted",
    "gangs": "gangs of 2 to 8 among them",
    "lost": "pods that did not run to their end",
    "run twice": "pods that ran again after their end",
    "bound twice": "pods that were bound twice",
    "never whole": "gangs of which only a part was ever bound",
    "split, s": "longest time in which a part of a gang was bound, s",
    "evicted": "jobs evicted, which ran later",
    "overfull": "moments at which a node had more than eight GPUs in use",
    "samples": "samples of the draw, at every change of a pod",
    "above the cap": "samples above the cap in force",
    "most, of the cap": "highest draw, as a part of the cap",
    "bound to cordoned nodes": "pods bound to cordoned nodes",
    "rounds": "rounds",
    "decision, ms": "decision, median ms",
    "round, s": "whole round with all bindings, median s",
    "longest round, s": "longest round, s",
    "minutes": "minutes in all",
    "exit code": "exit code after SIGTERM",
}
HARMLESS = ("nodes", "pods", "gangs", "evicted", "samples", "rounds", "minutes")


if __name__ == "__main__":
    run_and_write("kubernetes", __doc__, {"nodes": 200, "pods": 1_000}, missing, run, ROWS, HARMLESS)
