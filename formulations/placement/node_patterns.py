"""Most valuable pattern of a node: which tasks it hosts when each profile is worth a price.

A pattern is a multiset of task profiles that one node hosts. Its GPUs hold whole-GPU tasks, or shares that
add up to a GPU at most; CPU is the other resource. Three knapsacks, one inside the other, by dynamic
programming over whole units of CPU c ::

    S(w, c) = most value of shares that fit into w thousandths of one GPU
    V(b, c) = most value of tasks that fit onto b GPUs: b - 1 of them and S(1000, .) or a whole-GPU task, or
              b - g of them and a task of g GPUs
    U(c)    = most value of tasks without GPU

and a node with b busy GPUs earns max over u of V(b, c - u) + U(u) at most. None of it depends on the power of
a node, so all types that admit the same profiles share one table.

Requests for CPU are rounded down to units, and so are capacities. Every pattern that fits still does, since
floors add up to no more than the floor of the sum, and does so in no more CPU: values can only be too high
and power only too low, which keeps bounds valid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.instances.placement.tables import WHOLE_GPU, TaskTable
from wattsched.topology.arrays import FloatArray, IntArray


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
    """Most value of the shares on one GPU: S.

    Parameters
    ----------
    admitted : Admitted
    shares : (A,) int
        Profiles of shares that may be on the GPU, each worth more than nothing.
    value : (M,) float
        What hosting a task of each profile is worth.

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
        self._best = self._fill(admitted.most_units + 1)
        self.most = self._best[-1]

    def _fill(self, columns: int) -> FloatArray:
        """Fill S; the rows are steps of the GPU. Where shares cannot use more CPU, a row stays as it is."""
        best = np.zeros((WHOLE_GPU // self._step + 1, columns))
        reach = np.zeros(len(best), dtype=np.int64)
        tasks = self._shares
        items = list(zip(self._weight[tasks], self._units[tasks], self._value[tasks], strict=True))
        for steps in range(1, len(best)):
            fitting = [item for item in items if item[0] <= steps]
            used = [reach[steps - weight] + units for weight, units, _value in fitting]
            reach[steps] = max(used, default=0)
            row = best[steps, : reach[steps] + 1]
            row[:] = best[steps - 1, : len(row)]
            for weight, units, value in fitting:
                _raise(row, best[steps - weight], units, value)
            best[steps, len(row) :] = row[-1]
        return best

    def take(self, hosted: IntArray, units: int) -> None:
        """Add tasks that earn ``most[units]`` to how many there are of each profile, shape (M,)."""
        steps = len(self._best) - 1
        while self._best[steps, units] > 0:
            fits = (self._weight[self._shares] <= steps) & (self._units[self._shares] <= units)
            tasks = self._shares[fits]
            left = self._best[steps - self._weight[tasks], units - self._units[tasks]]
            task = tasks[np.argmax(left + self._value[tasks])]
            hosted[task] += 1
            steps, units = steps - self._weight[task], units - self._units[task]


def best_shares(admitted: Admitted, value: FloatArray) -> IntArray:
    """Positions of admitted shares that are worth something, and more than any that asks for no more."""
    profiles, units = admitted.profiles, admitted.cpu_units
    index = admitted.index[value[admitted.index] > 0]
    index = index[(profiles.gpus[index] == 1) & (profiles.gpu_milli[index] < WHOLE_GPU)]
    index = index[np.lexsort((-value[index], units[index], profiles.gpu_milli[index]))]
    milli, cpu, worth = profiles.gpu_milli[index], units[index], value[index]
    no_better = (milli[:, None] >= milli) & (cpu[:, None] >= cpu) & (worth[:, None] <= worth)
    kept: IntArray = index[~np.tril(no_better, -1).any(axis=1)]
    return kept


class NodePatterns:
    """Most value that nodes can host: V and U.

    Parameters
    ----------
    admitted : Admitted
        A profile without GPU must have at least one unit of CPU.
    value : (M,) float
        What hosting a task of each profile is worth; those worth nothing or less are left out.
    shares : SharePatterns
        Of the admitted shares at these values, for at least as much CPU.
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

    def pattern(self, gpus: int, units: int) -> tuple[IntArray, int]:
        """Tasks that earn ``most(units)[gpus]``: how many of each profile, (M,), and the GPUs in use."""
        hosted = np.zeros(len(self._value), dtype=np.int64)
        on_cpu = int(np.argmax(self._of_gpus[gpus, units::-1] + self._of_cpu[: units + 1]))
        self._take_cpu(hosted, on_cpu)
        return hosted, self._take_gpus(hosted, gpus, units - on_cpu)

    def _fill_gpu(self) -> FloatArray:
        best: FloatArray = self._shares.most[: self._columns].copy()
        for task in self._whole:
            room = best[self._units[task] :]
            np.maximum(room, self._value[task], out=room)
        return best

    def _fill_gpus(self, most: int) -> FloatArray:
        """Fill V; as the value of one GPU is a staircase in the CPU, only its steps need be tried."""
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
        best = np.zeros(self._columns)
        for task in self._without:
            for _copy in range((self._columns - 1) // self._units[task]):
                _raise(best, best.copy(), self._units[task], self._value[task])
        return best

    # Going back, the choice at a state is the one that gave it its value.

    def _take_cpu(self, hosted: IntArray, units: int) -> None:
        while self._of_cpu[units] > 0:
            tasks = self._without[self._units[self._without] <= units]
            task = tasks[np.argmax(self._of_cpu[units - self._units[tasks]] + self._value[tasks])]
            hosted[task] += 1
            units -= self._units[task]

    def _take_gpus(self, hosted: IntArray, gpus: int, units: int) -> int:
        busy = 0
        while self._of_gpus[gpus, units] > 0:
            if self._of_gpus[gpus - 1, units] == self._of_gpus[gpus, units]:
                gpus -= 1
                continue
            stairs = _stairs(self._of_gpu[: units + 1])
            single = self._of_gpus[gpus - 1, units - stairs] + self._of_gpu[stairs]
            fits = (self._gpus[self._several] <= gpus) & (self._units[self._several] <= units)
            tasks = self._several[fits]
            together = (
                self._of_gpus[gpus - self._gpus[tasks], units - self._units[tasks]] + self._value[tasks]
            )
            if np.max(together, initial=0.0) >= np.max(single, initial=0.0):
                task = tasks[np.argmax(together)]
                hosted[task] += 1
                taken, used = int(self._gpus[task]), int(self._units[task])
            else:
                taken, used = 1, int(stairs[np.argmax(single)])
                self._take_gpu(hosted, used)
            busy, gpus, units = busy + taken, gpus - taken, units - used
        return busy

    def _take_gpu(self, hosted: IntArray, units: int) -> None:
        whole = self._whole[self._units[self._whole] <= units]
        if np.max(self._value[whole], initial=0.0) == self._of_gpu[units]:
            hosted[whole[np.argmax(self._value[whole])]] += 1
        else:
            self._shares.take(hosted, units)


def _raise(row: FloatArray, before: FloatArray, units: int, value: float) -> None:
    """Let a row be at least what `before` earns with `units` less CPU, and `value` more."""
    if units < len(row):
        np.maximum(row[units:], before[: len(row) - units] + value, out=row[units:])


def _stairs(best: FloatArray) -> IntArray:
    """Positions at which a non-decreasing row of values rises, above 0 at the first."""
    return np.flatnonzero(np.diff(best, prepend=0.0) > 0).astype(np.int64)
