r"""The price of a budget: what a joule, a gram or a unit of money is worth at the moment, and later.

A round may draw what spends the rest of the budget in proportion to time (`Allowance.in_proportion_w`), so
that nothing is overspent and what is left unspent raises the draw of the rounds to come. The price that this
limit has in the round's program is the price of the moment. Its mean over about a period is the price at
which the work of later will be paid for, with what a joule costs on average over the next day.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.budget import Allowance
from wattsched.replay.jobs.policy import Setting

CYCLE_S = 86_400.0
"""Over which grids and tariffs come round."""

REVIEWS = 288
"""Decisions per period at least, every five minutes of a day."""


def next_review_s(time_s: float, setting: Setting) -> float:
    """When a budget is to be looked at again."""
    assert setting.budget is not None
    return time_s + max(setting.round_s, setting.budget.period_s / REVIEWS)


class Price:
    """Value of a unit of the budget, in the value of a round's program.

    Attributes
    ----------
    later : float
        Mean of the prices seen, the last period's above all.
    """

    def __init__(self, setting: Setting) -> None:
        self._budget = setting.budget
        self._period_s = setting.budget.period_s if setting.budget is not None else np.inf
        self.later = setting.least_price
        self._before_s: float | None = None

    def see(self, time_s: float, allowance: Allowance, per_watt: float) -> None:
        """Take in the price of a watt at this moment, at which a joule costs something."""
        now = per_watt / allowance.per_joule
        if self._before_s is None:
            self.later = now
        else:
            share = 1.0 - float(np.exp(-(time_s - self._before_s) / self._period_s))
            self.later += share * (now - self.later)
        self._before_s = time_s

    def of_a_joule_later(self, time_s: float) -> float:
        """Price of later for what a joule takes of the budget on average over the day to come."""
        assert self._budget is not None
        per_watt = self._budget.per_kwh.per_watt
        return self.later * float(per_watt(time_s + CYCLE_S) - per_watt(time_s)) / CYCLE_S
