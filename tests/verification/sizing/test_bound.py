"""Certificates: every price vector proves a bound that holds, and no claim beyond it passes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from tests.strategies.priced import (
    ROW,
    SIX,
    Priced,
    priced,
    require_enclosed,
    require_no_better,
    with_objective,
)
from wattsched import check, solve
from wattsched.formulations.program import Program
from wattsched.formulations.sizing.data import expand, without_options
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.problems import problem
from wattsched.solvers.solution import proven_bound
from wattsched.topology.arrays import FloatArray
from wattsched.verification.arithmetic import DOUBLES, RATIONALS
from wattsched.verification.report import NEGLIGIBLE_PRICE
from wattsched.verification.sizing import bound, options
from wattsched.verification.sizing.bound import prove
from wattsched.verification.sizing.least_cost import in_range, least_costs
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import BOTTLENECK, OBJECTIVES
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.rows import prices_of, rows_of

MANY = settings(max_examples=examples(80))
SMALL = small_instances(max_jobs=3)
PRICED = priced(SMALL) | priced(sleeping(SMALL)) | priced(instances_with_sets())

# --- any prices prove a bound ------------------------------------------------------------------------


@MANY
@given(case=PRICED)
def test_whatever_the_prices_are_no_decision_beats_the_bound(case: Priced) -> None:
    instance, prices = case
    proof = prove(instance, prices)
    best = optimum(instance, instance.objective)
    require_no_better(proof, best, instance.objective)


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
    assume(len(instance.jobs) and not ends_at_a_deadline(instance))
    rows = rows_of(instance, configurations)
    sign = -1 if OBJECTIVES[instance.objective] == "min" else 1
    charged = {name: sign * price for name, price in prices.items()}
    paid = prices_of(rows, charged)
    rational, double = (Options(instance, configurations, a) for a in (RATIONALS, DOUBLES))
    assume(in_range(double, paid))
    if instance.objective in BOTTLENECK:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(options, "CHUNK", chunk)
            require_enclosed(rational, double, paid)
        return
    exact = least_costs(rational, paid).total
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "CHUNK", chunk)
        rounded = least_costs(double, paid).total
    assert least_costs(rational, paid, near=double).total == exact
    assert rounded.low <= exact.low <= exact.high <= rounded.high
    room = sum(abs(Fraction(p) * (rows[name].limit + rows[name].standing)) for name, p in charged.items())
    room += abs(exact.high) + len(instance.jobs) * 100
    room += sum(1000 * price for use, price in paid.items() if use[0] == "watt")
    room += sum(abs(price) for use, price in paid.items() if use[0] == "share")
    if instance.objective in ("energy", "carbon", "money"):  # of hundreds of watts for the round
        room += len(instance.jobs) * 500 * Fraction(instance.round_s)
    # An option that ends at its deadline to the last digits leaves both in doubt.
    doubt = exact.high - exact.low
    assert rounded.high - rounded.low <= doubt + room * Fraction(1, 2**43)


@MANY
@given(case=PRICED)
def test_the_bound_is_that_of_the_program(case: Priced) -> None:
    """Two implementations that share nothing but the formula."""
    instance, prices = case
    options = expand(instance)
    assume(not len(without_options(options.of)))
    program = problem("sizing").formulation("mckp")(options.of, instance.objective).program
    sign = 1.0 if program.sense == "min" else -1.0
    # Rows that can never bind are not in the program, and negligible prices are none in proofs.
    known = set(program.row_names())
    prices = {name: y for name, y in prices.items() if name in known and abs(y) > NEGLIGIBLE_PRICE}
    y = np.array([sign * prices.get(name, 0.0) for name in program.row_names()])
    cut_for_most(program, y)
    bound, proof = proven_bound(program, y), prove(instance, prices)
    # Prices that leave no choice at any threshold prove more than a bound.
    assume(np.isfinite(bound))
    assert proof.bound is not None
    assert proof.reach is not None
    ends = np.where(np.isfinite(program.row_upper), program.row_upper, program.row_lower)
    terms = np.abs(y) * (1 + np.abs(ends))
    bottleneck = instance.objective in BOTTLENECK
    slack = 1e-9 * (1 + abs(bound) + (0.0 if bottleneck else float(terms.sum())))
    assert sign * proof.bound >= bound - slack
    assert sign * proof.reach >= bound
    # At a threshold, what is lacking of one row may be rounding of another one.
    if not bottleneck or terms.max(initial=0.0) <= 1e6 * terms[y != 0].min(initial=np.inf):
        assert sign * proof.bound <= bound + slack


def cut_for_most(program: Program, y: FloatArray) -> None:
    """Price as a proof does by itself: larger pieces no less, and nodes at the best way to cut one up."""
    ways, names = slice(program.n_columns - program.supply, None), program.row_names()
    pools = {name.split(":")[1] for name in names if name.startswith("pieces:")}
    for pool in pools:  # rows of pieces are in the order of their sizes
        rows = [row for row, name in enumerate(names) if name.startswith(f"pieces:{pool}:")]
        y[rows] = np.minimum.accumulate(y[rows])
    for row, name in enumerate(names):
        if name.startswith("cuts:"):
            y[row] = 0.0
            of_node = program.matrix[[row], ways].toarray().ravel() > 0
            y[row] = -max((program.matrix[:, ways].T @ y)[of_node].max(), 0.0)


def test_an_option_that_ends_on_its_deadline_counts() -> None:
    """Whether 0.1 + 0.2 is 0.3 is a question of arithmetic; what is proven holds for both answers."""
    exact = with_deadline(700.0)
    assert prove(exact, {}).bound == 6 * 400
    only = {**ROW, "gpus": [1], "pool": ["A"], "completion_s": [900.0], "power_w": [200.0]}
    for deadline_s, expected in ((900.0, 5400.0), (900.0 - 1e-10, 5400.0), (1200.0, 5400.0)):
        assert prove(with_deadline(deadline_s, options=only), {}).bound == expected
    # Later by more the jobs are left out, and if they may not wait there is no decision.
    assert prove(with_deadline(899.9999, options=only), {}).bound == 0.0
    assert prove(with_deadline(899.9999, options=only, can_wait=False), {}).bound == 5400.0
    assert prove(with_deadline(890.0, options=only, can_wait=False), {}).excess == math.inf


def with_deadline(deadline_s: float, **fields: Any) -> Instance:
    content = SIX.model_dump()
    for job in content["jobs"]:
        job.update({"deadline_s": deadline_s, **fields})
    return Instance.model_validate(content)


def test_larger_pieces_of_nodes_pay_for_smaller_ones() -> None:
    """What needs 4 GPUs of a node is dropped where 3 do as well: a price of pieces of 3 is for both."""
    rows = {"gpus": [3, 4], "pool": ["A"] * 2, "completion_s": [400.0, 400.0], "power_w": [1.0, 1.0]}
    cluster = {
        "gpu_types": {"A": {"idle_power_w": 0.0}},
        "nodes": [{"name": "n0", "gpu_type": "A", "gpus": 6, "unavailable": [1, 2, 3, 4]}],
        "capacity": "nodes",
    }
    other = {**rows, "gpus": [2, 2], "frequency_mhz": [900, 1000]}
    jobs = [{"name": "a", "options": rows}, {"name": "b", "options": other}]
    content = {"cluster": cluster, "jobs": jobs, "objective": "total-completion", "round_s": 300.0}
    instance = Instance.model_validate(content)
    result = solve(instance, gap=0.0)
    assert result.objective == 700.0 + 400.0
    assert prove(instance, {"pieces:A:3": -300.0}).bound == 700.0 + 400.0
    assert check(instance, result).faults == []


def test_prices_by_hand() -> None:
    # A GPU at 75 s: four of them for 400 s pay as much as waiting, 700 s.
    assert prove(SIX, {"gpus:A": -75.0}).bound == 6 * 700 - 4 * 75
    # The row of blocks of four counts the same GPUs, although the program leaves it out.
    assert prove(SIX, {"buddy:A:4": -75.0}).bound == 6 * 700 - 4 * 75
    # 900 - 100 - 4 * 50 W are for the jobs; at half a second per watt 400 + 0.5 * 600 is 700 again.
    assert prove(SIX, {"power_w": -0.5}).bound == pytest.approx(6 * 700 - 0.5 * 600, rel=1e-15)
    assert prove(SIX, {}).bound == 6 * 400
    slowest = with_objective(SIX, "makespan")
    assert prove(slowest, {}).bound == 400
    # Whatever a GPU costs, four cannot carry six jobs of four; waiting takes none.
    assert prove(slowest, {"gpus:A": -75.0}).bound == prove(slowest, {"gpus:A": -1e-9}).bound == 700
    # Earlier certificates name the jobs' rows, which prove no more.
    named = {f"worst:j{i}": -1 / 8 for i in range(6)}
    assert prove(slowest, named).bound == 400
    assert prove(slowest, named | {"gpus:A": -9.375}).bound == 700
    four = slowest.model_copy(
        update={"jobs": [j.model_copy(update={"can_wait": False}) for j in slowest.jobs[:4]]}
    )
    assert prove(four, {"gpus:A": -1.0}).bound == 1000


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
    result = solve(instance).model_dump(mode="json")
    assert result["objective"] == pytest.approx(1.7)
    assert list(result["prices"]) == ["gpus:A"]
    assert row in result["certificate"]["prices"]
    result["certificate"]["prices"][row] *= -1
    assert any("claims the bound" in fault for fault in verdict_on(instance, result).faults)
    assert "no row" in prove(instance, {"share:both:A:a": 1.0}).faults[0]


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
    # Costs that another processor has found differ in more than the last digit.
    for error in (-2e-14, 2e-14):
        off = prove(instance, {"gpus:A": price * (1.0 + error)})
        assert off.reach is not None
        assert off.reach < 0.0
    assert verdict_on(instance, solve(instance, gap=0.0).model_dump(mode="json")).faults == []


def test_two_thousand_jobs_are_proven_in_doubles() -> None:
    instance = generate("uniform", jobs=2000, seed=1)
    prices = {"gpus:A100": -278.6, "power_w": -1.55, "energy_j": -2e-7}
    proof = prove(instance, prices)
    assert not proof.exact
    assert proof.bound is not None
    assert proof.reach is not None
    assert proof.bound == pytest.approx(proof.reach, rel=1e-8)
