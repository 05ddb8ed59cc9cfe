"""Programs over a few columns of a program by kind, which are written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.kinds.program import KindProgram
from wattsched.formulations.program import Block, Program
from wattsched.formulations.tolerances import CANCELLATION
from wattsched.topology.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Part:
    """A program over some columns of a program by kind.

    Attributes
    ----------
    program : Program
        Of the groups that are not decided.
    group, code : int arrays, shape (n_columns of `program`,)
    decided : int array, shape (n_groups,)
        Point of the whole, -1 for the groups of `program`.
    """

    program: Program
    group: IntArray
    code: IntArray
    decided: IntArray

    def lift(self, x: FloatArray) -> IntArray:
        """Point of the whole program."""
        taken = np.flatnonzero(x > 0.5)
        point = self.decided.copy()
        point[self.group[taken]] = self.code[taken]
        return point

    def lower(self, point: IntArray) -> FloatArray | None:
        """Point of the part, None where the whole's point has a column that is not in it."""
        open_groups = self.decided < 0
        if np.any(self.decided[~open_groups] != point[~open_groups]):
            return None
        x = (self.code == point[self.group]).astype(float)
        return x if int(x.sum()) == int(open_groups.sum()) else None


def part_of(
    program: KindProgram, prices: FloatArray, threshold: float, points: Sequence[IntArray] = ()
) -> Part:
    """The program over the columns that prices leave in question.

    Groups of which only one is take what costs them least.

    Parameters
    ----------
    threshold : float
        Reduced cost above the least of their group up to which columns are in question.
    points : sequence of int arrays, shape (n_groups,)
        What they choose otherwise is in question, too.
    """
    base = program.cheapest(prices)
    more = [np.flatnonzero(point != base) for point in points]
    group, code = program.in_question(prices, threshold)
    is_open = np.zeros(program.n_groups, dtype=bool)
    for groups in (group, *more):
        is_open[groups] = True
    opened = np.flatnonzero(is_open)
    groups = np.concatenate([group, opened, *more])
    codes = np.concatenate([code, base[opened], *(p[of] for p, of in zip(points, more, strict=True))])
    order = np.lexsort((codes, groups))
    groups, codes = groups[order], codes[order]
    new = (np.diff(groups, prepend=-1) != 0) | (np.diff(codes, prepend=-1) != 0)
    return _over(program, np.where(is_open, -1, base), groups[new], codes[new])


def part_around(
    program: KindProgram, base: IntArray, groups: IntArray, prices: FloatArray, size: int
) -> Part:
    """The program over what some groups may choose, where the others choose as a point does.

    Parameters
    ----------
    groups : int array, ascending
    size : int
        About how many columns besides the groups' least are looked at.
    """
    some = program.take(groups)
    place, code = some.near(prices, size)
    code, group = program.numbered(some, groups, place, code), groups[place]
    single = np.bincount(place, minlength=len(groups))[place] == 1
    point = base.copy()
    point[groups] = -1
    point[group[single]] = code[single]
    return _over(program, point, group[~single], code[~single])


def _over(program: KindProgram, point: IntArray, group: IntArray, code: IntArray) -> Part:
    """The program over some columns, by group, where groups that a point decides choose as it does."""
    from scipy.sparse import csc_array

    decided = np.flatnonzero(point >= 0)
    used = program.uses_in_all(decided, point[decided])
    room = _lost(program, used)
    n = len(code)
    part = Program(
        cost=program.costs(group, code),
        matrix=csc_array(program.uses(group, code).T),
        row_lower=program.row_lower - used - room,
        row_upper=program.row_upper - used + room,
        lower=np.zeros(n),
        upper=np.ones(n),
        integer=np.ones(n, dtype=bool),
        group_start=np.append(np.flatnonzero(np.diff(group, prepend=-1)), n),
        rows=program.rows,
        columns=(Block("option", n),),
        offset=float(program.costs(decided, point[decided]).sum()),
        sense=program.sense,
    )
    return Part(part, group, code, point)


def _lost(program: KindProgram, used: FloatArray) -> FloatArray:
    """Bound the cancellation in limits less what is used; 0 where all are whole numbers."""
    broken = program.kinds.broken.copy()
    if not broken.all():
        broken |= program.own.uses.broken
    for limit in (program.row_lower, program.row_upper):
        broken |= np.where(np.isfinite(limit), limit, 0.0) % 1.0 != 0.0
    return np.where(broken, CANCELLATION * np.abs(used), 0.0)
