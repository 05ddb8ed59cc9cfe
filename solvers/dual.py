r"""Row prices with a certified bound, without a MIP and for large programs without an LP.

The Lagrangian bound :math:`L(y)` of `Program.lagrangian_bound` is concave in the prices. Cutting planes
bound it from above; the next prices lie between the best ones known and those that the planes propose
(in-out separation), which keeps the iterates from jumping.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.kinds import KindProgram
from wattsched.formulations.kinds.shards import CLUSTERS, clusters_of
from wattsched.formulations.master import RestrictedMaster
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers.bottleneck import bottleneck_of, surrogate_prices
from wattsched.solvers.few_prices import prices_of_few
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import cost_range, first_least, linked_choices
from wattsched.solvers.solution import Cut, Dual, Limits, Start, certified, signed
from wattsched.topology.arrays import FloatArray, IntArray, largest_by

SMALL = 2_000
"""Up to this many columns the LP is solved faster than the cutting planes converge."""
# Whether more rows lack anything, cutting planes are often slow to say.
_FEW_ROWS = 20
# What is enough of a lack, relative to the rows.
_LACK = 0.01
_ITERATIONS = 300
_STEP = 0.5
# So often prices that are so many times as high are tried.
_PROBED, _FAR = 20, 1e3


def dual_prices(
    program: Program | KindProgram,
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
        Infinite when the LP relaxation is infeasible: prices that prove more than the dearest point costs
        prove that there is none.
    """
    if isinstance(program, Program) and (bottleneck := bottleneck_of(program)) is not None:
        return surrogate_prices(bottleneck, _prices_of_lack, time_s, start, enough)
    timer = Timer(time_s)
    if isinstance(program, Program) and (prices := prices_of_few(program, timer)) is not None:
        return certified(program, prices)
    # Rows that link choices are many, with prices of either sign: nothing for a few cutting planes.
    if isinstance(program, Program) and (
        program.n_columns <= SMALL
        or program.n_groups == 0
        or not _bounded(program)
        or linked_choices(program).any()
    ):
        return _by_lp(program, timer.remaining_s())
    if program.n_rows == 0:
        return certified(program, None)
    found = _cutting_planes(program, timer, tolerance, start, enough)
    return found.prices, found.bound


def dual_of_kinds(
    program: KindProgram,
    time_s: float | None = None,
    tolerance: float = 1e-6,
    start: Start | None = None,
    enough: float = np.inf,
) -> Dual:
    """Prices as of `dual_prices` for a program by kind, and the points that its LP relaxation mixes.

    It begins at the prices of `start`, or goes on from its `dual`, and stops after `time_s`, within the
    relative `tolerance` of the best bound, or at a bound of `enough`.
    """
    start = start or Start()
    if program.n_rows == 0:
        cut = _KindOracle(program)(np.zeros(0))
        return Dual(cut.prices, cut.value, cut.value, [cut], np.ones((1, len(cut.cost) - 1)))
    known = start.dual
    if known is not None:
        left = known.ceiling - known.bound
        if known.bound > enough or left <= _allowed(program.cost_range(), tolerance, known.bound):
            return known
    return _cutting_planes(program, Timer(time_s), tolerance, start.prices, enough, known)


def _lost(program: Program | KindProgram, prices: FloatArray) -> float:
    """Return by how much rounding may raise the bound at these prices, which is a difference of charges."""
    return 2.0 * VIOLATION * _charged(program, prices)


def _charged(program: Program | KindProgram, prices: FloatArray) -> float:
    """Size of what rows are charged in all, which a bound is the difference of."""
    ends = np.where(prices > 0, program.row_lower, program.row_upper)
    return float(np.abs(prices * np.where(prices == 0, 0.0, ends)).sum())


