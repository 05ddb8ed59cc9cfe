"""Results that were forged by hand with an eye on rounding, each of which `check` once let pass."""

from __future__ import annotations

from typing import Any

import pytest

import wattsched
from wattsched.instances.digest import digest_of
from wattsched.results.documents import instance_of, result_of
from wattsched.results.problems import problem
from wattsched.solving.tradeoffs import pareto_of, verdict_on_pareto
from wattsched.verification.claims import INTERNAL, gap_between
from wattsched.verification.shifting.bound import prove

GPU = {"gpu_types": {"G": {"idle_power_w": 10.0}}}
ONE_NODE = {**GPU, "nodes": [{"name": "n", "gpu_type": "G", "gpus": 8}]}


def two_speeds(slow_rate: float, objective: str = "total-completion", **job: Any) -> Any:
    """One job that takes all GPUs, at rate 1 or slowly."""
    columns = {"gpus": [8, 8], "pool": ["G", "G"], "power_w": [100.0, 90.0], "frequency_mhz": [1000, 500]}
    options = {**columns, "rate": [1.0, slow_rate]}
    jobs = [{"name": "a", "can_wait": False, "options": options, "remaining_work": 100.0, **job}]
    return instance_of({"name": "i", "objective": objective, "cluster": ONE_NODE, "jobs": jobs})


SLOW = {
    "jobs": [
        {"job": "a", "gpus": 8, "pool": "G", "frequency_mhz": 500, "nodes": {"n": list(range(8))}},
    ],
    "waiting": [],
}


def forged(instance: Any, decision: Any, *, prices: dict[str, float] | None = None, **values: Any) -> Any:
    """An "optimal" result, honest and consistent in all that is not said here."""
    rules = problem(instance.problem)
    sense = rules.objectives[instance.objective]
    report = rules.check(instance, rules.decision.model_validate(decision))
    sign = 1.0 if sense == "min" else -1.0
    document = {
        "format": "wattsched-result/2",
        "instance": instance.name,
        "digest": digest_of(instance),
        "problem": instance.problem,
        "formulation": "",
        "solver": "",
        "objective_name": instance.objective,
        "termination": {"reason": "optimal"},
        "sense": sense,
        "objective": report.objective,
        "bound": None,
        "gap_asked": 1e-4,
        "claimed": False,
        "checked": True,
        "prices": {n: 0.0 - sign * y for n, y in (prices or {}).items() if not n.startswith(INTERNAL)},
        "time_s": {"total": 1.0},
        "totals": report.totals,
        "decision": decision,
    }
    document |= {"certificate": None, "gap": None, "proven_gap": None, **values}
    objective, bound = document["objective"], document["bound"]
    if bound is not None:
        gap = gap_between(objective, bound)
        document |= {"gap": gap, "proven_gap": gap, "certificate": {"prices": prices or {}, "bound": bound}}
    return result_of(document)


@pytest.mark.parametrize(
    ("objective", "prices"), [("total-completion", {"gpus:G": -1e10}), ("work-value", {"buddy:G:8": 1e9})]
)
def test_prices_that_cancel_prove_no_more(objective: str, prices: dict[str, float]) -> None:
    instance = two_speeds(0.5, objective)
    stated = problem("sizing").check(instance, problem("sizing").decision.model_validate(SLOW)).objective
    verdict = wattsched.check(instance, forged(instance, SLOW, prices=prices, bound=stated))
    assert len(verdict.faults) == 1
    assert "its prices prove" in verdict.faults[0]


def test_small_objectives_are_compared_as_sharply_as_large_ones() -> None:
    instance = two_speeds(0.1, weight=1e-6, remaining_work=0.05)
    verdict = wattsched.check(instance, forged(instance, SLOW, objective=5e-8, bound=5e-8))
    assert "objective: the result claims 5e-08, recomputed 5e-07" in verdict.faults


def test_a_small_bound_of_sharing_is_that_of_its_prices() -> None:
    epochs = {
        "u": {"epoch_s": 0.01, "utilisation_pct": 100.0},
        "v": {"epoch_s": 0.1, "utilisation_pct": 100.0},
    }
    watts = (("u", 1.0, 2.0), ("v", 10.0, 20.0))
    units = [{"name": n, "count": 1, "idle_power_w": w, "full_power_w": f} for n, w, f in watts]
    sharing = {
        "name": "s",
        "problem": "sharing",
        "objective": "energy",
        "limits": {"jobs_per_set": 1},
        "unit_types": units,
        "classes": [{"name": "c", "alone": epochs}],
        "jobs": [{"name": "j", "job_class": "c", "can_wait": False}],
    }
    decision = {"sets": [{"unit_type": "v", "jobs": ["j"]}], "waiting": []}
    instance, least_kwh = instance_of(sharing), 0.01 * 2 / 3.6e6
    stated = 0.1 * 20 / 3.6e6
    verdict = wattsched.check(instance, forged(instance, decision, prices={"job:j": least_kwh}, bound=stated))
    assert "certificate: claims the bound 5.55555555556e-07" in verdict.faults[0]


def test_nothing_equals_an_objective_beyond_all_numbers() -> None:
    instance = two_speeds(1e-300, remaining_work=1e12)
    verdict = wattsched.check(instance, forged(instance, SLOW, objective=1e12, bound=1e12))
    assert "objective: the result claims 1e+12, recomputed inf" in verdict.faults


