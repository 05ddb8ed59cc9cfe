"""`price` against HiGHS on random and adversarial programs, with its whole machinery switched on."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from tests.strategies.effort import examples
from wattsched.formulations.program import Program
from wattsched.solvers import core, dual, highs, kernels, price
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.solution import Limits, Solution

from .programs import knapsack, program_of, programs, truth, with_column

EXACT = Limits(gap=0.0, time_s=60.0)


@pytest.fixture(autouse=True, params=["cutting planes", "linear program"])
def dual_by(request, monkeypatch):
    """Way to the prices; small programs would go to HiGHS as they are."""
    monkeypatch.setattr(price, "SMALL", 0)
    monkeypatch.setattr(price, "LINKED", 0)
    if request.param == "cutting planes":
        monkeypatch.setattr(dual, "SMALL", 0)
    return request.param


def certified_in_rationals(program: Program, solution: Solution) -> None:
    """The bound that the prices prove, in exact arithmetic, is not above any point's cost."""
    assert solution.prices is not None
    y = [Fraction(float(price)) for price in solution.prices]
    for price_, low, high in zip(y, program.row_lower, program.row_upper, strict=True):
        assert price_ <= 0 or np.isfinite(low)
        assert price_ >= 0 or np.isfinite(high)
    matrix = program.matrix.tocsc()
    value = Fraction(program.offset)
    value += sum(
        p * Fraction(float(low if p > 0 else high))
        for p, low, high in zip(y, program.row_lower, program.row_upper, strict=True)
        if p
    )
    reduced = []
    for j in range(program.n_columns):
        entries = range(matrix.indptr[j], matrix.indptr[j + 1])
        uses = sum(y[matrix.indices[e]] * Fraction(float(matrix.data[e])) for e in entries)
        reduced.append(Fraction(float(program.cost[j])) - uses)
    for a, b in zip(program.group_start, program.group_start[1:], strict=False):
        value += min(reduced[a:b])
    for j in range(program.n_choices, program.n_columns):
        if reduced[j]:
            value += reduced[j] * Fraction(float(program.lower[j] if reduced[j] > 0 else program.upper[j]))
    assert float(value) == pytest.approx(program.lagrangian_bound(solution.prices), rel=1e-9, abs=1e-7)
    if solution.objective is not None:
        assert float(value) <= solution.objective + 1e-9 * max(1.0, abs(solution.objective))


def random_program(seed: int) -> Program:
    """1 to 40 rows of watts and GPUs over 2 to 15 groups, some equal rows and ties."""
    rng = np.random.default_rng(seed)
    groups, rows = int(rng.integers(2, 16)), int(rng.integers(1, 41))
    sizes = rng.integers(1, 9, groups)
    n, start = int(sizes.sum()), np.concatenate([[0], np.cumsum(sizes)])
    uses = rng.choice([0.0, 1.0, 2.0, 4.0, 8.0], (rows, n)) * (rng.random((rows, n)) < rng.uniform(0.2, 1.0))
    uses *= rng.choice([1.0, 37.3, 1e-3], (rows, 1))
    uses[:, start[:-1]] = 0.0  # the first column of a group waits
    cost = np.round(rng.lognormal(3, 1, n), int(rng.integers(0, 4)))
    cost[start[:-1]] += rng.choice([0.0, 30.0])
    return program_of(cost, uses, rng.uniform(0.05, 0.7) * uses.sum(axis=1) / sizes.mean(), start)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_random_programs(block, dual_by):
    first = 50 * block + (dual_by == "cutting planes")
    for seed in range(first, 50 * block + 50, 2):
        program = random_program(seed)
        gap = (0.0, 1e-4, 1e-2)[seed % 3]
        solution = price.solve(program, Limits(gap=gap, time_s=60.0, seed=seed))
        truth = highs.solve(program, EXACT)
        tolerance = 1e-7 * max(1.0, abs(truth.objective))
        assert solution.termination.reason == "optimal", (seed, solution.termination)
        assert solution.bound <= truth.objective + tolerance, seed
        assert (
            truth.objective - tolerance
            <= solution.objective
            <= truth.objective + gap * abs(solution.objective) + tolerance
        ), seed
        assert program.violation(solution.x) <= 1e-9
        assert np.all(solution.prices <= 0.0), seed
        certified_in_rationals(program, solution)


@pytest.fixture
def branching(monkeypatch):
    """Kernels of hardly a column, so that branching has to find and to prove."""
    for name, few in {"KERNELS": (0,), "FEW_COLUMNS": 0, "_KERNEL_NODES": 0, "_NODE_KERNEL": 1}.items():
        monkeypatch.setattr(price, name, few)
    monkeypatch.setattr(price, "_NODES", 10_000)
    nodes, split = [], price._Branching._split
    monkeypatch.setattr(
        price._Branching, "_split", lambda self, node: nodes.append(node) or split(self, node)
    )
    return nodes


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_branching_finds_the_optimum_of_random_programs(block, branching):
    for seed in range(1000 + 15 * block, 1015 + 15 * block):
        program = random_program(seed)
        solution, truth = price.solve(program, EXACT), highs.solve(program, EXACT)
        tolerance = 1e-7 * max(1.0, abs(truth.objective))
        assert solution.termination.reason == "optimal", (seed, solution.termination)
        assert solution.objective == pytest.approx(truth.objective, abs=tolerance), seed
        assert solution.bound == pytest.approx(truth.objective, abs=tolerance), seed
    assert len(branching) > 30