def _by_lp(program: Program, time_s: float | None) -> tuple[FloatArray, float]:
    """Prices from the LP relaxation, and the bound that they prove."""
    relaxed = solve_lp(program, Limits(time_s=time_s))
    prices, bound = certified(program, None) if relaxed.prices is None else (relaxed.prices, -np.inf)
    return prices, max(bound, relaxed.bound)


def _prices_of_lack(program: Program, time_s: float | None) -> tuple[FloatArray, float]:
    """Prices that prove that rows lack something, and that bound; how much they lack does not matter."""
    if program.n_rows > _FEW_ROWS:
        return _by_lp(program, time_s)
    return dual_prices(program, time_s, enough=_LACK)


def _bounded(program: Program) -> bool:
    free = slice(program.n_choices, None)
    return bool(np.all(np.isfinite(program.lower[free])) and np.all(np.isfinite(program.upper[free])))


def _cutting_planes(
    program: Program | KindProgram,
    timer: Timer,
    tolerance: float,
    start: FloatArray | None,
    enough: float,
    known: Dual | None = None,
) -> Dual:
    """Maximise the Lagrangian bound by cutting planes from the prices `start`, or on from `known`.

    It stops within `tolerance`, relative, of the best bound, or at a bound of `enough`.
    """
    oracle = _KindOracle(program) if isinstance(program, KindProgram) else _Oracle(program)
    spread = oracle.spread
    master = _Master(program, oracle)
    if known is None:
        centre = np.zeros(program.n_rows) if start is None else signed(program, start)
        if VIOLATION * _charged(program, centre) > spread:  # of such prices rounding is all that is left
            centre = np.zeros(program.n_rows)
        cuts = [oracle(centre)]
        best = cuts[0].value
    else:
        centre, best, cuts = known.prices, known.bound, list(known.cuts)
    for cut in cuts:
        master.add(cut)
    # A bound above what the dearest point costs proves that there is none.
    dearest, ceiling = oracle.costs_at_most(), np.inf
    for number in range(1, _ITERATIONS + 1):
        if best > enough or best > dearest + _lost(program, centre):
            break
        if number % _PROBED == 0 and (far := oracle(_FAR * centre)).value > best:
            # Prices rise without end where rows lack something, but by small steps.
            cuts.append(far)
            master.add(far)
            best, centre = far.value, far.prices
            continue
        proposal = master.solve(timer)
        if proposal is None or timer.over():
            break
        y, ceiling, at_edge = proposal
        if ceiling - best <= _allowed(spread, tolerance, best):
            # At the edge of the box higher prices might prove more.
            if not at_edge or master.box > 1e6 * spread:
                break
            master.widen()
            continue
        cut = oracle(centre + _STEP * (y - centre))
        cuts.append(cut)
        master.add(cut)
        if cut.value > best:
            best, centre = cut.value, cut.prices
    infeasible = best > dearest + _lost(program, centre)
    return Dual(centre, np.inf if infeasible else best, ceiling, cuts, master.weights())


def _allowed(spread: float, tolerance: float, bound: float) -> float:
    """Return the gap to the best bound, in cost, at which prices are good enough; `tolerance` is relative."""
    return tolerance * max(min(1.0, spread), abs(bound))


class _Oracle:
    """Evaluates the Lagrangian bound with one cut per cluster of groups, the last for free columns."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._by_column = program.matrix.T.tocsr()
        self.clusters = min(CLUSTERS, program.n_groups)
        self._cluster = clusters_of(program.n_groups)
        self.offset, self.spread = program.offset, cost_range(program)

    def largest_use(self) -> FloatArray:
        """Largest use of every row by a column, shape (n_rows,)."""
        matrix = self._program.matrix
        return largest_by(matrix.indices, np.abs(matrix.data), self._program.n_rows)

    def costs_at_most(self) -> float:
        """More than any point within the columns' bounds costs, by more than rounding."""
        program, n, cost = self._program, self._program.n_choices, self._program.cost
        choices = np.maximum.reduceat(cost[:n], program.group_start[:-1])
        free = np.maximum(cost[n:] * program.lower[n:], cost[n:] * program.upper[n:])
        size = abs(program.offset) + float(np.abs(choices).sum()) + float(np.abs(free).sum())
        return program.offset + float(choices.sum()) + float(free.sum()) + VIOLATION * size

    def __call__(self, y: FloatArray) -> Cut:
        """Cut at row prices: the bound there, and cost and use of the cheapest columns."""
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
        return Cut(y, value, cost, use)


