"""What must hold of any sizing optimum: symmetry, scaling, monotonicity, and prices as derivatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from wattsched.formulations.model import Model
from wattsched.formulations.program import Program, ProgramBuilder
from wattsched.formulations.sizing.data import expand, without_options
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.instance import Instance
from wattsched.problems import problem
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits

EXACT = Limits(gap=0.0)
MANY = settings(max_examples=examples(60))
OBJECTIVE = st.sampled_from(sorted(OBJECTIVES))


def model_of(instance: Instance, objective: str) -> Model:
    """The aggregated model; the example is dropped when a job has no option."""
    options = expand(instance)
    assume(not len(without_options(options.of)))
    return problem("sizing").formulation("mckp")(options, objective)


def optimum(instance: Instance, objective: str) -> float:
    """Reported optimum of the aggregated formulation, inf when infeasible."""
    program = model_of(instance, objective).program
    solution = get("highs")(program, EXACT)
    return np.inf if solution.objective is None else program.reported(solution.objective)


def changed(instance: Instance, **values: Any) -> Instance:
    """Validated copy of an instance with some top-level fields replaced."""
    return Instance.model_validate({**instance.model_dump(), **values})


@MANY
@given(instance=small_instances(), objective=OBJECTIVE, order=st.randoms(use_true_random=False))
def test_relabelling_and_reordering_jobs_changes_nothing(
    instance: Instance, objective: str, order: Any
) -> None:
    jobs = [{**job, "name": f"renamed-{i}"} for i, job in enumerate(instance.model_dump()["jobs"])]
    order.shuffle(jobs)
    before = optimum(instance, objective)
    assert optimum(changed(instance, jobs=jobs), objective) == pytest.approx(before, rel=1e-6, abs=1e-7)


@MANY
@given(instance=small_instances(), objective=OBJECTIVE)
def test_relabelling_nodes_changes_nothing(instance: Instance, objective: str) -> None:
    data = instance.model_dump()
    for node in data["cluster"]["nodes"]:
        node["name"] = f"renamed-{node['name']}"
    for domain in data["cluster"]["power_domains"]:
        domain["members"] = [f"renamed-{m}" if m.startswith("n") else m for m in domain["members"]]
    for job in data["jobs"]:
        if job["current"]:
            job["current"]["nodes"] = {f"renamed-{n}": g for n, g in job["current"]["nodes"].items()}
    before = optimum(instance, objective)
    assert optimum(Instance.model_validate(data), objective) == pytest.approx(before, rel=1e-6, abs=1e-7)


@MANY
@given(instance=small_instances(), objective=OBJECTIVE, factor=st.sampled_from([0.125, 3.0, 40.0]))
def test_scaling_weights_scales_the_objective(instance: Instance, objective: str, factor: float) -> None:
    document = instance.model_dump()
    jobs = [{**job, "weight": job["weight"] * factor} for job in document["jobs"]]
    budgets = document["budgets"]
    if budgets["least_goodput"] is not None:
        budgets["least_goodput"] *= factor
    scaled = changed(instance, jobs=jobs, budgets=budgets)
    value = OBJECTIVES[objective].value
    values, scaled_values = value(expand(instance)), value(expand(scaled))
    # All values by the same number; some objectives divide by the weight, and some may have none.
    scales = [s for s in (factor, 1 / factor, 1.0) if np.allclose(scaled_values, s * values, 1e-6, 0.0)]
    assert scales
    prices = [None if job["change_cost"] is None else job["change_cost"] * scales[0] for job in jobs]
    jobs = [{**job, "change_cost": price} for job, price in zip(jobs, prices, strict=True)]
    prices = {"change_cost": instance.change_cost * scales[0]}
    scaled = changed(instance, jobs=jobs, budgets=budgets, **prices)
    before, after = optimum(instance, objective), optimum(scaled, objective)
    assert after == pytest.approx(before * scales[0], rel=1e-6, abs=1e-7)


@MANY
@given(
    instance=small_instances(),
    objective=OBJECTIVE,
    name=st.sampled_from(["power_w", "energy_j", "carbon_g"]),
    share=st.floats(0.05, 1.0),
)
def test_a_tighter_budget_never_improves(instance: Instance, objective: str, name: str, share: float) -> None:
    budgets = instance.budgets.model_dump()
    most = {"power_w": 3000.0, "energy_j": 1.5e6, "carbon_g": 170.0}[name]
    budgets[name] = share * (budgets[name] or most)
    before = optimum(instance, objective)
    after = optimum(changed(instance, budgets=budgets), objective)
    if after == np.inf:
        return
    worse = after - before if OBJECTIVES[objective].sense == "min" else before - after
    assert worse >= -1e-6 * max(1.0, abs(before))


def lp_optimum(program: Program, row: int, step: float) -> float:
    """Optimal cost of the linear relaxation with one limit moved; inf when infeasible."""
    lower, upper = program.row_lower.copy(), program.row_upper.copy()
    for ends in (lower, upper):
        ends[row] += step if np.isfinite(ends[row]) else 0.0
    solution = solve_lp(replace(program, row_lower=lower, row_upper=upper), EXACT)
    return np.inf if solution.x is None else program.objective(solution.x)


@MANY
@given(instance=small_instances(), objective=OBJECTIVE)
def test_prices_lie_between_finite_differences(instance: Instance, objective: str) -> None:
    program = model_of(instance, objective).program
    relaxed = solve_lp(program, EXACT)
    assume(relaxed.x is not None)
    assert relaxed.prices is not None
    centre = program.objective(relaxed.x)
    for row in range(program.n_rows):
        ends = np.array([program.row_lower[row], program.row_upper[row]])
        step = 1e-3 * np.abs(ends[np.isfinite(ends)]).max(initial=1.0)
        # The LP's optimum is convex in the capacity: left difference <= derivative <= right difference.
        right = (lp_optimum(program, row, step) - centre) / step
        left = (centre - lp_optimum(program, row, -step)) / step
        # 1e-6 of the price, and the last digits of two optima divided by the step.
        slack = 1e-6 * max(1.0, abs(relaxed.prices[row])) + 1e-13 * abs(centre) / step
        assert left - slack <= relaxed.prices[row] <= right + slack


@MANY
@given(instance=small_instances(), objective=OBJECTIVE)
def test_greedy_optimum_and_bound_are_in_order(instance: Instance, objective: str) -> None:
    program = model_of(instance, objective).program
    exact = get("highs")(program, EXACT)
    for name in ("greedy", "powerflow"):
        rule = get(name)(program, EXACT)
        if exact.objective is None:
            assert rule.x is None
            continue
        tolerance = 1e-6 * max(1.0, abs(exact.objective))
        assert rule.bound <= exact.objective + tolerance
        if rule.objective is not None:
            assert program.violation(rule.x) <= 1e-9
            assert exact.objective <= rule.objective + tolerance


@MANY
@given(instance=small_instances(), objective=OBJECTIVE)
def test_dropping_dominated_options_keeps_the_optimum(instance: Instance, objective: str) -> None:
    from wattsched.formulations.sizing import columns, mckp

    options = expand(instance)
    assume(not len(without_options(options.of)))
    everything = columns.choices(options, objective, keep_dominated=True)
    rows = ProgramBuilder()
    mckp.add_room_rows(rows, *mckp.room_of(everything))
    mckp.add_limits(rows, everything.budgets)
    full = get("highs")(mckp.assemble(everything, rows, mckp.cuttings_of(everything)), EXACT)
    reduced = get("highs")(problem("sizing").formulation("mckp")(options, objective).program, EXACT)
    assert (full.objective or np.inf) == pytest.approx(reduced.objective or np.inf, rel=1e-6, abs=1e-7)


@MANY
@given(instance=small_instances(), objective=OBJECTIVE, gone=st.integers(0, 3))
def test_what_an_earlier_decision_says_goes_on_and_others_wait(
    instance: Instance, objective: str, gone: int
) -> None:
    """Also by the model whose columns are written down, for which an earlier decision was all or nothing."""
    model = model_of(instance, objective)
    found = get("highs")(model.program, EXACT)
    assume(found.x is not None)
    decision = model.decode(found.x, None)
    assert model.nearest is not None
    assert np.array_equal(model.nearest(decision), model.encode(decision))
    # Instead of one job comes another.
    jobs = [job.model_dump() for job in instance.jobs]
    jobs[gone % len(jobs)].update(name="new", current=None, can_wait=True, preemptible=True)
    later = model_of(changed(instance, jobs=jobs), objective)
    point = later.nearest(decision)
    assume(point is not None and later.program.violation(point) <= 1e-9)
    carried = later.decode(point, None)
    assert "new" in carried.waiting
    stayed = {one.job: (one.pool, one.gpus) for one in carried.jobs}
    assert stayed == {one.job: (one.pool, one.gpus) for one in decision.jobs if one.job in stayed}
