"""Commands with a time limit that were once late or found little, and what they do now.

    python benchmarks/time_limits.py --write

Every row is a ``wattsched solve`` in a process of its own. From its start to its exit it has 1.05 T + 0.1 s
for a limit of T seconds, and the time in which ``python -m wattsched --version`` starts. The column *then* is
what was measured when the promise was made, on a machine of the same size. ``--quick`` is small cases.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from seed_cases import program_of
from tables import machine, table, write

import wattsched

HEADER = ("instance", "`wattsched solve FILE`", "then", "allowed, s", "took, s", "ended", "gap")
WATTSCHED = (sys.executable, "-P", "-m", "wattsched")
HANGS = """\
def hangs(round):
    while True:
        pass
"""
"""A formulation whose author forgot a way out."""


@dataclass(frozen=True)
class Case:
    """A command: the instance, the options of ``solve``, its limit, and what became of it at first."""

    name: str
    instance: Callable[[], Any]
    options: str
    limit_s: float
    then: str


@dataclass(frozen=True)
class Outcome:
    """What became of the command now."""

    case: Case
    allowed_s: float
    took_s: float
    ended: str
    gap: float | None

    @property
    def late(self) -> bool:
        """Whether it broke the contract."""
        return self.took_s > self.allowed_s

    def row(self) -> list[str]:
        """Cells of the table."""
        options = f"`{self.case.options} --time-limit {self.case.limit_s:g}`"
        gap = "-" if self.gap is None else f"{self.gap:.2g}"
        seconds = [f"{self.allowed_s:.2f}", f"{self.took_s:.2f}"]
        return [self.case.name, options.replace("` ", "`"), self.case.then, *seconds, self.ended, gap]


@lru_cache(maxsize=1)
def generated(family: str, jobs: int, seed: int, **options: Any) -> Any:
    """Instance of a family; that of the case before is kept."""
    return wattsched.generate(family, jobs=jobs, seed=seed, **options)


def none_may_wait(jobs: int, fraction: float) -> Any:
    """`uniform` in which all jobs must run, with a share of the least extra power that they can run with."""
    drawn = generated("uniform", jobs, 1, budget="power")
    instance = drawn.model_copy(
        update={"jobs": [job.model_copy(update={"can_wait": False}) for job in drawn.jobs]}
    )
    program = program_of(instance, "mckp")
    row = program.row_names().index("power_w")
    extra_w = program.matrix[[row]].toarray()[0]
    least_w = np.minimum.reduceat(extra_w, program.group_start[:-1]).sum()
    standing_w = instance.budgets.power_w - program.row_upper[row]
    budgets = instance.budgets.model_copy(update={"power_w": float(standing_w + fraction * least_w)})
    return instance.model_copy(update={"budgets": budgets})


def cases() -> list[Case]:
    """Those of the first measurement."""
    must_run = [
        Case(
            f"`uniform`, 300 jobs, none may wait, {fraction:g} of the least power",
            lambda fraction=fraction: none_may_wait(300, fraction),
            f"--solver {solver}",
            limit_s,
            "never ended",
        )
        for fraction, limit_s in ((0.5, 5.0), (0.9, 10.0), (0.999, 20.0), (1.001, 20.0))
        for solver in ("auto", "price", "highs", "cpsat")
    ]
    return [
        *must_run,
        *sized("uniform", 5_000, (0.05, 0.5), "11 s, gap 24 %"),
        *sized("sia-like", 200, (float("inf"),), "0.17 s, optimal"),
        *sized("sia-like", 200, (0.5,), "1.1 s, gap 5 %"),
        *sized("uniform", 20_000, (0.01, 0.1, 1.0), "16 to 27 s"),
        *sized("uniform", 100_000, (60.0,), "no answer at 60 s"),
        *sized("hetero", 20_000, (120.0,), "none at 120 s and 8 GB"),
        *sized("shifting", 40, (30.0,), "66 s, gap 25 %", seed=3),
        *sized("shifting", 40, (60.0,), "191 s", "--frontier 4", seed=3),
        *sized("uniform", 200, (2.0,), "ended by hand at 25 s", "--formulation hangs.py:hangs"),
    ]


def quick_cases() -> list[Case]:
    """Small ones."""
    return [
        Case("none may wait", lambda: none_may_wait(20, 0.9), "--solver price", 5.0, "-"),
        *sized("shifting", 3, (5.0,), "-", "--frontier 2"),
        *sized("uniform", 20, (1.0,), "-", "--formulation hangs.py:hangs"),
    ]


def sized(
    family: str, jobs: int, limits_s: tuple[float, ...], then: str, options: str = "", seed: int = 1
) -> list[Case]:
    """An instance of a family under each of some limits."""
    name = f"`{family}`, {jobs:,} jobs, seed {seed}"
    return [Case(name, lambda: generated(family, jobs, seed), options, limit_s, then) for limit_s in limits_s]


def ask(case: Case, folder: Path) -> Outcome:
    """Write the instance, and run the command on it."""
    file = folder / "instance.json"
    file.write_text(case.instance().model_dump_json(), encoding="utf-8")
    (folder / "hangs.py").write_text(HANGS, encoding="utf-8")
    start_s = min(seconds([*WATTSCHED, "--version"], folder)[0] for _ in range(3))
    limit = f"--time-limit {case.limit_s:g}"
    asked = [*WATTSCHED, "solve", file.name, *shlex.split(f"{case.options} {limit}"), "--json"]
    took_s, done = seconds(asked, folder)
    ended, gap = told(done)
    return Outcome(case, start_s + 1.05 * case.limit_s + 0.1, took_s, ended, gap)


def seconds(command: list[str], folder: Path) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Seconds from a command's start to its exit, and what it printed."""
    begin_s = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return time.perf_counter() - begin_s, done


def told(done: subprocess.CompletedProcess[str]) -> tuple[str, float | None]:
    """How it ended, and the gap; of a frontier how many points there are, and the largest gap."""
    if not done.stdout:
        return done.stderr.strip().rpartition(": ")[2], None
    document = json.loads(done.stdout)
    if "points" in document:
        gaps = [point["result"]["gap"] for point in document["points"]]
        return f"{len(gaps)} points", max((gap for gap in gaps if gap is not None), default=None)
    ended = document["termination"]
    limited = f", {ended['limit']}" if ended["limit"] else ""
    return f"{ended['reason']}{limited}", document["gap"]


def main() -> int:
    """Run all, and say how many were late."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small cases, for the tests")
    parser.add_argument("--write", action="store_true", help="write the table in docs/tables")
    asked = parser.parse_args()
    outcomes = []
    with TemporaryDirectory() as folder:
        ask(quick_cases()[0], Path(folder))  # modules are compiled once
        for case in quick_cases() if asked.quick else cases():
            outcomes.append(ask(case, Path(folder)))
            print(" | ".join(outcomes[-1].row()), file=sys.stderr, flush=True)
    late = sum(outcome.late for outcome in outcomes)
    text = f"{table(HEADER, [outcome.row() for outcome in outcomes])}\n\n{late} of {len(outcomes)} late."
    print(text)
    if asked.write:
        write("time-limits", f"{text} Measured on {machine()}.")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
