r"""`gavel-max-min` and `sia`: rounds of a fixed length.

`gavel-max-min`: heterogeneity-aware max-min fairness (Narayanan et al., OSDI 2020, sections 4.1 and 5).

An LP gives every job m a share :math:`X_{mp}` of its time on the GPUs of every pool p,

.. math:: \max_X \min_m z_m \frac{\sum_p T_{mp} X_{mp}}{\sum_p T_{mp} X^{equal}_p}
          \quad\text{s.t.}\quad \sum_p X_{mp} \le 1,\ \sum_m z_{mp} X_{mp} \le W_p,

with the rate T of the job on the GPUs asked for, their number z, and :math:`X^{equal}` in proportion to the
GPUs W of the pools. Rounds follow the shares by priorities: the share that a job should have of a pool over
the share that it has received. In every round the highest priorities run, as far as there is room. Gavel
counts what was received from the last change of the shares on, and hands the difference over. Here it is
forgotten by halves instead, so that shares may change in every round.

Where the paper is silent: a job counts for the block that it takes up, jobs alike have one variable, and room
that the shares leave in a round is given to those left over, in the order of arrival.

`sia`: goodput-optimal configurations, minute by minute (Jayaram Subramanya et al., SOSP 2023, section 3).

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
from wattsched.replay.jobs.policies.requests import FreeGpus
from wattsched.replay.jobs.policies.rounds import RoundOptions, RoundSolver, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import FloatArray, IntArray, least_by

ROUND_S = 360.0
"""Gavel's round."""

MEMORY_ROUNDS = 10.0
"""Rounds after which what was received counts half."""

SIA_ROUND_S = 60.0
FAIRNESS = -0.5
WAITING = 1.1
MOST_GROWTH = 2
LEAST_FACTOR = 0.01
"""Sia's round, and the constants of its program."""


class FixedRounds:
    """Rounds of a fixed length, the next at `next_s`; between them everything stays as it is."""

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self.next_s = -np.inf

    def kept(self, state: State) -> Decision | None:
        """Decision before the next round has come; None when it has, and begins."""
        # Rounds of the replay may come a rounding error early.
        if state.time_s < self.next_s - 1e-6 * self._round_s:
            return Decision(state.row.copy(), again_s=self.next_s, host=state.shared)
        self.next_s = state.time_s + self._round_s
        return None


class Turns:
    """Rounds in which jobs take turns, so that each has its share of time of every pool."""

    def __init__(self, trace: Trace) -> None:
        self.rounds = FixedRounds(ROUND_S)
        # Of late: seconds that each job held GPUs of each pool, and that it was here.
        self._held_s = np.zeros((len(trace), len(trace.pools)))
        self._here_s = np.zeros(len(trace))
        self._since_s = 0.0

    def rows(self, state: State, takers: IntArray, target: FloatArray) -> IntArray:
        """Rows of the jobs when this round goes to those that have had least of their target shares.

        Parameters
        ----------
        takers : int array, shape (m,)
            Indices of the jobs that take part, to whom room that is left goes in this order.
        target : float array, shape (m, n_pools)
            Share of time that each should have.
        """
        received = self._received(state)[takers]
        room, of = FreeGpus.all(state), state.configurations
        row = np.full(len(state), WAIT, dtype=np.int64)
        for i, pool in by_priority(target, received):
            if row[j := takers[i]] == WAIT:
                row[j] = room.take_row(of, state.request[j, pool : pool + 1])
        for j in takers[row[takers] == WAIT].tolist():
            row[j] = room.take_row(of, state.request[j])
        return row

    def _received(self, state: State) -> FloatArray:
        """Share of its time that each job had of each pool, of late; counts the time since the last round."""
        seconds, self._since_s = state.time_s - self._since_s, state.time_s
        jobs = state.jobs
        here_s = np.minimum(seconds, state.time_s - state.trace.arrival_s[jobs])
        keep = 0.5 ** (here_s / (MEMORY_ROUNDS * ROUND_S))
        self._here_s[jobs] = self._here_s[jobs] * keep + here_s
        self._held_s[jobs] *= keep[:, None]
        runs = ~state.waits
        self._held_s[jobs[runs], state.configurations.pool[state.row[runs]]] += here_s[runs]
        return self._held_s[jobs] / np.maximum(self._here_s[jobs], 1e-12)[:, None]


