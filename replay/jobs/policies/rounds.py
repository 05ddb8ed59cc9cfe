"""Rounds of a replay by the formulation `mckp` of `sizing`, on arrays; each starts at the prices of the last.

Building an `Instance` and expanding it would give the same program, many times slower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from wattsched.formulations.program import Program, ProgramBuilder
from wattsched.formulations.sizing.budgets import BudgetRow
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.formulations.sizing.cutting import add_room_rows
from wattsched.formulations.sizing.mckp import add_limits, program_of
from wattsched.replay.jobs.policy import Decision, State
from wattsched.replay.jobs.trace import Trace
from wattsched.solvers.greedy import efficient_columns
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits, Solution, Start, Termination, relative_gap
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, alike, offsets

QUICK, EXACT = "greedy", "auto"
"""Solver that is asked first, as it starts from last round's prices and its answer has a bound; and then."""

MOST_NODES = 50
"""Nodes of branch and cut for a round that stays short of its gap: a decision is due."""


@dataclass(frozen=True)
class RoundOptions:
    """Options of the jobs of a state, job by job, each job's waiting last.

    Objectives of `sizing` read it (`formulations.sizing.objectives.OptionArrays`).

    Attributes
    ----------
    round_s : float
        Seconds that a job loses that waits now.
    start : int array, shape (n_jobs + 1,)
    job, row, gpus : int arrays, shape (n_options,)
        Index of the job in the state, its configuration (-1 for waiting), and GPUs.
    rate, busy_w, lost_s : float arrays, shape (n_options,)
        Work per second, draw above idle, and seconds before the job works; 0 for waiting.
    completion_s : float array, shape (n_options,)
        Seconds to completion; for waiting `round_s` plus the best completion from a standing start.
    """

    state: State
    round_s: float
    start: IntArray
    job: IntArray
    row: IntArray
    gpus: IntArray
    rate: FloatArray
    busy_w: FloatArray
    lost_s: FloatArray
    completion_s: FloatArray

    @classmethod
    def of(cls, state: State, rows: IntArray, round_s: float) -> RoundOptions:
        """Options of some rows of the configurations, in ascending order, and of waiting."""
        of, trace = state.configurations, state.trace
        if state.caps.names:  # A job must not wait for what no cap will ever allow.
            fits = state.caps.fit(trace, state.time_s)
            hopeless = ~np.isin(of.kind[rows], of.kind[rows[fits[rows]]])
            rows = rows[fits[rows] | hopeless]
        start, job, row = of.laid_out(state.kind, rows)
        waits = row == WAIT
        columns = of.rate[row], trace.busy_w[row], state.delay_s(job, row)
        rate, busy_w, lost_s = (np.where(waits, 0.0, column) for column in columns)
        best_s = state.remaining / np.maximum.reduceat(rate, start[:-1])
        waiting_s = round_s + best_s + np.where(state.ran, state.restart_s, 0.0)
        running_s = state.remaining[job] / np.where(waits, 1.0, rate) + lost_s
        completion_s = np.where(waits, waiting_s[job], running_s)
        gpus = np.where(waits, 0, of.gpus[row])
        return cls(state, round_s, start, job, row, gpus, rate, busy_w, lost_s, completion_s)

    def only(self, keep: BoolArray) -> RoundOptions:
        """Keep some of the options, and those of waiting."""
        keep = keep | self.waiting
        start = offsets(np.add.reduceat(keep, self.start[:-1], dtype=np.int64))
        names = ("job", "row", "gpus", "rate", "busy_w", "lost_s", "completion_s")
        columns: dict[str, Any] = {name: getattr(self, name)[keep] for name in names}
        return replace(self, start=start, **columns)

    @cached_property
    def waiting(self) -> BoolArray:
        """Mask of the options that are waiting."""
        return np.asarray(self.row == WAIT)

    @property
    def change_cost(self) -> FloatArray:
        """Cost of changes besides the time that is lost: zero."""
        return np.zeros(len(self.job))

    @property
    def weight(self) -> FloatArray:
        """Weight of each job: all count the same."""
        return np.ones(len(self.state))

    @property
    def work(self) -> FloatArray:
        """Work left of each job."""
        return self.state.remaining

    @property
    def best_s(self) -> FloatArray:
        """Best completion of each job from a standing start."""
        return self.completion_s[self.waiting] - self.round_s

    @property
    def least_s(self) -> FloatArray:
        """Best completion of each job from now; going on as it runs takes no restart."""
        running_s = np.where(self.waiting, np.inf, self.completion_s)
        return np.asarray(np.minimum.reduceat(running_s, self.start[:-1]))

    @property
    def least_gpu_s(self) -> FloatArray:
        """GPU seconds that a unit of each job's work takes at least."""
        gpu_s = np.divide(self.gpus, self.rate, out=np.full(len(self.rate), np.inf), where=~self.waiting)
        return np.asarray(np.minimum.reduceat(gpu_s, self.start[:-1]))

    @property
    def counted_j(self) -> FloatArray:
        """Energy above that of idle GPUs within the round."""
        return self.busy_w * np.minimum(self.completion_s, self.round_s)

    @property
    def per_joule(self) -> dict[str, float]:
        """Joules alone have a meaning here."""
        return {"energy": 1.0}

    @property
    def reference_rate(self) -> FloatArray:
        """Best rate of each job at its smallest GPU count."""
        gpus = np.where(self.waiting, np.iinfo(np.int64).max, self.gpus)
        fewest = gpus == np.minimum.reduceat(gpus, self.start[:-1])[self.job]
        return np.asarray(np.maximum.reduceat(np.where(fewest, self.rate, 0.0), self.start[:-1]))

    def program(self, cost: FloatArray, *, worst: bool = False, most_w: float = np.inf) -> Program:
        """Program that chooses one option of every job at least cost, so that all fit into the pools' blocks.

        Parameters
        ----------
        worst : bool
            Count the largest cost of a job, not their sum.
        most_w : float
            Most that the cluster may draw; if finite, the last row limits the draw above the idle one.
        """
        rows, trace, of = ProgramBuilder(), self.state.trace, self.state.configurations
        block = np.where(self.waiting, 0, of.block[self.row])
        add_room_rows(rows, trace.rooms, of.pool[self.row], block)
        caps = zip(self.state.caps.names, self.state.room_w.tolist(), self.state.caps.inside.T, strict=True)
        for name, room_w, inside in caps:
            use_w = np.where(~self.waiting & inside[of.pool[self.row]], np.maximum(self.busy_w, 0.0), 0.0)
            add_limits(rows, [BudgetRow.of(f"cap:{name}", use_w, room_w, 0.0)])
        if self.state.allowance is not None and most_w < np.inf:
            standing_w = self.state.allowance.standing_w
            add_limits(rows, [BudgetRow.of("power_w", self.busy_w, max(most_w, standing_w), standing_w)])
        return program_of(self.start, cost, rows, self._attributes(), worst=worst)

    def _attributes(self) -> dict[str, FloatArray]:
        """Quantities that published rules read; a job that waits will take its least energy."""
        power_w = np.where(self.waiting, np.inf, self.state.configurations.power_w[self.row])
        energy_j = power_w * self.completion_s
        least_j = np.minimum.reduceat(energy_j, self.start[:-1])
        return {
            "gpus": self.gpus.astype(float),
            "completion_s": self.completion_s,
            "energy_j": np.where(self.waiting, least_j[self.job], energy_j),
        }

    def chosen(self, x: FloatArray) -> IntArray:
        """Configuration of each job from a point of the program."""
        return self.row[np.flatnonzero(x[: len(self.row)] > 0.5)]


