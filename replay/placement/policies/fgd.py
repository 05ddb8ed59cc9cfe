"""FGD: place where fragmentation falls most (Weng et al., USENIX ATC 2023)."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.placement.fragmentation import Fragmentation
from wattsched.replay.placement.policy import Setting
from wattsched.replay.placement.scoring import BEST, Rule
from wattsched.replay.placement.state import ClusterState, Request
from wattsched.topology.arrays import IntArray


class Fgd(Rule):
    """Score: fall of the node's fragmentation in GPUs, through a sigmoid onto 0 to 100, rounded down.

    A share is tried on each GPU, and the best of them counts, the first in a tie.
    """

    def __init__(self, setting: Setting):
        self._fragmentation = Fragmentation(
            setting.target, setting.nodes.models, int(setting.nodes.gpus.max())
        )

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        if request.shared:
            best: IntArray = self._by_gpu(request, state, nodes).max(axis=1)
            return best
        drop = self._fragmentation.drop_by_whole(
            state.nodes.model[nodes],
            state.cpu_free_milli[nodes],
            state.gpu_free_milli[nodes],
            request.cpu_milli,
            request.gpus,
        )
        return self._squashed(drop)

    def gpu(self, request: Request, state: ClusterState, node: int) -> int:
        """GPU with the best score."""
        return int(self._by_gpu(request, state, np.array([node]))[0].argmax())

    def _by_gpu(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each GPU of the nodes, -1 where the share does not fit, shape (S, G)."""
        gpu_free_milli = state.gpu_free_milli[nodes]
        drop = self._fragmentation.drop_by_share(
            state.nodes.model[nodes],
            state.cpu_free_milli[nodes],
            gpu_free_milli,
            request.cpu_milli,
            request.gpu_milli,
        )
        return np.where(gpu_free_milli >= request.gpu_milli, self._squashed(drop), -1)

    def _squashed(self, drop: IntArray) -> IntArray:
        gpus = drop / (1000 * self._fragmentation.scale)
        return (BEST / (1 + np.exp(-gpus))).astype(np.int64)
