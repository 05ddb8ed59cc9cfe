"""Prices of the configuration LP, and the bound that any prices prove.

Nodes that are equal in everything but their name are of one type.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from wattsched.formulations.placement.fragmentation import allowed
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.perfmodels.node_power import NodePower, node_power
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

TOTALS = 3
ROUNDING = 1e-9
"""Relative allowance for the rounding of sums in floating point, far above what it can be."""


@dataclass(frozen=True)
class NodeTypes:
    """Distinct nodes of a cluster.

    Parameters
    ----------
    nodes : NodeTable
        One node of each of the K types.
    power : NodePower
        Power of these nodes.
    count : (K,) int
        Nodes of each type.
    """

    nodes: NodeTable
    power: NodePower
    count: IntArray

    def __len__(self) -> int:
        return len(self.count)

    def most_power_w(self) -> float:
        """Watts of the cluster when everything is busy."""
        nothing = np.zeros(len(self), dtype=np.int64)
        return float(self.count @ self.power.node_w(nothing, nothing))

    def admits(self, profiles: TaskTable) -> BoolArray:
        """Which types can run each of M tasks when nothing else is on the node, shape (K, M)."""
        nodes = self.nodes
        admits = allowed(profiles, nodes.models)[:, nodes.model].T | (profiles.gpus == 0)
        for capacity, request in (
            (nodes.cpu_milli, profiles.cpu_milli),
            (nodes.memory_mib, profiles.memory_mib),
            (nodes.gpus, profiles.gpus),
        ):
            admits &= request <= capacity[:, None]
        return np.asarray(admits)


def node_types(nodes: NodeTable, power: NodePower | None = None) -> NodeTypes:
    """Group nodes by capacity, GPU model and power.

    Parameters
    ----------
    nodes : NodeTable
    power : NodePower, optional
        Power of the nodes; by `wattsched.perfmodels.node_power.node_power` without it.

    Raises
    ------
    ValueError
        If the power of a GPU model is unknown.
    """
    if power is None:
        power = node_power(nodes.cpu_milli, nodes.gpus, [nodes.models[m] for m in nodes.model])
    of_power = (getattr(power, field.name) for field in fields(power))
    rows = np.stack([nodes.cpu_milli, nodes.memory_mib, nodes.model, *of_power], axis=1)
    _types, first, count = np.unique(rows, axis=0, return_index=True, return_counts=True)
    return NodeTypes(nodes.take(first), power.take(first), count.astype(np.int64))


def sizes(profiles: TaskTable) -> FloatArray:
    """GPUs and vCPUs that one task of each profile asks for, and 1, shape (3, M)."""
    each = [profiles.demand_milli / 1000, profiles.cpu_milli / 1000, np.ones(len(profiles))]
    return np.array(each, dtype=np.float64)


@dataclass(frozen=True)
class Objective:
    """Cost of a placement: its power times a weight, less watts per GPU that the accepted tasks ask for."""

    weight: float = 1.0
    gpu_reward_w: float = 0.0


@dataclass(frozen=True)
class Accepted:
    """What a placement hosts of the tasks that have arrived.

    Parameters
    ----------
    least, most : (M,) float
        Tasks of each profile.
    totals : (3,) float
        GPUs and vCPUs that the hosted tasks ask for together, and their number: at least that much.
    """

    least: FloatArray
    most: FloatArray
    totals: FloatArray

    def only(self, profiles: BoolArray) -> Accepted:
        """Accept none of the other profiles."""
        return replace(self, least=self.least * profiles, most=self.most * profiles)


@dataclass(frozen=True)
class Prices:
    """Duals of the configuration LP in watts, all at least 0 but those of nodes.

    Parameters
    ----------
    profile : (M,) float
        Per hosted task.
    total : (3,) float
        Per GPU and per vCPU that the hosted tasks ask for together, and per task.
    memory : (K,) float
        Per MiB of the nodes of each type.
    node : (K,) float
        Least cost of a pattern of each type: its power, and its memory at its price, less the price of the
        tasks that it hosts.
    """

    profile: FloatArray
    total: FloatArray
    memory: FloatArray
    node: FloatArray

    def bound_w(
        self, types: NodeTypes, profiles: TaskTable, accepted: Accepted, objective: Objective
    ) -> float:
        """Cost that no placement of these tasks on the cluster can be below.

        With x_p the nodes that carry pattern p, a_pm the tasks of profile m in it, q_m the accepted tasks and
        s_rm their sizes, any placement, whenever and in whichever order it was decided, satisfies ::

            sum over p of a_pm x_p  >= q_m           sum over patterns p of type k of x_p        =  N_k
            sum over m of s_rm q_m  >= totals_r      sum over patterns p of type k of mem_p x_p  <=  N_k MEM_k
            least_m <= q_m <= most_m

        Take from its cost what it has too much of, at prices that are at least 0: what remains is no more
        than the cost, and falls apart into profiles and types ::

            cost >= sum_r total_r totals_r + sum_k N_k (node_k - memory_k MEM_k)
                    + sum_m min over q in [least_m, most_m] of q (profile_m - sum_r total_r s_rm)
            node_k = min over patterns p of type k of power_p + memory_k mem_p - sum_m profile_m a_pm

        or anything below that minimum. No step needs the prices to be optimal. For fixed prices the right
        side is linear in (totals, least, most) together, so what it says about the means of these over
        several runs is true of the mean of their costs; the best such bound, a maximum of linear functions,
        is convex (Jensen: at the means it is no more than the mean of the single bounds).

        Parameters
        ----------
        types : NodeTypes
            The K types.
        profiles : TaskTable
            The M profiles.
        accepted : Accepted
        objective : Objective
            That of the patterns' minima in `node`. Its reward counts as a part of the price of GPUs.

        Returns
        -------
        float
            Infinite if above the cost of the busiest cluster: then no placement accepts what it must.
        """
        left = self.profile - self.total @ sizes(profiles)
        beyond_reward = self.total - np.array([objective.gpu_reward_w, 0.0, 0.0])
        terms = np.concatenate(
            [
                beyond_reward * accepted.totals,
                types.count * self.node,
                -types.count * types.nodes.memory_mib * self.memory,
                np.where(left > 0, accepted.least, accepted.most) * left,
            ]
        )
        bound_w = float(terms.sum() - ROUNDING * np.abs(terms).sum())
        return np.inf if bound_w > objective.weight * types.most_power_w() else bound_w
