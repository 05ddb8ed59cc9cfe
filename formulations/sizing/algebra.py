"""A round as plain Python values, ready for algebra, and the way from a Pyomo model of it to a `Model`.

This is what users' formulations get, as `formulations.external` finds them, and what `assignment` is written
in. Dominated options are left out unless a formulation has an attribute ``keep_dominated`` that is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from wattsched.formulations.compiler import compile_model
from wattsched.formulations.external import External, blaming
from wattsched.formulations.model import Model
from wattsched.formulations.program import Program
from wattsched.formulations.sizing.columns import Choices, choices, worst_range
from wattsched.formulations.sizing.cutting import room_rows
from wattsched.formulations.sizing.data import options_of
from wattsched.formulations.sizing.decisions import place
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.mckp import room_of
from wattsched.formulations.sizing.rooms import free_gpus
from wattsched.formulations.sizing.sleeping import refuse_sleepers
from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.buddy import Occupancy


@dataclass(frozen=True)
class Choice:
    """One thing that a job can do: run in a configuration, or wait.

    Attributes
    ----------
    job : int
        Number of the job.
    pool : int
        Number of the pool, -1 for waiting.
    gpus, block : int
        GPUs, and the power of two that they are rounded up to; 0 for waiting.
    needs_room : bool
        Takes a block of free GPUs: false for waiting, for jobs that keep the GPUs they hold, and in a set for
        all jobs but the first.
    cost : float
        What the objective adds for it, to be minimised (objectives to be maximised come negated).
    completion_s, power_w : float
        Seconds to completion, and watts of the job's GPUs.
    option : int
        Number in `Round.options`, for everything else that is known of it.
    """

    job: int
    pool: int
    gpus: int
    block: int
    needs_room: bool
    cost: float
    completion_s: float
    power_w: float
    option: int


@dataclass(frozen=True)
class Limit:
    """A capacity: the sum of ``use[c]`` over the choices c taken is at most `capacity`."""

    name: str
    use: Mapping[int, float]
    capacity: float


class Round:
    """A scheduling round as a formulation sees it.

    Choices are numbered from 0, job by job; those that others dominate are left out.

    Attributes
    ----------
    columns : Choices
        The choices as arrays.
    options : Options
        All options of all jobs as arrays, dominated ones included.
    instance : Instance
        As the file has it.
    objective : str
        Name of the objective.
    combine : {"sum", "worst"}
        How the costs of the choices taken combine: their sum, or the largest.
    jobs, pools : range
        Numbers of the jobs and of the pools.
    """

    def __init__(self, columns: Choices):
        self.columns, self.options, self.instance = columns, columns.options, columns.options.instance
        self.objective, self.combine = columns.objective.name, columns.objective.combine
        self.jobs, self.pools = range(len(columns.start) - 1), range(len(self.options.pools))

    def of_job(self, job: int) -> range:
        """Numbers of a job's choices."""
        return range(int(self.columns.start[job]), int(self.columns.start[job + 1]))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """All choices, in the order of their numbers."""
        columns, options, index = self.columns, self.options, self.columns.index
        first = (columns.job, columns.pool, options.gpus[index], columns.block, columns.needs_room)
        last = (columns.cost, options.completion_s[index], options.power_w[index], index)
        return tuple(Choice(*row) for row in zip(*(a.tolist() for a in (*first, *last)), strict=True))

    @cached_property
    def budgets(self) -> tuple[Limit, ...]:
        """Power caps, budgets and quotas, without those that no choice uses.

        The least goodput is one where both sides are negative.
        """
        return tuple(
            _limit(row.name, row.column, sign * row.use, float(sign * row.capacity))
            for row in self.columns.budgets
            for sign in [-1.0 if row.least else 1.0]
            if len(row.column)
        )

    @cached_property
    def room(self) -> tuple[Limit, ...]:
        """Rows under which the choices fit into the free GPUs.

        Exact in pools of blocks and those that are counted; in pools of nodes where the sizes of what jobs
        take of a node divide one another.
        """
        return tuple(_limit(*row) for row in room_rows(*room_of(self.columns)))

    @cached_property
    def free_blocks(self) -> tuple[tuple[int, ...], ...]:
        """For each pool and level k, how many free aligned blocks of size 2^k lie in no larger free one."""
        found = []
        for pool, free in zip(self.options.pools, free_gpus(self.options.of), strict=True):
            gpus = [*Occupancy(pool.blocks, free).free_gpus.tolist(), 0]
            found.append(tuple((gpus[k] - gpus[k + 1]) >> k for k in range(len(gpus) - 1)))
        return tuple(found)


def _limit(name: str, columns: IntArray, use: FloatArray, capacity: float) -> Limit:
    return Limit(name, dict(zip(columns.tolist(), use.tolist(), strict=True)), capacity)


