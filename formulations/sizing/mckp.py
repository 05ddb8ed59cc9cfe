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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from wattsched.formulations.model import Model
from wattsched.formulations.program import Block, Program
from wattsched.formulations.sizing.budgets import BudgetRow, free_gpus
from wattsched.formulations.sizing.columns import Choices, choices
from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.decisions import place_by_buddy
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.buddy import free_by_level

if TYPE_CHECKING:
    from scipy.sparse import csc_array

name = "mckp"
description = "one binary per option; exact aggregated buddy rows"


@dataclass(frozen=True)
class Rows:
    """Rows ``floor <= coefficients @ x <= capacity`` while they are gathered: entries in row-major order."""

    names: list[str]
    capacity: list[float]
    columns: list[IntArray]
    values: list[FloatArray]
    floor: list[float] = field(default_factory=list)

    def add(
        self, name: str, columns: IntArray, values: FloatArray, capacity: float, floor: float = -np.inf
    ) -> None:
        """Append one row."""
        self.names.append(name)
        self.capacity.append(capacity)
        self.columns.append(columns)
        self.values.append(values)
        self.floor.append(floor)

    def followed_by(self, other: Rows) -> Rows:
        """These rows and then those."""
        return Rows(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))


def build(options: Options, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the aggregated formulation.

    Parameters
    ----------
    options : Options
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
    columns = choices(options, find_objective(objective))
    rows = Rows([], [], [], [])
    add_buddy_rows(rows, columns)
    add_budget_rows(rows, columns)
    program = assemble(columns, rows)
    return Model(
        program=program,
        decode=lambda x, starts: place_by_buddy(options, columns.chosen(x)),
        encode=lambda decision: point_of(columns, options.matching(decision)),
        named_prices=program.named_prices,
        lagrangian=True,
        options=len(options),
        dropped=columns.dropped,
    )


def point_of(columns: Choices, chosen: IntArray) -> FloatArray | None:
    """Point of the program that chooses these options, None when one of them was dropped."""
    places = np.searchsorted(columns.index, chosen)
    places = np.minimum(places, len(columns) - 1)
    if len(chosen) != len(columns.start) - 1 or not np.array_equal(columns.index[places], chosen):
        return None
    x = np.zeros(len(columns))
    x[places] = 1.0
    if columns.objective.combine == "worst":
        x = np.append(x, columns.cost[places].max(initial=bottleneck_range(columns)[0]))
    return x


def add_buddy_rows(rows: Rows, columns: Choices) -> None:
    """Rows of the pools' blocks, for the columns that need room."""
    pools = columns.options.pools
    free = {
        pool.name: free_by_level(pool.blocks, available)
        for pool, available in zip(pools, free_gpus(columns.options), strict=True)
    }
    add_block_rows(rows, free, columns.pool, np.where(columns.needs_room, columns.block, 0))


def add_block_rows(rows: Rows, free: Mapping[str, IntArray], pool: IntArray, block: IntArray) -> None:
    """For each pool and level k: GPUs in blocks of at least 2^k are at most F_k.

    A level whose F_k equals that of the level below is implied by it and left out.

    Parameters
    ----------
    free : mapping of str to int array, shape (n_levels,)
        F of each pool (`topology.buddy.free_by_level`), by name.
    pool, block : int arrays, shape (n_columns,)
        Number of the pool, and size of the block that a column takes there; 0 for none.
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
            row = f"buddy:{label}:{1 << k}" if k else f"gpus:{label}"
            rows.add(row, inside[large], sizes[large].astype(float), float(room))


def add_budget_rows(rows: Rows, columns: Choices) -> None:
    """Power caps, energy and carbon budgets."""
    add_limits(rows, columns.budgets)


def add_limits(rows: Rows, budgets: Iterable[BudgetRow]) -> None:
    """What the columns use of each budget is at most what is left of it."""
    for budget in budgets:
        used = np.flatnonzero(budget.use)
        rows.add(budget.name, used, budget.use[used], budget.capacity)


def share_rows(columns: Choices) -> Rows:
    """All jobs of a set share its GPUs, or none does."""
    rows = Rows([], [], [], [])
    for link in columns.links:
        entries = [(c, v) for c, v in ((link.first, 1.0), (link.other, -1.0)) if c is not None]
        places, values = zip(*entries, strict=True)
        rows.add(link.name, np.array(places), np.array(values), capacity=0.0, floor=0.0)
    return rows


def assemble(columns: Choices, rows: Rows) -> Program:
    """Program of the choice columns under the gathered rows and `share_rows`."""
    jobs = columns.options.instance.jobs
    program = program_of(
        columns.start,
        columns.cost,
        rows.followed_by(share_rows(columns)),
        columns.attributes(),
        worst=columns.objective.combine == "worst",
        job=lambda j: jobs[j].name,
    )
    named = (columns.block_of_names(), *program.columns[1:])
    return replace(program, columns=named, sense=columns.objective.sense)


def program_of(
    start: IntArray,
    cost: FloatArray,
    rows: Rows,
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
    rows : Rows
    attributes : mapping of str to float array, shape (n_columns,)
        Quantities that published rules read.
    worst : bool
        Whether the largest cost of a job counts, which a column of its own bounds, and not their sum.
    job : callable
        Name of a job by its number.
    """
    n = len(cost)
    matrix = _matrix(start, cost, rows, worst)
    row_blocks = [Block(label, 1) for label in rows.names]
    capacity, floor = np.array(rows.capacity, dtype=float), np.array(rows.floor, dtype=float)
    lower, upper = np.zeros(n), np.ones(n)
    integer = np.ones(n, dtype=bool)
    names = [Block("option", n)]
    if worst:
        jobs = len(start) - 1
        row_blocks.append(Block("worst", jobs, lambda j: f"worst:{job(j)}"))
        capacity = np.concatenate([capacity, np.zeros(jobs)])
        floor = np.concatenate([floor, np.full(jobs, -np.inf)])
        names.append(Block("worst", 1))
        least, most = worst_range(start, cost)
        cost = np.append(np.zeros(n), 1.0)
        lower, upper = np.append(lower, least), np.append(upper, most)
        integer = np.append(integer, False)
        attributes = {key: np.append(value, 0.0) for key, value in attributes.items()}
    return Program(
        cost=cost,
        matrix=matrix,
        row_lower=floor,
        row_upper=capacity,
        lower=lower,
        upper=upper,
        integer=integer,
        group_start=start,
        rows=tuple(row_blocks),
        columns=tuple(names),
        bottleneck=n if worst else None,
        attributes=attributes,
    )


def bottleneck_range(columns: Choices) -> tuple[float, float]:
    """Bounds on the worst job's cost."""
    return worst_range(columns.start, columns.cost)


def worst_range(start: IntArray, cost: FloatArray) -> tuple[float, float]:
    """Bounds on the worst job's cost: no better than the worst of the bests, no worse than the worst."""
    if not len(cost):
        return 0.0, 0.0
    best = np.minimum.reduceat(cost, start[:-1])
    return float(best.max()), float(cost.max())


def _matrix(start: IntArray, cost: FloatArray, rows: Rows, worst: bool) -> csc_array:
    from scipy.sparse import csr_array

    n = len(cost)
    col, value = [np.empty(0, dtype=np.int64), *rows.columns], [np.empty(0), *rows.values]
    sizes = [len(entries) for entries in rows.columns]
    if worst:
        # Row by row the entries of the job's columns, and of the bottleneck column behind them.
        ends = start[1:]
        col.append(np.insert(np.arange(n), ends, n))
        value.append(np.insert(cost, ends, -1.0))
        sizes += (np.diff(start) + 1).tolist()
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    shape = (len(sizes), n + worst)
    return csr_array((np.concatenate(value), np.concatenate(col), first), shape=shape).tocsc()
