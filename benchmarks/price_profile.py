"""Where the seconds of `price` go, in units of one pass over the columns.

OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/price_profile.py --write
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import click
import numpy as np
from tables import machine
from tables import table as markdown
from tables import write as write_table

from wattsched.formulations.program import Program
from wattsched.formulations.sizing.jobs import jobs_of
from wattsched.formulations.sizing.mckp import written_out
from wattsched.instances.generators import generate
from wattsched.solvers import dual, greedy, price
from wattsched.solvers.solution import Limits

CASES = (
    ("uniform", 1_000, {}),
    ("uniform", 20_000, {}),
    ("sia-like", 4_000, {}),
    ("hetero", 1_000, {"racks": 32}),
    ("hetero", 1_000, {"racks": 32, "energy_fraction": 0.4}),
)
PARTS: dict[str, Any] = {
    "prices": dual.dual_prices,
    "of it oracle": dual._Oracle.__call__,
    "kernels": price._Search._improve,
    "greedy ascent": greedy.ascend,
    "neighbourhoods": price._Search._search_neighbourhoods,
    "branching": price._Branching.branch,
}


def program_of(family: str, jobs: int, options: dict[str, int]) -> Program:
    instance = generate(family, jobs=jobs, seed=1, **options)
    return written_out(jobs_of(instance), instance.objective).program


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
    # What a profile is made of has no types: by file, line and name, seconds are the fourth of five values.
    measured: Any = pstats.Stats(profile)
    found = {"whole": whole}
    for part, function in PARTS.items():
        code = function.__code__
        place = (code.co_filename, code.co_firstlineno, code.co_name)
        found[part] = measured.stats.get(place, (0, 0, 0.0, 0.0, {}))[3]
    return found


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
