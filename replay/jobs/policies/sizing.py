r"""`sizing`, `clairvoyant`, `powerflow`, `greenflow`: every GPU count, batch size and clock, within a budget.

`sizing` solves the sizing program over every configuration of every job, at the price of the budget. A round
maximises the value of the work done per second (`values`) less what it costs,

.. math:: \sum_j v_j s_j(c_j) - \sum_j \left(\lambda P_j(c_j) - \bar\lambda e_j s_j(c_j)\right)
          - \sum_{j\ \text{stops}} \min(1, \kappa / T_j)\, v_j s_j^{now},

where :math:`P` is the draw above that of idle GPUs, :math:`\lambda` the price of a joule now and
:math:`\bar\lambda` that of one later (`Price`), and :math:`e_j` the least energy per work of the job. Work
that is done now need not be paid for later: at equal prices only what a configuration takes beyond the
cheapest one is a cost. What a budget leaves limits the draw, and the price of this limit comes on top of
:math:`\lambda`, a part of :math:`\bar\lambda`: what is not spent now raises the limit of later rounds. With a
budget that may be spent ahead of time the limit is looser, and :math:`\lambda` is learned (`LearnedPrice`),
or the limit is that of a plan for the jobs to come (`PlannedPrice`).
Without a budget both are `PolicyContext.least_price`. To stop a job costs :math:`\kappa` seconds of its work
(`STOP_S`), spread over the time :math:`T_j` that it still takes, so that none is stopped for little.

`clairvoyant` values rounds by a plan that knows all jobs to come, to tell what that knowledge is worth. The
plan is that of the bound on every schedule (`replay.jobs.bound.relaxation`): what a unit of the work of each
job is worth, :math:`\nu_j`, and what a joule costs in each slot of time, :math:`\mu_i` of the budget. A round
maximises

.. math:: \sum_j \nu_j s_j(c_j) - \mu_i \sum_j P_j(c_j),

of which the prices of GPUs in the plan come about by themselves, since jobs compete for the same GPUs. What
it reaches lies above what the best schedule does, and the bound below: between them is all that knowing the
future could gain.

`powerflow` and `greenflow` apply PowerFlow's ratio rule to the same program (`solvers.powerflow`): jobs
change by relative time saved per relative energy spent, until the GPUs or the round's budget are used up. How
the publications (Gu et al., arXiv 2304.06381, 2023; Gu et al., IEEE TPDS 36(2), 2025) spread a budget over
time is not known. Here `powerflow` spends what is left evenly in watts, and `greenflow` in proportion to
time, so that its watts follow the price or the carbon intensity of the moment.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from wattsched.formulations.sizing.objectives import work_values
from wattsched.formulations.timer import Timer
from wattsched.replay.jobs.budget import Allowance
from wattsched.replay.jobs.policies.elastic import useful
from wattsched.replay.jobs.policies.horizon import Horizon
from wattsched.replay.jobs.policies.rounds import RoundOptions, RoundSolver, efficient, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.solvers.powerflow import choose
from wattsched.topology.arrays import FloatArray, IntArray

CYCLE_S = 86_400.0
"""Over which grids and tariffs come round."""

TAIL, STOP_S = 0.1, 3600.0
"""Power of a job's completion time by which it weighs (`values`), and seconds of its work that stopping one
costs.