def test_an_objective_at_the_edge_of_what_is_tolerated_is_not_optimal_by_it() -> None:
    instance = two_speeds(1.0 / (1 + 5e-7))
    result = forged(instance, SLOW, objective=100.0, bound=100.0, gap_asked=0.0)
    (fault,) = wattsched.check(instance, result).faults
    assert fault.startswith("termination: 'optimal' at a gap of 4.99999")


def test_the_gap_asked_for_cannot_be_left_out() -> None:
    """The format before did not have it; an answer that has none is on the solver's word."""
    instance = two_speeds(0.1)
    verdict = wattsched.check(instance, forged(instance, SLOW, bound=100.0, digest="", gap_asked=None))
    assert verdict.claimed
    assert not wattsched.check(instance, forged(instance, SLOW, bound=100.0, gap_asked=0.95)).claimed


def test_a_bound_of_prices_stands_beside_a_tree_alone() -> None:
    document = forged(two_speeds(0.5), SLOW, bound=100.0, gap_asked=0.6).model_dump(mode="json")
    document["certificate"]["price_bound"] = 999.0
    verdict = wattsched.check(two_speeds(0.5), result_of(document))
    assert verdict.faults == [
        "certificate: 'price_bound' is what prices prove beside a tree, and there is none"
    ]


def test_members_of_a_set_are_in_one_pool() -> None:
    """In two, their watts would count in two power domains of which one is theirs."""
    alone = {"gpus": [2], "pool": ["G"], "power_w": [100.0], "rate": [1.0]}
    job = {"can_wait": False, "remaining_work": 100.0, "restart_s": 50.0, "options": alone}
    caps = [{"name": d, "members": [n], "power_cap_w": 100.0} for d, n in (("x", "n"), ("y", "m"))]
    cluster = {
        **GPU,
        "nodes": [{"name": name, "gpu_type": "G", "gpus": 2} for name in "nm"],
        "power_domains": caps,
    }
    together = {"name": "s", "pool": "G", "gpus": 2, "power_w": 160.0, "rates": {"a": 0.9, "b": 0.9}}
    jobs = [{**job, "name": name} for name in "ab"]
    instance = instance_of({"name": "i", "cluster": cluster, "jobs": jobs, "sets": [together]})

    def faults(pool_of_b: str) -> list[str]:
        on_n = {"set": "s", "gpus": 2, "nodes": {"n": [0, 1]}}
        chosen = [{**on_n, "job": "a", "pool": "G@x"}, {**on_n, "job": "b", "pool": pool_of_b}]
        decision = problem("sizing").decision.model_validate({"jobs": chosen, "waiting": []})
        return problem("sizing").check(instance, decision).faults

    assert faults("G@x") == ["power domain 'x' draws 160 W, its cap is 100 W"]
    assert "jobs 'a' and 'b' of set 's' have different pools or GPU counts" in faults("G@y")


@pytest.mark.parametrize(
    ("reason", "accepted"), [("infeasible", True), ("optimal", False), ("feasible", False)]
)
def test_an_empty_frontier_proves_nothing(reason: str, accepted: bool) -> None:
    options = {"gpus": [1], "pool": ["P"], "power_w": [10.0], "rate": [1.0]}
    jobs = [{"name": "j", "remaining_work": 0.1, "options": options}]
    shifting = {"name": "s", "problem": "shifting", "objective": "energy", "slots": 1, "slot_s": 1.0}
    instance = instance_of({**shifting, "pools": {"P": {"gpus": 1}}, "jobs": jobs})
    empty = {"format": "wattsched-frontier/1", "instance": "s", "problem": "shifting", "tradeoff": "energy"}
    found = pareto_of({**empty, "points": [], "termination": {"reason": reason}})
    verdict = verdict_on_pareto(instance, found)
    assert (not verdict.faults) == accepted
    assert verdict.claimed == accepted


@pytest.mark.parametrize("slot_s", [3600.0, 6.543e8, 1.7e10])
@pytest.mark.parametrize("price", [0.0, 2.2e19])
def test_times_since_long_ago_prove_no_more_than_they_can(slot_s: float, price: float) -> None:
    """Completion is the difference of two large times, of which rounding leaves little."""
    slots, works = 30, (0.0123, 0.0246, 0.0369)
    options = {"gpus": [1], "pool": ["P"], "power_w": [10.0], "rate": [1.0]}
    arrival_s = slot_s * (slots - 1)
    jobs = [
        {"name": f"j{k}", "weight": 1.7 + k, "arrival_s": arrival_s, "remaining_work": w, "options": options}
        for k, w in enumerate(works)
    ]
    shifting = {"name": "s", "problem": "shifting", "slots": slots, "slot_s": slot_s, "jobs": jobs}
    instance = instance_of({**shifting, "pools": {"P": {"gpus": 3}}})
    ran = [{"first_slot": slots - 1, "slots": 1, "gpus": 1, "pool": "P"}]
    chosen = [{"job": f"j{k}", "runs": ran} for k in range(len(works))]
    decision = problem("shifting").decision.model_validate({"jobs": chosen, "waiting": []})
    report = problem("shifting").check(instance, decision)
    assert report.faults == []
    assert report.objective is not None
    limits = instance.budgets.model_copy(update={"average_completion_s": report.objective})
    tight = instance.model_copy(update={"budgets": limits})
    proof = prove(tight, {"completion_s": -price})
    assert proof.bound is not None
    assert proof.bound <= report.objective
    assert proof.excess <= 0
