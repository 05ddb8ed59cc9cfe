"""Signals: limits over time against a moment-by-moment reading, both formats, and what is wrong in them."""

from __future__ import annotations

import json
import math
import warnings
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.instances.errors import InputError, NoticeWarning
from wattsched.instances.signals import Signal, read_signal

BEGIN_S = datetime(2026, 7, 1, 15, tzinfo=UTC).timestamp()


def at(minutes: float) -> str:
    return datetime.fromtimestamp(BEGIN_S + 60 * minutes, UTC).isoformat()


LIMITS = st.builds(
    dict,
    begin=st.integers(0, 60),
    lasts=st.none() | st.integers(1, 60),
    watts=st.sampled_from([100, 500, 900, 1000]),
    ramp=st.none() | st.sampled_from([0.1, 0.5, 5.0]),
    worth=st.none() | st.just(1.0),
    domain=st.none() | st.just("feed"),
).map(lambda one: one | {"ramp": one["ramp"] if one["domain"] is None else None})


def row(limit: dict[str, Any]) -> dict[str, Any]:
    """The limit as a document has it."""
    lasts, ramp = limit["lasts"], limit["ramp"]
    cells = {"from": at(limit["begin"]), "power_w": float(limit["watts"])}
    cells |= {} if lasts is None else {"to": at(limit["begin"] + lasts)}
    cells |= {} if ramp is None else {"ramp_w_per_s": ramp}
    cells |= {} if limit["worth"] is None else {"worth_per_kwh": limit["worth"]}
    return cells | ({} if limit["domain"] is None else {"domain": limit["domain"]})


def allowed_w(limit: dict[str, Any], second: float, before_w: float) -> float:
    """What a limit allows at a second, in words: down the ramp, flat, up the ramp, nothing said."""
    begins, watts = 60 * limit["begin"], limit["watts"]
    ends = math.inf if limit["lasts"] is None else begins + 60 * limit["lasts"]
    if second < begins:
        return math.inf
    if limit["ramp"] is None or watts >= before_w:
        return watts if second < ends else math.inf
    reached_w = max(watts, before_w - limit["ramp"] * (min(second, ends) - begins))
    if second < ends:
        return reached_w
    again_w = reached_w + limit["ramp"] * (second - ends)
    return again_w if again_w < before_w else math.inf


@given(st.lists(LIMITS, max_size=5), st.none() | st.just(800.0), st.sampled_from([None, "feed"]))
def test_the_least_limit_in_force_holds_at_every_second(
    limits: list[dict[str, Any]], standing_w: float | None, domain: str | None
) -> None:
    signal = Signal.model_validate(
        {"baseline_w": 1000.0, "power_w": standing_w, "limits": [row(limit) for limit in limits]}
    )
    limit, before_w = signal.limit(domain), min(1000.0, standing_w or math.inf)
    mine = [one for one in limits if one["domain"] == domain and one["worth"] is None]
    seconds = np.arange(-60.0, 8000.0, 30.0)
    told = [
        min(
            [standing_w if domain is None and standing_w else math.inf]
            + [allowed_w(one, second, before_w) for one in mine]
        )
        for second in seconds.tolist()
    ]
    found = [limit.least_from(BEGIN_S + second) for second in seconds.tolist()]
    assert found == pytest.approx(told, rel=1e-9, abs=1e-3)
    least = limit.least(BEGIN_S + seconds[:-4], BEGIN_S + seconds[4:])
    assert all(least[n] <= min(told[n : n + 4]) + 1e-3 for n in range(len(least)))
    time_s, watts = limit.steps(60.0)
    steps = watts[np.searchsorted(time_s, BEGIN_S + seconds, side="right") - 1]
    assert np.all(steps <= np.array(told) + 1e-3)


@given(st.lists(LIMITS, max_size=5), st.none() | st.just(800.0), st.integers(-60, 7500))
def test_the_next_change_is_the_next_step_of_a_limit_without_ramps(
    limits: list[dict[str, Any]], standing_w: float | None, second: int
) -> None:
    rows = [row(limit | {"ramp": None}) for limit in limits]
    limit = Signal.model_validate({"power_w": standing_w, "limits": rows}).limit(None)
    time_s, watts = limit.steps()
    later = np.flatnonzero(time_s > BEGIN_S + second)
    expected = (time_s[later[0]], watts[later[0]]) if len(later) else None
    assert limit.next_change(BEGIN_S + second) == expected


