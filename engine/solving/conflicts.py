"""Why an instance has no decision: limits that contradict each other, none of which could be left out.

The set is found by halves (Junker 2004, "QuickXplain: Preferred explanations and relaxations for
over-constrained problems"): parts of the limits are left out of the instance, which is solved again. Then
each member is eased until the others hold, by bisection; what decisions use jumps over most of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError
from wattsched.results.problems import Problem
from wattsched.results.result import Conflict, ConflictMember, Result
from wattsched.verification.limits import STEP, Limit, eased
from wattsched.verification.report import TOLERANCE

Values = Mapping[str, float | None]

USUAL_S = 2.0
"""Seconds for a set where nobody says how many."""

MOST_JOBS = 5_000
"""Jobs up to which a set is looked for where nobody asks for it."""

LEAST_S = 0.005
"""Seconds below which nothing more is solved."""

_DOUBLINGS = 60
# Of `STEP`, what is left of the use of a decision that is found by bisection.
_EXACT = 1e-2
# Share of the time for finding the set; the rest is for easing its members.
_FINDING = 0.6


class CutError(Exception):
    """The time is over, or a part of the instance had no answer."""


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

    def eased(self, values: Values) -> Any:
        """The instance with other values of some limits, None for without them."""
        return eased(self.instance, self.limits.values(), values)

    def solved(self, values: Values) -> Result:
        """Result with other values of some limits: a decision, or that there is none."""
        left_s = self.timer.remaining_s()
        if left_s is None or left_s < LEAST_S:
            raise CutError
        try:
            result = self.solve(self.eased(values), time_limit=left_s)
        except InputError:  # larger clusters may not be sound, as where some of their nodes have to sleep
            raise CutError from None
        if not result.solved and result.termination.reason != "infeasible":
            raise CutError
        return result

    def faults(self, values: Values, decision: Any) -> list[str]:
        """Faults of a decision with other values of some limits."""
        found: list[str] = self.problem.check(self.eased(values), decision).faults
        return found

    def others(self, kept: Collection[str]) -> dict[str, None]:
        """All limits but some, as values that leave them out."""
        return {name: None for name in self.limits if name not in kept}

    def smallest(self, kept: list[str], added: bool, open: list[str]) -> list[str]:
        """Limits among the open ones that leave no decision with those that are kept.

        `added` says whether some were kept since it was last asked whether these leave any.
        """
        if added and not self.solved(self.others(kept)).solved:
            return []
        if len(open) <= 1:
            return open
        first, second = open[: len(open) // 2], open[len(open) // 2 :]
        later = self.smallest([*kept, *first], bool(first), second)
        return [*self.smallest([*kept, *later], bool(later), first), *later]

    def member(self, limit: Limit, others: dict[str, None], without: Result, none: Result) -> ConflictMember:
        """Return a limit that leaves no decision without some others, and its least value that leaves one.

        Parameters
        ----------
        without : Result
            Without the limit, too.
        none : Result
            With it: that there is no decision.
        """
        known = ConflictMember(
            limit=limit.name,
            value=limit.value,
            unit=limit.unit,
            enough=not others,
            decision=without.decision,
        )
        needed = None if limit.value is None else self.used(limit, others, without, None)
        if limit.value is None or needed is None:
            return known
        short, found, near = limit.value, without, False
        proven = None if none.claimed else (short, none.certificate)
        try:
            while limit.easier(below := limit.below(needed), short) and below != needed:
                value = below if near else limit.between(short, needed)
                result = self.solved({**others, limit.name: value})
                if result.solved:
                    needed, found = self.used(limit, others, result, value) or value, result
                else:
                    short, proven = value, proven if result.claimed else (value, result.certificate)
                near = not near
        except CutError:
            pass
        told: dict[str, Any] = {"needed": needed, "decision": found.decision}
        told |= {} if proven is None else {"insufficient": proven[0], "certificate": proven[1]}
        return known.model_copy(update=told)

    def used(self, limit: Limit, others: Values, result: Result, value: float | None) -> float | None:
        """Hardest value of a limit that the decision of a result keeps; it keeps `value`, or any for None."""
        assert limit.value is not None
        if limit.total in result.totals and not any(self.limits[name].grown for name in others):
            return float(result.totals[limit.total])

        def keeps(number: float) -> bool:
            return not self.faults({**others, limit.name: number}, result.decision)

        hard, step = limit.value, limit.step or STEP * max(1.0, abs(limit.value))
        for doubling in range(_DOUBLINGS if value is None else 0):
            more = step * 2.0**doubling
            value = max(0.0, limit.value - more) if limit.at_least else limit.value + more
            if keeps(value):
                break
            hard, value = value, None
        if value is None:
            return None
        exact = limit.step or _EXACT * STEP * max(abs(value), abs(limit.value))
        while abs(value - hard) > exact and not self.timer.over():
            middle = limit.between(hard, value)
            value, hard = (middle, hard) if keeps(middle) else (value, middle)
        # What the checker tolerates is no part of what is needed.
        aside = 0.0 if limit.step else TOLERANCE * abs(value)
        return value - aside if limit.at_least else value + aside


def conflict_of(
    none: Result, instance: Any, problem: Problem[Any, Any, Any], solve: Callable[..., Result], timer: Timer
) -> Conflict | None:
    """Limits that leave an instance without a decision; None where it is not by limits that there is none.

    Parameters
    ----------
    none : Result
        Of the instance: that it has no decision.
    instance : model of an instance
    solve : callable
        Takes an instance and a time limit.
    timer : Timer
        With a limit.

    Raises
    ------
    CutError
        If they were not found in time.
    """
    limits = {limit.name: limit for limit in problem.limits(instance)}
    search = _Search(instance, problem, limits, solve, timer.share(_FINDING))
    # What many jobs demand comes last: without time for it, the limits that it contradicts are known.
    demands = [name for name, limit in limits.items() if limit.path[0] == "jobs"]
    others = [name for name, limit in limits.items() if limit.path[0] != "jobs"]
    if not limits or not search.solved(search.others(())).solved:
        return None
    known = search.smallest(demands, True, others)
    try:
        found, minimal = search.smallest(known, True, demands), True
    except CutError:
        found, minimal = demands, False
    search.timer = timer
    return _explained(search, [*known, *found], none, minimal)


def _explained(search: _Search, names: list[str], none: Result, minimal: bool) -> Conflict | None:
    """The set of some limits with what shows that each is needed, as far as there is time."""
    others, members = search.others(names), list[ConflictMember]()
    alone = search.solved(others)
    if alone.solved or alone.claimed:
        raise CutError
    try:
        for name in names:
            limit, whole = search.limits[name], search.solved({name: None})
            member = search.member(limit, {}, whole, none) if whole.solved else None
            # A job that may wait and has no option counts for nothing; without other limits it may have one.
            if member is None or search.faults({**others, name: member.needed}, member.decision):
                without = search.solved({**others, name: None})
                if not without.solved:  # the set leaves no decision without it, too
                    return _explained(search, [other for other in names if other != name], none, minimal)
                member = search.member(limit, others, without, alone)
            members.append(member)
    except CutError:
        minimal = False
    for name in names[len(members) :]:
        limit = search.limits[name]
        members.append(ConflictMember(limit=name, value=limit.value, unit=limit.unit))
    return Conflict(members=members, minimal=minimal, certificate=alone.certificate)
