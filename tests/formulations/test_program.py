"""Programs of `sizing`: their Lagrangian bounds, prices as derivatives, and points of earlier decisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from wattsched.formulations.model import Model
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.sizing.data import without_options
from wattsched.formulations.sizing.jobs import jobs_of
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.instance import Instance
from wattsched.results.problems import problem
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits

EXACT = Limits(gap=0.0)
MANY = settings(max_examples=examples(60))
OBJECTIVE = st.sampled_from(sorted(OBJECTIVES))


def model_of(instance: Instance, objective: str, name: str = "mckp") -> Model:
    """The model of a formulation; the example is dropped when a job has no option."""
    known = jobs_of(instance)
    assume(not len(without_options(known)))
    return problem("sizing").formulation(name)(known, objective)


@MANY
@given(
    instance=small_instances(),
    objective=OBJECTIVE,
    name=st.sampled_from(["mckp", "assignment"]),
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([0.0, 0.1, 10.0, 1e4]),
)
def test_any_prices_prove_a_bound(
    instance: Instance, objective: str, name: str, seed: int, scale: float
) -> None:
    program = model_of(instance, objective, name).program
    y = scale * np.random.default_rng(seed).standard_normal(program.n_rows)
    bound = program.lagrangian_bound(y)

    y = np.where(np.isfinite(program.row_lower) | (y < 0), y, 0.0)
    y = np.where(np.isfinite(program.row_upper) | (y > 0), y, 0.0)
    dense = program.matrix.toarray()
    expected = program.offset
    for i, price in enumerate(y):
        if price:
            expected += price * (program.row_lower[i] if price > 0 else program.row_upper[i])
    reduced = [program.cost[j] - sum(y * dense[:, j]) for j in range(program.n_columns)]
    for a, b in zip(program.group_start, program.group_start[1:], strict=False):
        expected += min(reduced[a:b])
    for j in range(program.n_choices, program.n_columns):
        expected += min(reduced[j] * program.lower[j], reduced[j] * program.upper[j])
    assert bound == expected or abs(bound - expected) <= 1e-9 * max(
        1.0, abs(expected), float(np.abs(y).max()) * 1e4
    )

    solution = get("highs")(program, EXACT)
    if solution.objective is not None:
        assert bound <= solution.objective + 1e-6 * max(1.0, abs(solution.objective))


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
    later = model_of(Instance.model_validate({**instance.model_dump(), "jobs": jobs}), objective)
    point = later.nearest(decision)
    assume(point is not None and later.program.violation(point) <= 1e-9)
    carried = later.decode(point, None)
    assert "new" in carried.waiting
    stayed = {one.job: (one.pool, one.gpus) for one in carried.jobs}
    assert stayed == {one.job: (one.pool, one.gpus) for one in decision.jobs if one.job in stayed}


def test_a_reduced_cost_is_what_the_bound_rises_by_where_the_column_is_taken() -> None:
    """Also beside columns that can only be 0, which count for no bound."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        builder = ProgramBuilder()
        upper = np.where(rng.random(9) < 0.3, 0.0, 1.0)
        upper[::3] = 1.0
        columns = builder.columns(Block("x", 9), cost=rng.normal(0.0, 5.0, 9), upper=upper)
        builder.row("room", columns, rng.integers(1, 9, 9).astype(float), upper=12.0)
        program = builder.program(np.array([0, 3, 6, 9]))
        prices = np.array([-float(rng.uniform(0.0, 2.0))])
        above, bound = program.above_least(prices), program.lagrangian_bound(prices)
        for j in range(9):
            if upper[j] == 0.0:
                assert np.isinf(above[j])
                continue
            alone = np.where(np.arange(9) // 3 == j // 3, np.arange(9) == j, upper)
            taken = replace(program, upper=alone)
            assert taken.lagrangian_bound(prices) == pytest.approx(bound + above[j])
