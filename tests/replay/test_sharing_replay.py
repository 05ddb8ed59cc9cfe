"""A stream of jobs that share units, against times that can be told by hand."""

from __future__ import annotations

import pytest

from wattsched.formulations.sharing.problem import PROBLEM
from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.replay.sharing import Replay, replay

ARRIVALS = [0.0, 0.0, 50.0, 1000.0]


def stream(units: int, **job: object) -> SharingInstance:
    """Jobs of 10 epochs of 10 s, which two of them take 12 s for when they share a unit of 100 W."""
    return SharingInstance.model_validate(
        {
            "problem": "sharing",
            "unit_types": [
                {"name": "u", "count": units, "idle_power_w": 0.0, "full_power_w": 90.0, "sleep_power_w": 5.0}
            ],
            "classes": [
                {"name": "a", "alone": {"u": {"epoch_s": 10.0, "utilisation_pct": 30.0, "power_w": 80.0}}}
            ],
            "sets": [{"unit_type": "u", "classes": ["a", "a"], "slowdown": [1.2, 1.2], "power_w": 100.0}],
            "limits": {"jobs_per_set": 2},
            "jobs": [{"name": f"j{j}", "job_class": "a", "remaining_epochs": 10.0, **job} for j in range(4)],
        }
    )


def run(rule: str, units: int) -> Replay:
    return replay(stream(units), ARRIVALS, lambda instance: PROBLEM.rules[rule](instance, "eaco"))


def test_first_come_first_served() -> None:
    done = run("fifo", 1)
    assert done.completed_s.tolist() == pytest.approx([100.0, 200.0, 300.0, 1100.0])
    assert done.wait_s.tolist() == pytest.approx([0.0, 100.0, 150.0, 0.0])
    assert done.energy_j == pytest.approx(80.0 * 400 + 5.0 * 700)
    assert done.active_units == pytest.approx(400 / 1100)


def test_sharing() -> None:
    done = run("eaco", 1)
    # The first two share until 120 s, the third then runs alone.
    assert done.completed_s.tolist() == pytest.approx([120.0, 120.0, 220.0, 1100.0])
    assert done.run_s.tolist() == pytest.approx([120.0, 120.0, 100.0, 100.0])
    assert done.energy_j == pytest.approx(100.0 * 120 + 80.0 * 200 + 5.0 * 780)
    assert done.started_s.tolist() == pytest.approx([0.0, 0.0, 120.0, 1000.0])


def test_what_cannot_be_replayed_is_refused() -> None:
    with pytest.raises(ValueError, match="3 numbers for 4 jobs"):
        replay(stream(1), ARRIVALS[:3], lambda instance: None)
    with pytest.raises(ValueError, match="ascending"):
        replay(stream(1), ARRIVALS[::-1], lambda instance: None)
    with pytest.raises(ValueError, match="deadline"):
        replay(stream(1, deadline_s=5.0), ARRIVALS, lambda instance: None)
    with pytest.raises(ValueError, match="no job runs"):
        replay(stream(1), ARRIVALS, lambda instance: SharingDecision(sets=[], waiting=["j0", "j1"]))
