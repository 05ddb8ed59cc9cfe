r"""`mckp`: multiple-choice knapsack with one row per pool and size, no placement variables.

.. math::
    \min \sum_j \sum_{o \in O_j} c_{jo} x_{jo} \quad\text{s.t.}\quad
    \sum_{o} x_{jo} = 1,\quad
    \sum_{(j,o)\ \text{in pool}\ p} b_{ok} x_{jo} \le F_{pk}\ \forall p, k,\quad
    \sum_{j,o} u^r_{jo} x_{jo} \le U^r\ \forall r

and, for each job but the first of a set that may share GPUs, :math:`x_{\text{first},S} = x_{jS}`. Nodes that
sleep are choice groups besides those of the jobs (`sleeping`).

Here :math:`F_{pk}` are the free GPUs of a pool in sets of a size, such as aligned blocks, and :math:`b_{ok}`
what an option takes of these (`topology.room`). These rows are exact for blocks (`topology.buddy`) and for
counts, and for nodes where sizes divide one another; else columns say how nodes are cut up (`cutting`). So
what the program chooses can always be placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from wattsched.formulations.model import Model
from wattsched.formulations.program import Block, Program, ProgramBuilder, Quantities
from wattsched.formulations.reach import in_reach, in_units
from wattsched.formulations.sizing import by_kind
from wattsched.formulations.sizing.budgets import BudgetRow
from wattsched.formulations.sizing.columns import Choices, choices, worst_range
from wattsched.formulations.sizing.cutting import Cutting, add_room_rows, cutting_of, points_of, slots_of
from wattsched.formulations.sizing.data import options_of
from wattsched.formulations.sizing.decisions import place
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.matching import matching_options, says_all
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.sizing.rooms import rooms_of
from wattsched.formulations.sizing.sleeping import Part, add_uses, awake_parts, nodes_awake, parts_of
from wattsched.formulations.sizing.splits import split_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.room import Room

STATES = ("asleep", "awake")


def build(known: RoundJobs, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the aggregated formulation, of a large round by kind, for an objective of the registry.

    Raises
    ------
    ValueError
        If a job has no option, or the objective is unknown.
    """
    goal = find_objective(objective)
    if not by_kind.suits(known, goal):
        return written_out(known, objective)
    return replace(by_kind.of_kinds(known, goal), written_out=lambda: written_out(known, objective))


def written_out(known: RoundJobs, objective: str) -> Model[Decision]:
    """Build the formulation with a column for every option; parameters and errors as of `build`."""
    columns = choices(options_of(known), objective)
    options = columns.options
    rows = ProgramBuilder()
    add_room_rows(rows, *room_of(columns))
    add_limits(rows, columns.budgets)
    cuttings, parts = cuttings_of(columns), parts_of(options.of, objective)
    program = assemble(columns, rows, cuttings, parts)
    units = {row.name: row.unit for row in columns.budgets if row.unit is not None}
    model = Model(
        program=program,
        decode=lambda x, starts: place(options, columns.chosen(x), slots=slots_of(cuttings, x)),
        encode=lambda decision: _encoded(columns, cuttings, parts, decision),
        nearest=lambda decision: _nearest(columns, cuttings, parts, decision),
        named_prices=lambda y: in_units(program.named_prices(y), units),
        lagrangian=not units,
        units=units,
        split=lambda inside, outside: split_of(columns, parts, inside, outside),
        groups=None if parts or columns.links else options.of.jobs.names,
        options=len(options),
        dropped=columns.dropped,
    )
    # Watts of woken nodes are added to the budgets, which only then are whole.
    limits = {row.name: row.limit for row in columns.budgets if parts and not row.least}
    reach = in_reach(model, limits) if limits else model
    return replace(reach, lagrangian=model.lagrangian and not reach.units)


def _encoded(
    columns: Choices, cuttings: list[Cutting], parts: list[Part], decision: Decision
) -> FloatArray | None:
    """Point of the program that a decision is, None where it is none."""
    if not says_all(columns.options.of, decision):
        return None
    return _point_of(columns, cuttings, parts, matching_options(columns.options, decision))


def _nearest(
    columns: Choices, cuttings: list[Cutting], parts: list[Part], decision: Decision
) -> FloatArray | None:
    """Point in which jobs go on as they did and others wait; None where one may not, or they do not fit."""
    options = columns.options
    chosen, last = matching_options(options, decision), options.start[1:] - 1
    goes_on = np.isin(chosen, columns.index)
    # A job's waiting option, where it has one, is its last.
    if not options.waiting[last[~goes_on]].all():
        return None
    return _point_of(columns, cuttings, parts, np.where(goes_on, chosen, last))


