r"""Blocks: parts of a program, such as racks with a power cap each, that only a few rows and the groups link.

A *plan* of a block takes at most one column of every group and keeps the block's own rows. Its rows of whole
numbers (GPUs, buddy sizes) become the states of an automaton: two uses are one state where they leave the
same room. The one other row (watts) is divided into levels, rounded up for a good plan, and down for a bound.
Partial plans whose bounds say that they may become better than a plan that is known are then followed without
rounding (Kellerer, Pferschy and Pisinger 2004, "Knapsack Problems", chapters 5 and 11).

Blocks with equal columns and limits are one block with several copies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.csgraph import connected_components

from wattsched.formulations.program import Program
from wattsched.solvers.rows import group_of_choice
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# So many rows, of the most columns, may link all blocks, of which so many are in few; no block has more of
# the columns than this share.
_MOST_LINKS, _MORE_LINKS = 8, 2
_LARGEST = 0.5
# More groups than these are not decided by the whole block.
_MOST_GROUPS = 1_000
# Uses of the rows of whole numbers, and states, of a block whose plans are found in milliseconds; and steps
# to the end of a row, above which there are more.
_MOST_USES = 5_000
_MOST_STATES, _MOST_STEPS = 400, 40
# Levels of the last row, few for a good plan, and more for bounds; what single precision may lack there.
_FEW_LEVELS, _LEVELS = 200, 1_000
# With more columns in question a good plan is looked for first, to rule columns out.
_MANY = 200
_SINGLE = 2e-6
# Up to so many partial plans are not compared with each other; more are not followed.
_FEW_LABELS = 100
_MOST_LABELS = 20_000
# Steps for prices of the rows, and what of the way to a plan that is known each aims at.
_STEPS, _SHARE = 40, 0.3
# Relative rounding of sums.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Block:
    """Columns of a program that share rows of their own.

    Attributes
    ----------
    columns : int array, shape (n_copies, n)
        Columns of each copy of the block, group by group, in the same order.
    group : int array, shape (n,)
        Group of each column.
    step : int array, shape (n,)
        What each column uses of the rows of whole numbers, as a number of `after`.
    after : int array, shape (n_steps, n_states)
        State after a step from each state, `n_states` where there is no room for it; state 0 is empty.
    uses : float array, shape (n_rows, n)
        Uses of the block's rows as shares of their limits; the last row is not of whole numbers.
    """

    columns: IntArray
    group: IntArray
    step: IntArray
    after: IntArray
    uses: FloatArray

    @property
    def copies(self) -> int:
        """Number of copies of the block."""
        return len(self.columns)

    def cheapest(
        self, reduced: FloatArray, prices: FloatArray, known: float, *, exact: bool = True
    ) -> tuple[float, IntArray]:
        """Lower bound on the reduced cost of plans, and the places in the block that a cheapest one takes.

        Where there are very many partial plans, or it is not to be `exact`, it may cost more than the bound.

        Parameters
        ----------
        reduced : float array, shape (n,)
            Reduced costs, infinite for columns that are not to be taken; only negative ones are worth taking.
        prices : float array, shape (n_rows,)
            Prices of the rows' whole limits, which rule plans out; they are bettered in place.
        known : float
            Reduced cost of a plan, 0 for the empty one.
        """
        places, plan = np.flatnonzero(reduced < 0.0), np.zeros(0, dtype=np.int64)
        if len(places) == 0:
            return 0.0, plan
        places, ceiling = self._in_question(places, reduced, prices, -known)
        if len(places) > _MANY or (not exact and len(places)):
            cost, plan = self._good(places, reduced, prices)
            if not exact:
                return -ceiling, plan
            known = min(known, cost)
            places, ceiling = self._in_question(places, reduced, prices, -known)
        level = np.floor(self.uses[-1, places] * _LEVELS * (1.0 - _ROUNDING))
        most, best = _Table(self, places, -reduced[places], level, _LEVELS).exactly(-known)
        return -min(most, ceiling), best if len(best) else plan

    def _good(self, places: IntArray, reduced: FloatArray, prices: FloatArray) -> tuple[float, IntArray]:
        """Reduced cost and places of a plan that costs little, of those worth most at prices of the rows.

        Uses of the last row are rounded up.
        """
        left = -reduced[places] - prices @ self.uses[:, places]
        places = np.sort(places[np.argsort(-left, kind="stable")[:_MANY]])
        level = np.ceil(self.uses[-1, places] * _FEW_LEVELS - _ROUNDING)
        return _Table(self, places, -reduced[places], level, _FEW_LEVELS).best()

    def _in_question(
        self, places: IntArray, reduced: FloatArray, prices: FloatArray, known: float
    ) -> tuple[IntArray, float]:
        """Return the places that plans with a gain of `known` may take, and a bound on what any plan gains.

        Both follow from prices of the rows, at which groups do not interact, and which subgradients better
        (Polyak 1969, "Minimization of unsmooth functionals").
        """
        gain, uses = -reduced[places], self.uses[:, places]
        begins = np.flatnonzero(np.diff(self.group[places], prepend=-1))
        lengths, at, lowest = np.diff(begins, append=len(places)), prices.copy(), np.inf
        for _ in range(_STEPS):
            left = gain - at @ uses
            most = np.repeat(np.maximum(np.maximum.reduceat(left, begins), 0.0), lengths)
            ceiling = float(at.sum() + most[begins].sum())
            if ceiling < lowest:
                lowest, prices[:], keep = ceiling, at, ceiling - most + left >= known * (1.0 - _ROUNDING)
            slope = 1.0 - uses[:, (left > 0.0) & (left == most)].sum(axis=1)
            slope[(at <= 0.0) & (slope > 0.0)] = 0.0
            if not (steep := float(slope @ slope)):
                break
            target = known + _SHARE * (lowest - known)
            at = np.maximum(0.0, at - (ceiling - target) / steep * slope)
        return places[keep], lowest


class _Table:
    """The dynamic program of a block: the most that groups can gain from a state, with levels that are left.

    The last row is divided into equal levels. Groups are taken from the last to the first, each of which
    takes one of its columns or none. `_after` has the table of all groups behind each, `_spans` its columns.
    """

    def __init__(
        self, block: Block, places: IntArray, gain: FloatArray, level: FloatArray, levels: int
    ) -> None:
        self._block, self._places, self._gain, self._levels = block, places, gain, levels
        self._level = level.astype(np.int64)
        # One more state, of which nothing is gained any more.
        table = np.zeros((block.after.shape[1] + 1, levels + 1), dtype=np.float32)
        table[-1] = -np.inf
        self._reached, self._gained = table[:-1].copy(), table[:-1].copy()
        begins = np.flatnonzero(np.diff(block.group[places], prepend=-1)).tolist()
        self._spans = list(pairwise([*begins, len(places)]))
        self._after = list[FloatArray]()
        for first, end in reversed(self._spans):
            self._after.insert(0, table)
            table = self._with_group(table, first, end)
        self._whole = table

    def _with_group(self, table: FloatArray, first: int, end: int) -> FloatArray:
        new, steps, width = table.copy(), self._block.step[self._places[first:end]], table.shape[1]
        gain = self._gain[first:end].astype(np.float32)
        for step in set(steps.tolist()):
            np.take(table, self._block.after[step], axis=0, out=self._reached)
            for i in np.flatnonzero(steps == step).tolist():
                left = width - int(self._level[first + i])
                # Without new memory for every column, which would take longer than the sums.
                gained = np.add(self._reached[:, :left], gain[i], out=self._gained[:, :left])
                inner = new[:-1, width - left :]
                np.maximum(inner, gained, out=inner)
        return new

    def best(self) -> tuple[float, IntArray]:
        """Reduced cost of the best plan from the empty state with all levels, and its places."""
        state, left, table, taken = 0, self._levels, self._whole, list[int]()
        for after, (first, end) in zip(self._after, self._spans, strict=True):
            value = table[state, left]
            for i in range(first, end) if value > after[state, left] else ():
                then = int(self._block.after[self._block.step[self._places[i]], state])
                level = left - int(self._level[i])
                if level >= 0 and after[then, level] + np.float32(self._gain[i]) == value:
                    taken.append(i)
                    state, left = then, level
                    break
            table = after
        return -float(self._gain[taken].sum()), self._places[taken]

    def exactly(self, known: float) -> tuple[float, IntArray]:
        """The most that any plan gains, at least `known`, without rounding, and its places.

        What the table says of the groups that are still to come bounds partial plans. Of too many of them the
        table's own bound is returned, as without any, without places.
        """
        known *= 1.0 - _SINGLE
        state, used, gained = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1)
        use, n_states, steps = self._block.uses[-1, self._places], len(self._whole) - 1, []
        for after, (first, end) in zip(self._after, self._spans, strict=True):
            # Each goes on without the group, or with one of its columns.
            then = self._block.after[self._block.step[self._places[first:end]]][:, state]
            states = np.vstack([state, then])
            uses = np.vstack([used, used + use[first:end, None]])
            gains = np.vstack([gained, gained + self._gain[first:end, None]])
            level = np.floor(uses * self._levels * (1.0 - _ROUNDING)).astype(np.int64)
            fits = (states < n_states) & (uses <= 1.0 + _ROUNDING)
            fits &= gains + after[states, np.maximum(self._levels - level, 0)] >= known
            column, parent = np.nonzero(fits)
            state, used, gained = states[fits], uses[fits], gains[fits]
            keep = _unbeaten(state, used, gained) if len(state) > _FEW_LABELS else np.arange(len(state))
            state, used, gained = state[keep], used[keep], gained[keep]
            steps.append((parent[keep], np.append(-1, self._places[first:end])[column[keep]]))
            if not 0 < len(state) <= _MOST_LABELS:
                most = float(self._whole[0, self._levels]) * (1.0 + _SINGLE)
                return max(known, most) if len(state) else known, np.zeros(0, dtype=np.int64)
        label, taken = int(np.argmax(gained)), list[int]()
        for parent, chosen in reversed(steps):
            taken += [int(chosen[label])] if chosen[label] >= 0 else []
            label = int(parent[label])
        return float(gained.max()), np.array(taken[::-1], dtype=np.int64)


def _unbeaten(state: IntArray, used: FloatArray, gained: FloatArray) -> IntArray:
    """Partial plans that gain more than all others of the same state that use no more."""
    order = np.lexsort((-gained, used, state))
    # Gains of a state are above those of all states before.
    raised = gained[order] + state[order] * (1.0 + float(gained.max(initial=0.0)))
    before = np.maximum.accumulate(np.append(-1.0, raised))[:-1]
    first = np.diff(state[order], prepend=-1) > 0
    return np.asarray(order[first | (raised > before)])


@dataclass(frozen=True)
class Blocks:
    """A program as blocks, rows that link them, and columns that are in no block.

    Attributes
    ----------
    program : Program
    blocks : list of Block
    linking : int array
        Rows that are of no block.
    idle : int array
        Choice columns that use no row of a block, as waiting does.
    """

    program: Program
    blocks: list[Block]
    linking: IntArray
    idle: IntArray

    @classmethod
    def of(cls, program: Program) -> Blocks | None:
        """Blocks of a program; None where it has none, or their labels would be many."""
        simple = program.n_columns == program.n_choices and program.bottleneck is None
        if not simple or not 0 < program.n_groups <= _MOST_GROUPS:
            return None
        entries = np.bincount(program.matrix.indices, minlength=program.n_rows)
        used = int(np.count_nonzero(np.diff(program.matrix.indptr)))
        order, linking = np.argsort(-entries, kind="stable"), entries > _LARGEST * used
        first = int(np.count_nonzero(linking))
        for links in range(first, min(first + _MORE_LINKS, _MOST_LINKS, program.n_rows) + 1):
            linking[order[:links]] = True
            if (number := _block_of(program, linking)) is not None:
                return cls._read(program, linking, number)
        return None

    @classmethod
    def _read(cls, program: Program, linking: BoolArray, number: IntArray) -> Blocks | None:
        """Read blocks from the number of each column's, -1 for columns that are in none."""
        found: dict[bytes, tuple[list[IntArray], Block]] = {}
        group, of_row = group_of_choice(program), program.matrix.tocsr()
        by_block = np.argsort(number, kind="stable")
        for first, end in pairwise(np.searchsorted(number[by_block], np.arange(number.max() + 2))):
            columns = by_block[first:end]
            rows = np.unique(csc_array(program.matrix[:, columns]).indices)
            rows = rows[~linking[rows]]
            uses, limits = of_row[rows][:, columns].toarray(), program.row_upper[rows]
            if (uses < 0.0).any() or np.isfinite(program.row_lower[rows]).any():
                return None
            uses, limits, others = _ordered(uses, limits)
            linking[rows[others]] = True
            able = (uses <= limits[:, None]).all(axis=0)
            columns, uses = columns[able], uses[:, able]
            block = _block(columns, group[columns], uses, limits)
            if block is None:
                return None
            linked = csc_array(program.matrix[np.flatnonzero(linking)][:, columns])
            known = (program.cost[columns], group[columns], uses, limits, linked.indices, linked.data)
            key = b"|".join(np.ascontiguousarray(values).tobytes() for values in known)
            found.setdefault(key, ([], block))[0].append(columns)
        blocks = [replace(block, columns=np.array(copies)) for copies, block in found.values()]
        return cls(program, blocks, np.flatnonzero(linking), np.flatnonzero(number < 0))


