"""DotProd: place where demand and free resources are least aligned (after Tetris, SIGCOMM 2014)."""

from __future__ import annotations

from wattsched.replay.placement.policies.best_fit import LARGEST_CPU_MILLI, LARGEST_GPU_MILLI
from wattsched.replay.placement.scoring import BEST, Rule
from wattsched.replay.placement.state import ClusterState, Request
from wattsched.topology.arrays import IntArray


class DotProduct(Rule):
    """Score: 100 less the mean over CPU and GPU of free times asked, each a part of the largest node's.

    As in FGD's artifact, which turns the sign of Tetris' alignment; in percent, rounded down.
    """

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        cpu = state.cpu_free_milli[nodes] / LARGEST_CPU_MILLI * (request.cpu_milli / LARGEST_CPU_MILLI)
        gpu_free_milli = state.gpu_free_milli[nodes].sum(axis=1)
        gpu = gpu_free_milli / LARGEST_GPU_MILLI * (request.demand_milli / LARGEST_GPU_MILLI)
        score: IntArray = (BEST * (1 - (cpu + gpu) / 2)).astype(int)
        return score
