"""Tenants: quotas of their own, cohorts that lend GPUs, and weights."""

from __future__ import annotations

from typing import Any

import pytest

import wattsched
from tests.brute_force.agreement import solve_by_kind
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.tenants import Tenant, fair_share
from wattsched.instances.sizing.validity import faults_of

TABLE = {"gpus": [1, 2], "pool": ["A", "A"], "rate": [1.0, 1.8], "power_w": [300.0, 600.0]}
CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}},
    "nodes": [{"name": "n", "gpu_type": "A", "gpus": 8}],
}


def round_of(tenants: dict[str, Any], *owners: str | None, **fields: Any) -> Instance:
    """A round of equal jobs on eight GPUs."""
    jobs = [{"name": f"j{j}", "options": "t", "tenant": owner} for j, owner in enumerate(owners)]
    document = {"cluster": CLUSTER, "tables": {"t": TABLE}, "tenants": tenants, "jobs": jobs}
    return Instance.model_validate({"objective": "goodput", **document, **fields})


def gpus_of(instance: Instance, decision: Decision) -> dict[str | None, int]:
    owner, found = {job.name: job.tenant for job in instance.jobs}, dict[str | None, int]()
    for one in decision.jobs:
        found[owner[one.job]] = found.get(owner[one.job], 0) + one.gpus
    return found


