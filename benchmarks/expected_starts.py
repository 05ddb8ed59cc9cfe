"""Expected starts of waiting jobs against what rounds decide that learn of each end only when it comes.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.expected_starts --write [--seeds 20]

Rounds of 40 jobs are generated, and decided. Then one round after the other is decided for as long as jobs of
the first decision wait. Each job ends after a part of its stated time that is drawn from 0.5 to 1, which no
decision knows. The range is the expected start with these two parts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import wattsched
from benchmarks.harness import Asked, machine, run, table
from wattsched.explaining.rounds import DecidedRound
from wattsched.explaining.start import expected_start
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import AssignmentColumns, held_by
from wattsched.instances.sizing.job_columns import JobColumns

FAMILIES, JOBS, SHORTEST = ("philly-like", "uniform", "hetero"), 40, 0.5
HEADER = ("family", "waiting jobs", "start, median min", "in the range", "or a round beside it",
          "exact if times are", "or a round beside it", "s per job, median")  # fmt: skip


def starts(instance: Any, decision: Any, part: Mapping[str, float]) -> dict[str, float]:
    """Decide round after round; return in how many seconds jobs start that wait by the first decision.

    A job ends after a part of its stated time, at the end of a round; what it has left is told as stated.
    """
    waiting, found, done, now_s = decision.waiting, dict[str, float](), dict.fromkeys(part, 0.0), 0.0
    while decision is not None:
        known = DecidedRound(instance, decision, 0)
        jobs, (runs, completion_s) = instance.jobs, known.outcome
        found |= {n: now_s for n in np.array(jobs.names)[runs].tolist() if n in waiting and n not in found}
        if len(found) == len(waiting) or not runs.any():
            break
        step = np.where(runs, np.minimum(1.0, instance.round_s / completion_s), 0.0)
        for name, share in zip(jobs.names, step.tolist(), strict=True):
            done[name] += (1 - done[name]) * share
        left = [j for j, name in enumerate(jobs.names) if done[name] < part[name] - 1e-9]
        taken, work = jobs.take(np.array(left, dtype=np.int64)), jobs.numbers("remaining_work") * (1 - step)
        held = held_by(len(left), taken.place, AssignmentColumns.from_records(decision.jobs))
        columns = {**taken.columns, "remaining_work": work[left], "current": held}
        instance, now_s = instance.model_copy(update={"jobs": JobColumns(columns)}), now_s + instance.round_s
        decision = wattsched.solve(instance, gap=1e-3, time_limit=10.0).decision
    return found


def row(family: str, seeds: int) -> list[str]:
    """Compare the starts of all waiting jobs of some rounds."""
    ranges, drawn, exact, seconds = [], [], [], []
    for seed in range(1, seeds + 1):
        instance = wattsched.generate(family, jobs=JOBS, seed=seed)
        instance = instance.model_copy(update={"jobs": instance.by_column()})
        decision = wattsched.solve(instance, gap=1e-4, time_limit=30.0).decision
        rng = np.random.default_rng(seed)
        part = {name: float(rng.uniform(SHORTEST, 1.0)) for name in instance.jobs.names}
        real, stated = starts(instance, decision, part), starts(instance, decision, dict.fromkeys(part, 1.0))
        for name in decision.waiting:
            begun_s = time.process_time()
            job = DecidedRound(instance, decision, instance.jobs.place[name])
            found = expected_start(job, (SHORTEST, 1.0), Timer(60.0))
            seconds.append(time.process_time() - begun_s)
            if found is None or name not in real or name not in stated:
                continue
            ranges.append((found.earliest_s, found.latest_s))
            drawn.append(real[name])
            longest = expected_start(job, (1.0, 1.0), Timer(60.0))
            exact.append(abs(stated[name] - longest.latest_s) if longest is not None else np.inf)
    low, high = np.array(ranges).T
    start, beside, off = np.array(drawn), instance.round_s, np.array(exact)
    inside = [((low - more <= start) & (start <= high + more)).mean() for more in (0.0, beside)]
    shares = [f"{share:.0%}" for share in (*inside, (off == 0).mean(), (off <= beside).mean())]
    count = f"{len(start):,} of {len(seconds):,}"
    return [f"`{family}`", count, f"{np.median(start) / 60:.0f}", *shares, f"{np.median(seconds):.2f}"]


def expected_starts(asked: Asked) -> str:
    """One row for each family."""
    rows = [row(family, asked.seeds) for family in (FAMILIES[:1] if asked.quick else FAMILIES)]
    return f"{table(HEADER, rows)}\n\nMeasured on {machine()}, seeds 1 to {asked.seeds}."


TABLES = {"expected-starts": expected_starts}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20)
