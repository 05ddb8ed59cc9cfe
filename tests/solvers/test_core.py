"""The core search against all points of small programs."""

import numpy as np
import pytest

from tests.strategies.effort import examples
from wattsched.formulations.program import Program
from wattsched.solvers import core
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.points import feasible
from wattsched.solvers.solution import Limits

from .programs import points, program_of


def random_program(rng: np.random.Generator) -> Program:
    """2 to 6 groups of 2 to 4 columns under 1 to 3 rows, of whole or any use; no two columns do the same."""
    sizes = rng.integers(2, 5, int(rng.integers(2, 7)))
    start = np.concatenate([[0], np.cumsum(sizes)])
    uses = rng.uniform(0.0, 8.0, (int(rng.integers(1, 4)), start[-1]))
    if rng.random() < 0.5:
        uses[0] = np.round(uses[0])
    uses[:, start[:-1]] = 0.0
    cost = rng.uniform(0.0, 100.0, start[-1])
    cost[start[:-1]] += 100.0
    return program_of(cost, uses, rng.uniform(0.2, 0.7) * uses.sum(axis=1) / 3, start)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_a_point_is_found_exactly_where_there_is_one(seed):
    program = random_program(np.random.default_rng(seed))
    assert core.fits(program)
    lp = solve_lp(program, Limits())
    costs = sorted(program.objective(x) for x in points(program))
    # All that is left of a core of so few columns is what costs too much.
    for enough in (lp.bound - 1.0, costs[0] - 0.01, costs[0] + 0.01, costs[len(costs) // 2] + 0.01):
        x = core.search(program, lp, enough)
        assert (x is None) == (enough < costs[0])
        if x is not None:
            assert feasible(program, x)
            assert program.objective(x) <= enough


def test_what_is_left_out_of_large_cores_loses_points_only(monkeypatch):
    for name, most in (("_PAIRS", 5), ("_COLUMNS", 6), ("_SETS", 8)):
        monkeypatch.setattr(core, name, most)
    found = 0
    for seed in range(60):
        program = random_program(np.random.default_rng(seed))
        lp = solve_lp(program, Limits())
        enough = lp.bound + 30.0
        x = core.search(program, lp, enough)
        found += x is not None
        assert x is None or (feasible(program, x) and program.objective(x) <= enough)
    assert found > 10
