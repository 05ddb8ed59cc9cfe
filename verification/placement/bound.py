r"""Proving a bound on placements from prices again, by listing what every node can host.

Every task is on one node or waits (prices :math:`\pi_t` of any sign), and a node is there once (prices
:math:`\mu_n \ge 0`, which cancel where a node is worth them). Whatever they are, no decision costs less than

.. math::
    L = \sum_t \min(\pi_t, w_t) + \sum_n \Big[\min\Big(0,\ \mu_n + \min_{S\ \text{fits on}\ n}
        \Big(c_n(S) - \sum_{t \in S} \pi_t\Big)\Big) - \mu_n\Big]

with the cost :math:`c_n(S)` of the changes on node n when it takes the tasks S, and :math:`w_t` of task t
waiting, 0 if it fits nowhere. Where nodes can host too many sets to list, prices prove nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from wattsched.instances.placement.instance import PlacementInstance, Task
from wattsched.verification.placement.checker import WHOLE, NodeState, fits_somewhere, waiting_w, worth
from wattsched.verification.report import Proof, charges

MOST_STATES = 50_000
"""States of nodes to look at, at most."""


def prove(instance: PlacementInstance, prices: Mapping[str, object]) -> Proof:
    """Bound on the instance's objective that prices prove.

    Parameters
    ----------
    instance : PlacementInstance
        Validated, free of faults as `instance.faults_of` finds them.
    prices : mapping of str to float
        As `report.charges` takes them: ``task:NAME`` (one more task like it), an equality, and ``node:NAME``
        (one more node like it).
    """
    nodes = {f"node:{node.name}" for node in instance.nodes}
    tasks = {f"task:{task.name}" for task in instance.tasks}
    charged, faults = charges(prices, nodes, tasks, "min")
    if faults:
        return Proof(faults)
    try:
        return Proof(bound=_lower_bound(instance, charged))
    except ValueError as error:
        return Proof([f"certificate: {error}"])


def _lower_bound(instance: PlacementInstance, charged: Mapping[str, float]) -> float:
    """Bound as of `prove`, from charges; a ValueError says that there is too much to list."""
    placeable = [task for task in instance.tasks if fits_somewhere(instance, task)]
    cost_of = {
        task.name: worth(instance, 0.0, 0.0, waiting_w(instance, task)) if task in placeable else 0.0
        for task in instance.tasks
    }
    parts = [min(-charged.get(f"task:{name}", 0.0), cost) for name, cost in cost_of.items()]
    gains: dict[tuple[object, ...], list[float]] = defaultdict(list)
    one: dict[tuple[object, ...], Task] = {}
    for task in placeable:
        gains[_request(task)].append(-charged.get(f"task:{task.name}", 0.0))
        one[_request(task)] = task
    wanted = [(one[key], sorted(of_kind, reverse=True)) for key, of_kind in gains.items()]
    usual, seen = instance.usual_tasks(), 0
    known: dict[tuple[object, ...], float] = {}
    for node in instance.nodes:
        state = NodeState.of(instance, node, usual)
        key = (*state.kind, min(state.memory_mib, sum(task.memory_mib for task in placeable)))
        if key not in known:
            known[key], states = _least(state, wanted, MOST_STATES - seen)
            seen += states
        price = charged.get(f"node:{node.name}", 0.0)
        parts += [min(0.0, price + known[key]), -price]
    # Rounding of the sum, on the safe side.
    return math.fsum(parts) - 1e-12 * math.fsum(abs(part) for part in parts)


def _request(task: Task) -> tuple[object, ...]:
    return task.cpu_milli, task.memory_mib, task.gpus, task.gpu_milli, frozenset(task.gpu_types)


Free = tuple[int, int, tuple[int, ...]]
"""Free CPU and memory, and free thousandths of each GPU in ascending order."""


def _least(node: NodeState, wanted: list[tuple[Task, list[float]]], most: int) -> tuple[float, int]:
    """Least cost less prices of what a node can host, and the number of states looked at.

    What the tasks cost depends on the state alone that they leave the node in, so of all sets that lead to
    one the dearest counts.

    Parameters
    ----------
    node : NodeState
    wanted : list of (Task, list of float)
        Of each request a task, and the prices of all of them, the highest first.
    most : int
        States to look at, at most; ValueError beyond.
    """
    start = node.cpu_milli, node.memory_mib, tuple(sorted(node.gpus))
    earned: dict[Free, float] = {start: 0.0}
    for task, prices in wanted:
        level = dict(earned) if node.admits(task) else {}
        for price in prices:
            longer: dict[Free, float] = {}
            for state, gain in level.items():
                for left in _hosting(state, task):
                    longer[left] = max(longer.get(left, -math.inf), gain + price)
            level = longer
            for state, gain in level.items():
                earned[state] = max(earned.get(state, -math.inf), gain)
            if len(earned) > most:
                raise ValueError("the nodes can host too many sets of tasks to prove a bound from prices")
    power_w, fragments = node.power_w(), node.fragmentation_gpus()
    least = math.inf
    for (cpu_milli, _memory, gpus), gain in earned.items():
        after = replace(node, cpu_milli=cpu_milli, gpus=gpus)
        added = after.power_w() - power_w, after.fragmentation_gpus() - fragments
        least = min(least, worth(node.instance, *added, 0.0) - gain)
    return least, len(earned)


def _hosting(state: Free, task: Task) -> Iterator[Free]:
    """What is free when a task has come, in every way that makes a difference."""
    cpu_milli, memory_mib, gpus = state
    left = cpu_milli - task.cpu_milli, memory_mib - task.memory_mib
    if min(left) < 0:
        return
    for free in sorted(set(gpus)) if task.gpus == 1 else [WHOLE]:
        if free >= task.gpu_milli and gpus.count(free) >= task.gpus:
            rest = list(gpus)
            for _gpu in range(task.gpus):
                rest.remove(free)
            yield (*left, tuple(sorted([*rest, *[free - task.gpu_milli] * task.gpus])))
