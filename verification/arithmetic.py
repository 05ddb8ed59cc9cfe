r"""Numbers known to lie between two others, and the two arithmetics in which they are found.

Both compute on arrays, and state next to a number what its error is a small multiple of, its *size*: the
true number is within `epsilon` times the size of the computed one. `RATIONALS` are exact, so that their sizes
are 0 but for logarithms and for roots that are no rational numbers. `DOUBLES` round every operation: sizes
are the sums of the magnitudes of the parts that a number was computed from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattsched.topology.arrays import IntArray

Number = Any
Numbers = NDArray[Any]
"""A double or a rational number, and arrays of either; the latter as objects."""

_DIGITS = 50
_ROOT_BITS = 200
_GRID = 1 << 200


def common_step(values: Iterable[float | Fraction]) -> Fraction:
    """Greatest number that all values are whole multiples of; 0 where there is none but zeros."""
    step = Fraction(0)
    for value in (Fraction(value) for value in values):
        numerator = math.gcd(step.numerator * value.denominator, value.numerator * step.denominator)
        step = Fraction(numerator, step.denominator * value.denominator)
    return step


@dataclass(frozen=True)
class Enclosure:
    """An exact number, or two that it lies between."""

    low: Fraction
    high: Fraction

    def __add__(self, other: Enclosure) -> Enclosure:
        return Enclosure(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Fraction) -> Enclosure:
        return Enclosure(self.low - other, self.high - other)

    def __mul__(self, factor: Fraction) -> Enclosure:
        ends = (self.low * factor, self.high * factor)
        return Enclosure(min(ends), max(ends))


class Rationals:
    """Exact arithmetic; logarithms and roots are off by at most `epsilon` of their sizes."""

    exact = True
    epsilon = Fraction(1, 10 ** (_DIGITS - 5))

    def number(self, value: float | Fraction) -> Number:
        """A number of an instance."""
        return Fraction(value)

    def array(self, values: Iterable[float | Fraction]) -> Numbers:
        """Numbers of an instance, or that follow from them."""
        listed = [Fraction(value) for value in values]
        found = np.empty(len(listed), dtype=object)
        found[:] = listed
        return found

    def magnitude(self, values: Numbers) -> Numbers:
        """Size of numbers that were computed from their parts by rational operations."""
        return np.zeros(len(values), dtype=object)

    def running_sums(self, values: Numbers) -> Numbers:
        """Sums of the first one, two, ... of numbers that are not negative."""
        return np.asarray(np.cumsum(values))

    def log(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Natural logarithms and their sizes."""
        near = self.array(map(logarithm, values))
        return near, np.where(values == 1, 0, 1 + abs(near))

    def sqrt(self, values: Iterable[Fraction]) -> tuple[Numbers, Numbers]:
        """Square roots and their sizes."""
        squares = self.array(values)
        near = self.array(map(square_root, squares))
        return near, np.where(near * near == squares, 0, near)

    def sum_below(self, values: Numbers) -> Fraction:
        r"""A number below the sum; each is rounded to :math:`2^{-200}`, or the sum's fraction would grow."""
        return Fraction(sum(math.floor(value * _GRID) for value in values), _GRID)


