"""Do the answers to one instance agree? Each is checked alone; here they are held against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from wattsched.comparisons.run import Run
from wattsched.formulations.registry import FORMULATIONS
from wattsched.solvers.registry import get as find_solver

ROUNDING = 1e-6
"""Relative difference that counts as rounding."""


def disagreements(runs: Iterable[Run]) -> list[str]:
    """Contradictions between runs of one instance and objective, one sentence each.

    A run contradicts another when its bound is beyond the other's checked objective, when it proved that
    there is no decision and the other has one, or when both are optimal and their objectives are further
    apart than the gaps asked for allow. What `solve` itself found wrong with an answer counts too, and so
    does an optimum of a user's formulation that is cheaper than its decision.
    """
    together: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        together[run.content, run.objective_name].append(run)
    return [sentence for group in together.values() for sentence in _within(group)]


_OTHER_COSTS = (
    "has an optimum that is better than its own decision (gap {:.1e}, and no limit stopped it): what the "
    "formulation minimises is not the objective"
)


def _misprices(run: Run) -> bool:
    """Whether a solver that finds optima was done, yet the decision does not have the value that it found.

    `solve` states what a decision is worth by itself. A formulation whose costs are too low then shows as a
    gap that nothing explains.
    """
    done = run.status == "feasible" and run.limit is None and not run.detail and not run.faults
    own = not any(run.formulation in known for known in FORMULATIONS.values())
    # Solvers measure the gap against one value, `solve` against another.
    return done and own and (run.gap or 0.0) > 2 * run.gap_asked + ROUNDING and find_solver(run.solver).exact


def _within(runs: Sequence[Run]) -> list[str]:
    found = [f"{run.instance}: {run.pair}: {fault}" for run in runs for fault in run.faults]
    found += [f"{run.instance}: {run.pair} {_OTHER_COSTS.format(run.gap)}" for run in runs if _misprices(run)]
    checked = [run for run in runs if run.objective is not None and run.checked]
    best = min(checked, key=_cost, default=None)
    if best is None:
        return found
    for run in runs:
        if run.faults or run.status == "skipped" or run is best:
            continue
        if why := _contradiction(run, best):
            found.append(f"{run.instance}: {run.pair} {why}; {best.pair} has a checked {best.objective:.10g}")
    return found


def _contradiction(run: Run, best: Run) -> str:
    """Why the best checked decision cannot be, if the run is right; empty when it can."""
    assert best.objective is not None
    slack = ROUNDING * max(1.0, abs(best.objective))
    if run.status == "infeasible":
        return "proved that there is no decision"
    if run.bound is not None and _signed(run, run.bound) > _cost(best) + slack:
        return f"has the bound {run.bound:.10g}"
    if run.status == "optimal" and run.objective is not None:
        allowed = run.gap_asked * abs(run.objective)
        if _cost(run) - allowed > _cost(best) + slack:
            return f"calls {run.objective:.10g} optimal to a gap of {run.gap_asked:g}"
    return ""


def _cost(run: Run) -> float:
    assert run.objective is not None
    return _signed(run, run.objective)


def _signed(run: Run, value: float) -> float:
    """Value to be minimised."""
    return -value if run.sense == "max" else value
