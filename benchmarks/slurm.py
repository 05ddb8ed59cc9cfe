"""A day of a Slurm cluster in minutes: budget halved, nodes drained, controller and scheduler restarted.

    python -m benchmarks.slurm --write [--nodes 40 --jobs 500 --seeds 3]

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
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

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
from benchmarks.emulated_slurm import GPUS, EmulatedSlurm, emulated_slurm, missing, release, roots
from benchmarks.harness import Asked
from benchmarks.harness import run as run_benchmark

NOTICE_S = 15.0
"""Seconds between the announcement of the first cut of the cap and the cut."""
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
MILLIONS = '{"options": {"gpus": [2000000], "pool": ["A100"], "rate": [1e9], "power_w": [1]}}'
BATCHES, CLOCKS = [*range(8, 520, 8)], [*range(525, 1411, 15)]
HOSTILE: dict[str, tuple[str, tuple[str, ...]]] = {
    "no JSON": ("{'", ()),
    "unknown field": ('{"wieght": 2}', ()),
    "no object": ("[[[[1]]]]", ()),
    "weight of 1e300": ('{"weight": 1e300}', ()),
    "negative restart": ('{"restart_s": -1e18}', ()),
    "not a number": ('{"weight": NaN, "restart_s": Infinity}', ()),
    "clock that no GPU has": ('{"model": "bert", "frequencies_mhz": [1411]}', ()),
    "two million GPUs": ("{}", ("--gres=gpu:2000000",)),
    "two million GPUs as options": (MILLIONS, ()),
    "many choices": (json.dumps({"model": "bert", "max_gpus": 8, "batch_sizes": BATCHES}), ()),
    "many more choices": (
        json.dumps({"model": "bert", "batch_sizes": BATCHES, "frequencies_mhz": CLOCKS}),
        (),
    ),
    "node that is not there": ("{}", ("--exclude=g[1-40]",)),
    "control characters": ('{"model": "\\u001b[31mred"}', ("-J", "a\x1b[31m\nb")),
}
"""Comments of hostile jobs, and their options."""


class Sample(NamedTuple):
    """The queue at a moment; nodes by job and number of its restart."""

    time_s: float
    power_w: float
    cap_w: float
    nodes_of: dict[tuple[int, int], list[str]]


class Trial:
    """A cluster, the scheduler on it, and what was seen of both."""

    command: ClassVar[tuple[str, ...]] = ("slurm", "--every", "2", "--deadline", "2", "--recount", "6")

    def __init__(self, cluster: EmulatedSlurm, seed: int) -> None:
        self.cluster, self.folder, self.seed = cluster, cluster.folder, seed
        self.log = self.folder / "runs.log"
        self.idle_w = cluster.nodes * (BASE_W + GPUS * IDLE_W)
        self.samples: list[Sample] = []
        self.drained: dict[str, float] = {}
        self.jobs: list[int] = []
        self.hostile: list[int] = []
        self.unanswered = 0
        files = {
            "--budget": "cap.json",
            "--options": "options.json",
            "--journal": "journal",
            "--settings": "settings",
        }
        self.scheduler = Scheduler(self.folder, self.command, files, cluster.environment)

    # -- jobs --------------------------------------------------------------------------------------------

    def submit(self, jobs: int, seconds: tuple[int, int]) -> None:
        """Submit held jobs of ours that take so many seconds, and a few of others, which are not held."""
        rng, submit = np.random.default_rng(self.seed), self.cluster.submit
        for _ in range(max(1, jobs // 25)):
            submit(f"sleep {4 * rng.integers(*seconds)}", f"--gres=gpu:{rng.integers(1, 4)}", "-J", "other")
        marks = {"elastic": {"options": "elastic", "restart_s": 1.0}, "model": {"model": "bert"}}
        hostile, every = list(HOSTILE.values()), max(1, jobs // (2 * len(HOSTILE)))
        note = f"$SLURM_JOB_ID $(date +%s.%N) >> {self.log}"
        for number in range(jobs):
            if number % every == 0:
                told, options = hostile[number // every % len(hostile)]
                comment = ("--comment", f'{{"wattsched": {told}}}')
                with suppress(RuntimeError):  # Slurm itself may refuse it
                    self.hostile.append(submit("sleep 1", "--hold", "--gres=gpu:1", *comment, *options))
            kind = rng.choice(["elastic", "plain", "large", "model"], p=[0.6, 0.25, 0.1, 0.05])
            fields = {**marks.get(kind, {}), "weight": float(rng.integers(1, 4))}
            script = f"echo start {note}; sleep {rng.integers(*seconds)}; echo end {note}"
            gres, name = f"--gres=gpu:{rng.integers(1, 5)}", f"{kind}-{number}"
            comment = ("--comment", json.dumps({"wattsched": fields}))
            self.jobs.append(submit(script, "--hold", "--requeue", gres, "-J", name, *comment))

    def runs(self) -> dict[int, list[tuple[str, float]]]:
        """Notes of each job, in order."""
        found: dict[int, list[tuple[str, float]]] = defaultdict(list)
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            what, number, time_s = line.split()
            found[int(number)].append((what, float(time_s)))
        return found

    def fates(self) -> dict[str, int]:
        """Figures of what became of our jobs."""
        runs = self.runs()
        ends = {number: [t for what, t in notes if what == "end"] for number, notes in runs.items()}
        again = [
            len(ends[number]) > 1 or any(t > min(ends[number]) for what, t in notes if what == "start")
            for number, notes in runs.items()
            if ends[number]
        ]
        return {
            "jobs": len(self.jobs),
            "lost": sum(not ends.get(number) for number in self.jobs),
            "revived": self.revived(),
            "run twice": sum(again),
        }

    def revived(self) -> int:
        """Jobs that slurmctld started once more after it had noted that they were done."""
        done, again = set[str](), set[str]()
        for line in (self.folder / "log" / "slurmctld").read_text(errors="replace").splitlines():
            if found := re.search(r"_job_complete: JobId=(\d+) done|Allocate JobId=(\d+) ", line):
                done |= {found[1]} - {None}
                again |= {found[2]} & done
        return len(again)

    # -- what the queue shows ----------------------------------------------------------------------------

    def sample(self) -> float:
        """Work out the draw from the queue; the share of our jobs that have ended, 1 where none is left."""
        try:
            rows = json.loads(self.cluster.run("squeue", "--json", check=False))["jobs"]
        except (ValueError, KeyError):
            self.unanswered += 1
            return 0.0
        watts, used, nodes_of, left = 0.0, 0, {}, False
        for row in rows:
            # A list since 23.11, of which the last word is what comes after it.
            state = {row["job_state"]} if isinstance(row["job_state"], str) else {*row["job_state"]}
            ended = state & {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"}
            left = left or (row["job_id"] in self.jobs and not ended)
            if not state & {"RUNNING", "COMPLETING", "CONFIGURING"}:
                continue
            ours = json.loads(row["admin_comment"] or "{}").get("wattsched")
            if ours is not None:
                watts, used = watts + ours["power_w"], used + ours["gpus"]
                if state == {"RUNNING"}:
                    nodes_of[row["job_id"], row["restart_cnt"]] = list(ours["nodes"])
            else:
                gpus = sum(int(n) for text in row["gres_detail"] for n in re.findall(r"A100:(\d+)", text))
                watts, used = watts + MOST_W * gpus, used + gpus
        now_s = time.time()
        power_w = watts + self.idle_w - used * IDLE_W
        self.samples.append(Sample(now_s, power_w, self.scheduler.cap_w(now_s), nodes_of))
        noted = sum(any(what == "end" for what, _ in notes) for notes in self.runs().values())
        return min(0.999, noted / len(self.jobs)) if left else 1.0

    # -- events ------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Drain two nodes."""
        for name in self.cluster.names[1:3]:
            self.cluster.run("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=test")
            self.drained[name] = time.time()

    def restart_controller(self) -> None:
        """Stop slurmctld for some seconds."""
        self.cluster.stop_controller()
        time.sleep(4.0)
        self.cluster.start_controller()


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
    settings = f"{folder}/settings/$SLURM_JOB_ID"
    prolog = f'[ -f "{settings}" ] && . "{settings}" && '
    prolog += f'echo "$SLURM_JOB_ID $WATTSCHED_FREQUENCY_MHZ" >> {folder}/prolog.log'
    with emulated_slurm(folder, nodes, prolog=prolog, root=root) as cluster:
        trial = Trial(cluster, seed)
        scheduler, share_w = trial.scheduler, nodes * GPUS * SHARE_W
        (folder / "options.json").write_text(json.dumps(OPTIONS))
        trial.submit(jobs, seconds)
        scheduler.set_cap(trial.idle_w + share_w)
        events: Events = [
            (0.25, partial(scheduler.set_cap, trial.idle_w + share_w / 2, NOTICE_S)),
            (0.40, trial.drain),
            (0.50, trial.restart_controller),
            (0.60, scheduler.restart),
            (0.75, partial(scheduler.set_cap, trial.idle_w + share_w / 3)),
        ]
        with scheduler.running():
            took_s = follow(trial.sample, events, limit_s, every_s=0.5)
            code = scheduler.end(signal.SIGTERM)
        return figures(trial) | {"minutes": took_s / 60, "exit code": code}


