"""Measure how long the `mckp` program of a round takes to build, on one core.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/build.py

prints the tables; with ``--write`` it also puts them into docs/tables.

Every repetition expands the instance anew, so nothing is cached from the one before. The program is built
twice: as `solve` builds it, without the options that others dominate, and with every option as a column.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import os
import pstats
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from tables import machine, table, write

import wattsched
from wattsched.formulations.program import Program, ProgramBuilder
from wattsched.formulations.sizing.columns import choices
from wattsched.formulations.sizing.cutting import add_room_rows
from wattsched.formulations.sizing.data import Options, expand
from wattsched.formulations.sizing.mckp import add_limits, assemble, room_of
from wattsched.instances.sizing.instance import Instance
from wattsched.problems import problem

CASES = (
    ("uniform", 1_000),
    ("uniform", 5_000),
    ("uniform", 20_000),
    ("sia-like", 20_000),
    ("hetero", 200),
    ("hetero", 1_000),
)
QUICK_CASES = (("uniform", 100), ("hetero", 20))
REPETITIONS = 5
PER = 100_000

PARTS = {
    "undominated": "dropping dominated options",
    "budget_rows": "uses of power, energy and carbon",
    "add_room_rows": "buddy rows",
    "assemble": "assembling the sparse matrix",
}
"""Functions of the formulation, and what they do."""


@dataclass(frozen=True)
class Measurement:
    """Sizes of one program, and the median seconds that it took."""

    family: str
    jobs: int
    options: int
    kept: int
    rows: int
    expand_s: float
    build_s: float
    build_all_s: float

    def cells(self) -> tuple[str, ...]:
        """Row of the table."""
        return (
            self.family,
            f"{self.jobs:,}",
            f"{self.options:,}",
            f"{self.kept:,}",
            f"{self.rows:,}",
            f"{self.expand_s:.3f}",
            f"{self.build_s:.3f}",
            f"{self.build_all_s:.3f}",
            *(f"{s * PER / self.options:.3f}" for s in (self.expand_s, self.build_s, self.build_all_s)),
            f"{self.build_s * PER / self.kept:.3f}",
        )


HEADER = (
    "family", "jobs", "options", "columns kept", "rows", "expand, s", "build, s", "build all, s",
    "expand, s/100,000", "build, s/100,000", "build all, s/100,000", "build, s/100,000 kept",
)  # fmt: skip


def measure(family: str, jobs: int, repetitions: int) -> Measurement:
    """Generate a round and build its program several times."""
    instance = wattsched.generate(family, jobs=jobs, seed=0)
    times = []
    for _ in range(repetitions):
        gc.collect()
        stamps = [time.perf_counter()]
        options = expand(instance)
        stamps.append(time.perf_counter())
        program = problem("sizing").formulation("mckp")(options, instance.objective).program
        stamps.append(time.perf_counter())
        build_all(options, instance.objective)
        stamps.append(time.perf_counter())
        times.append([end - begin for begin, end in pairwise(stamps)])
    expand_s, build_s, build_all_s = (median(column) for column in zip(*times, strict=True))
    return Measurement(
        family, jobs, len(options), program.n_columns, program.n_rows, expand_s, build_s, build_all_s
    )


def build_all(options: Options, goal: str) -> Program:
    """Build the program with every option as a column."""
    columns = choices(options, goal, keep_dominated=True)
    rows = ProgramBuilder()
    add_room_rows(rows, *room_of(columns))
    add_limits(rows, columns.budgets)
    return assemble(columns, rows)


def shares(instance: Instance) -> dict[str, float]:
    """Share of the building time that each part takes."""
    options = expand(instance)
    profile = cProfile.Profile()
    profile.runcall(problem("sizing").formulation("mckp"), options, instance.objective)
    # The documented profile rounds to milliseconds; what it is made of has no types.
    statistics: Any = pstats.Stats(profile)
    seconds = dict.fromkeys(PARTS, 0.0)
    for (_, _, function), (_, _, _, cumulative, _) in statistics.stats.items():
        if function in PARTS:
            seconds[function] = cumulative
    total = statistics.total_tt
    found = {what: seconds[function] / total for function, what in PARTS.items()}
    return {**found, "costs, bookkeeping": 1.0 - sum(found.values())}


def profile_table(cases: tuple[tuple[str, int], ...]) -> str:
    """Shares of the parts, one column per case."""
    columns = [shares(wattsched.generate(family, jobs=jobs, seed=0)) for family, jobs in cases]
    header = ("part", *(f"{family}, {jobs:,} jobs" for family, jobs in cases))
    rows = [(part, *(f"{100 * column[part]:.0f} %" for column in columns)) for part in columns[0]]
    return table(header, rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    parser.add_argument("--quick", action="store_true", help="small rounds only, one repetition")
    arguments = parser.parse_args()

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    cases = QUICK_CASES if arguments.quick else CASES
    measured = [measure(family, jobs, 1 if arguments.quick else REPETITIONS) for family, jobs in cases]
    times = table(HEADER, [m.cells() for m in measured])
    parts = profile_table(tuple((m.family, m.jobs) for m in measured if m.jobs <= 5_000)[-3:])
    print(f"{times}\n\n{parts}")
    if arguments.write:
        write("build-times", f"{times}\n\nMeasured on {machine()}.\n\n## Parts of the time\n\n{parts}")


if __name__ == "__main__":
    main()
