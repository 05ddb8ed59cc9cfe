"""`greedy`: steepest ascent along every group's efficient frontier, ordered by the rows' prices.

Every group starts with the column that uses least, uses weighted by row prices. Upgrades along the convex
frontiers of (use, cost) are made in the order of their saving per use while they fit; then single swaps fill
what is left of the rows. Columns that can only be taken together are tried after the upgrades. The prices
come with a bound, so the answer has a gap.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.bottleneck import bottleneck_values
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.points import feasible_point
from wattsched.solvers.rows import RowSlack, first_least, linked_choices, linking_rows
from wattsched.solvers.solution import Limits, Solution, Start, announce, conclude, infeasible, unsupported
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, largest_by, run_starts

NOTHING_FOUND = "no choice that satisfies all rows was found greedily"

_DUAL_SHARE = 0.5
_WEIGHT_ROUNDS = 40
_FILL_PASSES = 30
_REPAIR_SWAPS = 300
_GIVEN = (1.0, 0.75, 0.5, 0.25)
# Least weight of a row, relative to the row with the highest price: no row is for free.
_FLOOR = 1e-3


def solve(program: Program, limits: Limits, start: Start | None = None) -> Solution:
    """Build a decision greedily; of `start` the prices are used.

    Declines programs whose bottleneck rows involve several groups. Finds nothing on some
    feasible programs, above all on those with equality rows.
    """
    timer = Timer(limits.time_s)
    share_s = timer.share(_DUAL_SHARE).remaining_s()
    prices, bound = dual_prices(program, share_s, start=None if start is None else start.prices)
    if bound == np.inf:
        return infeasible(prices, "the LP relaxation is infeasible")
    if (values := bottleneck_values(program)) is None:
        return unsupported("a bottleneck row involves several groups")
    x = None
    for slack in _ascents(program, prices, values, timer):
        if (better := feasible_point(program, slack.point())) is not None:
            x = better
            announce(bound, prices, x, program.objective(x))
    detail = "" if x is not None else NOTHING_FOUND
    return conclude(program, limits, x, bound, prices, "time" if x is None and timer.over() else None, detail)


def ascend(program: Program, prices: FloatArray, timer: Timer) -> FloatArray | None:
    """Build a point under given row prices; None when that does not succeed."""
    if (values := bottleneck_values(program)) is None:
        return None
    steps = list(_ascents(program, prices, values, timer))
    return feasible_point(program, steps[-1].point()) if steps else None


def _ascents(program: Program, prices: FloatArray, values: FloatArray, timer: Timer) -> Iterator[RowSlack]:
    """Yield the choices after each step, none costlier than those before; nothing when that does not succeed.

    `values` are what the bottleneck is at least where a column is taken, as of `bottleneck_values`.
    """
    least, first = np.inf, _Ascent(program, timer)
    for slack in first.steps(prices, values):
        least = float(program.cost[slack.chosen].sum())
        yield slack
    for taken in _givers(program, first.slack):
        if timer.over():
            return
        for slack in _Ascent(program, timer, taken).steps(prices, values):
            if (cost := float(program.cost[slack.chosen].sum())) < least:
                least = cost
                yield slack


def _givers(program: Program, slack: RowSlack) -> Iterator[IntArray]:
    """Yield larger and smaller sets of columns that give room and save nothing, such as a node that wakes.

    No single choice makes it worth while to take one of them. The largest are taken first, up to shares of
    the room that all of them give.
    """
    if program.matrix.data.min(initial=0.0) >= 0.0:
        return
    cost, given = program.cost[: program.n_choices], -slack.uses.minimum(0.0).sum(axis=1)
    cheapest = np.minimum.reduceat(cost, slack.group_start[:-1])[slack.group]
    givers = np.flatnonzero((given > 0.0) & (cost >= cheapest) & ~linked_choices(program))
    alone = np.bincount(slack.group[givers], minlength=program.n_groups)[slack.group[givers]] == 1
    order = givers[alone][np.argsort(-given[givers[alone]], kind="stable")]
    for share in _GIVEN if len(order) else ():
        left, taken = share * float(given[order].sum()), list[int]()
        for column in order.tolist():
            if given[column] <= left:
                taken.append(column)
                left -= given[column]
        yield np.array(taken, dtype=np.int64)


def _weights(slack: RowSlack, prices: FloatArray) -> FloatArray:
    """Cost of one unit of every limit: the price, but never nothing."""
    priced = np.maximum(-prices[slack.rows] * slack.sign, 0.0)
    highest = float(np.max(priced * slack.size, initial=0.0))
    return np.asarray(np.maximum(priced, _FLOOR * (highest or 1.0) / slack.size))


class _Ascent:
    """Choices under the rows of a program, made step by step in `slack`.

    Columns are `allowed` that may be taken alone, at no higher bottleneck than the choices at the start need;
    of the groups of columns that are `taken` from the start no others.
    """

    def __init__(self, program: Program, timer: Timer, taken: IntArray | None = None) -> None:
        self.slack = RowSlack(program)
        self.allowed = ~linked_choices(program)
        if taken is not None:
            self.allowed[np.isin(self.slack.group, self.slack.group[taken])] = False
            self.allowed[taken] = True
        self._together = bundles(program) if program.bottleneck is None else []
        self._cost = program.cost[: program.n_choices]
        self._timer = timer

    def steps(self, prices: FloatArray, values: FloatArray) -> Iterator[RowSlack]:
        """Yield the choices after each step; nothing when none fit. `values` are as for `_ascents`."""
        weights = _weights(self.slack, prices)
        raised = self.start(weights, values)
        if raised is None:
            return
        yield self.slack
        self.climb(raised)
        yield self.slack
        self.finish(weights, self._together)
        yield self.slack

    def start(self, weights: FloatArray, values: FloatArray) -> FloatArray | None:
        """Choose columns that fit, at the least bottleneck, by the columns' `values`, for which that works.

        Returns weights, some of them raised, under which the columns of least use fit, or nearly so.
        """
        slack, alone = self.slack, self.allowed
        if not np.isfinite(values).any():
            return self._fit(weights)
        least = float(np.max(np.minimum.reduceat(values, slack.group_start[:-1])))
        levels = np.unique(values[values >= least])
        low, high = 0, len(levels) - 1
        self.allowed = alone & (values <= levels[high])
        best, columns = self._fit(weights), slack.chosen
        while best is not None and low < high:
            middle = (low + high) // 2
            self.allowed = alone & (values <= levels[middle])
            found = self._fit(weights)
            if found is None:
                low = middle + 1
            else:
                best, columns, high = found, slack.chosen, middle
        self.allowed = alone & (values <= levels[high])
        slack.choose(columns)
        return best

    def climb(self, weights: FloatArray) -> None:
        """Upgrade along the frontiers, steepest saving per use first."""
        slack, cost, use = self.slack, self._cost, self.slack.uses @ weights
        hull = convex_frontiers(use, cost, slack.group, self.allowed)
        step = np.flatnonzero(slack.group[hull[1:]] == slack.group[hull[:-1]])
        sources, targets = hull[step], hull[step + 1]
        slope = (cost[sources] - cost[targets]) / np.maximum(use[targets] - use[sources], 1e-300)
        # Within a group the order of the frontier decides ties that rounding makes.
        order = np.argsort(-slope, kind="stable")
        slack.swap_in_order(slack.group[targets[order]], targets[order], sources[order])

    def finish(self, weights: FloatArray, together: list[IntArray]) -> None:
        """Fill what the upgrades leave, with bundles of columns `together` or not, whichever costs less."""
        slack, climbed = self.slack, self.slack.chosen
        # First what is worth the price of its use, then whatever saves anything.
        costs = (self._cost + slack.uses @ weights, self._cost)
        found = self._spend(costs)
        slack.choose(climbed)
        joined = sum(self._join(together, cost) for cost in costs)
        found = [*found, *self._spend(costs)] if joined else found
        slack.choose(min(found, key=lambda columns: float(self._cost[columns].sum())))

    def _fit(self, weights: FloatArray) -> FloatArray | None:
        """Choose least-use columns, raising the weights of rows over their limit; these weights, or None."""
        slack = self.slack
        best, best_excess, best_weights = slack.chosen, np.inf, weights
        for _ in range(_WEIGHT_ROUNDS):
            # Per group the column of least use, the cheapest of those, the first of those.
            use = np.where(self.allowed, slack.uses @ weights, np.inf)
            least = np.minimum.reduceat(use, slack.group_start[:-1])[slack.group]
            slack.choose(first_least(np.where(use <= least, self._cost, np.inf), slack.group_start))
            excess = slack.excess()
            if not excess.any():
                return weights
            if excess.max() < best_excess:
                best, best_excess, best_weights = slack.chosen, float(excess.max()), weights
            weights = np.where(excess > 0, 2.0 * weights, weights)
            if self._timer.over():
                break
        slack.choose(best)
        return best_weights if self._repair() else None

    def _repair(self) -> bool:
        """Swap columns that use less of the worst row until all limits are kept; return whether they are."""
        slack, cost = self.slack, self._cost
        for _ in range(_REPAIR_SWAPS):
            excess = slack.excess()
            if not excess.any():
                return True
            if self._timer.over():
                return False
            worst = int(np.argmax(excess))
            use = slack.uses[:, [worst]].toarray().ravel()
            relief = use[slack.chosen][slack.group] - use
            candidates = np.flatnonzero((relief > 0) & self.allowed)
            candidates = candidates[slack.swappable(candidates, but=worst)]
            if len(candidates) == 0:
                return False
            enough = np.minimum(relief[candidates], excess[worst] * slack.size[worst])
            loss = cost[candidates] - cost[slack.chosen][slack.group[candidates]]
            # Most relief first, then the least loss.
            pick = int(candidates[np.lexsort((loss, -enough))[0]])
            columns = slack.chosen.copy()
            columns[slack.group[pick]] = pick
            slack.choose(columns)
        return slack.fits()

    def _spend(self, costs: tuple[FloatArray, ...]) -> list[IntArray]:
        """Choices that fill what is left of the rows: by the last of the costs alone, and by all in turn."""
        slack, begin, found = self.slack, self.slack.chosen, []
        for order in (costs[-1:], costs):
            slack.choose(begin)
            for cost in order:
                self._fill(cost)
            found.append(slack.chosen)
        return found

    def _fill(self, cost: FloatArray) -> None:
        """Make single swaps that fit and save `cost`, one per column, the largest saving first."""
        slack, every = self.slack, np.flatnonzero(self.allowed)
        columns = every
        for _ in range(_FILL_PASSES):
            if self._timer.over():
                return
            group = slack.group[columns]
            saving = cost[slack.chosen[group]] - cost[columns]
            able = np.flatnonzero(saving > 0)  # places in `columns`
            able = able[slack.swappable(columns[able])]
            best = largest_by(group[able], saving[able], len(slack.chosen))
            hits = able[saving[able] == best[group[able]]]
            targets = hits[run_starts(group[hits])]  # of equals the first
            targets = targets[np.argsort(-saving[targets], kind="stable")]
            swaps = slack.swap_in_order(group[targets], columns[targets]) if len(able) else 0
            if swaps == 0 and columns is every:
                return
            # What did not fit seldom does later, and is looked at once more at the end.
            columns = columns[able] if swaps else every

    def _join(self, together: list[IntArray], priced: FloatArray) -> int:
        """Take bundles that save priced cost and fit, the largest saving first; return how many."""
        slack = self.slack
        saving = np.array([np.sum(priced[slack.chosen[slack.group[b]]] - priced[b]) for b in together])
        joined = np.zeros(len(slack.chosen), dtype=bool)
        taken = 0
        for i in np.argsort(-saving, kind="stable").tolist():
            groups = slack.group[together[i]]
            if saving[i] <= 0 or self._timer.over():
                break
            # Bundles that share a group, or take two columns of one, cannot be taken.
            apart = not joined[groups].any() and len(np.unique(groups)) == len(groups)
            if apart and slack.take_all(together[i]):
                joined[groups] = True
                taken += 1
        return taken


def bundles(program: Program) -> list[IntArray]:
    """Sets of choice columns that rows link with one another, where taking all of a set satisfies these."""
    columns = np.flatnonzero(linked_choices(program))
    if len(columns) == 0:
        return []
    # It loads all of SciPy's linear algebra, a tenth of a second that few programs need.
    from scipy.sparse.csgraph import connected_components

    rows = csr_array(program.matrix.tocsr()[linking_rows(program)][:, columns])
    n, number = connected_components(abs(rows).T @ abs(rows), directed=False)
    order = np.argsort(number, kind="stable")
    found = np.split(columns[order], np.cumsum(np.bincount(number, minlength=n))[:-1])
    # A row has all its columns in one bundle.
    unbalanced = np.zeros(n, dtype=bool)
    filled = np.flatnonzero(np.diff(rows.indptr))
    of_row = number[rows.indices[rows.indptr[filled]]]
    unbalanced[of_row[np.asarray(rows.sum(axis=1)).ravel()[filled] != 0]] = True
    return [bundle for bundle, odd in zip(found, unbalanced.tolist(), strict=True) if not odd]


def efficient_columns(use: FloatArray, gain: FloatArray, group: IntArray, allowed: BoolArray) -> IntArray:
    """Columns on the upper concave hull of gain over use of their group, which begins at nothing; ascending.

    Whatever a unit of use costs, the best column of a group is one of them, or nothing.
    """
    nothing = np.zeros(group.max(initial=-1) + 1)
    of = np.append(group, np.arange(len(nothing)))
    order = np.argsort(of, kind="stable")
    uses, costs = np.append(use, nothing)[order], np.append(-gain, nothing)[order]
    among = np.append(allowed, nothing == 0)[order]
    hull = order[convex_frontiers(uses, costs, of[order], among)]
    return np.sort(hull[hull < len(use)])


def convex_frontiers(use: FloatArray, cost: FloatArray, group: IntArray, allowed: BoolArray) -> IntArray:
    """Columns on the efficient frontier of their group (the lower convex hull), by group and use.

    The first of a group has the least use (and the least cost among those), the last the least cost.
    Along a group use rises and cost falls, at a falling rate.
    """
    kept = _below_chord(use, cost, group, np.flatnonzero(allowed))
    kept = kept[np.lexsort((cost[kept], use[kept], group[kept]))]
    while len(kept) > 1:
        u, c, g = use[kept], cost[kept], group[kept]
        after = g[1:] == g[:-1]  # whether a column follows one of its own group
        dominated = np.zeros(len(kept), dtype=bool)
        dominated[1:] = after & (c[1:] >= c[:-1])
        # On or above the line between its neighbours: such a point is never on the hull, so all
        # of them can go at once.
        inner = after[1:] & after[:-1] & (u[2:] > u[1:-1])
        left = (c[1:-1] - c[:-2]) * (u[2:] - u[1:-1])
        right = (c[2:] - c[1:-1]) * (u[1:-1] - u[:-2])
        dominated[1:-1] |= inner & (left >= right)
        if not dominated.any():
            break
        kept = kept[~dominated]
    return kept


def _below_chord(use: FloatArray, cost: FloatArray, group: IntArray, columns: IntArray) -> IntArray:
    """Columns that can be on the hull: not above the line from least use to least cost.

    This leaves few of many columns, which then are sorted.
    """
    if len(columns) == 0:
        return columns
    u, c, g = use[columns], cost[columns], group[columns]
    start = run_starts(g)
    sizes = np.diff(np.append(start, len(columns)))

    def least(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Per group the least first value, and the least second value among those; one entry per column."""
        low = np.repeat(np.minimum.reduceat(first, start), sizes)
        tied = np.minimum.reduceat(np.where(first == low, second, np.inf), start)
        return low, np.repeat(tied, sizes)

    (first_u, first_c), (last_c, last_u) = least(u, c), least(c, u)
    below = (c - first_c) * (last_u - first_u) <= (last_c - first_c) * (u - first_u)
    # The ends, which rounding could put above their own line.
    ends = ((u == first_u) & (c == first_c)) | ((u == last_u) & (c == last_c))
    return np.asarray(columns[((u <= last_u) & (c <= first_c) & below) | ends])