def _point_of(
    columns: Choices, cuttings: list[Cutting], parts: list[Part], chosen: IntArray
) -> FloatArray | None:
    """Point of the program that chooses these options, None where one was dropped or they do not fit."""
    places = np.searchsorted(columns.index, chosen)
    places = np.minimum(places, len(columns) - 1)
    if len(chosen) != len(columns.start) - 1 or not np.array_equal(columns.index[places], chosen):
        return None
    x = np.zeros(len(columns) + 2 * len(parts))
    x[places] = 1.0
    rooms, pool, taken = room_of(columns)
    woken = nodes_awake(rooms, pool[places], taken[places]) if parts else {}
    x[len(columns) + 2 * np.arange(len(parts)) + awake_parts(parts, woken)] = 1.0
    if columns.objective.combine == "worst":
        least, _ = worst_range(columns.start, columns.cost)
        x = np.append(x, columns.cost[places].max(initial=least))
    ways = points_of(cuttings, pool[places], taken[places], woken)
    return None if ways is None else np.append(x, ways)


def room_of(columns: Choices) -> tuple[list[Room], IntArray, IntArray]:
    """Room in every pool, and each column's pool and what it takes there, as `room_rows` has them."""
    return rooms_of(columns.options.of), columns.pool, columns.taken


def cuttings_of(columns: Choices) -> list[Cutting]:
    """Ways to cut nodes up, for pools where rows by size are not enough."""
    rooms, pool, taken = room_of(columns)
    found = [cutting_of(room, taken[pool == room.number]) for room in rooms]
    return [cutting for cutting in found if cutting is not None]


def add_limits(rows: ProgramBuilder, budgets: Iterable[BudgetRow]) -> None:
    """Limit the columns' use of each budget to at most what is left of it, or at least as much as it says."""
    for budget in budgets:
        side = "lower" if budget.least else "upper"
        rows.row(budget.name, budget.column, budget.use, **{side: budget.capacity})


def assemble(
    columns: Choices, rows: ProgramBuilder, cuttings: Sequence[Cutting] = (), parts: Sequence[Part] = ()
) -> Program:
    """Program of the choice columns under the gathered rows; of a set all jobs share its GPUs, or none."""
    for link in columns.links:
        places = [(c, v) for c, v in ((link.first, 1.0), (link.other, -1.0)) if c is not None]
        rows.row(link.name, *zip(*places, strict=True), lower=0.0, upper=0.0)
    names, worst = columns.options.of.jobs.names, columns.objective.combine == "worst"

    def cut() -> int:
        """Add columns that say how nodes are cut up, and return how many."""
        _, pool, taken = room_of(columns)
        before = rows.n_columns
        for cutting in cuttings:
            inside = np.flatnonzero((taken > 0) & (pool == cutting.room.number))
            cutting.add(rows, inside, taken[inside])
        return rows.n_columns - before

    return program_of(
        columns.start,
        columns.cost,
        rows,
        Quantities(columns.attributes),
        parts,
        sense=columns.objective.sense,
        worst=worst,
        job=names.__getitem__,
        option=columns.name_of,
        cut=cut,
    )


def program_of(
    start: IntArray,
    cost: FloatArray,
    rows: ProgramBuilder,
    attributes: Mapping[str, FloatArray],
    parts: Sequence[Part] = (),
    *,
    sense: Literal["min", "max"] = "min",
    worst: bool = False,
    job: Callable[[int], str] = str,
    option: Callable[[int], str] | None = None,
    cut: Callable[[], int] = lambda: 0,
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
    parts : sequence of Part
        Nodes that sleep; each part is a choice group behind those of the jobs.
    sense : {"min", "max"}
        Direction of the user's objective.
    worst : bool
        Whether the largest cost of a job counts, which a column of its own bounds, and not their sum.
    job, option : callable
        Names of a job and of a column by their numbers.
    cut : callable
        Adds columns that say how nodes are cut up, behind the others, and says how many.
    """
    n, jobs = len(cost), len(start) - 1
    choice = rows.columns(Block("option", n, option), cost=0.0 if worst else cost)
    if parts:
        awake = np.array([[0.0, part.cost] for part in parts]).ravel()
        label = [f"{state}:{part.pool}:{part.each_w:g}W:{part.number}" for part in parts for state in STATES]
        rows.columns(Block.named("awake", label), cost=awake)
        start = np.append(start, n + 2 + 2 * np.arange(len(parts)))
    if worst:
        least, most = worst_range(start[: jobs + 1], cost)
        bottleneck = rows.columns(Block("worst", 1), cost=1.0, lower=least, upper=most, integer=False)
        of_job = rows.rows(Block("worst", jobs, lambda j: f"worst:{job(j)}"), upper=0.0)
        rows.add(np.repeat(of_job, np.diff(start[: jobs + 1])), choice, cost)
        rows.add(of_job, bottleneck, -1.0)
    supply = cut()
    add_uses(rows, parts, n)
    choices = n + 2 * len(parts)

    def padded() -> dict[str, FloatArray]:
        # Rules that begin with what takes least begin with all nodes awake.
        beyond = np.append(np.tile([0.0, -1.0], len(parts)), np.zeros(rows.n_columns - choices))
        return {name: np.append(values, beyond) for name, values in attributes.items()}

    return rows.program(
        start,
        attributes=Quantities(padded),
        sense=sense,
        bottleneck=choices if worst else None,
        supply=supply,
    )
