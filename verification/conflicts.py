"""Check of a set of limits that is said to contradict itself, each of which is needed for that.

The instance with only these limits is proven to have no decision. Without any one of them, or with it as much
easier as is said, a decision shows that there is one; with a little less, another proof that there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wattsched.instances.errors import InputError, shown, validated
from wattsched.verification.certificates import beyond_proof, proofs_of, self_evident
from wattsched.verification.claims import reason_of
from wattsched.verification.limits import Limit, eased
from wattsched.verification.report import number

MOST_MEMBERS = 10_000
"""Sets of more members are not looked at."""


class Conflict:
    """The set of limits that a result says contradict each other, against the instance.

    All that it says is to be proven, nothing is taken on trust.
    """

    def __init__(self, rules: Any, instance: Any, result: Mapping[str, Any]):
        # Those of the problem, as `verdict.Rules` has them.
        self.rules, self.instance, self.document = rules, instance, result.get("conflict")
        self.infeasible = reason_of(result) == "infeasible"

    def faults(self) -> list[str]:
        """Return what is wrong, one line each; none where a result has no such set."""
        if self.document is None:
            return []
        return [f"conflict: {fault}" for fault in self._faults()]

    def _faults(self) -> Iterator[str]:
        if not self.infeasible:
            yield "only a result that says 'infeasible' can have one"
            return
        document = self.document
        members = document.get("members") if isinstance(document, dict) else None
        if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
            yield "must be an object with 'members', a list of objects"
            return
        names = [str(member.get("limit")) for member in members]
        self.limits = {limit.name: limit for limit in self.rules.limits(self.instance)}
        if not 0 < len(names) <= MOST_MEMBERS:
            yield f"has {len(names)} members, 1 to {MOST_MEMBERS} are read"
        elif len(set(names)) < len(names):
            yield "names a limit twice"
        elif strange := [name for name in names if name not in self.limits]:
            yield f"{shown(strange[0])} is no limit of the instance"
        else:
            yield from self._of_members(members, names)

    def _of_members(self, members: list[dict[str, Any]], names: list[str]) -> Iterator[str]:
        assert self.document is not None
        alone = dict.fromkeys(self.limits.keys() - set(names))
        yield from self._unproven("members", alone, self.document.get("certificate"), "the limits leave room")
        for member, name in zip(members, names, strict=True):
            limit, bases = self.limits[name], [alone, *([{}] if member.get("enough") is True else [])]
            if member.get("unit", limit.unit) != limit.unit:
                yield f"{name}: its unit is {shown(limit.unit)}, not {shown(member['unit'])}"
            elif member.get("value") != limit.value:
                yield f"{name}: its value is {shown(limit.value)}, not {shown(member.get('value'))}"
            elif member.get("decision") is not None:
                yield from self._of_witness(limit, bases, member)
            elif self.document.get("minimal") is not False:
                yield f"{name}: no decision shows that it is needed"

    def _eased(self, values: Mapping[str, float | None]) -> Any:
        return eased(self.instance, self.limits.values(), values)

    def _of_witness(
        self, limit: Limit, bases: list[dict[str, None]], member: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield what is wrong with the decision without a limit, and with its least easier value.

        `bases` are limits that are left out besides: in each case it is to be a decision, and in the last one
        the value is the least.
        """
        needed = None if member.get("needed") is None else number(member, "needed")
        try:
            decision = member["decision"]
            if not isinstance(decision, self.rules.decision):
                decision = validated(self.rules.decision, decision)
        except InputError as error:
            yield f"{limit.name}: decision: {error.faults[0]}"
            return
        for others in bases:
            if found := self.rules.check(self._eased({**others, limit.name: needed}), decision).faults:
                yield f"{limit.name}: the decision is none without it: {found[0]}"
        if member.get("needed") is None:
            return
        short = number(member, "insufficient")
        if limit.value is None or needed is None or not limit.easier(needed, limit.value):
            yield f"{limit.name}: {shown(member['needed'])} is no easier value than {shown(limit.value)}"
        elif short is not None and (limit.easier(short, needed) or limit.easier(limit.value, short)):
            yield f"{limit.name}: insufficient {short:.9g} is not between {limit.value:.9g} and {needed:.9g}"
        elif short is not None:
            harder, why = {**bases[-1], limit.name: short}, f"{short:.9g} leaves room"
            yield from self._unproven(limit.name, harder, member.get("certificate"), why)

    def _unproven(
        self, what: str, values: Mapping[str, float | None], certificate: Any, why: str
    ) -> Iterator[str]:
        """Yield a fault where a certificate does not prove that some values of limits leave no decision."""
        instance = self._eased(values)
        prove, sense = self.rules.prover(instance), self.rules.objectives[instance.objective]
        if certificate is None:
            if self_evident(prove) is None:
                yield f"{what}: there is no certificate"
            return
        proofs = proofs_of(prove, sense, certificate)
        proof = proofs["bound"]
        if beyond := beyond_proof(proofs, certificate, sense):
            yield f"{what}: {beyond}"
        elif proof.faults:
            yield f"{what}: {proof.faults[0]}"
        elif proof.excess <= 0:
            yield f"{what}: the certificate proves nothing, {why}"