The power was chosen on seed 100 of the cases of benchmarks/budgets.py and of `CHOSEN_ON` of
benchmarks/replays.py, with half the value of what a job does as the price of stopping it. With both the 99th
percentile of the completion time is 7 % below that under PowerFlow's rule; valued by seconds, and without
them, it was 8 % above, with a mean 1.5 % longer. A power of 0.3 costs 7 % of the mean for 6 % of the 99th
percentile. The price by seconds came after the grounds of benchmarks/grounds.py had shown that half the value
lets short jobs wait for long ones where few run. An hour was chosen on three cases, of ITP 02, PAI and
Philly b436b2: ten minutes stop 1.8 times as many jobs there, for a mean up to .7 % shorter."""

SAVED = 0.5
"""Worth of a saved joule, as a share of the price of later. On seed 100 of the six budgets of energy of
benchmarks/budgets.py, 0.5 takes 0.3 to 6 % less energy than 0 for a mean completion time within 0.5 %; 1
takes up to 2 % less again, for up to 1.5 % more time."""


WEEK_S, PEAK, MOST_AHEAD = 604_800.0, 1.5, 4.0
"""Constants of a learned price (`LearnedPrice`): the least time over which prices are averaged, since load
comes round with the week; the most that may be drawn beyond the idle draw, over the draw that spends evenly
what is left; and the largest change of the price by what was saved.

