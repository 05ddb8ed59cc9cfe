"""`tiresias-2dlas`: least attained service in two dimensions, GPUs and time (Gu et al., NSDI 2019).

Discretised: a job whose GPU seconds are below the threshold is in the first queue, any other in the second;
within a queue the order is that of the first start, or of arrival. Jobs run on the GPUs asked for.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.policies.requests import serve
from wattsched.replay.jobs.policy import Decision, Setting, View

THRESHOLD_GPU_S = 3600.0
"""One GPU hour, as in the first author's simulator."""


class Tiresias:
    """Serves the queues one after the other, with preemption."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s

    def decide(self, view: View) -> Decision:
        """Serve the first queue, then the second; decide again when a job changes queues."""
        demoted = view.served_gpu_s >= THRESHOLD_GPU_S * (1 - 1e-9)
        row = serve(view, np.argsort(demoted, kind="stable").tolist())
        gpus = np.where(row == WAITS, 0, view.menus.gpus[row])
        rising = (gpus > 0) & ~demoted
        left_s = (THRESHOLD_GPU_S - view.served_gpu_s[rising]) / gpus[rising]
        return Decision(row, again_s=view.time_s + float(np.min(left_s, initial=np.inf)))
