"""Host list expressions of Slurm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.topology.exchange import compress, expand

NAME = st.from_regex(r"[a-z]{0,2}[0-9]{0,3}[a-z-]{0,2}[0-9]{1,3}[a-z.]{0,1}", fullmatch=True)


@given(st.lists(NAME, min_size=1, max_size=12))
def test_compression_is_undone_by_expansion(names: list[str]) -> None:
    assert expand(compress(names)) == names


@given(st.sampled_from(["n", "rack1-n"]), st.integers(0, 995), st.integers(1, 300), st.integers(1, 4))
def test_a_run_of_numbers_takes_one_range(prefix: str, first: int, count: int, width: int) -> None:
    names = [f"{prefix}{i:0{width}d}" for i in range(first, first + count)]
    text = compress(names)
    assert expand(text) == names
    assert text.count("-") - prefix.count("-") == (count > 1)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("a", ["a"]),
        ("n[0-3]", ["n0", "n1", "n2", "n3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[3,0-1,007]x,login", ["n3x", "n0x", "n1x", "n007x", "login"]),
        ("r[0-1]n[1-2]", ["r0n1", "r0n2", "r1n1", "r1n2"]),
        ("[1-2]", ["1", "2"]),
    ],
)
def test_expansion(expression: str, names: list[str]) -> None:
    assert expand(expression) == names


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "malformed host list '' at character 1"),
        ("a,", "at character 3"),
        ("a,,b", "at character 3"),
        ("a[1", "at character 2"),
        ("a]", "at character 2"),
        ("a[[1]]", "at character 2"),
        ("a[]", "'' is no number or range"),
        ("a[1-]", "'1-' is no number or range"),
        ("a[x-z]", "'x-z' is no number or range"),
        ("a[3-1]", "runs backwards"),
        ("a[0-9999999]", "too many names"),
        ("a[0-999]b[0-999]c[0-9]", "too many names"),
        ("a[0-99999],b[0-99999],c", "too many names"),
        ("a" * 201, "names of more than 200 characters"),
        ("a" * 199 + "[08-11]", "names of more than 200 characters"),
        ("a[0" + "0" * 30 + "-1]", "is no number or range"),
    ],
)
def test_malformed_expressions_are_told(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        expand(expression)


@pytest.mark.parametrize("name", ["", "a,b", "a[0]"])
def test_names_that_cannot_be_written(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be written in a host list"):
        compress([name])