class RoundSolver:
    """A quick solver, and an exact one that closes the gap where the quick one leaves more than requested.

    Attributes
    ----------
    prices : dict of str to float
        Of the rows of the last program by their names, as far as they are not 0.
    objective : float
        Cost of the last decision.
    """

    def __init__(self, policy: str, gap: float) -> None:
        self._policy = policy
        self._limits = Limits(gap=gap, nodes=MOST_NODES)
        self._quick, self._exact = find_solver(QUICK), find_solver(EXACT)
        self.prices: dict[str, float] = {}
        self.objective = 0.0
        self._last_prices: dict[str, float] = {}

    def decide(self, options: RoundOptions, program: Program, again_s: float = np.inf) -> Decision:
        """Solve a round; a ValueError when no decision is found."""
        solution = _unhindered(program) or self._solve(program)
        if solution.x is None or solution.objective is None:
            raise ValueError(f"policy '{self._policy}': no decision found: {solution.termination.detail}")
        self.prices = {} if solution.prices is None else program.named_prices(solution.prices)
        self.objective = solution.objective
        gap = relative_gap(solution.objective, solution.bound)
        return Decision(options.chosen(solution.x), gap=gap, again_s=again_s)

    def _solve(self, program: Program) -> Solution:
        last = np.array([self._last_prices.get(name, 0.0) for name in program.row_names()])
        quick = self._quick(program, self._limits, Start(prices=last))
        if quick.prices is not None:
            self._last_prices = program.named_prices(quick.prices)
        if quick.termination.reason == "optimal":
            return quick
        start = Start(quick.x, quick.prices)
        exact = self._exact.at_once(program, self._limits) or self._exact(program, self._limits, start)
        if quick.x is not None and (exact.x is None or (exact.objective or 0.0) > (quick.objective or 0.0)):
            return quick
        return exact


def _unhindered(program: Program) -> Solution | None:
    """Every job's best column, where there is room for all of them; prices are zero then."""
    starts = program.group_start
    least = np.repeat(np.minimum.reduceat(program.cost, starts[:-1]), np.diff(starts))
    hits = np.flatnonzero(program.cost == least)
    x = np.zeros(program.n_columns)
    x[hits[np.searchsorted(hits, starts[:-1])]] = 1.0
    if np.any(program.matrix @ x > program.row_upper):
        return None
    cost = program.objective(x)
    return Solution(Termination("optimal"), x, cost, cost, np.zeros(program.n_rows))


# -- which configurations a policy looks at --------------------------------------------------------------


def efficient(trace: Trace) -> IntArray:
    """Rows on the upper concave hull of rate over draw above idle, for each kind, pool and block size.

    Whatever a joule costs, the best row of a block is one of them. Only rows whose rates compare take part.
    """
    of = trace.configurations
    group = alike([of.kind, of.pool, of.block])[1]
    return efficient_columns(trace.busy_w, of.rate, group, trace.comparable)


def fastest(trace: Trace, among: BoolArray) -> IntArray:
    """Rows that no other row of the kind beats: as fast or faster in the same pool in no larger block."""
    of, rows = trace.configurations, np.flatnonzero(among)
    rows = rows[np.lexsort((of.gpus[rows], -of.rate[rows], of.block[rows], of.pool[rows], of.kind[rows]))]
    group = of.kind[rows] * len(trace.pools) + of.pool[rows]
    # By rates within the kind and pool, as numbers that rise from one of them to the next.
    rank = group * (len(rows) + 1) + np.unique(of.rate[rows], return_inverse=True)[1]
    return np.sort(rows[rank > np.maximum.accumulate(np.append(-1, rank[:-1]))])
