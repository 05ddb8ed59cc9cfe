"""Rows that equal others, numbers and names, and caches, against plain readings of them."""

from __future__ import annotations

import math
import re
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from wattsched.reading.inputs import LONGEST_CELL
from wattsched.topology import arrays
from wattsched.topology.arrays import (
    Rows,
    alike,
    distinct,
    largest_by,
    least_by,
    offsets,
    ranges,
    run_starts,
    stable_order,
)
from wattsched.topology.fields import LONGEST_NAME, Name, shortened
from wattsched.topology.remembered import remembered

VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.0 + 2**-52, 1e300, math.nan, -1.0, math.inf])
ROWS = st.lists(st.tuples(st.integers(-1, 2), VALUES, VALUES), max_size=12)


def columns_of(rows: list[tuple[int, float, float]]) -> list[np.ndarray]:
    numbers = np.array([row[0] for row in rows], dtype=np.int64)
    return [numbers, *(np.array([row[k] for row in rows], dtype=float) for k in (1, 2))]


def same(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))


@given(ROWS, ROWS)
def test_all_rows_that_are_equal_are_found_and_no_others(rows, asked):
    place, row = Rows(columns_of(rows)).equal(columns_of(asked))
    expected = [(p, r) for p, wanted in enumerate(asked) for r, one in enumerate(rows) if same(one, wanted)]
    assert list(zip(place.tolist(), row.tolist(), strict=True)) == expected
    first = {p: r for p, r in reversed(expected)}
    assert Rows(columns_of(rows)).first_equal(columns_of(asked)).tolist() == [
        first.get(p, -1) for p in range(len(asked))
    ]


@given(ROWS)
def test_few_rows_are_of_the_kinds_of_many(rows):
    rows = [row for row in rows if row[1] == row[1] and row[2] == row[2]]
    first, kind = alike(columns_of(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_FEW", -1)
        many_first, many_kind = alike(columns_of(rows))
    assert (first.tolist(), kind.tolist()) == (many_first.tolist(), many_kind.tolist())


@given(st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 1))))
def test_runs_begin_where_a_column_changes(pairs):
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    expected = [i for i, pair in enumerate(pairs) if i == 0 or pair != pairs[i - 1]]
    assert run_starts(*columns).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9))), st.sampled_from([int, float]))
def test_sums_and_ends_are_those_of_each_group(pairs, kind):
    group, values = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    of_group = [[value for g, value in pairs if g == number] for number in range(4)]
    assert least_by(group, values.astype(kind), 4).tolist() == [
        min(own, default=math.inf) for own in of_group
    ]
    assert largest_by(group, values.astype(kind), 4, -99).tolist() == [
        max(own, default=-99) for own in of_group
    ]
    assert offsets([len(own) for own in of_group]).tolist() == [
        sum(map(len, of_group[:number])) for number in range(5)
    ]


@given(ROWS, ROWS)
def test_rows_that_are_mixed_up_at_first_are_told_apart(rows, asked):
    mixed = arrays._mixed

    def all_alike(columns: list[np.ndarray], salt: int) -> np.ndarray:
        return mixed(columns, salt) if salt else np.zeros(len(columns[0]), dtype=np.uint64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_mixed", all_alike)
        found = Rows(columns_of(rows)).equal(columns_of(asked))
    expected = Rows(columns_of(rows)).equal(columns_of(asked))
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=6), st.booleans())
def test_ranges_are_one_after_the_other(parts, together):
    size = np.array([many for _, many in parts], dtype=np.int64)
    start = np.array([first for first, _ in parts], dtype=np.int64)
    start = 3 + np.cumsum(size) - size if together else start
    expected = [
        first + k for first, many in zip(start.tolist(), size.tolist(), strict=True) for k in range(many)
    ]
    assert ranges(start, size).tolist() == expected
    assert distinct(np.array(expected, dtype=np.int64), 30) is (len(set(expected)) == len(expected))


@given(st.lists(st.integers(0, 3) | st.sampled_from([2**16 - 1, 2**16, 2**40])))
def test_equal_numbers_stay_in_order(numbers):
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)
    assert stable_order(np.array(numbers, dtype=np.int64)).tolist() == expected


def test_a_table_takes_names_as_long_as_a_document() -> None:
    assert LONGEST_CELL == LONGEST_NAME


@given(st.text(min_size=1, max_size=220) | st.text("a\x00\n\x9b\\x0", min_size=1), st.integers(1, 30))
def test_names_fit_and_stay_apart(name: str, times: int) -> None:
    long = name * times
    names = [long, long + "a", long + "b", "a" + long]
    kept = [shortened(one) for one in names]
    assert len(set(kept)) == len(set(names))
    for one, short in zip(names, kept, strict=True):
        assert (short == one) == (len(one) <= LONGEST_NAME and not re.search("[\x00-\x1f\x7f-\x9f]", one))
        assert TypeAdapter(Name).validate_python(short) == short
        assert shortened(short) == short


class Thing:
    """What a weak reference can point to."""

    def __init__(self, value: int) -> None:
        self.value = value


def test_each_object_is_looked_at_once_and_forgotten_with_it() -> None:
    seen: list[int] = []

    @remembered
    def value(thing: Thing) -> int:
        seen.append(thing.value)
        return thing.value

    things = [Thing(number) for number in range(5)]
    assert [value(thing) for thing in things * 2] == [*range(5), *range(5)]
    assert seen == [*range(5)]
    for number in range(200):  # in the place of the one before, as a rule
        assert value(Thing(number)) == number


def test_to_forget_runs_nothing_that_the_end_of_a_thread_could_interrupt() -> None:
    """What is raised in a callback is lost: the thread would go on, and what it found would stay."""

    @remembered
    def value(thing: Thing) -> int:
        return thing.value

    thing, called = Thing(1), list[str]()
    value(thing)
    held = weakref.ref(thing)
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del thing
    finally:
        sys.setprofile(None)
    assert held() is None
    assert called == []
