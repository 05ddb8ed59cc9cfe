"""`elastic`: the sizing program, solved whenever a job arrives or ends, restart costs included."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import Program
from wattsched.replay.jobs.menus import Floats, fastest
from wattsched.replay.jobs.policies.rounds import columns_of, program_of
from wattsched.replay.jobs.policies.worth import Worth, rank
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.solvers.conclude import relative_gap
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits, Solution, Start, Termination

RULE = "greedy"
"""Solver that is asked first: it starts from last round's prices, and its answer has a bound."""


class Elastic:
    """Chooses every job's GPU count anew, at default batch size, clock and power limit.

    Parameters
    ----------
    worth : callable
        What a round minimises, see `worth`.
    solver : str
        Solver of the registry that closes the gap where the rule leaves more than `Setting.gap`.
    """

    def __init__(self, setting: Setting, worth: Worth = rank, solver: str = "auto") -> None:
        self.restart_s = setting.restarts.process_s
        self._counts = fastest(setting.trace.menus, setting.trace.menus.standard)
        self._wait_s = max(setting.round_s, 1.0)
        self._worth = worth
        self._limits = Limits(gap=setting.gap)
        self._rule, self._solver = find_solver(RULE), find_solver(solver)
        self._prices: Floats | None = None

    def decide(self, view: View) -> Decision:
        """Solve the round to the gap asked for."""
        columns = columns_of(view, self._counts, self._wait_s)
        solution = self._solve(program_of(view, columns, self._worth(view, columns)))
        if solution.x is None or solution.objective is None:
            raise ValueError(f"policy 'elastic': no decision found: {solution.termination.detail}")
        self._prices = solution.prices
        return Decision(columns.chosen(solution.x), gap=relative_gap(solution.objective, solution.bound))

    def _solve(self, program: Program) -> Solution:
        if (everybody := _unhindered(program)) is not None:
            return everybody
        quick = self._rule(program, self._limits, Start(prices=self._prices))
        if quick.termination.reason == "optimal":
            return quick
        exact = self._solver(program, self._limits, Start(quick.x, quick.prices))
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
