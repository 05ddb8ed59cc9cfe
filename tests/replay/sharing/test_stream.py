"""A stream of jobs that share units, against times that can be told by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.replay.sharing.policies import anew
from wattsched.replay.sharing.stream import Outcome, Sets, State, replay
from wattsched.results.problems import problem

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


TWO_TYPES = stream(1).model_copy(
    update={"unit_types": [*stream(1).unit_types, stream(1).unit_types[0].model_copy(update={"name": "v"})]}
)


@pytest.mark.parametrize(
    ("instance", "arrival_s", "units", "told"),
    [
        (stream(1), ARRIVALS[:3], {}, "3 numbers for 4 jobs"),
        (stream(1), ARRIVALS[::-1], {}, "ascending"),
        (stream(1, deadline_s=5.0), ARRIVALS, {}, "deadline"),
        (stream(1, exclusive=True), ARRIVALS, {}, "exclusive"),
        (stream(1), ARRIVALS, {}, "no job runs"),
        (stream(2), ARRIVALS, {0: [3]}, "runs twice or is not there"),
        (stream(2), ARRIVALS, {0: [0], 1: [0]}, "runs twice or is not there"),
        (TWO_TYPES, ARRIVALS, {}, "units of one type, got 2"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    instance: SharingInstance, arrival_s: list[float], units: dict[int, list[int]], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        replay(instance, arrival_s, lambda state: units)


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


def test_sets_are_the_patterns_of_the_instance(bound: Any, eaco_stream: Any) -> None:
    instance, _ = eaco_stream(5, 0)
    sets, patterns = Sets(instance), patterns_of(instance)
    numbers = {classes: p for (_, classes), p in patterns.numbers.items()}
    assert set(bound.admitted(sets)) == set(numbers)
    for classes, p in numbers.items():
        together = sets.of(classes)
        slots = slice(int(patterns.start[p]), int(patterns.start[p + 1]))
        assert together.power_w == pytest.approx(patterns.power_w[p])
        assert together.utilisation_pct == pytest.approx(patterns.utilisation_pct[p])
        found = [together.epoch_s[c] for c in patterns.job_class[slots].tolist()]
        assert found == pytest.approx(patterns.epoch_s[slots].tolist())
        assert together.slowdown >= 1


def test_what_is_left_of_sets_is_reachable(bound: Any, eaco_stream: Any) -> None:
    sets = Sets(eaco_stream(5, 0)[0])
    reachable = set(bound.reachable(sets))
    assert (1, 2, 3) in reachable
    assert not sets.of((1, 2, 3)).admitted
    for classes in reachable:
        for c in Counter(classes):
            rest = list(classes)
            rest.remove(c)
            assert not rest or tuple(rest) in reachable