@pytest.mark.parametrize(
    ("minute", "change"), [(-5, (0, 600)), (0, (30, 1000)), (2, (30, 1000)), (29, (30, 1000)), (31, None)]
)
def test_the_next_change_is_where_a_ramp_begins_and_goes_to_its_end(
    minute: float, change: tuple[float, float] | None
) -> None:
    event = {"from": at(0), "to": at(30), "power_w": 600.0, "ramp_w_per_s": 2.0}
    limit = Signal.model_validate({"power_w": 1000.0, "limits": [event]}).limit(None)
    found = limit.next_change(BEGIN_S + 60 * minute)
    assert (found and ((found[0] - BEGIN_S) / 60, found[1])) == change


def test_a_table_says_the_same_as_a_document(tmp_path: Path) -> None:
    table, document = tmp_path / "july.csv", tmp_path / "july.json"
    table.write_text(f"from,to,power_w,notice_s,domain\n{at(0)},{at(60)},70000,,\n{at(90)},,60000,,\n")
    limits = [{"from": at(0), "to": at(60), "power_w": 70000.0}, {"from": at(90), "power_w": 60000.0}]
    document.write_text(json.dumps({"format": "wattsched-signal/1", "limits": limits}))
    assert read_signal(table) == read_signal(document)
    assert read_signal(table).domains == [None]


