"""Check results of any problem: the decision, its certificate and its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel

from wattsched.instances.digest import digest_of
from wattsched.instances.errors import InputError, validated
from wattsched.verification.certificates import proofs_of, self_evident
from wattsched.verification.claims import Claims, gap_between, is_older, is_within, reason_of, told_apart
from wattsched.verification.conflicts import Conflict
from wattsched.verification.limits import Limit
from wattsched.verification.orders import limits_of_stages, tighter
from wattsched.verification.report import Proof, Report, is_finite
from wattsched.verification.tree import ProveLeaf

InstanceT = TypeVar("InstanceT", bound=BaseModel)
DecisionT = TypeVar("DecisionT", bound=BaseModel)


@dataclass(frozen=True)
class Rules(Generic[InstanceT, DecisionT]):
    """Types and functions that check the results of a problem.

    Attributes
    ----------
    name : str
    instance, decision : types
        Models of its files.
    objectives : mapping of str to {"min", "max"}
        Name to its sense.
    check : callable
        Instance and decision to a report; it shares no code with formulations and solvers.
    prover : callable
        Instance to what proves certificate prices and the leaves of certificate trees, likewise.
    sharded_prover : callable, optional
        The same from what hands shards of jobs to workers, and an instance.
    limits : callable
        Instance to its limits and demands, which may contradict each other; see `limits`.
    limited : callable
        Instance and limits on objectives to the instance with these besides, or for None without its own.
    unlike : callable, optional
        Instance, decisions, and how much has to be other, to the instance of decisions that differ from them.
    """

    name: str
    instance: type[InstanceT]
    decision: type[DecisionT]
    objectives: Mapping[str, Literal["min", "max"]]
    check: Callable[[InstanceT, DecisionT], Report]
    prover: Callable[[InstanceT], ProveLeaf]
    sharded_prover: Callable[[Any, InstanceT], ProveLeaf] | None = field(default=None, kw_only=True)
    limits: Callable[[InstanceT], Iterable[Limit]] = field(default=lambda instance: (), kw_only=True)
    limited: Callable[[InstanceT, Mapping[str, float | None]], InstanceT] = field(kw_only=True)
    unlike: Callable[[InstanceT, list[DecisionT], int], InstanceT] | None = field(default=None, kw_only=True)

    def proving_by(self, workers: Any) -> Self:
        """Return rules whose prover runs on an `Executor` that keeps values; a ValueError if it cannot."""
        if self.sharded_prover is None:
            raise ValueError(f"only rounds of sizing are checked over a cluster, this is of '{self.name}'")
        return replace(self, prover=partial(self.sharded_prover, workers))


@dataclass(frozen=True)
class Verdict:
    """Findings on an answer: refused, valid and proven, or valid with unproven claims of the solver.

    Attributes
    ----------
    faults : list of str
        Messages of one line; the answer is refused if there is any.
    report : Report, optional
        Report on the decision.
    proof : Proof, optional
        Proof by the certificate.
    claimed : bool
        True if the claimed bound, the claimed gap, or the claim that there is no decision goes beyond the
        proof: it rests on the solver.
    stages : tuple of Verdict
        On the results of the objectives before.
    """

    faults: list[str]
    report: Report | None = None
    proof: Proof | None = None
    claimed: bool = False
    stages: tuple[Verdict, ...] = ()

    @property
    def objective(self) -> float | None:
        """Objective of the decision, recomputed."""
        return None if self.report is None else self.report.objective

    @property
    def totals(self) -> Mapping[str, float]:
        """Totals of the decision, recomputed."""
        return {} if self.report is None else self.report.totals

    @property
    def infeasible(self) -> bool:
        """True if the certificate proves that there is no decision."""
        return not self.faults and self.proof is not None and self.proof.excess > 0

    @property
    def proven_gap(self) -> float | None:
        """Gap between the decision and the bound that the certificate proves; None without either."""
        if self.objective is None or self.proof is None or self.proof.bound is None:
            return None
        reach = self.proof.bound if self.proof.reach is None else self.proof.reach
        # A gap within the rounding error of the proof counts as 0.
        rounding = abs(self.objective - self.proof.bound) <= abs(reach - self.proof.bound)
        return 0.0 if rounding else gap_between(self.objective, self.proof.bound)

    def requiring(self, gap: float | None) -> Verdict:
        """Refuse what is not proven to a gap, nor proven infeasible; None requires nothing."""
        stages = [stage.requiring(gap) for stage in self.stages]
        if failed := [fault for stage in stages for fault in stage.faults]:
            return replace(self, faults=[*self.faults, *failed])
        if gap is None or self.infeasible:
            return self
        if self.proven_gap is None:
            return replace(self, faults=[*self.faults, f"gap: nothing is proven, {gap:.3g} is required"])
        if is_within(self.proven_gap, gap):
            return self
        proven, required = told_apart(self.proven_gap, gap)
        return replace(self, faults=[*self.faults, f"gap: {proven} is proven, {required} is required"])


def check_result(
    rules: Rules[Any, Any],
    instance: Any,
    result: Mapping[str, Any],
    limits: Mapping[str, float] | None = None,
) -> Verdict:
    """Check a result: its decision, its certificate, and all that it claims about them.

    Of objectives in order it is the last one's; the results of those before are checked, too.

    Parameters
    ----------
    rules : Rules
    instance : model of an instance
        Free of faults. The result's ``objective_name`` replaces its objective.
    result : mapping
        Parsed ``wattsched-result/2``, perhaps with its decision as a model.
    limits : mapping of str to float, optional
        Limits on objectives that it keeps besides those of the objectives before.
    """
    try:
        stages, given = _check_stages(rules, instance, result, limits or {})
        instance = rules.limited(instance, given) if given else instance
    except ValueError as error:
        return Verdict([str(error)])
    faults = [f"stages[{k}].{fault}" for k, stage in enumerate(stages) for fault in stage.faults]
    if result.get("limits", {}) != given:
        faults.append(f"limits: must be {given}, they are {result.get('limits')!r:.80}")
    verdict = _check_alone(rules, instance, result)
    claimed = verdict.claimed or any(stage.claimed for stage in stages)
    return replace(verdict, faults=[*faults, *verdict.faults], claimed=claimed, stages=tuple(stages))


def _check_stages(
    rules: Rules[Any, Any], instance: Any, result: Mapping[str, Any], given: Mapping[str, float]
) -> tuple[list[Verdict], dict[str, float]]:
    """Check the results of the objectives before; return the verdicts, and all limits that are left."""
    stages = result.get("stages") or []
    if not isinstance(stages, list) or not all(isinstance(stage, Mapping) for stage in stages):
        raise ValueError("stages: must be a list of results")
    tolerance, limits, found = result.get("tolerance"), dict(given), list[Verdict]()
    if stages and (not is_finite(tolerance) or tolerance < 0):
        raise ValueError(f"tolerance: must be a number of at least 0, it is {tolerance!r:.40}")
    for number, stage in enumerate(stages):
        if stage.get("stages"):
            raise ValueError(f"stages[{number}]: has stages itself")
        found.append(check_result(rules, instance, stage, limits))
        left = limits_of_stages(stages[: number + 1], float(tolerance or 0.0), rules.objectives)
        limits = dict(given) | {
            name: tighter(given.get(name), limit, rules.objectives[name]) for name, limit in left.items()
        }
    return found, limits


def _check_alone(rules: Rules[Any, Any], instance: Any, result: Mapping[str, Any]) -> Verdict:
    """Check a result against its own instance, limits on objectives included."""
    if mismatches := list(_mismatches(rules, instance, result)):
        *others, last = mismatches
        return Verdict([*others, f"{last}; nothing else was checked, as the two do not belong together"])
    name = result.get("objective_name", instance.objective)
    if not isinstance(name, str) or name not in rules.objectives:
        known = ", ".join(rules.objectives)
        fault = f"objective_name: {name!r:.80} is not an objective of '{rules.name}', which has {known}"
        return Verdict([fault])
    instance, sense = instance.model_copy(update={"objective": name}), rules.objectives[name]
    faults: list[str] = []
    if result.get("sense", sense) != sense:
        faults.append(f"sense: '{name}' is a {sense} objective, the result says {result['sense']!r:.80}")
    report, decision_faults = _check_decision(rules, instance, result.get("decision"))
    certificate, without_prices = result.get("certificate"), None
    proofs = {} if certificate is None else proofs_of(rules.prover(instance), sense, certificate)
    if not proofs and reason_of(result) == "infeasible":
        without_prices = self_evident(rules.prover(instance))
    claims = Claims(result, sense, report, proofs, without_prices is not None)
    faults += [*decision_faults, *claims.faults()]
    faults += Conflict(rules, instance, result).faults()
    return Verdict(list(dict.fromkeys(faults)), report, proofs.get("bound", without_prices), claims.on_trust)


def _mismatches(rules: Rules[Any, Any], instance: Any, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why a result is not of this instance: problem, name or digest."""
    if (found := result.get("problem", "sizing")) != rules.name:
        yield f"problem: the result is of {found!r:.80}, the instance of '{rules.name}'"
    if (found := result.get("instance", instance.name)) != instance.name:
        yield f"instance: the result is of {found!r:.80}, not of '{instance.name}'"
        return
    found = result.get("digest")
    undigested = found == "" and (is_older(result) or reason_of(result) == "no_solution")
    if not undigested and found != (own := digest_of(instance)):
        other = f"another instance than this '{instance.name}', or it was changed since"
        yield f"digest: the result is of {other}: {found!r:.80} is not {own}"


def _check_decision(rules: Rules[Any, Any], instance: Any, document: Any) -> tuple[Report | None, list[str]]:
    """Return the report on a result's decision, None where it cannot be read or is none, and the faults."""
    if document is None:
        return None, []
    try:
        is_model = isinstance(document, rules.decision)
        decision = document if is_model else validated(rules.decision, document)
    except InputError as error:
        return None, [f"decision: {fault}" for fault in error.faults]
    report = rules.check(instance, decision)
    return report, report.faults
