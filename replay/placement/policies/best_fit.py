"""BestFit: place where the least is left over."""

from __future__ import annotations

from wattsched.replay.placement.scoring import BEST, Rule, stretched
from wattsched.replay.placement.state import ClusterState, Request
from wattsched.topology.arrays import IntArray

LARGEST_CPU_MILLI = 128_000
LARGEST_GPU_MILLI = 8000
"""CPU and GPU of the largest node in FGD's artifact, to which all nodes are compared."""


class BestFit(Rule):
    """Score: 100 less the mean of the CPU and the GPU left over, in percent of the largest node's.

    Rounded down, then stretched over the nodes that fit.
    """

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        cpu_left = state.cpu_free_milli[nodes] - request.cpu_milli
        gpu_left = state.gpu_free_milli[nodes].sum(axis=1) - request.demand_milli
        left = 0.5 * (cpu_left / LARGEST_CPU_MILLI) + 0.5 * (gpu_left / LARGEST_GPU_MILLI)
        score: IntArray = ((1 - left) * BEST).astype(int)
        return score

    def normalise(self, scores: IntArray) -> IntArray:
        """Stretch the scores."""
        return stretched(scores, if_equal=0)
