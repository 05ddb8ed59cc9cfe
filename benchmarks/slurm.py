"""A day of a Slurm cluster in minutes: budget halved, nodes drained, controller and scheduler restarted.

    python benchmarks/slurm.py --write [--nodes 40 --jobs 500 --seed 1 --seeds 1]

Starts a real Slurm with emulated nodes of eight GPUs (`emulated_slurm.py`; root and Debian's packages),
submits jobs, and runs ``wattsched slurm --apply``; then the same with each release of WATTSCHED_SLURM_ROOTS.
Among the jobs are hostile ones, whose comments and requests are wrong in ways that ought to be theirs alone:
they may wait for ever, and nobody else for them. In the middle the power cap is halved, announced some
seconds before, two nodes are drained, slurmctld is stopped and started again, and the scheduler is killed
(SIGKILL) and started again; near the end the cap is cut once more without a word. Every job notes when it
begins and ends. Twice a second the draw is worked out from `squeue`, by code of this file, and held against
the cap that is in force.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cluster_trial import BASE_W, IDLE_W, MOST_W, Scheduler, run_and_write
from emulated_slurm import GPUS, EmulatedSlurm, emulated_slurm, missing, release, roots

NOTICE_S = 15.0
"""How long before it is in force the first cut of the cap is announced."""
OPTIONS: dict[str, Any] = {
    # Hostile jobs may say much, so that they get as far as they can.
    "allow": {
        **{"own_options": True, "weight": [0, 10], "restart_s": [0, 3600], "max_gpus": [1, 64]},
        **{"batch_sizes": [1, 4096], "frequencies_mhz": [1, 3000]},
    },
    "tables": {
        "elastic": {
            "gpus": [1, 2, 4, 8, 1, 2, 4, 8],
            "pool": ["A100"] * 8,
            "rate": [1.0, 1.9, 3.5, 6.2, 0.9, 1.7, 3.1, 5.4],
            "power_w": [350.0, 700.0, 1400.0, 2800.0, 240.0, 480.0, 960.0, 1920.0],
            "frequency_mhz": [1410] * 4 + [1005] * 4,
        },
        "large": {"gpus": [8, 16], "pool": ["A100"] * 2, "rate": [6.0, 10.0], "power_w": [2600.0, 5100.0]},
    },
    "jobs": {"large-*": {"options": "large", "restart_s": 2.0}},
}

HOSTILE: dict[str, tuple[str, tuple[str, ...]]] = {
    "no JSON": ("{'wattsched': {", ()),
    "unknown field": ('{"wattsched": {"wieght": 2}}', ()),
    "no object": ('{"wattsched": [[[[1]]]]}', ()),
    "weight of 1e300": ('{"wattsched": {"weight": 1e300}}', ()),
    "negative restart": ('{"wattsched": {"restart_s": -1e18}}', ()),
    "not a number": ('{"wattsched": {"weight": NaN, "restart_s": Infinity}}', ()),
    "clock that no GPU has": ('{"wattsched": {"model": "bert", "frequencies_mhz": [1411]}}', ()),
    "two million GPUs": ('{"wattsched": {}}', ("--gres=gpu:2000000",)),
    "two million GPUs as options": (
        '{"wattsched": {"options": {"gpus": [2000000], "pool": ["A100"], "rate": [1e9], "power_w": [1]}}}',
        (),
    ),
    "many choices": (
        json.dumps({"wattsched": {"model": "bert", "max_gpus": 8, "batch_sizes": [*range(8, 520, 8)]}}),
        (),
    ),
    "many more choices": (
        json.dumps(
            {
                "wattsched": {
                    "model": "bert",
                    "batch_sizes": [*range(8, 520, 8)],
                    "frequencies_mhz": [*range(525, 1411, 15)],
                }
            }
        ),
        (),
    ),
    "node that is not there": ('{"wattsched": {}}', ("--exclude=g[1-40]",)),
    "control characters": ('{"wattsched": {"model": "\\u001b[31mred"}}', ("-J", "a\x1b[31m\nb")),
}
"""Comments and options of jobs that no site wants."""


@dataclass
class Sample:
    """What the queue showed at a moment."""

    time_s: float
    power_w: float
    cap_w: float
    nodes_of: dict[tuple[int, int], list[str]]


@dataclass
class Trial:
    """A cluster, the scheduler on it, and what was seen of both."""

    cluster: EmulatedSlurm
    seed: int
    samples: list[Sample] = field(default_factory=list)
    drained: dict[str, float] = field(default_factory=dict)
    jobs: list[int] = field(default_factory=list)
    hostile: list[int] = field(default_factory=list)
    unanswered: int = 0

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.folder)

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.cluster.folder

    # -- jobs --------------------------------------------------------------------------------------------

    def submit(self, jobs: int, seconds: tuple[int, int]) -> None:
        """Submit held jobs of ours that take so many seconds, and a few of others, which are not held."""
        rng = np.random.default_rng(self.seed)
        for _ in range(max(1, jobs // 25)):
            self.cluster.submit(
                f"sleep {4 * rng.integers(*seconds)}", f"--gres=gpu:{rng.integers(1, 4)}", "-J", "other"
            )
        marks = {"elastic": {"options": "elastic", "restart_s": 1.0}, "model": {"model": "bert"}}
        hostile, every = list(HOSTILE.values()), max(1, jobs // (2 * len(HOSTILE) or 1))
        for number in range(jobs):
            if number % every == 0 and hostile:
                said, options = hostile[number // every % len(hostile)]
                with suppress(RuntimeError):  # Slurm itself may refuse it
                    self.hostile.append(
                        self.cluster.submit("sleep 1", "--hold", "--gres=gpu:1", "--comment", said, *options)
                    )
            kind = rng.choice(["elastic", "plain", "large", "model"], p=[0.6, 0.25, 0.1, 0.05])
            said = {**marks.get(kind, {}), "weight": float(rng.integers(1, 4))}
            script = (
                f"echo start $SLURM_JOB_ID $(date +%s.%N) >> {self.log}; sleep {rng.integers(*seconds)}; "
            )
            script += f"echo end $SLURM_JOB_ID $(date +%s.%N) >> {self.log}"
            gres, name = f"--gres=gpu:{rng.integers(1, 5)}", f"{kind}-{number}"
            comment = json.dumps({"wattsched": said})
            self.jobs.append(
                self.cluster.submit(script, "--hold", "--requeue", gres, "-J", name, "--comment", comment)
            )

    @property
    def log(self) -> Path:
        """Where jobs note that they begin and end."""
        return self.folder / "runs.log"

    def runs(self) -> dict[int, list[tuple[str, float]]]:
        """What each job noted, in order."""
        found: dict[int, list[tuple[str, float]]] = defaultdict(list)
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            what, number, time_s = line.split()
            found[int(number)].append((what, float(time_s)))
        return found

    def revived(self) -> int:
        """Jobs that slurmctld started once more after it had noted that they were done."""
        done, again = set[str](), set[str]()
        for line in (self.folder / "log" / "slurmctld").read_text(errors="replace").splitlines():
            if found := re.search(r"_job_complete: JobId=(\d+) done|Allocate JobId=(\d+) ", line):
                done |= {found[1]} - {None}
                again |= {found[2]} & done
        return len(again)

    def ended(self) -> int:
        """Jobs that have noted their end."""
        return sum(any(what == "end" for what, _ in notes) for notes in self.runs().values())

    # -- what the queue shows ----------------------------------------------------------------------------

    def sample(self) -> bool:
        """Work out the draw from the queue; whether any job of ours is left."""
        text = self.cluster.run("squeue", "--json", check=False)
        try:
            rows = json.loads(text)["jobs"]
        except (ValueError, KeyError):
            self.unanswered += 1
            return True
        for row in rows:  # a list since 23.11, of which the last word is what comes after it
            row["job_state"] = [row["job_state"]] if isinstance(row["job_state"], str) else row["job_state"]
        present = [row for row in rows if {"RUNNING", "COMPLETING", "CONFIGURING"} & {*row["job_state"]}]
        watts, used, nodes_of = 0.0, 0, {}
        for row in present:
            gpus = [int(n) for text in row["gres_detail"] for n in re.findall(r"A100:(\d+)", text)]
            wattsched = json.loads(row["admin_comment"] or "{}").get("wattsched")
            if wattsched is not None:
                watts, used = watts + wattsched["power_w"], used + wattsched["gpus"]
                if row["job_state"] == ["RUNNING"]:
                    nodes_of[row["job_id"], row["restart_cnt"]] = list(wattsched["nodes"])
            else:
                watts, used = watts + MOST_W * sum(gpus), used + sum(gpus)
        every = self.cluster.nodes * GPUS
        power_w = watts + self.cluster.nodes * BASE_W + (every - used) * IDLE_W
        now_s = time.time()
        self.samples.append(Sample(now_s, power_w, self.scheduler.cap_w(now_s), nodes_of))
        known = set(self.jobs)
        done = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"}
        return any(row["job_id"] in known and not done & {*row["job_state"]} for row in rows)

    # -- the scheduler -----------------------------------------------------------------------------------

    def start_scheduler(self) -> None:
        """Start ``wattsched slurm --apply``."""
        files = {
            "--budget": "cap.json",
            "--options": "options.json",
            "--journal": "journal",
            "--settings": "settings",
        }
        command = ("slurm", "--every", "2", "--deadline", "2", "--recount", "6")
        self.scheduler.start(*command, files=files, env=self.cluster.environment)


def follow(trial: Trial, events: list[tuple[float, Callable[[], Any]]], limit_s: float) -> float:
    """Sample until no job is left; events come when a share of the jobs has ended. How long it took."""
    begun, left = time.monotonic(), list(events)
    while trial.sample() and time.monotonic() - begun < limit_s:
        if left and trial.ended() >= left[0][0] * len(trial.jobs):
            _, event = left.pop(0)
            event()
        time.sleep(0.5)
    for _, event in left:
        event()
    return time.monotonic() - begun


def run(
    folder: Path,
    nodes: int,
    jobs: int,
    seed: int,
    limit_s: float = 1_200.0,
    seconds: tuple[int, int] = (4, 16),
    root: Path | None = None,
) -> dict[str, Any]:
    """Run everything; what came of it."""
    settings = folder / "settings"
    prolog = f'[ -f "{settings}/$SLURM_JOB_ID" ] && . "{settings}/$SLURM_JOB_ID" && '
    prolog += f'echo "$SLURM_JOB_ID $WATTSCHED_FREQUENCY_MHZ" >> {folder}/prolog.log'
    with emulated_slurm(folder, nodes, prolog=prolog, root=root) as cluster:
        trial = Trial(cluster, seed)
        (folder / "options.json").write_text(json.dumps(OPTIONS))
        idle_w = nodes * (BASE_W + GPUS * IDLE_W)
        # Of what the cluster draws beyond idle, so much at most.
        share_w = nodes * GPUS * 250.0
        trial.submit(jobs, seconds)
        trial.scheduler.set_cap(idle_w + share_w)

        def drain() -> None:
            for name in cluster.names[1:3]:
                cluster.run("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=test")
                trial.drained[name] = time.time()

        def restart_controller() -> None:
            cluster.stop_controller()
            time.sleep(4.0)
            cluster.start_controller()

        def kill_scheduler() -> None:
            trial.scheduler.end(signal.SIGKILL)
            trial.start_scheduler()

        events: list[tuple[float, Callable[[], Any]]] = [
            (0.25, lambda: trial.scheduler.set_cap(idle_w + share_w / 2, NOTICE_S)),
            (0.40, drain),
            (0.50, restart_controller),
            (0.60, kill_scheduler),
            (0.75, lambda: trial.scheduler.set_cap(idle_w + share_w / 3)),
        ]
        with trial.scheduler:
            trial.start_scheduler()
            took_s = follow(trial, events, limit_s)
            code = trial.scheduler.end(signal.SIGTERM)
        return figures(trial, took_s) | {"exit code": code}


def figures(trial: Trial, took_s: float) -> dict[str, Any]:
    """What was seen, in numbers."""
    runs, rounds = trial.runs(), trial.scheduler.rounds()
    ends = {number: [t for what, t in notes if what == "end"] for number, notes in runs.items()}
    late = []
    for since_s in trial.scheduler.unannounced:
        # What was released just before may not even run yet, so one sample below the cap says little.
        done_s = min((r["time_s"] + r["took_s"] for r in rounds if r["time_s"] >= since_s), default=np.inf)
        above = [s.time_s for s in trial.samples if since_s <= s.time_s < done_s and s.power_w > s.cap_w]
        late.append((since_s, done_s, max(above, default=since_s)))
    calm = [s for s in trial.samples if not any(since_s <= s.time_s < done_s for since_s, done_s, _ in late)]
    seen: dict[tuple[int, int], float] = {}
    on_drained = set()
    for sample in trial.samples:
        for launched, nodes in sample.nodes_of.items():
            first_s = seen.setdefault(launched, sample.time_s)
            # A job that Slurm had on the node when it was drained may end there.
            on_drained |= {launched for node in nodes if first_s > trial.drained.get(node, np.inf) + 3.0}
    return {
        "nodes": trial.cluster.nodes,
        "jobs": len(trial.jobs),
        "hostile": len(trial.hostile),
        "lost": sum(not ends.get(number) for number in trial.jobs),
        "revived": trial.revived(),
        "run twice": sum(
            len(ends.get(number, ())) > 1
            or any(t > min(ends[number]) for what, t in notes if what == "start")
            for number, notes in runs.items()
            if ends.get(number)
        ),
        "requeued": sum(len(one["stopped"]) for one in rounds),
        "samples": len(trial.samples),
        "above the cap": sum(s.power_w > s.cap_w + 1e-6 for s in calm),
        "most, of the cap": max(s.power_w / s.cap_w for s in calm),
        "below an unannounced cut after, s": max(
            (last_s - since_s for since_s, _, last_s in late), default=0.0
        ),
        "started on drained nodes": len(on_drained),
        "unanswered": trial.unanswered,
        **trial.scheduler.of_rounds(),
        "minutes": took_s / 60,
    }


ROWS = {
    "nodes": "nodes of eight GPUs",
    "jobs": "jobs submitted",
    "hostile": "hostile jobs among them",
    "lost": "jobs lost",
    "revived": "jobs that ran again though slurmctld knew of their end",
    "run twice": "jobs that ran again after they had noted their end themselves",
    "requeued": "stops of running jobs, which went on later",
    "samples": "samples of the draw",
    "above the cap": "samples above the cap in force, until the first round after the unannounced cut aside",
    "most, of the cap": "highest draw, as a part of the cap",
    "below an unannounced cut after, s": "seconds for which the draw was above an unannounced cut",
    "started on drained nodes": "jobs started on drained nodes",
    "unanswered": "samples that slurmctld did not answer, while it was restarted",
    "rounds": "rounds",
    "decision, ms": "decision, median ms",
    "round, s": "whole round with Slurm's commands, median s",
    "longest round, s": "longest round, s",
    "minutes": "minutes in all",
    "exit code": "exit code after SIGTERM",
}
HARMLESS = ("nodes", "jobs", "hostile", "requeued", "samples", "unanswered", "rounds", "minutes")


if __name__ == "__main__":
    releases = {release(root): {"root": root} for root in roots() if not missing(root)}
    why = "" if releases else missing()
    run_and_write("slurm", __doc__, {"nodes": 40, "jobs": 500}, lambda: why, run, ROWS, HARMLESS, releases)
