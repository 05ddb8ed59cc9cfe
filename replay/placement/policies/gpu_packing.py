"""GpuPacking: first GPUs in use, then free GPUs of nodes in use, then empty nodes."""

from __future__ import annotations

import numpy as np

from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.replay.placement.scoring import BEST, Rule
from wattsched.replay.placement.state import ClusterState, Request
from wattsched.topology.arrays import IntArray


class GpuPacking(Rule):
    """Score by the case; a node without any GPU in use is empty, and tasks without GPU score 0 everywhere.

    * A GPU in use has room for the share: 100 less a tenth of its free percents, at least 50.
    * Free GPUs of a node that has others in use: 50 less their number, at least 33.
    * An empty node: 33 less its GPUs, at least their number.
    """

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        if not request.gpus:
            return np.zeros(len(nodes), dtype=np.int64)
        free = state.gpu_free_milli[nodes]
        gpus = state.nodes.gpus[nodes]
        fullest = np.where(free >= request.gpu_milli, free, WHOLE_GPU).min(axis=1)
        in_use = np.maximum(BEST - fullest * 100 // WHOLE_GPU // 10, BEST // 2)
        beside = max(BEST // 2 - request.gpus, BEST // 3)
        empty = np.maximum(BEST // 3 - gpus, gpus)
        used = np.where(fullest < WHOLE_GPU, in_use, beside)
        return np.where((free == WHOLE_GPU).sum(axis=1) == gpus, empty, used)
