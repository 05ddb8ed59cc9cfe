"""`optimus`: marginal gain of completion time per GPU, blind to restarts (Peng et al., EuroSys 2018)."""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.policies.gains import counts, grow
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.topology.arrays import FloatArray, IntArray


class Optimus:
    """One GPU (or the least possible) for each job in the order of arrival, then the largest gain first."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s
        self._counts = counts(setting)

    def decide(self, view: View) -> Decision:
        """Share the GPUs out by seconds saved per GPU."""
        menus = view.menus

        def gains(j: int, row: int, larger: IntArray) -> FloatArray:
            seconds = view.remaining[j] / menus.rate[np.append(larger, row)]
            return np.asarray((seconds[-1] - seconds[:-1]) / (menus.gpus[larger] - menus.gpus[row]))

        return Decision(grow(view, self._counts, np.arange(len(view)), gains))
