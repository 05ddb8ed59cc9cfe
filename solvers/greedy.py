"""Efficient frontiers: per group, the lower convex hull of cost over use.

Columns that can only be taken together, such as those of jobs that share GPUs, for greedy rules.

`greedy`: steepest ascent along every group's efficient frontier, ordered by the rows' prices.

Every group starts with the column that uses least, uses weighted by row prices. Upgrades along the convex
frontiers of (use, cost) are made in the order of their saving per use while they fit; then single swaps fill
what room is left. Columns that can only be taken together are tried after the upgrades. The prices come with
a bound, so the answer has a gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.row_slack import Room, without_choices
from wattsched.solvers.rows import feasible, group_of_choice, linked_choices, linking_rows, settled
from wattsched.solvers.solution import Limit, Limits, Solution, Start, conclude, infeasible, unsupported
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray


def convex_frontiers(use: FloatArray, cost: FloatArray, group: IntArray, allowed: BoolArray) -> IntArray:
    """Columns on the efficient frontier of their group, in order of group and use.

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
    start = np.flatnonzero(np.concatenate([[True], g[1:] != g[:-1]]))
    sizes = np.diff(np.append(start, len(columns)))
    first_u, first_c = _least(u, c, start, sizes)
    last_c, last_u = _least(c, u, start, sizes)
    inside = (u <= last_u) & (c <= first_c)
    below = (c - first_c) * (last_u - first_u) <= (last_c - first_c) * (u - first_u)
    # The ends, which rounding could put above their own line.
    ends = ((u == first_u) & (c == first_c)) | ((u == last_u) & (c == last_c))
    return np.asarray(columns[(inside & below) | ends])


