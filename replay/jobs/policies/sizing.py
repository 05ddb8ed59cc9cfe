r"""`sizing`: GPU count, batch size and clock of every job by the sizing program, at the price of the budget.

A round maximises the value of the work done per second (`worth.rank`) less what it costs,

.. math:: \sum_j v_j s_j(c_j) - \lambda \sum_j \left(P_j(c_j) - e_j s_j(c_j)\right),

where :math:`P` is the draw above that of idle GPUs and :math:`e_j` the least energy per work of the job: work
that is done now need not be paid for later, so only what a configuration takes beyond its cheapest one is a
cost. :math:`\lambda` is the price of a joule (`price.Price`); without a budget it is zero. What the budget
leaves limits the draw.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.menus import Floats, efficient, fastest
from wattsched.replay.jobs.policies.price import MOST_BURST, Price, next_review_s
from wattsched.replay.jobs.policies.round_solver import RoundSolver
from wattsched.replay.jobs.policies.rounds import Columns, busy_w, columns_of, program_of
from wattsched.replay.jobs.policies.worth import useful_share, values
from wattsched.replay.jobs.policy import Decision, Setting, View


class Sizing:
    """Every configuration of every job, each round solved to a certified gap."""

    def __init__(self, setting: Setting, solver: str = "auto") -> None:
        trace = setting.trace
        self.restart_s = setting.restarts.process_s
        menus, draw_w = trace.menus, trace.menus.power_w - trace.idle_w
        budgeted = setting.budget is not None
        self._rows = efficient(menus, draw_w) if budgeted else fastest(menus, menus.comparable)
        joules = np.where(menus.comparable, draw_w / menus.rate, np.inf)
        self._least_j = np.minimum.reduceat(joules, menus.start[:-1])
        self._setting = setting
        self._solver = RoundSolver("sizing", solver, setting.gap)
        self._price = Price(setting.budget.period_s if setting.budget else 1.0)

    def decide(self, view: View) -> Decision:
        """Solve the round at the price of the budget."""
        columns = columns_of(view, self._rows, max(self._setting.round_s, 1.0))
        gain, draw_w, needed_w = self._gain(view, columns)
        allowance = view.allowance
        if allowance is None:
            return self._solver.decide(columns, program_of(view, columns, -gain))
        if self._price.unknown:
            even = program_of(view, columns, -gain, allowance.even_w)
            self._price.begin(-self._solver.prices_of(even)[-1] / max(allowance.per_joule, 1e-300))
        now = self._price.at(view.time_s, allowance) * allowance.per_joule
        later = self._price.later * allowance.per_joule
        most_w = allowance.standing_w + MOST_BURST * (allowance.even_w - allowance.standing_w)
        program = program_of(view, columns, now * draw_w - later * needed_w - gain, most_w)
        return self._solver.decide(columns, program, next_review_s(view.time_s, self._setting))

    def _gain(self, view: View, columns: Columns) -> tuple[Floats, Floats, Floats]:
        """Value per second of every column, its draw, and what its work must take at least."""
        runs = ~columns.waits
        owner, rows = columns.owner[runs], columns.row[runs]
        gain, draw_w, needed_w = np.zeros((3, len(columns.row)))
        useful = useful_share(view, columns)[runs]
        done = view.menus.rate[rows] * useful
        gain[runs] = values(view, columns)[owner] * done
        draw_w[runs] = busy_w(view, rows) * useful
        needed_w[runs] = self._least_j[view.kind[owner]] * done
        return gain, draw_w, needed_w
