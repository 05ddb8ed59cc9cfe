"""Best patterns of every node type when tasks and memory have prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from wattsched.formulations.placement.node_patterns import Admitted, NodePatterns, SharePatterns, best_shares
from wattsched.formulations.placement.node_types import NodeTypes
from wattsched.instances.placement.tables import TaskTable
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Patterns:
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

    def take(self, index: IntArray) -> Patterns:
        """Patterns at these positions."""
        return Patterns(*(getattr(self, field.name)[index] for field in fields(self)))

    @staticmethod
    def joined(parts: Sequence[Patterns]) -> Patterns:
        """One after another."""
        return Patterns(
            *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Patterns))
        )


@dataclass(frozen=True)
class Offer:
    """A pattern of a node type and what it costs: power and memory less the price of its tasks."""

    cost_w: float
    type: int
    table: NodePatterns
    gpus: int
    units: int


class PatternPricing:
    """The pricing problem of the configuration LP.

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
        Profiles that patterns hold. The others have no GPU and less CPU than a unit: any number of them is
        taken to fit anywhere, which only weakens bounds.
    admits : (K, M) bool
        Which types can run a task of each profile.
    """

    def __init__(self, types: NodeTypes, profiles: TaskTable, most_units: int):
        self._types, self._profiles = types, profiles
        self._unit = _unit(profiles.cpu_milli, int(types.nodes.cpu_milli.max()), most_units)
        self._units = profiles.cpu_milli // self._unit
        self.packed: BoolArray = (profiles.gpus > 0) | (self._units > 0)
        self.admits = types.admits(profiles)
        kinds, kind = np.unique(self.admits & self.packed, axis=0, return_inverse=True)
        self._kind = kind.reshape(-1)
        self._admitted = [self._admitted_by(row, self._kind == k) for k, row in enumerate(kinds)]
        self._ends = [self._last_units(type_) for type_ in range(len(types))]

    def _admitted_by(self, admits: BoolArray, types: BoolArray) -> Admitted:
        nodes = self._types.nodes
        return Admitted(
            profiles=self._profiles,
            index=np.flatnonzero(admits).astype(np.int64),
            cpu_units=self._units,
            most_units=int(nodes.cpu_milli[types].max()) // self._unit,
            most_gpus=int(nodes.gpus[types].max()),
        )

    def _last_units(self, type_: int) -> list[int]:
        """Most CPU that a node can use at each level of CPU power."""
        used = np.arange(self._types.nodes.cpu_milli[type_] // self._unit + 1)
        power_w = self._power_w(np.full(len(used), type_), used, 0 * used)
        last: list[int] = np.flatnonzero(np.append(np.diff(power_w) > 0, True)).tolist()
        return last

    def _power_w(self, type_: IntArray, units: IntArray, gpus: IntArray) -> FloatArray:
        nodes, power = self._types.nodes, self._types.power
        free_milli = nodes.cpu_milli[type_] - units * self._unit
        return power.node_w(free_milli, nodes.gpus[type_] - gpus, type_).astype(np.float64)

    def best(
        self, profile_w: FloatArray, memory_w: FloatArray, weight: float, per_type: int
    ) -> tuple[FloatArray, list[Offer]]:
        """Least cost of a pattern of each type, shape (K,), and the patterns that cost least.

        Parameters
        ----------
        profile_w : (M,) float
            Price of a hosted task.
        memory_w : (K,) float
            Price of a MiB of each type.
        weight : float
            Of the power.
        per_type : int
            Offers per type.
        """
        least = np.zeros(len(self._types))
        offers: list[Offer] = []
        tables: dict[tuple[int, float], NodePatterns] = {}
        shares: dict[bytes, SharePatterns] = {}
        # Large nodes first: their tables of shares serve small ones.
        for type_ in np.argsort(-self._types.nodes.cpu_milli, kind="stable").tolist():
            kind, memory = int(self._kind[type_]), float(memory_w[type_])
            if (kind, memory) not in tables:
                value = profile_w - memory * self._profiles.memory_mib
                tables[kind, memory] = self._table(self._admitted[kind], value, shares)
            cheapest = sorted(self._offers(type_, tables[kind, memory], weight), key=lambda o: o.cost_w)
            least[type_] = cheapest[0].cost_w
            offers += cheapest[:per_type]
        return least, offers

    def _table(
        self, admitted: Admitted, value: FloatArray, known: dict[bytes, SharePatterns]
    ) -> NodePatterns:
        shares = best_shares(admitted, value)
        key = shares.tobytes() + value[shares].tobytes()
        if key not in known:
            known[key] = SharePatterns(admitted, shares, value)
        return NodePatterns(admitted, value, known[key])

    def _offers(self, type_: int, table: NodePatterns, weight: float) -> list[Offer]:
        gpus = np.arange(self._types.nodes.gpus[type_] + 1)
        offers = []
        for units in self._ends[type_]:
            power_w = self._power_w(np.full(len(gpus), type_), np.full(len(gpus), units), gpus)
            cost_w = weight * power_w - table.most(units)[: len(gpus)]
            offers += [Offer(cost, type_, table, g, units) for g, cost in enumerate(cost_w.tolist())]
        return offers

    def patterns(self, offers: Sequence[Offer]) -> Patterns:
        """Work offered patterns out."""
        found = [offer.table.pattern(offer.gpus, offer.units) for offer in offers]
        type_ = np.array([offer.type for offer in offers], dtype=np.int64)
        hosted = np.array([tasks for tasks, _gpus in found], dtype=np.int64).reshape(-1, len(self._profiles))
        gpus = np.array([gpus for _tasks, gpus in found], dtype=np.int64)
        power_w = self._power_w(type_, hosted @ self._units, gpus)
        return Patterns(type_, hosted, gpus, power_w, (hosted @ self._profiles.memory_mib).astype(np.float64))


def _unit(cpu_milli: IntArray, capacity_milli: int, most_units: int) -> int:
    """Unit of CPU that rounds requests down the least, out of those that are not too fine."""
    exact = int(np.gcd.reduce(cpu_milli))
    if exact == 0 or capacity_milli // exact <= most_units:
        return max(exact, 1)
    finest = -(-capacity_milli // most_units)
    units = np.arange(finest, 2 * finest)
    lost = (cpu_milli[:, None] % units).sum(axis=0)
    return int(units[np.argmin(lost)])
