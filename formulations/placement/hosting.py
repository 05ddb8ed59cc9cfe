"""What it costs nodes to host tasks: exact changes of power and fragmentation, for many states at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattsched.formulations.placement.fragmentation import Fragmentation
from wattsched.instances.placement.instance import WHOLE_GPU, TaskTable, Window
from wattsched.topology.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class NodeStates:
    """States of nodes: what is free on them.

    Attributes
    ----------
    node : (S,) int
        A node that each state is one of: it says the GPU model and the power.
    cpu_milli, memory_mib : (S,) int
        Free thousandths of a vCPU, and MiB.
    gpu_milli : (S, G) int
        Free thousandths of each GPU in ascending order, so that states differ only where nodes do.
    """

    node: IntArray
    cpu_milli: IntArray
    memory_mib: IntArray
    gpu_milli: IntArray

    def __len__(self) -> int:
        return len(self.node)

    def take(self, index: IntArray) -> NodeStates:
        """States at these positions."""
        return NodeStates(
            self.node[index], self.cpu_milli[index], self.memory_mib[index], self.gpu_milli[index]
        )


class Hostings(NamedTuple):
    """Ways for states to host one more task, one entry of every array per way.

    Attributes
    ----------
    state, profile : (H,) int
        Positions of the state and of the task's profile.
    slot : (H,) int
        First of the GPUs used, in ascending order of what was free on them; the others follow it.
    cost : (H,) float
        Change of the window's objective.
    """

    state: IntArray
    profile: IntArray
    slot: IntArray
    cost: FloatArray


class Hosting:
    """Costs of hosting the profiles of a window's tasks.

    Two GPUs of a node with as much free are the same choice, so that a state hosts a task of one GPU in as
    many ways as it has different GPUs with room.

    Parameters
    ----------
    window : Window
    profiles : TaskTable
        P distinct requests of its tasks.
    fragmentation : Fragmentation
        For the window's target workload and GPU models.
    """

    def __init__(self, window: Window, profiles: TaskTable, fragmentation: Fragmentation):
        self.profiles = profiles
        self._window = window
        self._model = window.nodes.model
        self._fragmentation = fragmentation
        self._allowed = window.allowed[profiles.spec] | (profiles.gpus == 0)[:, None]
        self._per_w = window.alpha / window.power_ref_w
        per_milli = (1.0 - window.alpha) / window.fragmentation_ref_milli
        self._per_fragment = per_milli / fragmentation.scale
        self._gpu_w = window.power.gpu_full_w - window.power.gpu_idle_w

    def ways(self, states: NodeStates) -> Hostings:
        """All ways of these states to host one task of each profile."""
        profiles, gpu = self.profiles, states.gpu_milli
        fits = states.cpu_milli[:, None] >= profiles.cpu_milli
        fits &= states.memory_mib[:, None] >= profiles.memory_mib
        fits &= self._allowed[:, self._model[states.node]].T
        first = np.ones(gpu.shape, dtype=bool)
        first[:, 1:] = gpu[:, 1:] != gpu[:, :-1]
        without, single, several = (
            np.flatnonzero(which) for which in (profiles.gpus == 0, profiles.gpus == 1, profiles.gpus > 1)
        )
        state_0, column_0 = np.nonzero(fits[:, without])
        room = gpu[:, None, :] >= profiles.gpu_milli[single][:, None]
        state_1, column_1, slot_1 = np.nonzero(room & first[:, None, :] & fits[:, single, None])
        free = (gpu == WHOLE_GPU).sum(axis=1)
        state_n, column_n = np.nonzero(fits[:, several] & (free[:, None] >= profiles.gpus[several]))
        state = np.concatenate([state_0, state_1, state_n])
        profile = np.concatenate([without[column_0], single[column_1], several[column_n]])
        # The fullest GPUs come first, the free ones last.
        slot_n = gpu.shape[1] - profiles.gpus[several][column_n]
        slot = np.concatenate([np.zeros(len(state_0), dtype=np.int64), slot_1, slot_n])
        return Hostings(state, profile, slot, self._cost(states, state, profile, slot))

    def best(self, states: NodeStates) -> tuple[FloatArray, IntArray]:
        """Least cost of hosting each profile and the slot that has it.

        Returns
        -------
        cost : (S, P) float
            Infinite where a state cannot host the profile.
        slot : (S, P) int
        """
        ways = self.ways(states)
        table = np.full((len(states), len(self.profiles), states.gpu_milli.shape[1]), np.inf)
        table[ways.state, ways.profile, ways.slot] = ways.cost
        slot = table.argmin(axis=2)
        return np.take_along_axis(table, slot[:, :, None], axis=2)[:, :, 0], slot

    def after(self, states: NodeStates, profile: IntArray, slot: IntArray) -> NodeStates:
        """States after each has hosted a task, shapes (S,)."""
        profiles = self.profiles
        place = np.arange(states.gpu_milli.shape[1])
        used = (place >= slot[:, None]) & (place < (slot + profiles.gpus[profile])[:, None])
        gpu = states.gpu_milli - np.where(used, profiles.gpu_milli[profile][:, None], 0)
        return NodeStates(
            states.node,
            states.cpu_milli - profiles.cpu_milli[profile],
            states.memory_mib - profiles.memory_mib[profile],
            np.sort(gpu, axis=1),
        )

    def _cost(self, states: NodeStates, state: IntArray, profile: IntArray, slot: IntArray) -> FloatArray:
        """Cost of ways that are possible, each shape (H,)."""
        power_w = self._power_change_w(states, state, profile, slot)
        fragments = self._fragments_change(states, state, profile, slot)
        return self._per_w * power_w + self._per_fragment * fragments

    def _power_change_w(
        self, states: NodeStates, state: IntArray, profile: IntArray, slot: IntArray
    ) -> IntArray:
        node, power = states.node[state], self._window.power
        cpu_milli = states.cpu_milli[state]
        cpu_w = power.cpu_w(cpu_milli - self.profiles.cpu_milli[profile], node)
        cpu_w -= power.cpu_w(states.cpu_milli, states.node)[state]
        # Either all of the GPUs that a task uses were free before, or it uses one.
        woken = np.where(states.gpu_milli[state, slot] == WHOLE_GPU, self.profiles.gpus[profile], 0)
        change_w: IntArray = cpu_w + self._gpu_w[node] * woken
        return change_w

    def _fragments_change(
        self, states: NodeStates, state: IntArray, profile: IntArray, slot: IntArray
    ) -> IntArray:
        """Change of the scaled fragmentation: of what is free, less of what is useful."""
        tables, gpu, profiles = self._fragmentation, states.gpu_milli, self.profiles
        model = self._model[states.node]
        gpus, milli = profiles.gpus[profile], profiles.gpu_milli[profile]
        rows = tables.rows(model[state], states.cpu_milli[state] - profiles.cpu_milli[profile])
        taken = gpu[state, slot]
        free = (gpu == WHOLE_GPU).sum(axis=1)[state] - np.where(taken == WHOLE_GPU, gpus, 0)
        left = np.where(gpus > 0, taken - milli, taken)
        useful = self._useful_gpus(states, state, rows)
        useful += gpus * (tables.gpu_at(rows, left) - tables.gpu_at(rows, taken))
        useful += tables.free_at(rows, free)
        before = tables.scale * gpu.sum(axis=1) - tables.scaled(model, states.cpu_milli, gpu)
        change: IntArray = before[state] - useful - tables.scale * gpus * milli
        return change

    def _useful_gpus(self, states: NodeStates, state: IntArray, rows: IntArray) -> IntArray:
        """Useful part of all GPUs of `state` by themselves, in these rows of the tables, shape (H,)."""
        # A state meets few rows, and many ways of it share one.
        n_rows = int(np.prod(self._fragmentation.shape))
        pair = state * n_rows + rows
        met = np.zeros(len(states) * n_rows, dtype=bool)
        met[pair] = True
        of_state, row = np.divmod(np.flatnonzero(met), n_rows)
        useful = self._fragmentation.gpu_at(row[:, None], states.gpu_milli[of_state]).sum(axis=1)
        return np.asarray(useful[np.cumsum(met)[pair] - 1])
