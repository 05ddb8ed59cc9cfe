"""Everything that a node can host of a window's tasks, and what that costs, by trying it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from wattsched.instances.placement.instance import Task
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.verification.arithmetic import common_step
from wattsched.verification.placement.checker import WHOLE, NodeState, worth

Free = tuple[int, int, tuple[int, ...]]
"""Free CPU and memory, and free thousandths of each GPU in ascending order."""


class TooManyError(ValueError):
    """There is too much to list."""


@dataclass(frozen=True)
class Hostable:
    """Sets of tasks that a node can host, with the least cost of each.

    Attributes
    ----------
    tasks : int array, shape (n_sets, n_requests)
        Tasks of each request; nothing at all is among them.
    cost : float array, shape (n_sets,)
        Least change of the objective on the node, waiting aside.
    seen : int
        States that were looked at.
    step : Fraction
        Number of which every change of the objective on the node is a whole multiple.
    """

    tasks: IntArray
    cost: FloatArray
    seen: int
    step: Fraction


def hostable(node: NodeState, wanted: Sequence[tuple[Task, int]], most: int) -> Hostable:
    """List what a node can host.

    Parameters
    ----------
    node : NodeState
    wanted : sequence of (Task, int)
        Of each request a task, and how many there are.
    most : int
        States to look at, at most; TooManyError beyond.
    """
    nothing = (node.cpu_milli, node.memory_mib, tuple(sorted(node.gpus)))
    sets: dict[tuple[int, ...], set[Free]] = {(): {nothing}}
    seen = 1
    for task, count in wanted:
        longer: dict[tuple[int, ...], set[Free]] = {}
        for hosted, states in sets.items():
            longer[*hosted, 0] = states
            for times in range(1, count + 1 if node.admits(task) else 1):
                states = {left for state in states for left in _after(state, task)}
                if not states:
                    break
                longer[*hosted, times] = states
                seen += len(states)
                if seen > most:
                    told = "the nodes can host too many sets of tasks to prove a bound from prices"
                    raise TooManyError(told)
        sets = longer
    power_w, fragments = node.power_w(), node.fragmentation_gpus()
    costs: dict[tuple[int, tuple[int, ...]], float] = {}
    for cpu_milli, _memory, gpus in {state for states in sets.values() for state in states}:
        if (cpu_milli, gpus) not in costs:
            after = replace(node, cpu_milli=cpu_milli, gpus=gpus)
            added = after.power_w() - power_w, after.fragmentation_gpus() - fragments
            costs[cpu_milli, gpus] = worth(node.instance, *added, 0.0)
    least = [min(costs[cpu_milli, gpus] for cpu_milli, _, gpus in states) for states in sets.values()]
    tasks = np.array(list(sets), dtype=np.int64).reshape(len(sets), len(wanted))
    return Hostable(tasks, np.array(least), seen, common_step(set(costs.values())))


def _after(state: Free, task: Task) -> Iterator[Free]:
    """Yield the free resources after a task has come, for every way of placing it that makes a difference."""
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
