"""Check results of any problem: the decision, its certificate and its claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel

from wattsched.instances.digest import digest_of
from wattsched.instances.errors import InputError, validated
from wattsched.verification.claims import Claims, gap_between, is_older, is_within, reason_of, told_apart
from wattsched.verification.report import Proof, Report, is_finite, number
from wattsched.verification.tree import ProveLeaf, prove_tree

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
    """

    name: str
    instance: type[InstanceT]
    decision: type[DecisionT]
    objectives: Mapping[str, Literal["min", "max"]]
    check: Callable[[InstanceT, DecisionT], Report]
    prover: Callable[[InstanceT], ProveLeaf]
    sharded_prover: Callable[[Any, InstanceT], ProveLeaf] | None = field(default=None, kw_only=True)

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
    """

    faults: list[str]
    report: Report | None = None
    proof: Proof | None = None
    claimed: bool = False

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
        if gap is None or self.infeasible:
            return self
        if self.proven_gap is None:
            return replace(self, faults=[*self.faults, f"gap: nothing is proven, {gap:.3g} is required"])
        if is_within(self.proven_gap, gap):
            return self
        proven, required = told_apart(self.proven_gap, gap)
        return replace(self, faults=[*self.faults, f"gap: {proven} is proven, {required} is required"])


def self_evident(prove: ProveLeaf) -> Proof | None:
    """Return the proof, without prices, that some job can neither run nor wait; None if there is none."""
    proof = prove({}, ())
    return proof if proof.excess > 0 else None


def check_result(rules: Rules[Any, Any], instance: Any, result: Mapping[str, Any]) -> Verdict:
    """Check a result: its decision, its certificate, and all that it claims about them.

    Parameters
    ----------
    rules : Rules
    instance : model of an instance
        Free of faults. The result's ``objective_name`` replaces its objective.
    result : mapping
        Parsed ``wattsched-result/2``, perhaps with its decision as a model.
    """
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
    proofs, without_prices = prove_certificate(rules, instance, result.get("certificate")), None
    if not proofs and reason_of(result) == "infeasible":
        without_prices = self_evident(rules.prover(instance))
    claims = Claims(result, sense, report, proofs, without_prices is not None)
    faults += [*decision_faults, *claims.faults()]
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


def prove_certificate(rules: Rules[Any, Any], instance: Any, certificate: Any) -> dict[str, Proof]:
    """Return the proofs of a certificate, by the field that claims each, the best last; empty without one."""
    if certificate is None:
        return {}
    prices = certificate.get("prices") if isinstance(certificate, dict) else None
    if not isinstance(prices, dict) or number(certificate, "bound") is None:
        return {"bound": Proof(["certificate: needs 'prices', an object, and 'bound', a finite number"])}
    prove = rules.prover(instance)
    by_prices = _require_finite(prove(prices, ()))
    if not (tree := certificate.get("tree")):
        fault = "certificate: 'price_bound' is what prices prove beside a tree, and there is none"
        return {"bound": by_prices if certificate.get("price_bound") is None else Proof([fault])}
    if not isinstance(tree, list) or number(certificate, "price_bound") is None:
        form = "a tree is a list of nodes, beside 'price_bound', a number"
        return {"bound": Proof([f"certificate: {form}"])}
    by_tree = _require_finite(prove_tree(prove, tree, rules.objectives[instance.objective]))
    return {"price_bound": by_prices, "bound": by_tree}


def _require_finite(proof: Proof) -> Proof:
    """Return the proof, or a fault where its bound is not finite though it does not prove infeasibility."""
    if not proof.faults and not is_finite(proof.bound) and not proof.excess > 0:
        return Proof([f"certificate: its prices lead to {proof.bound}, which proves nothing"])
    return proof
