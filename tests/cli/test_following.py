"""What is told of rounds on a real cluster, one after the other."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattsched.adapters.rounds import Report, UnansweredError
from wattsched.cli.following import follow

NOTES = st.lists(st.sampled_from(["cap not read", "node gone", "403"]), unique=True)


@given(st.lists(st.none() | NOTES, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_notes_are_printed_when_they_are_new_and_are_all_in_json(
    capsys: pytest.CaptureFixture[str], rounds: list[list[str] | None]
) -> None:
    """None is a round without an answer."""
    told = [UnansweredError("no") if some is None else Report(1, 0.0, notes=some) for some in rounds]
    capsys.readouterr()
    follow(told, lambda _: {}, once=False, as_json=True, do_apply=True)
    printed = capsys.readouterr()
    before, expected = list[str](), list[str]()
    for some in rounds:
        expected += [note for note in some or () if note not in before]
        before = before if some is None else some
    lines = printed.err.splitlines()
    assert [line.split("note: ")[1] for line in lines if "note: " in line] == expected
    assert [json.loads(line).get("notes") for line in printed.out.splitlines()] == rounds
