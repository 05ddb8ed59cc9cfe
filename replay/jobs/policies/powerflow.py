"""`powerflow`, `greenflow`: PowerFlow's ratio rule on the sizing program of a round (`solvers.powerflow`).

Every job's GPU count, batch size and clock change, by relative time saved per relative energy spent, until
the GPUs or the round's budget are used up. How the publications spread a budget over time is not known. Here
`powerflow` spends what is left evenly in watts, and `greenflow` in proportion to time, so that its watts
follow the price or the carbon intensity of the moment (`systems.md` 2.2).
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.timer import Timer
from wattsched.replay.jobs.menus import efficient
from wattsched.replay.jobs.policies.price import next_review_s
from wattsched.replay.jobs.policies.rounds import columns_of, program_of
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.solvers.powerflow import choose


class PowerFlow:
    """Relative time saved per relative energy spent."""

    name = "powerflow"

    def __init__(self, setting: Setting) -> None:
        trace = setting.trace
        self.restart_s = setting.restarts.process_s
        self._rows = efficient(trace.menus, trace.menus.power_w - trace.idle_w)
        self._setting = setting

    def decide(self, view: View) -> Decision:
        """Apply the rule."""
        columns = columns_of(view, self._rows, max(self._setting.round_s, 1.0))
        program = program_of(view, columns, columns.completion_s, self.most_w(view))
        point, detail, _ = choose(program, Timer(None))
        if point is None:
            raise ValueError(f"policy '{self.name}': {detail}")
        again_s = np.inf if view.allowance is None else next_review_s(view.time_s, self._setting)
        return Decision(columns.chosen(point), again_s=again_s)

    def most_w(self, view: View) -> float:
        """Most that the cluster may draw in the round."""
        return np.inf if view.allowance is None else view.allowance.even_w


class GreenFlow(PowerFlow):
    """The same rule with a round's budget in proportion to time."""

    name = "greenflow"

    def most_w(self, view: View) -> float:
        """Most that the cluster may draw in the round."""
        return np.inf if view.allowance is None else view.allowance.in_proportion_w
