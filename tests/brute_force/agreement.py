"""What every solver of every formulation of `sizing` is held to: the optimum that trying all finds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import wattsched
from tests.brute_force.sizing import optimum
from tests.brute_force.sizing_decisions import Judge
from wattsched.formulations.sizing import by_kind
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.result import Result


def solve_by_kind(patch: pytest.MonkeyPatch, kinds: bool) -> None:
    """Let rounds of all sizes be solved by kind, where they can be, or none."""
    patch.setattr(by_kind, "pays", lambda known: kinds)


def moves_cost(totals: Mapping[str, float]) -> bool:
    """Whether moves may have cost a decision something that its program does not count."""
    return totals["migrations"] > 0 and totals.get("change_cost", 0.0) > 0.0


def pays_moves(result: Result) -> bool:
    """The same, or whether they have kept it from a better one."""
    return moves_cost(result.totals) or result.decided_by == "in place"


def require_optimum(instance: Instance, how: tuple[str, str], kinds: bool) -> Result:
    """Solve a round by a formulation and a solver, by kind or written out, and compare with trying all."""
    formulation, solver = how
    with pytest.MonkeyPatch.context() as patch:
        solve_by_kind(patch, kinds)
        result = wattsched.solve(instance, gap=0.0, formulation=formulation, solver=solver)
    best = optimum(instance, instance.objective)
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []
    if result.decision is not None:
        worth = Judge(instance).objective(result.decision)
        assert result.objective == pytest.approx(worth, rel=1e-9, abs=1e-9)
    if result.termination.reason == "optimal":
        assert result.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    if result.termination.reason == "infeasible":
        assert best is None
    return result