class Doubles:
    r"""Double precision. Let :math:`u = 2^{-53}`.

    A reduced cost is a sum of at most ten terms: the option's value, what it costs that it changes what
    runs, what it pays for room and watts, for its set, for joules, and for GPUs, watts and joules of its
    tenant, and what it is given for goodput.
    Each term is a product of at most five factors; each factor is a number of the instance, a price
    rounded once, or a completion time, which as a sum of positive products is known to :math:`4u`
    relative; a job's part of a set's watts is rounded once more, and so is the root that values a job's
    work, after some roundings of what it is the root of. Differences occur in two places, counted with
    the sum of their parts: watts above idle, and the time that a restart leaves. A logarithm is known to
    :math:`9u` absolute for its argument and, numpy's being accurate to four units in the last place, to
    :math:`8u` relative for itself. Altogether a computed reduced cost is within :math:`25u` times its
    size of the true one; :math:`\varepsilon = 2^{-48} = 32u` also covers the rounding of the size and of
    the bound itself. This holds where nothing underflows or overflows.
    """

    exact = False
    epsilon = 2.0**-48

    def number(self, value: float | Fraction) -> Number:
        """A number of an instance."""
        return float(value)

    def array(self, values: Iterable[float | Fraction]) -> Numbers:
        """Numbers of an instance, or that follow from them."""
        return np.array(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)

    def magnitude(self, values: Numbers) -> Numbers:
        """Size of numbers that were computed from their parts by rational operations."""
        return np.abs(values)

    def running_sums(self, values: Numbers) -> Numbers:
        """Sums of the first one, two, ... of numbers that are not negative; rounded a few times each.

        The numbers are added without error in layers, of which each has the digits that a sum of all has.
        """
        sums = np.zeros(len(values))
        while values.any():
            step = 2.0 ** (math.frexp(math.fsum(values))[1] - 52)
            layer = np.floor(values / step) * step
            sums += np.cumsum(layer)
            values = values - layer
        return sums

    def log(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Natural logarithms and their sizes."""
        near = np.log(values)
        return near, 1.0 + np.abs(near)

    def sqrt(self, values: Iterable[Fraction]) -> tuple[Numbers, Numbers]:
        """Square roots and their sizes."""
        roots = np.sqrt(self.array(values))
        return roots, roots

    def sum_below(self, values: Numbers) -> Fraction:
        """A number below the sum, which `math.fsum` finds without error but for its last rounding."""
        return Fraction(math.nextafter(math.fsum(values.tolist()), -math.inf))


Arithmetic = Rationals | Doubles
RATIONALS, DOUBLES = Rationals(), Doubles()


def logarithm(value: Fraction) -> Fraction:
    """Natural logarithm of a positive number, off by at most ``1e-45 (1 + |result|)``; exact for 1.

    `decimal` rounds quotients and logarithms correctly, so 50 digits are wrong by at most a few units of the
    last one, absolute near 1 and relative elsewhere; the error stated is 10,000 times as large.
    """
    if value == 1:
        return Fraction(0)
    with localcontext(Context(prec=_DIGITS)):
        return Fraction((Decimal(value.numerator) / Decimal(value.denominator)).ln())


def square_root(value: Fraction) -> Fraction:
    """Square root of a number that is not negative, below it by at most 2^-198 of it."""
    # As many binary digits as make the whole number below that of a root of 200 digits.
    shift = max(0, 2 * _ROOT_BITS + value.denominator.bit_length() - value.numerator.bit_length() + 1) // 2
    return Fraction(math.isqrt(math.floor(value * (1 << 2 * shift))), 1 << shift)


def float_below(value: Fraction) -> float:
    """Largest double that is not above a number."""
    try:
        near = float(value)
    except OverflowError:
        near = math.copysign(math.inf, value)
    return math.nextafter(near, -math.inf) if near > value else near


def float_above(value: Fraction) -> float:
    """Smallest double that is not below a number."""
    return -float_below(-value)


def alike(kind: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each kind that occurs, and the places that have it; both ascending."""
    order = np.argsort(kind, kind="stable")
    kinds, first = np.unique(kind[order], return_index=True)
    for number, start, end in zip(kinds.tolist(), first, [*first[1:], len(order)], strict=False):
        yield number, order[start:end]


FIRST_COMPARED, MOST_COMPARED = 64, 1_000
"""Rows that all rows are compared with, and then those that are left."""


def pareto_rows(costs: Sequence[Numbers], most: int = MOST_COMPARED) -> IntArray:
    """Return the numbers of the non-dominated rows; the first of duplicates.

    Parameters
    ----------
    costs : sequence of arrays, shape (n_rows,)
        Of each kind of cost what every row has.
    most : int
        Rows that all others are compared with; where more are needed, some stay that could be left out.
    """
    ranks = np.stack([np.unique(cost, return_inverse=True)[1] for cost in costs])
    # Who is as good in all costs comes first; the first ones are better than most.
    order = np.argsort(ranks.sum(axis=0), kind="stable")
    for compared in (min(FIRST_COMPARED, most), most):
        known = ranks[:, order]
        beats = np.arange(min(compared, len(order)))[:, None] < np.arange(len(order))
        for rank in known:
            beats &= rank[:compared, None] <= rank
        order = order[~beats.any(axis=0)]
    return order
