"""A number known to lie between two rational numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction

_DIGITS = 50
_LN_ERROR = Fraction(1, 10 ** (_DIGITS - 5))
_ROOT_BITS = 200


@dataclass(frozen=True)
class Enclosure:
    """An exact number, or two that it lies between."""

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, value: Fraction | int) -> Enclosure:
        """A number that is known exactly."""
        return cls(Fraction(value), Fraction(value))

    def __add__(self, other: Fraction) -> Enclosure:
        return Enclosure(self.low + other, self.high + other)

    def __sub__(self, other: Fraction) -> Enclosure:
        return Enclosure(self.low - other, self.high - other)

    def __mul__(self, factor: Fraction) -> Enclosure:
        ends = (self.low * factor, self.high * factor)
        return Enclosure(min(ends), max(ends))

    def __neg__(self) -> Enclosure:
        return Enclosure(-self.high, -self.low)


def logarithm(value: Fraction) -> Enclosure:
    """Natural logarithm of a positive number.

    `decimal` rounds quotients and logarithms correctly, so 50 digits are wrong by at most a few units of the
    last one, absolute near 1 and relative elsewhere; the enclosure is 10,000 times as wide.
    """
    if value == 1:
        return Enclosure.of(0)
    with localcontext(Context(prec=_DIGITS)):
        near = Fraction((Decimal(value.numerator) / Decimal(value.denominator)).ln())
    error = _LN_ERROR * (1 + abs(near))
    return Enclosure(near - error, near + error)


def square_root(value: Fraction) -> Enclosure:
    """Square root of a number that is not negative, to 200 binary digits behind the point."""
    root = math.isqrt(math.floor(value * (1 << 2 * _ROOT_BITS)))
    # The floor may have cut off a square; one more is above the root in any case.
    low, high = Fraction(root, 1 << _ROOT_BITS), Fraction(root + 1, 1 << _ROOT_BITS)
    return Enclosure.of(low) if low * low == value else Enclosure(low, high)


def float_below(value: Fraction) -> float:
    """Largest double that is not above a number."""
    near = _nearest(value)
    return math.nextafter(near, -math.inf) if near > value else near


def float_above(value: Fraction) -> float:
    """Smallest double that is not below a number."""
    return -float_below(-value)


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)
