"""The program of a placement window against brute force, against its own parts, and on real data."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from brute_force.placement_window import optimum
from hypothesis import given
from hypothesis import strategies as st
from strategies.windows import random_tasks, random_window

from wattsched.formulations.placement.assignment import Assignment, build
from wattsched.instances.arrivals import arrival_order
from wattsched.instances.placement.tables import Placements, Window, target_workload
from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits, Solution, Start
from wattsched.verification.placement.checker import check_placements

TIE_BREAK = 0.5
SEEDS = st.integers(0, 2**31)


def solved(assignment: Assignment, solver: str = "highs", gap: float = 0.0) -> Solution:
    return get(solver)(assignment.program, Limits(gap=gap, time_s=20.0), Start(assignment.start))


def close(value: float) -> float:
    return pytest.approx(value, rel=1e-7, abs=1e-7)


def confirm(assignment: Assignment, solution: Solution) -> Placements:
    """The independent checker agrees with the cost of a solution."""
    assert solution.x is not None
    assert solution.objective is not None
    placements = assignment.placements(solution.x)
    report = check_placements(assignment.window, placements)
    assert report.faults == ()
    # Equal nodes are used in their order, which breaks ties best.
    ties = solution.objective - report.objective
    units = (
        assignment.window.alpha / assignment.window.power_ref_w,
        (1 - assignment.window.alpha) / assignment.window.fragmentation_ref_milli,
    )
    rounding = 1e-9 * max(1.0, assignment.program.offset)
    assert -rounding <= ties <= TIE_BREAK * min(u for u in units if u > 0) + rounding
    assert solution.bound <= solution.objective
    return placements


@pytest.mark.parametrize("block", range(6))
def test_every_solver_finds_the_optimum_of_brute_force(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        window = random_window(seed, most_tasks=5 if seed % 5 == 0 else 4, most_nodes=4, most_gpus=4)
        truth = optimum(window, TIE_BREAK)
        assignment = build(window)
        assert assignment.exact
        for solver in ("highs", "cpsat", "price", *(["pyomo:highs"] if seed % 10 == 0 else [])):
            solution = solved(assignment, solver)
            assert solution.objective == close(truth), (seed, solver)
            confirm(assignment, solution)


@given(SEEDS)
def test_a_search_gives_decisions_between_the_optimum_and_one_by_one(seed: int) -> None:
    window = random_window(seed, most_tasks=6, most_nodes=5)
    best = solved(build(window)).objective
    for width in (1, 4):
        assignment = build(window, width=width, most_outcomes=0)
        program = assignment.program
        assert not assignment.exact or program.n_columns == 0
        assert program.violation(assignment.start) == 0.0
        solution = solved(assignment)
        confirm(assignment, solution)
        assert solution.objective is not None
        assert best is not None
        rounding = 1e-9 * max(1.0, program.offset)
        assert best - rounding <= solution.objective <= program.objective(assignment.start) + rounding


@given(SEEDS)
def test_the_order_of_the_nodes_only_breaks_ties(seed: int) -> None:
    window = random_window(seed)
    order = np.random.default_rng(seed).permutation(len(window.nodes))
    moved = on_nodes(window, order)
    one, other = (solved(build(w, tie_break=0.0)).objective for w in (window, moved))
    assert one == close(other or 0.0)


def on_nodes(window: Window, index: np.ndarray) -> Window:
    """The window on some of its nodes, in this order."""
    nodes = window.nodes
    columns = {n: getattr(nodes, n)[index] for n in ("cpu_milli", "memory_mib", "gpus", "model")}
    names = tuple(nodes.names[i] for i in index)
    power = type(window.power)(**{n: column[index] for n, column in vars(window.power).items()})
    free = {n: getattr(window, n)[index] for n in ("cpu_free_milli", "memory_free_mib", "gpu_free_milli")}
    return replace(window, nodes=replace(nodes, names=names, **columns), power=power, **free)


@given(SEEDS)
def test_one_task_goes_where_it_costs_least(seed: int) -> None:
    window = random_window(seed, most_tasks=1)
    size = window.gpu_free_milli.shape[1]
    costs = [check_placements(window, Placements.none(1, size)).objective]
    for node in range(len(window.nodes)):
        for gpus in combinations(range(size), int(window.tasks.gpus[0])):
            mask = np.isin(np.arange(size), gpus)[None]
            report = check_placements(window, Placements(np.array([node]), mask))
            costs += [report.objective] * (not report.faults)
    assignment = build(window, tie_break=0.0)
    assert solved(assignment).objective == close(min(costs))


@given(SEEDS)
def test_every_outcome_costs_what_the_checker_says(seed: int) -> None:
    window = random_window(seed, most_tasks=5)
    for most in (0, None):
        assignment = build(window, most_outcomes=most, tie_break=0.0)
        program = assignment.program
        for column in assignment.columns.column:
            x = assignment.columns.point((assignment.columns.column == column).astype(int))
            assert program.violation(x) == 0.0
            report = check_placements(window, assignment.placements(x))
            assert report.faults == ()
            assert program.objective(x) == close(report.objective)


def test_of_equal_decisions_the_one_on_fewer_and_earlier_nodes_is_best() -> None:
    window = random_window(4, most_tasks=1)
    nodes = on_nodes(window, np.zeros(5, dtype=int))
    nodes = replace(nodes, nodes=replace(nodes.nodes, names=tuple("abcde")))
    tasks = random_tasks(np.random.default_rng(0), 2)
    tasks = replace(
        tasks, cpu_milli=np.array([1000, 1000]), gpus=np.array([0, 0]), gpu_milli=np.array([0, 0]),
        spec=np.array([0, 0]), memory_mib=np.array([0, 0]),
    )  # fmt: skip
    free = np.full(5, 2000)
    nodes = replace(nodes, tasks=tasks, cpu_free_milli=free, alpha=1.0)
    assignment = build(nodes)
    solution = solved(assignment)
    assert confirm(assignment, solution).node.tolist() == [0, 0]


def test_tasks_that_fit_nowhere_are_rejected_for_nothing() -> None:
    window = random_window(1)
    full = replace(window, cpu_free_milli=np.zeros(len(window.nodes), dtype=int))
    assignment = build(full)
    solution = solved(assignment)
    assert solution.objective == 0.0
    assert (confirm(assignment, solution).node < 0).all()


def test_names_are_distinct_and_tell_nodes_and_tasks() -> None:
    program = build(random_window(0, most_tasks=5, most_nodes=5), most_outcomes=None).program
    for names in (program.row_names(), program.column_names()):
        assert len(set(names)) == len(names)
    assert program.row_names()[0].startswith("tasks:")


@pytest.mark.parametrize(
    ("name", "value"), [("width", 0), ("nearby", -1), ("most_outcomes", -1), ("tie_break", -0.5)]
)
def test_what_a_search_cannot_take_is_told(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        build(random_window(0), **{name: value})


def test_a_real_window_is_better_than_one_by_one(data_dir) -> None:
    folder = data_dir / "alibaba-gpu-2023"
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    tasks = read_tasks(folder / "openb_pod_list_default.csv")
    order = arrival_order(tasks, nodes.gpu_capacity_milli, seed=42)
    window = Window.of(nodes, target_workload(tasks), tasks.take(order[:32]), alpha=0.1)
    assignment = build(window)
    solution = solved(assignment, gap=1e-3)
    placements = confirm(assignment, solution)
    assert len(placements.rejected) == 0
    # One by one: a window for each task.
    total = 0.0
    for task in range(32):
        alone = build(replace(window, tasks=window.tasks.take(np.array([task]))), tie_break=0.0)
        answer = solved(alone)
        assert answer.x is not None
        total += answer.objective or 0.0
        window = after(alone, answer.x, window)
    assert solution.objective is not None
    assert solution.objective < total


def after(assignment: Assignment, x: np.ndarray, window: Window) -> Window:
    """The window's nodes after the decision."""
    placements, tasks = assignment.placements(x), assignment.window.tasks
    cpu, memory, gpu = (
        a.copy() for a in (window.cpu_free_milli, window.memory_free_mib, window.gpu_free_milli)
    )
    for task, node in enumerate(placements.node):
        cpu[node] -= tasks.cpu_milli[task]
        memory[node] -= tasks.memory_mib[task]
        gpu[node] -= np.where(placements.gpus[task], tasks.gpu_milli[task], 0)
    return replace(window, cpu_free_milli=cpu, memory_free_mib=memory, gpu_free_milli=gpu)
