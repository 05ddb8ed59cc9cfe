"""Bounds along the arrivals: what `bound` says at every point of a grid, in the mean over runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from wattsched.formulations.placement.bound import Hosted, PlacementBounds
from wattsched.formulations.placement.configuration_lp import GAP
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.perfmodels.node_power import NodePower
from wattsched.topology.arrays import FloatArray, IntArray

EVERY = 5
SAFE = 1 - 1e-9
"""Measured means carry rounding errors, and a bound must not ask for more than there was."""


def mean_arrived(
    tasks: TaskTable, orders: Sequence[IntArray], grid: ArrayLike, capacity_milli: int
) -> FloatArray:
    """Count the tasks of each profile that have arrived at each point, in the mean over some orders.

    Parameters
    ----------
    tasks : TaskTable
        The list; its profiles are counted.
    orders : sequence of (A,) int
        Positions of the arriving tasks in the list.
    grid : (X,) float
        GPU asked for so far, as a part of the capacity. At a point, as many tasks have arrived as ask for no
        more than that, and none at 0.
    capacity_milli : int
        Thousandths of a GPU in the cluster.

    Returns
    -------
    (X, M) float
    """
    profiles, profile_of = tasks.profiles
    asked = np.floor(np.asarray(grid, dtype=np.float64) * capacity_milli + 1e-3)
    counts = np.zeros((len(asked), len(profiles)))
    for order in orders:
        until = np.searchsorted(np.cumsum(tasks.demand_milli[order]), asked, side="right")
        until[asked == 0] = 0
        for point, tasks_until in enumerate(until):
            counts[point] += np.bincount(profile_of[order[:tasks_until]], minlength=len(profiles))
    return counts / len(orders)


class BoundCurves:
    """Bounds for any placement of the arriving tasks, point by point.

    The LP is solved at every few points; those between take the best of the prices found, which cost about as
    little as the gap that solves stop at.

    Parameters
    ----------
    nodes : NodeTable
    tasks : TaskTable
        The list.
    orders : sequence of (A,) int
        Positions of the arriving tasks in the list, one order per run.
    grid : (X,) float
        GPU asked for so far, as a part of the capacity, increasing.
    power : NodePower, optional
        Power of the nodes; by `node_power` with one CPU model everywhere without it.
    every : int
        Points from one solve to the next.
    gap : float
        Relative difference to the LP's optimum to stop at.
    progress : callable, optional
        Called with the part of the work that is done, from 0 to 1.

    Attributes
    ----------
    bounds : PlacementBounds
    arrived : (X, M) float
        Tasks of each profile that have arrived, in the mean.
    allocated_gpus : (X,) float
        GPUs that hosted tasks can ask for together at most.
    power_w : (X,) float
        Watts at least when all arrived tasks are hosted that would fit onto the empty cluster by themselves;
        infinite where no placement can host them all.

    Raises
    ------
    ValueError
        If the power of a GPU model is unknown.
    """

    def __init__(
        self,
        nodes: NodeTable,
        tasks: TaskTable,
        orders: Sequence[IntArray],
        grid: ArrayLike,
        power: NodePower | None = None,
        every: int = EVERY,
        gap: float = GAP,
        progress: Callable[[float], None] | None = None,
    ):
        self.bounds = PlacementBounds(nodes, tasks.profiles[0], power)
        self.arrived = mean_arrived(tasks, orders, grid, nodes.gpu_capacity_milli)
        self._every, self._gap = every, gap
        solved = self._solved()
        for done, point in enumerate(solved):
            self.bounds.least_power(self.arrived[point], gap=gap)
            self.bounds.most_allocated_gpus(self.arrived[point], gap=gap)
            if progress is not None:
                progress((done + 1) / len(solved))
        self.allocated_gpus: FloatArray = np.array(
            [self.bounds.known_allocated_gpus(a) for a in self.arrived]
        )
        power_w = np.array([self.bounds.known_power_w(tasks) for tasks in self.arrived])
        asked = np.array([self.bounds.hostable(tasks).gpus for tasks in self.arrived])
        self.power_w: FloatArray = np.where(asked * SAFE > self.allocated_gpus, np.inf, power_w)

    def _solved(self) -> list[int]:
        """Points to solve at: the last, every few before it, and the first."""
        last = len(self.arrived) - 1
        return sorted({0, *range(last, -1, -self._every)})

    def floor_w(self, allocated_gpus: ArrayLike, failed: ArrayLike) -> FloatArray:
        """Watts at least for any placement that hosts as much as a policy did, shape (X,).

        Parameters
        ----------
        allocated_gpus : (X,) float
            GPUs that the tasks hosted by the policy ask for together, in the mean.
        failed : (X,) float
            Arrived tasks that it does not host, in the mean.
        """
        hosted = [
            Hosted(gpus=SAFE * float(gpus), tasks=SAFE * max(0.0, float(tasks.sum() - missing)))
            for tasks, gpus, missing in zip(
                self.arrived, np.asarray(allocated_gpus), np.asarray(failed), strict=True
            )
        ]
        for point in self._solved():
            if np.asarray(failed)[point] > 0:
                self.bounds.least_power(self.arrived[point], hosted[point], self._gap)
        known_w = [self.bounds.known_power_w(t, h) for t, h in zip(self.arrived, hosted, strict=True)]
        return np.where(np.asarray(failed) > 0, known_w, np.maximum(known_w, self.power_w))
