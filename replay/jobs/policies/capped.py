"""Any policy that knows of no budget, kept within one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, State


class Capped:
    """A policy whose decisions are cut to the even draw of the budget."""

    def __init__(self, policy: Policy, context: PolicyContext) -> None:
        self._policy, self._context = policy, context
        self.restart_s = policy.restart_s

    def decide(self, state: State) -> Decision:
        """Let those jobs run that fit, in the order of arrival."""
        decision, allowance = self._policy.decide(state), state.allowance
        if allowance is None:
            return decision
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
