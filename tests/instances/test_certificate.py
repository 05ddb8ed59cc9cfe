"""Certificates: every price vector proves a bound that holds, and no claim beyond it passes."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from brute_force.sizing import optimum
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies.instances import small_instances

import wattsched
from wattsched.documents import verdict_on
from wattsched.formulations.sizing.budgets import free_gpus as free_by_uses
from wattsched.formulations.sizing.data import expand
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.problems import problem
from wattsched.solvers.registry import names
from wattsched.topology.buddy import free_by_level
from wattsched.verification import claims
from wattsched.verification.arithmetic import (
    DOUBLES,
    RATIONALS,
    Enclosure,
    float_above,
    float_below,
    logarithm,
    square_root,
)
from wattsched.verification.report import Proof, Report
from wattsched.verification.sizing import bound
from wattsched.verification.sizing.bound import prices_of, prove, rows_of
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.least_cost import in_range, least_costs
from wattsched.verification.sizing.outcomes import BOTTLENECK, OBJECTIVES
from wattsched.verification.sizing.pools import free_gpus, pools_of

MANY = settings(max_examples=80)
SOME = settings(MANY, max_examples=30)
OBJECTIVE = st.sampled_from(sorted(OBJECTIVES))

ROW = {"gpus": [1, 4], "pool": ["A", "A"], "completion_s": [1000.0, 400.0], "power_w": [200.0, 800.0]}
SIX = Instance.model_validate(
    {
        "objective": "total-completion",
        "cluster": {
            "gpu_types": {"A": {"idle_power_w": 50.0}},
            "nodes": [{"name": "n", "gpu_type": "A", "gpus": 4, "base_power_w": 100.0}],
        },
        "budgets": {"power_w": 900.0},
        "jobs": [{"name": f"j{i}", "options": ROW} for i in range(6)],
    }
)
"""Six jobs, each 400 s on all four GPUs; waiting costs 300 s more."""


def with_objective(instance: Instance, objective: str) -> Instance:
    return instance.model_copy(update={"objective": objective})


def better(a: float, b: float, objective: str) -> bool:
    """Whether one value is better than another by more than the last digits."""
    excess = b - a if OBJECTIVES[objective] == "min" else a - b
    return excess > 1e-9 * max(0.1, abs(b))


@st.composite
def priced(draw: st.DrawFn) -> tuple[Instance, dict[str, float]]:
    """An instance with prices of the right sign on any of its rows."""
    instance = with_objective(draw(small_instances(max_jobs=3)), draw(OBJECTIVE))
    rows = rows_of(instance, JobConfigurations(instance, pools_of(instance.cluster)))
    sign = -1.0 if OBJECTIVES[instance.objective] == "min" else 1.0
    # Where prices have the size of a round's, bounds are worth something.
    scale = {"room": 100.0, "power": 2.0, "energy": 0.01, "worst": 1.0}
    chosen = draw(st.lists(st.sampled_from(sorted(rows)), unique=True)) if rows else []
    share = st.one_of(st.floats(0.0, 1.0), st.sampled_from([1.0, 0.5, 1e-9, 30.0]))
    return instance, {name: sign * draw(share) * scale[rows[name].kind] for name in chosen}


# --- any prices prove a bound ------------------------------------------------------------------------


@MANY
@given(case=priced())
def test_whatever_the_prices_are_no_decision_beats_the_bound(case: tuple[Instance, dict[str, float]]) -> None:
    instance, prices = case
    proof = prove(instance, prices)
    best = optimum(instance, instance.objective)
    if proof.faults:
        assert "no option that is complete by its deadline" in proof.faults[0] or "no conf" in proof.faults[0]
        assert best is None
    elif best is not None:
        assert proof.bound is not None
        assert not better(best, proof.bound, instance.objective)


@MANY
@given(case=priced(), chunk=st.sampled_from([1, 7, 1000]))
def test_doubles_enclose_what_rational_numbers_find(
    case: tuple[Instance, dict[str, float]], chunk: int
) -> None:
    instance, prices = case
    assume(not prove(instance, prices).faults)
    configurations = JobConfigurations(instance, pools_of(instance.cluster))
    rows = rows_of(instance, configurations)
    charged = {name: abs(price) for name, price in prices.items()}
    paid = prices_of(rows, charged)
    assume(in_range(instance, configurations, paid))
    exact = least_costs(instance, configurations, paid, RATIONALS)
    rounded = least_costs(instance, configurations, paid, DOUBLES, chunk)
    terms = sum(Fraction(price) * (rows[name].limit + rows[name].standing) for name, price in charged.items())
    watts = sum(price for use, price in paid.items() if use[0] == "watt")
    compared = ("total", "worst") if instance.objective in BOTTLENECK else ("total",)
    for name in compared:
        inner, outer = getattr(exact, name), getattr(rounded, name)
        assert outer.low <= inner.low <= inner.high <= outer.high
        room = abs(inner.high) + terms + watts * 1000 + len(instance.jobs) * 100
        # An option that ends at its deadline to the last digits leaves both in doubt.
        doubt = inner.high - inner.low
        assert outer.high - outer.low <= doubt + room * Fraction(1, 2**44)


@MANY
@given(case=priced())
def test_the_bound_is_that_of_the_program(case: tuple[Instance, dict[str, float]]) -> None:
    """Two implementations that share nothing but the formula."""
    instance, prices = case
    options = expand(instance)
    assume(not options.jobs_without_options())
    program = problem("sizing").formulation("mckp")(options, instance.objective).program
    sign = 1.0 if program.sense == "min" else -1.0
    # Rows that can never bind are not in the program.
    prices = {name: price for name, price in prices.items() if name in set(program.row_names())}
    y = np.array([sign * prices.get(name, 0.0) for name in program.row_names()])
    lower = program.lagrangian_bound(y)
    proof = prove(instance, prices)
    assert proof.bound is not None
    assert proof.reach is not None
    # Above 1 the shares of a bottleneck are scaled, which proves more than its variable's range does.
    tight = sum(abs(p) for name, p in prices.items() if name.startswith("worst:")) <= 1
    slack = 1e-9 * (1 + abs(lower) + float(np.abs(y) @ np.abs(program.row_upper)))
    assert sign * proof.bound >= lower - slack
    assert sign * proof.reach >= lower
    if tight:
        assert sign * proof.bound <= lower + slack


@SOME
@given(instance=small_instances())
def test_free_blocks_are_those_of_the_topology(instance: Instance) -> None:
    found = free_gpus(instance, pools_of(instance.cluster))
    options = expand(instance)
    for pool, free in zip(options.pools, free_by_uses(options), strict=True):
        assert list(found[pool.name].values()) == list(free_by_level(pool.blocks, free))


def test_an_option_that_ends_on_its_deadline_counts() -> None:
    """Whether 0.1 + 0.2 is 0.3 is a question of arithmetic; what is proven holds for both answers."""
    exact = with_deadline(700.0)
    assert prove(exact, {}).bound == 6 * 400
    only = {**ROW, "gpus": [1], "pool": ["A"], "completion_s": [900.0], "power_w": [200.0]}
    for deadline_s, expected in ((900.0, 5400.0), (899.9999, 5400.0), (1200.0, 5400.0)):
        assert prove(with_deadline(deadline_s, options=only), {}).bound == expected
    faults = prove(with_deadline(890.0, options=only), {}).faults
    assert faults == ["certificate: job 'j0' has no option that is complete by its deadline"]


def with_deadline(deadline_s: float, **fields: Any) -> Instance:
    content = SIX.model_dump()
    for job in content["jobs"]:
        job.update({"deadline_s": deadline_s, **fields})
    return Instance.model_validate(content)


def test_prices_by_hand() -> None:
    # A GPU at 75 s: four of them for 400 s pay as much as waiting, 700 s.
    assert prove(SIX, {"gpus:A": -75.0}).bound == 6 * 700 - 4 * 75
    # The row of blocks of four counts the same GPUs, although the program leaves it out.
    assert prove(SIX, {"buddy:A:4": -75.0}).bound == 6 * 700 - 4 * 75
    # 900 - 100 - 4 * 50 W are for the jobs; at half a second per watt 400 + 0.5 * 600 is 700 again.
    assert prove(SIX, {"power_w": -0.5}).bound == 6 * 700 - 0.5 * 600
    assert prove(SIX, {}).bound == 6 * 400
    slowest = with_objective(SIX, "makespan")
    assert prove(slowest, {}).bound == 400
    assert prove(
        slowest, {f"worst:j{i}": -1 / 8 for i in range(6)} | {"gpus:A": -9.375}
    ).bound == pytest.approx(6 / 8 * 700 - 4 * 9.375 + 2 / 8 * 400)
    # Prices that sum to 6/4 prove as much as their 4/6, which sum to 1.
    twice = {f"worst:j{i}": -1 / 4 for i in range(6)} | {"gpus:A": -18.75}
    assert prove(slowest, twice).bound == pytest.approx(700 - 4 * 18.75 * 4 / 6)


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ({"gpus:A": 1.0}, "the price 1.0 of row 'gpus:A' is positive"),
        (
            {"gpus:B": -1.0},
            "price -1.0 of row 'gpus:B' proves nothing: the instance has no row of that name",
        ),
        ({"buddy:A:8": -1.0}, "no row"),
        ({"energy_j": -1.0}, "no row"),
        ({"worst:j1": -1.0}, "no row"),
        ({"power_w": math.nan}, "the price nan of row 'power_w' is not a finite number"),
        ({"power_w": -math.inf}, "not a finite number"),
        ({"power_w": "-1"}, "not a finite number"),
        ({"power_w": True}, "not a finite number"),
        ({"power_w": -(10**400)}, "not a finite number"),
    ],
)
def test_prices_that_are_none(prices: dict[str, Any], said: str) -> None:
    proof = prove(SIX, prices)
    assert said in proof.faults[0]
    assert proof.bound is None


def test_wrong_signs_depend_on_the_sense() -> None:
    progress = with_objective(SIX, "progress")
    assert prove(progress, {"gpus:A": 1.0}).faults == []
    assert (
        "negative: more of it cannot make a max objective worse"
        in prove(progress, {"gpus:A": -1.0}).faults[0]
    )
    for instance in (SIX, progress):
        assert prove(instance, {"gpus:A": -0.0, "power_w": 0}).faults == []


def test_numbers_at_the_ends_of_the_range_are_left_to_exact_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bound, "EXACT_OPTIONS", 0)
    assert not prove(SIX, {"gpus:A": -75.0}).exact
    assert not prove(SIX, {"gpus:A": -1e-300}).exact
    jobs = [job.model_copy(update={"weight": 1e300}) for job in SIX.jobs]
    proof = prove(SIX.model_copy(update={"jobs": jobs}), {"gpus:A": -1e-300})
    assert proof.exact
    assert proof.bound == pytest.approx(6 * 400 * 1e300)


@given(value=st.fractions(Fraction(1, 10**6), 10**6))
def test_enclosures_enclose(value: Fraction) -> None:
    assert float_below(value) <= value <= float_above(value)
    assert math.nextafter(float_below(value), math.inf) >= float_above(value)
    found = logarithm(value)
    assert float(found) == pytest.approx(math.log(value), rel=1e-14, abs=1e-14)
    assert abs(logarithm(1 / value) + found) <= 2 * Fraction(1, 10**45) * (1 + abs(found))
    assert logarithm(Fraction(1)) == 0
    root = square_root(value)
    assert root**2 <= value <= (root * (1 + Fraction(1, 2**198))) ** 2
    assert square_root(value**2) == value or value.denominator & (value.denominator - 1)


@given(values=st.lists(st.fractions(Fraction(1, 10**6), 10**6), min_size=1))
def test_both_arithmetics_state_their_errors(values: list[Fraction]) -> None:
    """Logarithms, roots and sums of doubles are within their sizes of those of rational numbers."""
    exact, near = RATIONALS.array(values), DOUBLES.array(values)
    logarithms = zip(*RATIONALS.log(exact), *DOUBLES.log(near), strict=True)
    for found, size, rounded, width in [
        *logarithms,
        *zip(*RATIONALS.sqrt(values), *DOUBLES.sqrt(values), strict=True),
    ]:
        doubt = RATIONALS.epsilon * size + Fraction(DOUBLES.epsilon) * Fraction(width)
        assert abs(found - Fraction(rounded)) <= doubt
    assert RATIONALS.sum_below(exact) <= sum(values)
    assert DOUBLES.sum_below(near) <= sum(map(Fraction, near.tolist()))


@given(ends=st.tuples(st.fractions(-100, 100), st.fractions(-100, 100)), factor=st.fractions(-9, 9))
def test_enclosures_are_turned_by_negative_factors(ends: tuple[Fraction, Fraction], factor: Fraction) -> None:
    low, high = sorted(ends)
    found = Enclosure(low, high) * factor
    assert (found.low, found.high) == tuple(sorted((low * factor, high * factor)))
    assert found + found == found * Fraction(2)
    assert found - Fraction(1) == Enclosure(found.low - 1, found.high - 1)


# --- results and their claims ------------------------------------------------------------------------


def solved(instance: Instance, **asked: Any) -> dict[str, Any]:
    return wattsched.solve(instance, gap=0.0, **asked).model_dump(mode="json")


SOLVERS = [name for name in names() if not name.startswith("pyomo:")]


@MANY
@given(
    instance=small_instances(max_jobs=3),
    objective=OBJECTIVE,
    solver=st.sampled_from(SOLVERS),
    build=st.sampled_from(["mckp", "assignment", "intervals"]),
)
def test_every_certificate_passes(instance: Instance, objective: str, solver: str, build: str) -> None:
    result = solved(instance, solver=solver, objective=objective, formulation=build)
    if result["termination"]["reason"] == "error":
        return
    verdict = verdict_on(instance, result)
    assert verdict.faults == []
    best = optimum(instance, objective)
    if result["decision"] is not None:
        assert verdict.proof is not None
        assert verdict.proof.bound is not None
        assert best is not None
        assert not better(best, verdict.proof.bound, objective)
        assert verdict.proof.bound == pytest.approx(result["certificate"]["bound"], rel=1e-9, abs=1e-9)


@SOME
@given(instance=small_instances(max_jobs=3), objective=OBJECTIVE, data=st.data())
def test_tampering_with_a_price_passes_only_where_the_claim_is_still_proven(
    instance: Instance, objective: str, data: st.DataObject
) -> None:
    instance = with_objective(instance, objective)
    result = solved(instance)
    assume(result["certificate"] is not None)
    prices = result["certificate"]["prices"]
    rows = rows_of(instance, JobConfigurations(instance, pools_of(instance.cluster)))
    name = data.draw(st.sampled_from(sorted(prices or rows)))
    if name in prices:
        prices[name] *= data.draw(st.sampled_from([0.0, 0.5, 0.999, 1.001, 2.0, 1000.0]))
    else:
        worth = data.draw(st.sampled_from([1e-6, 0.1, 100.0]))
        prices[name] = -worth if OBJECTIVES[objective] == "min" else worth
    proof = prove(instance, prices)
    best = optimum(instance, objective)
    assert proof.bound is not None
    assert best is None or not better(best, proof.bound, objective)
    size = sum(abs(price) * float(rows[row].limit + rows[row].standing) for row, price in prices.items())
    claimed = result["certificate"]["bound"]
    excess = claimed - proof.bound if OBJECTIVES[objective] == "min" else proof.bound - claimed
    caught = any("certificate: claims the bound" in fault for fault in verdict_on(instance, result).faults)
    assert caught or excess <= 1e-8 * max(1.0, size + abs(proof.bound))
    assert not caught or excess > 0


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
@pytest.mark.parametrize(
    ("family", "fields"),
    [("uniform", {}), ("hetero", {"unavailable": 0.05}), ("sia-like", {}), ("philly-like", {})],
)
def test_families_pass_and_each_tampering_is_caught(family: str, fields: dict, objective: str) -> None:
    instance = with_objective(generate(family, jobs=6, seed=2, **fields), objective)
    result = wattsched.solve(instance).model_dump(mode="json")
    assert verdict_on(instance, result).faults == []
    worse = 1e-6 if result["sense"] == "min" else -1e-6
    bound, objective_value = result["certificate"]["bound"], result["objective"]
    scale = max(abs(bound), 1.0)

    def said(**changes: Any) -> str:
        return "; ".join(verdict_on(instance, {**result, **changes}).faults)

    claimed = {**result["certificate"], "bound": bound + 10 * worse * scale}
    assert "certificate: claims the bound" in said(certificate=claimed)
    weaker = {**result["certificate"], "bound": bound - 10 * worse * scale}
    assert said(certificate=weaker) == ""
    assert "objective" in said(objective=objective_value - 10 * worse * max(1.0, abs(objective_value)))
    assert "gap" in said(gap=result["gap"] + 0.01)
    assert "bound" in said(bound=objective_value + 100 * worse * max(1.0, abs(objective_value)))
    if result["decision"]["jobs"]:
        first, *others = result["decision"]["jobs"]
        stopped = {"jobs": others, "waiting": [*result["decision"]["waiting"], first["job"]]}
        assert said(decision=stopped) != ""
    for name, price in result["prices"].items():
        assert f"prices: '{name}'" in said(prices={**result["prices"], name: price * 1.01})
        others = {other: value for other, value in result["prices"].items() if other != name}
        assert f"prices: '{name}' is missing" in said(prices=others)


def test_a_decision_that_beats_the_proof_is_a_contradiction() -> None:
    """Only a proof that is wrong, or a rule that the checker does not know, can bring that about."""
    result = solved(SIX)

    def told(proof: Proof) -> bool:
        report = Report([], 3900.0)
        rules = replace(problem("sizing"), prove=lambda *_: proof, check=lambda *_: report)
        return any(
            "no decision can beat" in fault for fault in claims.check_result(rules, SIX, result).faults
        )

    assert told(Proof([], bound=4000.0, reach=4000.0))
    assert not told(Proof([], bound=4000.0, reach=4000.0, leeway=100.0))


def test_infeasible_results_claim_nothing_else() -> None:
    tight = SIX.model_copy(update={"budgets": SIX.budgets.model_copy(update={"power_w": 250.0})})
    result = solved(tight)
    assert result["termination"]["reason"] == "infeasible"
    assert verdict_on(tight, result).faults == []
    for name, value in (
        ("objective", 1.0),
        ("bound", 1.0),
        ("gap", 0.0),
        ("certificate", {"prices": {}, "bound": 1.0}),
    ):
        assert any(name in fault for fault in verdict_on(tight, {**result, name: value}).faults)
    assert verdict_on(tight, {**result, "checked": True}).faults != []
    decided = {**result, "decision": solved(SIX)["decision"]}
    assert "termination: the result says 'infeasible' but has a decision" in verdict_on(tight, decided).faults


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"termination": {"reason": "optimal"}, "bound": None, "gap": None}, "'optimal' needs a gap"),
        ({"certificate": 5}, "certificate: needs 'prices'"),
        ({"certificate": {"prices": [], "bound": 1.0}}, "certificate: needs 'prices'"),
        ({"certificate": {"prices": {}, "bound": math.inf}}, "certificate: needs 'prices'"),
        ({"certificate": {"prices": {"gpus:A": 1.0}, "bound": 1.0}}, "is positive"),
        ({"prices": {"gpus:A": "many"}}, "prices: 'gpus:A' is many"),
        ({"decision": None}, "holds no decision to check"),
    ],
)
def test_malformed_claims(changes: dict[str, Any], said: str) -> None:
    faults = verdict_on(SIX, {**solved(SIX), **changes}).faults
    assert any(said in fault for fault in faults), faults


def test_costs_and_prices_that_cancel_leave_their_rounding() -> None:
    """No GPU is free: at its value's price running costs nothing, up to the last digit of that price."""
    content = SIX.model_dump()
    content["cluster"]["nodes"][0]["unavailable"] = [0, 1, 2, 3]
    content["jobs"] = [{"name": "j", "options": {**ROW, "completion_s": [21.0, 400.0]}}]
    instance = with_objective(Instance.model_validate(content), "progress")
    price = 3600 / 21
    proof = prove(instance, {"gpus:A": price})
    assert proof.bound is not None
    assert proof.reach is not None
    assert proof.bound == pytest.approx(0.0, abs=1e-13)
    assert -1e-9 * 2 * price <= proof.reach < 0.0
    assert verdict_on(instance, solved(instance)).faults == []


def test_two_thousand_jobs_are_proven_in_doubles() -> None:
    instance = generate("uniform", jobs=2000, seed=1)
    prices = {"gpus:A100": -278.6, "power_w": -1.55, "energy_j": -2e-7}
    proof = prove(instance, prices)
    assert not proof.exact
    assert proof.bound is not None
    assert proof.reach is not None
    assert proof.bound == pytest.approx(proof.reach, rel=1e-8)
