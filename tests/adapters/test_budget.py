"""The cap from a file that changes: announced cuts count early, and what is not known raises nothing."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters.budget import BELIEVED_S, GRACE_S, Budget, Cap, Caps
from wattsched.instances.errors import InputError


def at(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat()


class Clocks:
    """A clock that people set, and one that only runs."""

    def __init__(self, **fields: Any) -> None:
        self.now_s = self.run_s = 0.0
        self.budget = Budget(clock=lambda: self.now_s, monotonic=lambda: self.run_s, **fields)

    def cap(self, after_s: float = 0.0, set_s: float = 0.0) -> Cap:
        """The cap some seconds later, with the clock set by some more."""
        self.run_s += after_s
        self.now_s += after_s + set_s
        return self.budget.cap()

    def watts(self, after_s: float = 0.0, set_s: float = 0.0, domain: str = "") -> tuple[float, float]:
        """The watts under one cap some seconds later: now and soon."""
        cap = self.cap(after_s, set_s)
        return cap.now_w[domain], cap.soon_w[domain]


def of_site(now_w: float, soon_w: float, *told: Any) -> Cap:
    """A cap on the site alone."""
    return Cap({"": now_w}, {"": soon_w}, {"": soon_w}, *told)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.floats(1, 1e5)), unique_by=lambda pair: pair[0]),
    st.integers(0, 100),
    st.integers(0, 50),
    st.integers(-100, 100),
)
def test_the_least_of_the_time_ahead_counts_and_of_all_times_that_it_may_be(
    changes: list[tuple[int, float]], now: int, ahead: int, set_s: int
) -> None:
    rows: Any = [{"at": at(time_s), "power_w": watts} for time_s, watts in changes]

    def in_force(moment: int) -> float:
        past = sorted(pair for pair in changes if pair[0] <= moment)
        return past[-1][1] if past else 5e4

    document = {"power_w": 5e4, "changes": rows}
    assert Caps.model_validate(document).limit.least_from(now, ahead) == min(
        map(in_force, range(now, now + ahead + 1))
    )
    clocks = Clocks(file="cap.json", ahead_s=ahead, source=lambda: document)
    clocks.cap()
    found = clocks.cap(now, set_s)
    first, last = sorted((now, now + set_s)) if abs(set_s) > 2 else (now + set_s, now + set_s)
    assert found.now_w[""] == min(map(in_force, range(first, last + 1)))
    assert found.soon_w[""] == min(map(in_force, range(first, last + ahead + 1)))
    # What comes later may be asked for.
    assert clocks.budget.least_w(ahead + 7.0)[""] == min(map(in_force, range(first, last + ahead + 8)))
    assert bool(found.alarms) == (abs(set_s) > 2)
    # A clock that stays as it was set is believed after an hour.
    later = clocks.cap(BELIEVED_S)
    assert later == of_site(in_force(10_000), in_force(10_000))


def test_a_clock_that_is_set_back_does_not_double_the_cap() -> None:
    document = {"power_w": 64_000, "changes": [{"at": at(100), "power_w": 32_000}]}
    clocks = Clocks(file="cap.json", source=lambda: document)
    clocks.cap()
    assert clocks.watts(110)[0] == 32_000
    found = clocks.cap(0, -120)
    assert (found.now_w[""], found.unknown) == (32_000, "")
    assert "the clock was set back by 120 s" in found.alarms[0]
    assert clocks.cap(1, 120) == of_site(32_000, 32_000)


def test_what_cannot_be_read_leaves_the_last_cap_and_lets_nothing_start(tmp_path: Path) -> None:
    file = tmp_path / "cap.json"
    clocks = Clocks(file=str(file), ahead_s=30.0)
    with pytest.raises(InputError, match="no such file"):
        clocks.cap()
    file.write_text(json.dumps({"power_w": 900, "changes": [{"at": at(100), "power_w": 400}]}))
    assert [clocks.watts(after_s)[1] for after_s in (0.0, 69.0, 2.0)] == [900, 900, 400]
    for spoilt in ("{", "[]", '{"power_w": -1}', '{"power_w": 1, "changes": [{"at": "noon", "power_w": 1}]}'):
        file.write_text(spoilt)
        found = clocks.cap()
        assert (found.now_w[""], found.soon_w[""]) == (900, 400)
        assert found.unknown
    assert "changes[0].at: must be a time as 2027-01-31T17:00:00Z, got 'noon'" in found.unknown
    assert found.unknown in found.alarms[0]
    file.unlink()
    # An announced cut counts at its moment also where the file is gone.
    assert clocks.watts(1e4)[0] == 400
    file.write_text('{"power_w": 700}')
    assert clocks.cap() == of_site(700, 700)


def test_a_forgotten_budget_expires_and_a_fail_safe_cap_counts_after_a_minute() -> None:
    document = {"power_w": 900, "until": at(50)}
    clocks = Clocks(file="cap.json", source=lambda: document, fail_safe_w=300.0)
    assert clocks.cap(49).unknown == ""
    expired = clocks.cap(2)
    assert (expired.now_w[""], "it counted until 1970-01-01T00:00:50+00:00" in expired.unknown) == (900, True)
    assert clocks.watts(GRACE_S) == (300, 300)
    document["until"] = at(1e6)
    assert clocks.cap() == of_site(900, 900)


def test_without_a_file_at_all_a_fail_safe_cap_keeps_the_rounds_going() -> None:
    clocks = Clocks(file="/nowhere/cap.json", fail_safe_w=300.0)
    assert (clocks.watts()[0], bool(clocks.cap().unknown)) == (math.inf, True)
    assert clocks.watts(GRACE_S)[0] == 300


def test_without_a_file_there_is_a_number_or_no_limit() -> None:
    assert (Budget(5.0).cap(), Budget().cap()) == (of_site(5.0, 5.0), of_site(math.inf, math.inf))


def test_a_signal_counts_as_a_list_of_changes_does() -> None:
    limit = {"from": at(100), "to": at(200), "power_w": 400.0, "ramp_w_per_s": 10.0}
    document: dict[str, Any] = {"format": "wattsched-signal/1", "power_w": 1000.0, "limits": [limit]}
    clocks = Clocks(file="cap.json", ahead_s=20, source=lambda: document)
    found = [clocks.watts(), *(clocks.watts(after_s) for after_s in (90, 30, 70, 15, 45))]
    times_s = (0, 90, 120, 190, 205, 250)
    assert [now for now, _ in found] == pytest.approx([1000, 1000, 800, 400, 450, 900], abs=1e-3), times_s
    assert [soon for _, soon in found] == pytest.approx([1000, 900, 600, 400, 450, 900], abs=1e-3)


def test_power_domains_have_limits_of_their_own_and_unknown_ones_are_refused() -> None:
    document = {
        "format": "wattsched-signal/1",
        "limits": [
            {"from": at(100), "to": at(200), "power_w": 400.0, "domain": "feed"},
            {"from": at(0), "to": at(150), "power_w": 900.0, "domain": "feed"},
        ],
    }
    clocks = Clocks(file="cap.json", ahead_s=20, source=lambda: document, domains=["feed", "other"])
    then = {"next_s": {"feed": 100.0}, "next_w": {"feed": 400.0}}
    assert clocks.cap() == Cap(*[{"": math.inf, "feed": 900}] * 3, **then)
    assert [clocks.watts(s, domain="feed") for s in (85, 20, 80, 30)] == [
        (900, 400),
        (400, 400),
        (400, 400),
        (math.inf, math.inf),
    ]
    clocks.cap(-100)
    before = clocks.cap()
    document["limits"][1]["domain"] = "fed"
    found = clocks.cap()
    assert (found.now_w, found.soon_w) == (before.now_w, before.soon_w) == ({"": math.inf, "feed": 400},) * 2
    told = "limits[1].domain: 'fed' is no power domain of the cluster (did you mean 'feed'?)"
    assert found.unknown == told
    assert told in found.alarms[0]
    with pytest.raises(InputError, match=re.escape(f"cap.json: {told}")):
        Clocks(file="cap.json", source=lambda: document, domains=["feed"]).cap()
    document["limits"] = []
    # A limit that is not stated any more ends at once, and that is no cut.
    ended = clocks.cap()
    free = of_site(math.inf, math.inf)._replace(notes=("cap.json: has no firm limit",))
    assert (ended, ended.cuts(before), before.cuts(ended)) == (free, False, True)


def test_any_field_of_a_signal_makes_one_and_what_limits_nothing_is_refused_or_noted() -> None:
    limit: dict[str, Any] = {"from": at(-5), "power_w": 400.0}
    wish = limit | {"worth_per_kwh": 0.3}
    notes = ("cap.json: 1 of 2 limits are wishes, which limit nothing here",)
    for document, watts, told in (
        ({"limits": [limit]}, 400.0, ()),
        ({"limits": [limit, wish | {"power_w": 100.0}]}, 400.0, notes),
        ({"power_w": 700.0, "baseline_w": 900.0}, 700.0, ()),
        ({"limits": []}, math.inf, ("cap.json: has no firm limit",)),
        (
            {"name": "july", "limits": [wish]},
            math.inf,
            (notes[0].replace("2", "1"), "cap.json: has no firm limit"),
        ),
    ):
        clocks = Clocks(file="cap.json", source=lambda document=document: document)
        assert (clocks.watts()[0], clocks.cap().notes) == (watts, told)
    nothing = Clocks(file="cap.json", source=lambda: {"format": "wattsched-signal/1", "name": "july"})
    with pytest.raises(InputError, match="needs 'power_w' or 'limits': it limits nothing"):
        nothing.cap()


@pytest.mark.parametrize("document", [{"power_w": 900}, {"format": "wattsched-signal/1", "power_w": 900}])
def test_what_is_out_of_date_at_the_start_is_refused_again_and_again(document: dict[str, Any]) -> None:
    document = {**document, "until": at(-1)}
    clocks = Clocks(file="cap.json", source=lambda: document)
    for _ in range(2):
        with pytest.raises(InputError, match=r"cap\.json: until: it counted until 1969-12-31T23:59:59"):
            clocks.cap(1)
    # Rounds go on where the site states a fail-safe cap.
    safe = Clocks(file="cap.json", source=lambda: document, fail_safe_w=300.0)
    assert (safe.watts()[0], safe.watts(GRACE_S)[0], bool(safe.cap().unknown)) == (900, 300, True)


def test_a_budget_that_stands_at_a_time_says_which() -> None:
    standing = Budget(file="cap.json", source=lambda: {"power_w": 900})
    standing.stand_at(60.0)
    assert standing.cap().notes == (
        "cap.json: read as at 1970-01-01T00:01:00+00:00, the time of the snapshot",
    )