def figures(trial: Trial) -> dict[str, Any]:
    """Compute the figures of a trial."""
    rounds, samples = trial.scheduler.rounds(), trial.samples
    acted, below_s = [], 0.0
    for since_s in trial.scheduler.unannounced:
        # What was released just before may not even run yet, so one sample below the cap says little.
        done_s = min((r["time_s"] + r["took_s"] for r in rounds if r["time_s"] >= since_s), default=np.inf)
        above = [s.time_s for s in samples if since_s <= s.time_s < done_s and s.power_w > s.cap_w]
        below_s = max(below_s, max(above, default=since_s) - since_s)
        acted.append((since_s, done_s))
    calm = [s for s in samples if not any(since_s <= s.time_s < done_s for since_s, done_s in acted)]
    first_s: dict[tuple[int, int], float] = {}
    on_drained = set()
    for sample in samples:
        for launched, nodes in sample.nodes_of.items():
            begun_s = first_s.setdefault(launched, sample.time_s)
            # A job that Slurm had on the node when it was drained may end there.
            on_drained |= {launched for node in nodes if begun_s > trial.drained.get(node, np.inf) + 3.0}
    return {
        "nodes": trial.cluster.nodes,
        "hostile": len(trial.hostile),
        **trial.fates(),
        "requeued": sum(len(one["stopped"]) for one in rounds),
        "samples": len(samples),
        "above the cap": sum(s.power_w > s.cap_w + 1e-6 for s in calm),
        "most, of the cap": max(s.power_w / s.cap_w for s in calm),
        "below an unannounced cut after, s": below_s,
        "started on drained nodes": len(on_drained),
        "unanswered": trial.unanswered,
        **trial.scheduler.of_rounds(),
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
    **OF_ROUNDS,
}
HARMLESS = ("nodes", "jobs", "hostile", "requeued", "samples", "unanswered", "rounds", "minutes")


def slurm(asked: Asked) -> str:
    """One column for each release and seed."""
    sizes: dict[str, Any] = {"nodes": asked.nodes, "jobs": asked.jobs}
    if asked.quick:
        sizes = {"nodes": 4, "jobs": 20, "limit_s": 90.0, "seconds": (1, 4)}
    releases = {release(root): {**sizes, "root": root} for root in roots() if not missing(root)}
    if not releases:
        raise SystemExit(missing())
    return trials(asked, run, ROWS, HARMLESS, releases)


TABLES = {"slurm": slurm}

if __name__ == "__main__":
    run_benchmark(__doc__, TABLES, seeds=3, nodes=40, jobs=500)