@pytest.mark.parametrize(
    ("name", "factor"), [("power_w", 1.0), ("power_kw", 1e3), ("power (MW)", 1e6), ("Power [kW]", 1e3)]
)
def test_limits_of_a_table_have_the_unit_of_its_header(tmp_path: Path, name: str, factor: float) -> None:
    table = tmp_path / "july.csv"
    for separator, mark in ((",", "."), (";", ".")) + (((";", ","),) if factor > 1 else ()):
        cells = ("2.4", "1.855") if mark == "." else ("2,400", "1,855")
        rows = f"{at(0)}{separator}{cells[0]}\n{at(60)}{separator}{cells[1]}\n"
        table.write_text(f"from{separator}{name}\n{rows}")
        told = pytest.warns(NoticeWarning, match="decimals follow a comma") if mark == "," else nullcontext()
        with told:
            found_w = [one.power_w for one in read_signal(table).limits]
        assert found_w == pytest.approx([2.4 * factor, 1.855 * factor])


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"from": "2026-07-01T15:00:00", "power_w": 1.0}, "from: must have a zone"),
        ({"from": at(0)}, "needs either 'power_w' or 'share'"),
        ({"from": at(0), "power_w": 1.0, "share": 0.5}, "needs either 'power_w' or 'share'"),
        ({"from": at(0), "share": 0.5}, "'share' needs 'baseline_w'"),
        ({"from": at(0), "power_w": 1.0, "ramp_w_per_s": 1.0}, "'ramp_w_per_s' needs 'baseline_w'"),
        ({"from": at(0), "power_w": 1.0, "ramp_w_per_s": 1.0, "domain": "a"}, "are of the whole site"),
        ({"from": at(0), "to": at(0), "power_w": 1.0}, "to: must be after from"),
        ({"from": at(0), "power_w": -1.0}, "power_w: must be greater than 0"),
        ({"from": at(0), "power_w": 1.0, "kw": 1.0}, "kw: is not a known field"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, limit: dict[str, Any], words: str) -> None:
    file = tmp_path / "signal.json"
    file.write_text(json.dumps({"limits": [limit]}))
    with pytest.raises(InputError, match=words):
        read_signal(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from,power_w,power_kw\n2026-07-01T15:00Z,,70\n", "column 'power_kw': is not read"),
        ("from,power_kw\n2026-07-01T15:00Z,70 MW\n", "column 'power_kw': '70 MW': the header says"),
        ("from;to\n2026-07-01T15:00Z;\n", "needs either 'power_w' or 'share'"),
        ("from,power_kva\n2026-07-01T15:00Z,70\n", "column 'power_kva': is not read"),
        ("from;power_w\n2026-07-01T15:00Z;2,400\n", "'2,400' may be thousands"),
        ("from;power_kw\n2026-07-01T15:00Z;2.400\n", "'2.400' may be thousands"),
        ("from,power_w\n2026-07-01T15:00Z,2147483632\n", "must be a finite number, got 2147483632"),
        ("from,power_w,ramp_w_per_s\n2026-07-01T15:00Z,70,\n", "column 'ramp_w_per_s': is not read"),
        ("", "^[^:]*signal.csv: is empty$"),
        (
            "from,power_w,worth_per_kwh\n2026-07-01T15:00Z,70,-1\n",
            "worth_per_kwh: must be greater",
        ),
        ("from,power_w\n2026-07-01T15:00Z,much\n", "column 'power_w'"),
        ("begin,power_w\n2026-07-01T15:00Z,70\n", "column 'from' is missing"),
        ("from,power_w\n2026-07-01T15:00,70\n", "must have a zone"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "signal.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        read_signal(file)


def test_a_ramp_is_exact_to_a_milliwatt_where_seconds_since_1970_are_not() -> None:
    event = {"from": at(0), "to": at(60), "power_w": 0.0001, "ramp_w_per_s": 10.0}
    limit = Signal.model_validate({"power_w": 9000.0, "limits": [event]}).limit()
    assert [limit.least_from(BEGIN_S + s) for s in (0, 100, 899.99, 1000)] == [9000, 8000, 0.1, 0.0001]
    assert (
        Signal.model_validate({"limits": [event | {"ramp_w_per_s": None, "power_w": 1.59375}]})
        .limit(None)
        .least_from(BEGIN_S)
        == 1.59375
    )


@pytest.mark.parametrize(
    ("signal", "words"),
    [
        (
            {"limits": [{"from": at(200), "power_w": 1.0}]},
            ["no limit holds in the time of the jobs, from 2026-07-01 15:00"],
        ),
        (
            {"power_w": 9.0, "limits": [{"from": at(-20), "to": at(-10), "power_w": 1.0}]},
            ["no limit but power_w holds in the time of the jobs, from 2026-07-01 15:00"],
        ),
        ({"limits": [{"from": at(10), "power_w": 1.0, "worth_per_kwh": 1.0}]}, ["1 of 1 limits are wishes"]),
        ({"power_w": 9.0, "until": at(0)}, ["it counted until 2026-07-01T15:00:00"]),
        ({"power_w": 9.0, "until": at(1)}, []),
    ],
)
def test_what_limits_nothing_is_said(signal: dict[str, Any], words: list[str]) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Signal.model_validate(signal).require_limits("a.json", BEGIN_S, BEGIN_S + 7200.0)
    assert len(told) == len(words)
    assert all(word in str(one.message) for word, one in zip(words, told, strict=True))


@given(st.lists(LIMITS, min_size=1, max_size=6), st.integers(0, 5))
def test_granted_wishes_are_firm_limits(limits: list[dict[str, Any]], number: int) -> None:
    signal = Signal.model_validate({"baseline_w": 1000.0, "limits": [row(one) for one in limits]})
    wish = signal.limits[number % len(limits)]
    assert wish.model_copy(update={"worth_per_kwh": None}) in signal.granting(wish).limits
    times_s = BEGIN_S + 60.0 * np.arange(0, 130)
    firm = Signal.model_validate(
        {"baseline_w": 1000.0, "limits": [row(one | {"worth": None}) for one in limits]}
    )
    for domain in (None, "feed"):
        everything, asked = (
            of.limit(domain).least(times_s, times_s + 60.0) for of in (signal.granting(), firm)
        )
        assert everything.tolist() == asked.tolist()
        one = signal.granting(wish).limit(domain).least(times_s, times_s + 60.0)
        assert (everything <= one).all()
        assert (one <= signal.limit(domain).least(times_s, times_s + 60.0)).all()
