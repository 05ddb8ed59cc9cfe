"""`sidecar`, `termination`: progress-based elastic rule with restart costs (SC 2020, `systems.md` 5.3).

Remaining time is remaining work over speed, plus the restart that a running job pays for another GPU count.
Every job gets its smallest count, the shortest first; then the job grows that saves most seconds per GPU
(Optimus' marginal gain). The two policies differ only in what a restart costs: a process inside its pod, or
a pod that is terminated.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.policies.gains import counts, grow
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.topology.arrays import FloatArray, IntArray


class SideCar:
    """The rule with some restart cost."""

    def __init__(self, setting: Setting, restart_s: float) -> None:
        self.restart_s = restart_s
        self._counts = counts(setting)

    def decide(self, view: View) -> Decision:
        """Share the GPUs out by seconds saved per GPU."""
        menus = view.menus

        def gains(j: int, row: int, larger: IntArray) -> FloatArray:
            rows = np.append(larger, row)
            seconds = view.completion_s(np.full(len(rows), j), rows)
            return np.asarray((seconds[-1] - seconds[:-1]) / (menus.gpus[larger] - menus.gpus[row]))

        shortest_s = view.remaining / view.trace.requested_rate[view.jobs]
        return Decision(grow(view, self._counts, np.argsort(shortest_s, kind="stable"), gains))


def sidecar(setting: Setting) -> SideCar:
    """Restart the training process, not the pod."""
    return SideCar(setting, setting.restarts.process_s)


def termination(setting: Setting) -> SideCar:
    """Terminate the pod and create another."""
    return SideCar(setting, setting.restarts.pod_s)
