r"""A window in arrays: its nodes in the states that tell them apart, and what it costs them to host tasks.

Two GPUs of a node with as much free are the same choice, nodes in the same state are one class, and tasks
with the same request are one profile. Changes of power and fragmentation are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wattsched.formulations.placement.fragmentation import Fragmentation, allowed
from wattsched.instances.placement.instance import PlacementInstance, Request
from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TargetWorkload, TaskTable
from wattsched.perfmodels.node_power import VCPU_PER_CORE, NodePower
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, Table


@dataclass(frozen=True)
class Window:
    r"""Tasks to place at once on the nodes' current state, and what counts.

    To minimise, over the changes :math:`\Delta P` of power and :math:`\Delta F` of fragmentation of all nodes
    and the waiting tasks :math:`Q`, among those that fit on some node as it is now:

    .. math::
        \alpha\,\Delta P + \beta\,\Delta F + \sum_{t \in Q} w_t

    Attributes
    ----------
    instance : PlacementInstance
    nodes : NodeTable
        N nodes.
    power : NodePower
        Of the same nodes.
    target : TargetWorkload
        Classes of tasks that fragmentation is measured by.
    cpu_free_milli, memory_free_mib : (N,) int
        Free thousandths of a vCPU, and MiB.
    gpu_free_milli : (N, G) int
        Free thousandths of each GPU, 0 beyond the node's last.
    tasks : TaskTable
        T tasks in the order of their arrival.
    per_w, per_milli : float
        alpha and beta: what a watt counts as, and a thousandth of a GPU of fragmentation.
    waiting : (T,) float
        w, for tasks that fit somewhere.
    """

    instance: PlacementInstance
    nodes: NodeTable
    power: NodePower
    target: TargetWorkload
    cpu_free_milli: IntArray
    memory_free_mib: IntArray
    gpu_free_milli: IntArray
    tasks: TaskTable
    per_w: float
    per_milli: float
    waiting: FloatArray

    @property
    def profile(self) -> IntArray:
        """Profile of each task, shape (T,)."""
        _, profile = self.tasks.profiles
        return profile

    @property
    def demand(self) -> IntArray:
        """Tasks of each of P profiles, shape (P,)."""
        return np.bincount(self.profile)

    @cached_property
    def hosting(self) -> Hosting:
        """Costs of hosting the tasks."""
        return Hosting(self)

    @cached_property
    def limited(self) -> dict[str, tuple[float, Window]]:
        """Limits on other objectives by name, each with the window in which that one counts."""
        instance = self.instance
        return {
            name: (limit, window_of(instance.model_copy(update={"objective": name})))
            for name, limit in instance.budgets.objectives.items()
        }

    @cached_property
    def classes(self) -> NodeClasses:
        """Classes of nodes that could host a task."""
        classes = NodeClasses.of(self)
        return classes.take(np.flatnonzero(self.hosting.possible(classes.states).any(axis=1)))

    @cached_property
    def worth(self) -> FloatArray:
        """Cost of not hosting a task of each profile, 0 where it fits nowhere, shape (P,)."""
        worth = np.zeros(len(self.demand))
        worth[self.profile] = self.waiting
        return np.where(self.hosting.possible(self.classes.states).any(axis=0), worth, 0.0)


def window_of(instance: PlacementInstance) -> Window:
    """Arrays of a valid instance, with what a watt, a fragment and a waiting task count in its objective."""
    nodes, columns = instance.nodes, max(1, *(node.gpus for node in instance.nodes))
    models = tuple(dict.fromkeys(node.gpu_type or "" for node in nodes))
    gpus, cpus = list(map(instance.gpu_type_of, nodes)), list(map(instance.cpu_type_of, nodes))
    cpu_milli = _ints(node.cpu_milli for node in nodes)
    free = np.zeros((len(nodes), columns), dtype=np.int64)
    for row, node in zip(free, nodes, strict=True):
        row[: node.gpus] = node.free_gpu_milli
    table = NodeTable(
        names=tuple(node.name for node in nodes),
        cpu_milli=cpu_milli,
        memory_mib=_ints(node.memory_mib for node in nodes),
        gpus=_ints(node.gpus for node in nodes),
        model=_ints(models.index(node.gpu_type or "") for node in nodes),
        models=models,
    )
    power = NodePower(
        gpus=table.gpus,
        gpu_idle_w=_ints(gpu.idle_power_w for gpu in gpus),
        gpu_full_w=_ints(gpu.full_power_w for gpu in gpus),
        cores=-(-cpu_milli // (1000 * VCPU_PER_CORE)),
        package_cores=_ints(cpu.cores for cpu in cpus),
        package_idle_w=_ints(cpu.idle_power_w for cpu in cpus),
        package_full_w=_ints(cpu.full_power_w for cpu in cpus),
    )
    usual = instance.usual_tasks()
    classes = _task_table(usual, _ints(0 for _ in usual))
    tasks = _task_table(instance.tasks, _ints(task.memory_mib for task in instance.tasks))
    per_task, per_gpu = instance.waiting_rates_w()
    waiting_w = per_task + per_gpu * tasks.demand_milli / WHOLE_GPU
    per_gpu_w = instance.fragmentation_w_per_gpu
    per_milli = {"power": 0.0, "fragmentation": 1.0 / WHOLE_GPU}
    return Window(
        instance=instance,
        nodes=table,
        power=power,
        target=TargetWorkload(classes, _ints(each.count for each in usual)),
        cpu_free_milli=cpu_milli - _ints(node.used_cpu_milli for node in nodes),
        memory_free_mib=table.memory_mib - _ints(node.used_memory_mib for node in nodes),
        gpu_free_milli=free,
        tasks=tasks,
        per_w=0.0 if instance.objective == "fragmentation" else 1.0,
        per_milli=per_milli.get(instance.objective, per_gpu_w / WHOLE_GPU),
        waiting=waiting_w / (per_gpu_w if instance.objective == "fragmentation" else 1.0),
    )


def _task_table(requests: Sequence[Request], memory_mib: IntArray) -> TaskTable:
    """Table of requests; those without GPUs ask for no model and no share."""
    specs: dict[frozenset[str], int] = {frozenset(): 0}
    spec = [specs.setdefault(frozenset(each.gpu_types if each.gpus else ()), len(specs)) for each in requests]
    return TaskTable(
        cpu_milli=_ints(each.cpu_milli for each in requests),
        memory_mib=memory_mib,
        gpus=_ints(each.gpus for each in requests),
        gpu_milli=_ints(each.gpu_milli if each.gpus else 0 for each in requests),
        spec=_ints(spec),
        specs=tuple(specs),
    )


def _ints(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)


@dataclass(frozen=True)
class NodeStates(Table):
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


@dataclass(frozen=True)
class NodeClasses:
    """Classes of nodes that are equal now.

    Attributes
    ----------
    states : NodeStates
        State of each of C classes.
    members : tuple of C int arrays
        Positions of the nodes of each class, in order.
    """

    states: NodeStates
    members: tuple[IntArray, ...]

    @cached_property
    def count(self) -> IntArray:
        """Nodes of each class, shape (C,)."""
        return _ints(len(nodes) for nodes in self.members)

    def take(self, index: IntArray) -> NodeClasses:
        """Classes at these positions."""
        return NodeClasses(self.states.take(index), tuple(self.members[cls] for cls in index))

    @classmethod
    def of(cls, window: Window) -> NodeClasses:
        """Collapse the nodes of a window, the classes in the order of their first node."""
        # Memory counts only as far as the window's tasks could use it.
        memory_mib = np.minimum(window.memory_free_mib, window.tasks.memory_mib.sum())
        gpu_milli = np.sort(window.gpu_free_milli, axis=1)
        power = (getattr(window.power, field.name) for field in fields(window.power))
        rows = [window.nodes.model, *power, window.cpu_free_milli, memory_mib, *gpu_milli.T]
        _rows, first, kind = np.unique(np.stack(rows, axis=1), axis=0, return_index=True, return_inverse=True)
        order = np.argsort(kind.reshape(-1), kind="stable")
        members = np.split(order, np.cumsum(np.bincount(kind.reshape(-1)))[:-1])
        states = NodeStates(first, window.cpu_free_milli[first], memory_mib[first], gpu_milli[first])
        return cls(states, tuple(members)).take(np.argsort(first))


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

    A state hosts a task of one GPU in as many ways as it has different GPUs with room.

    Attributes
    ----------
    profiles : TaskTable
        P distinct requests of the tasks.
    allowed : (P, models) bool
        GPU models on which each of them may run.
    fragmentation : Fragmentation
    per_fragment : float
        What a unit of the scaled fragmentation counts as.
    gpu_w : (N,) int
        Watts that a GPU of each node draws more in use.
    """

    def __init__(self, window: Window):
        profiles, _ = window.tasks.profiles
        self.profiles = profiles
        self._window, self._model = window, window.nodes.model
        models, gpus = window.nodes.models, window.gpu_free_milli.shape[1]
        self.fragmentation = Fragmentation(window.target, models, gpus)
        self.allowed = allowed(profiles, models) | (profiles.gpus == 0)[:, None]
        self.per_fragment = window.per_milli / self.fragmentation.scale
        self.gpu_w = window.power.gpu_full_w - window.power.gpu_idle_w

    def ways(self, states: NodeStates) -> Hostings:
        """All ways of these states to host one task of each profile."""
        profiles, gpu = self.profiles, states.gpu_milli
        fits = states.cpu_milli[:, None] >= profiles.cpu_milli
        fits &= states.memory_mib[:, None] >= profiles.memory_mib
        fits &= self.allowed[:, self._model[states.node]].T
        # Of GPUs with as much free only the first is a way.
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
        return Hostings(state, profile, slot, self.cost(states, state, profile, slot))

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

    def possible(self, states: NodeStates) -> BoolArray:
        """Mask of the profiles that each state can host one more of, shape (S, P)."""
        cost, _ = self.best(states)
        return np.isfinite(cost)

    def after(self, states: NodeStates, profile: IntArray, slot: IntArray) -> NodeStates:
        """States after each has hosted a task of a profile, (S,), on the GPUs from a slot on, (S,)."""
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

    def cost(self, states: NodeStates, state: IntArray, profile: IntArray, slot: IntArray) -> FloatArray:
        """Cost of ways that are possible, each shape (H,).

        Of power, and of the scaled fragmentation: what is free, less what is useful.
        """
        tables, power = self.fragmentation, self._window.power
        gpu, profiles = states.gpu_milli, self.profiles
        gpus, milli = profiles.gpus[profile], profiles.gpu_milli[profile]
        cpu_left = states.cpu_milli[state] - profiles.cpu_milli[profile]
        taken, node = gpu[state, slot], states.node[state]
        # Either all of the GPUs that a task uses were free before, or it uses one.
        woken = np.where(taken == WHOLE_GPU, gpus, 0)
        power_w = power.cpu_w(cpu_left, node) - power.cpu_w(states.cpu_milli, states.node)[state]
        power_w += self.gpu_w[node] * woken
        model = self._model[states.node]
        rows = tables.rows(model[state], cpu_left)
        useful = self._useful_gpus(states, state, rows)
        left = np.where(gpus > 0, taken - milli, taken)
        useful += gpus * (tables.gpu_at(rows, left) - tables.gpu_at(rows, taken))
        useful += tables.free_at(rows, (gpu == WHOLE_GPU).sum(axis=1)[state] - woken)
        before = tables.scale * gpu.sum(axis=1) - tables.scaled(model, states.cpu_milli, gpu)
        fragments = before[state] - useful - tables.scale * gpus * milli
        return np.asarray(self._window.per_w * power_w + self.per_fragment * fragments)

    def _useful_gpus(self, states: NodeStates, state: IntArray, rows: IntArray) -> IntArray:
        """Scaled useful part of each GPU of `state`, in these rows of the tables, summed; shape (H,)."""
        # A state meets few rows, and many ways of it share one: each pair is summed up once.
        n_rows = int(np.prod(self.fragmentation.shape))
        pair = state * n_rows + rows
        met = np.zeros(len(states) * n_rows, dtype=bool)
        met[pair] = True
        of_state, row = np.divmod(np.flatnonzero(met), n_rows)
        useful = self.fragmentation.gpu_at(row[:, None], states.gpu_milli[of_state]).sum(axis=1)
        return np.asarray(useful[np.cumsum(met)[pair] - 1])
