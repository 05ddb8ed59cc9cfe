"""Columns that supply rows: found after the choices, or by rows that rule choices out, or with them."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.solvers import highs, price, supply
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits, Solution, Start, listening
from wattsched.topology.room import cuts

EXACT = Limits(gap=0.0)


def cut_nodes(nodes: int, gpus: int, jobs: list[list[tuple[int, float]]]) -> Program:
    """Each job waits at no cost, or takes a part of one of so many nodes for what it saves."""
    sizes = sorted({size for job in jobs for size, _ in job})
    ways = cuts(gpus, sizes) or []
    rows, start, costs, taken = ProgramBuilder(), [0], [], []
    for job in jobs:
        costs += [0.0, *(-saved for _, saved in job)]
        taken += [0, *(size for size, _ in job)]
        start.append(len(costs))
    choice = rows.columns(Block("choice", len(costs)), cost=np.array(costs))
    way = rows.columns(Block("way", len(ways)), upper=float(nodes))
    size_of = np.array(taken)
    rows.row("gpus", choice, size_of.astype(float), upper=float(nodes * gpus))
    for k, size in enumerate(sizes):
        row = rows.row(f"pieces{size}", choice, (size_of == size).astype(float), upper=0.0)
        rows.add(row, way, -np.array([cut[k] for cut in ways], dtype=float))
    rows.row("nodes", way, np.ones(len(ways)), upper=float(nodes))
    return rows.program(np.array(start), supply=len(ways))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    gpus = draw(st.integers(2, 9))
    part = st.tuples(st.integers(1, gpus), st.integers(1, 30).map(float))
    jobs = draw(st.lists(st.lists(part, min_size=1, max_size=3), min_size=1, max_size=8))
    return cut_nodes(draw(st.integers(1, 3)), gpus, jobs)


@settings(max_examples=examples(150), deadline=None)
@given(program=programs(), name=st.sampled_from(["auto", "price", "greedy", "cpsat", "highs"]))
def test_choices_are_supplied_and_the_best(program: Program, name: str) -> None:
    best, heard = highs.solve(program, EXACT), list[Solution]()
    with listening(heard.append):
        found = get(name)(program, EXACT)
    assert all(one.x is None or program.violation(one.x) <= 1e-9 for one in heard)
    assert found.bound <= best.objective + 1e-6
    if found.x is not None:
        assert program.violation(found.x) <= 1e-9
        assert found.objective == pytest.approx(program.objective(found.x))
    if get(name).exact:
        assert found.objective == pytest.approx(best.objective, rel=1e-9, abs=1e-6)
    if found.prices is not None:
        assert program.lagrangian_bound(found.prices) <= best.objective + 1e-6
        again = get(name)(program, EXACT, Start(found.x, found.prices))
        assert again.bound <= best.objective + 1e-6
        if get(name).exact:
            assert again.objective == pytest.approx(best.objective, rel=1e-9, abs=1e-6)


def test_a_row_rules_out_what_nodes_cannot_be_cut_into() -> None:
    """Two parts of 3 and one of 2 are as many GPUs as two nodes of 4 have, but they do not fit."""
    fits, lacking = ([(3, 9.0)], [(2, 4.0)], [(2, 4.0)]), ([(3, 9.0)], [(3, 9.0)], [(2, 4.0)])
    asked: list[int] = []

    def solve(small: Program, limits: Limits, start: Start | None) -> Solution:
        asked.append(small.n_rows)
        return price.solve(small, limits, start)

    for jobs, best, rows in ((fits, -17.0, [1]), (lacking, -18.0, [1, 2])):
        asked.clear()
        program = cut_nodes(2, 4, list(jobs))
        found = supply.solve_without(program, EXACT, None, solve, None)
        assert found.objective == best
        assert asked == rows
        assert found.prices is not None
        assert program.lagrangian_bound(found.prices) == pytest.approx(found.bound) == best
        # Prices of an earlier answer say that row, too.
        asked.clear()
        again = supply.solve_without(program, EXACT, Start(None, found.prices), solve, None)
        assert again.objective == best
        assert asked == rows[-1:]


def test_a_solver_that_takes_all_its_time_leaves_some_to_supply_its_choices() -> None:
    """Choices that were found within the limit were lost."""

    def solve(small: Program, limits: Limits, start: object) -> Solution:
        assert limits.time_s is not None
        time.sleep(limits.time_s)
        return price.solve(small, EXACT)

    program = cut_nodes(8, 9, [[(2 + k % 4, 5.0 + k)] for k in range(24)])
    found = supply.solve_without(program, Limits(time_s=2.0), None, solve, None)
    assert found.x is not None
    assert program.violation(found.x) <= 1e-9
