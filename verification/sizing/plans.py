"""Bounds on the cost of a plan: at most one option of each job, in the room and under the cap of a block.

A dynamic program over the room that is left, and levels of the cap, bounds what each job and those after it
cost. Uses of the cap are rounded down to levels, costs to multiples of a small step: sums of these have no
error. Partial plans are then followed job by job, with what they truly leave of the cap. Those go that are
dominated, or that no completion makes cheaper than a known plan. The cheapest that remains is the best plan.

A plan with an option costs no less than a Lagrangian bound of the block and what that option is worse by than
the best of its job (Martello and Toth 1990, "Knapsack problems", chapter 2). So a core of options is enough,
and what that bound says of plans with others: at most two cores are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, run_starts
from wattsched.verification.sizing.job_rows import Use
from wattsched.verification.sizing.rows import Row

TRIES = (1024, (64, 2_000)), (8192, (20_000,))
"""Levels of a power cap, powers of 2, and how many partial plans are followed, until these are enough."""

MOST_STATES = 600
"""Only the rows of all GPUs are kept, or else none, where more rooms than these can be left."""

MOST_CELLS = 1 << 31
"""Numbers that one dynamic program computes; if that is too few for a core, the bound is a weaker one."""

MOST_KEPT = 1 << 25
"""Numbers that one dynamic program keeps; levels are halved until it keeps no more."""

CORE = 64
"""Options of the first core."""

DIGITS = 50
"""Binary digits of the cost of a plan in whole steps: doubles hold them."""

STEPS, PATIENCE = 300, 10
"""Steps towards prices of a block's rows, and those without success after which they become shorter."""


class Choices(NamedTuple):
    """Options of jobs, job by job.

    Attributes
    ----------
    job, room : int arrays, shape (n,)
        Number of the job, and of the use of GPUs.
    draw : float array, shape (n,)
        Watts above idle, or the part of a cap that they are; not above the true ones.
    cost : float array, shape (n,)
        Not above the cost with charges, less the price of the job; at most 0.
    """

    job: IntArray
    room: IntArray
    draw: FloatArray
    cost: FloatArray

    def take(self, which: IntArray) -> Choices:
        """Return some of the options."""
        return Choices(self.job[which], self.room[which], self.draw[which], self.cost[which])


class Rooms(NamedTuple):
    """Rooms that can be left in a block: state 0 is all of it.

    Attributes
    ----------
    moves : int array, shape (n_uses, n_states)
        State after each use; n_states where it does not fit.
    amounts : float array, shape (n_uses, n_rows)
        How much of each row there is a use takes, as a part of it.
    """

    moves: IntArray
    amounts: FloatArray

    @property
    def fit(self) -> BoolArray:
        """Mask of the uses that fit at all, shape (n_uses,)."""
        return np.asarray(self.moves[:, 0] < self.moves.shape[1])

    @property
    def key(self) -> tuple[object, ...]:
        """Content, to compare."""
        return self.moves.shape, self.moves.tobytes(), self.amounts.tobytes()


def rooms_of(rows_by_pool: Sequence[Sequence[Row]], uses: Sequence[Use]) -> Rooms:
    """Return the rooms that uses can leave under the rows of pools, those of the smallest blocks first."""
    every = [row for rows in rows_by_pool for row in rows]
    for kept in (every, [row for rows in rows_by_pool for row in rows[:1]], []):
        limits = tuple(math.floor(row.limit - row.standing) for row in kept)
        amounts = tuple(tuple(int(row.uses.get(use, 0)) for row in kept) for use in uses)
        if (moves := _moves(limits, amounts)).shape[1]:
            break
    whole = np.array(amounts, dtype=float).reshape(len(uses), len(kept))
    return Rooms(moves, whole / np.maximum(limits, 1.0))


