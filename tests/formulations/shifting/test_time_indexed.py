"""The time-indexed program, the checker and brute force agree on tiny instances."""

from __future__ import annotations

import pytest

from tests.brute_force import shifting as brute_force
from tests.strategies.shifting import tiny
from wattsched.formulations.shifting import time_indexed
from wattsched.formulations.shifting.data import horizon_of
from wattsched.instances.shifting.instance import faults_of
from wattsched.solvers import highs
from wattsched.solvers.solution import Limits
from wattsched.verification.shifting.checker import check

CASES = 200


@pytest.mark.parametrize("first", range(0, CASES, 20))
def test_equals_brute_force(first: int) -> None:
    for seed in range(first, first + 20):
        instance = tiny(seed)
        assert not faults_of(instance)
        best = brute_force.optimum(instance)
        plan = time_indexed.build(horizon_of(instance), instance.objective)
        solution = highs.solve(plan.program, Limits(gap=0.0))
        if best is None:
            assert solution.termination.reason == "infeasible", seed
            continue
        assert solution.x is not None, (seed, solution.termination, best)
        report = check(instance, plan.decode(solution.x, {}))
        assert not report.faults, (seed, report.faults)
        assert report.objective == pytest.approx(best, rel=1e-6, abs=1e-9), seed
        assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-9), seed
