r"""`assignment`: an algebraic Pyomo model that names every aligned block a job may sit on.

.. math::
    \min \sum_{j,o} c_{jo} x_{jo} \quad\text{s.t.}\quad
    \sum_o x_{jo} = 1,\quad
    \sum_{b \in B_{ps}} y_{jb} = \sum_{o\ \text{of size}\ s\ \text{in pool}\ p} x_{jo},\quad
    \sum_{j, b \ni g} y_{jb} \le 1\ \forall\ \text{GPU}\ g,\quad
    \text{budgets}

It needs no theorem about buddy blocks, and it is where constraints that tell blocks apart would go.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from wattsched.formulations.compiler import compile_model
from wattsched.formulations.model import Model
from wattsched.formulations.sizing.budgets import free_gpus
from wattsched.formulations.sizing.columns import Choices, choices
from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.decisions import Positions, decide
from wattsched.formulations.sizing.mckp import bottleneck_range
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import BoolArray, FloatArray
from wattsched.topology.pools import Pool

name = "assignment"
description = "explicit job-to-block binaries, an algebraic Pyomo model"

BlockKey = tuple[int, int, int]
"""Pool, size, start of an aligned block."""


def build(options: Options, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the explicit formulation; parameters and errors as for `mckp.build`."""
    columns = choices(options, find_objective(objective))
    model = algebra(columns)
    program, column_of = compile_model(model, sense=columns.objective.sense)
    option_columns = np.array([column_of[id(model.x[c])] for c in range(len(columns))], dtype=np.int64)
    blocks = {key: column_of[id(variable)] for key, variable in model.y.items() if id(variable) in column_of}

    def values(x: FloatArray) -> FloatArray:
        return x[option_columns]

    return Model(
        program=program,
        decode=lambda x, starts: decide(
            options, columns.chosen(values(x)), _positions(columns, values(x), x, blocks)
        ),
        options=len(options),
        dropped=columns.dropped,
    )


def algebra(columns: Choices) -> Any:
    """Write the model in Pyomo.

    Returns
    -------
    pyomo.environ.ConcreteModel
        ``x[c]`` chooses column c, ``y[j, p, s, b]`` puts job j on the block of size s at b in pool p.
    """
    import pyomo.environ as pyo

    options = columns.options
    blocks = free_blocks(options)
    wanted = _wanted_sizes(columns)
    places = [(j, p, s, b) for j, p, s in wanted for b in blocks[p, s]]
    jobs = len(columns.start) - 1

    m = pyo.ConcreteModel(name=options.instance.name)
    m.x = pyo.Var(range(len(columns)), domain=pyo.Binary)
    m.y = pyo.Var(places, domain=pyo.Binary)
    # Keeps a row that no option uses: a budget below idle power must stay unsatisfiable.
    m.nothing = pyo.Var(bounds=(0, 0))

    m.one_option = pyo.Constraint(
        range(jobs),
        rule=lambda m, j: pyo.quicksum(m.x[c] for c in range(columns.start[j], columns.start[j + 1])) == 1,
    )
    m.one_block = pyo.Constraint(
        list(wanted),
        rule=lambda m, j, p, s: (
            pyo.quicksum(m.y[j, p, s, b] for b in blocks[p, s])
            - pyo.quicksum(m.x[c] for c in wanted[j, p, s])
            == 0
        ),
    )
    covering = _covering(places)
    m.gpu = pyo.Constraint(
        list(covering), rule=lambda m, p, g: pyo.quicksum(m.y[place] for place in covering[p, g]) <= 1
    )
    add_share_constraints(m, m.x, columns)
    m.budget = pyo.ConstraintList()
    for row in columns.budgets:
        used = np.flatnonzero(row.use)
        m.budget.add(pyo.quicksum(float(row.use[c]) * m.x[c] for c in used) + m.nothing <= row.capacity)
    _add_objective(m, columns, jobs)
    return m


def add_share_constraints(model: Any, variables: Any, columns: Choices) -> None:
    """All jobs of a set share its GPUs, or none does; a column that is not there counts as 0."""
    import pyomo.environ as pyo

    model.wattsched_share = pyo.ConstraintList()
    for link in columns.links:
        first, other = (0 if c is None else variables[c] for c in (link.first, link.other))
        model.wattsched_share.add(first - other == 0)


def _add_objective(m: Any, columns: Choices, jobs: int) -> None:
    import pyomo.environ as pyo

    if columns.objective.combine == "sum":
        m.cost = pyo.Objective(expr=pyo.quicksum(float(c) * m.x[i] for i, c in enumerate(columns.cost)))
        return
    m.worst = pyo.Var(bounds=bottleneck_range(columns))
    m.no_worse = pyo.Constraint(
        range(jobs),
        rule=lambda m, j: (
            pyo.quicksum(
                float(columns.cost[c]) * m.x[c] for c in range(columns.start[j], columns.start[j + 1])
            )
            <= m.worst
        ),
    )
    m.cost = pyo.Objective(expr=m.worst)


def free_blocks(options: Options) -> dict[tuple[int, int], list[int]]:
    """Starts of the free aligned blocks of each pool and size."""
    found: dict[tuple[int, int], list[int]] = {}
    for p, (pool, free) in enumerate(zip(options.pools, free_gpus(options), strict=True)):
        size = 1
        while size <= pool.largest_block:
            found[p, size] = _free_starts(pool, free, size)
            size *= 2
    return found


def _free_starts(pool: Pool, free: BoolArray, size: int) -> list[int]:
    return [
        int(b)
        for start, length in pool.blocks
        for b in range(start, start + length - size + 1, size)
        if free[b : b + size].all()
    ]


def _wanted_sizes(columns: Choices) -> dict[BlockKey, list[int]]:
    """Columns that want a block, by job, pool and size."""
    wanted: dict[BlockKey, list[int]] = defaultdict(list)
    for c in np.flatnonzero(columns.needs_room):
        wanted[int(columns.job[c]), int(columns.pool[c]), int(columns.block[c])].append(int(c))
    return dict(wanted)


def _covering(
    places: list[tuple[int, int, int, int]],
) -> dict[tuple[int, int], list[tuple[int, int, int, int]]]:
    """Placements that cover each GPU, by pool and position."""
    covering: dict[tuple[int, int], list[tuple[int, int, int, int]]] = defaultdict(list)
    for place in places:
        _, p, size, start = place
        for gpu in range(start, start + size):
            covering[p, gpu].append(place)
    return dict(covering)


def _positions(columns: Choices, chosen: FloatArray, x: FloatArray, blocks: dict[Any, int]) -> Positions:
    gpus = {
        int(columns.job[c]): int(columns.options.gpus[columns.index[c]]) for c in np.flatnonzero(chosen > 0.5)
    }
    return {j: tuple(range(start, start + gpus[j])) for (j, _, _, start), c in blocks.items() if x[c] > 0.5}
