"""A small model of Slurm: its commands, what becomes of jobs, and the shipped agent on each node."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

from benchmarks.emulated_slurm import agent_module
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
    begun_s, started_s, leaves_s : float
        When it began, later by the time of its pauses, and without that; when it is off its nodes after a
        stop.
    suspended_s, ran_s : float
        When it was suspended last, or resumed, and how long it had run then.
    signals : list
        In which run it was sent what.
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
    clock_mhz: int = 0
    held: dict[str, list[int]] = field(default_factory=dict)
    begun_s: float = 0.0
    leaves_s: float = 0.0
    completed: int = 0
    started_s: float = 0.0
    suspended_s: float = 0.0
    ran_s: float = 0.0
    signals: list[tuple[int, str]] = field(default_factory=list)

    @property
    def launch(self) -> dict[str, Any]:
        """How it was released last."""
        return dict(json.loads(self.admin_comment)["wattsched"]) if "power_w" in self.admin_comment else {}


class SlurmWorld(World):
    """Three nodes, one of them behind a feed, and their slurmctld.

    Attributes
    ----------
    clock_mhz : dict
        Of each GPU that a job has set to one, by node and number.
    site_jobs : dict
        What the site says of jobs by name.
    suspends : bool
        Whether Slurm suspends jobs that it is asked to.
    agents : dict
        Shipped agents by node; one acts in its own time, and not at all where it is in `dead`.
    """

    site_jobs: ClassVar[dict[str, Any]] = {}
    EACH_W = {1410: MOST_W, 1005: 250.0}
    """Watts of a GPU beyond an idle one, by its clock."""

    def __init__(self, rng: Random) -> None:
        self.jobs, self.down = dict[int, Job](), set[str]()
        self.clock_mhz, self.agents = dict[tuple[str, int], int](), dict[str, Any]()
        self.dead = set(NODES) if rng.random() < 0.2 else set[str]()
        self.slow, self.refusing = rng.choice([0.0, 0.0, 0.3, 0.9]), 0.1
        self.suspends = rng.random() < 0.9
        super().__init__(rng)

    def act(self) -> None:
        """Let the agents act that are there, and not too slow."""
        for node in NODES:
            if node in self.dead | self.down or self.rng.random() < self.slow:
                continue
            if node not in self.agents:
                clock = SimpleNamespace(time=lambda: self.true_s)
                module = agent_module(time=clock, ran=partial(self.tool, node))
                (self.folder / "settings/nodes").mkdir(parents=True, exist_ok=True)
                self.agents[node] = module.Agent(str(self.folder / "settings"), node, "nvidia-smi")
            self.agents[node].step()

    def tool(self, node: str, words: list[str], dry_run: bool = False) -> tuple[str, str]:
        """Answer nvidia-smi; now and then it refuses."""
        assert not dry_run
        gpus = [int(number) for number in words[2].split(",")]
        if "--query-gpu=index,uuid,power.draw" in words:
            clocks = {gpu: self.clock_mhz.get((node, gpu), 0) for gpu in gpus}
            watts = [f"{gpu}, GPU-{gpu}, {self.EACH_W.get(clocks[gpu], MOST_W)}" for gpu in gpus]
            return "\n".join(["index, uuid, power.draw [W]", *watts]), ""
        assert words[3] == "-lgc"
        if self.rng.random() < self.refusing:
            return "", "is busy"
        self.clock_mhz |= {(node, gpu): int(words[4].split(",")[0]) for gpu in gpus}
        return "", ""

    def change_agents(self) -> None:
        """Let an agent end, or begin anew."""
        node = self.rng.choice(NODES)
        self.dead ^= {node}
        self.agents.pop(node, None)

    def pass_time(self, seconds: float) -> None:
        super().pass_time(seconds)
        self.act()

    def new_rounds(self, budget: Budget) -> Rounds:
        feed = {"name": "feed", "members": list(FEED), "power_cap_w": self.feed_w}
        options = {"power_domains": [feed], "base_power_w": BASE_W, "tables": TABLES, "jobs": self.site_jobs}
        policy = Policy(Ours(), SiteOptions.model_validate(options), apply=True, every_s=30.0)
        folder = self.folder / "settings"
        look, actions = partial(take, settings=folder), partial(Actions, settings=folder)
        return Rounds(policy, budget, self.journal, look, actions)

    def ask(self, *words: str, **_: Any) -> str:
        """Answer a command."""
        self.asked(SlurmError(f"'{words[0]}' did not answer"))
        match tuple(word for word in words if word not in ("--all", "--json")):
            case ("sinfo",) | ("scontrol", "show", "node"):
                return json.dumps({"nodes": [self._node(name) for name in NODES]})
            case ("squeue", *_):
                self.advance()
                self.act()
                return json.dumps({"jobs": [self._row(job) for job in self.jobs.values()]})
            case ("scontrol", "--oneliner", "show", "partition"):
                return "PartitionName=gpu State=UP"
            case ("scontrol", "--oneliner", "show", "reservation"):
                return "No reservations in the system"
            case ("scontrol", "--oneliner", "show", "topology"):
                return ""
            case ("scancel", signal, *_, number):
                self.changed()
                self._signal(self.jobs[int(number)], signal.removeprefix("--signal="))
                self.changed()
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
            self._require_change(job, fields.get("AdminComment", ""))
            job.admin_comment = fields.get("AdminComment", job.admin_comment)
            job.pinned = fields.get("ReqNodeList", job.pinned)
            job.clock_mhz = int(fields.get("TresFreq", "0").rpartition(":")[2]) or job.clock_mhz
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
        elif verb == "suspend":
            self._suspend(job)
        elif verb == "resume":
            if job.state != "SUSPENDED":
                raise SlurmError("scontrol: Job is not suspended")
            watts, counts = self.job_w(job), {node: len(gpus) for node, gpus in job.held.items()}
            paused_w = job.launch["paused_w"] - IDLE_W * sum(counts.values())
            self.require_start(counts, sum(watts.values()) - paused_w)
            self._resume(job)
        elif verb == "requeuehold":
            assert rest[0] == "Incomplete"
            if job.state not in ("RUNNING", "SUSPENDED") or not job.requeue:
                raise SlurmError("scontrol: Job has already finished")
            job.state, job.leaves_s, job.priority = (
                "COMPLETING",
                self.true_s + self.rng.choice([0, 0, 5, 50]),
                0,
            )
            job.restarts += 1

    def _suspend(self, job: Job) -> None:
        if job.state != "RUNNING" or not self.suspends:
            raise SlurmError("scontrol: Requested operation not supported on this system")
        job.state, job.suspended_s, job.ran_s = "SUSPENDED", self.true_s, self.true_s - job.begun_s

    def _resume(self, job: Job) -> None:
        job.state, job.begun_s = "RUNNING", job.begun_s + self.true_s - job.suspended_s
        job.suspended_s = self.true_s

    def _signal(self, job: Job, signal: str) -> None:
        if job.state != "RUNNING":
            raise SlurmError("scancel: Job can not be altered now, try again later")
        if (job.restarts, signal) in job.signals:
            self.faults.append(f"job {job.id} was sent {signal} twice")
        job.signals.append((job.restarts, signal))

    def suspend_as_others(self) -> None:
        """Let an administrator suspend a running job, or let one go on."""
        jobs = [
            job for job in self.jobs.values() if job.state in ("RUNNING", "SUSPENDED") and not job.foreign
        ]
        job = self.rng.choice(jobs) if jobs else None
        if job is not None and job.state == "SUSPENDED":
            self._resume(job)
        elif job is not None and job.state == "RUNNING":
            job.state, job.suspended_s, job.ran_s = "SUSPENDED", self.true_s, self.true_s - job.begun_s

    def _require_change(self, job: Job, comment: str) -> None:
        """Hold a change of the settings of a running job against the cap."""
        if job.state != "RUNNING" or not comment:
            return
        launch, drawn_w = json.loads(comment)["wattsched"], sum(self.job_w(job).values())
        more_w = launch["power_w"] - drawn_w
        if more_w > 1e-6 and launch["power_w"] > job.launch["power_w"]:
            counts = {node: len(gpus) for node, gpus in job.held.items()}
            self.require_start(counts, more_w + IDLE_W * sum(counts.values()))

    def job_w(self, job: Job) -> dict[str, float]:
        """Watts of a running job by node: by the clocks of its GPUs, if it was released with one."""
        clocked = "frequency_mhz" in job.launch
        return {
            node: sum(self.EACH_W[self.clock_mhz[node, gpu]] if clocked else MOST_W for gpu in gpus)
            for node, gpus in job.held.items()
        }

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
            "start_time": int(job.started_s),
            "suspend_time": int(job.suspended_s),
            "pre_sus_time": int(job.ran_s),
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
                job.started_s, job.suspended_s, job.ran_s = self.true_s, 0.0, 0.0
                # Of somebody else's job that begins within a round only the next round can know.
                self.refused |= job.foreign
                self.clock_mhz |= {(name, gpu): job.clock_mhz for gpu in job.held[name]}
                return

    def _add(self, gpus: int, comment: str, **fields: Any) -> None:
        self.made += 1
        self.jobs[self.made] = Job(
            self.made, gpus, self.rng.choice([20.0, 60.0, 150.0, 400.0]), comment, **fields
        )

    def submit(self, said: Any = None) -> None:
        gpus, requeue = self.rng.choice([1, 2, 4, 8]), self.rng.random() < 0.8
        if said is not None:
            self._add(gpus, json.dumps({"wattsched": said}), good=False)
            return
        self._add(
            gpus,
            json.dumps({"wattsched": self.rng.choice([{}, *[{"options": f"of{gpus}"}] * 3])}),
            requeue=requeue,
        )

    def submit_long(self) -> None:
        self._add(1, '{"wattsched": {}}')
        self.jobs[self.made].seconds = 1e9

    def come_foreign(self) -> None:
        self._add(self.rng.randint(1, 6), "", foreign=True, priority=1)
        self.advance()

    def end_foreign(self) -> None:
        for job in self.jobs.values():
            if job.foreign and job.state in ("RUNNING", "PENDING"):
                job.state, job.held = "COMPLETED", {}

    def fail_node(self, name: str = "") -> None:
        if self.down:
            return self.mend_nodes()
        self.down = {name or self.rng.choice(NODES)}
        for job in self.jobs.values():
            if job.held.keys() & self.down:
                # Slurm requeues what it may, and starts it again by itself.
                if job.requeue and job.state in ("RUNNING", "SUSPENDED"):
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
        for job in self.jobs.values():
            if job.state == "SUSPENDED" and "paused_s" not in job.launch:
                self._resume(job)

    def drawn_w(self, leaving: bool = False) -> dict[str, float]:
        by_node = dict.fromkeys(NODES, 0.0)
        for job in self.jobs.values():
            launch = job.launch
            released = job.state == "PENDING" and job.priority > 0 and launch.get("run") == job.restarts
            if (
                job.state in ("RUNNING", "SUSPENDED")
                or (leaving and job.state == "COMPLETING")
                or (released and not job.foreign)
            ):
                gpus = {node: len(one) for node, one in job.held.items()} or launch.get("nodes", {})
                same = launch.get("nodes") == gpus
                each_w = launch["power_w"] / launch["gpus"] if same else MOST_W
                watts = {node: count * each_w for node, count in gpus.items()}
                if same and job.held and not job.foreign:
                    watts = self.job_w(job)
                if job.state == "SUSPENDED":
                    paused_w = launch["paused_w"] / job.gpus if "paused_s" in launch else IDLE_W
                    watts = {node: count * paused_w for node, count in gpus.items()}
                for node, count in gpus.items():
                    by_node[node] += watts[node] - count * IDLE_W
        return added_up(by_node)

    def may_stop(self, name: str) -> list[str]:
        found = []
        for job in self.jobs.values():
            may = job.requeue or (self.suspends and "paused_w" in job.launch)
            free = job.state == "RUNNING" and may and not job.foreign
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
    monkeypatch.setattr(actions, "_AT_ONCE", 1)  # what happens follows from the seed
    monkeypatch.setattr(loop, "_LOOK_S", 0.0)
    monkeypatch.setattr(loop, "_SETTLE_S", 0.01)
    monkeypatch.setattr(loop, "_CONFIRM_S", 0.02)
    return Current