class _KindOracle:
    """The same of a program by kind, which has no free columns."""

    def __init__(self, program: KindProgram) -> None:
        self._program = program
        self.clusters = min(CLUSTERS, program.n_groups)
        self.offset, self.spread = 0.0, program.cost_range()
        self.costs_at_most, self.largest_use = program.costs_at_most, program.largest_use

    def __call__(self, y: FloatArray) -> Cut:
        program, sums = self._program, self._program.sums(y)
        nothing = np.zeros((1, program.n_rows))
        value = program.charged(y) + float(sums.least.sum())
        return Cut(y, value, np.append(sums.cost, 0.0), np.vstack([sums.use, nothing]))


class _Master:
    """LP over mixtures of the cuts' choices: the prices that look best, at most `box` per whole budget.

    Rows are divided by their `_size`; the columns `_elastic` extend their limits, each at the cost `box`.
    `_taken` is the last optimum.
    """

    def __init__(self, program: Program | KindProgram, oracle: _Oracle | _KindOracle) -> None:
        lower, upper = np.isfinite(program.row_lower), np.isfinite(program.row_upper)
        limits = (np.where(lower, program.row_lower, 0.0), np.where(upper, program.row_upper, 0.0))
        largest, clusters = oracle.largest_use(), oracle.clusters
        self._size = np.maximum(np.max(np.abs(limits), axis=0), np.where(largest > 0, largest, 1.0))
        self._cuts: list[IntArray] = []
        self._taken = np.zeros(0)
        self._offset, self.box = oracle.offset, oracle.spread
        self._lp = RestrictedMaster("cutting planes", unit=self.box / max(1, program.n_groups))
        self._lp.add_rows(program.row_lower / self._size, program.row_upper / self._size)
        self._lp.add_rows(np.ones(clusters + 1), 1.0)  # each cluster takes one cut, or a mixture
        rows = np.concatenate([np.flatnonzero(lower), np.flatnonzero(upper)])
        sign = np.concatenate([np.ones(lower.sum()), -np.ones(upper.sum())])
        shape = (self._lp.n_rows, len(rows))
        self._elastic = self._lp.add_columns(csc_array((sign, (rows, np.arange(len(rows)))), shape), self.box)

    def add(self, cut: Cut) -> None:
        """Let every cluster choose as in the cut."""
        entries = np.vstack([(cut.use / self._size).T, np.eye(len(cut.cost))])
        self._cuts.append(self._lp.add_columns(csc_array(entries), cut.cost))

    def weights(self) -> FloatArray:
        """Return the share of every cut in the last optimum, shape (n_cuts, n_clusters)."""
        taken = np.append(self._taken, np.zeros(self._lp.n_columns - len(self._taken)))
        return np.array([taken[columns[:-1]] for columns in self._cuts])

    def solve(self, timer: Timer) -> tuple[FloatArray, float, bool] | None:
        """Prices, the bound the cuts allow, and whether a price is at the box's edge; None without time."""
        try:
            optimum = self._lp.solve(timer)
        except RuntimeError:
            return None
        self._taken = optimum.x
        y = optimum.prices[: len(self._size)] / self._size
        return y, self._offset + optimum.cost, bool((optimum.x[self._elastic] > VIOLATION).any())

    def widen(self) -> None:
        """Allow prices ten times as high."""
        self.box *= 10.0
        self._lp.change_costs(self._elastic, self.box)
