"""Energy, carbon and money as objectives, and a least goodput under any of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wattsched
from tests.brute_force.agreement import solve_by_kind
from wattsched.instances.errors import InputError
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.sizing.bound import prove

TABLE = {"gpus": [1, 2], "pool": ["A", "A"], "rate": [1.0, 1.8], "power_w": [250.0, 600.0]}
CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}},
    "nodes": [{"name": "n", "gpu_type": "A", "gpus": 8, "base_power_w": 400.0}],
}


def round_of(jobs: int, least: float | None, **fields: Any) -> Instance:
    """A round of equal jobs on eight GPUs: one GPU draws 200 W above idle, two draw 500 W."""
    document = {"cluster": CLUSTER, "tables": {"t": TABLE}, "objective": "energy", "round_s": 100.0}
    document["jobs"] = [{"name": f"j{j}", "options": "t", "remaining_work": 1e4} for j in range(jobs)]
    return Instance.model_validate({**document, "budgets": {"least_goodput": least}, **fields})


@pytest.mark.parametrize("kinds", [False, True])
def test_the_least_energy_for_a_goodput(kinds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    solve_by_kind(monkeypatch, kinds)
    nothing = wattsched.solve(round_of(4, None), gap=0.0)
    assert nothing.objective == 0.0
    assert len(nothing.decision.waiting) == 4
    # Four jobs on one GPU each are worth 4.0; two GPUs for one of them 0.8 more.
    few = wattsched.solve(round_of(4, 4.0), gap=0.0)
    assert few.objective == pytest.approx(4 * 200 * 100)
    told = "budgets.least_goodput: the decision has 4, it must be 4.5 at least"
    assert wattsched.check(round_of(4, 4.5), few.decision).faults == [told]
    more = wattsched.solve(round_of(4, 4.5), gap=0.0)
    assert more.objective == pytest.approx((3 * 200 + 550 - 50) * 100)
    assert more.totals["goodput"] == pytest.approx(4.8)
    standing_j = (400 + 8 * 50) * 100
    assert more.totals["energy_j"] == pytest.approx(more.objective + standing_j)
    assert wattsched.check(round_of(4, 4.5), more).faults == []
    # Asking for more costs: so do the prices say, and the certificate has the sign of a demand.
    assert more.prices["least_goodput"] == -more.certificate.prices["least_goodput"] < 0
    assert "would cost" in str(more)


def test_prices_of_demands_have_their_own_sign() -> None:
    instance = round_of(4, 4.0)
    proof = prove(instance, {"least_goodput": 200.0 * 100})
    assert (proof.faults, proof.bound) == ([], pytest.approx(4 * 200 * 100))
    assert "is negative" in prove(instance, {"least_goodput": -1.0}).faults[0]
    gained = instance.model_copy(update={"objective": "progress"})
    assert "is positive" in prove(gained, {"least_goodput": 1.0}).faults[0]


def test_carbon_and_money_are_energy_at_a_price() -> None:
    each = {"carbon_g_per_kwh": 360.0, "price_per_kwh": 0.18}
    joules = wattsched.solve(round_of(4, 4.5, **each), gap=0.0)
    for objective, factor, total in (("carbon", 1e-4, "carbon_g"), ("money", 5e-8, "money")):
        found = wattsched.solve(round_of(4, 4.5, **each), objective=objective, gap=0.0)
        assert found.objective == pytest.approx(factor * joules.objective)
        assert found.totals[total] == pytest.approx(factor * joules.totals["energy_j"])
        with pytest.raises(InputError, match=f"the objective '{objective}' needs '"):
            wattsched.solve(round_of(1, None), objective=objective)
        with pytest.raises(ValueError, match=f"the objective '{objective}' needs '"):
            round_of(1, None, objective=objective)


def test_a_goodput_that_cannot_be_had_is_told() -> None:
    alone = wattsched.solve(round_of(2, 4.0)).termination
    assert alone.reason == "infeasible"
    assert alone.detail == "the least goodput of 4 cannot be reached: no decision has more than 3.6"
    # Nine jobs on eight GPUs: eight of them run.
    full = wattsched.solve(round_of(9, 8.5))
    assert full.termination.reason == "infeasible"
    told = "the least goodput of 8.5 cannot be reached: no decision has more than 8"
    assert full.termination.detail == f"{told} (together with the other limits)"
    assert wattsched.check(round_of(9, 8.5), full).faults == []


@pytest.mark.parametrize("scope", ["round", "completion"])
def test_large_rounds_by_kind(scope: str) -> None:
    instance = generate("uniform", jobs=1_000, seed=2)
    most = wattsched.solve(instance, objective="goodput", gap=1e-3)
    budgets = {"least_goodput": 0.8 * most.objective, "power_w": instance.budgets.power_w, "scope": scope}
    given = instance.model_copy(update={"budgets": type(instance.budgets).model_validate(budgets)})
    found = wattsched.solve(given, objective="energy", gap=1e-3)
    assert found.termination.reason == "optimal"
    assert not found.claimed
    assert found.totals["goodput"] >= 0.8 * most.objective * (1 - 1e-6)
    assert wattsched.check(given, found, require_gap=1e-3).faults == []


def test_sessions_minimise_energy() -> None:
    session = wattsched.Session(CLUSTER, objective="money", price_per_kwh=0.2, tables={"t": TABLE})
    session.upsert([f"j{j}" for j in range(4)], options=["t"] * 4, remaining_work=[1e6] * 4)
    assert len(session.solve(gap=0.0).result.decision.waiting) == 4
    session.update(least_goodput=3.0)
    decision = session.solve(gap=0.0)
    assert decision.result.totals["goodput"] == pytest.approx(3.0)
    assert wattsched.check(session.to_instance(), decision.result).faults == []
    with pytest.raises(InputError, match="the objective 'money' needs 'price_per_kwh'"):
        session.update(price_per_kwh=None)
    with pytest.raises(InputError, match="the objective 'carbon' needs 'carbon_g_per_kwh'"):
        session.update(objective="carbon")
    session.update(objective="carbon", carbon_g_per_kwh=300.0, price_per_kwh=None, least_goodput=None)
    assert session.to_instance().budgets.least_goodput is None
    assert np.isclose(session.solve(gap=0.0).result.objective, 0.0)
