"""Policies over time: published rules, ours against all other steps, and the bound on any policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.replay.sharing.policies import Eaco, Gandiva, LeastCost, anew, fifo, fifo_packed
from wattsched.replay.sharing.stream import Sets, State, Units, replay
from wattsched.results.problems import problem

VALUE_W = 1500.0
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
def test_no_job_runs_longer_than_it_may(eaco_stream: Any, seed: int, slack: float) -> None:
    """Nor moves, under EaCO's rule."""
    instance, arrival_s = eaco_stream(20, seed)
    eaco = replay(instance, arrival_s, Eaco(slack))
    ours = replay(instance, arrival_s, LeastCost(VALUE_W, slack), repeat_epochs=True)
    assert eaco.moves == 0
    for done in (eaco, ours):
        assert np.max(done.run_s / done.alone_s) <= 1 + slack + 1e-6


def cost_w(state: State, units: Units) -> float:
    together = [state.sets.of(state.classes(members)) for members in units.values() if members]
    sizes = [len(members) for members in units.values() if members]
    return sum((t.power_w + VALUE_W * n) * t.slowdown for t, n in zip(together, sizes, strict=True))


def admitted(state: State, units: Units, unit: int) -> bool:
    return state.sets.of(state.classes(units[unit])).admitted


def placements(state: State, units: Units, job: int) -> list[Units]:
    """All ways to add a job to some sets."""
    free = next((u for u in range(state.units) if not units.get(u)), None)
    targets = [u for u in units if units[u]] + ([] if free is None else [free])
    found = [{**units, u: [*units.get(u, []), job]} for u in targets]
    return [new for new, u in zip(found, targets, strict=True) if admitted(state, new, u)]


@pytest.mark.parametrize("seed", range(3))
def test_arrivals_go_where_the_cost_grows_least(eaco_stream: Any, seed: int) -> None:
    instance, arrival_s = eaco_stream(12, seed)
    policy = LeastCost(VALUE_W, horizon_s=0.0)

    def checked(state: State) -> Units:
        before = {unit: list(members) for unit, members in state.running.items()}
        runs = {j for members in before.values() for j in members}
        new = [j for j in state.present if j not in runs]
        units = policy(state)
        if len(new) == 1:
            best = min(cost_w(state, other) for other in placements(state, before, new[0]))
            assert cost_w(state, units) == pytest.approx(best)
        return units

    assert replay(instance, arrival_s, checked).moves == 0


@pytest.mark.parametrize("seed", range(3))
def test_free_moves_end_where_no_single_move_saves(eaco_stream: Any, seed: int) -> None:
    instance, arrival_s = eaco_stream(12, seed)
    policy = LeastCost(VALUE_W)

    def checked(state: State) -> Units:
        whole = np.floor(state.epochs - state.left + 1e-6)
        at_checkpoints = State(**{**vars(state), "left": state.epochs - whole})
        units = policy(at_checkpoints)
        assert cost_w(state, units) <= cost_w(state, _placed(state, units)) + 1e-6
        before = {j: unit for unit, members in state.running.items() for j in members}
        for unit, members in units.items():
            for j in members:
                if before.get(j) != unit:
                    continue
                rest = {u: [k for k in m if k != j] for u, m in units.items()}
                others = [o for o in placements(state, rest, j) if j not in o.get(unit, [])]
                best = min((cost_w(state, other) for other in others), default=np.inf)
                assert best >= cost_w(state, units) - 1e-5
        return units

    replay(instance, arrival_s, checked)


def _placed(state: State, units: Units) -> Units:
    """The sets as they were, with the jobs that are new where they now are."""
    before = {j: unit for unit, members in state.running.items() for j in members}
    now = {j: unit for unit, members in units.items() for j in members}
    found: Units = {}
    for j, unit in now.items():
        found.setdefault(before.get(j, unit), []).append(j)
    return found


def test_it_saves_more_than_eaco(eaco_stream: Any) -> None:
    """With the deadlines of EaCO's rule, on average over streams, and with time at little value."""
    joules = {"eaco": 0.0, "ours": 0.0}
    for seed in range(8):
        instance, arrival_s = eaco_stream(20, seed)
        joules["eaco"] += replay(instance, arrival_s, Eaco(0.1)).energy_j
        joules["ours"] += replay(instance, arrival_s, LeastCost(500.0, 0.1), repeat_epochs=True).energy_j
    assert joules["ours"] < 0.99 * joules["eaco"]


@pytest.mark.parametrize("nodes", [4, 20])
@pytest.mark.parametrize("seed", range(3))
def test_no_policy_is_below_it(bound: Any, eaco_stream: Any, nodes: int, seed: int) -> None:
    instance, arrival_s = eaco_stream(nodes, seed)
    sets = Sets(instance)
    names = [job_class.name for job_class in instance.classes]
    alone = replay(instance, arrival_s, fifo)
    work = np.bincount(
        [names.index(job.job_class) for job in instance.jobs], weights=alone.alone_s, minlength=4
    )
    for policy in (fifo_packed, Gandiva(seed), Eaco(0.05), Eaco(1.0), LeastCost(0.0), LeastCost(2000.0)):
        done = replay(instance, arrival_s, policy)
        longer = float(done.run_s.sum() / done.alone_s.sum()) - 1
        least = bound.least_energy(sets, bound.reachable(sets), work.tolist(), longer=longer + 1e-9)
        assert done.energy_j >= alone.energy_j * least * (1 - 1e-9)


def test_pairs_by_hand(bound: Any, eaco_stream: Any) -> None:
    """AlexNet with VGG-16: 1,506 W for 36.51 h instead of 712 W for 34.76 h and 1,533 W for 36.13 h."""
    sets = Sets(eaco_stream(1, 0)[0])
    of, work = [(0,), (3,), (0, 3)], [1.0, 0.0, 0.0, 1.0]
    slowdown = 36.51 / ((34.76 + 36.13) / 2)
    paired = 1506 * slowdown / (712 + 1533)
    assert bound.least_energy(sets, of, work) == pytest.approx(paired)
    assert bound.least_energy(sets, of, work, longer=0.0) == pytest.approx(1.0)
    # Half the way to the pairs' runs, half of the jobs are in pairs.
    half = bound.least_energy(sets, of, work, longer=(slowdown - 1) / 2)
    assert half == pytest.approx((1 + paired) / 2)
    assert bound.least_energy(sets, of, work, active=1.0) == pytest.approx(1.0)
    with pytest.raises(RuntimeError, match="no policy keeps these limits"):
        bound.least_energy(sets, of, work, active=1.5)


def test_the_best_mix_is_no_worse_than_any(bound: Any, eaco_stream: Any) -> None:
    sets = Sets(eaco_stream(1, 0)[0])
    of = bound.reachable(sets)
    best = bound.least_energy(sets, of, longer=0.0323)
    assert best == pytest.approx(0.64, abs=0.005)
    rng = np.random.default_rng(0)
    assert all(
        bound.least_energy(sets, of, rng.dirichlet(np.ones(4)).tolist(), longer=0.0323) >= best - 1e-9
        for _ in range(50)
    )
