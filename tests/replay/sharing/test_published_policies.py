"""Published policies over time: what each may do, and what it must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.problems import problem
from wattsched.replay.sharing.policies import Eaco, Gandiva, anew, fifo, fifo_packed
from wattsched.replay.sharing.stream import Sets, State, replay

RULES = problem("sharing").heuristics


def state(instance: SharingInstance, classes: list[int], running: dict[int, list[int]], units: int) -> State:
    """Jobs of ten epochs, none of which has begun."""
    sets = Sets(instance)
    n = len(classes)
    return State(
        sets=sets,
        units=units,
        job_class=classes,
        epoch_s=[sets.of((c,)).epoch_s[c] for c in classes],
        epochs=np.full(n, 10.0),
        left=np.full(n, 10.0),
        run_s=np.zeros(n),
        present=list(range(n)),
        running=running,
    )


@pytest.mark.parametrize("nodes", [3, 30])
@pytest.mark.parametrize(("rule", "policy"), [("fifo", fifo), ("fifo-packed", fifo_packed)])
def test_fifo_decides_as_the_rules_of_a_round(eaco_stream: Any, nodes: int, rule: str, policy: Any) -> None:
    instance, arrival_s = eaco_stream(nodes, 1)
    ruled = replay(
        instance, arrival_s, anew(instance, lambda of: RULES[rule](patterns_of(of), "eaco", Timer()))
    )
    done = replay(instance, arrival_s, policy)
    assert done.energy_j == pytest.approx(ruled.energy_j, rel=0.02 if rule == "fifo-packed" else 1e-9)
    assert done.wait_s.sum() == pytest.approx(ruled.wait_s.sum(), rel=0.05, abs=1.0)


def test_gandiva_pairs_all_jobs_only_when_units_are_short(eaco_stream: Any) -> None:
    instance, _ = eaco_stream(3, 1)
    gandiva = Gandiva(0)
    crowd = gandiva(state(instance, [0, 1, 0, 1], {}, 3))
    assert sorted(len(members) for members in crowd.values()) == [2, 2]
    again = gandiva(state(instance, [0, 1, 0, 1], {}, 3))
    assert sorted(map(sorted, crowd.values())) == sorted(map(sorted, again.values()))
    assert all(len(members) == 1 for members in gandiva(state(instance, [0, 1, 0], {}, 3)).values())


def test_eaco_joins_the_most_utilised_set_that_keeps_deadlines(eaco_stream: Any) -> None:
    instance, _ = eaco_stream(9, 1)
    running = {0: [0], 1: [1], 2: [2]}
    classes = [0, 1, 3, 0]
    assert Eaco(1.0)(state(instance, classes, running, 9))[2] == [2, 3]
    # AlexNet and VGG-16 take 3 % longer together, AlexNet and others 3.5 %.
    assert Eaco(0.031)(state(instance, classes, running, 9))[2] == [2, 3]
    assert Eaco(0.02)(state(instance, classes, running, 9))[3] == [3]
    assert Eaco(0.02)(state(instance, classes, running, 3)) == running


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slack", [0.04, 0.08, 0.2])
def test_eaco_keeps_jobs_where_they_are_and_deadlines(eaco_stream: Any, seed: int, slack: float) -> None:
    instance, arrival_s = eaco_stream(20, seed)
    done = replay(instance, arrival_s, Eaco(slack))
    assert done.moves == 0
    assert np.max(done.run_s / done.alone_s) <= 1 + slack + 1e-6
