r"""What breaking up a whole node costs the tasks that need one.

Tasks that ask for as many GPUs as the largest nodes have, k, go to nodes without any work. A node of type t
gives such a task k GPUs at :math:`w_t` watts each; the cheapest whole nodes are taken first. If N such tasks
arrive before long, the loss of one node of type t matters when N is not below the number of whole nodes that
cost no more, and then the last of the N takes the next dearer node, or is refused. So breaking it costs

.. math:: k\,E\big[(W_{N+1} - w_t)^+\big]

with :math:`W_j` the watts per GPU of the j-th cheapest whole node, the price of refusal beyond the last one,
and N Poisson distributed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattsched.formulations.placement.capacity_prices import REFUSAL
from wattsched.instances.target import TargetWorkload
from wattsched.instances.tasks import WHOLE_GPU, NodeTable
from wattsched.perfmodels.node_power import NodePower

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class WholeNodes:
    """Rents of the largest nodes for tasks that need all of one.

    Parameters
    ----------
    nodes : NodeTable
        The cluster.
    power : NodePower
        Power of these nodes.
    target : TargetWorkload
        How frequent tasks are that need a whole node.

    Attributes
    ----------
    largest : (N,) bool
        Nodes with the most GPUs.
    """

    def __init__(self, nodes: NodeTable, power: NodePower, target: TargetWorkload):
        self._gpus = int(nodes.gpus.max())
        self.largest: Mask = nodes.gpus == self._gpus
        watts: Floats = (power.gpu_full_w - power.gpu_idle_w).astype(float)
        self._level_w, self._level = np.unique(watts, return_inverse=True)
        self._level = self._level.reshape(-1)
        self._refused_w = REFUSAL * float(watts.max())
        classes = target.classes
        needing = int(target.count[classes.gpus == self._gpus].sum()) if self._gpus > 1 else 0
        demand_milli = int(classes.demand_milli @ target.count)
        self._per_gpu = needing * WHOLE_GPU / demand_milli if demand_milli else 0.0

    def rent_w(self, whole: Mask, ahead_gpus: float) -> Floats:
        """Watts that breaking a node costs, 0 where it is not whole, shape (N,).

        Parameters
        ----------
        whole : (N,) bool
            Largest nodes without any work on their GPUs.
        ahead_gpus : float
            GPUs that the tasks ask for which arrive before long.
        """
        if self._per_gpu == 0:
            return np.zeros(len(whole))
        from scipy.stats import poisson

        cheaper = np.cumsum(np.bincount(self._level[whole], minlength=len(self._level_w)))
        # The chance that all whole nodes up to a level are needed; each dearer level adds its difference.
        needed = poisson.sf(cheaper - 1, self._per_gpu * ahead_gpus)
        steps = np.diff(np.append(self._level_w, self._refused_w))
        rent = self._gpus * np.cumsum((needed * steps)[::-1])[::-1]
        return np.where(whole, rent[self._level], 0.0)
