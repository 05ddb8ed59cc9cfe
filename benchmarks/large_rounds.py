"""Large rounds from file to file: seconds and bytes of whole commands, and of their phases.

    python -m benchmarks.large_rounds --write [--only large-seeds] [--seeds 20]

Rounds are generated, solved and checked by `wattsched` as a user would, each command in a process of its own;
another process looks at the peak of each phase (Linux). Seeds of the second table begin at 301, on which
nothing was chosen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

import wattsched
from benchmarks.harness import (
    Asked,
    in_new_process,
    machine,
    mean_and_worst,
    resident_mib,
    run,
    say,
    sections,
    table,
)
from wattsched.formulations.timer import Timer
from wattsched.results.documents import write_document

SIZES = (1_000, 10_000, 20_000, 100_000, 300_000, 1_000_000)
GROWTH = 10_000
"""Least size of the slope."""
GAP, SEED, FIRST = 1e-6, 1, 301
JSON_JOBS = 100_000
"""Up to so many jobs there are JSON files, too; larger ones are above the limit of 50 MB."""
CLAIMED = 5
"""Exit code of a check that finds a result valid, and its bound beyond what is proven."""
PHASES = ("read", "expand", "build", "safety", "solve", "decode", "check", "prove", "write")
MEMORY = "MiB on top of what was there"
RACKS = "--racks 16 --energy-fraction 0.4"
FAMILIES = {
    "uniform --jobs 20000": (1e-6,),
    "uniform --jobs 100000": (1e-6,),
    f"hetero --jobs 5000 {RACKS}": (1e-3, 1e-4),
    "philly-like --jobs 10000": (1e-4,),
    "sia-like --jobs 4000": (1e-4,),
}
"""Options of ``wattsched generate``, and the gaps that are asked for."""


class Ran(NamedTuple):
    """Cost of a command: wall and CPU seconds, and the largest resident size of its process."""

    wall_s: float
    cpu_s: float
    peak_mib: float

    def cells(self) -> tuple[str, str, str]:
        """Cells of a command."""
        return f"{self.wall_s:.2f}", f"{self.cpu_s:.2f}", f"{self.peak_mib:,.0f}"


def command(*words: object) -> Ran:
    """Run a command of wattsched to its end."""
    begin = time.perf_counter()
    line = [sys.executable, "-P", "-m", "wattsched", *map(str, words)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, CLAIMED):
        raise SystemExit(f"wattsched {' '.join(map(str, words))} ended with {process.returncode}")
    return Ran(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def gaps_of(result_file: Path) -> tuple[float, float]:
    """Gap of a result, claimed and proven."""
    result = wattsched.read_result(result_file)
    return float(result.gap or 0.0), float(result.proven_gap or 0.0)


# -- whole commands and their phases ---------------------------------------------------------------------


def whole(folder: Path, jobs: int, suffix: str) -> tuple[list[str], Ran, Ran]:
    """Solve and check a round, from file to file: a row, and what both took."""
    say(f"{jobs:,} jobs, {suffix}")
    round_file, result_file = folder / f"{jobs}.{suffix}", folder / f"{jobs}-result.{suffix}"
    command("generate", "uniform", "--jobs", jobs, "--seed", SEED, "-o", round_file)
    solved = command("solve", round_file, "--gap", GAP, "--time-limit", "inf", "-o", result_file)
    checked = command("check", round_file, result_file)
    sizes = (f"{path.stat().st_size / 2**20:.1f}" for path in (round_file, result_file))
    gaps = (f"{gap:.1e}" for gap in gaps_of(result_file))
    row = [f"{jobs:,}", f"{193 * jobs:,}", suffix, *sizes, *gaps, *solved.cells(), *checked.cells()]
    return row, solved, checked


def measure_phases(path: Path) -> dict[str, tuple[float, float]]:
    """Seconds and megabytes of each phase of a solve."""
    found: dict[str, tuple[float, float]] = {}

    @contextmanager
    def looked_at(name: str) -> Iterator[None]:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak
        before, begin = resident_mib("VmRSS"), time.perf_counter()
        try:
            yield
        finally:
            seconds, peak = found.get(name, (0.0, 0.0))
            peak = max(peak, resident_mib("VmHWM") - before)
            found[name] = (seconds + time.perf_counter() - begin, peak)

    engines = Timer.phase

    @contextmanager
    def both(timer: Timer, name: str) -> Iterator[None]:
        with engines(timer, name), looked_at(name):
            yield

    with looked_at("read"):
        instance = wattsched.read_instance(path)
    with patch.object(Timer, "phase", both):
        result = wattsched.solve(instance, gap=GAP)
    with looked_at("write"):
        write_document(path.with_name("written.parquet"), result)
    return found


def large_rounds(asked: Asked) -> str:
    """Whole commands, how their seconds grow, and their phases."""
    sizes = (200,) if asked.quick else SIZES
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = [whole(folder, jobs, "json")[0] for jobs in sizes if jobs <= JSON_JOBS]
        columnar = {jobs: whole(folder, jobs, "parquet") for jobs in sizes}
        rows += [row for row, _, _ in columnar.values()]
        measured = {jobs: in_new_process(measure_phases, folder / f"{jobs}.parquet") for jobs in sizes}
    header = ("jobs", "options", "file", "round, MiB", "result, MiB", "gap", "gap proven")
    figures = [f"`{name}`, {figure}" for name in ("solve", "check") for figure in ("s", "CPU s", "peak, MiB")]
    slope = ""
    if large := [jobs for jobs in sizes if jobs >= GROWTH]:
        seconds = np.log([[ran.wall_s for ran in columnar[jobs][1:]] for jobs in large])
        solving, checking = np.polyfit(np.log(large), seconds, 1)[0]
        slope = (
            f"\n\nLog-log slope of the seconds from {large[0]:,} to {large[-1]:,} jobs: "
            f"{solving:.2f} (`solve`), {checking:.2f} (`check`)."
        )
    names = [name for name in PHASES if any(name in of for of in measured.values())]
    parts = {"From file to file": f"{table((*header, *figures), rows)}{slope}"}
    for number, (title, digits) in enumerate((("Seconds", ".3f"), (MEMORY, ",.0f"))):
        cells = [
            (f"{jobs:,}", *(format(of[name][number], digits) if name in of else "-" for name in names))
            for jobs, of in measured.items()
        ]
        parts[f"{title} of the phases"] = table(("jobs", *names), cells)
    return f"{sections(parts)}\n\nMeasured on {machine()}, gap {GAP:g}."


# -- many seeds ------------------------------------------------------------------------------------------


def large_seeds(asked: Asked) -> str:
    """Whole commands over many seeds of several families: geometric means and the worst."""
    rows = []
    for options, gaps in ({"uniform --jobs 300": (1e-4,)} if asked.quick else FAMILIES).items():
        found: dict[float, list[tuple[float, ...]]] = {gap: [] for gap in gaps}
        with TemporaryDirectory() as folder:
            file, result = Path(folder) / "round.json", Path(folder) / "result.json"
            for seed in range(FIRST, FIRST + asked.seeds):
                say(f"{options} --seed {seed}")
                command("generate", *options.split(), "--seed", seed, "-o", file)
                for gap in gaps:
                    ran = command("solve", file, "--gap", gap, "--time-limit", "inf", "-o", result)
                    found[gap].append((*ran, *gaps_of(result)))
        for gap, values in found.items():
            wall_s, cpu_s, peak_mib, claimed, proven = np.array(values).T
            seconds = (*mean_and_worst(wall_s), mean_and_worst(cpu_s)[0])
            worst = (f"{peak_mib.max():.0f}", f"{claimed.max():.1e}", f"{proven.max():.1e}")
            rows.append([f"`{options}`", f"{gap:g}", *seconds, *worst])
    header = ("round", "gap asked", "s, mean", "s, worst", "CPU s, mean", "MiB, worst", "gap, worst",
              "proven, worst")  # fmt: skip
    return f"{table(header, rows)}\n\nMeasured on {machine()}, {asked.seeds} seeds of each, geometric means."


TABLES = {"large-rounds": large_rounds, "large-seeds": large_seeds}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20)
