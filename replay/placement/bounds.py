"""How far policies are from what no placement can beat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.placement.bound_curves import BoundCurves
from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment
from wattsched.topology.arrays import FloatArray

COARSE_GAP = 0.01
COARSE_EVERY = 20
FINE_EVERY = 5


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
