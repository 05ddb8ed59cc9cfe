"""Pricing of node patterns: the tasks of most value that a node can host at given prices of profiles.

A pattern is a multiset of task profiles that one node hosts. Its GPUs hold whole-GPU tasks, or shares that
add up to a GPU at most; CPU is the other resource. Three knapsacks, one inside the other, by dynamic
programming over whole units of CPU c ::

    S(w, c) = most value of shares that fit into w thousandths of one GPU
    V(b, c) = most value of tasks that fit onto b GPUs: b - 1 of them and S(1000, .) or a whole-GPU task, or
              b - g of them and a task of g GPUs
    U(c)    = most value of tasks without GPU

and a node with b busy GPUs earns max over u of V(b, c - u) + U(u) at most. None of it depends on the power of
a node, so all types that admit the same profiles (a *class* of types) share one table.

Requests for CPU are rounded down to units, and so are capacities. Every pattern that fits still does, since
floors add up to no more than the floor of the sum, and does so in no more CPU: values can only be too high
and power only too low, which keeps bounds valid.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattsched.formulations.placement.node_types import NodeTypes
from wattsched.instances.placement.tables import WHOLE_GPU, TaskTable
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, Table


@dataclass(frozen=True)
class Admitted:
    """Profiles that some node types admit, and the size of the largest of these types.

    Parameters
    ----------
    profiles : TaskTable
        All M profiles.
    index : (A,) int
        Positions of the admitted ones.
    cpu_units : (M,) int
        CPU of each profile, in units.
    most_units, most_gpus : int
        CPU and GPUs of the largest node.
    """

    profiles: TaskTable
    index: IntArray
    cpu_units: IntArray
    most_units: int
    most_gpus: int


class SharePatterns:
    """Dynamic programme over shares of one GPU: S.

    Parameters
    ----------
    admitted : Admitted
    shares : (A,) int
        Profiles of shares that may be on the GPU, each of positive value.
    value : (M,) float
        Value of hosting a task of each profile.

    Attributes
    ----------
    most : (most_units + 1,) float
        Most value on a whole GPU.
    """

    def __init__(self, admitted: Admitted, shares: IntArray, value: FloatArray):
        milli = admitted.profiles.gpu_milli
        self._value, self._units, self._shares = value, admitted.cpu_units, shares
        # Where no task shares a GPU, one step of a whole GPU is enough.
        self._step = int(np.gcd.reduce(milli[shares], initial=WHOLE_GPU))
        self._weight = milli // self._step
        self._best = self._best_by_gpu_step(admitted.most_units + 1)
        self.most = self._best[-1]

    def _best_by_gpu_step(self, columns: int) -> FloatArray:
        """Compute S; rows are steps of the GPU. Beyond the CPU that shares can use, a row is constant."""
        best = np.zeros((WHOLE_GPU // self._step + 1, columns))
        reach = np.zeros(len(best), dtype=np.int64)
        tasks = self._shares
        items = list(zip(self._weight[tasks], self._units[tasks], self._value[tasks], strict=True))
        for steps in range(1, len(best)):
            fitting = [(weight, units, value) for weight, units, value in items if weight <= steps]
            used = [reach[steps - weight] + units for weight, units, _value in fitting]
            reach[steps] = max(used, default=0)
            row = best[steps, : reach[steps] + 1]
            row[:] = best[steps - 1, : len(row)]
            for weight, units, value in fitting:
                _raise(row, best[steps - weight], units, value)
            best[steps, len(row) :] = row[-1]
        return best

    def by_rest(self) -> FloatArray:
        """Most value by free thousandths of the GPU and CPU, shape (1001, most_units + 1)."""
        return np.asarray(self._best[np.arange(WHOLE_GPU + 1) // self._step])

    def take(self, hosted: IntArray, units: int) -> None:
        """Add the tasks that attain ``most[units]`` to the counts by profile `hosted`, shape (M,)."""
        steps = len(self._best) - 1
        while self._best[steps, units] > 0:
            fits = (self._weight[self._shares] <= steps) & (self._units[self._shares] <= units)
            tasks = self._shares[fits]
            left = self._best[steps - self._weight[tasks], units - self._units[tasks]]
            task = tasks[np.argmax(left + self._value[tasks])]
            hosted[task] += 1
            steps, units = steps - self._weight[task], units - self._units[task]


def best_shares(admitted: Admitted, value: FloatArray) -> IntArray:
    """Return the positions of admitted shares of positive value that no other share dominates."""
    profiles, units = admitted.profiles, admitted.cpu_units
    index = admitted.index[value[admitted.index] > 0]
    index = index[(profiles.gpus[index] == 1) & (profiles.gpu_milli[index] < WHOLE_GPU)]
    index = index[np.lexsort((-value[index], units[index], profiles.gpu_milli[index]))]
    milli, cpu, worth = profiles.gpu_milli[index], units[index], value[index]
    no_better = (milli[:, None] >= milli) & (cpu[:, None] >= cpu) & (worth[:, None] <= worth)
    kept: IntArray = index[~np.tril(no_better, -1).any(axis=1)]
    return kept


class NodePatterns:
    """Dynamic programmes over nodes: V and U.

    Parameters
    ----------
    admitted : Admitted
        A profile without GPU must have at least one unit of CPU.
    value : (M,) float
        Value of hosting a task of each profile; profiles without positive value are excluded.
    shares : SharePatterns
        Those of the admitted shares at these values, for at least as much CPU.
    """

    def __init__(self, admitted: Admitted, value: FloatArray, shares: SharePatterns):
        profiles = admitted.profiles
        index = admitted.index[value[admitted.index] > 0]
        index = index[admitted.cpu_units[index] <= admitted.most_units]
        self._value, self._units, self._gpus = value, admitted.cpu_units, profiles.gpus
        self._whole = index[(profiles.gpus[index] == 1) & (profiles.gpu_milli[index] == WHOLE_GPU)]
        self._several = index[profiles.gpus[index] > 1]
        self._without = index[profiles.gpus[index] == 0]
        self._shares = shares
        self._columns = admitted.most_units + 1
        self._of_gpu = self._fill_gpu()
        self._of_gpus = self._fill_gpus(admitted.most_gpus)
        self._of_cpu = self._fill_cpu()

    def most(self, units: int) -> FloatArray:
        """Most value on at most 0, 1, 2, ... GPUs and this much CPU, shape (most_gpus + 1,)."""
        return np.asarray((self._of_gpus[:, units::-1] + self._of_cpu[: units + 1]).max(axis=1))

    def most_of_shares(self) -> FloatArray:
        """Most value of shares by free thousandths of one GPU and CPU, shape (1001, most_units + 1)."""
        return self._shares.by_rest()[:, : self._columns]

    def pattern(self, gpus: int, units: int) -> tuple[IntArray, int]:
        """Return the tasks that attain ``most(units)[gpus]``, by profile, shape (M,), and the GPUs in use."""
        hosted = np.zeros(len(self._value), dtype=np.int64)
        on_cpu = int(np.argmax(self._of_gpus[gpus, units::-1] + self._of_cpu[: units + 1]))
        self._take_cpu(hosted, on_cpu)
        return hosted, self._take_gpus(hosted, gpus, units - on_cpu)

    def _fill_gpu(self) -> FloatArray:
        """Compute the most value on one GPU: of shares, or of a task that takes it whole."""
        best: FloatArray = self._shares.most[: self._columns].copy()
        for task in self._whole:
            room = best[self._units[task] :]
            np.maximum(room, self._value[task], out=room)
        return best

    def _fill_gpus(self, most: int) -> FloatArray:
        """Compute V for up to `most` GPUs; of CPU on one GPU only steps of its value need be tried."""
        best = np.zeros((most + 1, self._columns))
        stairs = _stairs(self._of_gpu)
        for gpus in range(1, most + 1):
            row = best[gpus]
            row[:] = best[gpus - 1]
            for units in stairs:
                _raise(row, best[gpus - 1], units, self._of_gpu[units])
            for task in self._several[self._gpus[self._several] <= gpus]:
                _raise(row, best[gpus - self._gpus[task]], self._units[task], self._value[task])
        return best

    def _fill_cpu(self) -> FloatArray:
        """Compute U: each pass lets there be one task more."""
        best = np.zeros(self._columns)
        for task in self._without:
            for _copy in range((self._columns - 1) // self._units[task]):
                _raise(best, best.copy(), self._units[task], self._value[task])
        return best

    # Backtracking: the choice at a state is the one that gave it its value. `hosted` counts tasks by profile.

    def _take_cpu(self, hosted: IntArray, units: int) -> None:
        """Add the tasks that attain U at so many units."""
        while self._of_cpu[units] > 0:
            tasks = self._without[self._units[self._without] <= units]
            task = tasks[np.argmax(self._of_cpu[units - self._units[tasks]] + self._value[tasks])]
            hosted[task] += 1
            units -= self._units[task]

    def _take_gpus(self, hosted: IntArray, gpus: int, units: int) -> int:
        """Add the tasks that attain V on so many GPUs and units; return the number of GPUs that they use."""
        busy = 0
        while self._of_gpus[gpus, units] > 0:
            if self._of_gpus[gpus - 1, units] == self._of_gpus[gpus, units]:
                gpus -= 1
                continue
            stairs = _stairs(self._of_gpu[: units + 1])
            single = self._of_gpus[gpus - 1, units - stairs] + self._of_gpu[stairs]
            fits = (self._gpus[self._several] <= gpus) & (self._units[self._several] <= units)
            tasks = self._several[fits]
            several = self._of_gpus[gpus - self._gpus[tasks], units - self._units[tasks]] + self._value[tasks]
            if np.max(several, initial=0.0) >= np.max(single, initial=0.0):
                task = tasks[np.argmax(several)]
                hosted[task] += 1
                taken, used = int(self._gpus[task]), int(self._units[task])
            else:
                taken, used = 1, int(stairs[np.argmax(single)])
                self._take_gpu(hosted, used)
            busy, gpus, units = busy + taken, gpus - taken, units - used
        return busy

    def _take_gpu(self, hosted: IntArray, units: int) -> None:
        """Add the tasks that attain the most value on one GPU and so many units."""
        whole = self._whole[self._units[self._whole] <= units]
        if np.max(self._value[whole], initial=0.0) == self._of_gpu[units]:
            hosted[whole[np.argmax(self._value[whole])]] += 1
        else:
            self._shares.take(hosted, units)


def _raise(row: FloatArray, before: FloatArray, units: int, value: float) -> None:
    """Raise a row to at least the values of `before` at `units` less CPU, plus `value`."""
    if units < len(row):
        np.maximum(row[units:], before[: len(row) - units] + value, out=row[units:])


def _stairs(best: FloatArray) -> IntArray:
    """Return the positions at which a non-decreasing row of values rises, from 0."""
    return np.flatnonzero(np.diff(best, prepend=0.0) > 0).astype(np.int64)


@dataclass(frozen=True)
class Patterns(Table):
    """Patterns of node types.

    Parameters
    ----------
    type : (P,) int
        Node type of each.
    hosted : (P, M) int
        Tasks of each profile.
    gpus : (P,) int
        GPUs in use.
    power_w : (P,) float
        Power of a node that carries it.
    memory_mib : (P,) float
        Memory that its tasks ask for.
    """

    type: IntArray
    hosted: IntArray
    gpus: IntArray
    power_w: FloatArray
    memory_mib: FloatArray

    def __len__(self) -> int:
        return len(self.type)

    def hashes(self) -> list[Hashable]:
        """Return a key for each, equal for equal patterns of one type."""
        return [row.tobytes() for row in np.column_stack([self.type, self.gpus, self.hosted])]


class PricedPattern(NamedTuple):
    """Best pattern of a type on so many GPUs and units, and its reduced cost: power less its value."""

    cost_w: float
    type: int
    table: NodePatterns
    gpus: int
    units: int


class PatternPricing:
    """Pricing problem of the configuration LP.

    Parameters
    ----------
    types : NodeTypes
        K node types.
    profiles : TaskTable
        M profiles of tasks.
    most_units : int
        Units that the CPU of the largest node is divided into, at most.

    Attributes
    ----------
    packed : (M,) bool
        Profiles that patterns hold. The others have no GPU and less CPU than a unit: bounds treat any number
        of them as fitting anywhere, which only weakens them.
    admits : (K, M) bool
        Which types can run a task of each profile.
    unit : int
        Thousandths of a vCPU in a unit.
    """

    def __init__(self, types: NodeTypes, profiles: TaskTable, most_units: int):
        self._types, self._profiles = types, profiles
        self.unit = _unit(profiles.cpu_milli, int(types.nodes.cpu_milli.max()), most_units)
        self._units = profiles.cpu_milli // self.unit
        self.packed: BoolArray = (profiles.gpus > 0) | (self._units > 0)
        self.admits = types.admits(profiles)
        # Types that admit the same profiles are one class: the class of each type, and the profiles of each.
        admitted, class_ = np.unique(self.admits & self.packed, axis=0, return_inverse=True)
        self._class = class_.reshape(-1)
        self._admitted = [self._admitted_by(row, self._class == c) for c, row in enumerate(admitted)]
        self._most_units = [self._most_units_by_package(type_) for type_ in range(len(types))]

    def _admitted_by(self, admits: BoolArray, types: BoolArray) -> Admitted:
        """Collect the profiles that a class of types admits, and the size of its largest node."""
        nodes = self._types.nodes
        return Admitted(
            profiles=self._profiles,
            index=np.flatnonzero(admits).astype(np.int64),
            cpu_units=self._units,
            most_units=int(nodes.cpu_milli[types].max()) // self.unit,
            most_gpus=int(nodes.gpus[types].max()),
        )

    def _most_units_by_package(self, type_: int) -> list[int]:
        """Compute `ends`: the next unit takes more watts."""
        most: list[int] = np.flatnonzero(np.append(np.diff(self.cpu_w(type_)) > 0, True)).tolist()
        return most

    def ends(self, type_: int) -> list[int]:
        """Return the most units that a node of a type can use with one, two, ... CPU packages."""
        return self._most_units[type_]

    def cpu_w(self, type_: int) -> FloatArray:
        """Return the watts of a node that uses no GPU, by units in use, shape (units of the node + 1,)."""
        used = np.arange(self._types.nodes.cpu_milli[type_] // self.unit + 1)
        return self._power_w(np.full(len(used), type_), used, 0 * used)

    def tables(self, profile_w: FloatArray) -> list[NodePatterns]:
        """Solve the dynamic programmes of each type at prices of hosted tasks, shape (M,)."""
        shares: dict[bytes, SharePatterns] = {}
        price_w = np.where(self.packed, profile_w, 0.0)
        largest_first = sorted(range(len(self._admitted)), key=lambda c: -self._admitted[c].most_units)
        by_class = {c: self._table(self._admitted[c], price_w, shares) for c in largest_first}
        return [by_class[c] for c in self._class.tolist()]

    def _power_w(self, type_: IntArray, units: IntArray, gpus: IntArray) -> FloatArray:
        """Watts of nodes by their types, units of CPU and GPUs in use; all of one shape."""
        nodes, power = self._types.nodes, self._types.power
        free_milli = nodes.cpu_milli[type_] - units * self.unit
        return power.node_w(free_milli, nodes.gpus[type_] - gpus, type_).astype(np.float64)

    def best(
        self, profile_w: FloatArray, memory_w: FloatArray, weight: float, per_type: int
    ) -> tuple[FloatArray, list[PricedPattern]]:
        """Return the least reduced cost of a pattern of each type, shape (K,), and the best patterns.

        Parameters
        ----------
        profile_w : (M,) float
            Price of a hosted task.
        memory_w : (K,) float
            Price of a MiB of each type.
        weight : float
            Weight of the power in the cost.
        per_type : int
            Number of patterns returned per type at most.
        """
        least = np.zeros(len(self._types))
        priced: list[PricedPattern] = []
        tables: dict[tuple[int, float], NodePatterns] = {}
        shares: dict[bytes, SharePatterns] = {}
        # Large nodes first, as in `tables`: their tables of shares serve small ones.
        for type_ in np.argsort(-self._types.nodes.cpu_milli, kind="stable").tolist():
            class_, mib_w = int(self._class[type_]), float(memory_w[type_])
            if (class_, mib_w) not in tables:
                value = profile_w - mib_w * self._profiles.memory_mib
                tables[class_, mib_w] = self._table(self._admitted[class_], value, shares)
            cheapest = sorted(self._priced(type_, tables[class_, mib_w], weight), key=lambda o: o.cost_w)
            least[type_] = cheapest[0].cost_w
            priced += cheapest[:per_type]
        return least, priced

    def _table(
        self, admitted: Admitted, value: FloatArray, computed: dict[bytes, SharePatterns]
    ) -> NodePatterns:
        """Solve the programmes at values of tasks, (M,), those over equal shares once."""
        shares = best_shares(admitted, value)
        key = shares.tobytes() + value[shares].tobytes()
        if key not in computed:
            computed[key] = SharePatterns(admitted, shares, value)
        return NodePatterns(admitted, value, computed[key])

    def _priced(self, type_: int, table: NodePatterns, weight: float) -> list[PricedPattern]:
        """Best pattern of a type for each number of GPUs and packages; power costs by its weight."""
        gpus = np.arange(self._types.nodes.gpus[type_] + 1)
        priced = []
        for units in self._most_units[type_]:
            power_w = self._power_w(np.full(len(gpus), type_), np.full(len(gpus), units), gpus)
            cost_w = weight * power_w - table.most(units)[: len(gpus)]
            priced += [PricedPattern(cost, type_, table, g, units) for g, cost in enumerate(cost_w.tolist())]
        return priced

    def patterns(self, priced: Sequence[PricedPattern]) -> Patterns:
        """Recover the patterns that were priced, with their tasks and power, by backtracking."""
        solutions = [pattern.table.pattern(pattern.gpus, pattern.units) for pattern in priced]
        type_ = np.array([pattern.type for pattern in priced], dtype=np.int64)
        hosted = np.array([tasks for tasks, _gpus in solutions], dtype=np.int64).reshape(
            -1, len(self._profiles)
        )
        gpus = np.array([gpus for _tasks, gpus in solutions], dtype=np.int64)
        power_w = self._power_w(type_, hosted @ self._units, gpus)
        return Patterns(type_, hosted, gpus, power_w, (hosted @ self._profiles.memory_mib).astype(np.float64))


def _unit(cpu_milli: IntArray, capacity_milli: int, most_units: int) -> int:
    """Choose the unit of CPU, at most `most_units` of them to a node, that rounds requests down the least."""
    exact = int(np.gcd.reduce(cpu_milli))
    if exact == 0 or capacity_milli // exact <= most_units:
        return max(exact, 1)
    finest = -(-capacity_milli // most_units)
    units = np.arange(finest, 2 * finest)
    lost = (cpu_milli[:, None] % units).sum(axis=0)
    return int(units[np.argmin(lost)])
