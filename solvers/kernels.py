"""Kernels: a program over the choice columns that row prices make likely, and what it tells of the whole.

A large neighbourhood search decides a few groups at a time anew, by a MIP over their cheapest columns. What a
point costs above the bound is what its columns' reduced costs are above the least of their groups, and what
it leaves of priced rows; groups whose columns cost more are decided anew more often (Shaw, "Using constraint
programming and local search methods to solve vehicle routing problems", 1998). How many it are follows from
how hard the last MIP was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_array, hstack

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers import highs
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.points import feasible
from wattsched.solvers.rows import cost_range, elastic, first_least, group_of_choice, restricted
from wattsched.solvers.solution import Limits, Solution, Start, unheard
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, offsets

# Columns besides each group's cheapest that the LP relaxation begins with.
_FIRST = 300
# With fewer columns for a row sifting is no faster.
_FEW = 10
# Rounding of sums of shares of limits.
_ROUNDING = 1e-9
# What is left of the LP's optimum, relative to it, when nothing joins any more.
_CLOSE = 1e-10

# Groups of the first neighbourhood, the same as a share of all, and the columns of each.
_GROUPS, _SHARE, _COLUMNS = 20, 0.01, 30
# From one neighbourhood to the next.
_GROWTH = 1.2
_PATIENCE = 5
# Of HiGHS, and what it may leave of what a point lacks.
_NODES, _LEFT = 100, 0.5
# Neighbourhoods in a row without a better point, after which nothing more is expected.
_FAILURES = 30
# Share of the largest excess with which groups without any are chosen.
_FLOOR = 1e-3


@dataclass(frozen=True)
class Kernel:
    """Restriction of a program to some of its choice columns; groups with one column are decided.

    Attributes
    ----------
    program : Program
        Over the open groups and the free columns of the full program.
    columns : int array, shape (n_columns of `program`,)
        Columns of the full program that its columns stand for.
    decided : float array, shape (n_columns of the full program,)
        Point of the full program with what the decided groups take.
    """

    program: Program
    columns: IntArray
    decided: FloatArray

    def lift(self, x: FloatArray) -> FloatArray:
        """Point of the full program from one of the kernel."""
        full = self.decided.copy()
        full[self.columns] = x
        return full

    def drop(self, x: FloatArray) -> FloatArray | None:
        """Point of the kernel from one of the full program, None when it takes another column."""
        point = x[self.columns]
        taken = point[: self.program.n_choices].sum()
        return point if np.all(x >= self.decided) and taken == self.program.n_groups else None

    def by_highs(self, limits: Limits, start: FloatArray | None, target: float, *, part: bool) -> Solution:
        """Solve the kernel by HiGHS, from and to a point of the full program, until the target is reached.

        Bound and prices are the kernel's; of a `part`, better points may be outside, and they are of no use.
        """
        point = None if start is None else self.drop(start)
        with unheard():
            answer = highs.solve(self.program, limits, Start(point), target, part=part)
        return answer if answer.x is None else replace(answer, x=self.lift(answer.x))


def kernel(program: Program, keep: BoolArray) -> Kernel:
    """Restrict a program to a mask of choice columns, at least one of every group, and the free columns."""
    start, n = program.group_start, program.n_choices
    counts = np.zeros(0, dtype=np.int64)
    if program.n_groups:
        counts = np.add.reduceat(keep.astype(np.int64), start[:-1])
    single = keep & np.repeat(counts == 1, np.diff(start))
    decided = np.zeros(program.n_columns)
    decided[:n] = single
    columns = np.concatenate([np.flatnonzero(keep & ~single), np.arange(n, program.n_columns)])
    group_start = offsets(counts[counts > 1])
    return Kernel(restricted(program, columns, decided, group_start), columns, decided)


def cheapest(above: FloatArray, size: int) -> BoolArray:
    """Mask of the columns of least reduced cost above their group's least, about `size`, with all ties.

    `above` is from `Program.above_least`; every group has a column with 0.
    """
    if size >= len(above):
        return np.ones(len(above), dtype=bool)
    return np.asarray(above <= max(0.0, float(np.partition(above, size)[size])))


def relaxed(program: Program, prices: FloatArray, timer: Timer) -> Solution:
    """Solve the LP relaxation by sifting: over the kernel of some prices, which columns that save cost join.

    The nearer the prices are to those of the optimum, the fewer columns are ever looked at.
    """
    keep = cheapest(program.above_least(prices), program.n_groups + _FIRST)
    while program.n_columns > _FEW * program.n_rows and not timer.over():
        part = kernel(program, keep)
        answer = solve_lp(part.program, Limits(time_s=timer.remaining_s()))
        lacking = answer.termination.reason == "infeasible"
        if lacking:
            answer = solve_lp(_extensible(part.program), Limits(time_s=timer.remaining_s()))
        if answer.x is None or answer.prices is None:
            break
        # Of every group the column of least reduced cost, where none that is as cheap is kept.
        above, start = program.above_least(answer.prices), program.group_start
        least = np.minimum.reduceat(np.where(keep, above, np.inf), start[:-1])
        joining = first_least(above, start)[least > 0.0]
        if not lacking:
            x, bound = part.lift(answer.x), program.lagrangian_bound(answer.prices)
            if len(joining) == 0 or program.objective(x) - bound <= _CLOSE * abs(bound):
                return replace(answer, x=x, bound=bound)
        elif len(joining) == 0:
            break
        keep[joining] = True
    return solve_lp(program, Limits(time_s=timer.remaining_s()))


def _extensible(program: Program) -> Program:
    """The program with limits that can be extended, at the price of all that its choices can save."""
    extended, _, _ = elastic(program, np.ones(program.n_rows, dtype=bool))
    dear = np.full(extended.n_columns - program.n_columns, cost_range(program))
    return replace(extended, cost=np.concatenate([program.cost, dear]), offset=program.offset)


def fitting(program: Program, timer: Timer) -> BoolArray:
    """Mask of the choice columns that a point may take, as far as prices of the upper limits alone tell.

    An LP asks for the least common share of the limits that will do. Its prices prove that share of a program
    without costs, and that columns fit nowhere whose reduced cost exceeds what is left of the limits.
    """
    limited = np.isfinite(program.row_upper) & ~np.isfinite(program.row_lower)
    share = csc_array(np.where(limited, -np.abs(program.row_upper), 0.0)[:, None])
    asked = replace(
        program,
        cost=np.append(np.zeros(program.n_columns), 1.0),
        matrix=csc_array(hstack([program.matrix, share])),
        lower=np.append(program.lower, -1.0),
        upper=np.append(program.upper, 1.0),
        integer=np.append(program.integer, False),
        columns=(),
        offset=0.0,
        bottleneck=None,
        attributes={},
    )
    prices = solve_lp(asked, Limits(time_s=timer.remaining_s())).prices
    if prices is None:
        return np.ones(program.n_choices, dtype=bool)
    costless = replace(program, cost=np.zeros(program.n_columns), offset=0.0)
    prices = costless.valid_prices(prices)
    left = _ROUNDING - costless.lagrangian_bound(prices)
    return np.asarray(costless.above_least(prices) <= left)


def improved(
    program: Program, prices: FloatArray, x: FloatArray, target: float, timer: Timer
) -> Iterator[FloatArray]:
    """Yield better points than the feasible `x`, until one costs at most `target` or no more are found.

    Row prices say which groups are decided anew, and among which of their columns.
    """
    above, group, rng = program.above_least(prices), group_of_choice(program), np.random.default_rng(0)
    # The rank of every column in its group, the cheapest first.
    rank = np.empty(len(above), dtype=np.int64)
    rank[np.lexsort((above, group))] = np.arange(len(above)) - program.group_start[group]
    size = max(float(_GROUPS), _SHARE * program.n_groups)
    cost, failures = program.objective(x), 0
    while cost > target and failures < _FAILURES and not timer.over():
        taken = x[: program.n_choices] > 0.5
        anew = np.zeros(program.n_groups, dtype=bool)
        anew[_excessive(above[taken], int(size), rng)] = True
        part = kernel(program, taken | (anew[group] & (rank < _COLUMNS)))
        answer = part.by_highs(Limits(0.0, timer.remaining_s(), nodes=_NODES), x, target, part=True)
        failures += 1
        if answer.x is not None and feasible(program, answer.x):
            found = program.objective(answer.x)
            if found < cost:
                x, cost, failures = answer.x, found, 0
                yield x
        if cost - answer.bound > _LEFT * (cost - target):
            size = max(1.0, size / _GROWTH)  # too hard a MIP
        elif failures and failures % _PATIENCE == 0:
            size = min(program.n_groups, size * _GROWTH)


def _excessive(excess: FloatArray, most: int, rng: np.random.Generator) -> IntArray:
    """Draw `most` groups, each the likelier the larger the excess of its column over the group's least."""
    weight = excess + (_FLOOR * float(excess.max()) or 1.0)
    return rng.choice(len(excess), min(most, len(excess)), replace=False, p=weight / weight.sum())
