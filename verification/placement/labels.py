r"""Least cost of what a node can host at prices of tasks, where that is too much to list.

Requests come one after the other, each up to as often as there are tasks, in every way that leaves other
GPUs. A *label* is what is free then, and what the tasks pay. Of labels with the same GPUs one without less
CPU and memory that pays no less makes another superfluous, as free CPU never adds power or fragments. What a
label can still lead to is bounded as if every GPU were filled by itself, at a price of CPU. Labels are left
out whose bound is not below what matters; and of very many those with the highest bounds, which then count.
So what is found is exact, or too low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.instances.placement.instance import Task
from wattsched.topology.arrays import FloatArray, IntArray, Table
from wattsched.verification.placement.checker import WHOLE, NodeState

WIDTH = 5_000
"""Labels that are kept after each request."""

_SHADES = 6
"""Prices of CPU at which bounds are tried."""


@dataclass(frozen=True, eq=False)
class _Labels(Table):
    """Free thousandths of GPUs in ascending order, and of vCPUs, free MiB; the tasks and what they pay."""

    gpus: IntArray
    cpu: IntArray
    memory: IntArray
    paid: FloatArray
    hosted: IntArray


class Hosts:
    """Bounds on the cost of what nodes of one GPU type can host.

    Parameters
    ----------
    node : NodeState
        Any node of the type.
    wanted : sequence of pairs
        A task of every request, and the prices of all tasks that make it, the highest first.
    per_w, per_gpu : float
        What a watt and a fragmented GPU cost.
    """

    def __init__(
        self, node: NodeState, wanted: Sequence[tuple[Task, FloatArray]], per_w: float, per_gpu: float
    ) -> None:
        self._per_w, self._per_gpu = per_w, per_gpu
        self._requests = len(wanted)
        admitted = [(k, task, prices) for k, (task, prices) in enumerate(wanted) if node.admits(task)]
        # Few sets of GPUs as long as possible: no GPU, many, whole ones, large parts.
        self._wanted = sorted(admitted, key=lambda one: (one[1].gpus > 0, -one[1].gpus, -one[1].gpu_milli))
        usual = [one for one in node.usual if one.gpus and node.admits(one)]
        everyone = sum(one.count for one in node.usual)
        self._steps = np.unique([one.cpu_milli for one in usual])
        n, free = len(self._steps) + 1, np.arange(WHOLE + 1)
        # Worth of a GPU with so much free, and of so many whole ones, by the step of CPU that is free.
        gpu, many = np.zeros((n, WHOLE + 1)), np.arange(len(node.gpus) + 1)
        self._whole = np.zeros((n, len(many)))
        for one in usual:
            runs = np.arange(n) > np.searchsorted(self._steps, one.cpu_milli)
            share = one.count / everyone * per_gpu
            if one.gpus == 1:
                gpu[runs] += share * np.where(free >= one.gpu_milli, free, 0) / WHOLE
            else:
                self._whole[runs] += share * np.where(many >= one.gpus, many, 0)
        gpu -= per_gpu * free / WHOLE
        power = node.instance.gpu_type_of(node.node)
        gpu[:, WHOLE] += per_w * (power.full_power_w - power.idle_power_w)
        self._relax(gpu)

    def _relax(self, gpu: FloatArray) -> None:
        """Work out what a GPU is worth with all that may come onto it, from each request on."""
        worths = [0.0]
        for _, task, prices in self._wanted:
            gain = float(gpu[-1, WHOLE - task.gpu_milli] - gpu[-1, WHOLE]) if task.gpus else 0.0
            worths.append(max(0.0, float(prices[0]) + task.gpus * gain) / max(1, task.cpu_milli))
        self._shade = shade = np.linspace(0.0, max(worths), _SHADES)
        value, others = np.repeat(gpu[:, None, :], _SHADES, axis=1), np.zeros(_SHADES)
        self._values, self._others = [value], [others]
        for _, task, prices in reversed(self._wanted):
            if task.gpus:
                pays, value = (prices[0] - shade * task.cpu_milli) / task.gpus, value.copy()
                for _ in range(min(len(prices) * task.gpus, WHOLE // task.gpu_milli)):
                    more = pays[:, None] + value[..., : WHOLE + 1 - task.gpu_milli]
                    value[..., task.gpu_milli :] = np.maximum(value[..., task.gpu_milli :], more)
            else:
                others = others + np.maximum(0.0, prices[:, None] - shade * task.cpu_milli).sum(axis=0)
            self._values.insert(0, value)
            self._others.insert(0, others)

    def least(self, node: NodeState, most: float = 0.0, width: int = WIDTH) -> float:
        """Bound on the cost, less prices, of what a node of the type can host, `most` at most."""
        _, bound, others = self._hosted(node, min(0.0, most), width, every=False)
        return min(others, float(bound.min(initial=others)))

    def within(self, node: NodeState, room: float, most: int) -> tuple[IntArray, IntArray, IntArray] | None:
        """All that a node of the type can host at a cost, less prices, below `room`.

        Returns
        -------
        hosted : int array, shape (L, n_requests)
            Tasks of each request that was wanted.
        cpu, gpus : int arrays, shapes (L,) and (L, G)
            Free afterwards. None for more than `most` labels.
        """
        labels, bound, others = self._hosted(node, room, most, every=True)
        if others < room:
            return None
        labels = labels.take(bound < room)
        return labels.hosted, labels.cpu, labels.gpus

    def _hosted(
        self, node: NodeState, below: float, width: int, every: bool
    ) -> tuple[_Labels, FloatArray, float]:
        """Labels with their costs less prices, and a bound on what others lead to: those that do not matter.

        They cost `below` at least, are beyond the `width`, or, unless `every` one counts, superfluous.
        """
        start = _Labels(
            np.sort(np.array([node.gpus], dtype=np.int64).reshape(1, -1), axis=1),
            np.array([node.cpu_milli]),
            np.array([node.memory_mib]),
            np.zeros(1),
            np.zeros((1, self._requests), dtype=np.int64),
        )
        # Nothing at all costs 0.
        now, labels, others = float(self._bound(node, start, len(self._wanted))[0]), start, below
        for number, (column, task, prices) in enumerate(self._wanted):
            grown, level = [labels], (labels, np.full(len(labels.cpu), WHOLE))
            for price in prices.tolist():
                level = _with_task(*level, task, price)
                level[0].hosted[:, column] += 1
                promising = np.flatnonzero(self._bound(node, level[0], number) - now < below)
                level = level[0].take(promising), level[1][promising]
                if not len(promising):
                    break
                grown.append(level[0])
            labels = _Labels.joined(grown)
            labels = labels.take(_best_of_equals(labels, labels.hosted if every else labels.hosted[:, :0]))
            bound = self._bound(node, labels, number + 1) - now
            order = np.argsort(bound, kind="stable")
            others = min(others, float(bound[order[width:]].min(initial=below)))
            labels = labels.take(order[:width][bound[order[:width]] < below])
        return labels, self._bound(node, labels, len(self._wanted)) - now, others

    def _bound(self, node: NodeState, labels: _Labels, number: int) -> FloatArray:
        """Least cost of what labels lead to with the requests from a number on, but for a constant."""
        step = np.searchsorted(self._steps, labels.cpu, side="right")
        worth = self._values[number][step[:, None], :, labels.gpus].sum(axis=1)
        worth += self._others[number] + self._shade * labels.cpu[:, None]
        whole = self._whole[step, (labels.gpus == WHOLE).sum(axis=1)]
        cpu = node.instance.cpu_type_of(node.node)
        busy = -(-node.node.cpu_milli // 2000) - labels.cpu // 2000
        power_w = -(-busy // cpu.cores) * (cpu.full_power_w - cpu.idle_power_w)
        return np.asarray(self._per_w * power_w - whole - worth.min(axis=1) - labels.paid)


def _with_task(labels: _Labels, last: IntArray, task: Task, price: float) -> tuple[_Labels, IntArray]:
    """Labels after one more task has come, in all ways; on GPUs with no more free than the `last` one had."""
    room = (labels.cpu >= task.cpu_milli) & (labels.memory >= task.memory_mib)
    if task.gpus == 1:
        fits = room[:, None] & (labels.gpus >= task.gpu_milli) & (labels.gpus <= last[:, None])
        fits[:, 1:] &= labels.gpus[:, 1:] > labels.gpus[:, :-1]
        rows, first = np.nonzero(fits)
    else:
        rows = np.flatnonzero(room & ((labels.gpus == WHOLE).sum(axis=1) >= task.gpus))
        first = np.full(len(rows), labels.gpus.shape[1] - task.gpus)
    gpus, place = labels.gpus[rows], np.arange(labels.gpus.shape[1])
    taken = (place >= first[:, None]) & (place < first[:, None] + task.gpus)
    last = gpus[np.arange(len(rows)), first] if task.gpus else last[rows]
    gpus = np.sort(gpus - task.gpu_milli * taken, axis=1)
    left = labels.take(rows)
    left = _Labels(
        gpus, left.cpu - task.cpu_milli, left.memory - task.memory_mib, left.paid + price, left.hosted
    )
    return left, last


def _best_of_equals(labels: _Labels, also: IntArray) -> IntArray:
    """Labels without those that have no more of anything than one before with the same GPUs, and `also`."""
    same = np.column_stack([labels.gpus, also])
    order = np.lexsort([-labels.memory, -labels.cpu, -labels.paid, *same.T])
    gpus, cpu, memory = same[order], labels.cpu[order].tolist(), labels.memory[order].tolist()
    other = np.append(True, (gpus[1:] != gpus[:-1]).any(axis=1))[: len(order)].tolist()
    kept, best = [], (0, 0)
    for row, (new, free) in enumerate(zip(other, zip(cpu, memory, strict=True), strict=True)):
        if new or free[0] > best[0] or free[1] > best[1]:
            kept.append(row)
            best = free if new or free[0] > best[0] else best
    return order[np.array(kept, dtype=np.int64)]
