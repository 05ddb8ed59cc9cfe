"""`srtf`: shortest remaining time first, on the GPUs asked for, with preemption."""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.policies.requests import serve
from wattsched.replay.jobs.policy import Decision, Setting, View


class Srtf:
    """Serves jobs by the time that they would still take on the GPUs asked for."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s

    def decide(self, view: View) -> Decision:
        """Let the shortest jobs run."""
        remaining_s = view.remaining / view.trace.requested_rate[view.jobs]
        return Decision(serve(view, np.argsort(remaining_s, kind="stable").tolist()))