@pytest.mark.slow
def test_points_that_neighbourhoods_find_lead_to_the_optimum(branching, monkeypatch):
    monkeypatch.setattr(price, "_MOST_COLUMNS", 0)
    monkeypatch.setattr(core, "MOST_ROWS", 0)
    found, improved = [], kernels.improved
    monkeypatch.setattr(price, "improved", lambda *a: (found.append(x) or x for x in improved(*a)))
    for seed in range(1000, 1030):
        program = random_program(seed)
        solution, truth = price.solve(program, EXACT), highs.solve(program, EXACT)
        assert solution.termination.reason == "optimal", (seed, solution.termination)
        assert solution.objective == pytest.approx(truth.objective, rel=1e-7, abs=1e-7), seed
    assert found


@settings(max_examples=examples(60))
@given(program=programs)
def test_programs_of_all_kinds(program):
    """Equality and range rows, free integer and continuous columns, bottlenecks."""
    best = truth(program)
    solution = price.solve(program, EXACT)
    if best is None:
        assert solution.termination.reason == "infeasible"
        return
    assert solution.termination.reason == "optimal"
    assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert solution.bound <= best + 1e-6 * max(1.0, abs(best))
    # With an unbounded column the last digit of a price decides between a bound and none.
    if np.isfinite(program.upper).all():
        certified_in_rationals(program, solution)


START = np.arange(0, 21, 4)
RNG = np.random.default_rng(5)
COST, USES = RNG.integers(1, 50, 20), RNG.integers(0, 9, (2, 20))
ADVERSARIAL = {
    "all options equal": program_of(np.full(20, 7.0), np.ones((1, 20)), [5.0], START),
    "all equal and too little room": program_of(np.full(20, 7.0), np.ones((1, 20)), [4.0], START),
    "zero capacity": program_of(COST, USES * (np.arange(20) % 4 > 0), [0.0, 0.0], START),
    "huge coefficients": program_of(COST, USES * 1e9, [1.2e10, 1.5e10], START),
    "tiny coefficients": program_of(COST * 1e-6, USES * 1e-6, [1.2e-5, 1.5e-5], START),
    "costs of all sizes": program_of(10.0 ** (np.arange(20) % 7), USES, [12.0, 15.0], START),
    "negative costs": program_of(-COST, USES, [12.0, 15.0], START),
    "rows that never bind": program_of(COST, USES, [1e6, 1e6], START),
    "empty rows": program_of(COST, USES * 0, [0.0, 3.0], START),
    "an empty row that cannot hold": program_of(COST, USES * 0, [-1.0, 3.0], START),
    "one row twice": program_of(COST, np.vstack([USES, USES]), [12.0, 15.0, 12.0, 15.0], START),
    "one group": program_of(COST, USES, [2.0, 3.0], np.array([0, 20])),
    "no rows": program_of(COST, np.zeros((0, 20)), [], START),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial_programs(name):
    program = ADVERSARIAL[name]
    solution, truth = price.solve(program, EXACT), highs.solve(program, EXACT)
    assert solution.termination.reason == truth.termination.reason
    if truth.objective is not None:
        assert solution.objective == pytest.approx(truth.objective, rel=1e-9)
        assert solution.bound == pytest.approx(truth.objective, rel=1e-7)
        certified_in_rationals(program, solution)


def test_one_group_with_a_million_columns():
    rng = np.random.default_rng(1)
    n = 1_000_000
    program = program_of(rng.random(n), rng.random((1, n)), [0.1], np.array([0, n]))
    solution = price.solve(program, EXACT)
    allowed = program.matrix.toarray()[0] <= 0.1
    assert solution.objective == program.cost[allowed].min()
    assert solution.termination.reason == "optimal"


@pytest.mark.parametrize("solver", [price, highs])
def test_an_unbounded_program_is_an_error_with_a_reason(solver):
    solution = solver.solve(with_column(random_program(1), -1.0, integer=solver is highs), EXACT)
    assert solution.x is None
    assert solution.termination.reason == "error"
    assert "unbounded" in solution.termination.detail


def test_a_lumpy_job_is_branched_on():
    program = knapsack(300, 20, pools=2, seed=4)
    solution = price.solve(program, Limits(gap=1e-6, time_s=60.0))
    assert solution.termination.reason == "optimal"
    truth = highs.solve(program, Limits(gap=1e-4, time_s=60.0))
    assert truth.bound - 1e-6 * abs(truth.bound) <= solution.objective <= truth.objective * (1 + 1e-6)


def test_costs_of_any_size_are_solved_to_the_same_gap():
    """Nothing counts as closed because costs are small."""
    plain = knapsack(150, 20)
    for factor in (1e-9, 1e6):
        scaled = dataclasses.replace(plain, cost=plain.cost * factor)
        solution = price.solve(scaled, Limits(gap=1e-5))
        assert solution.termination.reason == "optimal"
        assert solution.objective - solution.bound <= 1e-5 * abs(solution.objective)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2])
def test_strongly_correlated_jobs_are_counted(rows):
    """Every job saves the same per use and a constant more: no split of a job raises the bound."""
    rng = np.random.default_rng(rows)
    use = rng.integers(1, 1001, (rows, 200)).astype(float)
    cost, uses = np.zeros(400), np.zeros((rows, 400))
    cost[1::2], uses[:, 1::2] = -(use.mean(axis=0) + 10.0), use
    program = program_of(cost, uses, use.sum(axis=1) // 2, np.arange(0, 401, 2))
    lp = solve_lp(program, Limits())
    solution = price.solve(program, Limits(gap=1e-5))
    assert solution.termination.reason == "optimal"
    # What the prices alone prove does not close the gap.
    assert lp.bound < solution.objective - 1e-5 * abs(solution.objective)
