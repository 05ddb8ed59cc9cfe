"""A day of a Kubernetes cluster in minutes: cap halved, nodes cordoned, API server and scheduler restarted.

    python -m benchmarks.kubernetes_cluster --write [--nodes 200 --pods 1000 --seeds 2]

Starts a real API server (`real_kubernetes.py`), submits pods, among them gangs of 2 to 8, and runs
``wattsched kubernetes --apply``. In the middle the power cap is halved, announced some seconds before, two
nodes are cordoned, the API server is killed and started again, and the scheduler is killed (SIGKILL) and
started again. This script is kubelet and controller: it lets pods run when all of their gang are bound and
end after their seconds, removes those that were evicted, and makes them anew. It takes down every event of
the pods, each binding and each end, and works the draw out of them by code of its own.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cluster_trial import (
    BASE_W,
    IDLE_W,
    MOST_W,
    OF_ROUNDS,
    SHARE_W,
    Events,
    Scheduler,
    follow,
    trials,
)
from benchmarks.harness import Asked
from benchmarks.harness import run as run_benchmark
from benchmarks.real_kubernetes import GPUS, ControlPlane, missing, pod_body, real_kubernetes
from wattsched.adapters.kubernetes.api import Api, KubernetesError

NOTICE_S = 40.0
"""Seconds between the announcement of the cut of the cap and the cut."""
PREFIX = "wattsched.io/"


@dataclass
class Job:
    """A pod on its own, or a gang.

    Attributes
    ----------
    bodies : list of dict
        Its pods as they are made, and made again.
    runs : int
        How often it was made again.
    begun_s, split_s : float
        When the last of its pods was bound, and when the first of several; 0 before.
    """

    name: str
    bodies: list[dict[str, Any]]
    seconds: float
    others: bool = False
    runs: int = 0
    begun_s: float = 0.0
    split_s: float = 0.0
    ended: bool = False

    def pods(self) -> list[str]:
        """Names of the pods of this run, which others have not: so do controllers."""
        return [f"{body['metadata']['name']}-{self.runs}" for body in self.bodies]


class Seen(NamedTuple):
    """A pod as the watch showed it last."""

    name: str
    job: str
    node: str
    power_w: float
    gpus: int
    phase: str
    leaving: bool


class Trial:
    """A cluster, the scheduler on it, and what was seen of both."""

    def __init__(self, plane: ControlPlane, nodes: int, seed: int) -> None:
        self.plane, self.nodes, self.seed = plane, nodes, seed
        self.api = Api(str(plane.kubeconfig))
        self.idle_w = self.power_w = nodes * (BASE_W + GPUS * IDLE_W)
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Seen] = {}
        self.bindings: dict[str, list[str]] = defaultdict(list)
        self.samples: list[tuple[float, float]] = []
        self.cordoned: dict[str, float] = {}
        self.succeeded: dict[str, set[str]] = defaultdict(set)
        self.partly: list[float] = []
        self.on_cordoned = self.overfull = self.evicted = 0
        self._used: dict[str, int] = defaultdict(int)
        self._lock, self.stop = threading.Lock(), threading.Event()
        command = ("kubernetes", "--every", "1", "--deadline", "2", "--lease-namespace", "default")
        files = {"--budget": "cap.json", "--journal": "journal", "--kubeconfig": "kubeconfig"}
        self.scheduler = Scheduler(plane.folder, command, {**files, "--options": "site.json"})

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
        marks = {PREFIX + "weight": str(int(rng.integers(1, 4)))}
        if rng.random() < 0.7:
            total, watts = size * gpus, [400.0, 300.0, 200.0]
            option = {"gpus": [total] * 3, "pool": ["A100"] * 3, "rate": [1.0, 0.9, 0.75]}
            option |= {"power_w": [each * total for each in watts], "power_limit_w": watts}
            marks[PREFIX + "options"] = json.dumps(option)
        if rng.random() < 0.6:
            marks |= {PREFIX + "preemptible": "true", PREFIX + "restart-s": "2"}
        labels = {}
        if size > 1:
            labels = {PREFIX + "gang": name}
            marks |= {PREFIX + "gang-size": str(size)}
        bodies = [pod_body(f"{name}-{i}", gpus, marks, labels) for i in range(size)]
        return Job(name, bodies, float(rng.integers(*seconds)))

    def _make(self, job: Job) -> None:
        self.jobs[job.name] = job
        for body, name in zip(job.bodies, job.pods(), strict=True):
            labels = {**body["metadata"]["labels"], "job": job.name}
            metadata = {**body["metadata"], "name": name, "labels": labels}
            self.surely(self.api.core.create_namespaced_pod, "default", {**body, "metadata": metadata})

    def surely(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Ask until there is an answer; that it is there, or gone, already will do."""
        while not self.stop.is_set():
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

    def watch(self) -> None:
        """Take down every event of the pods; after a break those since then, or all as they are."""
        listing, version = self.api.core.list_pod_for_all_namespaces, "0"
        while not self.stop.is_set():
            try:
                if version == "0":
                    found, version = self.api.listed(listing)
                    for uid in self.pods.keys() - {one["metadata"]["uid"] for one in found}:
                        self._see(uid, None)
                    for one in found:
                        self._see(one["metadata"]["uid"], one)
                for event in self.api.watched(listing, version):
                    if self.stop.is_set():
                        return
                    if event:
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            gone = event["type"] == "DELETED"
                            self._see(event["object"]["metadata"]["uid"], None if gone else event["object"])
            except KubernetesError as error:
                version = "0" if error.status == 410 else version
                time.sleep(0.2)

    def _see(self, uid: str, found: dict[str, Any] | None) -> None:
        with self._lock:
            before, now = self.pods.pop(uid, None), None if found is None else self._seen(found)
            if now is not None:
                self.pods[uid] = now
                if now.phase == "Succeeded":
                    self.succeeded[now.job].add(now.name)
                if now.node and (before is None or before.node != now.node):
                    self.bindings[uid].append(now.node)
                    late = time.time() > self.cordoned.get(now.node, np.inf) + 2.0
                    self.on_cordoned += late and not self.jobs[now.job].others
            self._recount(before, now)

    def _seen(self, found: dict[str, Any]) -> Seen:
        metadata, spec = found["metadata"], found["spec"]
        gpus = int(spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        launch = json.loads((metadata.get("annotations") or {}).get(PREFIX + "launch", "null"))
        power_w = MOST_W * gpus if launch is None else launch["power_w"]
        job, node = metadata["labels"]["job"], spec.get("nodeName", "")
        phase, leaving = found["status"].get("phase", ""), bool(metadata.get("deletionTimestamp"))
        return Seen(metadata["name"], job, node, power_w, gpus, phase, leaving)

    def _recount(self, before: Seen | None, now: Seen | None) -> None:
        """Add what a pod draws now to what all draw, and hold it against the cap."""
        for seen, sign in ((before, -1), (now, 1)):
            if seen is not None and seen.node and seen.phase not in ("Succeeded", "Failed"):
                self.power_w += sign * (seen.power_w - seen.gpus * IDLE_W)
                self._used[seen.node] += sign * seen.gpus
                self.overfull += sign > 0 and self._used[seen.node] > GPUS
        if self.scheduler.caps:
            self.samples.append((self.power_w, self.scheduler.cap_w(time.time())))

    # -- kubelet and controller --------------------------------------------------------------------------

    def tend(self) -> float:
        """Let jobs run and end, and make those anew that were evicted; the share that has ended."""
        now_s = time.time()
        by_job: dict[str, list[Seen]] = defaultdict(list)
        with self._lock:
            for seen in self.pods.values():
                # Of runs before this one some pods may still be shown.
                if seen.name.endswith(f"-{self.jobs[seen.job].runs}"):
                    by_job[seen.job].append(seen)
        for name, pods in by_job.items():
            job, bound = self.jobs[name], sum(bool(seen.node) for seen in pods)
            if any(seen.leaving for seen in pods):
                self._make_anew(job)
            elif 0 < bound < len(job.bodies):
                job.split_s = job.split_s or now_s
            elif bound == len(job.bodies) and not job.begun_s:
                if job.split_s:
                    self.partly.append(now_s - job.split_s)
                    job.split_s = 0.0
                job.begun_s = now_s
                self._set_phase(job, "Running")
        for job in self.jobs.values():
            if job.begun_s and not job.ended and job.begun_s + job.seconds <= now_s:
                job.ended = True
                self._set_phase(job, "Succeeded")
        return sum(job.ended for job in self.jobs.values()) / len(self.jobs)

    def _make_anew(self, job: Job) -> None:
        """Remove pods that were evicted, whole gangs, and make the next run of the job."""
        for name in job.pods():
            self.surely(self.api.core.delete_namespaced_pod, name, "default", grace_period_seconds=0)
        if not job.ended:
            job.runs, job.begun_s, job.split_s = job.runs + 1, 0.0, 0.0
            self.evicted += 1
            self._make(job)

    def _set_phase(self, job: Job, phase: str) -> None:
        for name in job.pods():
            status = {"status": {"phase": phase}}
            self.surely(self.api.core.patch_namespaced_pod_status, name, "default", status)

    # -- events ------------------------------------------------------------------------------------------

    def cordon(self) -> None:
        """Cordon two nodes."""
        for name in ("gpu-1", "gpu-2"):
            self.surely(self.api.core.patch_node, name, {"spec": {"unschedulable": True}})
            self.cordoned[name] = time.time()

    def restart_server(self) -> None:
        """Kill the API server for some seconds."""
        self.plane.stop_server()
        time.sleep(3.0)
        self.plane.start_server()


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
        scheduler, share_w = trial.scheduler, nodes * GPUS * SHARE_W
        trial.submit(pods, seconds, largest)
        scheduler.set_cap(trial.idle_w + share_w)
        threading.Thread(target=trial.watch, daemon=True).start()
        events: Events = [
            (0.15, scheduler.restart),
            (0.25, partial(scheduler.set_cap, trial.idle_w + share_w / 2, NOTICE_S)),
            (0.40, trial.cordon),
            (0.50, trial.restart_server),
            (0.60, scheduler.restart),
        ]
        with scheduler.running():
            took_s = follow(trial.tend, events, limit_s, every_s=0.3)
            code = scheduler.end(signal.SIGTERM)
        time.sleep(3.0)  # the last events
        trial.stop.set()
        return figures(trial) | {"minutes": took_s / 60, "exit code": code}


def figures(trial: Trial) -> dict[str, Any]:
    """Compute the figures of a trial."""
    ours = [job for job in trial.jobs.values() if not job.others]
    more = [len(trial.succeeded[job.name]) - len(job.bodies) for job in ours]
    gangs = [job for job in ours if len(job.bodies) > 1]
    return {
        "nodes": trial.nodes,
        "pods": sum(len(job.bodies) for job in ours),
        "gangs": len(gangs),
        "lost": sum(max(0, -each) for each in more),
        "run twice": sum(max(0, each) for each in more),
        "bound twice": sum(len(nodes) > 1 for nodes in trial.bindings.values()),
        "never whole": sum(bool(job.split_s) for job in gangs),
        "split, s": max(trial.partly, default=0.0),
        "evicted": trial.evicted,
        "overfull": trial.overfull,
        "samples": len(trial.samples),
        "above the cap": sum(power_w > cap_w + 1e-6 for power_w, cap_w in trial.samples),
        "most, of the cap": max(power_w / cap_w for power_w, cap_w in trial.samples),
        "bound to cordoned nodes": trial.on_cordoned,
        **trial.scheduler.of_rounds(),
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
    **OF_ROUNDS,
}
HARMLESS = ("nodes", "pods", "gangs", "evicted", "samples", "rounds", "minutes")


def kubernetes(asked: Asked) -> str:
    """One column for each seed."""
    if why := missing():
        raise SystemExit(why)
    sizes: dict[str, Any] = {"nodes": asked.nodes, "pods": asked.pods}
    if asked.quick:
        sizes = {"nodes": 12, "pods": 40, "limit_s": 240.0, "seconds": (2, 8), "largest": 4}
    return trials(asked, run, ROWS, HARMLESS, {"": sizes})


TABLES = {"kubernetes": kubernetes}

if __name__ == "__main__":
    run_benchmark(__doc__, TABLES, seeds=2, nodes=200, pods=1_000)
