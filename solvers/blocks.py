r"""Blocks: parts of a program, such as racks with a power cap each, that only a few rows and the groups link.

A *plan* of a block takes at most one column of every group and keeps the block's own rows. Its rows of whole
numbers (GPUs, buddy sizes) become the states of an automaton: two uses are one state where they leave the
same room. The one other row (watts) is divided into `LEVELS` parts, with what a column uses of it rounded
down: the least reduced cost of such plans is no more than that of all true ones, and one dynamic program over
groups, states and levels finds it (Martello and Toth 1990, "Knapsack Problems").

Blocks with equal columns and limits are one block with several copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.csgraph import connected_components

from wattsched.formulations.program import Program
from wattsched.solvers.rows import group_of_choice
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

LEVELS = 1_024
"""Parts of the row that is not of whole numbers, as a rule."""
MOST_LEVELS = 4_096
"""The same where a plan is to be told from one that keeps the row."""

COARSE = 100
"""The same for a first plan, whose reduced cost rules most columns out."""
_FEW = 50

# So many rows, of the most columns, may link all blocks; no block has more of the columns than this share.
_MOST_LINKS = 8
_LARGEST = 0.5
# Uses of the rows of whole numbers, and states, of a block whose dynamic program takes milliseconds.
_MOST_USES = 20_000
_MOST_STATES = 400
# Multipliers are tried so many times as high and as low, one factor after the other; none is less than this
# share of what can be gained.
_FACTORS = (2.0, 1.3, 1.1, 1.03)
_BETTERED = 1e-4
_LEAST = 1e-4
# What sums in single precision may lack, which take half the time.
_SINGLE = 2e-6
# Of a level: what rounding may have added to a use of the row.
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
    use : float array, shape (n,)
        What each column uses of the row that is not of whole numbers, as a share of its limit.
    room : float array, shape (n,)
        The same of the first row of whole numbers, of the one with most uses.
    """

    columns: IntArray
    group: IntArray
    step: IntArray
    after: IntArray
    use: FloatArray
    room: FloatArray

    @property
    def copies(self) -> int:
        """Number of copies of the block."""
        return len(self.columns)

    def keeps(self, places: IntArray, levels: int | None = None) -> bool:
        """True if a plan keeps the row that is not of whole numbers, too, or its rounded uses do."""
        if levels is not None:
            return bool(self._level(places, levels).sum() <= levels)
        return bool(self.use[places].sum() <= 1.0 + _ROUNDING)

    def _level(self, places: IntArray, levels: int) -> IntArray:
        """Use of the row in levels, rounded down."""
        return np.floor(self.use[places] * levels * (1.0 - _ROUNDING)).astype(np.int64)

    def cheapest(
        self,
        reduced: FloatArray,
        multipliers: FloatArray,
        known: float = 0.0,
        levels: int = LEVELS,
        *,
        feasible: bool = False,
    ) -> tuple[float, IntArray]:
        """Least reduced cost of a plan, and the plan's columns as places in the block.

        Parameters
        ----------
        reduced : float array, shape (n,)
            Reduced costs, infinite for columns that are not to be taken; only negative ones are worth taking.
        multipliers : float array, shape (2,)
            Prices of `use` and `room` that rule columns out; they are bettered in place.
        known : float
            Reduced cost of a plan that keeps all rows, 0 for the empty one.
        levels : int
        feasible : bool
            Round uses up instead: the plan keeps the rows, and others may cost less.
        """
        places = self._in_question(reduced, multipliers, known)
        if len(places) > _FEW:
            near, _ = self._table(places, reduced, COARSE, feasible=True).best()
            places = self._in_question(reduced, multipliers, min(known, near))
        return self._table(places, reduced, levels, feasible=feasible).best()

    def _table(self, places: IntArray, reduced: FloatArray, levels: int, *, feasible: bool) -> _Table:
        level = self._level(places, levels)
        if feasible:
            level = np.ceil(self.use[places] * levels - _ROUNDING).astype(np.int64)
        places, level = places[level <= levels], level[level <= levels]
        return _Table(self, places, level, -reduced[places], levels)

    def _in_question(self, reduced: FloatArray, multipliers: FloatArray, known: float) -> IntArray:
        """Places of the columns that a plan of less reduced cost than `known` may have, or one of as much.

        With prices of the rows groups do not interact, and bound all plans with a column from below.
        """
        places = np.flatnonzero(reduced < 0.0)
        if len(places) == 0:
            return places
        gain, uses = -reduced[places], np.stack([self.use[places], self.room[places]])
        begins = np.flatnonzero(np.diff(self.group[places], prepend=-1))
        lengths = np.diff(begins, append=len(places))

        def most(prices: FloatArray) -> tuple[float, FloatArray, FloatArray]:
            left = gain - prices @ uses
            best = np.maximum(np.maximum.reduceat(left, begins), 0.0)
            return float(prices.sum() + best.sum()), left, best

        ceiling, left, best = most(multipliers)
        for factor in _FACTORS:
            bettered = True
            while bettered:
                bettered = False
                for change in (np.array([factor, 1.0]), np.array([1.0, factor])):
                    for trial in (multipliers * change, multipliers / change):
                        found = most(np.maximum(trial, _LEAST * ceiling))
                        if found[0] < ceiling * (1.0 - _BETTERED):
                            (ceiling, left, best), multipliers[:] = found, trial
                            bettered = True
        return places[ceiling - np.repeat(best, lengths) + left >= -known * (1.0 - _ROUNDING)]


