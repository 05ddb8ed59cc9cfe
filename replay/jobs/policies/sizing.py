r"""`sizing`: GPU count, batch size and clock of every job by the sizing program, at the price of the budget.

A round maximises the value of the work done per second (`worth.values`) less what it costs,

.. math:: \sum_j v_j s_j(c_j) - \sum_j \left(\lambda P_j(c_j) - \bar\lambda e_j s_j(c_j)\right),

where :math:`P` is the draw above that of idle GPUs, :math:`\lambda` the price of a joule now and
:math:`\bar\lambda` that of one later (`price.Price`), and :math:`e_j` the least energy per work of the job.
Work that is done now need not be paid for later: at equal prices only what a configuration takes beyond the
cheapest one is a cost. What a budget leaves limits the draw, and the price of this limit comes on top of
:math:`\lambda`, a part of :math:`\bar\lambda`: what is not spent now raises the limit of later rounds.
Without a budget both are `Setting.least_price`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattsched.replay.jobs.menus import efficient, fastest
from wattsched.replay.jobs.policies.price import Price, next_review_s
from wattsched.replay.jobs.policies.round_solver import RoundSolver
from wattsched.replay.jobs.policies.rounds import Columns, busy_w, columns_of, program_of
from wattsched.replay.jobs.policies.worth import useful_share, values
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.topology.arrays import FloatArray


@dataclass(frozen=True)
class _Sizes:
    """How jobs are valued: p of heSRPT, and the speed that their seconds are counted at (`worth.values`)."""

    concavity: float
    speed: float


GPUS_SHORT, POWER_SHORT = _Sizes(0.5, 0.5), _Sizes(0.7, 0.0)
"""Where GPUs are what is short, jobs run at all speeds, and work of jobs that scale well takes fewer seconds
than at their slowest: valued by that, they would be given too much. Where power is short, jobs run slowly.
Chosen on seeds 100 to 102 of the cases of benchmarks/budgets.py."""

SAVED = 0.5
"""What a joule that is saved is worth, of the price of later. On seeds 100 and 101 of five cases of
benchmarks/budgets.py, 0.5 takes 0.5 to 8 % less energy than 0 for 0.4 % more completion time; 1 costs 2 %."""


class Sizing:
    """Every configuration of every job, each round solved to a certified gap.

    Attributes
    ----------
    price : Price
        Of the budget, in units of the rounds' values.
    """

    def __init__(self, setting: Setting, solver: str = "auto") -> None:
        trace = setting.trace
        self.restart_s = setting.restarts.process_s
        menus, draw_w = trace.menus, trace.menus.power_w - trace.idle_w
        priced = setting.budget is not None or setting.least_price > 0
        self._rows = efficient(menus, draw_w) if priced else fastest(menus, menus.comparable)
        joules = np.where(menus.comparable, draw_w / menus.rate, np.inf)
        self._least_j = np.minimum.reduceat(joules, menus.start[:-1])
        self._setting = setting
        self._solver = RoundSolver("sizing", solver, setting.gap)
        self.price = Price(setting)

    def decide(self, view: View) -> Decision:
        """Solve the round at the price of the budget."""
        columns = columns_of(view, self._rows, max(self._setting.round_s, 1.0))
        effects = _Effects.of(view, columns, self._least_j)
        allowance, least = view.allowance, self._setting.least_price
        if allowance is None:
            return self._solver.decide(columns, program_of(view, columns, effects.cost(least, least)))
        now = max(least, SAVED * self.price.later) * allowance.per_joule
        cost = effects.cost(now, self.price.of_a_joule_later(view.time_s))
        program = program_of(view, columns, cost, allowance.in_proportion_w)
        decision = self._solver.decide(columns, program, next_review_s(view.time_s, self._setting))
        if np.isinf(allowance.in_proportion_w):
            return decision
        price, limit_w = -float(self._solver.prices[-1]), program.row_upper[-1]
        self.price.see(view.time_s, allowance, least * allowance.per_joule + price)
        # A limit that is worth less than the gap may be left unused.
        short = price * limit_w > self._setting.gap * abs(self._solver.objective)
        return replace(decision, short=bool(short))


@dataclass(frozen=True)
class _Effects:
    """What the columns of a round bring and take, shape (n_columns,) each.

    Attributes
    ----------
    gain : float array
        Value per second.
    draw_w : float array
        Mean draw above that of idle GPUs, restarts included.
    needed_w : float array
        What the work done takes in its most efficient configuration.
    """

    gain: FloatArray
    draw_w: FloatArray
    needed_w: FloatArray

    @classmethod
    def of(cls, view: View, columns: Columns, least_j: FloatArray) -> _Effects:
        """Work them out; `least_j` is the least energy per work of each kind."""
        runs = ~columns.waits
        owner, rows = columns.owner[runs], columns.row[runs]
        gain, draw_w, needed_w = np.zeros((3, len(columns.row)))
        useful = useful_share(view, columns)[runs]
        done = view.menus.rate[rows] * useful
        draw_w[runs] = busy_w(view, rows) * useful
        sizes = POWER_SHORT if _power_may_be_short(view, columns, draw_w) else GPUS_SHORT
        gain[runs] = values(view, columns, sizes.concavity, sizes.speed)[owner] * done
        needed_w[runs] = least_j[view.kind[owner]] * done
        return cls(gain, draw_w, needed_w)

    def cost(self, now: float, later: float) -> FloatArray:
        """Cost at a price of a joule now and one of a joule later."""
        return now * self.draw_w - later * self.needed_w - self.gain


def _power_may_be_short(view: View, columns: Columns, draw_w: FloatArray) -> bool:
    """Whether the budget leaves less than what all jobs draw at their most."""
    if view.allowance is None:
        return False
    most_w = np.maximum.reduceat(draw_w, columns.start[:-1]).sum()
    return bool(view.allowance.in_proportion_w - view.allowance.standing_w < most_w)
