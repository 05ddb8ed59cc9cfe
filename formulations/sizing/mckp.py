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

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from wattsched.formulations.model import Model
from wattsched.formulations.program import Block, Program
from wattsched.formulations.sizing.budgets import free_gpus
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
    """For each pool and level k: GPUs in blocks of at least 2^k are at most F_k.

    A level whose F_k equals that of the level below is implied by it and left out.
    """
    pool, block = columns.pool, columns.block
    for p, free in enumerate(free_gpus(columns.options)):
        inside = np.flatnonzero(columns.needs_room & (pool == p))
        capacity = free_by_level(columns.options.pools[p].blocks, free)
        sizes = block[inside]
        for k, room in enumerate(capacity):
            large = sizes >= 1 << k
            if not large.any():
                break
            if k and room == capacity[k - 1]:
                continue
            label = columns.options.pools[p].name
            row = f"buddy:{label}:{1 << k}" if k else f"gpus:{label}"
            rows.add(row, inside[large], sizes[large].astype(float), float(room))


def add_budget_rows(rows: Rows, columns: Choices) -> None:
    """Power caps, energy and carbon budgets."""
    for budget in columns.budgets:
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
    """Program of the choice columns under the gathered rows and `share_rows`.

    It has a bottleneck column where needed.
    """
    n = len(columns)
    rows = rows.followed_by(share_rows(columns))
    worst = columns.objective.combine == "worst"
    matrix = _matrix(columns, rows, worst)
    row_blocks = [Block(label, 1) for label in rows.names]
    capacity, floor = np.array(rows.capacity, dtype=float), np.array(rows.floor, dtype=float)
    cost, lower, upper = columns.cost, np.zeros(n), np.ones(n)
    integer = np.ones(n, dtype=bool)
    names = [columns.block_of_names()]
    attributes = columns.attributes()
    if worst:
        jobs = columns.options.instance.jobs
        row_blocks.append(Block("worst", len(jobs), lambda j: f"worst:{jobs[j].name}"))
        capacity = np.concatenate([capacity, np.zeros(len(jobs))])
        floor = np.concatenate([floor, np.full(len(jobs), -np.inf)])
        names.append(Block("worst", 1))
        least, most = bottleneck_range(columns)
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
        group_start=columns.start,
        rows=tuple(row_blocks),
        columns=tuple(names),
        sense=columns.objective.sense,
        bottleneck=n if worst else None,
        attributes=attributes,
    )


def bottleneck_range(columns: Choices) -> tuple[float, float]:
    """Bounds on the worst job's cost: no better than the worst of the bests, no worse than the worst."""
    if not len(columns):
        return 0.0, 0.0
    best = np.minimum.reduceat(columns.cost, columns.start[:-1])
    return float(best.max()), float(columns.cost.max())


def _matrix(columns: Choices, rows: Rows, worst: bool) -> csc_array:
    from scipy.sparse import csr_array

    n = len(columns)
    col, value = [np.empty(0, dtype=np.int64), *rows.columns], [np.empty(0), *rows.values]
    sizes = [len(entries) for entries in rows.columns]
    if worst:
        # Row by row the entries of the job's columns, and of the bottleneck column behind them.
        ends = columns.start[1:]
        col.append(np.insert(np.arange(n), ends, n))
        value.append(np.insert(columns.cost, ends, -1.0))
        sizes += (np.diff(columns.start) + 1).tolist()
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    shape = (len(sizes), n + worst)
    return csr_array((np.concatenate(value), np.concatenate(col), first), shape=shape).tocsc()
