"""Branching on the numbers of choices by size, against all points of small programs with sets."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import csc_array

from tests.strategies.effort import examples
from wattsched.formulations.program import Program
from wattsched.solvers import auto, sizes
from wattsched.solvers.points import feasible
from wattsched.solvers.sizes import Merged
from wattsched.solvers.solution import Limits, Start

from .programs import knapsack, program_of, truth

GPUS = (1, 2, 4, 8)


def random_sets(rng: np.random.Generator, jobs: int, *, least: bool = False) -> Program:
    """Jobs that wait, run alone on some GPUs, or share one GPU in sets of two or three of them."""
    every = [*combinations(range(jobs), 2), *combinations(range(jobs), 3)]
    drawn = rng.permutation(len(every))[: int(rng.integers(1, min(len(every), 2 * jobs)))]
    columns = [(j, -1, 0.0, 0.0, 0.0) for j in range(jobs)]  # job, set, cost, GPUs, watts
    columns += [
        (j, -1, -rng.uniform(1, 10), float(g), g * rng.uniform(1, 3))
        for j in range(jobs)
        for g in rng.choice(GPUS, int(rng.integers(1, 3)), replace=False)
    ]
    for number, members in enumerate(every[k] for k in drawn):
        columns.append((members[0], number, -rng.uniform(2, 15), 1.0, rng.uniform(1, 4)))
        columns += [(j, number, 0.0, 0.0, 0.0) for j in members[1:]]
    job, of_set, cost, gpus, watts = map(np.array, zip(*sorted(columns), strict=True))
    links = [
        (first := np.flatnonzero(of_set == number)[:1], other)
        for number in range(len(drawn))
        for other in np.flatnonzero(of_set == number)[1:]
    ]
    rows = np.zeros((len(links), len(job)))
    for row, (first, other) in enumerate(links):
        rows[row, first], rows[row, other] = 1.0, -1.0
    start = np.searchsorted(job, np.arange(jobs + 1))
    uses = np.vstack([gpus, watts, rows])
    upper = np.concatenate([[gpus.sum() // 3, watts.sum() / 4], np.zeros(len(rows))])
    lower = np.concatenate([[-np.inf, watts.sum() * 0.24 if least else -np.inf], np.zeros(len(rows))])
    return program_of(cost, uses, upper, start, row_lower=lower)


@pytest.mark.parametrize("seed", range(examples(40)))
@pytest.mark.parametrize("few", [2, 2_000])
def test_the_optimum_is_found_and_proven(seed: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_FIRST_COLUMNS", few)
    program = random_sets(np.random.default_rng(seed), jobs=4 + seed % 2, least=seed % 4 == 0)
    merged = Merged.of(program)
    assert merged is not None
    solution, optimum = sizes.solve(program, merged, Limits(gap=0.0)), truth(program)
    if optimum is None:
        assert solution.termination.reason == "infeasible"
    else:
        assert solution.termination.reason == "optimal"
        assert feasible(program, solution.x)
        assert solution.objective == pytest.approx(optimum, abs=1e-6)
        assert program.lagrangian_bound(solution.prices) <= optimum + 1e-6


def test_without_time_a_start_is_kept() -> None:
    program = random_sets(np.random.default_rng(5), jobs=5)
    merged = Merged.of(program)
    assert merged is not None
    best = sizes.solve(program, merged, Limits(gap=0.0))
    known = sizes.solve(program, merged, Limits(gap=0.0, time_s=0.0), Start(best.x))
    assert known.objective == best.objective
    assert known.bound <= best.objective


def test_programs_without_sets_or_sizes_are_left_alone() -> None:
    assert Merged.of(knapsack(20, 10)) is None
    program = random_sets(np.random.default_rng(1), jobs=4)
    assert Merged.of(program) is not None
    uses = program.matrix.toarray()
    uses[:2] *= 0.37
    assert Merged.of(replace(program, matrix=csc_array(uses))) is None


def test_rows_of_sets_do_not_make_a_program_too_wide_for_prices() -> None:
    program = random_sets(np.random.default_rng(2), jobs=60)
    assert auto.portfolio(program, 1) == ["price"]
