"""Worth of free capacity to the tasks still to come, as far as their target workload tells.

* How much of a node's free GPU they can use (`UsableCapacity`). The rest of a GPU is worth what shares fit
  into it, and free GPUs are worth nothing without the CPU that tasks ask for beside them. Both come from
  linear programs over the target workload: the first from the duals of the configuration LP of bin packing
  (Gilmore and Gomory, Operations Research 9, 1961), whose bins are GPUs; the second from the knapsack with
  two resources and one average task.
* What a GPU of each type is worth to what is still to come (`CapacityPrices`).
* What breaking up a whole node costs the tasks that need one (`WholeNodes`).
"""

from __future__ import annotations

import numpy as np

from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TargetWorkload
from wattsched.perfmodels.node_power import NodePower
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

SPREAD = (0.8, 0.9, 1.0, 1.1, 1.2)
"""CPU per GPU of the few tasks that share a node, relative to the mean of the target workload (assumed)."""

_ROUNDING = 1e-9
_MOST_PATTERNS = 1_000
REFUSAL = 2.0
"""Cost of refusing a GPU, relative to the most that one draws: above any reason to refuse."""


class UsableCapacity:
    r"""GPUs that tasks of a target workload can still use on nodes.

    With :math:`v(r)` the worth of a GPU of which r is free (`share_values`), a node with free GPUs
    :math:`r_g` and C free vCPUs has

    .. math:: U = \frac{1}{K} \sum_{k=1}^{K} \min\Big(\sum_g v(r_g),\ \frac{C}{s_k \rho}\Big)

    usable GPUs, where :math:`\rho` is the workload's vCPUs per GPU and :math:`s_k` are the `SPREAD`: the mean
    of a node's few tasks is not the mean of all.

    Parameters
    ----------
    target : TargetWorkload
        Classes with and without GPU; the latter do not count.

    Attributes
    ----------
    share_value : (1001,) float
        Worth of a GPU by its free thousandths.
    cpu_milli_per_gpu : (K,) float
        Thousandths of a vCPU that go with a GPU.
    """

    def __init__(self, target: TargetWorkload):
        demand_milli = int(target.classes.demand_milli @ target.count)
        with_gpu = target.classes.gpus > 0
        cpu_milli = int((target.classes.cpu_milli * target.count)[with_gpu].sum())
        mean = cpu_milli * WHOLE_GPU / demand_milli if demand_milli else 0.0
        # Tasks without any CPU: whatever is left of it is enough.
        self.cpu_milli_per_gpu: FloatArray = np.maximum(np.array(SPREAD) * mean, _ROUNDING)
        shared = with_gpu & (target.classes.gpu_milli < WHOLE_GPU)
        self.share_value = share_values(target.classes.gpu_milli[shared], target.count[shared])

    def gpu_value(self, gpu_free_milli: IntArray) -> FloatArray:
        """Worth of the GPUs of nodes if CPU were plenty; (S, G) free thousandths to (S,)."""
        value: FloatArray = self.share_value[gpu_free_milli].sum(axis=-1)
        return value

    def usable(self, gpu_value: FloatArray, cpu_free_milli: IntArray) -> FloatArray:
        """Usable GPUs; arrays of one shape, which the answer has too."""
        enough = np.asarray(cpu_free_milli)[..., None] / self.cpu_milli_per_gpu
        usable: FloatArray = np.minimum(np.asarray(gpu_value)[..., None], enough).mean(axis=-1)
        return usable


