"""The explicit model of a window against brute force and against the patterns."""

from __future__ import annotations

import math

import pytest

from tests.brute_force.placement import optimum
from tests.strategies.windows import random_window
from wattsched.formulations.model import UnsuitableError
from wattsched.formulations.placement import assignment, patterns
from wattsched.formulations.placement.data import window_of
from wattsched.formulations.timer import Timer
from wattsched.instances.generators import generate
from wattsched.results.documents import instance_of
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.placement.checker import check


@pytest.mark.parametrize("block", range(4))
def test_it_finds_the_optimum_of_brute_force(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        instance = random_window(seed, most_tasks=5, most_nodes=4)
        model = assignment.build(window_of(instance))
        solution = get("pyomo:highs" if seed % 10 == 0 else "highs")(
            model.program, Limits(gap=0.0, time_s=60.0)
        )
        truth = float(optimum(instance))
        assert solution.objective == pytest.approx(truth, rel=1e-6, abs=1e-5), seed
        assert solution.bound <= truth + 1e-6 * max(1.0, abs(truth))
        assert solution.x is not None
        report = check(instance, model.decode(solution.x, {}))
        assert report.faults == []
        assert report.objective == pytest.approx(truth, rel=1e-6, abs=1e-5)


def test_cpsat_proves_equal_tasks_optimal() -> None:
    """Whose GPUs can take their shares in many ways, each with its own continuous columns."""
    quarter = {"cpu_milli": 0, "gpus": 1, "gpu_milli": 250}
    usual = ((3000, 650, 1), (1000, 1000, 1), (1000, 350, 1))
    instance = instance_of(
        {
            "name": "equal",
            "problem": "placement",
            "objective": "power-fragmentation",
            "gpu_types": {"X": {"idle_power_w": 30, "full_power_w": 330}},
            "nodes": [{"name": "n", "cpu_milli": 8000, "memory_mib": 1024, "gpus": 3, "gpu_type": "X"}],
            "tasks": [quarter | {"name": f"t{i}"} for i in range(3)],
            "workload": [{"cpu_milli": c, "gpus": 1, "gpu_milli": g, "count": n} for c, g, n in usual],
        }
    )
    model = assignment.build(window_of(instance))
    solution = get("cpsat")(model.program, Limits(time_s=5.0))
    assert solution.termination.reason == "optimal"
    assert solution.objective == pytest.approx(float(optimum(instance)), rel=1e-6)


def test_it_agrees_with_the_patterns_on_usual_nodes() -> None:
    for seed in range(3):
        window = window_of(generate("placement", jobs=5, seed=seed))
        found = [
            get("highs")(build(window).program, Limits(gap=1e-6, time_s=60.0)).objective
            for build in (patterns.build, assignment.build)
        ]
        assert found[0] == pytest.approx(found[1], rel=1e-5, abs=1e-4)


def test_a_window_that_is_too_large_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "MOST_VARIABLES", 10)
    with pytest.raises(UnsuitableError, match="'assignment' is for small windows, of up to 10 variables"):
        assignment.build(window_of(random_window(7, most_tasks=6, most_nodes=4)))


def test_a_model_that_takes_too_long_to_build_is_not_begun() -> None:
    instance = generate("placement", jobs=5, seed=0)
    model = assignment.build(window_of(instance), instance.objective, Timer(0.0))
    assert (model.cut, model.outside, model.program.n_columns) == (True, -math.inf, 0)


def test_a_window_of_nothing() -> None:
    instance = random_window(7).model_copy(update={"tasks": []})
    for build in (patterns.build, assignment.build):
        assert build(window_of(instance)).program.n_columns == 0
