"""`elasticflow`: greedy growth by marginal throughput, for jobs without deadlines (Gu et al., ASPLOS 2023).

Without deadlines every job's minimum satisfactory share is its smallest configuration, given in the order of
arrival. What is left goes to the job whose throughput rises most per GPU, relative to its throughput at the
smallest count.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.policies.gains import counts, grow
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.topology.arrays import FloatArray, IntArray


class ElasticFlow:
    """Efficient scaling first; blind to restarts and to remaining work."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s
        self._counts = counts(setting)
        rates = setting.trace.menus.rate[self._counts.rows]
        self._least = np.minimum.reduceat(rates, self._counts.start[:-1]) if len(rates) else rates

    def decide(self, view: View) -> Decision:
        """Share the GPUs out by relative throughput per GPU."""
        menus, least = view.menus, self._least[view.kind]

        def gains(j: int, row: int, larger: IntArray) -> FloatArray:
            faster = (menus.rate[larger] - menus.rate[row]) / least[j]
            return np.asarray(faster / (menus.gpus[larger] - menus.gpus[row]))

        return Decision(grow(view, self._counts, np.arange(len(view)), gains))
