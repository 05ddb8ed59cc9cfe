"""A second round of many jobs, of which 1 % are new, from arrays with the answer to the first.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/warm_rounds.py --write

Rounds of the family `uniform`. In the second one a hundredth of the jobs is gone and as many have come, the
others have 2 % less to do, those that run hold what they were given, and lose 30 s if they change. Seconds
are those of the processor, from the call of `solve` to its checked answer with a certificate, the best of
three; of a million jobs there is one. ``--quick`` is a small round.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from tables import machine, table, write

import wattsched
from wattsched import Result
from wattsched.instances.sizing.decision import AssignmentColumns
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job_columns import JobColumns

GAP = 1e-4
SIZES = (20_000, 100_000, 1_000_000)
REPETITIONS, LARGE = 3, 1_000_000
CHANGED, LEFT, RESTART_S = 0.01, 0.98, 30.0
PHASES = ("expand", "build", "solve", "decode", "check")
HEADER = (
    "jobs",
    "arrays in",
    "first round",
    "second, cold",
    "second, warm",
    *PHASES,
    "rest",
    "restarts",
    "gap",
)


@dataclass(frozen=True)
class Timed:
    """An answer, and the processor's seconds until it was there."""

    result: Result
    seconds: float


def timed(instance: Instance, earlier: Result | None = None) -> Timed:
    """Solve an instance a few times, a large one once; the quickest."""
    found = []
    for _ in range(1 if len(instance.jobs) >= LARGE else REPETITIONS):
        begin = time.process_time()
        result = wattsched.solve(instance, gap=GAP, initial_solution=earlier)
        found.append(Timed(result, time.process_time() - begin))
    return min(found, key=lambda one: one.seconds)


def arrays_of_next(jobs: JobColumns, running: AssignmentColumns) -> dict[str, Any]:
    """What a scheduler has in its arrays when it comes to the next round."""
    n = len(jobs)
    new = max(1, int(CHANGED * n))
    stay = np.sort(np.random.default_rng(1).permutation(n)[new:])
    both = jobs.take(np.concatenate([stay, np.arange(new)]))
    left = np.where(np.arange(n) < n - new, LEFT, 1.0)
    return {
        "name": [*both.names[: n - new], *(f"new{i}" for i in range(new))],
        "options": both.coded("options"),
        "weight": both.numbers("weight"),
        "remaining_work": both.numbers("remaining_work") * left,
        "restart_s": np.full(n, RESTART_S),
        "current": running,
    }


def row(jobs: int) -> list[str]:
    """Line of the table."""
    instance = wattsched.generate("uniform", jobs=jobs, seed=1)
    first = timed(instance)
    assert first.result.decision is not None
    running = AssignmentColumns.from_records(first.result.decision.jobs)
    arrays = arrays_of_next(instance.by_column(), running)
    begin = time.process_time()
    second = instance.model_copy(update={"jobs": JobColumns.of(arrays)})
    reading = time.process_time() - begin
    cold, warm = timed(second), timed(second, first.result)
    took = warm.result.time_s
    # Each phase's share of the wall-clock time, in seconds of the processor.
    parts = [warm.seconds * took.get(phase, 0.0) / took["total"] for phase in PHASES]
    seconds = [reading, first.seconds, cold.seconds, warm.seconds, *parts, warm.seconds - sum(parts)]
    told = [f"{warm.result.totals['restarts']:,}", f"{warm.result.gap:.1e}"]
    return [f"{jobs:,}", *(f"{value:.2f}" for value in seconds), *told]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small round, for the tests")
    parser.add_argument("--jobs", type=int, action="append", help="rounds of other sizes")
    parser.add_argument("--write", action="store_true", help="write the table in docs/tables")
    asked = parser.parse_args()
    wattsched.solve(wattsched.generate("uniform", jobs=300))  # modules are imported once
    rows = [row(jobs) for jobs in asked.jobs or ((1_000,) if asked.quick else SIZES)]
    about = "Seconds of one processor; the columns behind the warm second round are its parts."
    text = f"{about}\n\n{table(HEADER, rows)}"
    print(text)
    if asked.write:
        write("warm-rounds", f"{text}\n\nMeasured on {machine()}.")


if __name__ == "__main__":
    main()