The draw is limited since nobody knows the load to come, and at the end of a period that was spent too soon
all jobs wait. On seed 100 of three months of Philly of `CHOSEN_ON` of benchmarks/online_price.py, with both
budgets, the mean completion time is 4 % shorter with 2, 1 % with 3, and up to 24 % longer with 6. Within
daily budgets of `CHOSEN_ON` of benchmarks/replays.py 2 gains as much as 1.5 on average, 10 % on the even
pace, but is 9 % behind that in one case of six, and 1.5 in none."""


class Price:
    """Value of a unit of the budget, in the value of a round's program.

    `later` is the mean of the prices seen, the last period's above all.
    """

    def __init__(self, context: PolicyContext) -> None:
        self._budget, self._least, self.later = context.budget, context.least_price, context.least_price
        self._before_s = -np.inf

    def see(self, time_s: float, allowance: Allowance, limit: float) -> None:
        """Take in the price of the limit on the draw, per watt, when a joule costs something."""
        seen, over_s = self._seen(time_s, allowance)
        share = 1.0 - float(np.exp((self._before_s - time_s) / over_s))
        self.later += share * (seen + limit / allowance.per_joule - self.later)
        self._before_s = time_s

    def _seen(self, time_s: float, allowance: Allowance) -> tuple[float, float]:
        """Price on top of which that of the limit came, and the time over which prices are averaged."""
        assert self._budget is not None
        return self._least, self._budget.period_s

    def now(self, allowance: Allowance) -> float:
        """Price of what is drawn now, before that of the limit."""
        return max(self._least, SAVED * self.later)

    def of_a_joule_later(self, time_s: float) -> float:
        """Price of later for what a joule takes of the budget on average over the day to come."""
        assert self._budget is not None
        return self.later * float(self._budget.planned.per_watt(time_s, time_s + CYCLE_S)) / CYCLE_S

    def limit_w(self, allowance: Allowance, state: State) -> float:
        """Most that the cluster may draw now."""
        return allowance.in_proportion_w


class PlannedPrice(Price):
    """Price of a budget whose draw is planned with the jobs to come (`replay.jobs.policies.horizon`)."""

    def __init__(self, context: PolicyContext, rows: IntArray) -> None:
        super().__init__(context)
        assert context.budget is not None
        self._horizon = Horizon(context.trace, rows, context.budget)

    def limit_w(self, allowance: Allowance, state: State) -> float:
        """Most that the cluster may draw now."""
        return self._horizon.limit_w(state, allowance)


class LearnedPrice(Price):
    """Price of a budget that may be spent ahead of time: what a joule has been worth at an even draw.

    In every round it sees the price at which the round would draw what spends evenly what is left, 0 if it
    would draw less at any price. The constant price that spends a month's budget is near the mean of these
    prices: 0.3 to 1.7 times it at an even draw in the five cases of Philly of `CHOSEN_ON` of
    benchmarks/online_price.py that have one. More is charged where more than evenly was spent, less where
    less.
    """

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._begin_s = math.inf

    def _seen(self, time_s: float, allowance: Allowance) -> tuple[float, float]:
        assert self._budget is not None
        self._begin_s = min(self._begin_s, time_s)
        longest_s = max(WEEK_S, self._budget.period_s)
        return self._least, float(np.clip(time_s - self._begin_s, 1.0, longest_s))

    def now(self, allowance: Allowance) -> float:
        """Price of later, more where more than evenly was spent, less where less."""
        ahead = min(max(allowance.ahead, 1 / MOST_AHEAD), MOST_AHEAD)
        return max(self._least, self.later / ahead)

    def limit_w(self, allowance: Allowance, state: State) -> float:
        """Most that the cluster may draw now."""
        standing_w = allowance.standing_w
        return standing_w + PEAK * (allowance.in_proportion_w - standing_w)


class _Rounds:
    """Rounds over the rows that are best at some price of a joule or a watt, or without one the fastest."""

    def __init__(self, context: PolicyContext) -> None:
        trace, self._context = context.trace, context
        self.restart_s = context.restarts.process_s
        self._priced = context.budget is not None or context.least_price > 0
        # Where watts are scarce the fastest rows are not all that may be best.
        scarce = self._priced or bool(context.caps.names)
        self._rows = efficient(trace) if scarce else fastest(trace, trace.comparable)

    def _options(self, state: State) -> RoundOptions:
        return RoundOptions.of(state, self._rows, max(self._context.round_s, 1.0))


class Sizing(_Rounds):
    """Every configuration of every job, each round solved to a certified gap at the `price` of the budget."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        trace = context.trace
        joules = np.where(trace.comparable, trace.busy_w / trace.configurations.rate, np.inf)
        self._least_j = np.minimum.reduceat(joules, trace.configurations.start[:-1])
        self._solver, self._even = RoundSolver("sizing", context.gap), RoundSolver("sizing", context.gap)
        match context.budget and context.budget.pacing:
            case "price":
                self.price: Price = LearnedPrice(context)
            case "plan":
                self.price = PlannedPrice(context, self._rows)
            case _:
                self.price = Price(context)

    def decide(self, state: State) -> Decision:
        """Solve the round at the price of the budget."""
        options = self._options(state)
        allowance, least = state.allowance, self._context.least_price
        if allowance is None:
            return self._solver.decide(options, options.program(self._cost(options, least, least)))
        binds = bool(np.isfinite(allowance.in_proportion_w) and allowance.per_joule)
        if binds and isinstance(self.price, LearnedPrice) and not allowance.exhausted:
            self.price.see(state.time_s, allowance, self._even_price(options, allowance))
        now = self.price.now(allowance) * allowance.per_joule
        cost = self._cost(options, now, self.price.of_a_joule_later(state.time_s))
        program = options.program(cost, most_w=self.price.limit_w(allowance, state))
        decision = self._solver.decide(options, program, self._context.next_review_s(state.time_s))
        if not binds:
            return decision
        price, limit_w = -self._solver.prices.get("power_w", 0.0), program.row_upper[-1]
        if not isinstance(self.price, LearnedPrice):
            self.price.see(state.time_s, allowance, price)
        # A limit that is worth less than the gap may be left unused.
        short = price * limit_w > self._context.gap * abs(self._solver.objective)
        return replace(decision, short=bool(short))

    def _even_price(self, options: RoundOptions, allowance: Allowance) -> float:
        """Price of a watt at which a round, at no price besides, draws what spends evenly what is left."""
        program = options.program(self._cost(options, 0.0, 0.0), most_w=allowance.in_proportion_w)
        self._even.decide(options, program)
        return max(0.0, -self._even.prices.get("power_w", 0.0))

    def _cost(self, options: RoundOptions, now: float, later: float) -> FloatArray:
        """Cost at a price of a joule now and one of a joule later.

        It counts the value of the work done, the mean draw above that of idle GPUs, restarts included, what
        the work takes in its most efficient configuration, and the price of stopping.
        """
        share, job, state = useful(options), options.job, options.state
        done, draw_w, value = options.rate * share, options.busy_w * share, values(options)
        needed_w = self._least_j[state.kind[job]] * done
        held = np.where(state.waits, 0.0, state.configurations.rate[state.row])
        stop = value * held * np.minimum(1.0, STOP_S * held / options.work)
        return now * draw_w - later * needed_w - value[job] * done + np.where(options.waiting, stop[job], 0.0)


