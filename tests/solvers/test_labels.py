"""Labels against all points of small programs, and against HiGHS on others."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched import Session, generate
from wattsched.formulations.program import Program
from wattsched.solvers import highs, labels, registry
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.points import feasible
from wattsched.solvers.solution import Limits, Solution
from wattsched.solving.engine import model_of

from .programs import points, program_of

EXACT = Limits(gap=0.0)


def random_program(seed: int, most_groups: int = 6, *, others: float = 1.0) -> Program:
    """Groups of 1 to 5 columns under a row of whole numbers and others of any; ties, negative uses.

    The others have this share of what could be used of them, or more, or no limit.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, int(rng.integers(1, most_groups + 1)))
    start = np.concatenate([[0], np.cumsum(sizes)])
    n, unit = int(start[-1]), float(rng.choice([1.0, 2.0, 3.0]))
    use = unit * rng.integers(int(rng.choice([0, -3])), int(rng.choice([4, 9, 70])), n)
    if rng.random() < 0.7:
        use[start[:-1]] = 0.0  # the first column of a group waits
    cost = rng.uniform(0.0, 100.0, n) if rng.random() < 0.6 else rng.integers(0, 5, n).astype(float)
    uses, capacity = [use], [rng.uniform(0.1, 0.8) * np.abs(use).sum() / 2]
    for _ in range(int(rng.integers(0, 3))):
        more = rng.uniform(0.0, 9.0, n) if rng.random() < 0.5 else rng.integers(0, 4, n).astype(float)
        most = np.maximum.reduceat(more, start[:-1]).sum()
        uses.append(more)
        capacity.append(float(rng.choice([most * rng.uniform(others, 1.0), most, np.inf])))
    order = rng.permutation(len(uses))
    program = program_of(cost, np.array(uses)[order], np.array(capacity)[order], start)
    return dataclasses.replace(program, offset=float(rng.uniform(-50.0, 50.0)))


def proves(program: Program, solution: Solution) -> None:
    """The point is one, and costs what is said; the prices prove what the LP relaxation does."""
    assert feasible(program, solution.x)
    assert solution.objective == program.objective(solution.x)
    proven = program.lagrangian_bound(solution.prices)
    assert proven == pytest.approx(solve_lp(program, EXACT).bound, rel=1e-9, abs=1e-9)
    assert proven <= solution.bound + 1e-9 * max(1.0, abs(proven))


@given(seed=st.integers(0, 2**32), others=st.sampled_from([0.3, 0.6, 0.9, 1.0]))
def test_against_all_points(seed, others):
    program = random_program(seed, others=others)
    solution, costs = labels.solve(program, EXACT), [program.objective(x) for x in points(program)]
    if not costs:
        assert solution is None
        return
    assert solution.termination.reason == "optimal"
    assert solution.objective == pytest.approx(min(costs), rel=1e-12, abs=1e-9)
    proves(program, solution)


@pytest.mark.parametrize("seed", range(examples(20)))
@pytest.mark.parametrize("gap", [0.0, 1e-4, 1e-2])
def test_against_highs(seed, gap):
    program = random_program(1_000 + seed, most_groups=300)
    solution = labels.solve(program, Limits(gap=gap, time_s=60.0))
    other = highs.solve(program, Limits(gap=1e-9, time_s=60.0))
    if solution is None:
        assert other.objective is None
        return
    assert solution.termination.reason == "optimal"
    least, size = other.objective, max(1.0, abs(other.objective))
    assert solution.bound - 1e-7 * size <= least
    assert least - 1e-7 * size <= solution.objective <= least + (gap + 1e-7) * size
    proves(program, solution)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: {"matrix": p.matrix * 1e6},
        lambda p: {"row_lower": np.zeros(1)},
        lambda p: {"integer": np.zeros(p.n_columns, dtype=bool)},
        lambda p: {"cost": np.where(np.arange(p.n_columns) == 1, np.inf, p.cost)},
    ],
)
def test_other_programs_are_left_to_others(change):
    program = program_of(np.array([5.0, 1.0, 5.0, 2.0]), np.array([[0, 3, 0, 2]]), np.array([4.0]), [0, 2, 4])
    assert labels.solve(program, EXACT) is not None
    assert labels.solve(dataclasses.replace(program, **change(program)), EXACT) is None


