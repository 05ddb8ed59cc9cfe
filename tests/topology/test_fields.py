"""Names as long as files take them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from wattsched.inputs import LONGEST_CELL
from wattsched.topology.fields import LONGEST_NAME, Name, shortened


def test_a_table_takes_names_as_long_as_a_document() -> None:
    assert LONGEST_CELL == LONGEST_NAME


@given(st.text(min_size=1, max_size=220), st.integers(1, 30))
def test_names_fit_and_stay_apart(name: str, times: int) -> None:
    long = name * times
    names = [long, long + "a", long + "b", "a" + long]
    kept = [shortened(one) for one in names]
    assert len(set(kept)) == len(names)
    for one, short in zip(names, kept, strict=True):
        assert (short == one) == (len(one) <= LONGEST_NAME)
        assert TypeAdapter(Name).validate_python(short) == short
        assert shortened(short) == short