def _block_of(program: Program, linking: BoolArray) -> IntArray | None:
    """Block of each column if these rows link all, -1 for none; None where one block is too large."""
    entries = program.matrix.tocoo()
    keep = ~linking[entries.row]
    row, column = entries.row[keep], entries.col[keep]
    used, number = np.unique(column), np.full(program.n_columns, -1)
    if len(used) == 0:
        return None
    size = program.n_rows + program.n_columns
    graph = csc_array((np.ones(len(row)), (row, program.n_rows + column)), shape=(size, size))
    _, part = connected_components(graph, directed=False)
    _, number[used], counts = np.unique(part[program.n_rows + used], return_inverse=True, return_counts=True)
    return number if counts.max() <= _LARGEST * len(used) else None


def _ordered(uses: FloatArray, limits: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Rows of whole numbers, and one other row last, which allows everything where there is none.

    Returns also the places of the rows that are neither: of several other rows the one with most entries is
    kept.
    """
    whole = (uses == np.round(uses)).all(axis=1)
    others = np.flatnonzero(~whole)
    others = others[np.argsort(-np.count_nonzero(uses[others], axis=1), kind="stable")]
    last, limit = (uses[others[:1]], limits[others[:1]]) if len(others) else (0.0 * uses[:1], np.ones(1))
    return np.vstack([uses[whole], last]), np.append(np.floor(limits[whole]), limit), others[1:]


def _block(columns: IntArray, group: IntArray, uses: FloatArray, limits: FloatArray) -> Block | None:
    """Block under rows of whole numbers and, last, one other row; None where it has many states."""
    steps, step = np.unique(uses[:-1].astype(np.int64), axis=1, return_inverse=True)
    after = _automaton(steps.T, limits[:-1].astype(np.int64))
    if after is None:
        return None
    shares = uses / np.where(limits > 0.0, limits, 1.0)[:, None]
    return Block(columns[None], group, step.ravel(), after, shares)


def _automaton(steps: IntArray, limits: IntArray) -> IntArray | None:
    """States after each step, as of `Block.after`; None where they are too many.

    Uses that leave the same room are one state. A larger use is numbered before a smaller one, so that what
    follows a use is known when it is looked at.
    """
    moves = [(number, tuple(step)) for number, step in enumerate(steps.tolist()) if any(step)]
    empty, ends = (0,) * len(limits), limits.tolist()
    if any(min(move) and max(ends, default=0) > _MOST_STEPS * min(move) for _, move in moves):
        return None
    met, waiting = {empty: dict[int, tuple[int, ...]]()}, [empty]
    while waiting:
        use = waiting.pop()
        for number, move in moves:
            then = tuple(a + b for a, b in zip(use, move, strict=True))
            if all(a <= b for a, b in zip(then, ends, strict=True)):
                met[use][number] = then
                if then not in met:
                    met[then] = {}
                    waiting.append(then)
        if len(met) > _MOST_USES:
            return None
    of, states = dict[tuple[int, ...], int](), dict[tuple[tuple[int, int], ...], int]()
    for use in sorted(met, key=sum, reverse=True):
        follows = tuple((number, of[then]) for number, then in met[use].items())
        of[use] = states.setdefault(follows, len(states))
    n = len(states)
    if n > _MOST_STATES:
        return None
    # The empty use came last; it is to be state 0, and what has no room comes behind all.
    after = np.full((len(steps), n), n)
    for follows, state in states.items():
        for number, reached in follows:
            after[number, n - 1 - state] = n - 1 - reached
    after[~steps.any(axis=1)] = np.arange(n)
    return after
