"""Ten signals on a Slurm cluster, with watts that differ from the model's, by lowered settings and without.

    python -m benchmarks.slurm_signals --write [--nodes 40 --jobs 500 --seeds 1]

Starts a real Slurm (`emulated_slurm.py`), submits jobs of five seconds to four minutes with three power
limits each, and runs ``wattsched slurm --apply``, first with lowered settings, then with GPUs that refuse
other limits while a job runs, so that jobs stop; the first with each release of WATTSCHED_SLURM_ROOTS, too.
The file of ``--budget`` is a signal that changes ten times within seven minutes (`SIGNALS`). slurmctld is
stopped and started again during the sixth event.

The watts are those of a plant. The shipped agent runs for each node, in a thread of this process, and its
tool is the plant: a GPU of a job draws what the site's file states for its power limit, times a factor of the
job (log-normal, standard deviation 0.1), times a swing (0.02) that is new at every look. Prolog and epilog
say which job has which GPUs, so a restart of slurmctld hides nothing. The sum over all GPUs and servers is
sampled every second, and held against the signal as it was in the file then.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from benchmarks.cluster_trial import BASE_W, IDLE_W, OF_ROUNDS, SHARE_W, follow, trials
from benchmarks.emulated_slurm import (
    GPUS,
    EmulatedSlurm,
    agent_module,
    emulated_slurm,
    missing,
    release,
    roots,
)
from benchmarks.harness import Asked
from benchmarks.harness import run as run_benchmark
from benchmarks.slurm import Trial
from wattsched.instances.signals import Signal

ERROR, SWING = 0.1, 0.02
"""Relative standard deviations of the factor of a job, and of its watts from look to look."""
LEFT_OUT_S = 15.0
"""Seconds after a cut without notice whose samples do not count as above: it has to be read and acted on."""
FEED = "feed-a"
WATTS = {400: 375.0, 250: 262.5, 150: 162.5}
"""Watts of a GPU by its power limit; they include those of an idle one."""
RATES = {400: 1.0, 250: 0.88, 150: 0.55}
CLASSES = {"flex": (0.5, 0.5), "normal": (0.75, 0.4), "urgent": (0.9, 0.1)}
"""Least progress of the jobs of a class, and its part of the jobs."""


class Told(NamedTuple):
    """A signal: when the file has it, from when to when it holds, and its limit, all in seconds."""

    told_s: float
    begin_s: float
    end_s: float
    limit: dict[str, Any]
    withdrawn_s: float = np.inf


SIGNALS = {
    "announced": Told(0, 40, 65, {"share": 0.8}),
    "ramp": Told(40, 85, 115, {"share": 0.85, "ramp_w_per_s": 1000.0}),
    "no notice": Told(130, 130, 155, {"share": 0.85}),
    "withdrawn": Told(135, 185, 210, {"share": 0.7}, withdrawn_s=165),
    "domain": Told(160, 205, 230, {"domain": FEED}),
    "slurmctld restarted": Told(210, 250, 285, {"share": 0.8}),
    "ten seconds of notice": Told(295, 305, 325, {"share": 0.85}),
    "long": Told(300, 345, 385, {"share": 0.85}),
    "within the long one": Told(345, 355, 375, {"share": 0.8}),
    "no notice again": Told(400, 400, 420, {"share": 0.85}),
}
RESTART_S = 258.0
"""Seconds from the first signal's notice to the stop of slurmctld."""


def options(nodes: int) -> dict[str, Any]:
    """Return the site's file."""
    tables = {
        f"of{gpus}": {
            "gpus": [gpus] * 3,
            "pool": ["A100"] * 3,
            "power_limit_w": [float(limit) for limit in WATTS],
            "power_w": [gpus * watts for watts in WATTS.values()],
            "rate": [gpus * rate for rate in RATES.values()],
        }
        for gpus in (1, 2, 4)
    }
    jobs = {
        f"{name}-{gpus}-*": {"options": f"of{gpus}", "least_progress": least}
        for name, (least, _) in CLASSES.items()
        for gpus in (1, 2, 4)
    }
    members = [f"r{i}" for i in range(1, racks(nodes) + 1)]
    feed = {"name": FEED, "members": members, "power_cap_w": 2.0 * feed_w(nodes)}
    return {"watts_error": ERROR, "tables": tables, "jobs": jobs, "power_domains": [feed]}