def adapt(external: External) -> Callable[..., Model[Decision]]:
    """Builder that calls a user's formulation."""
    return partial(_build, external)


def _build(
    external: External, known: RoundJobs, objective: str, timer: Timer | None = None
) -> Model[Decision]:
    """Build the model of a user's formulation; a fault in its code is said to be of its source."""
    keep = bool(getattr(external.function, "keep_dominated", False))
    refuse_sleepers(known, external.source)
    columns = choices(options_of(known), objective, keep_dominated=keep)
    options = columns.options
    with blaming(external.source):
        model, variables = _parts(external(Round(columns)), len(columns))
        variables = _named(model, variables)
        complete(model, variables, columns)
        program, column_of = compiled(model, columns)
    places = _places(variables, column_of, external.source)
    return Model(
        program=program,
        decode=lambda x, starts: place(options, columns.chosen(x[places])),
        options=len(options),
        dropped=columns.dropped,
    )


def _parts(made: Any, n: int) -> tuple[Any, list[Any]]:
    """Model and the variable of every choice, from what the user's code returned."""
    try:
        model, variables = made
    except (TypeError, ValueError):
        raise TypeError("a formulation must return the Pyomo model and its choice variables") from None
    if len(variables) != n:
        raise ValueError(f"there are {n} choices, but {len(variables)} choice variables were returned")
    if isinstance(variables, Mapping) or hasattr(variables, "index_set"):
        return model, [variables[c] for c in range(n)]
    return model, list(variables)


def _named(model: Any, variables: Sequence[Any]) -> list[Any]:
    """Variables of the choices; one that is equal to it stands for an expression."""
    import pyomo.environ as pyo

    if all(variable.is_variable_type() for variable in variables):
        return list(variables)
    model.wattsched_chosen = pyo.Var(range(len(variables)), bounds=(0, 1))
    model.wattsched_means = pyo.ConstraintList()
    named = []
    for choice, variable in enumerate(variables):
        if not variable.is_variable_type():
            model.wattsched_means.add(model.wattsched_chosen[choice] == variable)
            variable = model.wattsched_chosen[choice]
        named.append(variable)
    return named


def _places(variables: list[Any], column_of: Mapping[int, int], source: str) -> IntArray:
    """Column of each choice's variable in the compiled program, from `column_of` by the variable's `id`."""
    for choice, variable in enumerate(variables):
        if id(variable) not in column_of:
            fault = f"variable '{variable}' of choice {choice} is in no constraint and not in the objective"
            raise InputError([fault], source)
    return np.array([column_of[id(variable)] for variable in variables], dtype=np.int64)


def complete(model: Any, variables: Sequence[Any], columns: Choices) -> None:
    """Add the objective if there is none, what sets demand, and the budgets that idle power alone breaks."""
    import pyomo.environ as pyo

    if next(model.component_data_objects(pyo.Objective, active=True), None) is None:
        _add_objective(model, variables, columns)
    if columns.links:
        # All jobs of a set share its GPUs, or none does; a column that is not there counts as 0.
        model.wattsched_share = pyo.ConstraintList()
        for link in columns.links:
            first, other = (0 if c is None else variables[c] for c in (link.first, link.other))
            model.wattsched_share.add(first - other == 0)
    unused = [row for row in columns.budgets if not len(row.column)]
    # No choice can mend these: 0 <= a negative number has no solution.
    broken = [-abs(row.capacity) for row in unused if row.least or row.capacity < 0]
    if broken:
        model.wattsched_nothing = pyo.Var(bounds=(0, 0))
        model.wattsched_idle = pyo.Constraint(expr=model.wattsched_nothing <= min(broken))


def compiled(model: Any, columns: Choices) -> tuple[Program, dict[int, int]]:
    """Program of a model that is complete, and its columns, as `compile_model` finds them."""
    program, column_of = compile_model(model, sense=columns.objective.sense)
    worst = getattr(model, "wattsched_worst", None)
    return program if worst is None else replace(program, bottleneck=column_of[id(worst)]), column_of


def _add_objective(model: Any, variables: Sequence[Any], columns: Choices) -> None:
    """Minimise the sum of the costs taken, or the largest of a job, which a variable bounds."""
    import pyomo.environ as pyo

    costs = [cost * x for cost, x in zip(columns.cost.tolist(), variables, strict=True)]
    if columns.objective.combine == "sum":
        model.wattsched_cost = pyo.Objective(expr=pyo.quicksum(costs))
        return
    model.wattsched_worst = pyo.Var(bounds=worst_range(columns.start, columns.cost))
    model.wattsched_no_worse = pyo.ConstraintList()
    for begin, end in pairwise(columns.start.tolist()):
        model.wattsched_no_worse.add(pyo.quicksum(costs[begin:end]) <= model.wattsched_worst)
    model.wattsched_cost = pyo.Objective(expr=model.wattsched_worst)
