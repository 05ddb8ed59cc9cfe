"""The formulations of `sizing` agree with one another and with a brute force."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.brute_force.agreement import moves_cost
from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from wattsched.formulations.sizing.data import options_of, without_options
from wattsched.formulations.sizing.left_out import decided_jobs
from wattsched.formulations.sizing.matching import matching_options
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.instance import Instance
from wattsched.problems import problem
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sizing.checker import check

EXACT = Limits(gap=0.0)


def solved(instance: Instance, name: str, objective: str) -> float | None:
    """Optimum by a formulation, its decision checked; None when infeasible."""
    known = decided_jobs(instance)
    if len(without_options(known)):
        return None
    options = options_of(known)
    model = problem("sizing").formulation(name)(options, objective)
    solver = "highs" if model.program.intervals is None else "cpsat"
    solution = get(solver)(model.program, EXACT)
    if solution.x is None:
        assert solution.termination.reason == "infeasible", solution.termination
        return None
    decision = model.decode(solution.x, solution.starts)
    report = check(instance.model_copy(update={"objective": objective}), decision)
    assert report.faults == []
    chosen = matching_options(options, decision)
    assert (chosen >= 0).all()
    cost = OBJECTIVES[objective].cost(options)[chosen]
    worst = OBJECTIVES[objective].combine == "worst" and len(cost) > 0
    value = model.program.reported(float(cost.max() if worst else cost.sum()))
    if not moves_cost(report.totals):
        assert report.objective == pytest.approx(value, rel=1e-9, abs=1e-9)
    return value


@settings(max_examples=examples(400))
@given(instance=small_instances(), objective=st.sampled_from(sorted(OBJECTIVES)))
def test_formulations_agree_with_brute_force(instance: Instance, objective: str) -> None:
    truth = optimum(instance, objective)
    event("infeasible" if truth is None else f"feasible, {objective}")
    for name in problem("sizing").formulations:
        value = solved(instance, name, objective)
        if truth is None:
            assert value is None, name
        else:
            assert value == pytest.approx(truth, rel=1e-6, abs=1e-7), name


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
    for name in problem("sizing").formulations:
        assert solved(instance, name, "total-completion") == pytest.approx(4.0)