@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize(
    ("scope", "work", "quota", "gpus"),
    [
        ("round", 1e6, {"energy_j": 3 * 300.0 * 300.0}, 3),
        ("round", 100.0, {"energy_j": 3 * 300.0 * 300.0}, 8),
        ("completion", 100.0, {"energy_j": 5 * 300.0 * 100.0}, 5),
        ("round", 1e6, {"carbon_g": 25.0}, 2),
    ],
)
def test_what_is_counted_of_energy(
    scope: str, work: float, quota: dict[str, float], gpus: int, kinds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU draws 300 W: 90 kJ in the round, which are 10 g; 30 kJ until 100 units of work are done."""
    solve_by_kind(monkeypatch, kinds)
    known = round_of({"a": quota}, *["a"] * 8, carbon_g_per_kwh=400.0, budgets={"scope": scope}).model_dump()
    for job in known["jobs"]:
        job |= {"remaining_work": work, "max_gpus": 1}
    limited = Instance.model_validate(known)
    result = wattsched.solve(limited, gap=0.0)
    assert gpus_of(limited, result.decision) == {"a": gpus}
    row = f"tenant_{next(iter(quota))}:a"
    assert gpus == 8 or result.prices[row] > 0
    assert wattsched.check(limited, result).faults == []
    free = limited.model_copy(update={"tenants": {"a": Tenant()}})
    beyond = wattsched.check(limited, wattsched.solve(free, gap=0.0).decision).faults
    assert (beyond == []) == (gpus == 8)
    assert all(fault.startswith("tenant 'a' has ") for fault in beyond)


@pytest.mark.parametrize("kinds", [False, True])
def test_own_and_borrowed_gpus(kinds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    solve_by_kind(monkeypatch, kinds)
    alone = round_of({"a": {"gpus": 3}}, *["a"] * 8)
    assert gpus_of(alone, wattsched.solve(alone, gap=0.0).decision) == {"a": 3}
    # Two and two of one cohort: who has jobs has all four, unless it may borrow only one.
    together = {"a": {"gpus": 2, "cohort": "c"}, "b": {"gpus": 2, "cohort": "c"}}
    lent = round_of(together, *["a"] * 8, None)
    found = wattsched.solve(lent, gap=0.0)
    assert gpus_of(lent, found.decision) == {"a": 4, None: 2}
    assert found.prices["cohort_gpus:c"] > 0
    assert "GPUs of cohort c" in str(found)
    less = round_of({**together, "a": {"gpus": 2, "cohort": "c", "borrow_gpus": 1}}, *["a"] * 8)
    assert gpus_of(less, wattsched.solve(less, gap=0.0).decision) == {"a": 3}
    drawn = round_of({"a": {"power_w": 900.0}}, *["a"] * 8)
    assert gpus_of(drawn, wattsched.solve(drawn, gap=0.0).decision) == {"a": 3}


def test_more_than_a_quota_is_a_fault() -> None:
    free = round_of({"a": {}, "b": {}}, *"aaabbb")
    decision = wattsched.solve(free, gap=0.0).decision
    assert gpus_of(free, decision) == {"a": 4, "b": 4} or sum(gpus_of(free, decision).values()) == 8
    tight = {"a": {"gpus": 1, "cohort": "c", "borrow_gpus": 1}, "b": {"gpus": 1, "cohort": "c"}}
    faults = wattsched.check(round_of(tight, *"aaabbb"), decision).faults
    assert any(fault.startswith("tenant 'a' has") for fault in faults)
    assert "cohort 'c' has 8 GPUs, it may have 2 GPUs" in faults
    drawn = wattsched.check(round_of({"a": {"power_w": 600.0}, "b": {}}, *"aaabbb"), decision).faults
    assert any(fault.startswith("tenant 'a' has") and fault.endswith("600 W") for fault in drawn)


def test_a_job_beyond_its_quota_waits_with_its_reason() -> None:
    quotas = {"a": {"gpus": 0}, "b": {"power_w": 100.0}, "c": {"gpus": 1, "power_w": 400.0}}
    result = wattsched.solve(round_of(quotas, *"abc"))
    assert result.dropped == {
        "j0": "needs at least 1 GPUs but its tenant 'a' may have 0",
        "j1": "needs at least 300 W but its tenant 'b' may draw 100 W",
    }
    assert [job.job for job in result.decision.jobs] == ["j2"]
    joules = {"a": {"energy_j": 50_000.0}, "b": {"carbon_g": 5.0}, "c": {"energy_j": 90_000.0}}
    known = round_of(joules, *"abc", carbon_g_per_kwh=400.0).model_dump()
    for job in known["jobs"]:
        job["remaining_work"] = 1e6
    result = wattsched.solve(Instance.model_validate(known))
    assert result.dropped == {
        "j0": "needs at least 90,000 J in the round but its tenant 'a' may use 50,000",
        "j1": "needs at least 10 g CO2 in the round but its tenant 'b' may use 5",
    }
    assert [job.job for job in result.decision.jobs] == ["j2"]
    known["jobs"][0]["can_wait"] = False
    said = wattsched.solve(Instance.model_validate(known)).termination
    assert said.reason == "infeasible"
    assert "job 'j0' can be used: it needs at least 90,000 J in the round but its tenant" in said.detail
    must = round_of(quotas, "a").model_dump()
    must["jobs"][0]["can_wait"] = False
    told = ["job 'j0' needs at least 1 GPUs but its tenant 'a' may have 0"]
    assert faults_of(Instance.model_validate(must)) == told
    two = round_of({"a": {"gpus": 1}}, "a", "a").model_dump()
    for job in two["jobs"]:
        job["can_wait"] = False
    said = wattsched.solve(Instance.model_validate(two)).termination
    assert said.reason == "infeasible"
    assert "tenant 'a' is 1 GPUs short: the jobs need at least 2 GPUs, it may have 1" in said.detail


@pytest.mark.parametrize(
    ("tenants", "owner", "told"),
    [
        ({}, "a", "job 'j0' names the unknown tenant 'a'"),
        ({"a": {"cohort": "c"}}, "a", "a tenant of a cohort needs 'gpus'"),
        ({"a": {"gpus": 1, "borrow_gpus": 1}}, "a", "'borrow_gpus' needs a 'cohort'"),
        ({"a": {"gpus": -1}}, "a", r"tenants\.a\.gpus"),
        ({"a": {"energy_j": 0.0}}, "a", r"tenants\.a\.energy_j"),
        ({"a": {"carbon_g": 5.0}}, "a", r"tenants\.a\.carbon_g: a carbon quota needs 'carbon_g_per_kwh'"),
    ],
)
def test_tenants_that_are_none(tenants: dict[str, Any], owner: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        round_of(tenants, owner)


def test_weights_beyond_the_range_are_refused() -> None:
    document = round_of({"a": {"weight": 1e6}}, "a").model_dump()
    document["jobs"][0]["weight"] = 10.0
    with pytest.raises(ValueError, match="its weight times that of tenant 'a' must be from 1e-06 to 1e"):
        Instance.model_validate(document)


def test_sessions_have_tenants() -> None:
    session = wattsched.Session(CLUSTER, objective="goodput", tables={"t": TABLE})
    with pytest.raises(InputError, match="unknown tenant 'a'"):
        session.upsert(["x"], options=["t"], tenant=["a"])
    with pytest.raises(InputError, match=r"tenants\.a\.gpus: must be"):
        wattsched.Session(CLUSTER, tenants={"a": {"gpus": -1}})
    with pytest.raises(TypeError, match="tenants must be a mapping of names to quotas"):
        wattsched.Session(CLUSTER, tenants=["a"])
    session = wattsched.Session(CLUSTER, objective="goodput", tables={"t": TABLE}, tenants={"a": {"gpus": 2}})
    session.upsert([f"j{j}" for j in range(6)], options=["t"] * 6, tenant=["a"] * 6)
    first = session.solve(gap=0.0)
    assert first.result.totals["gpus_used"] == 2
    session.update(tenants={"a": {"energy_j": 900.0}}, scope="completion")
    assert session.solve(gap=0.0).result.objective == pytest.approx(2 * 1.8)
    with pytest.raises(InputError, match=r"tenants\.a\.carbon_g: a carbon quota needs 'carbon_g_per_kwh'"):
        session.update(tenants={"a": {"carbon_g": 5.0}})
    session.update(tenants={"a": {"gpus": 5}, "b": {}})
    second = session.solve(gap=0.0)
    assert second.result.totals["gpus_used"] == 5
    assert wattsched.check(session.to_instance(), second.result).faults == []
    with pytest.raises(InputError, match="unknown tenant 'a'"):
        session.update(tenants={})
    assert session.to_instance().tenants.keys() == {"a", "b"}


def test_fair_shares_by_hand() -> None:
    found = fair_share({"a": 30.0, "b": 10.0}, {"a": 1, "b": 1, "c": 2})
    assert found == {"a": pytest.approx(2.0**-3), "b": 0.5, "c": 1.0}
    assert fair_share({}, {"a": 1.0}) == {"a": 1.0}
    assert fair_share({"a": 1.0}, {"a": 1e-9, "b": 1.0})["a"] == 1e-6
    for usage, shares, told in (({"x": 1.0}, {"a": 1.0}, "usage"), ({}, {"a": 0.0}, "shares")):
        with pytest.raises(ValueError, match=told):
            fair_share(usage, shares)
