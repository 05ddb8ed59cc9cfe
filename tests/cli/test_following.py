"""What is told of rounds on a real cluster, one after the other."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.adapters.rounds import Report, UnansweredError
from wattsched.cli.following import follow

NOTES = st.lists(st.sampled_from(["cap not read", "node gone", "403"]), unique=True)


@given(st.lists(st.none() | NOTES, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_notes_are_printed_when_they_are_new_and_are_all_in_json(
    capsys: pytest.CaptureFixture[str], rounds: list[list[str] | None]
) -> None:
    """None is a round without an answer."""
    told = [UnansweredError("no") if some is None else Report(1, notes=some, alarms=some) for some in rounds]
    capsys.readouterr()
    follow(told, once=False, as_json=True, do_apply=True)
    printed = capsys.readouterr()
    before, expected = list[str](), list[str]()
    for some in rounds:
        expected += [note for note in some or () if note not in before]
        before = before if some is None else some
    lines = printed.err.splitlines()
    for word in ("note: ", "ALARM: "):
        assert [line.split(word)[1] for line in lines if word in line] == expected
    assert [json.loads(line).get("notes") for line in printed.out.splitlines()] == rounds
    assert [json.loads(line)["alarms"] for line in printed.out.splitlines()] == [
        ["no"] if some is None else some for some in rounds
    ]


@given(
    st.builds(
        Report,
        number=st.integers(1, 10**6),
        running=st.integers(0, 10**4),
        queued=st.integers(0, 10**5),
        power_w=st.floats(0, 1e6),
        cap_w=st.none() | st.floats(1, 1e6),
        planned_w=st.none() | st.floats(0, 1e6),
        reason=st.sampled_from(["optimal", "feasible", "time limit", ""]),
        gap=st.none() | st.floats(0, 1),
        took_s=st.floats(0, 1e4),
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
def test_the_line_of_a_round_fits_80_columns_and_tells_what_shadow_would_draw(
    capsys: pytest.CaptureFixture[str], report: Report
) -> None:
    capsys.readouterr()
    report.started = dict.fromkeys(range(123), "a")
    follow([report], once=True, as_json=False, do_apply=False)
    line = capsys.readouterr().err.splitlines()[0]
    small = report.number < 10**5 and max(report.running, report.queued) < 10**4
    watts = (report.power_w, report.planned_w or 0.0, report.cap_w or 0.0)
    assert len(line) <= 80 or not (small and max(watts) < 999_990)
    assert f"{report.power_w / 1000:,.2f}" in line
    assert report.planned_w is None or f"-> {report.planned_w / 1000:,.2f}" in line


def test_many_jobs_with_the_same_reason_have_one_line_and_are_all_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = (
        {7: "needs 8 GPUs"} | dict.fromkeys(range(100, 121), "late") | dict.fromkeys(range(20, 40), "few")
    )
    follow([Report(1, waiting=waiting)], once=True, as_json=False, do_apply=True)
    _, *lines = (line.strip() for line in capsys.readouterr().err.splitlines())
    few = [f"wait {number}: few" for number in range(20, 40)]
    assert lines == ["wait 7: needs 8 GPUs", "wait 100, 101, 102 and 18 others: late", *few]
    follow([Report(1, waiting=waiting)], once=True, as_json=True, do_apply=True)
    assert json.loads(capsys.readouterr().out)["waiting"] == {str(name): why for name, why in waiting.items()}
