"""Where the seconds of `price` go, in units of one pass over the columns.

OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/price_profile.py --write
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from tables import machine
from tables import table as markdown
from tables import write as write_table

from wattsched.formulations.program import Program
from wattsched.formulations.sizing.data import expand
from wattsched.instances.generators import generate
from wattsched.problems import problem
from wattsched.solvers import price
from wattsched.solvers.solution import Limits

CASES = (
    ("uniform", 1_000, {}),
    ("uniform", 20_000, {}),
    ("sia-like", 4_000, {}),
    ("hetero", 1_000, {"racks": 32}),
    ("hetero", 1_000, {"racks": 32, "energy_fraction": 0.4}),
)
PARTS = {
    "prices": ("dual.py", "dual_prices"),
    "of it oracle": ("dual.py", "__call__"),
    "kernels": ("price.py", "by_highs"),
    "greedy ascent": ("greedy.py", "ascend"),
    "branching": ("price.py", "branch"),
}


def program_of(family: str, jobs: int, options: dict[str, int]) -> Program:
    instance = generate(family, jobs=jobs, seed=1, **options)
    return problem("sizing").formulation("mckp")(expand(instance), instance.objective).program


def seconds(work: Callable[[], object], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return median(taken)


def one_pass_s(program: Program) -> float:
    """Reduced cost of every column and the least of every group: what one look at the program costs."""
    by_column = program.matrix.T.tocsr()
    y = -np.ones(program.n_rows)
    starts, n = program.group_start[:-1], program.n_choices
    return seconds(lambda: np.minimum.reduceat((program.cost - by_column @ y)[:n], starts))


def parts_s(program: Program, gap: float) -> dict[str, float]:
    """Cumulative seconds of the parts of one solve, and of the whole."""
    profile = cProfile.Profile()
    begin = time.perf_counter()
    profile.runcall(price.solve, program, Limits(gap=gap))
    whole = time.perf_counter() - begin
    # The documented profile is keyed by name alone; what it is made of has no types.
    measured: Any = pstats.Stats(profile)
    found = dict.fromkeys(PARTS, 0.0)
    for (file, _, function), (_, _, _, cumulative, _) in measured.stats.items():
        for part, (home, name) in PARTS.items():
            if Path(file).name == home and function == name and "solvers" in file:
                found[part] += cumulative
    # Branching solves kernels and ascends too: they are counted as branching.
    return {"whole": whole, **found}


def table(gap: float) -> str:
    header = [
        "round",
        "columns",
        "nonzeros",
        "one pass, ms",
        "`price`, ms",
        "passes",
        *(f"{p}, ms" for p in PARTS),
    ]
    rows = []
    for family, jobs, options in CASES:
        program = program_of(family, jobs, options)
        look, spent = one_pass_s(program), parts_s(program, gap)
        name = f"{family}, {jobs:,} jobs" + "".join(f", {v} {k}" for k, v in options.items())
        cells = [name, f"{program.n_columns:,}", f"{program.matrix.nnz:,}", f"{1e3 * look:.2f}"]
        cells += [f"{1e3 * spent['whole']:,.0f}", f"{spent['whole'] / look:,.0f}"]
        rows.append([*cells, *(f"{1e3 * spent[part]:,.0f}" for part in PARTS)])
    return f"{markdown(header, rows)}\n\nMeasured on {machine()}, gap {gap:g}."


@click.command()
@click.option("--gap", default=1e-4, show_default=True)
@click.option("--write", is_flag=True, help="Put the table into docs/tables.")
def main(gap: float, write: bool) -> None:
    text = table(gap)
    click.echo(text)
    if write:
        write_table("price-profile", text)


if __name__ == "__main__":
    main()
