r"""`sia`: goodput-optimal configurations, minute by minute (Jayaram Subramanya et al., SOSP 2023, section 3).

A configuration is a pool and a GPU count, at the batch size of highest goodput and the highest clock. The
goodputs of a job are divided by its least one and multiplied with the GPUs of that; changing them multiplies
them with the restart factor

.. math:: r = \frac{T - N S}{T + S}

for age T, restarts N so far and restart cost S. With these, G, a round solves

.. math:: \min \sum_j \Big(\sum_c x_{jc} G_{jc}^p + \lambda \big(1 - \sum_c x_{jc}\big)\Big),

one configuration at most for each job, within the pools' blocks; :math:`p = -0.5`, :math:`\lambda = 1.1`. A
new job starts in its smallest configurations, and no job gets more than twice the GPUs that it had last.

Where the paper is silent: a job that has waited counts the GPUs of its last run, the factor is 1 before a job
is older than a restart (as in the authors' simulator) and at least `LEAST_FACTOR`.
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.policies.gavel import FixedRounds
from wattsched.replay.jobs.policies.rounds import RoundOptions, RoundSolver, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.topology.arrays import FloatArray

ROUND_S = 60.0
FAIRNESS = -0.5
WAITING = 1.1
MOST_GROWTH = 2
LEAST_FACTOR = 0.01


class Sia:
    """Sia's ILP, each round solved to the context's gap."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s
        trace = context.trace
        self._rows = fastest(trace, trace.comparable)
        self._rounds = FixedRounds(ROUND_S)
        self._solver = RoundSolver("sia", context.gap)
        self._last_gpus, self._restarts = np.zeros((2, len(trace)), dtype=np.int64)

    def decide(self, state: State) -> Decision:
        """Solve the round."""
        if (kept := self._rounds.kept(state)) is not None:
            return kept
        options = self._reachable(RoundOptions.of(state, self._rows, ROUND_S))
        goodput = normalised(options) * self._factor(options)
        cost = np.where(options.waiting, WAITING, goodput**FAIRNESS)
        decision = self._solver.decide(options, options.program(cost), self._rounds.next_s)
        runs = decision.row != WAIT
        self._restarts[state.jobs[runs & state.ran & (decision.row != state.row)]] += 1
        self._last_gpus[state.jobs[runs]] = state.configurations.gpus[decision.row[runs]]
        return decision

    def _reachable(self, options: RoundOptions) -> RoundOptions:
        """Leave out counts that are more than twice the last ones; a new job has its smallest per pool."""
        state, gpus = options.state, options.gpus
        last = self._last_gpus[state.jobs][options.job]
        pools = len(state.trace.pools) + 1
        pool = np.where(options.waiting, WAIT, state.configurations.pool[options.row])
        place = options.job * pools + pool + 1
        least = np.full(len(state) * pools, np.iinfo(np.int64).max)
        np.minimum.at(least, place, gpus)
        return options.only((gpus <= MOST_GROWTH * last) | (gpus == least[place]))

    def _factor(self, options: RoundOptions) -> FloatArray:
        """Restart factor of every option, 1 where nothing restarts."""
        state = options.state
        age_s = state.time_s - state.trace.arrival_s[state.jobs]
        lost_s = self._restarts[state.jobs] * state.restart_s
        factor = np.maximum((age_s - lost_s) / np.maximum(age_s + state.restart_s, 1e-12), LEAST_FACTOR)
        factor = np.where(age_s < state.restart_s, 1.0, factor)
        now = state.row[options.job]
        kept = options.waiting | (now == WAIT) | (now == options.row)
        return np.asarray(np.where(kept, 1.0, factor[options.job]))


def normalised(options: RoundOptions) -> FloatArray:
    """Goodput of every option over the job's least one, times the GPUs of that; 1 for waiting."""
    starts, job = options.start[:-1], options.job
    rate = np.where(options.waiting, np.inf, options.rate)
    least = np.minimum.reduceat(rate, starts)
    gpus = np.where(rate == least[job], options.gpus, np.iinfo(np.int64).max)
    fewest = np.minimum.reduceat(gpus, starts)
    return np.asarray(np.where(options.waiting, 1.0, rate / least[job] * fewest[job]))
