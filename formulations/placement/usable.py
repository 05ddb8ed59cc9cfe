"""What is left of a node, in GPUs that the target workload can still use.

The rest of a GPU is worth what shares of the target workload fit into it, and free GPUs are worth nothing
without the CPU that tasks ask for beside them. Both come from linear programs over the target workload: the
first from the duals of the configuration LP of bin packing (Gilmore and Gomory, Operations Research 9, 1961),
whose bins are GPUs; the second from the knapsack with two resources and one average task.
"""

from __future__ import annotations

import numpy as np

from wattsched.instances.placement.tables import WHOLE_GPU, TargetWorkload
from wattsched.topology.arrays import FloatArray, IntArray

SPREAD = (0.8, 0.9, 1.0, 1.1, 1.2)
"""CPU per GPU of the few tasks that share a node, relative to the mean of the target workload (assumed)."""

_ROUNDING = 1e-9
_MOST_PATTERNS = 1_000


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
    """Dual prices of covering the demand by the fewest GPUs, one pattern each."""
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
