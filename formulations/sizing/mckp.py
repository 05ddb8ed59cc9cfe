r"""`mckp`: multiple-choice knapsack with one row per buddy level, no placement variables.

.. math::
    \min \sum_j \sum_{o \in O_j} c_{jo} x_{jo} \quad\text{s.t.}\quad
    \sum_{o} x_{jo} = 1,\quad
    \sum_{(j,o)\ \text{in pool}\ p:\ b_o \ge 2^k} b_o x_{jo} \le F_{pk}\ \forall p, k,\quad
    \sum_{j,o} u^r_{jo} x_{jo} \le U^r\ \forall r

and, for each job but the first of a set that may share GPUs, :math:`x_{\text{first},S} = x_{jS}`.

The buddy rows are exact (`topology.buddy`), so the allocator can always place what the program chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from wattsched.formulations.model import Model
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.sizing.budgets import BudgetRow, free_gpus
from wattsched.formulations.sizing.columns import Choices, choices, worst_range
from wattsched.formulations.sizing.data import Options, expanded
from wattsched.formulations.sizing.decisions import place_by_buddy
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.matching import matching_options
from wattsched.formulations.sizing.splits import split_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.buddy import free_by_level


def build(known: RoundJobs | Options, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the aggregated formulation.

    Parameters
    ----------
    known : RoundJobs or Options
        Jobs of the round, or their options where these are written out.
    objective : str
        Name in the registry of objectives.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        If a job has no option, or the objective is unknown.
    """
    options = expanded(known)
    columns = choices(options, objective)
    rows = ProgramBuilder()
    add_buddy_rows(rows, columns)
    add_limits(rows, columns.budgets)
    program = assemble(columns, rows)
    return Model(
        program=program,
        decode=lambda x, starts: place_by_buddy(options, columns.chosen(x)),
        encode=lambda decision: _point_of(columns, matching_options(options, decision)),
        named_prices=program.named_prices,
        lagrangian=True,
        split=lambda inside, outside: split_of(columns, inside, outside),
        options=len(options),
        dropped=columns.dropped,
    )


def _point_of(columns: Choices, chosen: IntArray) -> FloatArray | None:
    """Point of the program that chooses these options, None when one of them was dropped."""
    places = np.searchsorted(columns.index, chosen)
    places = np.minimum(places, len(columns) - 1)
    if len(chosen) != len(columns.start) - 1 or not np.array_equal(columns.index[places], chosen):
        return None
    x = np.zeros(len(columns))
    x[places] = 1.0
    if columns.objective.combine == "worst":
        x = np.append(x, columns.cost[places].max(initial=worst_range(columns.start, columns.cost)[0]))
    return x


def add_buddy_rows(rows: ProgramBuilder, columns: Choices) -> None:
    """Rows of the pools' blocks, for the columns that need room."""
    add_block_rows(rows, *room_of(columns))


def room_of(columns: Choices) -> tuple[dict[str, IntArray], IntArray, IntArray]:
    """Free GPUs by pool and level, and each column's pool and block, as `block_rows` takes them."""
    return free_levels(columns.options.of), columns.pool, np.where(columns.needs_room, columns.block, 0)


def free_levels(known: RoundJobs) -> dict[str, IntArray]:
    """Free GPUs of every pool by level, by name."""
    return {
        pool.name: free_by_level(pool.blocks, available)
        for pool, available in zip(known.pools, free_gpus(known), strict=True)
    }


def add_block_rows(
    rows: ProgramBuilder, free: Mapping[str, IntArray], pool: IntArray, block: IntArray
) -> None:
    """Add the rows of `block_rows`."""
    for name, columns, sizes, capacity in block_rows(free, pool, block):
        rows.row(name, columns, sizes, upper=capacity)


def block_rows(
    free: Mapping[str, IntArray], pool: IntArray, block: IntArray
) -> Iterator[tuple[str, IntArray, FloatArray, float]]:
    """For each pool and level k: GPUs in blocks of at least 2^k are at most F_k.

    A level whose F_k equals that of the level below is implied by it and left out.

    Parameters
    ----------
    free : mapping of str to int array, shape (n_levels,)
        F of each pool (`topology.buddy.free_by_level`), by name.
    pool, block : int arrays, shape (n_columns,)
        Number of the pool, and size of the block that a column takes there; 0 for none.

    Yields
    ------
    name : str
    columns : int array
    sizes : float array
        Of the blocks that these columns take.
    capacity : float
    """
    for p, (label, capacity) in enumerate(free.items()):
        inside = np.flatnonzero((block > 0) & (pool == p))
        sizes = block[inside]
        for k, room in enumerate(capacity):
            large = sizes >= 1 << k
            if not large.any():
                break
            if k and room == capacity[k - 1]:
                continue
            name = f"buddy:{label}:{1 << k}" if k else f"gpus:{label}"
            yield name, inside[large], sizes[large].astype(float), float(room)


def add_limits(rows: ProgramBuilder, budgets: Iterable[BudgetRow]) -> None:
    """What the columns use of each budget is at most what is left of it."""
    for budget in budgets:
        rows.row(budget.name, budget.column, budget.use, upper=budget.capacity)


def assemble(columns: Choices, rows: ProgramBuilder) -> Program:
    """Program of the choice columns under the gathered rows; of a set all jobs share its GPUs, or none."""
    for link in columns.links:
        places = [(c, v) for c, v in ((link.first, 1.0), (link.other, -1.0)) if c is not None]
        rows.row(link.name, *zip(*places, strict=True), lower=0.0, upper=0.0)
    names, worst = columns.options.of.jobs.names, columns.objective.combine == "worst"
    program = program_of(
        columns.start, columns.cost, rows, columns.attributes(), worst=worst, job=names.__getitem__
    )
    named = (Block("option", len(columns), columns.name_of), *program.columns[1:])
    return replace(program, columns=named, sense=columns.objective.sense)


def program_of(
    start: IntArray,
    cost: FloatArray,
    rows: ProgramBuilder,
    attributes: Mapping[str, FloatArray],
    *,
    worst: bool = False,
    job: Callable[[int], str] = str,
) -> Program:
    """Choose one column of every job under the gathered rows, at least cost.

    Parameters
    ----------
    start : int array, shape (n_jobs + 1,)
        Columns of job j are ``start[j]`` to ``start[j + 1]``.
    cost : float array, shape (n_columns,)
    rows : ProgramBuilder
        Without columns.
    attributes : mapping of str to float array, shape (n_columns,)
        Quantities that published rules read.
    worst : bool
        Whether the largest cost of a job counts, which a column of its own bounds, and not their sum.
    job : callable
        Name of a job by its number.
    """
    n, jobs = len(cost), len(start) - 1
    choice = rows.columns(Block("option", n), cost=0.0 if worst else cost)
    if not worst:
        return rows.program(start, attributes=attributes)
    least, most = worst_range(start, cost)
    bottleneck = rows.columns(Block("worst", 1), cost=1.0, lower=least, upper=most, integer=False)
    of_job = rows.rows(Block("worst", jobs, lambda j: f"worst:{job(j)}"), upper=0.0)
    rows.add(np.repeat(of_job, np.diff(start)), choice, cost)
    rows.add(of_job, bottleneck, -1.0)
    padded = {name: np.append(values, 0.0) for name, values in attributes.items()}
    return rows.program(start, attributes=padded, bottleneck=n)
