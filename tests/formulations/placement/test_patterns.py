"""The program of a placement window against brute force, against its own parts, and on real data."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.placement import optimum
from tests.strategies.effort import examples
from tests.strategies.windows import random_window
from wattsched.formulations.model import Model
from wattsched.formulations.placement import outcome_search
from wattsched.formulations.placement.data import Window, window_of
from wattsched.formulations.placement.heuristics import greedy
from wattsched.formulations.placement.patterns import build
from wattsched.formulations.timer import Timer
from wattsched.instances.generators import generate
from wattsched.instances.placement.decision import PlacementDecision
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.replay.placement.stream import Experiment, window_at
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits, Solution, Start
from wattsched.verification.placement.bound import prove
from wattsched.verification.placement.checker import check

SEEDS = st.integers(0, 2**31)


def solved(
    model: Model[PlacementDecision], solver: str = "highs", gap: float = 0.0, most_s: float = 20.0
) -> Solution:
    return get(solver)(model.program, Limits(gap=gap, time_s=most_s), Start(model.start))


def close(value: float) -> float:
    return pytest.approx(value, rel=1e-7, abs=1e-6)


def built(window: Window, most: int) -> Model[PlacementDecision]:
    """The model where up to so many outcomes are kept that may be in a better decision."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome_search, "MOST_NEAR", most)
        return build(window)


def confirm(instance: PlacementInstance, model: Model[PlacementDecision], solution: Solution) -> None:
    """The independent checker agrees with the cost of a solution, and the way back leads to it again."""
    assert solution.x is not None
    decision = model.decode(solution.x, {})
    report = check(instance, decision)
    assert report.faults == []
    assert solution.objective == close(report.objective or 0.0)
    assert solution.bound <= (solution.objective or 0.0) + 1e-9 * max(1.0, model.program.offset)
    again = model.encode(decision)
    assert again is not None
    assert np.array_equal(again, solution.x)


@pytest.mark.parametrize("block", range(6))
def test_every_solver_finds_the_optimum_of_brute_force(block: int) -> None:
    for seed in range(50 * block, 50 * block + examples(50)):
        instance = random_window(seed, most_tasks=6 if seed % 5 == 0 else 4, most_nodes=4, most_gpus=4)
        truth = float(optimum(instance))
        model = build(window_of(instance))
        assert model.outside == math.inf
        for solver in ("highs", "cpsat", "price", *(["pyomo:highs"] if seed % 10 == 0 else [])):
            solution = solved(model, solver)
            assert solution.objective == close(truth), (seed, solver)
            confirm(instance, model, solution)
        assert model.prices is not None
        proof = prove(instance, model.prices)
        assert proof.faults == []
        assert proof.bound is not None
        assert proof.bound <= truth + 1e-7 * max(1.0, abs(truth))


@given(SEEDS)
def test_a_search_gives_decisions_between_the_optimum_and_one_by_one(seed: int) -> None:
    instance = random_window(seed, most_tasks=6, most_nodes=5)
    window = window_of(instance)
    best = float(optimum(instance))
    one_by_one = check(instance, greedy(window, instance.objective, Timer())).objective
    assert one_by_one is not None
    for most in (0, 4, 10_000):
        model = built(window, most)
        program = model.program
        assert model.start is not None
        assert program.violation(model.start) == 0.0
        solution = solved(model)
        confirm(instance, model, solution)
        assert solution.objective is not None
        rounding = 1e-9 * max(1.0, program.offset)
        start = program.objective(model.start)
        assert best - rounding <= solution.objective <= start + rounding
        assert start <= one_by_one + rounding
        # Decisions that the program does not hold cost as much as is said.
        assert min(solution.objective, model.outside) <= best + rounding
        assert model.prices is not None
        proof = prove(instance, model.prices)
        assert proof.bound is not None
        assert proof.bound <= best + rounding
        if most:
            assert model.outside < math.inf or solution.objective == close(best)


@given(SEEDS)
def test_every_outcome_costs_what_the_checker_says(seed: int) -> None:
    instance = random_window(seed, most_tasks=5)
    window = window_of(instance)
    for most in (0, 10_000):
        model = built(window, most=most)
        program = model.program
        for column in range(program.n_columns):
            x = np.zeros(program.n_columns)
            x[column] = 1.0
            assert program.violation(x) == 0.0
            report = check(instance, model.decode(x, {}))
            assert report.faults == []
            assert program.objective(x) == close(report.objective or 0.0)


def test_equal_nodes_and_tasks_are_used_in_their_order() -> None:
    document = {
        "problem": "placement",
        "objective": "power",
        "nodes": [{"name": name, "cpu_milli": 4000, "gpus": 1, "gpu_type": "T4"} for name in "abcd"],
        "tasks": [{"name": name, "cpu_milli": 3000, "gpus": 1} for name in "xyz"],
    }
    instance = PlacementInstance.model_validate(document)
    model = build(window_of(instance))
    solution = solved(model)
    assert solution.x is not None
    placed = model.decode(solution.x, {}).placed
    assert [(one.task, one.node) for one in placed] == [("x", "a"), ("y", "b"), ("z", "c")]


def test_tasks_that_fit_nowhere_wait_for_nothing() -> None:
    instance = random_window(1)
    full = [node.model_copy(update={"used_cpu_milli": node.cpu_milli}) for node in instance.nodes]
    instance = instance.model_copy(update={"nodes": full})
    model = build(window_of(instance))
    solution = solved(model)
    assert solution.objective == 0.0
    assert solution.x is not None
    assert model.decode(solution.x, {}).placed == []