class _Table:
    """The dynamic program of a block: the most that groups can gain from a state, with levels that are left.

    Groups are taken from the last to the first, each of which takes one of its columns or none. `_gains` has
    the table before each, `_spans` the columns of each.
    """

    def __init__(
        self, block: Block, places: IntArray, level: IntArray, gain: FloatArray, levels: int
    ) -> None:
        self._block, self._places, self._level = block, places, level
        self._gain = gain.astype(np.float32)
        self._levels, n_states = levels, block.after.shape[1]
        # One more state, of which nothing is gained any more.
        table = np.zeros((n_states + 1, levels + 1), dtype=np.float32)
        table[-1] = -np.inf
        self._reached, self._gained = table[:-1].copy(), table[:-1].copy()
        group = block.group[places]
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        self._gains, self._spans = list[FloatArray](), list[tuple[int, int]]()
        for first, end in reversed(list(pairwise([*begins.tolist(), len(group)]))):
            self._gains.append(table)
            self._spans.append((first, end))
            table = self._with_group(table, first, end)
        self._last = table

    def _with_group(self, table: FloatArray, first: int, end: int) -> FloatArray:
        new, steps, width = table.copy(), self._block.step[self._places[first:end]], table.shape[1]
        for step in set(steps.tolist()):
            np.take(table, self._block.after[step], axis=0, out=self._reached)
            for i in (first + np.flatnonzero(steps == step)).tolist():
                level = int(self._level[i])
                # Without new memory for every column, which would take longer than the sums.
                gained = np.add(
                    self._reached[:, : width - level], self._gain[i], out=self._gained[:, : width - level]
                )
                inner = new[:-1, level:]
                np.maximum(inner, gained, out=inner)
        return new

    def best(self) -> tuple[float, IntArray]:
        """Least reduced cost from the empty state with all levels, and the columns that have it."""
        state, left, table, taken = 0, self._levels, self._last, list[int]()
        for before, (first, end) in zip(self._gains[::-1], self._spans[::-1], strict=True):
            if table[state, left] > before[state, left]:
                value = table[state, left]
                for i in range(first, end):
                    then = int(self._block.after[self._block.step[self._places[i]], state])
                    level = left - int(self._level[i])
                    if level >= 0 and before[then, level] + self._gain[i] == value:
                        taken.append(int(self._places[i]))
                        state, left = then, level
                        break
            table = before
        gained = float(self._last[0, self._levels]) * (1.0 + _SINGLE)
        return -gained, np.array(taken, dtype=np.int64)


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
        """Blocks of a program; None where it has none, or their dynamic programs would be large."""
        if program.n_columns > program.n_choices or program.bottleneck is not None or not program.n_groups:
            return None
        order = np.argsort(-np.bincount(program.matrix.indices, minlength=program.n_rows), kind="stable")
        for links in range(min(_MOST_LINKS, program.n_rows) + 1):
            linking = np.zeros(program.n_rows, dtype=bool)
            linking[order[:links]] = True
            if (number := _block_of(program, linking)) is not None:
                return cls._read(program, linking, number)
        return None

    @classmethod
    def _read(cls, program: Program, linking: BoolArray, number: IntArray) -> Blocks | None:
        """Read blocks from the number of each column's, -1 for columns that are in none."""
        found: dict[bytes, tuple[list[IntArray], Block]] = {}
        group, of_row, linking = group_of_choice(program), program.matrix.tocsr(), linking.copy()
        by_block = np.argsort(number, kind="stable")
        begins = np.searchsorted(number[by_block], np.arange(number.max() + 2))
        for first, end in pairwise(begins):
            columns = by_block[first:end]
            part = csc_array(program.matrix[:, columns])
            rows = np.unique(part.indices)
            rows = rows[~linking[rows]]
            uses, limits = of_row[rows][:, columns].toarray(), program.row_upper[rows]
            if (uses < 0.0).any() or np.isfinite(program.row_lower[rows]).any():
                return None
            uses, limits, dropped = _ordered(uses, limits)
            linking[rows[dropped]] = True
            able = (uses <= limits[:, None]).all(axis=0)
            columns, uses = columns[able], uses[:, able]
            block = _block(columns, group[columns], uses, limits)
            if block is None:
                return None
            known = (program.cost[columns], group[columns], block.use, limits, uses)
            linked = csc_array(program.matrix[np.flatnonzero(linking)][:, columns])
            key = b"|".join(np.ascontiguousarray(v).tobytes() for v in (*known, linked.indices, linked.data))
            found.setdefault(key, ([], block))[0].append(columns)
        blocks = [replace(block, columns=np.array(copies)) for copies, block in found.values()]
        idle = np.flatnonzero(number < 0)
        return cls(program, blocks, np.flatnonzero(linking), idle)


