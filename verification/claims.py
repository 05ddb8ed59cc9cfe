"""What a result says of itself, against what is recomputed and proven; the same for every problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeGuard, TypeVar

from pydantic import BaseModel

from wattsched.instances.errors import InputError, validated
from wattsched.verification.report import Proof, Report

TOLERANCE = 1e-6
"""Relative tolerance of every comparison."""

WITHOUT_DECISION = {
    "infeasible": ("objective", "bound", "gap", "totals"),
    "no_solution": ("objective", "gap", "totals"),
    "error": ("objective", "gap", "totals"),
}
"""Reasons to stop that leave no decision, and what else cannot be claimed then."""

INTERNAL = ("worst:", "share:", "job:", "task:")
"""Rows that are no capacities, by the beginnings of their names."""

PROVEN = ("optimal", "infeasible")
"""Reasons to stop before any limit was reached."""


InstanceT = TypeVar("InstanceT", bound=BaseModel)
DecisionT = TypeVar("DecisionT", bound=BaseModel)


@dataclass(frozen=True)
class Rules(Generic[InstanceT, DecisionT]):
    """What is to be known of a problem to check its results.

    Attributes
    ----------
    name : str
    instance, decision : types
        Models of its files.
    objectives : mapping of str to {"min", "max"}
        Name to its sense.
    check : callable
        Instance and decision to a report; it shares no code with formulations and solvers.
    prove : callable
        Instance and certificate prices to what they prove, likewise.
    """

    name: str
    instance: type[InstanceT]
    decision: type[DecisionT]
    objectives: Mapping[str, Literal["min", "max"]]
    check: Callable[[InstanceT, DecisionT], Report]
    prove: Callable[[InstanceT, Mapping[str, float]], Proof]


@dataclass(frozen=True)
class Verdict:
    """Faults of a result, the report of its decision, and what its certificate proves."""

    faults: list[str]
    report: Report | None = None
    proof: Proof | None = None

    @property
    def infeasible(self) -> bool:
        """Whether the certificate proves that there is no decision."""
        return not self.faults and self.proof is not None and self.proof.excess > 0


def check_result(rules: Rules[Any, Any], instance: Any, result: Mapping[str, Any]) -> Verdict:
    """Check a result: its decision, its certificate, and all that it claims about them.

    Parameters
    ----------
    rules : Rules
    instance : model of an instance
        Free of faults. The result's ``objective_name`` replaces its objective.
    result : mapping
        Parsed ``wattsched-result/2``.
    """
    if strangers := list(_identity(rules, instance, result)):
        return Verdict([*strangers, "nothing else was checked: the two do not belong together"])
    name = result.get("objective_name", instance.objective)
    if not isinstance(name, str) or name not in rules.objectives:
        known = ", ".join(rules.objectives)
        why = f"objective_name: {name!r:.80} is not an objective of '{rules.name}', which has {known}"
        return Verdict([why])
    instance, sense = instance.model_copy(update={"objective": name}), rules.objectives[name]
    faults: list[str] = []
    if result.get("sense", sense) != sense:
        faults.append(f"sense: '{name}' is a {sense} objective, the result says {result['sense']!r:.80}")
    report, told = _decision(rules, instance, result.get("decision"))
    faults += told
    proof = _proof(rules, instance, result.get("certificate"))
    faults += _termination(result)
    if proof is not None:
        faults += proof.faults or _certificate(result, proof, report, sense)
    faults += _prices(result, sense)
    if result.get("decision") is not None:
        faults += _objective_and_gap(result, report, sense)
    if report is not None:
        faults += _totals(result.get("totals"), report.totals)
    return Verdict(list(dict.fromkeys(faults)), report, proof)


def _identity(rules: Rules[Any, Any], instance: Any, result: Mapping[str, Any]) -> Iterator[str]:
    if (found := result.get("problem", "sizing")) != rules.name:
        yield f"problem: the result is of {found!r:.80}, the instance of '{rules.name}'"
    if (found := result.get("instance", instance.name)) != instance.name:
        yield f"instance: the result is of {found!r:.80}, not of '{instance.name}'"


def _decision(rules: Rules[Any, Any], instance: Any, document: Any) -> tuple[Report | None, list[str]]:
    if document is None:
        return None, []
    try:
        decision = validated(rules.decision, document)
    except InputError as error:
        return None, [f"decision: {fault}" for fault in error.faults]
    report = rules.check(instance, decision)
    return report, report.faults


def _proof(rules: Rules[Any, Any], instance: Any, certificate: Any) -> Proof | None:
    """What the prices of a certificate prove; None without one."""
    if certificate is None:
        return None
    prices = certificate.get("prices") if isinstance(certificate, dict) else None
    if not isinstance(prices, dict) or number(certificate, "bound") is None:
        return Proof(["certificate: needs 'prices', an object, and 'bound', a finite number"])
    if odd := [name for name, price in prices.items() if not is_finite(price)]:
        told = f"the price {prices[odd[0]]!r:.40} of row '{odd[0]}'"
        return Proof([f"certificate: {told} is not a finite number"])
    return rules.prove(instance, prices)


def _termination(result: Mapping[str, Any]) -> Iterator[str]:
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
            if result.get(name) not in (None, {}):
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


def _certificate(result: Mapping[str, Any], proof: Proof, report: Report | None, sense: str) -> Iterator[str]:
    """The certificate against its own proof, the reason to stop and the decision."""
    claimed = number(result["certificate"], "bound")
    assert proof.bound is not None
    assert claimed is not None
    worse = -1.0 if sense == "max" else 1.0
    reach = proof.reach
    if reach is None:
        reach = proof.bound + worse * TOLERANCE * max(1.0, abs(claimed))
    if worse * (claimed - reach) > 0:
        yield f"certificate: claims the bound {claimed:.12g}, its prices prove {proof.bound:.12g}"
    ended = result.get("termination")
    if isinstance(ended, dict) and ended.get("reason") == "infeasible" and proof.excess <= 0:
        yield f"certificate: its prices prove {proof.bound:.9g}, which leaves room for a decision"
    objective = None if report is None else report.objective
    if objective is not None:
        over = worse * (proof.bound - objective)
        if over > TOLERANCE * max(1.0, abs(objective)) + proof.leeway:
            yield (
                f"objective: {objective:.9g} is better than {proof.bound:.9g}, "
                "which the certificate proves that no decision can beat"
            )


def _prices(result: Mapping[str, Any], sense: str) -> Iterator[str]:
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


def _objective_and_gap(result: Mapping[str, Any], report: Report | None, sense: str) -> Iterator[str]:
    objective = number(result, "objective")
    if objective is None:
        yield "objective: the result has a decision but no finite objective"
        return
    recomputed = None if report is None else report.objective
    if recomputed is None and report is not None and not report.faults:
        yield f"objective: {objective:.9g} is claimed, the instance has not what it is computed from"
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


def _weaker_bound(result: Mapping[str, Any], bound: float, objective: float, sense: str) -> Iterator[str]:
    """A bound that is not as good as that of the certificate beside it: one of them was changed."""
    certificate = result.get("certificate")
    proven = number(certificate, "bound") if isinstance(certificate, dict) else None
    if proven is None:
        return
    # Rounding can lift a proven bound above the objective.
    short = min(proven, objective) - bound if sense == "min" else bound - max(proven, objective)
    if short > TOLERANCE * max(1.0, abs(proven)):
        yield f"bound: {bound:.9g} is weaker than the {proven:.9g} of the certificate"


def _totals(totals: Any, recomputed: Mapping[str, float]) -> Iterator[str]:
    """A result's totals against what was recomputed under the same names."""
    if totals is None:
        return
    if not isinstance(totals, dict):
        yield f"totals: must be an object, not {totals!r:.80}"
        return
    for name, truth in recomputed.items():
        claimed = number(totals, name)
        if claimed is None or not _equal(claimed, float(truth)):
            yield f"totals.{name}: the result says {totals.get(name)}, it is {truth:.9g}"
    for name in totals.keys() - recomputed.keys():
        yield f"totals.{name}: nothing of that name can be recomputed"


def number(content: Mapping[str, Any], name: str) -> float | None:
    """A field that is a finite number; None for anything else."""
    value = content.get(name)
    return float(value) if is_finite(value) else None


def is_finite(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number in the range of doubles."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond the range
        return False


def _equal(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b))
