r"""Values of what is left of a node to the tasks to come, by the duals of the configuration LP.

At some demand of the target workload the LP (`configuration_lp`) prices a task of each class at
:math:`\lambda_m` watts: what hosting one more of it costs, or what refusing it does where nothing is left. A
node with f free GPUs and C free vCPUs is then worth what the tasks that still fit there pay above the watts
that they add,

.. math:: \Phi(f, C) = \max_{a} \sum_m \lambda_m a_m - \Delta P(a),

over the patterns a of f GPUs and C vCPUs, which the dynamic programme of the LP's pricing knows for all f and
C at once. A GPU of which r is free, in use anyhow, is worth

.. math:: s(r, C) = \max_{a} \sum_m (\lambda_m - \kappa c_m)\, a_m

over the sets a of shares that fit into it, with the :math:`c_m` vCPUs of each at :math:`\kappa`, the watts of
a package by its vCPUs. A task that completes one of the best patterns takes exactly what it is worth from a
node; others take more. These are bid prices (Talluri and van Ryzin, Management Science 44, 1998), for nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattsched.formulations.placement.configuration_lp import ConfigurationLp
from wattsched.formulations.placement.configuration_pricing import NodePatterns
from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TargetWorkload
from wattsched.perfmodels.node_power import VCPU_PER_CORE, NodePower
from wattsched.topology.arrays import FloatArray, IntArray

MOST_UNITS = 128
"""Units that the CPU of the largest node is divided into: rounding matters less here than in bounds."""
GAP = 0.003
_MOST_KNOWN = 8

_known: dict[bytes, dict[float, FloatArray]] = {}
"""Prices by cluster and workload, and by demand: runs of other seeds ask for the same, in the same order."""


class Left(NamedTuple):
    """Free resources of node states.

    Parameters
    ----------
    nodes : (S,) int
        Positions of the nodes.
    units : (S,) int
        Free CPU, in units of the LP's dynamic programme.
    free_gpus : (S,) int
        GPUs that nothing uses.
    rests : (S, G) int
        Free thousandths of the GPUs in use, 0 for the others.
    """

    nodes: IntArray
    units: IntArray
    free_gpus: IntArray
    rests: IntArray


@dataclass(frozen=True)
class Worth:
    """Watts that what is left of nodes is worth at one demand.

    Parameters
    ----------
    type : (N,) int
        Type of each node.
    of_free : (K, G + 1, U + 1) float
        Worth of so many free GPUs with so much CPU, by node type.
    of_rest : (K, 1001, U + 1) float
        Worth of so much of a GPU in use.
    """

    type: IntArray
    of_free: FloatArray
    of_rest: FloatArray

    def node_w(self, left: Left) -> FloatArray:
        """Worth of nodes in watts, shape (S,)."""
        worth: FloatArray = self.free_w(left) + self.rests_w(left).sum(axis=1)
        return worth

    def free_w(self, left: Left) -> FloatArray:
        """Worth of the free GPUs and the CPU, shape (S,)."""
        return np.asarray(self.of_free[self.type[left.nodes], left.free_gpus, left.units])

    def rests_w(self, left: Left) -> FloatArray:
        """Worth of each GPU in use, shape (S, G)."""
        return np.asarray(self.of_rest[self.type[left.nodes, None], left.rests, left.units[:, None]])


class NodeValues:
    """Worth of nodes to a target workload, at any demand.

    Parameters
    ----------
    nodes : NodeTable
        The cluster.
    power : NodePower
        Power of these nodes.
    target : TargetWorkload
        How the demand divides into classes of tasks.
    refused_w : float
        Cost of refusing a GPU.
    """

    def __init__(self, nodes: NodeTable, power: NodePower, target: TargetWorkload, refused_w: float):
        # One order of the nodes for all runs: the LP must not depend on who wins ties.
        order = np.lexsort([nodes.gpus, nodes.memory_mib, nodes.cpu_milli, nodes.model])
        self._nodes, self._power, self._refused_w = nodes, power, refused_w
        self._lp = ConfigurationLp(nodes.take(order), target.classes, power.take(order), MOST_UNITS)
        self._type = self._lp.types.type_of(nodes, power)
        demand_gpus = float(target.classes.demand_milli @ target.count) / WHOLE_GPU
        self._per_gpu = target.count / max(demand_gpus, 1.0 / WHOLE_GPU)
        self._prices = _prices_known(self._lp, self._per_gpu, refused_w)

    def left(self, nodes: IntArray, cpu_free_milli: IntArray, gpu_free_milli: IntArray) -> Left:
        """Return the free resources of node states; (S,), (S,) and (S, G)."""
        free = gpu_free_milli == WHOLE_GPU
        return Left(nodes, self.units(cpu_free_milli), free.sum(axis=1), np.where(free, 0, gpu_free_milli))

    def units(self, cpu_free_milli: IntArray) -> IntArray:
        """Free CPU in units."""
        return cpu_free_milli // self._lp.pricing.unit

    def at(self, demand_gpus: float) -> Worth:
        """Worth of nodes when the tasks that have arrived ask for so many GPUs."""
        tables = self._lp.pricing.tables(self.prices_w(demand_gpus))
        units = int(self._nodes.cpu_milli.max()) // self._lp.pricing.unit
        free, rest = [], []
        for type_, table in enumerate(tables):
            free.append(self._of_free(type_, table, units))
            rest.append(self._of_rest(type_, table, units))
        return Worth(self._type, np.array(free), np.array(rest))

    def prices_w(self, demand_gpus: float) -> FloatArray:
        """Price of hosting one more task of each of the LP's profiles, in watts, shape (M,)."""
        if demand_gpus not in self._prices:
            arrived = self._per_gpu * demand_gpus
            self._prices[demand_gpus] = self._lp.task_prices_w(arrived, self._refused_w, GAP)
        return self._prices[demand_gpus]

    def _of_free(self, type_: int, table: NodePatterns, units: int) -> FloatArray:
        """Worth in watts by free GPUs and units of CPU, (G + 1, units + 1): the best over active packages."""
        types, pricing = self._lp.types, self._lp.pricing
        gpus, capacity = int(types.nodes.gpus[type_]), int(types.nodes.cpu_milli[type_]) // pricing.unit
        gpu_w = float(types.power.gpu_full_w[type_] - types.power.gpu_idle_w[type_]) * np.arange(gpus + 1)
        most = np.array([table.most(left)[: gpus + 1] for left in range(capacity + 1)]) - gpu_w
        cpu_w = pricing.cpu_w(type_)
        worth = np.zeros((int(types.nodes.gpus.max()) + 1, units + 1))
        for end in pricing.ends(type_):
            # From `used` units to the end of this package.
            used = np.arange(end + 1)
            gain = most[end - used] - (cpu_w[end] - cpu_w[used])[:, None]
            best = worth[: gpus + 1, capacity - used]
            worth[: gpus + 1, capacity - used] = np.maximum(best, gain.T)
        return np.asarray(np.maximum.accumulate(worth, axis=0))

    def _of_rest(self, type_: int, table: NodePatterns, units: int) -> FloatArray:
        """Worth in watts by free thousandths of a GPU in use and free units of CPU, (1001, units + 1)."""
        power, unit = self._lp.types.power, self._lp.pricing.unit
        package_w = float(power.package_full_w[type_] - power.package_idle_w[type_])
        # A unit is so many thousandths of a vCPU, a core two vCPUs.
        unit_w = package_w / (VCPU_PER_CORE * float(power.package_cores[type_])) * unit / 1000
        most = table.most_of_shares()
        worth = np.maximum(np.maximum.accumulate(most - unit_w * np.arange(most.shape[1]), axis=1), 0.0)
        return np.pad(worth, ((0, 0), (0, units + 1)), mode="edge")[:, : units + 1].astype(np.float32)


def _prices_known(lp: ConfigurationLp, per_gpu: FloatArray, refused_w: float) -> dict[float, FloatArray]:
    """Prices by demand that were found of this LP before, which later ones are added to."""
    nodes, profiles, power = lp.types.nodes, lp.profiles, lp.types.power
    arrays: list[NDArray[Any]] = [nodes.cpu_milli, nodes.memory_mib, nodes.gpus, nodes.model, lp.types.count]
    arrays += [power.gpu_full_w, power.package_full_w, lp.pricing.admits, per_gpu, np.array([refused_w])]
    arrays += [profiles.cpu_milli, profiles.memory_mib, profiles.gpus, profiles.gpu_milli]
    key = b"|".join(array.tobytes() for array in arrays)
    if key not in _known and len(_known) >= _MOST_KNOWN:
        del _known[next(iter(_known))]
    return _known.setdefault(key, {})
