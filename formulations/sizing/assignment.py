r"""`assignment`: an algebraic Pyomo model that names every aligned block a job may sit on.

.. math::
    \min \sum_{j,o} c_{jo} x_{jo} \quad\text{s.t.}\quad
    \sum_o x_{jo} = 1,\quad
    \sum_{b \in B_{ps}} y_{jb} = \sum_{o\ \text{of size}\ s\ \text{in pool}\ p} x_{jo},\quad
    \sum_{j, b \ni g} y_{jb} \le 1\ \forall\ \text{GPU}\ g,\quad
    \text{budgets}

It needs no theorem about buddy blocks, and it is where constraints that tell blocks apart would go. In pools
of nodes it names for each option the nodes that a job may have whole, and the one that it has a part of; in
pools that are counted there is nothing to name. Of nodes that sleep it names those that are awake.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wattsched.formulations.model import Model, Starts, not_built
from wattsched.formulations.sizing.algebra import Round, compiled, complete
from wattsched.formulations.sizing.budgets import budgets_of
from wattsched.formulations.sizing.columns import choices
from wattsched.formulations.sizing.data import options_of
from wattsched.formulations.sizing.decisions import Places, place
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.rooms import rooms_of
from wattsched.formulations.sizing.sleeping import cost_of_node, uses_of_node
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import FloatArray
from wattsched.topology.room import Room

VARIABLES_PER_S = 30_000
"""Variables that Pyomo builds per second, about: a model too large for its time has no columns."""


def build(known: RoundJobs, objective: str, timer: Timer | None = None) -> Model[Decision]:
    """Build the explicit formulation; parameters and errors as for `mckp.build`."""
    columns = choices(options_of(known), objective)
    options = columns.options
    rooms = rooms_of(options.of)
    others = [room.number for room in rooms if room.pool.capacity != "blocks"]
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
        return place(options, chosen, Places.first_of(job, start, options.gpus[chosen[job]]), others)

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
    rooms = rooms_of(given.options.of)
    blocks = free_blocks(rooms)
    # Choices by job, pool and what they take there: in pools of blocks, and in others.
    wanted: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    sized: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for c, choice in enumerate(given.choices):
        if choice.needs_room:
            in_blocks = rooms[choice.pool].pool.capacity == "blocks"
            (wanted if in_blocks else sized)[choice.job, choice.pool, choice.block].append(c)
    on_nodes = sum(2 * len(rooms[p].on_nodes) for _, p, _ in sized if rooms[p].pool.capacity == "nodes")
    if len(given.choices) + sum(len(blocks[p, s]) for _, p, s in wanted) + on_nodes > most:
        return None
    import pyomo.environ as pyo

    places = [(j, p, s, b) for j, p, s in wanted for b in blocks[p, s]]
    covering: dict[tuple[int, int], list[tuple[int, int, int, int]]] = defaultdict(list)
    for at in places:
        _, p, size, start = at
        for gpu in range(start, start + size):
            covering[p, gpu].append(at)

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
    sleepers = {
        (room.number, node): each_w
        for room in rooms
        for node, each_w in zip(room.sleeping.tolist(), room.awake_w.tolist(), strict=True)
    }
    m.awake = pyo.Var(list(sleepers), domain=pyo.Binary)

    def is_up(pool: int, node: int) -> Any:
        """Return 1 for a node that never sleeps, else the variable that says if it is awake."""
        return m.awake[pool, node] if (pool, node) in sleepers else 1

    m.gpu = pyo.Constraint(
        list(covering),
        rule=lambda m, p, g: (
            pyo.quicksum(m.y[at] for at in covering[p, g]) <= is_up(p, int(rooms[p].pool.node_index[g]))
        ),
    )
    _add_other_pools(m, rooms, sized, is_up)
    _add_budgets(m, given, rooms, sleepers)
    return m


def _add_budgets(m: Any, given: Round, rooms: list[Room], sleepers: Mapping[tuple[int, int], float]) -> None:
    """Add the budgets and, where nodes sleep, the objective, with what those that are awake use and cost."""
    import pyomo.environ as pyo

    known, budgets = given.options.of, budgets_of(given.options.of)
    uses = {(p, n): uses_of_node(known, budgets, rooms[p], each_w) for (p, n), each_w in sleepers.items()}
    m.budget, limits = pyo.ConstraintList(), {limit.name: limit for limit in given.budgets}
    for row in given.columns.budgets:
        of_nodes = [use[row.name] * m.awake[at] for at, use in uses.items() if use.get(row.name)]
        if (limit := limits.get(row.name)) is not None:
            used = [use * m.x[c] for c, use in limit.use.items()]
            m.budget.add(pyo.quicksum(used + of_nodes) <= limit.capacity)
        elif of_nodes:
            m.budget.add(pyo.quicksum(of_nodes) <= float(row.capacity))
    if sleepers and given.combine == "sum":
        costs = [choice.cost * m.x[c] for c, choice in enumerate(given.choices)]
        for at, each_w in sleepers.items():
            costs.append(cost_of_node(known, given.objective, each_w) * m.awake[at])
        m.cost = pyo.Objective(expr=pyo.quicksum(costs))


def _add_other_pools(
    m: Any,
    rooms: list[Room],
    sized: Mapping[tuple[int, int, int], list[int]],
    is_up: Callable[[int, int], Any],
) -> None:
    """Add the rows of pools that are no blocks: of counts one, of nodes which ones each job is on."""
    import pyomo.environ as pyo

    m.counted, m.on_nodes = pyo.ConstraintList(), pyo.ConstraintList()
    used: dict[tuple[int, int], list[Any]] = defaultdict(list)
    counted: dict[int, list[Any]] = defaultdict(list)
    places = [
        (j, p, s, node)
        for j, p, s in sized
        if rooms[p].pool.capacity == "nodes"
        for node in range(len(rooms[p].on_nodes))
    ]
    m.whole, m.part = pyo.Var(places, domain=pyo.Binary), pyo.Var(places, domain=pyo.Binary)
    for (j, p, s), chosen in sized.items():
        taken, room = pyo.quicksum(m.x[c] for c in chosen), rooms[p]
        if room.pool.capacity == "count":
            counted[p].append(s * taken)
            continue
        gpus = room.pool.gpus_per_node
        whole, part = divmod(s, gpus)
        nodes = range(len(room.on_nodes))
        for wanted, name, size in ((whole, m.whole, gpus), (int(part > 0), m.part, part)):
            able = [node for node in nodes if wanted and room.on_nodes[node] >= size]
            m.on_nodes.add(pyo.quicksum(name[j, p, s, node] for node in able) - wanted * taken == 0)
            for node in able:
                used[p, node].append(size * name[j, p, s, node])
    for (p, node), gpus_used in used.items():
        m.on_nodes.add(pyo.quicksum(gpus_used) - int(rooms[p].on_nodes[node]) * is_up(p, node) <= 0)
    for p, gpus_used in counted.items():
        room = rooms[p]
        woken = [room.pool.gpus_per_node * is_up(p, node) for node in room.sleeping.tolist()]
        m.counted.add(pyo.quicksum(gpus_used) - pyo.quicksum(woken) <= int(np.count_nonzero(room.rested)))


def free_blocks(rooms: list[Room]) -> dict[tuple[int, int], list[int]]:
    """Starts of the free aligned blocks of each pool and size."""
    found: dict[tuple[int, int], list[int]] = {}
    for room in rooms:
        pool, free = room.pool, room.free
        for size in (1 << k for k in range(pool.largest_block.bit_length())):
            found[room.number, size] = [
                int(b)
                for start, length in pool.blocks
                for b in range(start, start + length - size + 1, size)
                if free[b : b + size].all()
            ]
    return found
