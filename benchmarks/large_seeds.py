"""Large rounds over many seeds: whole commands from file to file.

    python benchmarks/large_seeds.py --write [--seeds N]

generates a round of every row and seed, and runs ``wattsched solve FILE --gap G -o RESULT`` on it as a user
would. Seeds begin at 301, on which nothing was chosen.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from large_rounds import gaps_of, run
from scipy.stats import gmean
from suite import say
from tables import asked_over_seeds, machine, table, write

FIRST = 301
HEADER = (
    "round",
    "gap asked",
    "s, mean",
    "s, worst",
    "CPU s, mean",
    "MiB, worst",
    "gap, worst",
    "proven, worst",
)


class Row(NamedTuple):
    """A family with its options, and the gaps that are asked for."""

    words: tuple[str, ...]
    gaps: tuple[float, ...]


RACKS = ("--racks", "16", "--energy-fraction", "0.4")
ROWS = (
    Row(("uniform", "--jobs", "20000"), (1e-6,)),
    Row(("uniform", "--jobs", "100000"), (1e-6,)),
    Row(("hetero", "--jobs", "5000", *RACKS), (1e-3, 1e-4)),
    Row(("philly-like", "--jobs", "10000"), (1e-4,)),
    Row(("sia-like", "--jobs", "4000"), (1e-4,)),
)
QUICK = (Row(("uniform", "--jobs", "300"), (1e-4,)),)


def lines_of(row: Row, seeds: int) -> list[list[str]]:
    """Lines of the table for a row: one for each gap."""
    found: dict[float, list[tuple[float, ...]]] = {gap: [] for gap in row.gaps}
    with TemporaryDirectory() as folder:
        file, result = Path(folder) / "round.json", Path(folder) / "result.json"
        for seed in range(FIRST, FIRST + seeds):
            say(f"{' '.join(row.words)} --seed {seed}")
            run("generate", *row.words, "--seed", str(seed), "-o", str(file))
            for gap in row.gaps:
                ran = run("solve", str(file), "--gap", str(gap), "--time-limit", "inf", "-o", str(result))
                found[gap].append((*ran, *gaps_of(result)))
    return [[f"`{' '.join(row.words)}`", f"{gap:g}", *cells(values)] for gap, values in found.items()]


def cells(values: list[tuple[float, ...]]) -> tuple[str, ...]:
    """Geometric means of seconds, and the worst of everything."""
    wall_s, cpu_s, peak_mib, gap, proven = np.array(values).T
    seconds = f"{gmean(wall_s):.2f}", f"{wall_s.max():.2f}", f"{gmean(cpu_s):.2f}"
    return *seconds, f"{peak_mib.max():.0f}", f"{gap.max():.1e}", f"{proven.max():.1e}"


def main() -> None:
    """Print the table."""
    asked = asked_over_seeds(__doc__)
    lines = [line for row in (QUICK if asked.quick else ROWS) for line in lines_of(row, asked.seeds)]
    text = f"{table(HEADER, lines)}\n\nMeasured on {machine()}, {asked.seeds} seeds of each, geometric means."
    print(text)
    if asked.write:
        write("large-seeds", text)


if __name__ == "__main__":
    main()
