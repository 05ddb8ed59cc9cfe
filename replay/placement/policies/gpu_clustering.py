"""GpuClustering: keep tasks of one size together."""

from __future__ import annotations

import numpy as np

from wattsched.replay.placement.policies.best_fit import LARGEST_GPU_MILLI
from wattsched.replay.placement.policy import Setting
from wattsched.replay.placement.scoring import BEST, Rule
from wattsched.replay.placement.state import ClusterState, Placement, Request
from wattsched.topology.arrays import IntArray


class GpuClustering(Rule):
    """Score by the sizes of the GPU tasks on the node, a size being a share or a number of GPUs.

    75 if all are of the task's size, 50 if some are, 25 if there are none and 0 otherwise; to which the used
    GPU is added, as a part of 25 for the largest node. Tasks without GPU score 0 everywhere.
    """

    def __init__(self, setting: Setting):
        sizes = 1 + int(setting.nodes.gpus.max())
        # Whether the node has tasks of the size: column 0 for shares, column k for k GPUs.
        self._has = np.zeros((len(setting.nodes), sizes), dtype=bool)

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        if not request.gpus:
            return np.zeros(len(nodes), dtype=np.int64)
        sizes = self._has[nodes].sum(axis=1)
        alike = self._has[nodes, _size(request)]
        kinship = np.where(alike, np.where(sizes == 1, 3, 2), np.where(sizes == 0, 1, 0))
        used = LARGEST_GPU_MILLI - state.gpu_free_milli[nodes].sum(axis=1)
        score: IntArray = BEST // 4 * used // LARGEST_GPU_MILLI + BEST // 4 * kinship
        return score

    def told(self, request: Request, placement: Placement, state: ClusterState) -> None:
        """Remember the size."""
        if request.gpus:
            self._has[placement.node, _size(request)] = True


def _size(request: Request) -> int:
    return 0 if request.shared else request.gpus
