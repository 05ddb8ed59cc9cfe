r"""What free CPU and free GPU are worth to the tasks still to come: duals of the configuration LP, unbundled.

The LP for an expected demand prices whole tasks: lambda_m is what hosting one more task of profile m costs
when everything is placed as well as can be, and so what room for it is worth. On a node of type k, with a
rent of pi_k per vCPU on top of the power rho_k of its CPU packages per vCPU, GPUs can be valued one by one:

.. math::
    S_k(r) = \max \sum_m a_m \bigl(\lambda_m - (\rho_k + \pi_k) c_m\bigr) \quad\text{s.t.}\quad
    \sum_m a_m d_m \le r

over the shares of d_m thousandths that the type admits is the worth of what is free of a GPU that runs
already. One that is free as a whole is worth the best of S_k(1000) and of tasks with whole GPUs, less what it
draws more than idle. The rent is the one that makes an empty node worth least, out of those at which no task
without GPU earns anything: at all of them, its worth is at least what its best pattern earns.

A task then bids lambda_m for a place, and a place asks for the power that it really draws more, the rent of
the CPU, and the worth that the GPU loses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.placement.node_types import NodeTypes
from wattsched.instances.placement.tables import WHOLE_GPU, TaskTable
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

SEARCH_STEPS = 40
NARROWER = 2 / 3


@dataclass(frozen=True)
class BidPrices:
    """Worth of what is free, in watts, by node type.

    Parameters
    ----------
    task : (M,) float
        Per task of each profile: its bid.
    vcpu : (K,) float
        Rent of a vCPU.
    share : (K, 1001) float
        Of a GPU that runs already, by the thousandths of it that are free.
    gpu : (K,) float
        Of a GPU that is free as a whole.
    """

    task: FloatArray
    vcpu: FloatArray
    share: FloatArray
    gpu: FloatArray

    def node_worth(self, types: NodeTypes) -> FloatArray:
        """Worth of an empty node of each type, shape (K,)."""
        vcpus = types.nodes.cpu_milli / 1000
        return np.asarray(self.vcpu * vcpus + self.gpu * types.nodes.gpus)


def bid_prices(types: NodeTypes, profiles: TaskTable, task_w: FloatArray) -> BidPrices:
    """Unbundle prices of tasks into those of CPU and GPU.

    Parameters
    ----------
    types : NodeTypes
        K node types.
    profiles : TaskTable
        M profiles.
    task_w : (M,) float
        Price of a task of each profile, such as ``prices.profile`` of a `PatternBound`.
    """
    admits = types.admits(profiles) & (task_w > 0)
    valued = [_TypeWorth(types, type_, profiles, task_w, admits[type_]) for type_ in range(len(types))]
    rents = np.array([worth.best_rent_w() for worth in valued])
    shares = np.array([worth.share_w(rent) for worth, rent in zip(valued, rents, strict=True)])
    gpus = [worth.gpu_w(share, rent) for worth, share, rent in zip(valued, shares, rents, strict=True)]
    return BidPrices(task_w, rents, shares, np.array(gpus))


class _TypeWorth:
    """Worth of CPU and GPU of one node type at any rent of CPU."""

    def __init__(
        self, types: NodeTypes, type_: int, profiles: TaskTable, task_w: FloatArray, admits: BoolArray
    ):
        power = types.power
        per_package = power.package_full_w[type_] - power.package_idle_w[type_]
        self._vcpu_power_w = float(per_package / (2 * power.package_cores[type_]))
        self._gpu_power_w = float(power.gpu_full_w[type_] - power.gpu_idle_w[type_])
        self._vcpus = float(types.nodes.cpu_milli[type_] / 1000)
        self._gpus = int(types.nodes.gpus[type_])
        self._task_w, self._task_vcpus = task_w, profiles.cpu_milli / 1000
        self._asked, self._milli = profiles.gpus, profiles.gpu_milli
        index = np.flatnonzero(admits)
        shared = profiles.gpu_milli[index] < WHOLE_GPU
        self._without = index[(profiles.gpus[index] == 0) & (profiles.cpu_milli[index] > 0)]
        self._shares = index[(profiles.gpus[index] == 1) & shared]
        self._whole = index[(profiles.gpus[index] > 0) & ~shared]

    def best_rent_w(self) -> float:
        """Rent at which an empty node is worth least: it is convex in the rent."""
        least = max((self._task_w / np.maximum(self._task_vcpus, 1e-9))[self._without], default=0.0)
        low = max(0.0, float(least) - self._vcpu_power_w)
        using = self._task_vcpus > 0
        high = max(low, float(np.max(self._task_w[using] / self._task_vcpus[using], initial=0.0)))
        for _step in range(SEARCH_STEPS):
            left, right = high - (high - low) * NARROWER, low + (high - low) * NARROWER
            if self._node_w(left) <= self._node_w(right):
                high = right
            else:
                low = left
        return low

    def _node_w(self, rent: float) -> float:
        return rent * self._vcpus + self._gpus * self.gpu_w(self.share_w(rent), rent)

    def _earns_w(self, tasks: IntArray, rent: float) -> FloatArray:
        vcpu_w = self._vcpu_power_w + rent
        return np.asarray(self._task_w[tasks] - vcpu_w * self._task_vcpus[tasks])

    def gpu_w(self, share_w: FloatArray, rent: float) -> float:
        """Worth of a free GPU."""
        per_gpu = self._earns_w(self._whole, rent) / self._asked[self._whole]
        best = max(float(share_w[-1]), float(np.max(per_gpu, initial=0.0)))
        return max(0.0, best - self._gpu_power_w)

    def share_w(self, rent: float) -> FloatArray:
        """Worth of each number of free thousandths of a GPU, shape (1001,)."""
        earned = self._earns_w(self._shares, rent)
        tasks, earned = self._shares[earned > 0], earned[earned > 0]
        step = int(np.gcd.reduce(self._milli[tasks], initial=WHOLE_GPU))
        weight = self._milli[tasks] // step
        best = np.zeros(WHOLE_GPU // step + 1)
        for steps in range(1, len(best)):
            fits = weight <= steps
            best[steps] = max(np.max(best[steps - weight[fits]] + earned[fits], initial=0.0), best[steps - 1])
        worth: FloatArray = best[np.arange(WHOLE_GPU + 1) // step]
        return worth
