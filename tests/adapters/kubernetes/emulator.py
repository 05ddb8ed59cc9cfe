"""A small model of an API server: nodes and pods, bindings and evictions, and what becomes of pods."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

from tests.adapters.histories import FEED, GPUS, IDLE_W, MOST_W, NODES, TABLES, World, added_up
from tests.adapters.kubernetes.server import PREFIX, gpus_of, new_node, new_pod
from wattsched.adapters.budget import Budget
from wattsched.adapters.kubernetes.actions import Actions
from wattsched.adapters.kubernetes.api import KubernetesError
from wattsched.adapters.kubernetes.loop import Policy, Rounds
from wattsched.adapters.kubernetes.options import KubernetesOptions

GRACE_S = 20.0


class KubernetesWorld(World):
    """Three nodes, one of them behind a feed, and their API server with its mirror.

    Pods of a job have a number of its run in their names, as controllers make them anew.
    """

    def __init__(self, rng: Random) -> None:
        self.pods, self.down = dict[str, dict[str, Any]](), set[str]()
        self.jobs, self.ended = dict[str, dict[str, Any]](), Counter[str]()
        self.guarded = set[str]()
        super().__init__(rng)

    def new_rounds(self, budget: Budget) -> Rounds:
        feed = {"name": "feed", "members": list(FEED), "power_cap_w": self.feed_w}
        tables = {
            name: {field: column for field, column in table.items() if field != "frequency_mhz"}
            | {"power_limit_w": [400.0, 250.0]}
            for name, table in TABLES.items()
        }
        options = KubernetesOptions.model_validate({"power_domains": [feed], "tables": tables})
        server: Any = self
        policy = Policy(options, apply=True)
        return Rounds(policy, budget, self.journal, self.look, lambda of: Actions(server, server, of))

    def at(self, time_s: float) -> str:
        return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def look(self) -> dict[str, Any]:
        self.asked(KubernetesError("the API server does not answer"))
        self.advance()
        nodes = [new_node(name, ready=name not in self.down) for name in NODES]
        return copy.deepcopy({"time": self.clock(), "nodes": nodes, "pods": list(self.pods.values())})

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> None:
        self._change()
        pod = self.pods.get(uid)
        if pod is None:
            raise KubernetesError("not found", 404)
        if pod["spec"].get("nodeName"):
            raise KubernetesError("is bound", 409)
        launch = json.loads(annotations[PREFIX + "launch"])
        self.require_start({node: launch["gpus"]}, launch["power_w"])
        pod["metadata"]["annotations"] |= annotations
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running", "startTime": self.at(self.true_s)}
        if sum(gpus_of(one) for one in self.pods.values() if one["spec"].get("nodeName") == node) > GPUS:
            self.faults.append(f"{node} has too many pods")
        self.changed()

    def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool = False) -> None:
        self._change()
        if uid in self.guarded:
            raise KubernetesError("a budget", 429)
        if uid not in self.pods:
            raise KubernetesError("not found", 404)
        if not dry_run:
            self.pods[uid]["metadata"].setdefault("deletionTimestamp", self.at(self.true_s + GRACE_S))
        self.changed()

    def _change(self) -> None:
        self.asked(KubernetesError("the API server does not answer"))
        self.changed()

    def pod(self, namespace: str, name: str) -> Any:
        return self.pods.get(name)

    def write_event(self, namespace: str, event: dict[str, Any]) -> None:
        """Events change nothing here."""

    def wait(self, seen: Callable[[Any], bool], timeout_s: float = 0.0) -> bool:
        return seen(self.pods)

    def _leaves_s(self, pod: dict[str, Any]) -> float:
        text = pod["metadata"].get("deletionTimestamp")
        return float("inf") if text is None else datetime.fromisoformat(text).timestamp()

    def advance(self) -> None:
        for uid, pod in list(self.pods.items()):
            job = self.jobs[pod["metadata"]["labels"]["job"]]
            if self.true_s >= self._leaves_s(pod):
                del self.pods[uid]
                if not job["ended"]:
                    self._make(job, pod["metadata"]["labels"]["place"])
        for name, job in self.jobs.items():
            mine = [pod for pod in self.pods.values() if pod["metadata"]["labels"]["job"] == name]
            there = [pod for pod in mine if pod["spec"].get("nodeName") and self._leaves_s(pod) > 1e17]
            if len(there) < job["pods"] or job["ended"]:
                job["begun_s"] = None
                continue
            job["begun_s"] = self.true_s if job["begun_s"] is None else job["begun_s"]
            if self.true_s >= job["begun_s"] + job["seconds"]:
                job["ended"] = True
                self.ended[name] += 1
                for pod in mine:
                    del self.pods[pod["metadata"]["uid"]]

    def _make(self, job: dict[str, Any], place: str) -> None:
        """Make a pod of a job, as its controller does."""
        job["runs"] += 1
        uid = f"{job['name']}-{place}-{job['runs']}"
        labels = {"job": job["name"], "place": place} | job["labels"]
        about = {"annotations": dict(job["said"]), "creationTimestamp": self.at(self.true_s)}
        scheduler = "other" if job["foreign"] else "wattsched"
        self.pods[uid] = new_pod(uid, job["gpus"], "t", scheduler, labels=labels, **about)

    def submit(self, said: Any = None, foreign: bool = False) -> None:
        self.made += 1
        gpus, name = self.rng.choice([1, 2, 4, 8]), f"j{self.made}"
        pods = self.rng.choice([2, 3]) if said is None and gpus < 8 and self.rng.random() < 0.3 else 1
        labels, own = {}, dict[str, str]()
        if isinstance(said, dict):
            own = {PREFIX + field.replace("_", "-"): json.dumps(value) for field, value in said.items()}
        elif said is not None:
            own = {PREFIX + "options": str(said)}
        elif pods == 1 and self.rng.random() < 0.5:
            own = {PREFIX + "options": f"of{gpus}"}
        if pods > 1:
            labels = {PREFIX + "gang": name}
            own[PREFIX + "gang-size"] = str(pods)
        if self.rng.random() < 0.8:
            own[PREFIX + "preemptible"] = "true"
        job = {"name": name, "gpus": gpus, "pods": pods, "said": own, "labels": labels, "foreign": foreign}
        job |= {"seconds": self.rng.choice([20.0, 60.0, 150.0]), "good": said is None and not foreign}
        self.jobs[name] = job | {"ended": False, "begun_s": None, "runs": 0}
        for place in range(pods):
            self._make(self.jobs[name], str(place))
        if said is None and self.rng.random() < 0.1:
            self.guarded.add(f"{name}-0-1")

    def submit_long(self) -> None:
        self.submit({"preemptible": True})
        self.jobs[f"j{self.made}"]["seconds"] = 1e9

    def come_foreign(self) -> None:
        self.submit(said={}, foreign=True)
        pod = self.pods[f"j{self.made}-0-1"]
        for node in NODES:
            used = sum(gpus_of(one) for one in self.pods.values() if one["spec"].get("nodeName") == node)
            if node not in self.down and used + gpus_of(pod) <= GPUS:
                pod["spec"]["nodeName"], pod["status"] = node, {"phase": "Running"}
                return

    def end_foreign(self) -> None:
        for uid, pod in list(self.pods.items()):
            job = self.jobs[pod["metadata"]["labels"]["job"]]
            if job["foreign"]:
                job["ended"] = True
                del self.pods[uid]

    def fail_node(self) -> None:
        if self.down:
            return self.mend_nodes()
        self.down = {self.rng.choice(NODES)}
        if self.rng.random() < 0.5:
            # It is gone for long: its pods are deleted, and made anew elsewhere.
            for pod in self.pods.values():
                if pod["spec"].get("nodeName") in self.down:
                    pod["metadata"].setdefault("deletionTimestamp", self.at(self.true_s))
        return None

    def mend_nodes(self) -> None:
        self.down, self.guarded = set(), set()

    def drawn_w(self, leaving: bool = False) -> dict[str, float]:
        by_node = dict.fromkeys(NODES, 0.0)
        for pod in self.pods.values():
            node = pod["spec"].get("nodeName")
            if node and (leaving or self._leaves_s(pod) > 1e17):
                launch = json.loads(pod["metadata"]["annotations"].get(PREFIX + "launch", "{}"))
                power_w = launch.get("power_w", gpus_of(pod) * MOST_W)
                by_node[node] += power_w - gpus_of(pod) * IDLE_W
        return added_up(by_node)

    def may_stop(self, name: str) -> list[str]:
        found = []
        for job in self.jobs.values():
            mine = [pod for pod in self.pods.values() if pod["metadata"]["labels"]["job"] == job["name"]]
            there = [one for one in mine if one["spec"].get("nodeName") and self._leaves_s(one) > 1e17]
            free = job["said"].get(PREFIX + "preemptible") == "true" and not job["foreign"]
            guarded = any(one["metadata"]["uid"] in self.guarded for one in there)
            # What draws no more than idle GPUs frees nothing.
            under = [one for one in there if not name or one["spec"]["nodeName"] in FEED]
            under = [one for one in under if '"power_w": 0.0' not in str(job["said"])]
            if free and under and not guarded:
                found.append(str(job["name"]))
        return found

    def unfinished(self) -> list[str]:
        if twice := [name for name, runs in self.ended.items() if runs > 1]:
            self.faults.append(f"{twice} ran twice")
        return [f"{name}: {job}" for name, job in self.jobs.items() if job["good"] and not job["ended"]]
