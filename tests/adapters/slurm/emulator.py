"""A small model of Slurm: its commands, and what becomes of jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.adapters.histories import BASE_W, FEED, GPUS, IDLE_W, MOST_W, NODES, TABLES, World, added_up
from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm import actions, loop, snapshot
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.snapshot import SlurmError, take


@dataclass
class Job:
    """A job in the queue.

    Attributes
    ----------
    seconds : float
        That it runs.
    begun_s, leaves_s : float
        When it began, and when it is off its nodes after it was stopped.
    """

    id: int
    gpus: int
    seconds: float
    comment: str
    foreign: bool = False
    good: bool = True
    requeue: bool = True
    state: str = "PENDING"
    priority: int = 0
    restarts: int = 0
    admin_comment: str = ""
    pinned: str = ""
    held: dict[str, list[int]] = field(default_factory=dict)
    begun_s: float = 0.0
    leaves_s: float = 0.0
    completed: int = 0

    @property
    def launch(self) -> dict[str, Any]:
        """How it was released last."""
        return dict(json.loads(self.admin_comment)["wattsched"]) if "power_w" in self.admin_comment else {}


class SlurmWorld(World):
    """Three nodes, one of them behind a feed, and their slurmctld."""

    def __init__(self, rng: Random) -> None:
        self.jobs, self.down = dict[int, Job](), set[str]()
        super().__init__(rng)

    def new_rounds(self, budget: Budget) -> Rounds:
        feed = {"name": "feed", "members": list(FEED), "power_cap_w": self.feed_w}
        options = {"power_domains": [feed], "base_power_w": BASE_W, "tables": TABLES}
        policy = Policy(Ours(), SiteOptions.model_validate(options), apply=True, every_s=30.0)
        return Rounds(policy, budget, self.journal, take, Actions)

    def ask(self, *words: str, **_: Any) -> str:
        """Answer a command."""
        self.asked(SlurmError(f"'{words[0]}' did not answer"))
        match tuple(word for word in words if word not in ("--all", "--json")):
            case ("sinfo",) | ("scontrol", "show", "node"):
                return json.dumps({"nodes": [self._node(name) for name in NODES]})
            case ("squeue", *_):
                self.advance()
                return json.dumps({"jobs": [self._row(job) for job in self.jobs.values()]})
            case ("scontrol", "--oneliner", "show", "partition"):
                return "PartitionName=gpu State=UP"
            case ("scontrol", "--oneliner", "show", "reservation"):
                return "No reservations in the system"
            case ("scontrol", "--oneliner", "show", "topology"):
                return ""
            case ("scontrol", *rest):
                self.changed()
                self._control(*rest)
                self.changed()
                return ""
        raise AssertionError(words)

    def _control(self, verb: str, *rest: str) -> None:
        if verb == "update":
            fields = dict(word.split("=", 1) for word in rest)
            job = self.jobs[int(fields["JobId"])]
            job.admin_comment = fields.get("AdminComment", job.admin_comment)
            job.pinned = fields.get("ReqNodeList", job.pinned)
            job.gpus = int(fields["Gres"].rpartition(":")[2]) if "Gres" in fields else job.gpus
            return
        job = self.jobs[int(rest[-1])]
        if verb == "release":
            if job.state == "PENDING":
                if not job.priority:
                    self.require_start(job.launch["nodes"], job.launch["power_w"])
                job.priority = 1
                self.advance()
        elif verb == "uhold":
            job.priority = 0 if job.state == "PENDING" else job.priority
        elif verb == "requeuehold":
            assert rest[0] == "Incomplete"
            if job.state != "RUNNING" or not job.requeue:
                raise SlurmError("scontrol: Job has already finished")
            job.state, job.leaves_s, job.priority = (
                "COMPLETING",
                self.true_s + self.rng.choice([0, 0, 5, 50]),
                0,
            )
            job.restarts += 1

    def _node(self, name: str) -> dict[str, Any]:
        used = sorted(number for job in self.jobs.values() for number in job.held.get(name, ()))
        told = f"gpu:A100:{len(used)}(IDX:{','.join(map(str, used))})" if used else "gpu:A100:0"
        row = {"name": name, "state": ["DOWN" if name in self.down else "IDLE"], "partitions": ["gpu"]}
        return row | {"gres": f"gpu:A100:{GPUS}", "gres_used": told, "cpus": 128, "real_memory": 10**6}

    def _row(self, job: Job) -> dict[str, Any]:
        detail = [f"gpu:A100:{len(one)}(IDX:{','.join(map(str, one))})" for one in job.held.values()]
        return {
            "job_id": job.id,
            "job_state": [job.state],
            "name": f"job{job.id}",
            "partition": "gpu",
            "comment": job.comment,
            "admin_comment": job.admin_comment,
            "nodes": ",".join(job.held),
            "gres_detail": detail,
            "required_nodes": job.pinned,
            "tres_per_node": f"gres:gpu:{job.gpus}",
            "node_count": 1,
            "priority": job.priority,
            "state_reason": "None" if job.priority else "JobHeldUser",
            "restart_cnt": job.restarts,
            "time_limit": 60,
            "start_time": int(job.begun_s),
            "submit_time": int(self.true_s),
            "requeue": job.requeue,
        }

    def advance(self) -> None:
        for job in list(self.jobs.values()):
            if job.state == "COMPLETING" and self.true_s >= job.leaves_s:
                job.state, job.held = "PENDING", {}
            if job.state == "RUNNING" and self.true_s >= job.begun_s + job.seconds:
                job.state, job.held, job.completed = "COMPLETED", {}, job.completed + 1
                if job.completed > 1:
                    self.faults.append(f"job {job.id} ran twice")
        for job in self.jobs.values():
            if job.state == "PENDING" and job.priority:
                self._begin(job)

    def _begin(self, job: Job) -> None:
        for name in [job.pinned] if job.pinned else NODES:
            used = {number for one in self.jobs.values() for number in one.held.get(name, ())}
            free = [number for number in range(GPUS) if number not in used]
            if name not in self.down and len(free) >= job.gpus:
                job.held, job.state, job.begun_s = {name: free[: job.gpus]}, "RUNNING", self.true_s
                return

    def _add(self, gpus: int, comment: str, **fields: Any) -> None:
        self.made += 1
        self.jobs[self.made] = Job(self.made, gpus, self.rng.choice([20.0, 60.0, 150.0]), comment, **fields)

    def submit(self, said: Any = None) -> None:
        gpus, requeue = self.rng.choice([1, 2, 4, 8]), self.rng.random() < 0.8
        if said is not None:
            self._add(gpus, json.dumps({"wattsched": said}), good=False)
            return
        self._add(
            gpus, json.dumps({"wattsched": self.rng.choice([{}, {"options": f"of{gpus}"}])}), requeue=requeue
        )

    def come_foreign(self) -> None:
        self._add(self.rng.randint(1, 6), "", foreign=True, priority=1)
        self.advance()

    def end_foreign(self) -> None:
        for job in self.jobs.values():
            if job.foreign and job.state in ("RUNNING", "PENDING"):
                job.state, job.held = "COMPLETED", {}

    def fail_node(self) -> None:
        if self.down:
            return self.mend_nodes()
        self.down = {self.rng.choice(NODES)}
        for job in self.jobs.values():
            if job.held.keys() & self.down:
                # Slurm requeues what it may, and starts it again by itself.
                if job.requeue and job.state == "RUNNING":
                    job.state, job.restarts, job.priority = "PENDING", job.restarts + 1, 1
                elif job.state == "COMPLETING":
                    job.state = "PENDING"
                elif not job.foreign:
                    job.state, job.good = "NODE_FAIL", False
                else:
                    job.state = "NODE_FAIL"
                job.held = {}
        return None

    def mend_nodes(self) -> None:
        self.down = set()

    def drawn_w(self, leaving: bool = False) -> dict[str, float]:
        by_node = dict.fromkeys(NODES, 0.0)
        for job in self.jobs.values():
            launch = job.launch
            released = job.state == "PENDING" and job.priority > 0 and launch.get("run") == job.restarts
            if (
                job.state == "RUNNING"
                or (leaving and job.state == "COMPLETING")
                or (released and not job.foreign)
            ):
                gpus = {node: len(one) for node, one in job.held.items()} or launch.get("nodes", {})
                same = launch.get("nodes") == gpus
                each_w = launch["power_w"] / launch["gpus"] if same else MOST_W
                for node, count in gpus.items():
                    by_node[node] += count * (each_w - IDLE_W)
        return added_up(by_node)

    def may_stop(self, name: str) -> list[str]:
        found = []
        for job in self.jobs.values():
            free = job.state == "RUNNING" and job.requeue and not job.foreign
            # What draws no more than idle GPUs frees nothing.
            frees = job.launch.get("power_w", 0.0) > IDLE_W * job.gpus
            if free and frees and (not name or job.held.keys() & set(FEED)):
                found.append(str(job.id))
        return found

    def unfinished(self) -> list[str]:
        ours = [job for job in self.jobs.values() if job.good and not job.foreign]
        return [f"{job.id}: {job}" for job in ours if not job.completed]


def patched(monkeypatch: Any) -> type[SlurmWorld]:
    """The world whose commands our modules ask, without waiting."""
    current: list[SlurmWorld] = []

    class Current(SlurmWorld):
        def __init__(self, rng: Random) -> None:
            current[:] = [self]
            super().__init__(rng)

    def ask(*words: str, **options: Any) -> str:
        return current[0].ask(*words, **options)

    for module in (snapshot, actions):
        monkeypatch.setattr(module, "ask", ask)
    monkeypatch.setattr(loop, "_LOOK_S", 0.0)
    monkeypatch.setattr(loop, "_SETTLE_S", 0.01)
    return Current
