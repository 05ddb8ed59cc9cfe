"""PWR: place where power rises least (Lettich et al., CCGrid 2025)."""

from __future__ import annotations

import numpy as np

from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.replay.placement.policy import Setting
from wattsched.replay.placement.scoring import BEST, Rule, stretched
from wattsched.replay.placement.state import ClusterState, Request
from wattsched.topology.arrays import BoolArray, IntArray


class Pwr(Rule):
    """Score: fall of the node's power in watts, never above 0, stretched over the nodes that fit."""

    def __init__(self, setting: Setting):
        self._power = setting.power

    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each node."""
        cpu_free_milli = state.cpu_free_milli[nodes]
        cpu_w = self._power.cpu_w(cpu_free_milli - request.cpu_milli, nodes) - self._power.cpu_w(
            cpu_free_milli, nodes
        )
        waking_w = self._power.gpu_full_w[nodes] - self._power.gpu_idle_w[nodes]
        if request.shared:
            gpu_w = np.where(_busy_with_room(request, state.gpu_free_milli[nodes]).any(axis=1), 0, waking_w)
        else:
            gpu_w = request.gpus * waking_w
        return -cpu_w - gpu_w

    def normalise(self, scores: IntArray) -> IntArray:
        """Stretch the scores."""
        return stretched(scores, if_equal=BEST)

    def gpu(self, request: Request, state: ClusterState, node: int) -> int:
        """First GPU that is busy anyway and has room, else the first that is free."""
        free = state.gpu_free_milli[node]
        busy = _busy_with_room(request, free)
        return int((busy if busy.any() else free == WHOLE_GPU).argmax())


def _busy_with_room(request: Request, gpu_free_milli: IntArray) -> BoolArray:
    return (gpu_free_milli >= request.gpu_milli) & (gpu_free_milli < WHOLE_GPU)
