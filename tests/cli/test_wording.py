from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.report.sizing import ranges
from wattsched.report.views import view
from wattsched.report.wording import (
    Scarce,
    duration,
    energy,
    listed,
    magnitude,
    number,
    percent,
    quantity,
    scarce,
    unit_price,
    worth,
)

COMPLETION = view("sizing").goal("total-completion", "min")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (182345.2, "182,345"),
        (4.2061, "4.206"),
        (0.00314159, "0.003142"),
        (-12.5, "-12.5"),
        (9999.96, "10,000"),
        (1.23456e90, "1.235e+90"),
        (float("inf"), "inf"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@given(st.floats(min_value=-1e15, max_value=1e15, allow_subnormal=False))
def test_numbers_keep_four_digits(value):
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=1e-3)


@given(st.lists(st.text("ab-", min_size=1, max_size=60), min_size=1, max_size=40))
def test_long_lists_name_the_first_and_count_the_rest(names):
    told, _, rest = listed(names).partition(" and ")
    shown = told.split(", ")
    assert shown == names[: len(shown)]
    assert len(told) <= 160 + 2 * 11 or len(shown) == 1
    assert len(names) - len(shown) == int(rest.removesuffix(" more") or 0)


def test_quantities_and_durations():
    assert quantity(9980.0, "W") == "9.98 kW"
    assert quantity(0.5, "g") == "0.5 g"
    assert quantity(1000 * (1 - 1e-15), "W") == "1 kW"
    assert duration(3600 * (1 - 1e-15)) == "1 h"
    assert [duration(s) for s in (0.344, 12.5, 90.0, 3600.0, 200000.0)] == [
        "344 ms",
        "12.5 s",
        "1.5 min",
        "1 h",
        "2.31 d",
    ]


@given(st.floats(min_value=1e-3, max_value=1e18))
def test_amounts_in_words_have_the_size_that_they_had(value):
    for told in (number(value), number(-value).removeprefix("-"), duration(value), energy(value)):
        assert magnitude(told) == pytest.approx(value, rel=0.05)
    assert magnitude(f"at least {percent(value)} (1 to 2 %)") == pytest.approx(100 * value, rel=0.05)
    assert magnitude(quantity(-value, "g")) == pytest.approx(-value, rel=0.05)


def test_what_is_no_amount_has_no_size():
    assert [magnitude(text) for text in ("", "none", "twice", "A100", "-", "-50 %", "2 of 5")] == [
        *[None] * 5,
        -50.0,
        2.0,
    ]


def test_prices_in_words():
    prices = {"gpus:A100": 10.0, "buddy:A100:4": 2.0, "buddy:A100:8": 1.0, "power_w": 4.0, "energy_j": 1e-5}
    assert worth("gpus:A100", prices, COMPLETION, 32) == "one more GPU would save at most 10 s"
    # A block of 8 counts in the rows of sizes 1, 4 and 8.
    assert worth("buddy:A100:8", prices, COMPLETION, None) == "one more block of 8 would save at most 104 s"
    assert worth("power_w", prices, COMPLETION, 10_000.0) == "100 W more would save at most 400 s"
    asked = {"least_goodput": -3.0}
    assert worth("least_goodput", asked, COMPLETION, 100.0) == "1 more of it would cost at least 3 s"
    # Of the worst job the optimum changes by steps, which a price bounds in no direction.
    worst = view("sizing").goal("makespan", "min")
    assert worth("power_w", prices, worst, 10_000.0) == "100 W more would save about 400 s"
    assert worth("least_goodput", asked, worst, 100.0) == "1 more of it would cost about 3 s"
    assert unit_price("power_w", 4.0, COMPLETION) == "4 s per W"
    assert unit_price("energy_j", 1e-5, COMPLETION) == "10 s per MJ"
    carbon = view("shifting").goal("carbon", "min")
    assert unit_price("completion_s", 0.25, carbon) == "0.25 g per s"
    assert unit_price("money", 3.0, carbon) == "3 g per unit of money"
    assert scarce("gpus:A100@7").label == "A100 GPUs in slot 7"
    assert scarce("power_w@4").label == "power cap in slot 4"
    assert scarce("power_w:rack3@4") == Scarce("power cap of rack3 in slot 4", "W")
    assert scarce("power_w").label == "power cap"
    assert (
        worth("nodes:v100x8", {"nodes:v100x8": 2.0}, carbon, None) == "one more node would save at most 2 g"
    )
    assert (
        worth("power_w:rack:3", {"power_w:rack:3": 2.0}, view("sizing").goal("goodput", "max"), 1000.0)
        == "10 W more would gain at most 20"
    )


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranges_name_each_number_once(numbers):
    named = []
    for part in ranges(numbers).split(","):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(numbers)
