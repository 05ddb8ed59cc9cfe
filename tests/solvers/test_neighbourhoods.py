"""Neighbourhood search against all points of small programs."""

from __future__ import annotations

import numpy as np
import pytest

from wattsched.formulations.timer import Timer
from wattsched.solvers import neighbourhoods
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.points import feasible
from wattsched.solvers.solution import Limits

from .test_core import points, random_program


@pytest.mark.parametrize("seed", range(40))
def test_neighbourhoods_of_all_groups_end_at_an_optimum(seed):
    program = random_program(np.random.default_rng(seed))
    lp = solve_lp(program, Limits())
    known = sorted(points(program), key=program.objective)
    costs, least = [program.objective(known[-1])], program.objective(known[0])
    for x in neighbourhoods.improve(program, lp.prices, known[-1], least * (1 + 1e-9), Timer()):
        assert feasible(program, x)
        costs.append(program.objective(x))
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == pytest.approx(least, rel=1e-6)


def test_neighbourhoods_of_few_groups_and_columns_lose_points_only(monkeypatch):
    monkeypatch.setattr(neighbourhoods, "_GROUPS", 2)
    monkeypatch.setattr(neighbourhoods, "_GROWTH", 1.0)
    monkeypatch.setattr(neighbourhoods, "_COLUMNS", 2)
    better = 0
    for seed in range(20):
        program = random_program(np.random.default_rng(seed))
        lp = solve_lp(program, Limits())
        x = max(points(program), key=program.objective)
        for found in neighbourhoods.improve(program, lp.prices, x, lp.bound, Timer()):
            assert feasible(program, found)
            assert program.objective(found) < program.objective(x)
            x, better = found, better + 1
    assert better > 10


def test_nothing_is_looked_for_where_a_point_is_good_enough_or_time_is_up():
    program = random_program(np.random.default_rng(0))
    lp = solve_lp(program, Limits())
    x = max(points(program), key=program.objective)
    for target, timer in ((program.objective(x), Timer()), (-np.inf, Timer(0.0))):
        assert list(neighbourhoods.improve(program, lp.prices, x, target, timer)) == []
