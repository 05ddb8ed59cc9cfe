r"""Row prices with a certified bound, without a MIP and for large programs without an LP.

The Lagrangian bound :math:`L(y)` of `Program.lagrangian_bound` is concave in the prices. Cutting planes
bound it from above; the next prices lie between the best ones known and those that the planes propose
(in-out separation), which keeps the iterates from jumping.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.lp import Status, run, silent_highs, solve_lp
from wattsched.solvers.rows import first_least, largest_by, linked_choices
from wattsched.solvers.solution import Limits, certified
from wattsched.topology.arrays import BoolArray, FloatArray

SMALL = 2_000
"""Up to this many columns the LP is solved faster than the cutting planes converge."""
_CLUSTERS = 40
_ITERATIONS = 300
_STEP = 0.5


def dual_prices(
    program: Program,
    time_s: float | None = None,
    tolerance: float = 1e-6,
    start: FloatArray | None = None,
    enough: float = np.inf,
) -> tuple[FloatArray, float]:
    """Prices that nearly maximise the Lagrangian bound, and the bound that they prove.

    Parameters
    ----------
    time_s : float, optional
        Wall-clock limit; whatever is known by then is returned, and every price vector is valid.
    tolerance : float
        Relative distance to the best bound at which the search stops.
    start : float array, shape (n_rows,), optional
        Prices to begin at, for example the last round's.
    enough : float
        A bound that is good enough: the search also stops there.

    Returns
    -------
    prices : float array, shape (n_rows,)
    bound : float
        Far above any cost, or infinite, when the LP relaxation is infeasible.
    """
    # Rows that link choices are many, with prices of either sign: nothing for a few cutting planes.
    if (
        program.n_columns <= SMALL
        or program.n_groups == 0
        or not _bounded(program)
        or linked_choices(program).any()
    ):
        relaxed = solve_lp(program, Limits(time_s=time_s))
        if relaxed.prices is not None:
            return relaxed.prices, relaxed.bound
        prices, bound = certified(program, None)
        return prices, max(bound, relaxed.bound)
    if program.n_rows == 0:
        return certified(program, None)
    return certified(program, _cutting_planes(program, Timer(time_s), tolerance, start, enough))


def _bounded(program: Program) -> bool:
    free = slice(program.n_choices, None)
    return bool(np.all(np.isfinite(program.lower[free])) and np.all(np.isfinite(program.upper[free])))


def _cutting_planes(
    program: Program, timer: Timer, tolerance: float, start: FloatArray | None, enough: float
) -> FloatArray:
    oracle = _Oracle(program)
    cost_range = _cost_range(program)
    master = _Master(program, oracle.clusters, cost_range)
    centre = np.zeros(program.n_rows) if start is None else certified(program, start)[0]
    cut = oracle(centre)
    best = cut.value
    master.add(cut)
    for _ in range(_ITERATIONS):
        if best >= enough:
            break
        proposal = master.solve()
        if proposal is None or timer.over():
            break
        y, ceiling, at_edge = proposal
        if ceiling - best <= tolerance * max(min(1.0, cost_range), abs(best)):
            if not at_edge.any() or master.box > 1e6 * cost_range:
                break
            master.widen()
            continue
        between = centre + _STEP * (y - centre)
        cut = oracle(between)
        master.add(cut)
        if cut.value > best:
            best, centre = cut.value, between
    return centre


def _cost_range(program: Program) -> float:
    """Sum of what the groups' dearest columns cost above their cheapest, 1 where that is nothing."""
    start, cost = program.group_start[:-1], program.cost[: program.n_choices]
    spread = np.maximum.reduceat(cost, start) - np.minimum.reduceat(cost, start)
    return float(spread.sum()) or 1.0


@dataclass(frozen=True)
class _Cut:
    """At prices y: the bound, and per cluster the cost and the row use of the columns chosen."""

    value: float
    cost: FloatArray
    use: FloatArray


