r"""Policies that keep to a budget: `sizing`, `powerflow`, `greenflow`, and any other, `Capped`.

``sizing`` chooses GPU count, batch size and clock of every job by the sizing program, at the price of the
budget. A round maximises the value of the work done per second (`elastic.values`) less what it costs,

.. math:: \sum_j v_j s_j(c_j) - \sum_j \left(\lambda P_j(c_j) - \bar\lambda e_j s_j(c_j)\right),

where :math:`P` is the draw above that of idle GPUs, :math:`\lambda` the price of a joule now and
:math:`\bar\lambda` that of one later (`Price`), and :math:`e_j` the least energy per work of the job. Work
that is done now need not be paid for later: at equal prices only what a configuration takes beyond the
cheapest one is a cost. What a budget leaves limits the draw, and the price of this limit comes on top of
:math:`\lambda`, a part of :math:`\bar\lambda`: what is not spent now raises the limit of later rounds.
Without a budget both are `PolicyContext.least_price`.

``powerflow`` and ``greenflow`` are PowerFlow's ratio rule on the same program (`solvers.powerflow`): every
job's GPU count, batch size and clock change, by relative time saved per relative energy spent, until the GPUs
or the round's budget are used up. How the publications (Gu et al., arXiv 2304.06381, 2023; Gu et al., IEEE
TPDS 36(2), 2025) spread a budget over time is not known. Here `powerflow` spends what is left evenly in
watts, and `greenflow` in proportion to time, so that its watts follow the price or the carbon intensity of
the moment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.formulations.timer import Timer
from wattsched.replay.jobs.budget import Allowance
from wattsched.replay.jobs.policies.elastic import useful, values
from wattsched.replay.jobs.policies.rounds import RoundOptions, RoundSolver, efficient, fastest
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, State
from wattsched.solvers.powerflow import choose
from wattsched.topology.arrays import FloatArray

CYCLE_S = 86_400.0
"""Over which grids and tariffs come round."""

REVIEWS = 288
"""Decisions per period at least, every five minutes of a day."""


@dataclass(frozen=True)
class _Sizes:
    """How jobs are valued (`elastic.values`): p of heSRPT, and the speed that seconds are counted at."""

    concavity: float
    speed: float


GPUS_SHORT, POWER_SHORT = _Sizes(0.5, 0.5), _Sizes(0.7, 0.0)
"""Where GPUs are what is short, jobs run at all speeds, and work of jobs that scale well takes fewer seconds
than at their slowest: valued by that, they would be given too much. Where power is short, jobs run slowly.
Chosen on seeds 100 to 102 of the cases of benchmarks/budgets.py."""

SAVED = 0.5
"""What a joule that is saved is worth, of the price of later. On seeds 100 and 101 of five cases of
benchmarks/budgets.py, 0.5 takes 0.5 to 8 % less energy than 0 for 0.4 % more completion time; 1 costs 2 %."""


def next_review_s(time_s: float, context: PolicyContext) -> float:
    """When a budget is to be looked at again."""
    assert context.budget is not None
    return time_s + max(context.round_s, context.budget.period_s / REVIEWS)


class Price:
    """Value of a unit of the budget, in the value of a round's program.

    Attributes
    ----------
    later : float
        Mean of the prices seen, the last period's above all.
    """

    def __init__(self, context: PolicyContext) -> None:
        self._budget = context.budget
        self._period_s = context.budget.period_s if context.budget is not None else np.inf
        self.later = context.least_price
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
        decision = self._solver.decide(options, program, next_review_s(state.time_s, self._context))
        if np.isinf(allowance.in_proportion_w):
            return decision
        price, limit_w = -self._solver.prices["power_w"], program.row_upper[-1]
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
        sizes = POWER_SHORT if _power_may_be_short(options, draw_w) else GPUS_SHORT
        gain = values(options, sizes.concavity, sizes.speed)[options.job] * done
        needed_w = self._least_j[options.state.kind[options.job]] * done
        return now * draw_w - later * needed_w - gain


def _power_may_be_short(options: RoundOptions, draw_w: FloatArray) -> bool:
    """Whether the budget leaves less than what all jobs draw at their most."""
    allowance = options.state.allowance
    if allowance is None:
        return False
    most_w = np.maximum.reduceat(draw_w, options.start[:-1]).sum()
    return bool(allowance.in_proportion_w - allowance.standing_w < most_w)


class PowerFlow:
    """Relative time saved per relative energy spent."""

    name = "powerflow"

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s
        self._rows = efficient(context.trace)
        self._context = context

    def decide(self, state: State) -> Decision:
        """Apply the rule."""
        options = RoundOptions.of(state, self._rows, max(self._context.round_s, 1.0))
        program = options.program(options.completion_s, most_w=self.most_w(state))
        point, detail, _ = choose(program, Timer(None))
        if point is None:
            raise ValueError(f"policy '{self.name}': {detail}")
        again_s = np.inf if state.allowance is None else next_review_s(state.time_s, self._context)
        return Decision(options.chosen(point), again_s=again_s)

    def most_w(self, state: State) -> float:
        """Most that the cluster may draw in the round."""
        return np.inf if state.allowance is None else state.allowance.even_w


class GreenFlow(PowerFlow):
    """The same rule with a round's budget in proportion to time."""

    name = "greenflow"

    def most_w(self, state: State) -> float:
        """Most that the cluster may draw in the round."""
        return np.inf if state.allowance is None else state.allowance.in_proportion_w


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
        again_s = min(decision.again_s, next_review_s(state.time_s, self._context))
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
