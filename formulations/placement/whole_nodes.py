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

from wattsched.formulations.placement.capacity_prices import REFUSAL
from wattsched.instances.placement.tables import NodeTable
from wattsched.perfmodels.node_power import NodePower
from wattsched.topology.arrays import BoolArray, FloatArray


class WholeNodes:
    """Rents of the largest nodes for tasks that need all of one.

    Parameters
    ----------
    nodes : NodeTable
        The cluster.
    power : NodePower
        Power of these nodes.

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
