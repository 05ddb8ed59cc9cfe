"""Solves the programs of successive rounds, each from the prices of the one before."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import Program
from wattsched.replay.jobs.policies.rounds import Columns
from wattsched.replay.jobs.policy import Decision
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits, Solution, Start, Termination, relative_gap
from wattsched.topology.arrays import FloatArray

RULE = "greedy"
"""Solver that is asked first: it starts from last round's prices, and its answer has a bound."""

MOST_NODES = 50
"""Nodes of branch and cut for a round that stays short of its gap: a decision is due."""


class RoundSolver:
    """A rule, and a solver that closes the gap where the rule leaves more than asked for.

    Parameters
    ----------
    policy : str
        For messages.
    solver : str
        Name of the solver in the registry.
    gap : float

    Attributes
    ----------
    prices : float array, shape (n_rows,)
        Of the rows of the last program.
    objective : float
        Cost of the last decision.
    """

    def __init__(self, policy: str, solver: str, gap: float) -> None:
        self._policy = policy
        self._limits = Limits(gap=gap, nodes=MOST_NODES)
        self._rule, self._solver = find_solver(RULE), find_solver(solver)
        self.prices: FloatArray = np.zeros(0)
        self.objective = 0.0
        self._prices: dict[int, FloatArray] = {}

    def decide(self, columns: Columns, program: Program, again_s: float = np.inf) -> Decision:
        """Solve a round.

        Raises
        ------
        ValueError
            When no decision is found.
        """
        solution = self._solve(program)
        if solution.x is None or solution.objective is None:
            raise ValueError(f"policy '{self._policy}': no decision found: {solution.termination.detail}")
        self.prices = np.zeros(program.n_rows) if solution.prices is None else solution.prices
        self.objective = solution.objective
        gap = relative_gap(solution.objective, solution.bound)
        return Decision(columns.chosen(solution.x), gap=gap, again_s=again_s)

    def _solve(self, program: Program) -> Solution:
        if (everybody := _unhindered(program)) is not None:
            return everybody
        quick = self._rule(program, self._limits, Start(prices=self._last(program)))
        if quick.prices is not None:
            self._prices[program.n_rows] = quick.prices
        if quick.termination.reason == "optimal":
            return quick
        exact = self._solver(program, self._limits, Start(quick.x, quick.prices))
        if quick.x is not None and (exact.x is None or (exact.objective or 0.0) > (quick.objective or 0.0)):
            return quick
        return exact

    def _last(self, program: Program) -> FloatArray | None:
        """Prices of the last program with these rows."""
        return self._prices.get(program.n_rows)


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
