"""Random: any node that fits, and any GPU in it."""

from __future__ import annotations

import numpy as np

from wattsched.replay.placement.policy import Setting
from wattsched.replay.placement.state import ClusterState, Placement, Request


class Random:
    """Policy that draws evenly."""

    def __init__(self, setting: Setting):
        # Streams 0 and 1 of the seed are those of the tasks and of the node order.
        self._random = np.random.default_rng([setting.seed, 2])

    def decide(self, request: Request, state: ClusterState) -> Placement | None:
        """Draw a node, and a GPU for a share."""
        nodes = np.flatnonzero(state.fits(request))
        if not nodes.size:
            return None
        node = int(self._random.choice(nodes))
        if request.shared:
            gpus = np.flatnonzero(state.gpu_free_milli[node] >= request.gpu_milli)
            return Placement(node, (int(self._random.choice(gpus)),))
        return Placement(node, state.first_free_gpus(node, request.gpus))

    def told(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Forget it."""
