"""Certificate trees: whatever splits and prices they have, no decision beats what their leaves prove."""

from __future__ import annotations

import random
from typing import Any

import pytest
from brute_force.shifting import optimum
from strategies.shifting import tiny

from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.verification.shifting import bound, least_cost
from wattsched.verification.shifting.bound import Prover
from wattsched.verification.tree import prove_tree


def split(rng: random.Random, instance: ShiftingInstance) -> dict[str, Any]:
    """Some split of some job; ends at the edges of slots, too."""
    job = rng.choice(instance.jobs)
    if rng.random() < 0.5:
        by_s = rng.choice([rng.uniform(0, instance.slots + 1), rng.randint(0, instance.slots)])
        return {"job": job.name, "ends_by_s": by_s * instance.slot_s}
    rows = range(len(instance.table_of(job).gpus))
    named = rng.sample(rows, rng.randint(0, len(rows)))
    return {"job": job.name, "slot": rng.randrange(instance.slots), "rows": named}


def tree(rng: random.Random, instance: ShiftingInstance) -> list[dict[str, Any]]:
    """A tree of any shape, with prices of any size."""
    rows = [f"gpus:{pool}@{slot}" for pool in instance.pools for slot in range(instance.slots)]
    rows += [n for n, field in bound.BUDGETS.items() if getattr(instance.budgets, field) is not None]
    size = 10 ** rng.uniform(-3, 3) * (instance.slot_s if instance.objective == "mean-completion" else 1.0)
    nodes: list[dict[str, Any]] = [{}]
    for number in range(30):
        if number < len(nodes) and rng.random() < 0.75:
            children = {"inside": len(nodes), "outside": len(nodes) + 1}
            nodes[number] = {"split": split(rng, instance), **children}
            nodes += [{}, {}]
    for node in nodes:
        if not node:
            node["prices"] = {row: -size * rng.random() for row in rows if rng.random() < 0.3}
    return nodes


@pytest.mark.parametrize("levels", [2, 64])
@pytest.mark.parametrize("seed", range(0, 400, 40))
def test_no_decision_beats_the_bound_of_a_tree(
    seed: int, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by few levels, where hardly anything is followed."""
    monkeypatch.setattr(least_cost, "FEW_LEVELS", levels)
    monkeypatch.setattr(bound, "LEVELS_OF_LEAF", levels)
    monkeypatch.setattr(least_cost, "MOST_FOLLOWED", levels // 2)
    for number in range(seed, seed + 40):
        instance, rng = tiny(number), random.Random(number)
        best = optimum(instance)
        for _ in range(8):
            proof = prove_tree(Prover(instance), tree(rng, instance), "min")
            if best is not None:
                assert not proof.faults
                assert proof.bound is not None
                assert proof.bound <= best + 1e-9 * abs(best), number