@pytest.mark.parametrize("seed", range(examples(12)))
@pytest.mark.parametrize("budget", ["power", "energy"])
def test_rounds_with_a_budget_against_highs(seed, budget):
    program = model_of(generate("uniform", jobs=4 + seed, budget=budget, seed=seed)).program
    solution, other = labels.solve(program, EXACT), highs.solve(program, Limits(gap=1e-9, time_s=60.0))
    assert solution.termination.reason == "optimal"
    assert solution.objective == pytest.approx(other.objective, rel=1e-8)
    assert feasible(program, solution.x)


def test_what_is_too_much_work_is_left_to_others(monkeypatch):
    monkeypatch.setattr(labels, "MOST_WORK", 0)
    left = 0
    for seed in range(40):
        program = random_program(seed)
        if (expected := highs.solve(program, EXACT)).objective is None:
            continue
        found = labels.solve(program, EXACT)
        left += found is None
        assert found is None or found.objective == pytest.approx(expected.objective, rel=1e-9, abs=1e-9)
    assert left > 5


FULL = [[0, 0, 4, 4, 1, 2], [3, 0, 3, 1, 0, 2], [3, 1, 1, 0, 2, 1]]
PAIRS = np.arange(0, 4_001, 2)
KNOWN = {
    "a row that is full at most may have a price": (
        program_of([0.0, 0.0, -4.0, -4.0, -1.0, -2.0], FULL, [6.0, 4.0, 3.0], [0, 2, 4, 6]),
        -6.0,
    ),
    "a limit below a whole number by rounding is that number": (
        program_of([5.0, 1.0, 5.0, 2.0], [[0, 3, 0, 2]], [5.0 * (1.0 - 2e-16)], [0, 2, 4]),
        3.0,
    ),
    "even numbers of GPUs never fill an odd number": (
        program_of(np.tile([1.0, 0.0], 2_000), [np.tile([0.0, 2.0], 2_000)], [1_001.0], PAIRS),
        1_500.0,
    ),
}


@pytest.mark.parametrize("case", KNOWN)
def test_known_optima(case):
    program, best = KNOWN[case]
    solution = labels.solve(program, EXACT)
    assert solution.objective == solution.bound == best


def test_quotas_that_are_just_enough():
    cluster = {
        "gpu_types": {"A100": {"idle_power_w": 50}},
        "nodes": [{"name": "n0", "gpu_type": "A100", "gpus": 8}],
    }
    tenants = {"a": {"gpus": 2}, "b": {"gpus": 2, "power_w": 400}}
    session = Session(cluster, objective="goodput", round_s=60, tenants=tenants)
    watts = [100.0, 400.0, 200.0, 400.0, 300.0, 600.0]
    rows = {"start": [0, 2, 4, 6], "gpus": [1, 2] * 3, "rate": [1.0, 2.0] * 3, "power_w": watts}
    session.upsert(["j0", "j1", "j2"], pool="A100", tenant=["a", "b", "b"], **rows)
    session.update(power_w=1300)
    decision = session.solve(gap=1e-9)
    assert decision.objective == pytest.approx(4.0)
    assert decision.bound == pytest.approx(4.0)


def test_a_row_that_nothing_is_in_and_that_cannot_hold_is_left_to_others():
    assert labels.solve(program_of([1.0], np.zeros((1, 1)), np.array([-1.0]), [0, 1]), EXACT) is None


def test_without_time_others_are_asked():
    assert labels.solve(random_program(2), Limits(time_s=0.0)) is None


@pytest.mark.parametrize(("name", "asked"), [("auto", True), ("price", False), ("highs", False)])
def test_solvers_that_begin_with_it(name, asked):
    nothing = program_of([1.0], np.array([[0.5]]), np.array([0.1]), [0, 1])
    assert (registry.get(name).at_once(random_program(2), EXACT) is not None) == asked
    assert registry.get(name).at_once(nothing, EXACT) is None
