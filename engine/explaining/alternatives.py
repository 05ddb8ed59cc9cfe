"""Search for the least changes of a round that let a job run, while no other job is later than decided."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, get_args

import numpy as np

from wattsched.explaining.rounds import DecidedRound, changed
from wattsched.formulations.sizing.data import Options, options_of
from wattsched.formulations.sizing.jobs import jobs_of
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import LAST_DIGITS
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.explanation import (
    NEARLY,
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
from wattsched.topology.arrays import IntArray
from wattsched.topology.fields import LARGEST
from wattsched.topology.pools import Pool
from wattsched.topology.room import room_for
from wattsched.verification.sizing.checker import check

NOTHING = Change()
BUDGETS = ("power_w", "energy_j", "carbon_g")
MOST_POOLS = 2
"""Pools in which more GPUs are looked for: those in which the job would be complete soonest."""

FREE_W, STEPS = 1e9, 16
"""Watts by which a cap is raised to have none, and parts of what is needed then that are tried."""

EARLIER = 1e-5
"""Part of a deadline by which one is earlier that is shown to be too early; the checker tolerates less."""

_GAPS = {"forced": 1e-4}
_EXACT, _ROUNDING = 1e-9, 1e-9
_SHARE, _GLANCE = 0.5, 0.1


class Alternatives:
    """Changes that let a job run.

    Attributes
    ----------
    unanswered : list of str
        What was not found in time.
    """

    def __init__(self, of: DecidedRound, timer: Timer):
        self.of, self.timer, self.unanswered = of, timer, list[str]()
        self._solved = dict[tuple[str, str], Result | None]()

    def found(self) -> list[Alternative]:
        """Find changes of each kind, those of what there is before those of what the job asks for."""
        # What is likely to be short is looked at first: GPUs, unless the others leave room if they move.
        short = all(int(needs.min()) > free for _, needs, free in self._rooms())
        short = short and ((moved := self.solved("watts", share=_GLANCE)) is None or not moved.solved)
        found = (self._of_gpus() or self._of_budgets()) if short else (self._of_budgets() or self._of_gpus())
        if self.timer.over():
            self.unanswered.append("budgets")
        for name, look in {"later": self._of_time, "requests": self.of_requests}.items():
            if any(one.change == NOTHING for one in found):
                break  # nothing need be changed
            if self.timer.over():
                self.unanswered.append(name)
            found += [one for one in look() if not any(_covers(other.change, one.change) for other in found)]
        return found

    def solved(self, name: RoundName, change: Change = NOTHING, share: float = _SHARE) -> Result | None:
        """Solve a derived round, once, in a share of the time that is left.

        None for a round with a fault, and where there is no time left.
        """
        key = name, change.model_dump_json()
        if key not in self._solved:
            round = None if self.timer.over() else self.of.derived(name, change)
            if round is None or ((change.gpus or change.lifted) and faults_of(round)):
                return None
            limits = Limits(gap=_GAPS.get(name, _EXACT), time_s=self.timer.share(share).remaining_s())
            self._solved[key] = answered(Call(round, (None, "auto", None), limits, of_session=True))
        return self._solved[key]

    def _of_budgets(self) -> list[Alternative]:
        """Find the least raise of budgets with which the job runs, of watts alone or else of joules."""
        found = self._alternative(NOTHING, "watts")
        if found and not found[0].change.amounts.keys() <= {"power_w"}:
            return self._alternative(NOTHING, "joules") or found
        return found

    def _of_gpus(self) -> list[Alternative]:
        """Find the fewest more GPUs in each pool, or in the quota of the tenant, with which the job runs."""
        of, known, options = self.of, self.of.known, self._options()
        found = list[Alternative]()
        for pool, needs, free in self._rooms():
            more = [Change(gpus={pool.name: n + 1}) for n in range(int(needs.max()))]
            found += self._first("watts", more, max(1, int(needs.min()) - free) - 1)
        tenant = of.instance.tenants.get(known.jobs.coded("tenant").at(of.job) or "")
        if tenant is not None and tenant.gpus is not None and len(options):
            most = int(options.gpus.max()) + tenant.gpus
            found += self._first("watts", [Change(tenant_gpus=n + 1) for n in range(most)], 0)
            if not found:  # both are short
                theirs = {known.jobs.names[j] for j in np.flatnonzero(known.tenant == known.tenant[of.job])}
                left = tenant.gpus - sum(one.gpus for one in of.decision.jobs if one.job in theirs)
                pool, needs = known.pools[options.pool[0]], options.gpus[options.pool == options.pool[0]]
                both = Change(tenant_gpus=max(1, int(needs.min()) - left))
                more = [both.model_copy(update={"gpus": {pool.name: n + 1}}) for n in range(int(needs.max()))]
                found += self._first("watts", more, 0)
        return found or self._of_domains()

    def _of_domains(self) -> list[Alternative]:
        """Find by how much caps of power domains are too low, where more GPUs are not needed."""
        domains, found = self.of.instance.cluster.power_domains, list[Alternative]()
        free = Change(power_domains={one.name: FREE_W for one in domains})
        if not domains or (at_any := self.solved("watts", free)) is None or not at_any.solved:
            return found
        for pool, *_ in self._rooms():
            free = Change(power_domains=dict.fromkeys(pool.domains, FREE_W))
            result = self.solved("watts", free)
            if result is not None and result.solved and (over_w := self.of.overdraw_w(result.decision)):
                parts = [*(n / STEPS for n in range(1, STEPS)), 1 - NEARLY / 2, 1.0]
                raised = [Change(power_domains={d: w * part for d, w in over_w.items()}) for part in parts]
                found += self._first("watts", raised, STEPS)
        return found

    def _rooms(self) -> Iterator[tuple[Pool, IntArray, int]]:
        """Yield the pools in which the job would be soonest, GPUs that its options take, and what is free."""
        options, known = self._options(), self.of.known
        soonest = options.pool[np.argsort(options.completion_s, kind="stable")]
        for p in list(dict.fromkeys(soonest.tolist()))[:MOST_POOLS]:
            pool = known.pools[p]
            taken = [one.gpus for one in self.of.decision.jobs if one.pool == pool.name]
            gpus = np.array(taken, dtype=np.int64)
            free = int(pool.available.sum() - room_for([pool], np.zeros_like(gpus), gpus).sum())
            yield pool, options.block[options.pool == p], free

    def _of_time(self) -> list[Alternative]:
        """Find what lets the job run with an option that is later than if it waits, where that differs."""
        return self._alternative(Change(later=True), "watts") if np.isfinite(self.of.waits_s) else []

    def of_requests(self, restrictions: Collection[str] = get_args(Restriction)) -> list[Alternative]:
        """Find changes of what the job asks for: its least size, its deadline, and what it restricts."""
        job, found = self.of.known.jobs[self.of.job], list[Alternative]()
        if job.min_gpus is not None:
            counts = np.unique(self._options(Change(min_gpus=1)).gpus)[::-1].tolist()
            found += self._first("kept", [Change(min_gpus=n) for n in counts if n < job.min_gpus])
        if job.deadline_s is not None:
            seconds = np.unique(self._options(Change(deadline_s=LARGEST)).completion_s).tolist()
            found += self._first("kept", [Change(deadline_s=s) for s in seconds if s > job.deadline_s])
        for name in get_args(Restriction):
            if name in restrictions and getattr(job, name) is not None:
                found += self._first("kept", [Change(lifted=[name])])
        return found

    def _first(self, name: RoundName, changes: list[Change], guess: int | None = None) -> list[Alternative]:
        """Find the first of some changes, each of which allows more than the one before, that is enough.

        After a guess the one before it is tried; then they are bisected. A little less is shown not to do.
        """
        low, high = -1, len(changes)
        trial = len(changes) // 2 if guess is None else min(guess, len(changes) - 1)
        while low + 1 < high:
            result = self.solved(name, changes[trial])
            if result is None or result.termination.reason not in ("optimal", "feasible", "infeasible"):
                self.unanswered.append(next(iter([*changes[trial].amounts, *changes[trial].lifted])))
                break
            low, high = (low, trial) if result.solved else (trial, high)
            trial = high - 1 if trial == guess == high and low + 1 < high else (low + high) // 2
        if high == len(changes):
            return []
        base = self.solved(name, self._less(changes[0])) if low < 0 and name == "watts" else None
        if base is not None and base.solved:  # no change of the kind is needed
            return []
        less = changes[low] if low >= 0 and name == "watts" else self._less(changes[high])
        return self._alternative(changes[high], name, less if low + 1 == high else None)

    def _less(self, change: Change) -> Change:
        """Return a change that allows just a little less; nothing of what a first change raises."""
        if change.min_gpus is not None:
            return Change(min_gpus=change.min_gpus + 1)
        if change.deadline_s is not None:
            own_s = self.of.known.jobs[self.of.job].deadline_s or 0.0
            return Change(deadline_s=max(own_s, change.deadline_s * (1 - EARLIER)))
        return Change(tenant_gpus=change.tenant_gpus if change.gpus else 0)

    def _options(self, change: Change | None = None) -> Options:
        """Options with which the job runs and is not later than if it waits; perhaps it asks for less."""
        round = self.of.known if change is None else jobs_of(changed(self.of.instance, self.of.job, change))
        options = options_of(round, np.array([self.of.job]))
        soon = options.completion_s <= self.of.waits_s * (1 + LAST_DIGITS)
        return options.take(np.flatnonzero(~options.waiting & soon))

    def _alternative(self, change: Change, name: RoundName, less: Change | None = None) -> list[Alternative]:
        """Make an alternative of a derived round's decision, with budgets raised to what it uses; else none.

        Its proofs are the certificates of the round with `less`, and of itself where that bounds a budget.
        """
        if (result := self.solved(name, change)) is None or not result.solved:
            return []
        whole, proving = self._raised(change, result), [] if less is None else [(name, less)]
        proving += [] if name == "kept" else [(name, change)]
        capped = whole.model_copy(update={"energy_j": 0.0, "carbon_g": 0.0})
        joules = self.solved("joules", capped) if name == "watts" and whole != capped else None
        if joules is not None and joules.solved:  # the least energy with these watts
            result, whole = joules, self._raised(capped, joules)
            proving.append(("joules", capped))
        if (decision := self._nearest(whole, result.decision)) is None:
            return []
        proofs = [proof_of(*one, self.solved(*one)) for one in proving]
        found = Alternative(
            change=whole,
            decision=difference_of(self.of.decision, decision),
            proofs=[one for one in proofs if one is not None],
        )
        return [found.model_copy(update={"least": self._least(found)})]

    def _limits(self) -> dict[str, float]:
        """Budgets of the round that can be raised."""
        named = ((name, getattr(self.of.instance.budgets, name)) for name in BUDGETS)
        return {name: limit for name, limit in named if limit is not None}

    def _raised(self, change: Change, result: Result) -> Change:
        """Return a change with budgets raised to what a decision uses."""
        totals = check(self.of.derived("kept", change), result.decision).totals
        used, limits = totals | {"power_w": totals.get("worst_power_w", totals["power_w"])}, self._limits()
        had = {name: limit + getattr(change, name) for name, limit in limits.items()}
        above = [name for name, limit in had.items() if used[name] > limit * (1 + _ROUNDING)]
        return change.model_copy(update={name: used[name] - limits[name] for name in above})

    def _least(self, found: Alternative) -> dict[str, float]:
        """Return what the proofs show of each amount."""
        least, amounts, limits = dict[str, float](), found.change.amounts, self._limits()
        for proof in found.proofs:
            result = self.solved(proof.round, proof.change)
            if result is None or result.objective is None:  # a little less is impossible
                for name in ("gpus", "tenant_gpus", "min_gpus", "deadline_s"):
                    if name in amounts and getattr(proof.change, name) != getattr(found.change, name):
                        least[name] = amounts[name]
                if found.change.power_domains:
                    least["power_domains"] = proof.change.amounts.get("power_domains", 0.0)
                continue
            beyond = proof.certificate["bound"] - result.objective
            if proof.round == "watts" and "power_w" in limits:
                round_s = self.of.derived("watts", proof.change).round_s
                watts = result.totals["power_w"] + beyond / round_s
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


def _covers(known: Change, other: Change) -> bool:
    """True if another change, which lets the job be later, needs no less than a known one."""
    least = other.amounts
    return other.later and all(least.get(name, 0.0) >= n * (1 - NEARLY) for name, n in known.amounts.items())


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
    certificate: dict[str, Any] = {"prices": {}, "bound": 0.0}  # proves enough where a job has no option
    if result.certificate is not None:
        certificate = document_of(result)
    elif result.termination.reason != "infeasible":
        return None
    return Proof(round=name, change=change, certificate=certificate)
