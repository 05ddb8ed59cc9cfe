r"""Policies around others: `Capped`, which keeps any within a budget, and `P+zeus`, which has its jobs tuned.

Zeus (You, Chung, Chowdhury, NSDI 2023, section 3) chooses batch size and power limit (here also the clock)
that minimise

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
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, State
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


class Capped:
    """A policy whose decisions are cut to the even draw of the budget."""

    def __init__(self, policy: Policy, context: PolicyContext) -> None:
        self._policy, self._context = policy, context
        self.restart_s = policy.restart_s

    def decide(self, state: State) -> Decision:
        """Let those jobs run that fit, in the order of arrival."""
        decision, allowance = self._policy.decide(state), state.allowance
        assert allowance is not None
        again_s = min(decision.again_s, self._context.next_review_s(state.time_s))
        runs = np.flatnonzero(decision.row != WAIT)
        watts = state.trace.busy_w[decision.row[runs]]
        room_w = 0.0 if allowance.exhausted else allowance.even_w - allowance.standing_w
        row = decision.row.copy()
        for j, draw_w in zip(runs.tolist(), watts.tolist(), strict=True):
            if draw_w > room_w:
                row[j] = WAIT
            else:
                room_w -= draw_w
        return replace(decision, row=row, again_s=again_s, short=bool(np.any(row != decision.row)))
