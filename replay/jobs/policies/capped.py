"""Rules that know of no budget, kept within one: the last jobs to arrive wait while there is no power."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.policies.price import next_review_s
from wattsched.replay.jobs.policies.rounds import busy_w
from wattsched.replay.jobs.policy import Decision, Policy, Setting, View


class Capped:
    """A policy whose decisions are cut to the even draw of the budget."""

    def __init__(self, policy: Policy, setting: Setting) -> None:
        self._policy, self._setting = policy, setting
        self.restart_s = policy.restart_s

    def decide(self, view: View) -> Decision:
        """Let those jobs run that fit, in the order of arrival."""
        decision, allowance = self._policy.decide(view), view.allowance
        if allowance is None:
            return decision
        again_s = min(decision.again_s, next_review_s(view.time_s, self._setting))
        runs = np.flatnonzero(decision.row != WAITS)
        watts = busy_w(view, decision.row[runs])
        room_w = 0.0 if allowance.exhausted else allowance.even_w - allowance.standing_w
        row = decision.row.copy()
        for j, draw_w in zip(runs.tolist(), watts.tolist(), strict=True):
            if draw_w > room_w:
                row[j] = WAITS
            else:
                room_w -= draw_w
        return replace(decision, row=row, again_s=again_s, short=bool(np.any(row != decision.row)))
