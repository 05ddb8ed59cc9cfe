"""Kernels, LP relaxations by sifting, and neighbourhood search against all points of small programs."""

from dataclasses import replace

import numpy as np
import pytest

from tests.strategies.effort import examples
from wattsched.formulations.timer import Timer
from wattsched.solvers import kernels
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.points import feasible
from wattsched.solvers.solution import Limits

from .programs import points
from .test_core import random_program as random_core
from .test_price import random_program


@pytest.mark.parametrize("block", range(5))
def test_sifting_finds_the_optimum_of_the_relaxation(block, monkeypatch):
    """From any prices, also where the first columns have no point together."""
    monkeypatch.setattr(kernels, "_FIRST", 0)
    monkeypatch.setattr(kernels, "_FEW", 0)
    for seed in range(30 * block, 30 * block + 30):
        program = random_program(seed)
        prices = -np.random.default_rng(seed).exponential(3.0, program.n_rows)
        sifted, whole = kernels.relaxed(program, prices, Timer()), solve_lp(program, Limits())
        assert sifted.termination.reason == whole.termination.reason, seed
        if whole.x is None:
            continue
        tolerance = 1e-7 * max(1.0, abs(whole.objective))
        assert sifted.objective == pytest.approx(whole.objective, abs=tolerance), seed
        assert sifted.bound == pytest.approx(program.lagrangian_bound(sifted.prices)), seed
        assert sifted.bound >= whole.objective - tolerance, seed
        assert sifted.x.shape == (program.n_columns,)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_neighbourhoods_of_all_groups_end_at_an_optimum(seed):
    program = random_core(np.random.default_rng(seed))
    lp = solve_lp(program, Limits())
    known = sorted(points(program), key=program.objective)
    costs, least = [program.objective(known[-1])], program.objective(known[0])
    for x in kernels.improved(program, lp.prices, known[-1], least * (1 + 1e-9), Timer()):
        assert feasible(program, x)
        costs.append(program.objective(x))
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == pytest.approx(least, rel=1e-6)


def test_neighbourhoods_of_few_groups_and_columns_lose_points_only(monkeypatch):
    monkeypatch.setattr(kernels, "_GROUPS", 2)
    monkeypatch.setattr(kernels, "_GROWTH", 1.0)
    monkeypatch.setattr(kernels, "_COLUMNS", 2)
    better = 0
    for seed in range(8):
        program = random_core(np.random.default_rng(seed))
        lp = solve_lp(program, Limits())
        x = max(points(program), key=program.objective)
        for found in kernels.improved(program, lp.prices, x, lp.bound, Timer()):
            assert feasible(program, found)
            assert program.objective(found) < program.objective(x)
            x, better = found, better + 1
    assert better > 4


def test_nothing_is_looked_for_where_a_point_is_good_enough_or_time_is_up():
    program = random_core(np.random.default_rng(0))
    lp = solve_lp(program, Limits())
    x = max(points(program), key=program.objective)
    for target, timer in ((program.objective(x), Timer()), (-np.inf, Timer(0.0))):
        assert list(kernels.improved(program, lp.prices, x, target, timer)) == []


@pytest.mark.parametrize("seed", range(examples(40)))
def test_columns_of_points_fit(seed):
    """Also where limits leave as little room as the point that needs least of them does."""
    program = random_core(np.random.default_rng(seed))
    for x in points(program):
        activity = program.matrix @ x
        tight = replace(program, row_upper=np.where(np.isfinite(program.row_upper), activity, np.inf))
        for limited in (program, tight):
            assert kernels.fitting(limited, Timer())[x[: program.n_choices] > 0.5].all()