def _least(
    first: FloatArray, second: FloatArray, start: IntArray, sizes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Per group the least first value, and the least second value among those; one entry per column."""
    low = np.repeat(np.minimum.reduceat(first, start), sizes)
    tied = np.minimum.reduceat(np.where(first == low, second, np.inf), start)
    return low, np.repeat(tied, sizes)


def bundles(program: Program) -> list[IntArray]:
    """Choice columns that rows link with one another, where taking all of them satisfies these rows."""
    columns = np.flatnonzero(linked_choices(program))
    if len(columns) == 0:
        return []
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


def join(room: Room, found: list[IntArray], priced: FloatArray, timer: Timer) -> int:
    """Take bundles that save priced cost and fit, the largest saving first; how many were taken."""
    saving = np.array([np.sum(priced[room.chosen[room.group[b]]] - priced[b]) for b in found])
    joined = np.zeros(len(room.chosen), dtype=bool)
    taken = 0
    for i in np.argsort(-saving, kind="stable").tolist():
        groups = room.group[found[i]]
        if saving[i] <= 0 or timer.over():
            break
        if not joined[groups].any() and len(np.unique(groups)) == len(groups) and room.take_all(found[i]):
            joined[groups] = True
            taken += 1
    return taken


_DUAL_SHARE = 0.5
_WEIGHT_ROUNDS = 40
_FILL_PASSES = 30
_REPAIR_SWAPS = 300
# Least weight of a row, relative to the row with the highest price: no row is for free.
_FLOOR = 1e-3


def solve(program: Program, limits: Limits, start: Start | None = None) -> Solution:
    """Build a decision greedily; of `start` the prices are used.

    Declines programs whose bottleneck rows involve several groups. Finds nothing on some
    feasible programs, above all on those with equality rows.
    """
    timer = Timer(limits.time_s)
    share = None if limits.time_s is None else _DUAL_SHARE * limits.time_s
    prices, bound = dual_prices(program, time_s=share, start=None if start is None else start.prices)
    if bound == np.inf:
        return infeasible(prices, "the LP relaxation is infeasible")
    if _bottleneck_values(program) is None:
        return unsupported("a bottleneck row involves several groups")
    x = ascend(program, prices, timer)
    detail = "" if x is not None else "no choice that satisfies all rows was found greedily"
    limit: Limit | None = "time" if x is None and timer.over() else None
    return conclude(program, limits, x, bound, prices=prices, detail=detail, limit=limit)


def ascend(program: Program, prices: FloatArray, timer: Timer) -> FloatArray | None:
    """Build a point under given row prices; None when that does not succeed."""
    values = _bottleneck_values(program)
    if values is None:
        return None
    x = without_choices(program)
    room = Room(program, x)
    weights = _weights(room, prices)
    cost = program.cost[: program.n_choices]
    found = _start(room, weights, values, ~linked_choices(program), cost, timer)
    if found is None:
        return None
    _climb(room, found, cost)
    climbed = room.chosen
    _spend(room, found.allowed, cost, weights, timer)
    apart, together = room.chosen, bundles(program) if program.bottleneck is None else []
    room.choose(climbed)
    # First what is worth the price of its room, then whatever saves anything.
    if join(room, together, cost + room.uses @ weights, timer) + join(room, together, cost, timer):
        _spend(room, found.allowed, cost, weights, timer)
    if cost[apart].sum() <= cost[room.chosen].sum():
        room.choose(apart)
    x[room.chosen] = 1.0
    point = settled(program, x)
    return point if point is not None and feasible(program, point) else None


def _bottleneck_values(program: Program) -> FloatArray | None:
    """Least value of the bottleneck column that each choice column allows; -inf without a bottleneck.

    Returns None when a row puts several groups under the bottleneck together.
    """
    values = np.full(program.n_choices, -np.inf)
    if program.bottleneck is None:
        return values
    entries = program.matrix[:, : program.n_choices].tocoo()
    slope = program.matrix[:, [program.bottleneck]].toarray().ravel()
    inside = slope[entries.row] != 0
    row, column, a = entries.row[inside], entries.col[inside], entries.data[inside]
    group = group_of_choice(program)[column]
    first = np.full(program.n_rows, -1)
    first[row] = group
    if np.any(first[row] != group):
        return None
    # slope t + a >= lower, or <= upper with a negative slope, is a lower limit on t.
    end = np.where(slope > 0, program.row_lower, program.row_upper)[row]
    np.maximum.at(values, column, (end - a) / slope[row])
    return values


def _weights(room: Room, prices: FloatArray) -> FloatArray:
    """Cost of one unit of every limit: the price, but never nothing."""
    priced = np.maximum(-prices[room.rows] * room.sign, 0.0)
    highest = float(np.max(priced * room.size, initial=0.0))
    return np.asarray(np.maximum(priced, _FLOOR * (highest or 1.0) / room.size))


@dataclass(frozen=True)
class _Start:
    """Weights under which the least-use columns fit, or nearly so, among the allowed columns."""

    weights: FloatArray
    allowed: BoolArray


def _start(
    room: Room, weights: FloatArray, values: FloatArray, alone: BoolArray, cost: FloatArray, timer: Timer
) -> _Start | None:
    """Choose columns that fit, at the least bottleneck value for which that works."""
    if not np.isfinite(values).any():
        return _fitting(room, weights, alone, cost, timer)
    least = float(np.max(np.minimum.reduceat(values, room.group_start[:-1])))
    levels = np.unique(values[values >= least])
    low, high = 0, len(levels) - 1
    best = _fitting(room, weights, alone & (values <= levels[high]), cost, timer)
    columns = room.chosen
    while best is not None and low < high:
        middle = (low + high) // 2
        found = _fitting(room, weights, alone & (values <= levels[middle]), cost, timer)
        if found is None:
            low = middle + 1
        else:
            best, columns, high = found, room.chosen, middle
    room.choose(columns)
    return best


def _fitting(
    room: Room, weights: FloatArray, allowed: BoolArray, cost: FloatArray, timer: Timer
) -> _Start | None:
    """Choose least-use columns, raising the weights of rows that are over their limit."""
    best, best_excess, best_weights = room.chosen, np.inf, weights
    for _ in range(_WEIGHT_ROUNDS):
        use = np.where(allowed, room.uses @ weights, np.inf)
        room.choose(_first_least(use, cost, room))
        excess = room.excess()
        if not excess.any():
            return _Start(weights, allowed)
        if excess.max() < best_excess:
            best, best_excess, best_weights = room.chosen, float(excess.max()), weights
        weights = np.where(excess > 0, 2.0 * weights, weights)
        if timer.over():
            break
    room.choose(best)
    return _Start(best_weights, allowed) if _repair(room, allowed, cost, timer) else None


def _first_least(use: FloatArray, cost: FloatArray, room: Room) -> IntArray:
    """Per group the column of least use, the cheapest of those, the first of those."""
    least = np.minimum.reduceat(use, room.group_start[:-1])[room.group]
    cheapest = np.where(use <= least, cost, np.inf)
    lowest = np.minimum.reduceat(cheapest, room.group_start[:-1])[room.group]
    hits = np.flatnonzero((cheapest <= lowest) & (use <= least))
    return hits[np.searchsorted(hits, room.group_start[:-1])]


def _repair(room: Room, allowed: BoolArray, cost: FloatArray, timer: Timer) -> bool:
    """Swap columns that use less of the worst row until all limits are kept."""
    for _ in range(_REPAIR_SWAPS):
        excess = room.excess()
        if not excess.any():
            return True
        if timer.over():
            return False
        worst = int(np.argmax(excess))
        use = room.uses[:, [worst]].toarray().ravel()
        relief = use[room.chosen][room.group] - use
        candidates = np.flatnonzero((relief > 0) & allowed)
        candidates = candidates[room.swappable(candidates, but=worst)]
        if len(candidates) == 0:
            return False
        enough = np.minimum(relief[candidates], excess[worst] * room.size[worst])
        loss = cost[candidates] - cost[room.chosen][room.group[candidates]]
        # Most relief first, then the least loss.
        pick = int(candidates[np.lexsort((loss, -enough))[0]])
        columns = room.chosen.copy()
        columns[room.group[pick]] = pick
        room.choose(columns)
    return room.fits()


def _climb(room: Room, start: _Start, cost: FloatArray) -> None:
    """Upgrade along the frontiers, steepest saving per use first."""
    use = room.uses @ start.weights
    hull = convex_frontiers(use, cost, room.group, start.allowed)
    step = np.flatnonzero(room.group[hull[1:]] == room.group[hull[:-1]])
    sources, targets = hull[step], hull[step + 1]
    slope = (cost[sources] - cost[targets]) / np.maximum(use[targets] - use[sources], 1e-300)
    # Within a group the order of the frontier decides ties that rounding makes.
    order = np.argsort(-slope, kind="stable")
    room.swap_in_order(room.group[targets[order]], targets[order], sources[order])


def _spend(room: Room, allowed: BoolArray, cost: FloatArray, weights: FloatArray, timer: Timer) -> None:
    """Fill the room that is left in two ways, and keep the better one."""
    climbed = room.chosen
    _fill(room, allowed, cost, timer)
    filled = room.chosen
    # First what is worth the price of its room, then whatever saves anything.
    room.choose(climbed)
    _fill(room, allowed, cost + room.uses @ weights, timer)
    _fill(room, allowed, cost, timer)
    if cost[filled].sum() <= cost[room.chosen].sum():
        room.choose(filled)


def _fill(room: Room, allowed: BoolArray, cost: FloatArray, timer: Timer) -> None:
    """Make single swaps that save cost and fit, the largest saving first, until there are none."""
    for _ in range(_FILL_PASSES):
        if timer.over():
            return
        saving = cost[room.chosen][room.group] - cost
        columns = np.flatnonzero(allowed & (saving > 0))
        columns = columns[room.swappable(columns)]
        if len(columns) == 0:
            return
        best = np.zeros(len(room.chosen))
        np.maximum.at(best, room.group[columns], saving[columns])
        hits = columns[saving[columns] == best[room.group[columns]]]
        groups, first = np.unique(room.group[hits], return_index=True)
        targets = hits[first]
        order = np.argsort(-saving[targets], kind="stable")
        if room.swap_in_order(groups[order], targets[order]) == 0:
            return
