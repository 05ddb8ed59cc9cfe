"""Two arithmetics, whose numbers are as near to the true ones as they say."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.verification.arithmetic import (
    DOUBLES,
    RATIONALS,
    Enclosure,
    common_step,
    float_above,
    float_below,
    logarithm,
    square_root,
)


@given(value=st.fractions(Fraction(1, 10**6), 10**6))
def test_enclosures_enclose(value: Fraction) -> None:
    assert float_below(value) <= value <= float_above(value)
    assert math.nextafter(float_below(value), math.inf) >= float_above(value)
    found = logarithm(value)
    assert float(found) == pytest.approx(math.log(value), rel=1e-14, abs=1e-14)
    assert abs(logarithm(1 / value) + found) <= 2 * Fraction(1, 10**45) * (1 + abs(found))
    assert logarithm(Fraction(1)) == 0
    root = square_root(value)
    assert root**2 <= value <= (root * (1 + Fraction(1, 2**198))) ** 2
    assert square_root(value**2) == value or value.denominator & (value.denominator - 1)


@given(values=st.lists(st.fractions(Fraction(1, 10**6), 10**6), min_size=1))
def test_both_arithmetics_state_their_errors(values: list[Fraction]) -> None:
    """Logarithms, roots and sums of doubles are within their sizes of those of rational numbers."""
    exact, near = RATIONALS.array(values), DOUBLES.array(values)
    logarithms = zip(*RATIONALS.log(exact), *DOUBLES.log(near), strict=True)
    for found, size, rounded, width in [
        *logarithms,
        *zip(*RATIONALS.sqrt(values), *DOUBLES.sqrt(values), strict=True),
    ]:
        doubt = RATIONALS.epsilon * size + Fraction(DOUBLES.epsilon) * Fraction(width)
        assert abs(found - Fraction(rounded)) <= doubt
    assert RATIONALS.sum_below(exact) <= sum(values)
    assert DOUBLES.sum_below(near) <= sum(map(Fraction, near.tolist()))


@given(step=st.fractions(Fraction(1, 100), 100), times=st.lists(st.integers(-50, 50), min_size=1, max_size=6))
def test_all_values_are_multiples_of_their_common_step(step: Fraction, times: list[int]) -> None:
    assert common_step(step * many for many in times) == step * math.gcd(*times)


@given(ends=st.tuples(st.fractions(-100, 100), st.fractions(-100, 100)), factor=st.fractions(-9, 9))
def test_enclosures_are_turned_by_negative_factors(ends: tuple[Fraction, Fraction], factor: Fraction) -> None:
    low, high = sorted(ends)
    found = Enclosure(low, high) * factor
    assert (found.low, found.high) == tuple(sorted((low * factor, high * factor)))
    assert found + found == found * Fraction(2)
    assert found - Fraction(1) == Enclosure(found.low - 1, found.high - 1)
