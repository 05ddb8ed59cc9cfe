"""Bounds for any placement of arriving tasks, and how far policies are from them.

The configuration LP knows neither order nor time, so what it says about the tasks that have arrived holds for
every policy at that moment, whatever it knew: the least power for what is hosted, the most GPU that can be
allocated. All amounts may be means over runs: the LP's optimum is convex in them, so that it bounds the mean
of the powers, too (`Prices.bound_w`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from wattsched.formulations.placement.configuration_lp import (
    GAP,
    MOST_UNITS,
    POWER,
    ROUNDS,
    ConfigurationLp,
    PatternBound,
)
from wattsched.formulations.placement.configuration_prices import (
    TOTALS,
    Accepted,
    NodeTypes,
    Objective,
    node_types,
    sizes,
)
from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TaskTable
from wattsched.perfmodels.node_power import NodePower
from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment
from wattsched.topology.arrays import FloatArray, IntArray

ALLOCATION = Objective(weight=0.0, gpu_reward_w=1.0)
COARSE_GAP = 0.01
COARSE_EVERY = 20
FINE_EVERY = 5
SAFE = 1 - 1e-9
"""Measured means carry rounding errors, and a bound must not ask for more than there was."""


@dataclass(frozen=True)
class Hosted:
    """What the tasks on the cluster ask for together, and how many they are; as much of it as is known."""

    gpus: float = 0.0
    vcpus: float = 0.0
    tasks: float = 0.0


class PlacementBounds:
    """Bounds for placements on a cluster; each question makes the next ones cheaper.

    Parameters
    ----------
    nodes : NodeTable
    profiles : TaskTable
        Distinct requests that may arrive, M of them: ``tasks.profiles[0]``.
    power : NodePower, optional
        Power of the nodes; by `node_power` with one CPU model everywhere without it.
    most_units : int
        Units that the CPU of the largest node is divided into, at most: more are tighter and slower.

    Attributes
    ----------
    types : NodeTypes
        Kinds of nodes.
    lp : ConfigurationLp
        Its profiles are `class_of` of these.
    class_of : (M,) int
        Profile of the LP that stands for each profile.

    Raises
    ------
    ValueError
        If the power of a GPU model is unknown.
    """

    def __init__(
        self,
        nodes: NodeTable,
        profiles: TaskTable,
        power: NodePower | None = None,
        most_units: int = MOST_UNITS,
    ):
        self.types = node_types(nodes, power)
        classes, self.class_of = profile_classes(self.types, profiles)
        self.lp = ConfigurationLp(self.types, classes, most_units)
        self._sizes = sizes(classes)
        self._gpus = float(nodes.gpus.sum())

    def least_power(
        self,
        arrived: ArrayLike,
        hosted: Hosted | None = None,
        gap: float = GAP,
        rounds: int = ROUNDS,
    ) -> PatternBound:
        """Bound the power of the cluster from below.

        Parameters
        ----------
        arrived : (M,) float
            Tasks of each profile that have arrived.
        hosted : Hosted, optional
            What is on the cluster. Without it, everything that would fit onto the empty cluster by itself.
        gap : float
            Relative difference to the LP's optimum to stop at.
        rounds : int
            Rounds of column generation at most.

        Returns
        -------
        PatternBound
            ``bound_w`` is infinite if no placement can host that.
        """
        return self.lp.solve(self._accepted(arrived, hosted), POWER, gap, rounds)

    def most_allocated_gpus(self, arrived: ArrayLike, gap: float = GAP, rounds: int = ROUNDS) -> float:
        """Bound the GPU that hosted tasks ask for together from above, in GPUs; arguments as above."""
        bound = self.lp.solve(self._accepted(arrived, Hosted()), ALLOCATION, gap, rounds).bound_w
        return min(-bound, self._gpus)

    def known_power_w(self, arrived: ArrayLike, hosted: Hosted | None = None) -> float:
        """Bound that the prices found so far prove, without solving anything."""
        return self.lp.known_bound_w(self._accepted(arrived, hosted), POWER)

    def known_allocated_gpus(self, arrived: ArrayLike) -> float:
        """The same for the allocation."""
        return min(-self.lp.known_bound_w(self._accepted(arrived, Hosted()), ALLOCATION), self._gpus)

    def hostable(self, arrived: ArrayLike) -> Hosted:
        """What the arrived tasks that fit onto the empty cluster by themselves ask for together."""
        return Hosted(*(self._sizes @ (self._of_classes(arrived) * self.lp.hostable)).tolist())

    def _of_classes(self, arrived: ArrayLike) -> FloatArray:
        weights = np.asarray(arrived, dtype=np.float64)
        counts = np.bincount(self.class_of, weights=weights, minlength=self._sizes.shape[1])
        return counts.astype(np.float64)

    def _accepted(self, arrived: ArrayLike, hosted: Hosted | None) -> Accepted:
        most = self._of_classes(arrived)
        if hosted is None:
            return Accepted(most, most, np.zeros(TOTALS))
        return Accepted(0 * most, most, np.array([hosted.gpus, hosted.vcpus, hosted.tasks], dtype=np.float64))


def profile_classes(types: NodeTypes, profiles: TaskTable) -> tuple[TaskTable, IntArray]:
    """Merge profiles that differ in memory alone and fit onto the same node types.

    A class asks for the least memory of its profiles: what fits, still does.

    Returns
    -------
    classes : TaskTable
    class_of : (M,) int
        Class of each profile.
    """
    asked = (profiles.cpu_milli, profiles.gpus, profiles.gpu_milli, profiles.spec)
    rows = np.stack([*asked, *types.admits(profiles)], axis=1)
    _rows, first, class_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    class_of = class_of.reshape(-1).astype(np.int64)
    memory_mib = profiles.memory_mib[first]
    np.minimum.at(memory_mib, class_of, profiles.memory_mib)
    return replace(profiles.take(first.astype(np.int64)), memory_mib=memory_mib), class_of


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
        every: int = FINE_EVERY,
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


@dataclass(frozen=True)
class Distances:
    """Bounds on the grid of the curves, means over the same seeds.

    Parameters
    ----------
    arrived : (X,) float
        GPU asked for so far, as a part of the capacity.
    allocated_pct : (X,) float
        Most GPU that any placement can allocate, percent of the capacity.
    eopc_w : (X,) float
        Least power of any placement that hosts all that arrived; infinite where none can.
    floor_w : mapping of str to (X,) float
        Per policy, least power of any placement that hosts as much as the policy does.
    """

    arrived: FloatArray
    allocated_pct: FloatArray
    eopc_w: FloatArray
    floor_w: Mapping[str, FloatArray]

    def above_pct(self, policy: str, curves: Curves) -> FloatArray:
        """Power of a policy above its floor, percent of the floor, shape (X,)."""
        return np.asarray(100 * (curves.eopc_w / self.floor_w[policy] - 1))


def distances(
    experiment: Experiment,
    curves: Mapping[str, Curves],
    seeds: Sequence[int],
    gap: float = COARSE_GAP,
    every: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Distances:
    """Bound what any placement could have done with the same arrivals.

    Parameters
    ----------
    experiment : Experiment
    curves : mapping of str to Curves
        Mean curves of policies over these seeds.
    seeds : sequence of int
    gap : float
        How far from the bound's own optimum the LPs may stop: smaller is tighter and slower.
    every : int, optional
        Points from one solve of the LP to the next (default: few for a loose gap).
    progress : callable, optional
        Called with the part of the work that is done.
    """
    first = next(iter(curves.values()))
    nodes = experiment.nodes
    if every is None:
        every = COARSE_EVERY if gap >= COARSE_GAP else FINE_EVERY
    bound = BoundCurves(
        nodes,
        experiment.tasks,
        [experiment.arriving(seed) for seed in seeds],
        first.arrived,
        experiment.power(),
        every=every,
        gap=gap,
        progress=progress,
    )
    gpus = nodes.gpu_capacity_milli / WHOLE_GPU
    floor_w = {
        policy: bound.floor_w(of.allocated_pct / 100 * gpus, of.failed) for policy, of in curves.items()
    }
    allocated_pct = np.minimum(100.0, 100 * bound.allocated_gpus / gpus)
    return Distances(first.arrived, allocated_pct, bound.power_w, floor_w)
