"""`fifo`: the default of Kubernetes: first in, first out, the GPUs asked for, the head of the line blocks."""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.policies.requests import Room
from wattsched.replay.jobs.policy import Decision, Setting, View


class Fifo:
    """Starts jobs in the order of arrival until one does not fit; no job is ever stopped or moved."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.pod_s

    def decide(self, view: View) -> Decision:
        """Let the head of the line start as long as it finds a free block."""
        room, row = Room.free(view), view.row.copy()
        for j in np.flatnonzero(view.waits).tolist():
            chosen = room.take(view.request[j])
            if chosen < 0:
                break
            row[j] = chosen
        return Decision(row)
