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

from wattsched.formulations.model import Model, Starts, not_built
from wattsched.formulations.sizing.algebra import Round, compiled, complete
from wattsched.formulations.sizing.budgets import free_gpus
from wattsched.formulations.sizing.columns import choices
from wattsched.formulations.sizing.data import Options, expanded
from wattsched.formulations.sizing.decisions import Places, decide
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import FloatArray

VARIABLES_PER_S = 30_000
"""Of Pyomo, about: a model that would not be built in time has no columns."""


def build(known: RoundJobs | Options, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the explicit formulation; parameters and errors as for `mckp.build`."""
    options = expanded(known)
    columns = choices(options, objective)
    left_s = (timer or Timer()).remaining_s()
    model = algebra(Round(columns), np.inf if left_s is None else VARIABLES_PER_S * left_s)
    if model is None:
        return not_built()
    complete(model, [model.x[c] for c in range(len(columns))], columns)
    program, column_of = compiled(model, columns)
    option_columns = np.array([column_of[id(model.x[c])] for c in range(len(columns))], dtype=np.int64)
    blocks = {key: column_of[id(variable)] for key, variable in model.y.items() if id(variable) in column_of}

    def decode(x: FloatArray, starts: Starts) -> Decision:
        chosen = columns.chosen(x[option_columns])
        taken = sorted((j, start) for (j, _, _, start), c in blocks.items() if x[c] > 0.5)
        job, start = np.array(taken, dtype=np.int64).reshape(-1, 2).T
        return decide(options, chosen, Places.first_of(job, start, options.gpus[chosen[job]]))

    return Model(program=program, decode=decode, options=len(options), dropped=columns.dropped)


def algebra(given: Round, most: float = np.inf) -> Any:
    """Write the model in Pyomo, without what `complete` adds.

    Parameters
    ----------
    most : float
        Variables that it may have.

    Returns
    -------
    pyomo.environ.ConcreteModel, optional
        ``x[c]`` takes choice c, ``y[j, p, s, b]`` puts job j on the block of size s at b in pool p;
        None where the variables would be too many.
    """
    blocks = free_blocks(given.options)
    wanted: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for c, choice in enumerate(given.choices):
        if choice.needs_room:
            wanted[choice.job, choice.pool, choice.block].append(c)
    if len(given.choices) + sum(len(blocks[p, s]) for _, p, s in wanted) > most:
        return None
    import pyomo.environ as pyo

    places = [(j, p, s, b) for j, p, s in wanted for b in blocks[p, s]]
    covering: dict[tuple[int, int], list[tuple[int, int, int, int]]] = defaultdict(list)
    for place in places:
        _, p, size, start = place
        for gpu in range(start, start + size):
            covering[p, gpu].append(place)

    m = pyo.ConcreteModel(name=given.instance.name)
    m.x = pyo.Var(range(len(given.choices)), domain=pyo.Binary)
    m.y = pyo.Var(places, domain=pyo.Binary)

    m.one_option = pyo.Constraint(
        given.jobs, rule=lambda m, j: pyo.quicksum(m.x[c] for c in given.of_job(j)) == 1
    )
    m.one_block = pyo.Constraint(
        list(wanted),
        rule=lambda m, j, p, s: (
            pyo.quicksum(m.y[j, p, s, b] for b in blocks[p, s])
            - pyo.quicksum(m.x[c] for c in wanted[j, p, s])
            == 0
        ),
    )
    m.gpu = pyo.Constraint(
        list(covering), rule=lambda m, p, g: pyo.quicksum(m.y[place] for place in covering[p, g]) <= 1
    )
    m.budget = pyo.ConstraintList()
    for limit in given.budgets:
        m.budget.add(pyo.quicksum(use * m.x[c] for c, use in limit.use.items()) <= limit.capacity)
    return m


def free_blocks(options: Options) -> dict[tuple[int, int], list[int]]:
    """Starts of the free aligned blocks of each pool and size."""
    found: dict[tuple[int, int], list[int]] = {}
    for p, (pool, free) in enumerate(zip(options.pools, free_gpus(options.of), strict=True)):
        for size in (1 << k for k in range(pool.largest_block.bit_length())):
            found[p, size] = [
                int(b)
                for start, length in pool.blocks
                for b in range(start, start + length - size + 1, size)
                if free[b : b + size].all()
            ]
    return found