class _Oracle:
    """Evaluates the Lagrangian bound with one cut per cluster of groups, the last for free columns."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._by_column = program.matrix.T.tocsr()
        self.clusters = min(_CLUSTERS, program.n_groups)
        self._cluster = np.arange(program.n_groups) * self.clusters // program.n_groups

    def __call__(self, y: FloatArray) -> _Cut:
        program = self._program
        n = program.n_choices
        reduced = program.cost - self._by_column @ y
        chosen = first_least(reduced[:n], program.group_start)
        free = reduced[n:]
        corner = np.where(free > 0, program.lower[n:], program.upper[n:])
        cost = np.append(
            np.bincount(self._cluster, program.cost[chosen], self.clusters), float(program.cost[n:] @ corner)
        ).astype(float)
        use = np.zeros((self.clusters + 1, program.n_rows))
        taken = self._by_column[chosen].tocoo()
        np.add.at(use, (self._cluster[taken.row], taken.col), taken.data)
        use[-1] = self._by_column[n:].T @ corner
        up, down = y > 0, y < 0
        rows = float(y[up] @ program.row_lower[up]) + float(y[down] @ program.row_upper[down])
        value = program.offset + rows + float(reduced[chosen].sum()) + float(free @ corner)
        return _Cut(value, cost, use)


class _Master:
    """LP over the cuts: the prices, split by sign and in units of whole budgets, that look best."""

    def __init__(self, program: Program, clusters: int, box: float) -> None:
        lower, upper = np.isfinite(program.row_lower), np.isfinite(program.row_upper)
        self._rows = np.concatenate([np.flatnonzero(lower), np.flatnonzero(upper)])
        sign = np.concatenate([np.ones(lower.sum()), -np.ones(upper.sum())])
        budget = np.concatenate([program.row_lower[lower], program.row_upper[upper]])
        largest = largest_by(program.matrix.indices, np.abs(program.matrix.data), program.n_rows)
        row_size = np.where(largest > 0, largest, 1.0)
        self._unit = sign / np.maximum(np.abs(budget), row_size[self._rows])
        self._n_rows = program.n_rows
        self._offset = program.offset
        self._clusters = clusters
        self.box = box
        self._highs = silent_highs()
        self._highs.setOptionValue("threads", 1)
        m, k = len(self._rows), clusters + 1
        gain = np.concatenate([budget * self._unit, np.ones(k)])
        low = np.concatenate([np.zeros(m), np.full(k, -np.inf)])
        high = np.concatenate([np.full(m, box), np.full(k, np.inf)])
        none = np.zeros(0, dtype=np.int32)
        self._highs.addCols(m + k, -gain, low, high, 0, np.zeros(m + k, dtype=np.int32), none, np.zeros(0))

    def add(self, cut: _Cut) -> None:
        """Theta_k <= cost_k - use_k y."""
        k, m = self._clusters + 1, len(self._rows)
        values = np.hstack([cut.use[:, self._rows] * self._unit, np.ones((k, 1))])
        index = np.hstack([np.tile(np.arange(m), (k, 1)), m + np.arange(k)[:, None]]).astype(np.int32)
        start = (np.arange(k) * (m + 1)).astype(np.int32)
        self._highs.addRows(
            k, np.full(k, -np.inf), cut.cost, values.size, start, index.ravel(), values.ravel()
        )

    def solve(self) -> tuple[FloatArray, float, BoolArray] | None:
        """Prices, the value the cuts allow there, and which prices are at the edge of the box."""
        if run(self._highs) != Status.kOptimal:
            return None
        values = np.asarray(self._highs.getSolution().col_value)[: len(self._rows)]
        y = np.bincount(self._rows, values * self._unit, self._n_rows)
        value = self._offset - self._highs.getInfo().objective_function_value
        return np.asarray(y, dtype=float), value, values >= self.box * (1 - 1e-9)

    def widen(self) -> None:
        """Allow prices ten times as high."""
        self.box *= 10.0
        m = len(self._rows)
        self._highs.changeColsBounds(m, np.arange(m, dtype=np.int32), np.zeros(m), np.full(m, self.box))
