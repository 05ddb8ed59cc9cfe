"""Slots that follow a signal: where they are split, what repeats, and how closely caps follow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.signals import Signal

BEGIN = datetime(2026, 7, 14, 12, tzinfo=UTC)
AT_S = BEGIN.timestamp()


def horizon(slot_s: float | list[float], **more: Any) -> ShiftingInstance:
    """Four slots without jobs."""
    table = {"pools": {"a": {"gpus": 8}}, "jobs": []}
    return ShiftingInstance.model_validate(
        {"problem": "shifting", "slots": 4, "slot_s": slot_s, **table, **more}
    )


def limit(begin_s: float, to_s: float, **fields: float) -> dict[str, Any]:
    """A limit between two seconds of the horizon."""
    return {
        "from": datetime.fromtimestamp(AT_S + begin_s, UTC),
        "to": datetime.fromtimestamp(AT_S + to_s, UTC),
        **fields,
    }


def test_a_ramp_and_a_limit_by_hand() -> None:
    """No edge where the cap is the same on both sides, as at the end of a fall and the begin of a rise.

    A limit that is shorter than slots may be takes one of these.
    """
    ramp = limit(1000.0, 2000.0, power_w=500.0, ramp_w_per_s=5.0)
    signal = Signal.model_validate({"baseline_w": 1000.0, "limits": [ramp, limit(3000, 3020, power_w=700.0)]})
    whole = horizon(900.0, carbon_g_per_kwh=[1.0, 2.0, 3.0, 4.0, 5.0], power_w=900.0)
    found = whole.under(signal, BEGIN, 50.0)
    assert found.begin_s.tolist() == [0, 900, 1000, 1050, 1800, 2050, 2100, 2700, 3000, 3050, 3600]
    assert found.power_w == [900, 900, 750, 500, 500, 750, 900, 900, 700, 900]
    assert found.carbon_g_per_kwh == [1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0]
    assert found == whole.split(signal, BEGIN, 50.0).under(signal, BEGIN)


@st.composite
def signals(draw: st.DrawFn) -> Signal:
    """Some limits on the site and a domain, with ramps and without, in and beyond the horizon."""
    limits = []
    for _ in range(draw(st.integers(0, 4))):
        begin_s, lasts_s = draw(st.integers(-900, 4000)), draw(st.integers(1, 2000))
        fields: dict[str, Any] = {"power_w": float(draw(st.integers(1, 9)) * 100)}
        if draw(st.booleans()):
            fields["ramp_w_per_s"] = draw(st.sampled_from([0.5, 1.0, 7.0]))
        elif draw(st.booleans()):
            fields["domain"] = "feed"
        limits.append(limit(begin_s, begin_s + lasts_s, **fields))
    return Signal.model_validate({"baseline_w": 1000.0, "limits": limits})


@given(
    signals(),
    st.lists(st.sampled_from([60.0, 100.1, 450.0, 900.0]), min_size=4, max_size=4),
    st.sampled_from([1.0, 17.3, 60.0, 300.0]),
)
def test_caps_follow_the_signal(signal: Signal, slot_s: list[float], shortest_s: float) -> None:
    """At no moment above it, not lower than without splitting, and no slot is shorter than it may be."""
    feed = {"feed": {"pools": ["a"], "power_w": [5000.0, 400.0, 5000.0, 600.0]}}
    whole = horizon(slot_s, power_w=[900.0, 5000.0, 300.0, 5000.0], power_domains=feed)
    found, plain = whole.under(signal, BEGIN, shortest_s), whole.under(signal, BEGIN)
    assert np.isin(whole.begin_s.round(6), found.begin_s.round(6)).all()
    assert found.lengths_s.min() >= min([shortest_s, *slot_s]) * (1 - 1e-9)
    middle_s = (found.begin_s[:-1] + found.begin_s[1:]) / 2
    source = np.searchsorted(whole.begin_s, middle_s) - 1
    for one, of, name in ((found, plain, None), (found, plain, "feed")):
        caps_w, plain_w, own_w = (
            np.array(each.power_domains[name].power_w if name else each.power_w) for each in (one, of, whole)
        )
        moments_s = AT_S + np.concatenate([found.begin_s[:-1] + 1e-5, middle_s, found.begin_s[1:] - 1e-5])
        limit_w = signal.limit(name).least(moments_s, moments_s + 1e-6).reshape(3, -1)
        assert (caps_w <= np.minimum(own_w[source], limit_w) + 1e-3).all()
        assert (caps_w >= plain_w[source]).all()


def test_slots_become_no_more_than_a_horizon_may_have() -> None:
    signal = Signal.model_validate({"power_w": 500.0})
    for shortest_s in (0.0, 0.36, float("nan")):
        with pytest.raises(ValueError, match=r"^shortest_slot_s: must be a number from 0.360144 on"):
            horizon(900.0).split(signal, BEGIN, shortest_s)
    with pytest.raises(TypeError, match="shortest_slot_s must be a number of seconds"):
        horizon(900.0).split(signal, BEGIN, "60")  # as a caller without types might
