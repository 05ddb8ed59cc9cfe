r"""Proving a bound on placements from prices again, by listing what every node can host.

Every task is on one node or waits (prices :math:`\pi_t` of any sign), and a node is there once (prices
:math:`\mu_n \ge 0`, which cancel where a node is worth them). Whatever they are, no decision costs less than

.. math::
    L = \sum_t \min(\pi_t, w_t) + \sum_n \Big[\min\Big(0,\ \mu_n + \min_{S\ \text{fits on}\ n}
        \Big(c_n(S) - \sum_{t \in S} \pi_t\Big)\Big) - \mu_n\Big]

with the cost :math:`c_n(S)` of the changes on node n when it takes the tasks S, and :math:`w_t` of task t
waiting, 0 if it fits nowhere. Splits of a certificate tree are rows more: they count nodes or tasks on them,
and are paid by what nodes take. Where nodes can host too many sets to list, `labels` bounds the least of
them, and splits that count on nodes prove nothing.

The first split may also count nodes whose tasks cost more than a limit at some prices. Where none does, only
the other sets are left to the nodes; and where one does, these prices prove more by that limit (reduced cost
fixing). In general what a split has at most 0 of is in no set inside it.

Often all changes are whole multiples of a step, such as the watts of a processor. Then a decision in which no
task waits that fits somewhere costs the next multiple at least; and any other :math:`L + \min_t
(w_t - \min(\pi_t, w_t))`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import Field

from wattsched.instances.errors import unknown
from wattsched.instances.placement.instance import PlacementInstance, Task
from wattsched.topology.arrays import FloatArray, IntArray, offsets
from wattsched.verification.arithmetic import common_step
from wattsched.verification.placement.checker import NodeState, fits_somewhere, waiting_w, worth
from wattsched.verification.placement.labels import Hosts
from wattsched.verification.report import TOLERANCE, Proof, charges, reach_of
from wattsched.verification.tree import Counted, CountingProver, CountSplit, Taken


class TooManyError(ValueError):
    """There is too much to list."""


@dataclass(frozen=True)
class Hostable:
    """Sets of tasks that a node can host, with the least cost of each.

    Attributes
    ----------
    tasks : int array, shape (n_sets, n_requests)
        Tasks of each request; nothing at all is among them.
    start : int array, shape (n_sets,)
        Where the ways to host each set begin.
    power_w, fragments_gpus : float arrays, shape (n_ways,)
        Changes on the node.
    step : Fraction
        Number of which every change of the objective on the node is a whole multiple.
    """

    tasks: IntArray
    start: IntArray
    power_w: FloatArray
    fragments_gpus: FloatArray
    step: Fraction

    def cost(self, paid: Sequence[tuple[PlacementInstance, float]]) -> FloatArray:
        """Return the least cost of each set, waiting aside: that of objectives at their weights."""
        each = sum(weight * worth(of, self.power_w, self.fragments_gpus, 0.0) for of, weight in paid)
        return np.asarray(np.minimum.reduceat(each, self.start))


def _listed(node: NodeState, hosts: Hosts, room: float, most: int) -> tuple[Hostable, int]:
    """Sets that a node can host at a cost below `room`, and how many states of `most` are left.

    Raises
    ------
    TooManyError
        For more states than `most`.
    """
    found = hosts.within(node, room, most)
    if found is None:
        raise TooManyError("the nodes can host too many sets of tasks to prove a bound by splits")
    tasks, cpu_milli, gpus = found
    power_w, fragments = node.power_w(), node.fragmentation_gpus()
    free, number = np.unique(np.column_stack([cpu_milli, gpus]), axis=0, return_inverse=True)
    added = []
    for cpu, *rest in free.tolist():
        after = replace(node, cpu_milli=cpu, gpus=tuple(rest))
        added.append((after.power_w() - power_w, after.fragmentation_gpus() - fragments))
    sets, which = np.unique(tasks, axis=0, return_inverse=True)
    order = np.argsort(which.reshape(-1), kind="stable")
    watts, fragmented = np.array(added, dtype=float).reshape(-1, 2)[number.reshape(-1)[order]].T
    start = offsets(np.bincount(which.reshape(-1), minlength=len(sets)))[:-1]
    step = common_step({worth(node.instance, *one, 0.0) for one in added})
    return Hostable(sets, start, watts, fragmented, step), most - len(order)


MOST_STATES = 50_000
"""States of nodes to look at, at most."""

SUM_ROUNDING = 1e-12
"""Largest excess of a sum of parts by rounding, relative to the sum of their magnitudes."""

# Smaller steps, relative to the parts of a sum, are its rounding.
_LEAST_STEP = 1e-6


def prove(instance: PlacementInstance, prices: Mapping[str, object]) -> Proof:
    """Bound on the objective of an instance without faults that prices (as of `report.charges`) prove.

    Rows are ``task:NAME`` (one more task like it), an equality, and ``node:NAME`` (one more node like it).
    """
    return Prover(instance)(prices)


class _Split(CountSplit):
    """Counts nodes that take any task, or as many at least as `hosts` says of tasks like some.

    Where there is a `task`, tasks like it. With `nodes` only these count, and with `beyond` only those whose
    tasks cost more than that at some `prices` of tasks and nodes, which are named as in certificates.
    """

    beyond: Annotated[float, Field(allow_inf_nan=False)] | None = None
    prices: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    nodes: list[str] | None = None
    hosts: dict[str, Annotated[int, Field(ge=1)]] | None = None
    task: str | None = None

    def unknown_in(self, instance: PlacementInstance) -> Iterator[str]:
        """Yield a fault for every node and task that the instance does not have."""
        yield from unknown("split", "node", self.nodes or (), {node.name for node in instance.nodes})
        tasks = [*(self.hosts or ()), *([] if self.task is None else [self.task])]
        yield from unknown("split", "task", tasks, {task.name for task in instance.tasks})
        rows = {f"task:{task.name}" for task in instance.tasks} | {
            f"node:{node.name}" for node in instance.nodes
        }
        yield from unknown("split", "row", self.prices, rows)


_Owed = list[tuple[Counted[_Split], float]]
"""Splits with their charges, infinite where nothing is allowed that they count."""


class Prover(CountingProver[_Split]):
    """Proves bounds on an instance's objective (as for `prove`), also of the decisions on sides of splits."""

    split = _Split

    def __init__(self, instance: PlacementInstance):
        super().__init__(instance)
        self._placeable = placeable = [task for task in instance.tasks if fits_somewhere(instance, task)]
        # Cost of waiting, and request, by the name of a task; placeable tasks by request.
        self._waiting = dict.fromkeys((task.name for task in instance.tasks), 0.0)
        for task in placeable:
            self._waiting[task.name] = worth(instance, 0.0, 0.0, waiting_w(instance, task))
        self._limits = instance.budgets.objectives
        self._request = {task.name: _request(task) for task in instance.tasks}
        self._alike: dict[tuple[object, ...], list[Task]] = defaultdict(list)
        for task in placeable:
            self._alike[self._request[task.name]].append(task)
        # What each kind of node can host, and the kind of each node.
        self._sets: dict[tuple[object, ...], Hostable] = {}
        self._kinds: list[tuple[object, ...]] = []
        self._states: dict[tuple[object, ...], NodeState] = {}
        self._within: dict[int, tuple[_Split, dict[tuple[object, ...], Hostable]]] = {}
        self._too_many = ""
        try:
            self._list()
        except TooManyError as error:
            self._too_many = f"certificate: {error}"

    def _list(self) -> None:
        """List what each kind of node can host."""
        most_mib = sum(task.memory_mib for task in self._placeable)
        usual = self.instance.usual_tasks()
        for node in self.instance.nodes:
            state = NodeState.of(self.instance, node, usual)
            self._kinds.append((*state.kind, min(state.memory_mib, most_mib)))
            self._states.setdefault(self._kinds[-1], state)
        # At no cost labels are all that a node can host.
        hosts, left = self._hosts({}, 0.0, 0.0), MOST_STATES
        for kind, state in self._states.items():
            self._sets[kind], left = _listed(state, hosts[_type(state)], math.inf, left)

    def __call__(self, prices: Mapping[str, object], taken: Sequence[Taken] = ()) -> Proof:
        """Prove a bound as `prove` does, of the decisions on some sides of splits."""
        counts = self.counted(taken)
        nodes = {f"node:{node.name}" for node in self.instance.nodes}
        tasks = {f"task:{task.name}" for task in self.instance.tasks}
        inside, outside = ({count.row for count in counts if count.inside == side} for side in (True, False))
        limits = {f"objective:{name}": limit for name, limit in self._limits.items()}
        charged, faults = charges(prices, nodes | inside | limits.keys(), tasks, "min", demands=outside)
        owed = [(count, charged[count.row]) for count in counts if count.row in charged]
        parts = [-charge * count.limit for count, charge in owed]
        owed += [(count, math.inf) for count in counts if count.inside and count.limit == 0]
        fixed = [count for count in counts if count.what.beyond is not None]
        owed = [(count, charge) for count, charge in owed if count.what.beyond is None]
        faults = faults or list(self._faults_of(fixed, owed, charged))
        if faults:
            return Proof(faults)
        at_limits = {row: charged[row] * limit for row, limit in limits.items() if row in charged}
        parts += [-charge for charge in at_limits.values()]
        # What limits on other objectives charge is these at a weight.
        paid = [(self.instance, 1.0)]
        for name in self._limits:
            of = self.instance.model_copy(update={"objective": name})
            paid += [(of, charged[f"objective:{name}"])] if f"objective:{name}" in charged else []
        waiting = dict.fromkeys(self._waiting, 0.0)
        for task in self._placeable:
            costs = (weight * worth(of, 0.0, 0.0, waiting_w(of, task)) for of, weight in paid)
            waiting[task.name] = math.fsum(costs)
        leeway = TOLERANCE * math.fsum(map(abs, at_limits.values()))
        placed = {name: -charged.get(f"task:{name}", 0.0) for name in self._waiting}
        parts += [min(placed[name], cost) for name, cost in waiting.items()]
        if self._too_many and not fixed:
            parts += self._of_labels(charged, paid)
        else:
            parts += self._of_nodes(charged, owed, paid, fixed)
        # Rounding of sums, on the safe side.
        size = math.fsum(abs(part) for part in parts)
        bound, step = math.fsum(parts) - SUM_ROUNDING * size, self._step
        if step < _LEAST_STEP * size or step == 0.0:
            return Proof(bound=bound, reach=reach_of(bound, self._dearest), leeway=leeway)
        # If all placeable tasks are placed, the next multiple of the step; else some task's waiting more.
        rounded = float(math.ceil(Fraction(bound) / step) * step)
        extra = (max(0.0, waiting[task.name] - placed[task.name]) for task in self._placeable)
        bound = min(rounded, bound + min(extra, default=math.inf) * (1.0 - SUM_ROUNDING))
        reach = reach_of(bound, self._dearest)
        return Proof(bound=bound, reach=reach, leeway=leeway, step=float(step))

    @cached_property
    def _dearest(self) -> float:
        """Cost that no decision exceeds: every task waits, and every node changes most."""
        parts = [math.fsum(self._waiting.values())]
        for node in self.instance.nodes:
            gpu, cpu = self.instance.gpu_type_of(node), self.instance.cpu_type_of(node)
            watts = node.gpus * gpu.full_power_w + math.ceil(node.cpu_milli / 2000) * cpu.full_power_w
            parts.append(worth(self.instance, watts, node.gpus, 0.0))
        return math.fsum(parts)

    @cached_property
    def _step(self) -> Fraction:
        """Number of which the cost of every decision is a whole multiple, if no placeable task waits."""
        return Fraction(0) if self._too_many else common_step(sets.step for sets in self._sets.values())

    def _of_labels(
        self, charged: Mapping[str, float], paid: Sequence[tuple[PlacementInstance, float]]
    ) -> Iterator[float]:
        """Yield the terms that nodes add to the bound, where they can host too much to list."""
        per_w = math.fsum(weight * worth(of, 1.0, 0.0, 0.0) for of, weight in paid)
        per_gpu = math.fsum(weight * worth(of, 0.0, 1.0, 0.0) for of, weight in paid)
        cost = [charged.get(f"node:{node.name}", 0.0) for node in self.instance.nodes]
        lowest: dict[tuple[object, ...], float] = {}
        for price, kind in zip(cost, self._kinds, strict=True):
            lowest[kind] = min(price, lowest.get(kind, price))
        hosts = self._hosts({row: -charge for row, charge in charged.items()}, per_w, per_gpu)
        # What costs more than the node's price saves nothing.
        least = {
            kind: hosts[_type(state)].least(state, -lowest[kind]) for kind, state in self._states.items()
        }
        for price, kind in zip(cost, self._kinds, strict=True):
            yield min(0.0, price + least[kind])
            yield -price

    def _hosts(
        self, prices: Mapping[str, float], per_w: float, per_gpu: float
    ) -> dict[tuple[object, ...], Hosts]:
        """Return what nodes can host at prices, by their type."""
        wanted = []
        for alike in self._alike.values():
            worths = sorted((prices.get(f"task:{task.name}", 0.0) for task in alike), reverse=True)
            wanted.append((alike[0], np.array(worths)))
        types = {_type(state): state for state in self._states.values()}
        return {type_: Hosts(state, wanted, per_w, per_gpu) for type_, state in types.items()}

    def _faults_of(
        self, fixed: list[Counted[_Split]], owed: _Owed, charged: Mapping[str, float]
    ) -> Iterator[str]:
        """Yield what keeps splits on costs, and others, from proving anything."""
        if self._too_many and owed and not fixed:
            yield self._too_many
        for count in fixed:
            what = count.what
            if count.row != "split:0" or what.at_most or what.nodes is not None or what.hosts or what.task:
                yield "certificate: a split with 'beyond' is the first, with 'at_most' 0 and 'prices' alone"
            elif not count.inside and {r: -c for r, c in charged.items() if r != count.row} != {
                row: price for row, price in what.prices.items() if price
            }:
                yield "certificate: outside of a split with 'beyond' the prices must be those of the split"
            try:
                self._near(what)
            except TooManyError as error:
                yield f"certificate: {error}"

    def _near(self, split: _Split) -> dict[tuple[object, ...], Hostable]:
        """Sets that nodes can host at a cost within a split's, by kind and price of the node."""
        if id(split) in self._within:
            return self._within[id(split)][1]
        instance, near = self.instance, dict[tuple[object, ...], Hostable]()
        hosts = self._hosts(split.prices, worth(instance, 1.0, 0.0, 0.0), worth(instance, 0.0, 1.0, 0.0))
        left, slack = MOST_STATES, SUM_ROUNDING * math.fsum(map(abs, split.prices.values()))
        for node, kind in zip(instance.nodes, self._kinds, strict=True):
            price = split.prices.get(f"node:{node.name}", 0.0)
            if (kind, price) in near:
                continue
            state, room = self._states[kind], (split.beyond or 0.0) + price + slack
            near[kind, price], left = _listed(state, hosts[_type(state)], room, left)
        self._within[id(split)] = split, near
        return near

    def _of_nodes(
        self,
        charged: Mapping[str, float],
        owed: _Owed,
        paid: Sequence[tuple[PlacementInstance, float]],
        fixed: list[Counted[_Split]],
    ) -> Iterator[float]:
        """Yield the terms that nodes add to the bound, with what they owe for being counted."""
        near = self._near(fixed[0].what) if fixed else {}
        # Outside of a split on costs some node costs more than that, and is paid for it.
        floor = min(
            ((count.what.beyond or 0.0) + charged.get(count.row, 0.0) for count in fixed if not count.inside),
            default=math.inf,
        )
        # Of tasks with one request a node takes those whose prices are the highest: their sums by number.
        gains = self._gains({row: -charge for row, charge in charged.items()})
        known: dict[tuple[object, ...], float] = {}
        of_nodes = [None if count.what.nodes is None else frozenset(count.what.nodes) for count, _ in owed]
        for node, kind in zip(self.instance.nodes, self._kinds, strict=True):
            here = [
                one for one, nodes in zip(owed, of_nodes, strict=True) if nodes is None or node.name in nodes
            ]
            own = [count.what.prices.get(f"node:{node.name}", 0.0) for count in fixed]
            key = (kind, *(count.row for count, _ in here), *own)
            if key not in known:
                sets = near[kind, own[0]] if fixed else self._sets[kind]
                cost = sets.cost(paid)
                for column, gain in enumerate(gains):
                    cost -= gain[sets.tasks[:, column]]
                for count, charge in here:
                    times = self._times(count.what, sets)
                    cost += np.where(times > 0, charge, 0.0) * np.maximum(times, 1.0)
                known[key] = float(cost.min(initial=math.inf))
            price = charged.get(f"node:{node.name}", 0.0)
            yield min(0.0, price + known[key], floor)
            yield -price

    def _gains(self, prices: Mapping[str, float]) -> list[FloatArray]:
        """Prices by request of its 0, 1, 2, ... dearest tasks together."""
        gains = []
        for alike in self._alike.values():
            worths = sorted((prices.get(f"task:{task.name}", 0.0) for task in alike), reverse=True)
            gains.append(np.concatenate([[0.0], np.cumsum(worths)]))
        return gains

    def _times(self, split: _Split, sets: Hostable) -> FloatArray:
        """Return the number of times that a split counts each set that a node can host, shape (n_sets,)."""

        def like(task: str) -> IntArray | int:
            """Return how many tasks of each set are like one; a task that fits nowhere is on no node."""
            request = self._request[task]
            return sets.tasks[:, [*self._alike].index(request)] if request in self._alike else 0

        found = sets.tasks.any(axis=1).astype(float)
        # Of tasks with one request the last count is the one that is meant.
        for many, task in {
            self._request[name]: (many, name) for name, many in (split.hosts or {}).items()
        }.values():
            found *= like(task) >= many
        return found if split.task is None else found * like(split.task)


def _type(state: NodeState) -> tuple[object, ...]:
    """Nodes that differ only in what is free, and in their CPU, have one."""
    return state.node.gpu_type, len(state.gpus)


def _request(task: Task) -> tuple[object, ...]:
    gpu = (task.gpu_milli, frozenset(task.gpu_types)) if task.gpus else ()
    return task.cpu_milli, task.memory_mib, task.gpus, *gpu
