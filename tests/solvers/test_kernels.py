"""Kernels, and LP relaxations by sifting."""

from __future__ import annotations

import numpy as np
import pytest

from wattsched.formulations.timer import Timer
from wattsched.solvers import kernels
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.solution import Limits

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
