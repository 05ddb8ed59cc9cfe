"""Our policy over time: every step against all others, deadlines, and EaCO's rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from wattsched.replay.sharing.policies import Eaco, LeastCost
from wattsched.replay.sharing.stream import State, Units, replay

VALUE_W = 1500.0


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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slack", [0.04, 0.08, 0.2])
def test_no_job_runs_longer_than_it_may(eaco_stream: Any, seed: int, slack: float) -> None:
    instance, arrival_s = eaco_stream(20, seed)
    done = replay(instance, arrival_s, LeastCost(VALUE_W, slack), repeat_epochs=True)
    assert np.max(done.run_s / done.alone_s) <= 1 + slack + 1e-6


def test_it_saves_more_than_eaco(eaco_stream: Any) -> None:
    """With the deadlines of EaCO's rule, on average over streams, and with time at little value."""
    joules = {"eaco": 0.0, "ours": 0.0}
    for seed in range(8):
        instance, arrival_s = eaco_stream(20, seed)
        joules["eaco"] += replay(instance, arrival_s, Eaco(0.1)).energy_j
        joules["ours"] += replay(instance, arrival_s, LeastCost(500.0, 0.1), repeat_epochs=True).energy_j
    assert joules["ours"] < 0.99 * joules["eaco"]
