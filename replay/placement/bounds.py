"""Bounds for any placement of arriving tasks, and how far policies are from them.

The configuration LP knows neither order nor time, so what it says about the tasks that have arrived holds for
every policy at that moment, whatever it knew: the least power for what is hosted, the most GPU that can be
allocated. All amounts may be means over runs: the LP's optimum is convex in them, so that it bounds the mean
of the powers, too (`ConfigurationLp.proven_w`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from wattsched.formulations.placement.configuration_lp import ConfigurationLp, Hosted
from wattsched.instances.placement.tables import WHOLE_GPU, TaskTable
from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment
from wattsched.topology.arrays import FloatArray, IntArray

COARSE_GAP = 0.01
COARSE_EVERY = 20
FINE_EVERY = 5
SAFE = 1 - 1e-9
"""Measured means carry rounding errors, and a bound must not ask for more than there was."""


def mean_arrived(
    tasks: TaskTable, orders: Sequence[IntArray], grid: ArrayLike, capacity_milli: int
) -> FloatArray:
    """Count the tasks of each profile that have arrived at each point, in the mean over some orders: (X, M).

    Parameters
    ----------
    orders : sequence of (A,) int
        Positions of the arriving tasks in the list.
    grid : (X,) float
        GPU asked for so far, as a part of the capacity. At a point, as many tasks have arrived as ask for no
        more than that, and none at 0.
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


@dataclass(frozen=True)
class Distances:
    """Bounds on the grid of the curves, means over the same seeds, as arrays of shape (X,).

    Parameters
    ----------
    arrived : GPU asked for so far, as a part of the capacity
    allocated_pct : most GPU that any placement can allocate, percent of the capacity
    eopc_w : least power of any placement that hosts all that arrived; infinite where none can
    floor_w : by policy, least power of any placement that hosts as much as the policy does
    """

    arrived: FloatArray
    allocated_pct: FloatArray
    eopc_w: FloatArray
    floor_w: Mapping[str, FloatArray]

    def above_pct(self, policy: str, curves: Curves) -> FloatArray:
        """Power of a policy above its floor, in percent of the floor."""
        return np.asarray(100 * (curves.eopc_w / self.floor_w[policy] - 1))


def distances(
    experiment: Experiment,
    curves: Mapping[str, Curves],
    seeds: Sequence[int],
    gap: float = COARSE_GAP,
    every: int | None = None,
) -> Distances:
    """Bound what any placement could have done with the same arrivals.

    The LP is solved at every few points; those between take the best of the prices found, which cost about as
    little as the gap that solves stop at.

    Parameters
    ----------
    curves : mapping of str to Curves
        Mean curves of policies over these seeds, on one grid.
    gap : float
        How far from the bound's own optimum the LPs may stop: smaller is tighter and slower.
    every : int, optional
        Points from one solve of the LP to the next (default: few for a loose gap).

    Raises
    ------
    ValueError
        If the power of a GPU model is unknown.
    """
    nodes, tasks, grid = experiment.nodes, experiment.tasks, next(iter(curves.values())).arrived
    orders = [experiment.arriving(seed) for seed in seeds]
    arrived = mean_arrived(tasks, orders, grid, nodes.gpu_capacity_milli)
    lp = ConfigurationLp(nodes, tasks.profiles[0], experiment.power())
    step = every or (COARSE_EVERY if gap >= COARSE_GAP else FINE_EVERY)
    solved = sorted({0, *range(len(arrived) - 1, -1, -step)})
    for point in solved:
        lp.least_power(arrived[point], gap=gap)
        lp.most_allocated_gpus(arrived[point], gap=gap)
    allocated_gpus = np.array([lp.known_allocated_gpus(each) for each in arrived])
    asked_gpus = np.array([lp.hostable(each).gpus for each in arrived])
    power_w = np.array([lp.known_power_w(each) for each in arrived])
    power_w = np.where(asked_gpus * SAFE > allocated_gpus, np.inf, power_w)
    gpus = nodes.gpu_capacity_milli / WHOLE_GPU
    # GPUs and tasks that each policy hosts at each point, shape (n_policies, X).
    failed = np.array([of.failed for of in curves.values()])
    on_gpus = SAFE * np.array([of.allocated_pct / 100 * gpus for of in curves.values()])
    tasks_on = SAFE * np.maximum(0.0, arrived.sum(axis=1) - failed)
    hosted = [list(map(Hosted, *pair)) for pair in zip(on_gpus.tolist(), tasks_on.tolist(), strict=True)]
    for p, point in product(range(len(curves)), solved):
        if failed[p, point] > 0:
            lp.least_power(arrived[point], hosted[p][point], gap)
    known_w = np.array([list(map(lp.known_power_w, arrived, hosts)) for hosts in hosted])
    # Who hosts all hosts as much as any policy, so that every floor is one of that, too.
    power_w = np.maximum(power_w, known_w.max(axis=0))
    floor_w = {}
    for p, policy in enumerate(curves):
        # The floors of all policies that host no more are floors of this one, too.
        no_more = (on_gpus <= on_gpus[p]) & (tasks_on <= tasks_on[p])
        floor_w[policy] = np.where(failed[p] > 0, np.where(no_more, known_w, -np.inf).max(axis=0), power_w)
    return Distances(grid, np.minimum(100.0, 100 * allocated_gpus / gpus), power_w, floor_w)
