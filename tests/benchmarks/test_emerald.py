"""Events of a field demonstration: the figures beside the plan, and the draw of its minutes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import emerald, emerald_events, emerald_models, harness
from wattsched.instances.shifting.instance import faults_of


@pytest.fixture(autouse=True)
def _data(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTSCHED_DATA", str(data_dir))


@pytest.mark.parametrize("number", range(3))
def test_policies_keep_the_limit_below_what_the_sweep_allows(number: int) -> None:
    event = emerald_events.events()[number]
    begin_s = emerald.instance(event).begin_s
    limits_w = emerald.slot_limits_w(event, begin_s)
    mixed, combined = emerald.allowed(event, limits_w, begin_s)
    rows = (harness.FOLDER / "emerald.md").read_text(encoding="utf-8")
    for name, states in emerald.policies(event, limits_w, begin_s).items():
        drawn = emerald.drawn(event, states, begin_s)
        assert (drawn <= event.share(np.arange(len(drawn)) + 0.5) * (1 + 1e-9)).all()
        performance = float(event.weights @ emerald.performances(event, states, begin_s))
        assert performance < combined <= mixed < 1
        assert f"| {name} | {event.name} | {performance:.4f} |" in rows
    row = next(line for line in rows.splitlines() if line.startswith("| the sweep, mixed"))
    assert row.split(" | ")[number + 1].rstrip(" |") == f"{mixed:.4f}"


def test_the_problem_is_the_event() -> None:
    """Its caps are the limits, and its jobs have the GPUs of the sweep."""
    event = emerald_events.events()[0]
    instance = emerald.instance(event)
    assert faults_of(instance) == []
    limits_w = emerald.slot_limits_w(event, instance.begin_s)
    assert instance.slots == 20 + 60
    caps_w = np.minimum(instance.power_w, event.baseline_w)
    np.testing.assert_allclose(caps_w, limits_w, rtol=1e-9)
    assert [job.gpus[5] for job in event.jobs] == [32, 32, 48, 48, 48, 48]


def test_the_profiles_give_the_minutes_within_the_error_of_the_simulator() -> None:
    *_, total = emerald_models.of_minutes()
    assert float(str(total[-1]).removesuffix(" %")) <= 3.1
