"""Search for the least changes of a round that let a job run, while no other job is later than decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np

from wattsched.explaining.rounds import SHORT, DecidedRound, changed
from wattsched.formulations.sizing.data import Options, options_of
from wattsched.formulations.sizing.jobs import jobs_of
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import LAST_DIGITS
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.explanation import (
    Alternative,
    Change,
    Difference,
    Proof,
    Restriction,
    RoundName,
)
from wattsched.instances.sizing.validity import faults_of
from wattsched.results.result import Result
from wattsched.solvers.solution import Limits
from wattsched.solving.call import Call
from wattsched.solving.engine import answered
from wattsched.topology.fields import LARGEST
from wattsched.topology.room import room_for
from wattsched.verification.sizing.checker import check

NOTHING = Change()
BUDGETS = ("power_w", "energy_j", "carbon_g")
MOST_POOLS = 3
"""Pools in which more GPUs are looked for: those in which the job would be complete soonest."""

EARLIER = 1e-5
"""Part of a deadline by which one is earlier that is shown to be too early; the checker tolerates less."""

_GAPS = {"forced": 1e-4}
_EXACT, _SHARE, _ROUNDING = 1e-9, 0.5, 1e-9


class Alternatives:
    """Changes that let a job run.

    Attributes
    ----------
    unanswered : list of str
        What was not found in time.
    """

    def __init__(self, of: DecidedRound, timer: Timer):
        self.of, self.timer, self.unanswered = of, timer, list[str]()

    def found(self) -> list[Alternative]:
        """Find changes of each kind, those of what there is before those of what the job asks for."""
        found: list[Alternative] = []
        looks = {"budgets": self._of_budgets, "gpus": self._of_gpus, "later": self._of_time}
        for name, look in (looks | {"requests": self.of_requests}).items():
            if any(one.change == NOTHING for one in found):
                break  # nothing need be changed
            if self.timer.over():
                self.unanswered.append(name)
            found += look()
        return found

    def solved(self, name: RoundName, change: Change = NOTHING) -> Result | None:
        """Solve a derived round; None for one with a fault, and where there is no time left."""
        if self.timer.over():
            return None
        round = self.of.derived(name, change)
        if (change.gpus or change.lifted) and faults_of(round):
            return None
        limits = Limits(gap=_GAPS.get(name, _EXACT), time_s=self.timer.share(_SHARE).remaining_s())
        return answered(Call(round, (None, "auto", None), limits, of_session=True))

    @cached_property
    def _at_any_watts(self) -> Result | None:
        """Round of watts without a change."""
        return self.solved("watts")

    def _of_budgets(self) -> Iterator[Alternative]:
        """Yield the least raise of budgets with which the job runs, of watts alone or else of joules."""
        if (watts := self._at_any_watts) is None or not watts.solved:
            return
        one = self._alternative(NOTHING, watts, [proof_of("watts", NOTHING, watts)])
        if one is not None and not one.change.amounts.keys() <= {"power_w"}:
            joules = self.solved("joules")
            if joules is not None and joules.solved:
                one = self._alternative(NOTHING, joules, [proof_of("joules", NOTHING, joules)]) or one
        yield from [] if one is None else [one]

    def _of_gpus(self) -> Iterator[Alternative]:
        """Yield the fewest more GPUs in each pool, or in the quota of the tenant, with which the job runs."""
        if (at_any := self._at_any_watts) is None or at_any.termination.reason != "infeasible":
            return
        of, known, options = self.of, self.of.known, self._options()
        soonest = options.pool[np.argsort(options.completion_s, kind="stable")]
        for p in list(dict.fromkeys(soonest.tolist()))[:MOST_POOLS]:
            pool, needs = known.pools[p], options.block[options.pool == p]
            more = partial(_in_pool, pool.name)
            gpus = np.array([one.gpus for one in of.decision.jobs if one.pool == pool.name], dtype=np.int64)
            free = int(pool.available.sum() - room_for([pool], np.zeros_like(gpus), gpus).sum())
            yield from self._fewest(int(needs.max()), max(1, int(needs.min()) - free), more)
        tenant = of.instance.tenants.get(known.jobs.coded("tenant").at(of.job) or "")
        if tenant is not None and tenant.gpus is not None:
            yield from self._fewest(int(options.gpus.max()) + tenant.gpus, 1, lambda n: Change(tenant_gpus=n))

    def _fewest(self, most: int, guess: int, change: Callable[[int], Change]) -> Iterator[Alternative]:
        """Yield the least whole number of something, up to `most`, with which the job runs at any watts.

        First a guess and one less are tried, then the number is bisected. One less is shown to be too little.
        """
        low, high, trial = 0, most + 1, min(guess, most)
        below, best = self._at_any_watts, None
        while low + 1 < high:
            result = self.solved("watts", change(trial))
            if result is None or result.termination.reason not in ("optimal", "feasible", "infeasible"):
                self.unanswered.append(next(iter(change(1).amounts)))
                break
            if result.solved:
                high, best = trial, result
                trial = trial - 1 if trial == guess and trial - 1 > low else (low + high) // 2
            else:
                low, below = trial, result
                trial = (low + high) // 2
        if best is None:
            return
        less = change(low) if low else NOTHING
        proofs = [proof_of("watts", less, below)] if low + 1 == high else []
        one = self._alternative(change(high), best, [*proofs, proof_of("watts", change(high), best)])
        yield from [] if one is None else [one]

    def _of_time(self) -> Iterator[Alternative]:
        """Yield what lets the job run with an option that is later than if it waits, where that differs."""
        if np.isfinite(self.of.waits_s):
            change = Change(later=True)
            result = self.solved("watts", change)
            if result is not None and result.solved:
                one = self._alternative(change, result, [proof_of("watts", change, result)])
                yield from [] if one is None else [one]

    def of_requests(self) -> Iterator[Alternative]:
        """Yield changes of what the job asks for: its least size, its deadline, and what it restricts."""
        job = self.of.known.jobs[self.of.job]
        if job.min_gpus is not None:
            counts = np.unique(self._options(Change(min_gpus=1)).gpus)[::-1].tolist()
            fewer = [Change(min_gpus=n) for n in counts if n < job.min_gpus]
            yield from self._first(fewer, lambda one: Change(min_gpus=(one.min_gpus or 0) + 1))
        if (deadline_s := job.deadline_s) is not None:
            seconds = np.unique(self._options(Change(deadline_s=LARGEST)).completion_s).tolist()
            later = [Change(deadline_s=s) for s in seconds if s > deadline_s]
            yield from self._first(later, partial(_earlier, deadline_s))
        for name in get_args(Restriction):
            if getattr(job, name) is not None:
                yield from self._first([Change(lifted=[name])], lambda one: NOTHING)

    def _first(self, changes: list[Change], less: Callable[[Change], Change]) -> Iterator[Alternative]:
        """Yield the first of some changes, each of which allows more than the one before, that is enough.

        What is a little `less` than it is shown to be too little.
        """
        low, high, best = -1, len(changes), None
        while low + 1 < high:
            trial = (low + high) // 2
            result = self.solved("kept", changes[trial])
            if result is None or result.termination.reason not in ("optimal", "feasible", "infeasible"):
                self.unanswered.append("requests")
                return
            low, high = (low, trial) if result.solved else (trial, high)
            best = result if result.solved else best
        if best is not None:
            tried = less(changes[high])
            proof = proof_of("kept", tried, self.solved("kept", tried))
            one = self._alternative(changes[high], best, [proof])
            yield from [] if one is None else [one]

    def _options(self, change: Change | None = None) -> Options:
        """Options with which the job runs and is not later than if it waits; perhaps it asks for less."""
        round = self.of.known if change is None else jobs_of(changed(self.of.instance, self.of.job, change))
        options = options_of(round, np.array([self.of.job]))
        soon = options.completion_s <= self.of.waits_s * (1 + LAST_DIGITS)
        return options.take(np.flatnonzero(~options.waiting & soon))

    def _alternative(self, change: Change, result: Result, proofs: list[Proof | None]) -> Alternative | None:
        """Make an alternative of a decision, with budgets raised to what it uses; None if it is not valid."""
        round, budgets = self.of.derived("kept", change), self.of.instance.budgets
        totals = check(round, result.decision).totals
        used = totals | {"power_w": totals.get("worst_power_w", totals["power_w"])}
        limits = {name: limit for name, limit in budgets if name in BUDGETS and limit is not None}
        raised = {
            name: used[name] - limit for name, limit in limits.items() if used[name] > limit * (1 + _ROUNDING)
        }
        whole = change.model_copy(update=raised)
        decision = self._nearest(whole, result.decision)
        sound = [one for one in proofs if one is not None]
        if decision is None:
            return None
        found = Alternative(change=whole, decision=difference_of(self.of.decision, decision), proofs=sound)
        return found.model_copy(update={"least": self._least(found, result, limits)})

    def _least(self, found: Alternative, result: Result, limits: dict[str, float]) -> dict[str, float]:
        """Return what the proofs show of each amount, `result` being the one that the decision is of."""
        least, amounts = dict[str, float](), found.change.amounts
        for proof in found.proofs:
            if proof.change != found.change.without_budgets or proof.round == "kept":
                for name in ("gpus", "tenant_gpus", "min_gpus", "deadline_s"):
                    least |= {name: amounts[name]} if name in amounts else {}
                continue
            assert result.objective is not None
            beyond = proof.certificate["bound"] - result.objective
            if proof.round == "watts" and "power_w" in limits:
                watts = result.totals["power_w"] + beyond / (SHORT * self.of.shortest_s)
                least["power_w"] = max(0.0, watts - limits["power_w"])
            if proof.round == "joules":
                part = (result.totals["energy_j"] + beyond) / result.totals["energy_j"]
                for name in limits.keys() & {"energy_j", "carbon_g"}:
                    least[name] = max(0.0, result.totals[name] * part - limits[name])
        return {name: amount for name, amount in least.items() if name in amounts}

    def _nearest(self, change: Change, decision: Decision) -> Decision | None:
        """Find a valid decision of a changed round in which all others do as decided, or as in this one."""
        round, name = self.of.derived("kept", change), self.of.known.jobs.names[self.of.job]
        own = [one for one in decision.jobs if one.job == name]
        for candidate in (*map(self.of.joined, own), decision):
            for one in (self.of.placed(round, candidate), candidate):
                if not check(round, one).faults:
                    return one
        return None


def _in_pool(pool: str, gpus: int) -> Change:
    return Change(gpus={pool: gpus})


def _earlier(asked_s: float, one: Change) -> Change:
    """Change to a deadline that is a little earlier, and no earlier than the one that was asked for."""
    assert one.deadline_s is not None
    return Change(deadline_s=max(asked_s, one.deadline_s * (1 - EARLIER)))


def difference_of(before: Decision, after: Decision) -> Difference:
    """Parts of a decision that differ from another one."""
    known, waited = {one.job: one for one in before.jobs}, set(before.waiting)
    jobs = [one for one in after.jobs if known.get(one.job) != one]
    return Difference(jobs=jobs, waiting=[name for name in after.waiting if name not in waited])


def document_of(result: Result) -> dict[str, Any]:
    """Certificate of a result as a document."""
    assert result.certificate is not None
    found: dict[str, Any] = result.certificate.model_dump(mode="json", exclude_none=True)
    return found


def proof_of(name: RoundName, change: Change, result: Result | None) -> Proof | None:
    """Proof by the certificate of a derived round; None where there is none, or where more is claimed."""
    if result is None or (result.claimed and not result.solved):
        return None
    if result.certificate is None and result.termination.reason == "infeasible":
        return Proof(
            round=name, change=change, certificate={"prices": {}, "bound": 0.0}
        )  # a job has no option
    if result.certificate is None:
        return None
    return Proof(round=name, change=change, certificate=document_of(result))
