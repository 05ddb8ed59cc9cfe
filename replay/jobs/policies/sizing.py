r"""`sizing`: the sizing program over every configuration of every job, at the price of the budget.

A round maximises the value of the work done per second (`elastic.values`) less what it costs,

.. math:: \sum_j v_j s_j(c_j) - \sum_j \left(\lambda P_j(c_j) - \bar\lambda e_j s_j(c_j)\right),

where :math:`P` is the draw above that of idle GPUs, :math:`\lambda` the price of a joule now and
:math:`\bar\lambda` that of one later (`Price`), and :math:`e_j` the least energy per work of the job. Work
that is done now need not be paid for later: at equal prices only what a configuration takes beyond the
cheapest one is a cost. What a budget leaves limits the draw, and the price of this limit comes on top of
:math:`\lambda`, a part of :math:`\bar\lambda`: what is not spent now raises the limit of later rounds.
Without a budget both are `PolicyContext.least_price`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.replay.jobs.budget import Allowance
from wattsched.replay.jobs.policies.elastic import useful, values
from wattsched.replay.jobs.policies.rounds import RoundOptions, RoundSolver, efficient, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.topology.arrays import FloatArray

CYCLE_S = 86_400.0
"""Over which grids and tariffs come round."""

GPUS_SHORT, POWER_SHORT = (0.5, 0.5), (0.7, 0.0)
"""How jobs are valued (`elastic.values`): p of heSRPT, and the speed that seconds are counted at.

Where GPUs are what is short, jobs run at all speeds, and work of jobs that scale well takes fewer seconds
than at their slowest: valued by that, they would be given too much. Where power is short, jobs run slowly.
Chosen on seeds 100 to 102 of the cases of benchmarks/budgets.py."""

SAVED = 0.5
"""What a joule that is saved is worth, of the price of later. On seeds 100 and 101 of five cases of
benchmarks/budgets.py, 0.5 takes 0.5 to 8 % less energy than 0 for 0.4 % more completion time; 1 costs 2 %."""


class Price:
    """Value of a unit of the budget, in the value of a round's program.

    Attributes
    ----------
    later : float
        Mean of the prices seen, the last period's above all.
    """

    def __init__(self, context: PolicyContext) -> None:
        self._budget, self.later = context.budget, context.least_price
        self._before_s = -np.inf

    def see(self, time_s: float, allowance: Allowance, per_watt: float) -> None:
        """Take in the price of a watt at this moment, at which a joule costs something."""
        assert self._budget is not None
        share = 1.0 - float(np.exp((self._before_s - time_s) / self._budget.period_s))
        self.later += share * (per_watt / allowance.per_joule - self.later)
        self._before_s = time_s

    def of_a_joule_later(self, time_s: float) -> float:
        """Price of later for what a joule takes of the budget on average over the day to come."""
        assert self._budget is not None
        return self.later * float(self._budget.per_kwh.per_watt(time_s, time_s + CYCLE_S)) / CYCLE_S


class Sizing:
    """Every configuration of every job, each round solved to a certified gap.

    Attributes
    ----------
    price : Price
        Of the budget, in units of the rounds' values.
    """

    def __init__(self, context: PolicyContext) -> None:
        trace = context.trace
        self.restart_s = context.restarts.process_s
        priced = context.budget is not None or context.least_price > 0
        self._rows = efficient(trace) if priced else fastest(trace, trace.comparable)
        joules = np.where(trace.comparable, trace.busy_w / trace.configurations.rate, np.inf)
        self._least_j = np.minimum.reduceat(joules, trace.configurations.start[:-1])
        self._context = context
        self._solver = RoundSolver("sizing", context.gap)
        self.price = Price(context)

    def decide(self, state: State) -> Decision:
        """Solve the round at the price of the budget."""
        options = RoundOptions.of(state, self._rows, max(self._context.round_s, 1.0))
        allowance, least = state.allowance, self._context.least_price
        if allowance is None:
            return self._solver.decide(options, options.program(self._cost(options, least, least)))
        now = max(least, SAVED * self.price.later) * allowance.per_joule
        cost = self._cost(options, now, self.price.of_a_joule_later(state.time_s))
        program = options.program(cost, most_w=allowance.in_proportion_w)
        decision = self._solver.decide(options, program, self._context.next_review_s(state.time_s))
        if np.isinf(allowance.in_proportion_w):
            return decision
        price, limit_w = -self._solver.prices.get("power_w", 0.0), program.row_upper[-1]
        self.price.see(state.time_s, allowance, least * allowance.per_joule + price)
        # A limit that is worth less than the gap may be left unused.
        short = price * limit_w > self._context.gap * abs(self._solver.objective)
        return replace(decision, short=bool(short))

    def _cost(self, options: RoundOptions, now: float, later: float) -> FloatArray:
        """Cost at a price of a joule now and one of a joule later.

        It counts the value of the work done, the mean draw above that of idle GPUs, restarts included, and
        what the work takes in its most efficient configuration.
        """
        share = useful(options)
        done, draw_w = options.rate * share, options.busy_w * share
        # Whether the budget leaves less than what all jobs draw at their most.
        allowance, most_w = options.state.allowance, np.maximum.reduceat(draw_w, options.start[:-1]).sum()
        short = allowance is not None and allowance.in_proportion_w - allowance.standing_w < most_w
        sizes = POWER_SHORT if short else GPUS_SHORT
        gain = values(options, *sizes)[options.job] * done
        needed_w = self._least_j[options.state.kind[options.job]] * done
        return now * draw_w - later * needed_w - gain
