"""The cap from a file that changes: announced cuts count early, and what cannot be read changes nothing."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters.budget import Budget, Caps
from wattsched.instances.errors import InputError


def at(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat()


@given(
    st.lists(st.tuples(st.integers(0, 100), st.floats(1, 1e5)), unique_by=lambda pair: pair[0]),
    st.integers(0, 100),
    st.integers(0, 50),
)
def test_the_least_of_the_time_ahead_counts(changes: list[tuple[int, float]], now: int, ahead: int) -> None:
    rows: Any = [{"at": datetime.fromtimestamp(time_s, UTC), "power_w": watts} for time_s, watts in changes]
    caps = Caps.model_validate({"power_w": 5e4, "changes": rows})

    def in_force(moment: int) -> float:
        past = sorted(pair for pair in changes if pair[0] <= moment)
        return past[-1][1] if past else 5e4

    assert caps.least(now, ahead) == min(in_force(moment) for moment in range(now, now + ahead + 1))


def test_a_file_is_read_anew_and_what_cannot_be_read_leaves_the_last_cap(tmp_path: Path) -> None:
    file = tmp_path / "cap.json"
    budget = Budget(file=str(file), ahead_s=30.0)
    with pytest.raises(InputError, match="no such file"):
        budget.cap_w(0.0)
    file.write_text(json.dumps({"power_w": 900, "changes": [{"at": at(100), "power_w": 400}]}))
    assert [budget.cap_w(time_s) for time_s in (0.0, 69.0, 71.0, 1e4)] == [900, 900, 400, 400]
    for spoilt in ("{", "[]", '{"power_w": -1}', '{"power_w": 1, "changes": [{"at": "noon", "power_w": 1}]}'):
        file.write_text(spoilt)
        assert budget.cap_w(0.0) == 900
        assert "still counts" in budget.note
    assert "changes[0].at: must be a time as 2027-01-31T17:00:00Z, got 'noon'" in budget.note
    file.write_text('{"power_w": 700}')
    assert (budget.cap_w(0.0), budget.note) == (700, "")


def test_without_a_file_there_is_a_number_or_no_limit() -> None:
    assert (Budget(5.0).cap_w(0.0), Budget().cap_w(0.0)) == (5.0, math.inf)