def test_a_decision_of_other_nodes_or_tasks_is_no_point() -> None:
    instance = random_window(7, most_tasks=6, most_nodes=4)
    model = build(window_of(instance))
    decision = model.decode(model.start if model.start is not None else np.zeros(0), {})
    assert decision.placed
    for field in ("node", "task"):
        strange = [decision.placed[0].model_copy(update={field: "nobody"}), *decision.placed[1:]]
        assert model.encode(decision.model_copy(update={"placed": strange})) is None


def test_names_are_distinct_and_tell_nodes_and_tasks() -> None:
    program = build(window_of(random_window(0, most_tasks=5, most_nodes=5))).program
    for names in (program.row_names(), program.column_names()):
        assert len(set(names)) == len(names)
    assert program.row_names()[0].startswith("tasks:")


class Counted(Timer):
    """Timer that is over after it was asked so many times, and all its parts with it."""

    def __init__(self, asks: int) -> None:
        super().__init__()
        self.left = asks

    def over(self) -> bool:
        self.left -= 1
        return self.left < 0

    def share(self, share: float) -> Timer:
        return self


def stopped_everywhere(instance: PlacementInstance) -> list[float]:
    """Costs of the starts of models whose building stopped at each place where it may, soonest first."""
    window, costs = window_of(instance), list[float]()
    while True:
        timer = Counted(len(costs))
        model = build(window, instance.objective, timer)
        assert model.start is not None
        assert model.program.violation(model.start) == 0.0
        report = check(instance, model.decode(model.start, {}))
        assert report.faults == []
        costs.append(model.program.objective(model.start))
        assert costs[-1] == close(report.objective or 0.0)
        assert model.cut == (model.outside < math.inf and timer.left < 0)
        if timer.left >= 0:
            return costs


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "asks"), [(6, 4), (20, 8)])
def test_a_search_may_be_out_of_time_anywhere(jobs: int, asks: int) -> None:
    instance = generate("placement", jobs=jobs, seed=4)
    costs = stopped_everywhere(instance)
    one_by_one = check(instance, greedy(window_of(instance), instance.objective, Timer())).objective
    assert len(costs) > asks
    assert max(costs) <= (one_by_one or 0.0) + 1e-6
    # Last digits decide between equal places, so the first decision may be the best.
    assert costs[-1] <= costs[0] + 1e-6


@settings(max_examples=examples(20))
@given(SEEDS)
def test_a_search_of_a_small_window_may_be_out_of_time_anywhere(seed: int) -> None:
    instance = random_window(seed, most_tasks=6, most_nodes=5)
    assert stopped_everywhere(instance)[-1] >= float(optimum(instance)) - 1e-6


def test_only_a_lack_of_time_cuts_a_model() -> None:
    instance = generate("placement", jobs=6, seed=4)
    window = window_of(instance)
    assert build(window, instance.objective, Timer(0.0)).cut
    searched = built(window, most=0)
    assert searched.outside < math.inf
    assert not searched.cut
    assert not build(window, instance.objective, Timer(60.0)).cut


@pytest.fixture(scope="module")
def real(data_dir: Path) -> Window:
    folder = data_dir / "alibaba-gpu-2023"
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    tasks = read_tasks(folder / "openb_pod_list_default.csv")
    return window_of(window_at(Experiment(nodes, tasks, arrivals=0.8), "fgd", 42, 32))


@pytest.mark.slow
def test_a_real_window_is_better_than_one_by_one(real: Window) -> None:
    instance = real.instance
    model = build(real)
    solution = solved(model, most_s=6.0)
    confirm(instance, model, solution)
    one_by_one = check(instance, greedy(real, instance.objective, Timer()))
    assert one_by_one.faults == []
    assert (solution.objective or 0.0) < 0.95 * (one_by_one.objective or 0.0)


def test_a_search_ends_where_costs_are_smaller_than_the_digits_of_prices() -> None:
    """Outcomes of the linear program are found again at such prices, and would be for ever."""
    node = {"cpu_milli": 61_321, "gpus": 3, "gpu_type": "own", "used_cpu_milli": 28_839}
    document = {
        "problem": "placement",
        "objective": "fragmentation",
        "gpu_types": {"own": {"idle_power_w": 0, "full_power_w": 1000}},
        "cpu_types": {"c": {"idle_power_w": 11, "full_power_w": 100_011, "cores": 8}},
        "nodes": [
            {"name": "n0", **node},
            {"name": "n1", **node},
            {"name": "n2", "cpu_milli": 45_171, "gpus": 2, "gpu_type": "own", "cpu_type": "c"},
        ],
        "tasks": [
            {"name": "t0", "cpu_milli": 4000, "gpus": 1},
            {"name": "t1", "cpu_milli": 0, "gpus": 1, "gpu_milli": 500},
            {"name": "t2", "cpu_milli": 1000, "gpus": 0},
            {"name": "t3", "cpu_milli": 8000, "gpus": 2, "memory_mib": 1024},
        ],
        "workload": [
            {"cpu_milli": 8000, "gpus": 1, "count": 1},
            {"cpu_milli": 0, "gpus": 1, "gpu_milli": 999, "count": 3},
        ],
        "fragmentation_w_per_gpu": 1e9,
        "waiting_w": 50.0,
        "waiting_w_per_gpu": 0.5,
    }
    result = wattsched.solve(PlacementInstance.model_validate(document), time_limit=20.0)
    assert result.termination.limit is None
