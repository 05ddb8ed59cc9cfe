r"""What a GPU is worth when so much has arrived: the dual prices of a transport problem.

The tasks of the target workload are sent to types of nodes. With :math:`D_c` GPUs asked for by the tasks of
kind c (which GPU models are allowed, how many GPUs of one node), :math:`N_t` GPUs of type t and :math:`w_t`
watts that a GPU of it draws more when it is in use,

.. math::
    \min \sum_{c,t} w_t y_{ct} + W \sum_c r_c \quad \text{s.t.}\quad
    \sum_t y_{ct} + r_c = D_c,\quad \sum_c y_{ct} \le N_t,\quad y, r \ge 0,

where refusing costs W per GPU, twice the highest :math:`w_t`. The dual of a type's capacity is the rent of
its GPUs. If every task could go anywhere, types would fill in the order of their watts, and a rent would be
what the next GPU draws more than one of this type. What a rent is above that, using the type takes from tasks
that depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.instances.placement.tables import NodeTable, TargetWorkload
from wattsched.perfmodels.node_power import NodePower
from wattsched.topology.arrays import FloatArray

REFUSAL = 2.0
"""Cost of refusing a GPU, relative to the most that one draws: above any reason to refuse."""


@dataclass(frozen=True)
class Prices:
    """Watts per GPU.

    Parameters
    ----------
    capacity_w : float
        What one more GPU, wherever it is, would save.
    reserve_w : (N,) float
        What using a GPU of a node takes from tasks that depend on its type, 0 if none does.
    """

    capacity_w: float
    reserve_w: FloatArray


class CapacityPrices:
    """Prices of the GPUs of a cluster at any demand.

    Parameters
    ----------
    nodes : NodeTable
        The cluster.
    power : NodePower
        Power of these nodes.
    target : TargetWorkload
        How the demand divides into kinds of tasks.
    """

    def __init__(self, nodes: NodeTable, power: NodePower, target: TargetWorkload):
        kinds = np.stack([nodes.model, nodes.gpus], axis=1)
        types, self._type = np.unique(kinds, axis=0, return_inverse=True)
        self._type = self._type.reshape(-1)
        self._gpus: FloatArray = np.bincount(self._type, weights=nodes.gpus).astype(float)
        self._watts = np.zeros(len(types))
        self._watts[self._type] = power.gpu_full_w - power.gpu_idle_w
        self._refused_w = REFUSAL * float(self._watts.max())
        classes = target.classes
        demand_milli = classes.demand_milli * target.count
        asked: dict[tuple[bool, ...], float] = {}
        for spec, gpus, milli in zip(classes.spec, classes.gpus, demand_milli, strict=True):
            models = classes.specs[spec]
            allowed = tuple(
                bool(size >= gpus and (not models or nodes.models[model] in models)) for model, size in types
            )
            if milli and any(allowed):
                asked[allowed] = asked.get(allowed, 0.0) + float(milli)
        self._allowed = np.array(list(asked), dtype=bool).reshape(len(asked), len(types))
        self._share = np.array(list(asked.values())) / max(1, int(demand_milli.sum()))

    def at(self, demand_gpus: float) -> Prices:
        """Prices when the tasks that arrived ask for so many GPUs."""
        capacity_w = self._next_gpu_w(demand_gpus)
        if self._allowed.all():
            return Prices(capacity_w, np.zeros(len(self._type)))
        anywhere_w = np.maximum(capacity_w - self._watts, 0.0)
        reserve_w = np.maximum(self._rents_w(demand_gpus * self._share) - anywhere_w, 0.0)
        return Prices(capacity_w, reserve_w[self._type])

    def _next_gpu_w(self, demand_gpus: float) -> float:
        """Watts of the GPU that serves the last of the demand when types fill in the order of their watts."""
        order = np.argsort(self._watts, kind="stable")
        last = int(np.searchsorted(np.cumsum(self._gpus[order]), demand_gpus))
        return float(self._watts[order[last]]) if last < len(order) else self._refused_w

    def _rents_w(self, demand: FloatArray) -> FloatArray:
        """Dual prices of the types' capacities."""
        from scipy.optimize import linprog

        kind, type_ = np.nonzero(self._allowed)
        kinds, types = np.eye(len(demand)), np.eye(len(self._gpus))
        answer = linprog(
            np.concatenate([self._watts[type_], np.full(len(kinds), self._refused_w)]),
            A_eq=np.hstack([kinds[:, kind], kinds]),
            b_eq=demand,
            A_ub=np.hstack([types[:, type_], np.zeros((len(types), len(kinds)))]),
            b_ub=self._gpus,
            method="highs",
        )
        return np.asarray(-answer.ineqlin.marginals, dtype=float)
