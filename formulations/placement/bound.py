"""Bounds for any placement of arriving tasks: least power for what it hosts, most GPU that it can allocate.

The configuration LP (`patterns`) knows neither order nor time, so what it says about the tasks that have
arrived holds for every policy at that moment, whatever it knew. All amounts may be means over runs: the LP's
optimum is convex in them, so that it bounds the mean of the powers, too (`Prices.bound_w`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from wattsched.formulations.placement.configuration_lp import (
    GAP,
    MOST_UNITS,
    POWER,
    ROUNDS,
    PatternBound,
    PatternProgram,
)
from wattsched.formulations.placement.node_types import NodeTypes, node_types
from wattsched.formulations.placement.pattern_prices import TOTALS, Accepted, Objective, sizes
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.perfmodels.node_power import NodePower
from wattsched.topology.arrays import FloatArray, IntArray

ALLOCATION = Objective(weight=0.0, gpu_reward_w=1.0)


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
    program : PatternProgram
        The LP. Its profiles are `class_of` of these.
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
        self.program = PatternProgram(self.types, classes, most_units)
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
        return self.program.solve(self._accepted(arrived, hosted), POWER, gap, rounds)

    def most_allocated_gpus(self, arrived: ArrayLike, gap: float = GAP, rounds: int = ROUNDS) -> float:
        """Bound the GPU that hosted tasks ask for together from above, in GPUs; arguments as above."""
        bound = self.program.solve(self._accepted(arrived, Hosted()), ALLOCATION, gap, rounds).bound_w
        return min(-bound, self._gpus)

    def known_power_w(self, arrived: ArrayLike, hosted: Hosted | None = None) -> float:
        """Bound that the prices found so far prove, without solving anything."""
        return self.program.known_bound_w(self._accepted(arrived, hosted), POWER)

    def known_allocated_gpus(self, arrived: ArrayLike) -> float:
        """The same for the allocation."""
        return min(-self.program.known_bound_w(self._accepted(arrived, Hosted()), ALLOCATION), self._gpus)

    def profile_prices_w(self, result: PatternBound) -> FloatArray:
        """Price of a task of each profile in an answer, shape (M,)."""
        return result.prices.profile[self.class_of]

    def hostable(self, arrived: ArrayLike) -> Hosted:
        """What the arrived tasks that fit onto the empty cluster by themselves ask for together."""
        return Hosted(*(self._sizes @ (self._of_classes(arrived) * self.program.hostable)).tolist())

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
