"""Sets of jobs that may share GPUs, as options of `sizing`: all formulations and solvers, and brute force."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.agreement import moves_cost
from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets
from wattsched.documents import verdict_on
from wattsched.formulations.sizing.data import options_of, without_options
from wattsched.formulations.sizing.left_out import decided_jobs
from wattsched.formulations.sizing.matching import matching_options
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.instance import Instance
from wattsched.problems import problem
from wattsched.solvers import price
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sizing.checker import check

EXACT = Limits(gap=0.0)
PAIRS = [
    ("mckp", "highs"), ("mckp", "cpsat"), ("mckp", "price"), ("mckp", "pyomo:highs"),
    ("assignment", "highs"), ("assignment", "price"), ("intervals", "cpsat"),
]  # fmt: skip
OBJECTIVE = st.sampled_from(sorted(OBJECTIVES))


@pytest.fixture
def _priced_when_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `price` find prices and kernels also where it would leave everything to HiGHS."""
    monkeypatch.setattr(price, "SMALL", 0)


def solved(instance: Instance, objective: str, build: str, solver: str) -> float | None:
    """Objective of the decision found, which is checked; None when infeasible."""
    known = decided_jobs(instance)
    if len(without_options(known)):
        return None
    options = options_of(known)
    model = problem("sizing").formulation(build)(options, objective)
    solution = get(solver)(model.program, EXACT)
    if solution.x is None:
        assert solution.termination.reason == "infeasible", solution.termination
        return None
    decision = model.decode(solution.x, solution.starts)
    report = check(instance.model_copy(update={"objective": objective}), decision)
    assert report.faults == []
    if any(assignment.set for assignment in decision.jobs):
        event("shares")
    chosen = matching_options(options, decision)
    assert (chosen >= 0).all()
    cost = OBJECTIVES[objective].cost(options)[chosen]
    worst = OBJECTIVES[objective].combine == "worst" and len(cost) > 0
    value = model.program.reported(float(cost.max() if worst else cost.sum()))
    if not moves_cost(report.totals):
        assert report.objective == pytest.approx(value, rel=1e-9, abs=1e-9)
    return value


@pytest.mark.usefixtures("_priced_when_small")
@settings(max_examples=examples(300))
@given(instance=instances_with_sets(), objective=OBJECTIVE)
def test_formulations_and_solvers_agree_with_brute_force(instance: Instance, objective: str) -> None:
    truth = optimum(instance, objective)
    event("infeasible" if truth is None else "feasible")
    for build, solver in PAIRS:
        value = solved(instance, objective, build, solver)
        if truth is None:
            assert value is None, (build, solver)
        else:
            assert value == pytest.approx(truth, rel=1e-6, abs=1e-7), (build, solver)


@pytest.mark.parametrize("solver", ["greedy", "powerflow"])
@settings(max_examples=examples(60))
@given(instance=instances_with_sets(), objective=OBJECTIVE)
def test_rules_never_find_what_is_impossible(instance: Instance, objective: str, solver: str) -> None:
    truth = optimum(instance, objective)
    result = wattsched.solve(instance, solver=solver, objective=objective)
    assert result.faults == []
    if truth is None:
        assert result.termination.reason in ("infeasible", "no_solution")
    elif result.objective is not None:
        assert result.bound is not None
        sign = 1 if result.sense == "min" else -1
        slack = 1e-6 * max(1.0, abs(truth))
        assert sign * result.bound - slack <= sign * truth <= sign * result.objective + slack
        decision = result.decision
        assert decision is not None
        assert solver == "greedy" or not any(assignment.set for assignment in decision.jobs)


def pairs(jobs: int, gpus: int, power_w: float) -> Instance:
    """Jobs on up to four GPUs; neighbours may share one at 0.8 of their rates for 1.2 times the watts."""
    gpu = {"gpus": [1, 2, 4], "pool": ["A"] * 3, "rate": [1, 1.8, 3], "power_w": [200, 390, 770]}
    names = [f"job{j}" for j in range(jobs)]
    nodes = [{"name": f"n{n}", "gpu_type": "A", "gpus": 8} for n in range(gpus // 8)]
    sets = [
        {"name": f"{a}+{b}", "pool": "A", "gpus": 1, "power_w": 240.0, "rates": {a: 0.8, b: 0.8}}
        for i, a in enumerate(names)
        for b in names[i + 1 : i + 5]
    ]
    return Instance.model_validate(
        {
            "objective": "goodput",
            "cluster": {"gpu_types": {"A": {"idle_power_w": 40.0}}, "nodes": nodes},
            "budgets": {"power_w": power_w},
            "tables": {"all": gpu},
            "jobs": [{"name": name, "options": "all"} for name in names],
            "sets": sets,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["price", "highs", "auto"])
def test_large_rounds_share(solver: str) -> None:
    """Beyond the sizes that `price` leaves to HiGHS."""
    instance = pairs(160, 64, 9000.0)
    result = wattsched.solve(instance, solver=solver, gap=1e-3)
    assert result.termination.reason == "optimal"
    assert result.size is not None
    assert result.size.columns > 1000
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []
    assert result.decision is not None
    assert sum(assignment.set is not None for assignment in result.decision.jobs) > 40
    without = wattsched.solve(instance.model_copy(update={"sets": []}), gap=1e-3)
    assert without.objective is not None
    assert result.objective is not None
    assert result.objective > 1.1 * without.objective


def test_greedy_shares_where_that_pays() -> None:
    instance = pairs(160, 64, 9000.0)
    result = wattsched.solve(instance, solver="greedy")
    assert result.gap is not None
    assert result.gap < 0.05
    assert result.decision is not None
    assert any(assignment.set for assignment in result.decision.jobs)
