"""What a result says of itself, against what was recomputed and proven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wattsched.instances.certificate import Proof, is_finite
from wattsched.instances.checker_outcomes import OBJECTIVES, TOLERANCE
from wattsched.instances.instance import Instance

TOTALS = ("power_w", "energy_j", "carbon_g", "gpus_used", "restarts", "migrations")

WITHOUT_DECISION = {
    "infeasible": ("objective", "bound", "gap", "certificate", "totals"),
    "no_solution": ("objective", "gap", "totals"),
    "error": ("objective", "gap", "totals"),
}
"""Reasons to stop that leave no decision, and what else cannot be claimed then."""


def claims_of(
    instance: Instance, result: dict[str, Any], objective: float | None, proof: Proof | None
) -> Iterator[str]:
    """False claims of a result, one line each.

    Parameters
    ----------
    objective : float, optional
        Recomputed from the decision.
    proof : Proof, optional
        What the certificate's prices prove.
    """
    if result.get("instance", instance.name) != instance.name:
        yield f"instance: the result is of '{result['instance']}', not of '{instance.name}'"
    sense = OBJECTIVES.get(instance.objective, "min")
    if result.get("sense", sense) != sense:
        yield f"sense: '{instance.objective}' is a {sense} objective, the result says '{result['sense']}'"
    yield from _termination(result)
    if proof is not None and proof.bound is not None:
        yield from _certificate(result, proof, objective, sense)
    if result.get("decision") is not None:
        yield from _objective_and_gap(result, objective, sense)


def _termination(result: dict[str, Any]) -> Iterator[str]:
    termination = result.get("termination")
    reason = termination.get("reason") if isinstance(termination, dict) else None
    if result.get("decision") is None:
        if reason not in WITHOUT_DECISION:
            yield "the result holds no decision to check"
            return
        for name in WITHOUT_DECISION[reason]:
            if result.get(name) is not None:
                yield f"{name}: cannot be claimed without a decision, the result says '{reason}'"
        if result.get("checked"):
            yield "checked: there is no decision that can have been checked"
    elif reason in WITHOUT_DECISION:
        yield f"termination: the result says '{reason}' but has a decision"
    elif reason == "optimal":
        gap = number(result, "gap")
        if gap is None or not 0 <= gap < 1:
            yield f"termination: 'optimal' needs a gap from 0 to below 1, the result has {result.get('gap')}"


def _certificate(result: dict[str, Any], proof: Proof, objective: float | None, sense: str) -> Iterator[str]:
    """The certificate against its own proof, the decision, and the prices that the result states."""
    assert proof.bound is not None
    assert proof.reach is not None
    claimed = number(result["certificate"], "bound")
    assert claimed is not None
    if (claimed > proof.reach) if sense == "min" else (claimed < proof.reach):
        yield f"certificate: claims the bound {claimed:.12g}, its prices prove {proof.bound:.12g}"
    if objective is not None:
        excess = proof.bound - objective if sense == "min" else objective - proof.bound
        if excess > TOLERANCE * max(1.0, abs(objective)) + proof.leeway:
            yield (
                f"objective: {objective:.9g} is better than {proof.bound:.9g}, "
                "which the certificate proves that no decision can beat"
            )
    sign = -1.0 if sense == "min" else 1.0
    priced = result["certificate"]["prices"]
    stated = result.get("prices")
    for name, price in stated.items() if isinstance(stated, dict) else ():
        proven = sign * priced.get(name, 0.0)
        if not is_finite(price) or abs(price - proven) > TOLERANCE * abs(proven):
            yield f"prices: '{name}' is {price}, the certificate has {proven:.9g}"


def _objective_and_gap(result: dict[str, Any], recomputed: float | None, sense: str) -> Iterator[str]:
    objective = number(result, "objective")
    if objective is None:
        yield "objective: the result has a decision but no finite objective"
        return
    if recomputed is not None and not _equal(objective, recomputed):
        yield f"objective: the result claims {objective:.9g}, recomputed {recomputed:.9g}"
    bound, gap = number(result, "bound"), number(result, "gap")
    if bound is None:
        if gap is not None:
            yield "gap: there is no gap without a bound"
        return
    excess = bound - objective if sense == "min" else objective - bound
    if excess > TOLERANCE * max(1.0, abs(objective)):
        yield f"bound: {bound:.9g} is on the wrong side of the objective {objective:.9g}"
    true_gap = abs(objective - bound) / max(1e-9, abs(objective))
    if gap is None or abs(gap - true_gap) > TOLERANCE * max(1.0, true_gap):
        yield f"gap: the result claims {gap}, recomputed {true_gap:.9g}"


def totals_claims(content: Any, recomputed: dict[str, Any]) -> Iterator[str]:
    """Faults of a result's totals against what was recomputed under the same names."""
    if content is None:
        return
    if not isinstance(content, dict):
        yield "totals: must be an object"
        return
    for name in TOTALS:
        claimed, truth = number(content, name), recomputed[name]
        if name in content and (claimed is None) != (truth is None):
            yield f"totals.{name}: the result says {content[name]}, it is {truth}"
        elif claimed is not None and not _equal(claimed, float(truth)):
            yield f"totals.{name}: the result says {claimed:g}, it is {truth:g}"


def number(content: dict[str, Any], name: str) -> float | None:
    """A field that is a finite number; None for anything else."""
    value = content.get(name)
    return float(value) if is_finite(value) else None


def _equal(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b))
