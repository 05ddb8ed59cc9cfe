"""Branch and price: from any decision to the optimum that trying everything finds, with its proof."""

from __future__ import annotations

import pytest

from tests.brute_force.shifting import optimum
from tests.strategies.effort import examples
from tests.strategies.shifting import tiny
from wattsched.formulations.shifting import branching
from wattsched.formulations.shifting.branching import branch
from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.heuristics import greedy
from wattsched.formulations.timer import Timer
from wattsched.instances.generators import generate
from wattsched.verification.shifting.bound import Prover
from wattsched.verification.shifting.checker import check
from wattsched.verification.tree import prove_tree

GAP = 1e-6


@pytest.mark.parametrize("seed", range(0, 160, 20))
def test_it_ends_at_the_optimum(seed: int) -> None:
    for number in range(seed, seed + examples(20)):
        instance = tiny(number)
        horizon = horizon_of(instance)
        decision = greedy(horizon, instance.objective)
        if decision is None:
            continue
        best, cases = optimum(instance), branch(horizon, instance.objective, decision, GAP, Timer())
        assert best is not None
        assert cases is not None
        found = check(instance, cases.decision or decision)
        assert not found.faults
        assert found.objective == pytest.approx(best, rel=2 * GAP, abs=1e-9)
        assert cases.bound <= best + 1e-9 * abs(best)
        assert cases.bound >= best - 2 * GAP * abs(best) - 1e-9
        proof = prove_tree(Prover(instance), cases.nodes, "min")
        assert proof.bound == pytest.approx(cases.bound, rel=1e-9, abs=1e-9)


def test_without_time_what_is_known_is_proven() -> None:
    instance = generate("shifting", jobs=3, seed=1)
    horizon = horizon_of(instance)
    decision = greedy(horizon, instance.objective)
    assert decision is not None
    cases = branch(horizon, instance.objective, decision, GAP, Timer(1e-9))
    assert cases is not None
    assert cases.decision is None
    assert len(cases.nodes) == 1


def test_large_horizons_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "MOST_CELLS", 100)
    instance = generate("shifting", jobs=3, seed=1)
    horizon = horizon_of(instance)
    decision = greedy(horizon, instance.objective)
    assert decision is not None
    assert branch(horizon, instance.objective, decision, GAP, Timer()) is None
