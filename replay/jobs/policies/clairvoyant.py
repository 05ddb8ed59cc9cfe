r"""`clairvoyant`: rounds valued by a plan that knows all jobs to come, to tell what that knowledge is worth.

The plan is that of the bound on every schedule (`replay.jobs.bound.relaxation`): what a unit of the work of
each job is worth, :math:`\nu_j`, and what a joule costs in each slot of time, :math:`\mu_i` of the budget. A
round maximises

.. math:: \sum_j \nu_j s_j(c_j) - \mu_i \sum_j P_j(c_j),

of which the prices of GPUs in the plan come about by themselves, since jobs compete for the same GPUs. What
it reaches lies above what the best schedule does, and the bound below: between them is all that knowing the
future could gain.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.bound.ascent import bounded
from wattsched.replay.jobs.bound.clairvoyant import parts_of
from wattsched.replay.jobs.bound.workload import Workload
from wattsched.replay.jobs.policies.elastic import useful
from wattsched.replay.jobs.policies.rounds import RoundOptions, RoundSolver, efficient, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State


class Clairvoyant:
    """Every configuration of every job, by what a plan with all jobs to come says that its work is worth."""

    def __init__(self, context: PolicyContext) -> None:
        trace, self._context = context.trace, context
        self.restart_s = context.restarts.process_s
        self._priced = context.budget is not None or context.least_price > 0
        self._rows = efficient(trace) if self._priced else fastest(trace, trace.comparable)
        self._solver = RoundSolver("clairvoyant", context.gap)
        self._worth = self._begin_s = self._joule_price = np.empty(0)

    def _plan(self) -> None:
        """Find the worth of each job's work, and what a joule costs in each slot and after the last."""
        context = self._context
        workload = Workload.of(**parts_of(context.trace, context.budget))
        plan = bounded(workload, context.least_price)
        self._worth, self._begin_s = plan.found.used.worth, plan.relaxation.edge_s
        self._joule_price = np.append(plan.relaxation.per_joule(plan.prices), context.least_price)

    def decide(self, state: State) -> Decision:
        """Solve the round at the prices of the plan, which is made at the first one."""
        if not len(self._worth):
            self._plan()
        options = RoundOptions.of(state, self._rows, max(self._context.round_s, 1.0))
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