def racks(nodes: int) -> int:
    """Return the racks of two nodes behind the feed: a quarter of the cluster."""
    return max(1, nodes // 8)


def feed_w(nodes: int) -> float:
    """Return the limit of the feed in its event: 180 W beyond idle for each GPU."""
    return 2 * racks(nodes) * (BASE_W + GPUS * (IDLE_W + 180.0))


@dataclass
class Plant:
    """GPUs whose watts are the true ones, and the tool that agents call to set and to read them.

    Attributes
    ----------
    refuses : bool
        Whether power limits of running jobs cannot be changed.
    limit_w, job_on : dict
        Power limit of a GPU, and the job that has it, by node and GPU.
    runs : dict
        Runs of each job; all of them have one node.
    asked : dict
        GPUs that each job asks for.
    """

    folder: Path
    names: list[str]
    seed: int
    refuses: bool
    node: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    limit_w: dict[tuple[str, str], float] = field(default_factory=dict)
    runs: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    job_on: dict[tuple[str, str], int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    _read: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng([self.seed, 1])

    def follow(self) -> None:
        """Read what prologs and epilogs have noted since."""
        path = self.folder / "gpus.log"
        text = path.read_text()[self._read :] if path.exists() else ""
        lines = text[: text.rfind("\n") + 1]
        self._read += len(lines)
        for line in lines.splitlines():
            what, at_s, number, node, numbers, limit = line.split("|")
            if what == "begin":
                free = [gpu for gpu in map(str, range(GPUS)) if (node, gpu) not in self.job_on]
                # Of GPUs that Slurm does not tell the prolog can set none.
                gpus = [(node, gpu) for gpu in numbers.split(",") if gpu in free]
                limit_w = float(limit or max(WATTS)) if gpus else max(WATTS)
                gpus = gpus or [(node, gpu) for gpu in free[: self.asked[int(number)]]]
                self.runs[int(number)].append(Run(len(gpus), float(at_s)))
                self.job_on |= dict.fromkeys(gpus, int(number))
                self.limit_w |= dict.fromkeys(gpus, limit_w)
            elif int(number) in self.runs:
                self.runs[int(number)][-1].end_s = float(at_s)
                self.job_on = {gpu: job for gpu, job in self.job_on.items() if job != int(number)}

    def factor(self, job: int) -> float:
        """Return the factor of a job."""
        return float(np.exp(np.random.default_rng([self.seed, 2, job]).normal(-(ERROR**2) / 2, ERROR)))

    def watts(self, node: str) -> dict[str, float]:
        """Return the watts of each GPU of a node now."""
        swing = defaultdict[int, float](lambda: 1.0 + SWING * self._rng.standard_normal())
        found = dict.fromkeys(map(str, range(GPUS)), IDLE_W)
        for gpu in found:
            if (job := self.job_on.get((node, gpu))) is not None:
                found[gpu] = WATTS[int(self.limit_w[node, gpu])] * self.factor(job) * swing[job]
        return found

    def tool(self, words: list[str], dry_run: bool = False) -> tuple[str, str]:
        """Do what ``nvidia-smi`` does on the node whose agent asks; the output, and why it failed."""
        with self.lock:
            self.follow()
            if "-pl" in words:
                if self.refuses:
                    return "", "not supported"
                for gpu in words[words.index("-i") + 1].split(","):
                    self.limit_w[self.node, gpu] = float(words[-1])
                return "", ""
            rows = [f"{gpu}, {watts:.2f}" for gpu, watts in self.watts(self.node).items()]
        return "\n".join(["index, power.draw [W]", *rows]), ""

    def drawn_w(self) -> dict[str, float]:
        """Return the watts of each node now, and count the progress that running jobs lose in a second."""
        with self.lock:
            self.follow()
            for gpu, job in self.job_on.items():
                self.runs[job][-1].slower_s += 1.0 - RATES[int(self.limit_w[gpu])]
            return {node: BASE_W + sum(self.watts(node).values()) for node in self.names}

    def run_agents(self, done: threading.Event) -> None:
        """Run the shipped agent of each node, every two seconds, until an event."""
        module = agent_module(ran=self.tool)
        agents = [module.Agent(str(self.folder / "settings"), node, "nvidia-smi") for node in self.names]
        while not done.is_set():
            next_s = time.monotonic() + 2.0
            for agent in agents:
                self.node = agent.node
                agent.step()
            done.wait(max(0.1, next_s - time.monotonic()))


@dataclass
class Run:
    """A run of a job on GPUs; `slower_s` are GPU seconds of progress that lower power limits cost it."""

    gpus: int
    begin_s: float
    end_s: float = np.inf
    slower_s: float = 0.0


class Sample(NamedTuple):
    """Watts and their limit at a moment, for the site and for the feed."""

    time_s: float
    power_w: tuple[float, float]
    cap_w: tuple[float, float]


class SignalTrial(Trial):
    """A cluster, the plant, and the signals that the scheduler follows."""

    command: ClassVar[tuple[str, ...]] = (
        *("slurm", "--every", "2", "--deadline", "5", "--recount", "6"),
        *("--lasting", "60", "--change-cost", "100"),
    )

    def __init__(self, cluster: EmulatedSlurm, seed: int, refuses: bool) -> None:
        super().__init__(cluster, seed)
        self.plant = Plant(self.folder, cluster.names, seed, refuses)
        self.scheduler.files = {**self.scheduler.files, "--readings": "settings"}
        self.baseline_w = self.idle_w + cluster.nodes * GPUS * SHARE_W
        self.measured: list[Sample] = []
        self.begun_s, self.limits = np.inf, Signal().limits_on([FEED])
        self.due: list[float] = []
        (self.folder / "settings" / "nodes").mkdir(parents=True)

    def submit(self, jobs: int, seconds: tuple[int, int]) -> None:
        """Submit held jobs of ours that take so many seconds: many of them short."""
        rng = np.random.default_rng(self.seed)
        note = f"$SLURM_JOB_ID $(date +%s.%N) >> {self.log}"
        for number in range(jobs):
            name = rng.choice([*CLASSES], p=[part for _, part in CLASSES.values()])
            gpus, lasts_s = (
                rng.choice([1, 2, 4]),
                np.clip(rng.lognormal(np.log(0.4 * seconds[1]), 1.0), *seconds),
            )
            script = f"echo start {note}; sleep {lasts_s:.0f}; echo end {note}"
            words = ("--hold", "--requeue", f"--gres=gpu:{gpus}", "-J", f"{name}-{gpus}-{number}")
            self.jobs.append(self.cluster.submit(script, *words, "--comment", '{"wattsched": {}}'))
            self.plant.asked[self.jobs[-1]] = int(gpus)

    def begin(self, after_s: float) -> None:
        """Let the signals begin after some seconds."""
        self.begun_s = time.time() + after_s
        times = {time_s for one in SIGNALS.values() for time_s in (one.told_s, one.withdrawn_s)}
        self.due = sorted(times | {RESTART_S} - {np.inf})

    def act(self) -> None:
        """Do what is due: write the signal as it is known now, or restart slurmctld."""
        now_s = time.time() - self.begun_s
        while self.due and self.due[0] <= now_s:
            if self.due.pop(0) == RESTART_S:
                threading.Thread(target=self.restart_controller).start()
            self.write(now_s)

    def write(self, now_s: float) -> None:
        """Write the signal as it is known some seconds after its begin."""

        def moment(after_s: float) -> str:
            return datetime.fromtimestamp(self.begun_s + after_s, UTC).isoformat()

        limits = [
            {"from": moment(one.begin_s), "to": moment(one.end_s), **one.limit}
            for one in SIGNALS.values()
            if one.told_s <= now_s < one.withdrawn_s
        ]
        limits = [
            one | ({"power_w": feed_w(self.cluster.nodes)} if "domain" in one else {}) for one in limits
        ]
        document = {"power_w": self.baseline_w, "baseline_w": self.baseline_w, "limits": limits}
        document["format"] = "wattsched-signal/1"
        (self.folder / "cap.new").write_text(json.dumps(document))
        (self.folder / "cap.new").rename(self.folder / "cap.json")
        self.limits = Signal.model_validate(document).limits_on([FEED])

    def sample(self) -> float:
        """Sample the plant; the share of our jobs that have ended, 1 where none is left."""
        self.act()
        node_w, now_s = self.plant.drawn_w(), time.time()
        feed = self.cluster.names[: 2 * racks(self.cluster.nodes)]
        power_w = sum(node_w.values()), sum(node_w[node] for node in feed)
        caps = tuple(
            min(self.limits[name].least_from(now_s), most_w) if name in self.limits else most_w
            for name, most_w in (("", np.inf), (FEED, 2.0 * feed_w(self.cluster.nodes)))
        )
        self.measured.append(Sample(now_s, power_w, (caps[0], caps[1])))
        ended = {number for number, notes in self.runs().items() if any(what == "end" for what, _ in notes)}
        return len(ended & {*self.jobs}) / len(self.jobs)


def run(
    folder: Path,
    nodes: int,
    jobs: int,
    seed: int,
    limit_s: float = 1_500.0,
    seconds: tuple[int, int] = (5, 240),
    first_s: float = 40.0,
    refuses: bool = False,
    root: Path | None = None,
) -> dict[str, Any]:
    """Run everything; what came of it."""
    note = "|$(date +%s.%N)|$SLURM_JOB_ID|$SLURMD_NODENAME|$SLURM_JOB_GPUS|$WATTSCHED_POWER_LIMIT_W"
    note = f'"{note}" >> {folder}/gpus.log'
    prolog = f'file="{folder}/settings/$SLURM_JOB_ID"; [ -f "$file" ] && . "$file"; echo begin{note}'
    with emulated_slurm(folder, nodes, prolog=prolog, epilog=f"echo end{note}", root=root) as cluster:
        trial, done = SignalTrial(cluster, seed, refuses), threading.Event()
        (folder / "options.json").write_text(json.dumps(options(nodes)))
        trial.submit(jobs, seconds)
        agents = threading.Thread(target=trial.plant.run_agents, args=(done,))
        agents.start()
        try:
            trial.begin(first_s)
            trial.write(-1.0)
            with trial.scheduler.running():
                took_s = follow(trial.sample, [], limit_s, every_s=1.0)
                code = trial.scheduler.end(signal.SIGTERM)
        finally:
            done.set()
            agents.join()
        return figures(trial) | {"minutes": took_s / 60, "exit code": code}


def figures(trial: SignalTrial) -> dict[str, Any]:
    """Compute the figures of a trial."""
    rounds, since_s = trial.scheduler.rounds(), trial.begun_s
    times = np.array([one.time_s for one in trial.measured])
    power_w, cap_w = (
        np.array([getattr(one, name) for one in trial.measured]) for name in ("power_w", "cap_w")
    )
    excess_w, told, below_s = (power_w - cap_w).max(axis=1), np.ones(len(times), bool), 0.0
    for one in SIGNALS.values():
        if one.told_s == one.begin_s:
            cut_s = since_s + one.begin_s
            acting = (times >= cut_s) & (times < cut_s + LEFT_OUT_S)
            below_s = max(below_s, max(times[acting & (excess_w > 0)], default=cut_s) - cut_s)
            told &= ~acting
    # Until then there are jobs enough to use the cap.
    busy = (times >= since_s) & (times <= since_s + max(one.end_s for one in SIGNALS.values()))
    used = (power_w[busy, 0] - trial.idle_w) / (cap_w[busy, 0] - trial.idle_w)
    runs = trial.plant.runs
    restarts = [one for of in runs.values() for one in of[:-1]]
    return {
        "nodes": trial.cluster.nodes,
        **trial.fates(),
        "signals": len(SIGNALS),
        "deadline": float(trial.command[trial.command.index("--deadline") + 1]),
        "samples": len(times),
        "above": int((excess_w[told] > 0).sum()),
        "worst, W": max(0.0, float(excess_w[told].max())),
        "most, of the cap": float((power_w / cap_w)[told].max()),
        "below after, s": float(below_s),
        "restarted": sum(len(of) > 1 for of in runs.values()),
        "changes": sum(len(one["changed"]) for one in rounds),
        "use": float(used.mean()),
        "lost, GPU h": sum(one.gpus * (one.end_s - one.begin_s) for one in restarts) / 3600,
        "slower, GPU h": sum(one.slower_s for of in runs.values() for one in of) / 3600,
        **trial.scheduler.of_rounds(),
    }


ROWS = {
    "nodes": "nodes of eight GPUs",
    "jobs": "jobs submitted",
    "signals": "signals: six with notice, two without, one withdrawn, one of a power domain",
    "deadline": "time limit of a decision, s",
    "samples": "samples of the true watts, one a second",
    "above": f"samples above a cap; those up to {LEFT_OUT_S:.0f} s after a cut without notice are left out",
    "worst, W": "the most above a cap in these samples, W",
    "most, of the cap": "highest draw in these samples, as a part of the cap",
    "below after, s": "seconds from a cut without notice to the last sample above it",
    "lost": "jobs lost",
    "revived": "jobs that ran again though slurmctld knew of their end",
    "run twice": "jobs that ran again after they had noted their end themselves",
    "restarted": "jobs restarted",
    "changes": "changes of the settings of running jobs",
    "use": "mean use of the watts beyond idle during the signals",
    "lost, GPU h": "GPU hours lost to restarts",
    "slower, GPU h": "GPU hours that lower settings cost, also those chosen at the start",
    **OF_ROUNDS,
}
HARMFUL = (
    "above",
    "worst, W",
    "most, of the cap",
    "below after, s",
    "lost",
    "revived",
    "run twice",
    "exit code",
)
HARMLESS = tuple(name for name in ROWS if name not in HARMFUL)


def slurm_signals(asked: Asked) -> str:
    """Make a column for each release, and one for stops only."""
    sizes: dict[str, Any] = {"nodes": asked.nodes, "jobs": asked.jobs}
    if asked.quick:
        sizes = {"nodes": 8, "jobs": 20, "limit_s": 90.0, "seconds": (5, 20), "first_s": -270.0}
    variants = {release(root): {**sizes, "root": root} for root in roots() if not missing(root)}
    if not variants:
        raise SystemExit(missing())
    first, own = next(iter(variants.items()))
    return trials(asked, run, ROWS, HARMLESS, variants | {f"{first}, stops only,": {**own, "refuses": True}})


TABLES = {"slurm-signals": slurm_signals}

if __name__ == "__main__":
    run_benchmark(__doc__, TABLES, seeds=1, nodes=40, jobs=500)