def share_values(sizes_milli: IntArray, count: IntArray) -> FloatArray:
    """Worth of a GPU by its free thousandths: the dual prices of packing shares into the fewest GPUs.

    Parameters
    ----------
    sizes_milli : (M,) int
        Thousandths asked for, below 1000.
    count : (M,) int
        How often.

    Returns
    -------
    (1001,) float
        Rising from 0 to 1; 0 below the smallest share that has a price, 1 for a GPU that is free.
    """
    sizes, kind = np.unique(sizes_milli, return_inverse=True)
    demand: FloatArray = np.bincount(kind.reshape(-1), weights=count, minlength=len(sizes)).astype(float)
    values = np.zeros(WHOLE_GPU + 1)
    if len(sizes):
        # One pattern per size to begin with: as many as fit of it alone.
        patterns = np.diag(WHOLE_GPU // sizes)
        for _ in range(_MOST_PATTERNS):
            values, pattern = _best_packing(sizes, _duals(patterns, demand))
            if values[WHOLE_GPU] <= 1 + _ROUNDING:
                break
            patterns = np.column_stack([patterns, pattern])
    values = np.minimum(values, 1.0)
    values[WHOLE_GPU] = 1.0
    return values


def _duals(patterns: IntArray, demand: FloatArray) -> FloatArray:
    """Dual price of each size where patterns, a column each, cover the demand by the fewest GPUs."""
    from scipy.optimize import linprog

    answer = linprog(np.ones(patterns.shape[1]), A_ub=-patterns, b_ub=-demand, method="highs")
    return np.asarray(-answer.ineqlin.marginals, dtype=float)


def _best_packing(sizes: IntArray, price: FloatArray) -> tuple[FloatArray, IntArray]:
    """Highest price of shares that fit, by free thousandths, and the pattern of a whole GPU."""
    values = np.zeros(WHOLE_GPU + 1)
    last = np.full(WHOLE_GPU + 1, -1)
    for room in range(1, WHOLE_GPU + 1):
        values[room], last[room] = values[room - 1], -1
        fits = sizes <= room
        if fits.any():
            candidates = values[room - sizes[fits]] + price[fits]
            best = int(candidates.argmax())
            if candidates[best] > values[room]:
                values[room], last[room] = candidates[best], best
    pattern = np.zeros(len(sizes), dtype=np.int64)
    room = WHOLE_GPU
    while room > 0:
        if last[room] >= 0:
            # `sizes` ascend, so positions among those that fit are positions among all.
            pattern[last[room]] += 1
            room -= int(sizes[last[room]])
        else:
            room -= 1
    return values, pattern


class CapacityPrices:
    r"""Prices of the GPUs of a cluster: what is left is shared out to what is still to come.

    The tasks to come are sent to types of nodes. With :math:`D_c` GPUs asked for by those of kind c (which
    GPU models are allowed, how many GPUs of one node), :math:`N_t` GPUs left of type t and :math:`w_t` watts
    that a GPU of it draws more when it is in use,

    .. math::
        \min \sum_{c,t} w_t y_{ct} + W \sum_c r_c \quad \text{s.t.}\quad
        \sum_t y_{ct} + r_c = D_c,\quad \sum_c y_{ct} \le N_t,\quad y, r \ge 0,

    where refusing costs W per GPU, twice the highest :math:`w_t`. The dual of a type's capacity is the rent
    of its GPUs. If every task could go anywhere, types would fill in the order of their watts, and a rent
    would be what the next GPU draws more than one of this type. What a rent is above that, using the type
    takes from tasks that depend on it.

    Parameters
    ----------
    nodes : NodeTable
        The cluster.
    power : NodePower
        Power of these nodes.
    target : TargetWorkload
        How the demand divides into kinds of tasks, as long as none has arrived.

    Attributes
    ----------
    refused_w : float
        W.
    """

    def __init__(self, nodes: NodeTable, power: NodePower, target: TargetWorkload):
        kinds = np.stack([nodes.model, nodes.gpus], axis=1)
        self._types, self._type = np.unique(kinds, axis=0, return_inverse=True)
        self._type = self._type.reshape(-1)
        self._models = nodes.models
        self._gpus: FloatArray = np.bincount(self._type, weights=nodes.gpus).astype(float)
        self._watts = np.zeros(len(self._types))
        self._watts[self._type] = power.gpu_full_w - power.gpu_idle_w
        self.refused_w = REFUSAL * float(self._watts.max())
        self._asked_milli: dict[tuple[frozenset[str], int], float] = {}
        classes = target.classes
        for spec, gpus, milli in zip(
            classes.spec, classes.gpus, classes.demand_milli * target.count, strict=True
        ):
            self.count(classes.specs[spec], int(gpus), float(milli))

    def count(self, models: frozenset[str], gpus: int, demand_milli: float) -> None:
        """Expect more of what has arrived: the past counts as much as the target workload's list."""
        if demand_milli:
            kind = models, gpus
            self._asked_milli[kind] = self._asked_milli.get(kind, 0.0) + demand_milli

    def capacity_w(self, demand_gpus: float) -> float:
        """Watts of one more GPU, wherever it is, when the tasks that arrived ask for so many."""
        return self._next_gpu_w(self._gpus, demand_gpus)

    def reserve_w(self, left_gpus: FloatArray, to_come_gpus: float) -> FloatArray:
        """Watts that using a GPU of each node takes from tasks that depend on its type, shape (N,).

        Parameters
        ----------
        left_gpus : (N,) float
            GPUs of each node that are of use.
        to_come_gpus : float
            GPUs that the tasks still to come ask for.
        """
        allowed, share = self._kinds()
        if allowed.all() or to_come_gpus <= 0:
            return np.zeros(len(self._type))
        left: FloatArray = np.bincount(self._type, weights=left_gpus).astype(float)
        anywhere_w = np.maximum(self._next_gpu_w(left, to_come_gpus) - self._watts, 0.0)
        rents_w = self._rents_w(allowed, to_come_gpus * share, left)
        return np.asarray(np.maximum(rents_w - anywhere_w, 0.0)[self._type])

    def _kinds(self) -> tuple[BoolArray, FloatArray]:
        """Mask of types that each kind of tasks may go to, (C, T), and its share of the demand, (C,)."""
        demand: dict[tuple[bool, ...], float] = {}
        for (models, gpus), milli in self._asked_milli.items():
            allowed = tuple(
                bool(size >= gpus and (not models or self._models[model] in models))
                for model, size in self._types
            )
            if any(allowed):
                demand[allowed] = demand.get(allowed, 0.0) + milli
        allowed_of = np.array(list(demand), dtype=bool).reshape(len(demand), len(self._types))
        return allowed_of, np.array(list(demand.values())) / max(1.0, sum(self._asked_milli.values()))

    def _next_gpu_w(self, left: FloatArray, demand_gpus: float) -> float:
        """Watts of the GPU that serves the last of the demand when types fill in the order of their watts."""
        order = np.argsort(self._watts, kind="stable")
        last = int(np.searchsorted(np.cumsum(left[order]), demand_gpus))
        return float(self._watts[order[last]]) if last < len(order) else self.refused_w

    def _rents_w(self, allowed: BoolArray, demand: FloatArray, left: FloatArray) -> FloatArray:
        """Dual prices of the types' capacities in watts per GPU, (T,), at GPUs asked for and left."""
        from scipy.optimize import linprog

        kind, type_ = np.nonzero(allowed)
        kinds, types = np.eye(len(demand)), np.eye(len(left))
        answer = linprog(
            np.concatenate([self._watts[type_], np.full(len(kinds), self.refused_w)]),
            A_eq=np.hstack([kinds[:, kind], kinds]),
            b_eq=demand,
            A_ub=np.hstack([types[:, type_], np.zeros((len(types), len(kinds)))]),
            b_ub=left,
            method="highs",
        )
        return np.asarray(-answer.ineqlin.marginals, dtype=float)


class WholeNodes:
    r"""Rents of the largest nodes for tasks that need all of one: what breaking one up costs them.

    Tasks that ask for as many GPUs as the largest nodes have, k, go to nodes without any work. A node of type
    t gives such a task k GPUs at :math:`w_t` watts each; the cheapest whole nodes are taken first. If N such
    tasks arrive before long, the loss of one node of type t matters when N is not below the number of whole
    nodes that cost no more, and then the last of the N takes the next dearer node, or is refused. So breaking
    it costs

    .. math:: k\,E\big[(W_{N+1} - w_t)^+\big]

    with :math:`W_j` the watts per GPU of the j-th cheapest whole node, the price of refusal beyond the last
    one, and N Poisson distributed.

    Attributes
    ----------
    size : int
        The most GPUs that a node has.
    largest : (N,) bool
        Nodes that have as many.
    """

    def __init__(self, nodes: NodeTable, power: NodePower):
        self.size = int(nodes.gpus.max())
        self.largest: BoolArray = nodes.gpus == self.size
        watts: FloatArray = (power.gpu_full_w - power.gpu_idle_w).astype(float)
        # Distinct watts of a GPU, and which of them each node has.
        self._level_w, self._level = np.unique(watts, return_inverse=True)
        self._level = self._level.reshape(-1)
        self._refused_w = REFUSAL * float(watts.max())

    def rent_w(self, whole: BoolArray, expected: float) -> FloatArray:
        """Watts that breaking a node costs, 0 where it is not whole, shape (N,).

        Parameters
        ----------
        whole : (N,) bool
            Largest nodes without any work on their GPUs.
        expected : float
            Mean number of tasks to arrive before long that need one.
        """
        from scipy.special import pdtrc

        cheaper = np.cumsum(np.bincount(self._level[whole], minlength=len(self._level_w)))
        # The chance that all whole nodes up to a level are needed; each dearer level adds its difference.
        needed = np.where(cheaper > 0, pdtrc(np.maximum(cheaper - 1, 0), expected), 1.0)
        steps = np.diff(np.append(self._level_w, self._refused_w))
        rent = self.size * np.cumsum((needed * steps)[::-1])[::-1]
        return np.where(whole, rent[self._level], 0.0)
