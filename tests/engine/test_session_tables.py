"""Tables of a session's jobs, read all at once or one by one: the same tables, or the same faults."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.instances.errors import InputError
from wattsched.instances.sizing.option_rows import NUMBERS, OptionRows
from wattsched.sessions import session_columns
from wattsched.sessions.session_columns import KnownTables, rows_of_columns
from wattsched.topology.column import Coded

COUNTS = st.sampled_from([1, 2, 4, 8])
WATTS = st.sampled_from([0.0, 1.5, 200.0])
ODD: dict[str, list[Any]] = {
    "gpus": [0, 2.0, True, "1", None, 10**7, 2**70],
    "pool": ["", None, 3, "x" * 201],
    "power_w": [-1.0, float("nan"), float("inf"), "w", None],
    "rate": [0.0, -1.0, float("nan"), 1e13, None],
    "frequency_mhz": [0, 1.5, None],
    "batch_size": [-4, [1]],
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    """Columns of some jobs' rows, as lists, arrays or codes; now and then with a value that is none."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    n = sum(sizes)

    def listed(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    found: dict[str, Any] = {
        "gpus": listed(COUNTS),
        "pool": listed(st.sampled_from(["A", "B"])),
        "power_w": listed(WATTS),
        draw(st.sampled_from(["rate", "completion_s"])): listed(st.sampled_from([0.5, 3.0])),
    }
    for name in ("frequency_mhz", "power_limit_w", "batch_size"):
        if draw(st.booleans()):
            found[name] = listed(COUNTS)
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from(sorted(found.keys() & ODD.keys())))
        found[name][draw(st.integers(0, n - 1))] = draw(st.sampled_from(ODD[name]))
    else:
        for name in draw(st.sets(st.sampled_from(sorted(found)))):
            narrow = (np.int8, np.int64) if isinstance(found[name][0], int) else (np.float16, np.float64)
            array = np.array(found[name], None if name == "pool" else draw(st.sampled_from(narrow)))
            form = draw(st.sampled_from([lambda a: a, list, lambda a: a.astype(object), pa.array]))
            found[name] = Coded.of(found[name]) if name == "pool" else form(array)
    return np.cumsum([0, *sizes]).tolist(), found


def read(start: list[int], stated: dict[str, Any]) -> OptionRows | list[str]:
    try:
        return rows_of_columns([f"j{j}" for j in range(len(start) - 1)], start, stated)
    except InputError as error:
        return error.faults


@given(columns())
def test_all_at_once_is_one_by_one(asked: tuple[list[int], dict[str, Any]]) -> None:
    at_once = read(*asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_columns, "_sound_rows", lambda start, listed: None)
        one_by_one = read(*asked)
    if isinstance(one_by_one, list):
        assert at_once == one_by_one
        return
    assert isinstance(at_once, OptionRows)
    assert [at_once.made(i) for i in range(len(at_once))] == [
        one_by_one.made(i) for i in range(len(one_by_one))
    ]


def listed(column: Any) -> list[Any]:
    for method in ("tolist", "to_pylist"):
        column = getattr(column, method)() if hasattr(column, method) else column
    return [value.item() if isinstance(value, np.generic) else value for value in column]


@given(columns())
def test_whatever_a_column_is_it_says_the_same(asked: tuple[list[int], dict[str, Any]]) -> None:
    start, stated = asked
    plainly = read(start, {name: listed(column) for name, column in stated.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read(list(np.array(start)), stated)
    if isinstance(found, OptionRows) and isinstance(plainly, OptionRows):
        assert [found.made(i) for i in range(len(found))] == [plainly.made(i) for i in range(len(plainly))]
    else:
        assert found == plainly


@given(st.lists(columns(), min_size=1, max_size=4), st.randoms())
def test_equal_tables_are_one_whatever_came_before(
    asked: list[tuple[list[int], dict[str, Any]]], random: Any
) -> None:
    known, seen = KnownTables(), {}
    for start, stated in asked:
        rows = read(start, stated)
        if isinstance(rows, list):
            continue
        coded, known = known.with_more(rows)
        for i, number in enumerate(coded.codes.tolist()):
            table = rows.made(i)
            assert known.tables[number] == table
            assert seen.setdefault(table.model_dump_json(), number) == number
    assert len(known.tables) == len(seen)
    some = np.array(random.sample(range(len(seen)), k=len(seen) // 2), dtype=np.int64)
    numbers, left = known.used_by(some)
    assert [left.tables[n] for n in numbers.tolist()] == [known.tables[n] for n in some.tolist()]
    again, same = left.with_more(known.tables.rows.take(some))
    assert same is left
    assert again.codes.tolist() == numbers.tolist()


def test_joined_rows_are_those_of_the_parts() -> None:
    parts = [
        read([0, 2], {"gpus": [1, 2], "pool": p, "power_w": [1.0, 2.0], "rate": [1.0, 2.0]}) for p in "AB"
    ]
    rows = OptionRows.joined([part for part in parts if isinstance(part, OptionRows)])
    assert rows.table.tolist() == [0, 0, 1, 1]
    assert [rows.pool.values[code] for code in rows.pool.codes] == ["A", "A", "B", "B"]
    assert all(len(getattr(rows, name)) == 4 for name in NUMBERS)
    assert [rows.take(np.array([1, -1])).made(i).pool for i in range(2)] == [["B", "B"], []]
