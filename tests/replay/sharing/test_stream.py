"""A stream of jobs that share units, against times that can be told by hand."""

from __future__ import annotations

import pytest

from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.problems import problem
from wattsched.replay.sharing.policies import anew
from wattsched.replay.sharing.stream import Outcome, State, replay

ARRIVALS = [0.0, 0.0, 50.0, 1000.0]

RULES = problem("sharing").heuristics


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


def run(rule: str, units: int) -> Outcome:
    instance = stream(units)
    return replay(
        instance, ARRIVALS, anew(instance, lambda of: RULES[rule](patterns_of(of), "eaco", Timer()))
    )


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
        replay(stream(1), ARRIVALS[:3], lambda state: {})
    with pytest.raises(ValueError, match="ascending"):
        replay(stream(1), ARRIVALS[::-1], lambda state: {})
    with pytest.raises(ValueError, match="deadline"):
        replay(stream(1, deadline_s=5.0), ARRIVALS, lambda state: {})
    with pytest.raises(ValueError, match="no job runs"):
        replay(stream(1), ARRIVALS, lambda state: {})


def test_more_sets_than_units_take_turns() -> None:
    instance = stream(1)
    done = replay(instance, [0.0] * 4, lambda state: {j: [j] for j in state.present})
    assert done.completed_s.tolist() == pytest.approx([400.0] * 4)
    assert done.run_s.tolist() == pytest.approx([100.0] * 4)
    assert done.wait_s.tolist() == pytest.approx([300.0] * 4)
    assert done.energy_j == pytest.approx(80.0 * 400)
    assert done.active_units == pytest.approx(1.0)


@pytest.mark.parametrize(("repeats", "ends_s"), [(False, 104.0), (True, 106.0)])
def test_a_move_repeats_the_epoch(repeats: bool, ends_s: float) -> None:
    """The first job has done 2 epochs of 12 s, and 0.2 of the next, when the second is complete at 26.4 s."""
    instance = stream(3, remaining_epochs=10.0)
    instance.jobs[1] = instance.jobs[1].model_copy(update={"remaining_epochs": 2.2})

    def policy(state: State) -> dict[int, list[int]]:
        here = [j for j in state.present if j < 2]
        units = {0: here} if len(here) > 1 else {2: here}
        return units | ({1: [j for j in state.present if j > 1]})

    done = replay(instance, [0.0, 0.0, 500.0, 500.0], policy, repeat_epochs=repeats)
    assert done.moves == 1
    assert done.completed_s[0] == pytest.approx(ends_s + 0.4)


def test_jobs_that_are_not_there_are_refused() -> None:
    for units in ({0: [3]}, {0: [0], 1: [0]}):
        with pytest.raises(ValueError, match="runs twice or is not there"):
            replay(stream(2), ARRIVALS, lambda state, units=units: units)
    with pytest.raises(ValueError, match="exclusive"):
        replay(stream(1, exclusive=True), ARRIVALS, lambda state: {})


def test_units_are_of_one_type() -> None:
    instance = stream(1)
    two = [instance.unit_types[0], instance.unit_types[0].model_copy(update={"name": "v"})]
    with pytest.raises(ValueError, match="units of one type, got 2"):
        replay(instance.model_copy(update={"unit_types": two}), ARRIVALS, lambda state: {})