def by_priority(target: FloatArray, received: FloatArray) -> list[tuple[int, int]]:
    """Jobs and pools by the share that they should have over the one received, the highest first.

    Those that have received nothing come before all others, the largest share first. Shares of zero are left
    out.
    """
    job, pool = np.nonzero(target > 1e-9)
    wanted, had = target[job, pool], received[job, pool]
    priority = np.divide(wanted, had, out=np.full(len(job), np.inf), where=had > 0)
    order = np.lexsort((-wanted, -priority))
    return list(zip(job[order].tolist(), pool[order].tolist(), strict=True))


class Gavel:
    """Max-min fairness of throughput, on the GPUs asked for, in rounds of six minutes."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s
        self._turns = Turns(context.trace)
        self._jobs: IntArray | None = None
        self._shares = np.zeros((0, 0))

    def decide(self, state: State) -> Decision:
        """Give this round to those that have had least of their share."""
        if (kept := self._turns.rounds.kept(state)) is not None:
            return kept
        if self._jobs is None or not np.array_equal(state.jobs, self._jobs):
            self._jobs, self._shares = state.jobs, shares(state)
        row = self._turns.rows(state, np.arange(len(state)), self._shares)
        return Decision(row, again_s=self._turns.rounds.next_s)


def shares(state: State) -> FloatArray:
    """Shares of time that maximise the least normalised throughput, shape (n, n_pools)."""
    gpus = state.trace.available.astype(float)
    alike, of_job, number = np.unique(state.request, axis=0, return_inverse=True, return_counts=True)
    runs = alike != WAIT
    rate = np.where(runs, state.configurations.rate[alike], 0.0)
    block = np.where(runs, state.configurations.block[alike], 0)
    equal = rate @ (gpus / gpus.sum())
    value = rate / equal[:, None] * block.max(axis=1)[:, None]
    return max_min(value, number[:, None] * block, gpus)[of_job.reshape(-1)]


def max_min(value: FloatArray, use: FloatArray | IntArray, capacity: FloatArray) -> FloatArray:
    """Maximise the least of the sums of ``value * x`` over the rows, by a linear program.

    Parameters
    ----------
    value : float array, shape (n, n_pools)
        0 where a row cannot use a pool.
    use : array, shape (n, n_pools)
        What all of a pool's time takes of its capacity.
    capacity : float array, shape (n_pools,)

    Returns
    -------
    float array, shape (n, n_pools)
        x, at least 0, its rows with sums of at most 1.
    """
    from scipy.optimize import linprog

    n, pools = value.shape
    of_row = np.repeat(np.eye(n), pools, axis=1)
    # The least sum is below each, the shares of a row sum to at most 1, and pools have room.
    least = np.append(np.ones(n), np.zeros(n + pools))[:, None]
    rows = np.vstack([-of_row * value.ravel(), of_row, np.tile(np.eye(pools), n) * use.ravel()])
    answer = linprog(
        np.append(np.zeros(n * pools), -1.0),
        A_ub=np.hstack([rows, least]),
        b_ub=np.concatenate([np.zeros(n), np.ones(n), capacity]),
        bounds=[*((0.0, float(able)) for able in value.ravel() > 0), (0.0, None)],
        method="highs",
    )
    if answer.x is None:
        raise RuntimeError(f"the LP of shares was not solved: {answer.message}")
    return np.clip(answer.x[:-1], 0.0, 1.0).reshape(n, pools)


class Sia:
    """Sia's ILP, each round solved to the context's gap."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s
        trace = context.trace
        alone = context.caps.fit(trace, float(trace.arrival_s[0]))
        self._rows = fastest(trace, trace.comparable & alone)
        self._rounds = FixedRounds(SIA_ROUND_S)
        self._solver = RoundSolver("sia", context.gap)
        self._last_gpus, self._restarts = np.zeros((2, len(trace)), dtype=np.int64)

    def decide(self, state: State) -> Decision:
        """Solve the round."""
        if (kept := self._rounds.kept(state)) is not None:
            return kept
        options = self._reachable(RoundOptions.of(state, self._rows, SIA_ROUND_S))
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
        least = least_by(place, gpus, len(state) * pools, np.iinfo(np.int64).max)
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