def _block_of(program: Program, linking: BoolArray) -> IntArray | None:
    """Block of each column if these rows link all, -1 for none; None where one block is too large."""
    entries = program.matrix.tocoo()
    keep = ~linking[entries.row]
    row, column = entries.row[keep], entries.col[keep]
    size = program.n_rows + program.n_columns
    graph = csc_array((np.ones(len(row)), (row, program.n_rows + column)), shape=(size, size))
    _, part = connected_components(graph, directed=False)
    number = np.full(program.n_columns, -1)
    used = np.unique(column)
    if len(used) == 0:
        return None
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
    first = np.flatnonzero(whole)
    first = first[np.argsort(-uses[first].sum(axis=1), kind="stable")]
    return np.vstack([uses[first], last]), np.append(np.floor(limits[first]), limit), others[1:]


def _block(columns: IntArray, group: IntArray, uses: FloatArray, limits: FloatArray) -> Block | None:
    """Block under rows of whole numbers and, last, one other row; None where it has many states."""
    steps, step = np.unique(uses[:-1].astype(np.int64), axis=1, return_inverse=True)
    after = _automaton(steps.T, limits[:-1].astype(np.int64))
    if after is None:
        return None
    share, room = (
        uses[row] / limits[row] if limits[row] > 0.0 else np.zeros(len(columns)) for row in (-1, 0)
    )
    return Block(columns[None], group, step.ravel(), after, share, room)


def _automaton(steps: IntArray, limits: IntArray) -> IntArray | None:
    """States after each step, as of `Block.after`; None where they are too many.

    Uses that leave the same room are one state. Larger uses come later in the order in which they are met, by
    their sum, so that what follows a use is known before it.
    """
    empty = (0,) * len(limits)
    met, waiting = {empty: list[tuple[int, ...] | None]()}, [empty]
    moves = [tuple(step) for step in steps.tolist()]
    if any(not any(move) for move in moves) or len(met) == 0:
        return _without_whole(moves)
    while waiting:
        use = waiting.pop()
        for move in moves:
            then = tuple(a + b for a, b in zip(use, move, strict=True))
            fits = all(a <= b for a, b in zip(then, limits.tolist(), strict=True))
            met[use].append(then if fits else None)
            if fits and then not in met:
                met[then] = []
                waiting.append(then)
        if len(met) > _MOST_USES:
            return None
    number, states = dict[tuple[int, ...] | None, int](), dict[tuple[int, ...], int]()
    for use in sorted(met, key=sum, reverse=True):
        follows = tuple(-1 if then is None else number[then] for then in met[use])
        number[use] = states.setdefault(follows, len(states))
    if len(states) > _MOST_STATES:
        return None
    n = len(states)
    # The empty use came last; it is to be state 0, and what has no room behind all.
    after = np.array([[n if then < 0 else n - 1 - then for then in follows] for follows in states])
    return np.ascontiguousarray(after[::-1].T)


def _without_whole(moves: Sequence[tuple[int, ...]]) -> IntArray | None:
    """One state where no column uses a row of whole numbers; None where some do and others do not."""
    return np.zeros((1, 1), dtype=np.int64) if not any(map(any, moves)) else None
