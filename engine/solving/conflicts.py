"""Why an instance has no decision: limits that contradict each other, none of which could be left out.

The set is found by halves (Junker 2004, "QuickXplain: Preferred explanations and relaxations for
over-constrained problems"): parts of the limits are left out of the instance, which is solved again. Then each
member is eased until the others hold, by bisection; what decisions use jumps over most of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from wattsched.formulations.timer import Timer
from wattsched.results.problems import Problem
from wattsched.results.result import Certificate, Conflict, ConflictMember, Result
from wattsched.verification.conflicts import MOST_MEMBERS
from wattsched.verification.limits import STEP, Limit, eased, without_others

USUAL_S = 5.0
"""Seconds for a set where nobody says how many."""

MOST_JOBS = 5_000
"""Jobs up to which a set is looked for where nobody asks for it."""

_LEAST_S = 0.01
_DOUBLINGS = 60
# Of `STEP`, what is left of the use of a decision that is found by bisection.
_EXACT = 1e-2
# Share of the time for finding the set; the rest is for easing its members.
_FINDING = 0.6


class _CutError(Exception):
    """The time is over, or a call had no answer."""


@dataclass
class _Search:
    """Answers to whether parts of an instance have a decision.

    Attributes
    ----------
    instance : object
    problem : Problem
    limits : dict of str to Limit
    solve : callable
        Takes an instance and a time limit.
    timer : Timer
    """

    instance: Any
    problem: Problem[Any, Any, Any]
    limits: dict[str, Limit]
    solve: Callable[..., Result]
    timer: Timer

    def solved(self, instance: Any) -> Result:
        """Result of an instance that has a decision, or is shown to have none."""
        left_s = self.timer.remaining_s()
        if left_s is None or left_s < _LEAST_S:
            raise _CutError
        result = self.solve(instance, time_limit=left_s)
        if not result.solved and result.termination.reason != "infeasible":
            raise _CutError
        return result

    def without_others(self, kept: Collection[str]) -> Any:
        """The instance with only some limits."""
        return without_others(self.instance, self.limits.values(), kept)

    def smallest(self, kept: list[str], added: bool, open: list[str]) -> list[str]:
        """Limits among the open ones that leave no decision with those that are kept.

        `added` says whether some were kept since it was last asked whether these leave any.
        """
        if added and not self.solved(self.without_others(kept)).solved:
            return []
        if len(open) == 1:
            return open
        first, second = open[: len(open) // 2], open[len(open) // 2 :]
        later = self.smallest([*kept, *first], bool(first), second)
        return [*self.smallest([*kept, *later], bool(later), first), *later]

    def member(
        self, limit: Limit, base: Any, without: Result, proof: Certificate | None
    ) -> ConflictMember:
        """Return a limit that leaves no decision in an instance, and its least value that leaves one.

        Parameters
        ----------
        without : Result
            Of the instance without the limit.
        proof : Certificate, optional
            That the instance as it is has no decision.
        """
        known = ConflictMember(
            limit=limit.name,
            value=limit.value,
            unit=limit.unit,
            enough=base is self.instance,
            decision=without.decision,
        )
        needed = None if limit.value is None else self.used(limit, base, without, None)
        if limit.value is None or needed is None:
            return known
        short, decision, near = limit.value, without.decision, True
        try:
            while limit.easier(below := limit.below(needed), short) and below != needed:
                value = below if near else limit.between(short, needed)
                result = self.solved(eased(base, [limit], {limit.name: value}))
                if result.solved:
                    needed, decision = self.used(limit, base, result, value) or value, result.decision
                else:
                    short, proof = value, result.certificate
                near = not near
        except _CutError:
            pass
        found = {"needed": needed, "insufficient": short, "decision": decision, "certificate": proof}
        return known.model_copy(update=found)

    def used(self, limit: Limit, base: Any, result: Result, value: float | None) -> float | None:
        """Hardest value of a limit that the decision of a result keeps; it keeps `value`, or any for None."""
        assert limit.value is not None
        if limit.total and limit.total in result.totals:
            return float(result.totals[limit.total])

        def keeps(number: float) -> bool:
            changed = eased(base, [limit], {limit.name: number})
            return not self.problem.check(changed, result.decision).faults

        hard, step = limit.value, limit.step or STEP * max(1.0, abs(limit.value))
        for doubling in range(_DOUBLINGS if value is None else 0):
            more = step * 2.0**doubling
            value = max(0.0, limit.value - more) if limit.at_least else limit.value + more
            if keeps(value):
                break
            hard, value = value, None
        if value is None:
            return None
        while abs(value - hard) > (limit.step or STEP * _EXACT * abs(value)):
            middle = limit.between(hard, value)
            value, hard = (middle, hard) if keeps(middle) else (value, middle)
        return value


def conflict_of(
    instance: Any,
    problem: Problem[Any, Any, Any],
    proof: Certificate | None,
    solve: Callable[..., Result],
    timer: Timer,
) -> Conflict | None:
    """Limits that leave an instance without a decision; None where none were found in time.

    Parameters
    ----------
    instance : model of an instance
        Without a decision.
    proof : Certificate, optional
        Of that.
    solve : callable
        Takes an instance and a time limit.
    timer : Timer
        With a limit.
    """
    limits = {limit.name: limit for limit in problem.limits(instance)}
    search = _Search(instance, problem, limits, solve, timer.share(_FINDING))
    try:
        if not limits or not search.solved(search.without_others(())).solved:
            return None  # it is not by limits that there is none
        names = search.smallest([], False, list(limits))
    except _CutError:
        return None
    if len(names) > MOST_MEMBERS:
        return None
    search.timer = timer
    return _explained(search, names, proof)


def _explained(search: _Search, names: list[str], proof: Certificate | None) -> Conflict | None:
    """The set of some limits with what shows that each is needed, as far as there is time."""
    members: list[ConflictMember] = []
    certificate: Certificate | None = None
    minimal = True
    try:
        result = search.solved(search.without_others(names))
        if result.solved:
            return None
        certificate = result.certificate
        for name in names:
            limit = search.limits[name]
            dropped = {name: None}
            whole = search.solved(eased(search.instance, [limit], dropped))
            if whole.solved:
                members.append(search.member(limit, search.instance, whole, proof))
                continue
            base = search.without_others(names)
            without = search.solved(eased(base, [limit], dropped))
            if not without.solved:  # the set leaves no decision without it, too
                return _explained(search, [other for other in names if other != name], proof)
            members.append(search.member(limit, base, without, certificate))
    except _CutError:
        minimal = False
    rest = names[len(members) :]
    members += [
        ConflictMember(limit=name, value=search.limits[name].value, unit=search.limits[name].unit)
        for name in rest
    ]
    return Conflict(members=members, minimal=minimal, certificate=certificate)
