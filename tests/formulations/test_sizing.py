"""Formulations and solvers of `sizing` against trying all: sets, quotas, least goodput, nodes that sleep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.agreement import moves_cost, require_optimum
from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from wattsched.formulations.sizing.data import options_of, without_options
from wattsched.formulations.sizing.left_out import decided_jobs
from wattsched.formulations.sizing.matching import matching_options
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.problems import problem
from wattsched.solvers import price
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sizing.checker import check

EXACT = Limits(gap=0.0)
PAIRS = [
    ("mckp", "highs"), ("mckp", "cpsat"), ("mckp", "price"), ("mckp", "pyomo:highs"),
    ("assignment", "highs"), ("assignment", "price"), ("intervals", "cpsat"),
]  # fmt: skip
SOLVERS = [*(("mckp", name) for name in ("auto", "price", "highs", "cpsat", "greedy", "powerflow"))]
SOLVERS += [("assignment", "highs"), ("assignment", "cpsat"), ("intervals", "cpsat")]
OBJECTIVE = st.sampled_from(sorted(OBJECTIVES))
ROUNDS = small_instances() | instances_with_sets()


@pytest.fixture
def _priced_when_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `price` find prices and kernels also where it would leave everything to HiGHS."""
    monkeypatch.setattr(price, "SMALL", 0)


def solved(instance: Instance, objective: str) -> Iterator[tuple[str, str, float | None]]:
    """Objective of the decision that each pair finds, which is checked; None when infeasible."""
    known = decided_jobs(instance)
    if len(without_options(known)):
        yield from ((*pair, None) for pair in PAIRS)
        return
    options = options_of(known)
    models = {build: problem("sizing").formulation(build)(known, objective) for build in dict(PAIRS)}
    for build, solver in PAIRS:
        model = models[build]
        solution = get(solver)(model.program, EXACT)
        if solution.x is None:
            assert solution.termination.reason == "infeasible", solution.termination
            yield build, solver, None
            continue
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
        yield build, solver, value


@pytest.mark.usefixtures("_priced_when_small")
@settings(max_examples=examples(500))
@given(instance=ROUNDS, objective=OBJECTIVE)
def test_formulations_and_solvers_agree_with_brute_force(instance: Instance, objective: str) -> None:
    truth = optimum(instance, objective)
    event("infeasible" if truth is None else "feasible")
    for build, solver, value in solved(instance, objective):
        if truth is None:
            assert value is None, (build, solver)
        else:
            assert value == pytest.approx(truth, rel=1e-6, abs=1e-7), (build, solver)


@st.composite
def short_of_joules(draw: st.DrawFn) -> Instance:
    """A round without budgets, most of whose jobs are of a tenant that is short of joules, or of grams."""
    content = draw(small_instances(min_jobs=2) | instances_with_sets()).model_dump()
    content["budgets"] = {"scope": content["budgets"]["scope"]}
    quota, most = draw(st.sampled_from([("energy_j", 150_000), ("carbon_g", 17)]))
    content["tenants"] = {"x": {quota: draw(st.integers(1, most)) * 1.0}, "y": {}, "z": {}}
    for job in content["jobs"]:
        # Of many jobs the options that are within the quota are too slow.
        job["deadline_s"] = draw(st.none() | st.floats(50.0, 5_000.0))
        if job["can_wait"] and job["preemptible"]:
            job["tenant"] = draw(st.sampled_from(["x", "x", "x", "y"]))
    return Instance.model_validate(content)


@st.composite
def with_goodput(draw: st.DrawFn, rounds: st.SearchStrategy[Instance]) -> Instance:
    """A round in which a goodput is demanded, often for the least energy, carbon or money."""
    instance, least = draw(rounds), draw(st.sampled_from([None, 0.5, 1.5, 3.0]))
    budgets = instance.budgets.model_copy(update={"least_goodput": least})
    return instance.model_copy(update={"budgets": budgets})


CASES = {
    "goodput": with_goodput(ROUNDS),
    "tenants": ROUNDS.filter(lambda instance: bool(instance.tenants)),
    "joules": short_of_joules(),
    "sleeping": with_goodput(sleeping(ROUNDS)),
}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    data=st.data(),
    objective=OBJECTIVE | st.sampled_from(["energy", "carbon", "money"]),
    how=st.sampled_from(SOLVERS),
    kinds=st.booleans(),
)
def test_every_solver_finds_the_optimum(
    case: str, data: st.DataObject, objective: str, how: tuple[str, str], kinds: bool
) -> None:
    instance = data.draw(CASES[case])
    require_optimum(instance.model_copy(update={"objective": objective}), how, kinds)


@pytest.mark.parametrize("solver", ["greedy", "powerflow"])
@settings(max_examples=examples(90))
@given(instance=ROUNDS, objective=OBJECTIVE)
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


def test_a_fixed_job_across_two_blocks_reserves_nothing_else() -> None:
    """On the line the two-GPU blocks of the nodes are neighbours, but they are no block of four."""
    types = {"A": {"idle_power_w": 0.0}}
    nodes = [{"name": name, "gpu_type": "A", "gpus": 6} for name in ("n0", "n1")]
    row = {"gpus": [3], "pool": ["A"], "completion_s": [1.0], "power_w": [1.0]}
    fixed = {
        "name": "fixed",
        "options": row,
        "preemptible": False,
        "current": {"gpus": 3, "pool": "A", "nodes": {"n0": [4, 5], "n1": [4]}},
    }
    small = {"gpus": [1, 4], "pool": ["A", "A"], "completion_s": [100.0, 1.0], "power_w": [1.0, 1.0]}
    last = {"gpus": [1], "pool": ["A"], "completion_s": [1.0], "power_w": [1.0]}
    jobs = [fixed, *({"name": n, "options": small} for n in "ab"), {"name": "c", "options": last}]
    instance = Instance.model_validate({"cluster": {"gpu_types": types, "nodes": nodes}, "jobs": jobs})
    assert optimum(instance, "total-completion") == 4.0
    for build, solver, value in solved(instance, "total-completion"):
        assert value == pytest.approx(4.0), (build, solver)