def values(options: RoundOptions) -> FloatArray:
    """Value of a unit of work of each job, shape (n_jobs,): heSRPT's, by GPU seconds and weight.

    A job's size is the GPU seconds that it still takes in its most efficient configuration, so that a job
    that needs many GPUs is worth as much more a second. Jobs weigh by the power `TAIL` of their completion
    time as far as it is known, their age and the least that they still take, so that late ones have a turn.
    """
    state = options.state
    per_work = options.least_gpu_s
    completion_s = state.time_s - state.trace.arrival_s[state.jobs] + options.best_s
    weight = (completion_s / completion_s.mean()) ** TAIL
    return work_values(options.work * per_work, weight) * per_work


class Clairvoyant(_Rounds):
    """Every configuration of every job, by what a plan with all jobs to come says that its work is worth."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._solver = RoundSolver("clairvoyant", context.gap)
        self._worth = self._begin_s = self._joule_price = np.empty(0)

    def _plan(self) -> None:
        """Find the worth of each job's work, and the price of a joule in each slot and after the last."""
        from wattsched.replay.jobs.bound.ascent import bounded
        from wattsched.replay.jobs.bound.clairvoyant import parts_of
        from wattsched.replay.jobs.bound.relaxation import Workload

        context, budget = self._context, self._context.budget
        if budget is not None:  # what negative prices earn is not planned with
            budget = replace(budget, per_kwh=budget.planned)
        workload = Workload.of(**parts_of(context.trace, budget))
        plan = bounded(workload, context.least_price)
        self._worth, self._begin_s = plan.found.used.worth, plan.relaxation.edge_s
        self._joule_price = np.append(plan.relaxation.per_joule(plan.prices), context.least_price)

    def decide(self, state: State) -> Decision:
        """Solve the round at the prices of the plan, which is made at the first one."""
        if not len(self._worth):
            self._plan()
        options = self._options(state)
        share = useful(options)
        cost = -self._worth[state.jobs][options.job] * options.rate * share
        if self._priced:
            slot = max(0, int(np.searchsorted(self._begin_s, state.time_s, side="right")) - 1)
            cost += self._joule_price[slot] * options.busy_w * share
        if state.allowance is None:
            return self._solver.decide(options, options.program(cost))
        # The plan spends what a period has when it gains most, until nothing is left.
        most_w = state.allowance.standing_w if state.allowance.exhausted else np.inf
        program = options.program(cost, most_w=most_w)
        return self._solver.decide(options, program, self._context.next_review_s(state.time_s))


class PowerFlow:
    """Relative time saved per relative energy spent, within a limit that `Allowance` has under that name."""

    def __init__(self, context: PolicyContext, name: str = "powerflow", within: str = "even_w") -> None:
        self.restart_s = context.restarts.process_s
        self._rows = efficient(context.trace)
        self._context, self._name, self._within = context, name, within

    def decide(self, state: State) -> Decision:
        """Apply the rule."""
        options = RoundOptions.of(state, self._rows, max(self._context.round_s, 1.0))
        most_w, again_s = np.inf, np.inf
        if state.allowance is not None:
            most_w = getattr(state.allowance, self._within)
            again_s = self._context.next_review_s(state.time_s)
        point, detail, _ = choose(options.program(options.completion_s, most_w=most_w), Timer(None))
        if point is None:
            raise ValueError(f"policy '{self._name}': {detail}")
        return Decision(options.chosen(point), again_s=again_s)


greenflow = partial(PowerFlow, name="greenflow", within="in_proportion_w")
