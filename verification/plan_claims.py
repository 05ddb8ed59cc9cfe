"""What a result of a problem with decisions of its own says of itself, against what is recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wattsched.instances.io import InputError
from wattsched.instances.problems import checker_of, decision_of, excess_of, prover_of, senses_of
from wattsched.verification.report import PlanReport
from wattsched.verification.sizing.bound import is_finite
from wattsched.verification.sizing.claims import number, price_claims, termination_claims

TOLERANCE = 1e-6


@dataclass(frozen=True)
class PlanVerdict:
    """Faults of a result, its decision's report, and the bound that its certificate proves.

    `impossible` says whether the certificate proves that there is no decision.
    """

    faults: list[str]
    report: PlanReport | None
    proven: float | None
    impossible: bool = False


def check_plan_result(instance: Any, result: dict[str, Any]) -> PlanVerdict:
    """Check a result document: its decision, its certificate, and all that it claims about them.

    Parameters
    ----------
    instance : ShiftingInstance or SharingInstance
    result : dict
        Parsed ``wattsched-result/1``. Its ``objective_name`` replaces the instance's objective.
    """
    known, name = senses_of(instance.problem), result.get("objective_name", instance.objective)
    if not isinstance(name, str) or name not in known:
        why = f"objective_name: {name!r:.80} is not an objective of '{instance.problem}', "
        why += f"which has {', '.join(known)}"
        return PlanVerdict([*_identity(instance, result), why], None, None)
    instance = instance.model_copy(update={"objective": name})
    sense = known[name]
    # An answer without a decision has nothing to add up.
    result = {name: value for name, value in result.items() if name != "totals" or value != {}}
    certificate, impossible = result.get("certificate"), _says_impossible(instance, result)
    if impossible:
        result = {**result, "certificate": None}  # it proves no bound on an objective
    faults = [*_identity(instance, result), *termination_claims(result), *price_claims(result, sense)]
    if result.get("sense", sense) != sense:
        faults.append(f"sense: '{name}' is a {sense} objective, not {result['sense']!r:.80}")
    report = None
    if result.get("decision") is not None:
        report, told = _decision(instance, result["decision"])
        faults += told
    proven, told = _proof(instance, certificate, sense == "max")
    faults += told
    if impossible and not told:
        faults += _impossibility(instance, certificate, proven)
    if report is not None:
        faults += _objective(result, report, proven, sense == "max")
    return PlanVerdict(list(dict.fromkeys(faults)), report, proven, impossible and not faults)


def _says_impossible(instance: Any, result: dict[str, Any]) -> bool:
    """Whether a certificate is to prove that there is no decision."""
    ended = result.get("termination")
    infeasible = isinstance(ended, dict) and ended.get("reason") == "infeasible"
    return infeasible and result.get("certificate") is not None and excess_of(instance.problem) is not None


def _impossibility(instance: Any, certificate: Any, proven: float | None) -> Iterator[str]:
    excess = excess_of(instance.problem)
    assert excess is not None
    assert proven is not None
    if excess(instance, certificate["prices"], proven) <= 0:
        yield f"certificate: its prices prove {proven:.9g}, which leaves room for a decision"


def _identity(instance: Any, result: dict[str, Any]) -> Iterator[str]:
    if result.get("instance", instance.name) != instance.name:
        yield f"instance: the result is of '{result['instance']}', not of '{instance.name}'"
    if result.get("problem") != instance.problem:
        yield f"problem: the result is of '{result.get('problem')}', the instance of '{instance.problem}'"


def _decision(instance: Any, document: Any) -> tuple[PlanReport | None, list[str]]:
    try:
        decision = decision_of(instance.problem, document)
    except InputError as error:
        return None, [f"decision: {fault}" for fault in error.faults]
    report = checker_of(instance.problem)(instance, decision)
    return report, list(report.faults)


def _proof(instance: Any, certificate: Any, maximise: bool) -> tuple[float | None, list[str]]:
    """Bound that the prices prove, and what is wrong with the certificate, which may claim less than that."""
    if certificate is None:
        return None, []
    prices = certificate.get("prices") if isinstance(certificate, dict) else None
    claimed = number(certificate, "bound") if isinstance(certificate, dict) else None
    if not isinstance(prices, dict) or claimed is None:
        return None, ["certificate: needs 'prices', an object, and 'bound', a finite number"]
    if odd := [name for name, y in prices.items() if not is_finite(y)]:
        return None, [f"certificate: the price of '{odd[0]}' is not a finite number"]
    try:
        proven = prover_of(instance.problem)(instance, prices)
    except ValueError as error:
        return None, [f"certificate: {str(error).removeprefix('certificate: ')}"]
    if (proven - claimed if maximise else claimed - proven) > TOLERANCE * max(1.0, abs(claimed)):
        return proven, [f"certificate: claims the bound {claimed:.12g}, its prices prove {proven:.12g}"]
    return proven, []


def _objective(
    result: dict[str, Any], report: PlanReport, proven: float | None, maximise: bool
) -> Iterator[str]:
    sign = -1.0 if maximise else 1.0
    objective, bound, gap = (number(result, name) for name in ("objective", "bound", "gap"))
    if objective is None:
        yield "objective: the result has a decision but no finite objective"
        return
    if report.objective is None:
        if not report.faults:
            yield f"objective: {objective:.9g} is claimed, the instance has not what it is computed from"
    elif _differ(objective, report.objective):
        yield f"objective: the result claims {objective:.9g}, recomputed {report.objective:.9g}"
    if proven is not None and sign * (proven - objective) > TOLERANCE * max(1.0, abs(objective)):
        yield f"objective: {objective:.9g} is better than {proven:.9g}, which the certificate proves"
    if bound is None:
        if gap is not None:
            yield "gap: there is no gap without a bound"
    elif sign * (bound - objective) > TOLERANCE * max(1.0, abs(objective)):
        yield f"bound: {bound:.9g} is on the wrong side of the objective {objective:.9g}"
    elif gap is None or _differ(gap, abs(objective - bound) / max(1e-9, abs(objective))):
        yield f"gap: the result claims {gap}, objective and bound have another"
    yield from _totals(result.get("totals", {}), report)


def _totals(totals: Any, report: PlanReport) -> Iterator[str]:
    if not isinstance(totals, dict):
        yield f"totals: must be an object, not {totals!r:.80}"
        return
    for name, truth in report.totals.items():
        claimed = number(totals, name)
        if claimed is None or _differ(claimed, truth):
            yield f"totals.{name}: the result says {claimed}, it is {truth:.9g}"
    for name in sorted(totals.keys() - report.totals.keys()):
        yield f"totals.{name}: nothing of that name can be recomputed"


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > TOLERANCE * max(1.0, abs(one), abs(other))
