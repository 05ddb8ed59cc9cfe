r"""`P+zeus`: any policy P, its jobs tuned as Zeus tunes them (You, Chung, Chowdhury, NSDI 2023, section 3).

Zeus chooses batch size and power limit (here also the clock) that minimise

.. math:: \eta\,E + (1 - \eta)\,P_{max}\,T

where E and T are energy and time to the target and :math:`P_{max}` is the highest power limit. The minimum is
the same for every amount of work. Zeus learns the costs by trying; here they are known from the start.

The rows stay what they are. Only what counts as standard, and so what users ask for, is another row with the
same pool and GPU count. The batch size is tuned where rates count progress, not samples (`Trace.comparable`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.policy import Decision, Policy, State
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import FloatArray

SUFFIX = "+zeus"

ETA = 0.5
"""Weight of energy (Zeus' default)."""


class Tuned:
    """A policy that sees a tuned trace."""

    def __init__(self, policy: Policy, trace: Trace) -> None:
        self._policy, self._trace = policy, trace
        self.restart_s = policy.restart_s

    def decide(self, state: State) -> Decision:
        """Let the policy decide."""
        return self._policy.decide(replace(state, trace=self._trace))


def tuned(trace: Trace, eta: float = ETA) -> Trace:
    """Mark the cheapest row of each kind, pool and GPU count as standard."""
    cost = np.where(trace.comparable, zeus_cost(trace, eta), np.inf)
    # Ties go to the untuned row.
    order = np.lexsort((~trace.standard, cost, trace.choice))
    cheapest = order[np.unique(trace.choice[order], return_index=True)[1]]
    standard = np.zeros(len(cost), dtype=bool)
    standard[cheapest] = True
    request = np.where(trace.request == WAIT, WAIT, cheapest[trace.choice[trace.request]])
    return replace(trace, standard=standard, request=request)


def zeus_cost(trace: Trace, eta: float = ETA) -> FloatArray:
    """Zeus' cost of each row per unit of work, shape (n_rows,), in joules."""
    rows = trace.configurations
    weighed_w = eta * rows.power_w + (1 - eta) * rows.gpus * trace.highest_w[rows.pool]
    return np.asarray(weighed_w / rows.rate)