@lru_cache(maxsize=1024)
def _moves(limits: tuple[int, ...], amounts: tuple[tuple[int, ...], ...]) -> IntArray:
    """Return the moves between rooms under rows of which uses take amounts; none if the rooms are too many.

    Rooms in which the same fits from there on are one: what is left of a row counts in whole multiples of
    what its uses have in common, and up to what is left of the row before where no use takes less of that.
    """
    steps = [math.gcd(*(amount[k] for amount in amounts)) for k in range(len(limits))]
    within = [k > 0 and all(amount[k] <= amount[k - 1] for amount in amounts) for k in range(len(limits))]

    def settled(left: Iterable[int]) -> tuple[int, ...]:
        found = list[int]()
        for k, number in enumerate(left):
            most = min(number, found[-1]) if within[k] else number
            found.append(most // steps[k] * steps[k] if steps[k] else 0)
        return tuple(found)

    states = {settled(limits): 0}
    queue, moves = [*states], list[list[int]]()
    for state in queue:
        moves.append([])
        for amount in amounts:
            after = settled(left - taken for left, taken in zip(state, amount, strict=True))
            if min(after, default=0) >= 0 and after not in states:
                states[after] = len(states)
                queue.append(after)
            moves[-1].append(states.get(after, -1))
        if len(states) > MOST_STATES:
            return np.zeros((len(amounts), 0), dtype=np.int64)
    found = np.array(moves, dtype=np.int64).reshape(len(states), len(amounts)).T
    return np.ascontiguousarray(np.where(found < 0, len(states), found))


def least_plan(items: Choices, rooms: Rooms) -> float:
    """Return a bound on the cost of the plans of options that each fit alone, and cost less than nothing.

    It is the least cost but for the rounding of sums, where `MOST_CELLS` and `TRIES` suffice.
    """
    items = items.take(_undominated(items))
    uses = np.column_stack([rooms.amounts[items.room], items.draw])
    costs, own, least = _priced(items.cost, uses, run_starts(items.job))
    # What a plan with an option costs more than the bound; of all sums the error, generously.
    excess = costs - own
    error = (len(costs) + 16) * 2.0**-50 * (abs(least) + 2 * float(np.abs(costs).sum()))
    order = np.argsort(excess, kind="stable")
    ranked = np.append(excess[order], np.inf)
    step = 2.0 ** (math.frexp(min(least, items.cost.min()))[1] - DIGITS)
    levels = TRIES[0][0] if items.draw.any() else 0
    most = min(len(order), max(1, MOST_CELLS // (rooms.moves.shape[1] * (levels + 1))))
    core, known = min(CORE, most), 0.0
    items = items._replace(cost=np.floor(items.cost / step))
    while True:
        bound, known = _least_cost(items.take(np.sort(order[:core])), rooms.moves, known)
        others = least + ranked[core] - error
        if step * bound <= others or core == most:
            return float(min(step * bound, others))
        core = min(most, int(np.searchsorted(ranked[:-1], step * known - least + 2 * error, "right")))


def _priced(cost: FloatArray, uses: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray, float]:
    """Price rows, of each of which there is 1, so that a bound on the cost of plans is about the best.

    A subgradient method [Polyak 1969]; any prices are valid.

    Parameters
    ----------
    start : int array, shape (n_jobs,)
        Where the options of each job begin.

    Returns
    -------
    costs, own : float arrays, shape (n,)
        Of each option with what it pays, and of the cheapest one of its job, at most 0.
    least : float
        The bound.
    """
    counts, prices, part, failed = np.diff(start, append=len(cost)), np.zeros(uses.shape[1]), 1.0, 0
    known: tuple[FloatArray, FloatArray, float] | None = None
    for _ in range(STEPS):
        costs = cost + uses @ prices
        cheapest = np.minimum(np.minimum.reduceat(costs, start), 0)
        own, least = cheapest.repeat(counts), float(cheapest.sum() - prices.sum())
        if known is None or least > known[2] + 1e-6 * abs(known[2]):
            known, best, failed = (costs, own, least), prices, 0
        elif (failed := failed + 1) == PATIENCE:
            prices, part, failed = best, part / 2, 0
            continue
        slope = uses[(costs <= own) & (costs < 0)].sum(axis=0) - 1
        # Towards the cost of a plan of one option.
        ahead = part * (cost.min() - least) / max(float(slope @ slope), 1e-12)
        prices = np.maximum(0, prices + ahead * slope)
    assert known is not None
    return known


def _undominated(items: Choices) -> IntArray:
    """Return the options that cost less than any of the same job and room that draws no more."""
    order = np.lexsort((items.cost, items.draw, items.room, items.job))
    _, rank = np.unique(items.cost[order], return_inverse=True)
    group = np.zeros(len(order), dtype=np.int64)
    group[run_starts(items.job[order], items.room[order])] = 1
    # Ranks in each group are below those in the one before, so the least so far is one of the group.
    ranks = rank - len(order) * np.cumsum(group)
    return np.sort(order[np.append(True, ranks[1:] < np.minimum.accumulate(ranks)[:-1])])


def _least_cost(items: Choices, moves: IntArray, known: float) -> tuple[float, float]:
    """Return a bound on the costs of plans, and the cost of the best known plan; costs are whole numbers."""
    for levels, widths in TRIES:
        table = _completions(items, moves, levels)
        for width in widths:
            known, dropped = _follow(items, moves, table, known, width)
            if dropped >= known:
                return known, known
    return dropped, known


def _completions(items: Choices, moves: IntArray, levels: int) -> FloatArray:
    """Return bounds on what each job and those after it cost, by room and level; inf where no use fits.

    Their shape is (n_jobs + 1, n_states + 1, levels + 1).
    """
    ends = [*run_starts(items.job).tolist(), len(items.job)]
    levels *= int(items.draw.any())
    while levels * len(ends) * moves.shape[1] > MOST_KEPT:
        levels //= 2
    draw = np.floor(items.draw * levels).astype(np.int64)
    table = np.zeros((len(ends), moves.shape[1] + 1, levels + 1))
    table[:, -1] = np.inf
    for k, (first, last) in reversed([*enumerate(pairwise(ends))]):
        table[k] = table[k + 1]
        for n in range(first, last):
            after = table[k + 1, moves[items.room[n]], : levels + 1 - draw[n]] + items.cost[n]
            np.minimum(table[k, :-1, draw[n] :], after, out=table[k, :-1, draw[n] :])
    return table


def _follow(
    items: Choices, moves: IntArray, table: FloatArray, known: float, width: int
) -> tuple[float, float]:
    """Return the cost of the best plan found, at most `known`, and a bound on those that were dropped.

    Partial plans are followed job by job, those of the least bounds where there are more than `width`.
    """
    levels, dropped = table.shape[2] - 1, 0.0
    # Each subtraction may be off by half of 2^-52.
    state, left, total = np.zeros(1, dtype=np.int64), np.array([1 + len(table) * 2.0**-52]), np.zeros(1)
    for k, (first, last) in enumerate(pairwise([*run_starts(items.job).tolist(), len(items.job)])):
        state = np.append(state, moves[items.room[first:last]][:, state])
        left = np.append(left, np.subtract.outer(left, items.draw[first:last]).T)
        total = np.append(total, np.add.outer(items.cost[first:last], total))
        bound = total + table[k + 1, state, np.clip(left * levels, 0, levels).astype(np.int64)]
        kept = np.flatnonzero((left >= 0) & (bound < known))
        if not len(kept):
            return known, dropped
        kept = kept[_undominated(Choices(0 * kept, state[kept], -left[kept], total[kept]))]
        if len(kept) > width:
            kept = kept[np.argsort(bound[kept], kind="stable")]
            dropped = min(dropped, float(bound[kept[width]]))
            kept = kept[:width]
        state, left, total = state[kept], left[kept], total[kept]
    return float(total.min()), dropped
