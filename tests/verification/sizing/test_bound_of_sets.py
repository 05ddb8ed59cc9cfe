"""Certificates of rounds with sets of jobs: prices of either sign hold a set together."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets
from tests.strategies.priced import OBJECTIVE, Priced, better, priced, require_enclosed
from wattsched.documents import verdict_on
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.arithmetic import DOUBLES, RATIONALS
from wattsched.verification.sizing.bound import prove
from wattsched.verification.sizing.least_cost import in_range, least_costs
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import BOTTLENECK, OBJECTIVES
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.rows import prices_of, rows_of

MANY = settings(max_examples=examples(100))
PRICED = priced(instances_with_sets())


@MANY
@given(case=PRICED)
def test_whatever_the_prices_are_no_decision_beats_the_bound(case: Priced) -> None:
    instance, prices = case
    proof = prove(instance, prices)
    best = optimum(instance, instance.objective)
    assert proof.faults == []
    if proof.excess > 0:
        assert best is None
    elif best is not None:
        assert proof.bound is not None
        assert not better(best, proof.bound, instance.objective)


def ends_at_a_deadline(instance: Instance) -> bool:
    """Whether a job of a set ends at its deadline to the last digits, which leaves doubles in doubt."""
    due_s = {job.name: (job.deadline_s, job.restart_s, job.remaining_work) for job in instance.jobs}
    for one in instance.sets:
        for name, rate in one.rates.items():
            deadline_s, restart_s, work = due_s.get(name, (None, 0.0, 1.0))
            if deadline_s is not None and rate > 0.0:
                ends_s = work / rate
                if any(abs(end_s - deadline_s) < 1e-6 * deadline_s for end_s in (ends_s, ends_s + restart_s)):
                    return True
    return False


@MANY
@given(case=PRICED, chunk=st.sampled_from([1, 7, 1000]))
def test_doubles_enclose_what_rational_numbers_find(case: Priced, chunk: int) -> None:
    instance, prices = case
    assume(prove(instance, prices).excess < math.inf)
    instance, configurations, _ = decided(instance)
    assume(len(instance.jobs))
    assume(not ends_at_a_deadline(instance))
    rows = rows_of(instance, configurations)
    sign = -1 if OBJECTIVES[instance.objective] == "min" else 1
    charged = {name: sign * price for name, price in prices.items()}
    paid = prices_of(rows, charged)
    rational, double = (Options(instance, configurations, a) for a in (RATIONALS, DOUBLES))
    assume(in_range(double, paid))
    if instance.objective in BOTTLENECK:
        require_enclosed(rational, double, paid, chunk)
        return
    exact = least_costs(rational, paid).total
    rounded = least_costs(double, paid, chunk=chunk).total
    assert least_costs(rational, paid, near=double).total == exact
    terms = sum(abs(Fraction(p) * (rows[name].limit + rows[name].standing)) for name, p in charged.items())
    watts = sum(price for use, price in paid.items() if use[0] == "watt")
    shares = sum(abs(price) for use, price in paid.items() if use[0] == "share")
    assert rounded.low <= exact.low <= exact.high <= rounded.high
    room = abs(exact.high) + terms + watts * 1000 + len(instance.jobs) * 100 + shares
    if instance.objective in ("energy", "carbon", "money"):  # of hundreds of watts for the round
        room += len(instance.jobs) * 500 * Fraction(instance.round_s)
    assert rounded.high - rounded.low <= room * Fraction(1, 2**43)


@settings(max_examples=examples(60))
@given(
    instance=instances_with_sets(),
    objective=OBJECTIVE,
    solver=st.sampled_from(["auto", "cpsat", "greedy"]),
    build=st.sampled_from(["mckp", "assignment", "intervals"]),
)
def test_every_certificate_passes(instance: Instance, objective: str, solver: str, build: str) -> None:
    result = wattsched.solve(instance, solver=solver, objective=objective, formulation=build, gap=0.0)
    content = result.model_dump(mode="json")
    if content["termination"]["reason"] == "error":
        return
    verdict = verdict_on(instance, content)
    assert verdict.faults == []
    best = optimum(instance, objective)
    if result.decision is not None:
        assert best is not None
        assert verdict.proof is not None
        assert verdict.proof.bound is not None
        assert not better(best, verdict.proof.bound, objective)


def test_prices_of_sets_by_hand() -> None:
    gpu = {"gpus": [1], "pool": ["A"], "rate": [1.0], "power_w": [200.0]}
    instance = Instance.model_validate(
        {
            "objective": "goodput",
            "cluster": {
                "gpu_types": {"A": {"idle_power_w": 50.0}},
                "nodes": [{"name": "n", "gpu_type": "A", "gpus": 1}],
            },
            "jobs": [{"name": name, "options": gpu} for name in "ab"],
            "sets": [
                {"name": "both", "pool": "A", "gpus": 1, "power_w": 300.0, "rates": {"a": 0.9, "b": 0.8}}
            ],
        }
    )
    # A GPU at its worth in the set, 1.7, of which b passes on its 0.8: nobody gains anything but the GPU.
    row = "share:both:A:b"
    assert prove(instance, {"gpus:A": 1.7, row: -0.8}).bound == pytest.approx(1.7)
    # With the price of the other sign each of them seems to gain by the set: true, and worth less.
    assert prove(instance, {"gpus:A": 1.7, row: 0.8}).bound == pytest.approx(1.7 + 1.6)
    assert prove(instance, {"gpus:A": 1.0}).bound == pytest.approx(1.0 + 0.0 + 0.8)
    result = wattsched.solve(instance).model_dump(mode="json")
    assert result["objective"] == pytest.approx(1.7)
    assert list(result["prices"]) == ["gpus:A"]
    assert row in result["certificate"]["prices"]
    result["certificate"]["prices"][row] *= -1
    assert any("claims the bound" in fault for fault in verdict_on(instance, result).faults)
    assert "no row" in prove(instance, {"share:both:A:a": 1.0}).faults[0]
