"""What a result says of itself, against what was recomputed and proven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wattsched.instances.sizing.instance import Instance
from wattsched.verification.sizing.bound import Proof, is_finite
from wattsched.verification.sizing.outcomes import OBJECTIVES, TOLERANCE

TOTALS = ("power_w", "energy_j", "carbon_g", "gpus_used", "gpus_available", "restarts", "migrations")

WITHOUT_DECISION = {
    "infeasible": ("objective", "bound", "gap", "certificate", "totals"),
    "no_solution": ("objective", "gap", "totals"),
    "error": ("objective", "gap", "totals"),
}
"""Reasons to stop that leave no decision, and what else cannot be claimed then."""

INTERNAL = ("worst:", "share:")
"""Rows that are no capacities, by the beginnings of their names."""

PROVEN = ("optimal", "infeasible")
"""Reasons to stop before any limit was reached."""


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
    if result.get("problem", instance.problem) != instance.problem:
        yield f"problem: the result is of '{result['problem']}', the instance of '{instance.problem}'"
    sense = OBJECTIVES.get(instance.objective, "min")
    if result.get("sense", sense) != sense:
        yield f"sense: '{instance.objective}' is a {sense} objective, the result says '{result['sense']}'"
    yield from termination_claims(result)
    if proof is not None and proof.bound is not None:
        yield from _certificate(result, proof, objective, sense)
    yield from price_claims(result, sense)
    if result.get("decision") is not None:
        yield from _objective_and_gap(result, objective, sense)


def termination_claims(result: dict[str, Any]) -> Iterator[str]:
    """Claims about why a solver stopped that contradict the rest of a result."""
    termination = result.get("termination")
    told = termination if isinstance(termination, dict) else {}
    reason, limit = told.get("reason"), told.get("limit")
    if reason in PROVEN and limit is not None:
        yield f"termination: '{reason}' is proven, yet the limit '{limit}' is said to have cut it short"
    if result.get("decision") is None:
        if reason not in WITHOUT_DECISION:
            yield "the result holds no decision to check"
            return
        for name in WITHOUT_DECISION[reason]:
            if result.get(name) is not None:
                yield f"{name}: cannot be claimed without a decision, the result says '{reason}'"
        if result.get("checked"):
            yield "checked: there is no decision that can have been checked"
        return
    if result.get("checked") is False:
        yield "checked: the result says that nobody checked its decision"
    if reason in WITHOUT_DECISION:
        yield f"termination: the result says '{reason}' but has a decision"
    elif reason == "optimal":
        gap = number(result, "gap")
        if gap is None or not 0 <= gap < 1:
            yield f"termination: 'optimal' needs a gap from 0 to below 1, the result has {result.get('gap')}"


def _certificate(result: dict[str, Any], proof: Proof, objective: float | None, sense: str) -> Iterator[str]:
    """The certificate against its own proof and the decision."""
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


def price_claims(result: dict[str, Any], sense: str) -> Iterator[str]:
    """The prices that a result states against those of its certificate."""
    stated, certificate = result.get("prices"), result.get("certificate")
    if not isinstance(stated, dict):
        return
    if certificate is None and stated:
        yield "prices: there is no certificate that they could come from"
    priced = certificate.get("prices") if isinstance(certificate, dict) else None
    if not isinstance(priced, dict):
        return
    sign = -1.0 if sense == "min" else 1.0
    # Without a decision prices need not be stated, and the rows of jobs and sets have none that would help.
    owed = [name for name in priced if not name.startswith(INTERNAL)] if result.get("decision") else []
    for name in [*stated, *(name for name in owed if name not in stated)]:
        price, derivative = stated.get(name, 0.0), priced.get(name, 0.0)
        if not is_finite(derivative):
            continue  # told where it is proven
        better = sign * derivative + 0.0
        if not is_finite(price) or abs(price - better) > TOLERANCE * abs(better):
            told = price if name in stated else "missing"
            yield f"prices: '{name}' is {told}, the certificate has {better:.9g}"


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
    yield from _weaker_bound(result, bound, objective, sense)
    true_gap = abs(objective - bound) / max(1e-9, abs(objective))
    if gap is None or abs(gap - true_gap) > TOLERANCE * max(1.0, true_gap):
        yield f"gap: the result claims {gap}, recomputed {true_gap:.9g}"


def _weaker_bound(result: dict[str, Any], bound: float, objective: float, sense: str) -> Iterator[str]:
    """A bound that is not as good as that of the certificate beside it: one of them was changed."""
    certificate = result.get("certificate")
    proven = number(certificate, "bound") if isinstance(certificate, dict) else None
    if proven is None:
        return
    # Rounding can lift a proven bound above the objective.
    short = min(proven, objective) - bound if sense == "min" else bound - max(proven, objective)
    if short > TOLERANCE * max(1.0, abs(proven)):
        yield f"bound: {bound:.9g} is weaker than the {proven:.9g} of the certificate"


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
