"""`explain`: why a job of a round waits, and the least changes with which it would run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from wattsched.explaining.rounds import SHORT, DecidedRound, changed
from wattsched.formulations.sizing.data import Options, options_of
from wattsched.formulations.sizing.jobs import jobs_of
from wattsched.formulations.sizing.matching import matching_options
from wattsched.formulations.sizing.objectives import objective
from wattsched.formulations.tolerances import LAST_DIGITS
from wattsched.formulations.timer import Timer
from wattsched.instances.digest import digest_of
from wattsched.instances.errors import require, require_known
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.explanation import (
    Alternative,
    Change,
    Cost,
    Difference,
    Explanation,
    Proof,
    RoundName,
)
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import faults_of
from wattsched.report.explanation import sentence_of
from wattsched.results.result import Result
from wattsched.solvers.solution import Limits
from wattsched.solving.call import Call
from wattsched.solving.engine import answered, seconds_of, sound_instance, with_objective
from wattsched.topology.fields import LARGEST
from wattsched.topology.room import room_for
from wattsched.verification.report import Report
from wattsched.verification.sizing.checker import check

BUDGETS = {"power_w": "power", "energy_j": "energy", "carbon_g": "carbon"}
"""Budgets that can be raised, and the kind of an alternative that raises one of them alone."""

LINEAR = ("total-completion", "progress", "proportional", "goodput")
"""Objectives in which a job's weight is a factor of its own term, and of no other."""

MOST_POOLS = 3
"""Pools in which more GPUs are looked for: those in which the job would be complete soonest."""

NOT_YET = 1e-5
"""Part of a deadline by which one is earlier that no option meets: a larger one than the checker's tolerance."""

_EXACT, _GAP = 1e-9, 1e-4
_TIME_S, _SHARE = 10.0, 0.5
_TOLERATED = 1e-9
"""Part of a limit up to which more than it is rounding."""


def explain(
    instance: BaseModel | str | Path,
    answer: Result | Decision | str | Path,
    job: str,
    *,
    time_limit: float | None = None,
) -> Explanation:
    """Explain why a job of a round waits, and what would make it run at once.

    Parameters
    ----------
    instance : Instance, str or Path
        A round of sizing.
    answer : Result, Decision, str or Path
        The decision to explain, which is valid.
    job : str
        Name of the job.
    time_limit : float, optional
        Wall-clock seconds; by default 10. What is not found by then is listed as `unanswered`.

    Raises
    ------
    InputError
        For files that are no round, or neither a result nor a decision.
    ValueError
        For a job that the round does not have, a round of another problem, an answer without a decision, and
        a decision that is not valid.
    TypeError
        For arguments of another type.
    """
    from wattsched.results.documents import answer_of, read_document

    timer = Timer(seconds_of("time_limit", _TIME_S if time_limit is None else time_limit))
    round, problem = sound_instance(instance)
    require_range_of_sizing(problem.name)
    if isinstance(answer, str | Path):
        answer = answer_of(read_document(answer), problem.name, str(answer))  # type: ignore[assignment]
    require("answer", answer, (Result, Decision), "a result or a decision of sizing")
    require_known("job", job, round.by_column().place)
    result = answer if isinstance(answer, Result) else None
    decision = answer.decision if isinstance(answer, Result) else answer
    if decision is None:
        raise ValueError("answer: there is no decision to explain")
    if result is not None:
        round = with_objective(problem, round, problem.objective(result.objective_name))
    report = check(round, decision)
    if report.faults:
        raise ValueError(f"answer: the decision is not valid: {report.faults[0]}")
    return Search(DecidedRound(round, decision, round.by_column().place[job]), timer, report, result).found()


def require_range_of_sizing(problem: str) -> None:
    """Refuse rounds of other problems."""
    if problem != "sizing":
        raise ValueError(f"problem: only rounds of 'sizing' are explained, this is of '{problem}'")


@dataclass
class Search:
    """Search for the changes of a round that let a job run.

    Attributes
    ----------
    of : DecidedRound
    timer : Timer
    report : Report
        On the decision.
    result : Result, optional
        That the decision is of, with a bound on all others.
    unanswered : list of str
        What was not found in time.
    """

    of: DecidedRound
    timer: Timer
    report: Report
    result: Result | None
    unanswered: list[str] = field(default_factory=list)

    def found(self) -> Explanation:
        """Everything that is found in time."""
        instance, name = self.of.instance, self.of.known.jobs.names[self.of.job]
        state, told = "waits", dict[str, Any]()
        runs, _ = self.of.outcome
        if runs[self.of.job]:
            state = "runs"
        elif name in self.report.dropped:
            state = "never"
            told["reason"] = self._why_dropped(name)
            told["alternatives"] = list(self._own_changes())
        else:
            told["cost"] = self._cost()
            if told["cost"] is None and (proof := self._never()) is not None:
                state, told["proof"] = "never", proof
            told["alternatives"] = self._alternatives()
        explanation = Explanation(
            instance=instance.name,
            digest=digest_of(instance),
            objective_name=instance.objective,
            job=name,
            state=state,  # type: ignore[arg-type]
            sentence="",
            unanswered=list(dict.fromkeys(self.unanswered)),
            **told,
        )
        sentence = sentence_of(explanation, instance, self.of.decision)
        return explanation.model_copy(update={"sentence": sentence})

    # -- rounds ------------------------------------------------------------------------------------------

    def _solved(self, name: RoundName, change: Change | None = None) -> Result | None:
        """Solve a derived round; None for one that cannot be, and where there is no time left."""
        if self.timer.over():
            return None
        round = self.of.derived(name, change)
        if change is not None and (change.gpus or change.lifted or change.min_gpus) and faults_of(round):
            return None
        gap = _GAP if name == "forced" else _EXACT
        limits = Limits(gap=gap, time_s=self.timer.share(_SHARE).remaining_s(), threads=1, seed=0)
        return answered(Call(round, (None, "auto", None), limits, of_session=True))

    @cached_property
    def _unlimited(self) -> Result | None:
        """Round of watts, in which no budget counts."""
        return self._solved("watts")

    def _least_raise(self, result: Result) -> dict[str, float]:
        """Least raise of the power cap, as the certificate of a round of watts proves."""
        cap = self.of.instance.budgets.power_w
        if cap is None or result.certificate is None or result.objective is None:
            return {}
        beyond_j = result.certificate.bound - result.objective
        least_w = float(result.totals["power_w"]) + beyond_j / (SHORT * self.of.shortest_s)
        return {"power_w": max(0.0, least_w - cap)}

    # -- alternatives ------------------------------------------------------------------------------------

    def _alternatives(self) -> list[Alternative]:
        """Find changes of each kind, those of what there is before those of what the job asks for."""
        kinds: list[tuple[str, Callable[[], Iterator[Alternative]]]] = [
            ("budgets", self._budgets),
            ("gpus", self._gpus),
            ("quota", self._quota),
            ("later", self._later_options),
            ("own", self._own_changes),
        ]
        found: list[Alternative] = []
        for name, look in kinds:
            if any(one.kind == "none" for one in found):
                break
            if self.timer.over():
                self.unanswered.append(name)
                continue
            found += look()
        return found

    def _budgets(self) -> Iterator[Alternative]:
        """Yield the least raise of the budgets with which the job runs, if that is enough."""
        result = self._unlimited
        if result is None or not result.solved:
            return
        proof = Proof(round="watts", certificate=_document(result))
        one = self._alternative("power", Change(), result, self._least_raise(result), [proof])
        if one is not None and set(one.change.amounts) <= {"power_w"}:
            yield one
            return
        if (other := self._solved("joules")) is not None and other.solved:
            found = self._alternative("energy", Change(), other, self._least_of_joules(other), [
                Proof(round="joules", certificate=_document(other))
            ])  # fmt: skip
            if found is not None:
                yield found
                return
        if one is not None:
            yield one

    def _least_of_joules(self, result: Result) -> dict[str, float]:
        """Least raises of the budgets of energy and carbon that a round of joules proves."""
        if result.certificate is None or result.objective is None:
            return {}
        least, instance = dict[str, float](), self.of.instance
        least_j = float(result.totals["energy_j"]) + result.certificate.bound - result.objective
        if instance.budgets.energy_j is not None:
            least["energy_j"] = max(0.0, least_j - instance.budgets.energy_j)
        if instance.budgets.carbon_g is not None:
            grams = float(result.totals["carbon_g"]) / max(1e-300, float(result.totals["energy_j"]))
            least["carbon_g"] = max(0.0, least_j * grams - instance.budgets.carbon_g)
        return least

    def _gpus(self) -> Iterator[Alternative]:
        """Yield the fewest more GPUs in each pool with which the job runs."""
        if self._unlimited is None or self._unlimited.termination.reason != "infeasible":
            return
        known, options = self.of.known, self._options()
        soonest = options.pool[np.argsort(options.completion_s, kind="stable")]
        for p in list(dict.fromkeys(soonest.tolist()))[:MOST_POOLS]:
            pool, need = known.pools[p], int(options.block[options.pool == p].min())
            used = room_for(known.pools, *self._taken(p)).sum()
            guess = max(1, need - int(pool.available.sum() - used))
            yield from self._counted("gpus", need, guess, lambda n, name=pool.name: Change(gpus={name: n}))

    def _taken(self, p: int) -> tuple[Any, Any]:
        """Pool and GPU count of the jobs that run in a pool."""
        gpus = [one.gpus for one in self.of.decision.jobs if one.pool == self.of.known.pools[p].name]
        return np.full(len(gpus), p), np.array(gpus, dtype=np.int64)

    def _quota(self) -> Iterator[Alternative]:
        """Yield the least raise of the tenant's quota of GPUs with which the job runs."""
        jobs = self.of.known.jobs
        tenant = self.of.instance.tenants.get(jobs.coded("tenant").at(self.of.job) or "")
        if self._unlimited is None or self._unlimited.termination.reason != "infeasible" or tenant is None:
            return
        if tenant.gpus is not None:
            most = int(self._options().gpus.min())
            yield from self._counted("quota", most, 1, lambda n: Change(tenant_gpus=n))

    def _counted(
        self, kind: Any, most: int, guess: int, change: Callable[[int], Change]
    ) -> Iterator[Alternative]:
        """Yield the least whole number of something, up to `most`, with which the job runs at any watts.

        One less is proven to be too little: first a guess is tried, and then the number is bisected.
        """
        low, high, trial = 0, most + 1, min(guess, most)
        below, best = self._unlimited, None
        while low + 1 < high:
            result = self._solved("watts", change(trial))
            if result is None or result.termination.reason not in ("optimal", "feasible", "infeasible"):
                self.unanswered.append(kind)
                break
            if result.solved:
                high, best = trial, result
                trial = max(low + 1, trial - 1) if trial == guess else (low + trial) // 2
            else:
                low, below = trial, result
                trial = (low + high) // 2
        if best is None:
            return
        proofs, least, name = [], {}, "tenant_gpus" if kind == "quota" else "gpus"
        if low + 1 == high and below is not None and below.certificate is not None and not below.claimed:
            less = change(low) if low else Change()
            proofs, least = [Proof(round="watts", change=less, certificate=_document(below))], {name: high}
        if any((raised := self._least_raise(best)).values()):
            proofs.append(Proof(round="watts", change=change(high), certificate=_document(best)))
            least |= raised
        one = self._alternative(kind, change(high), best, least, proofs)
        if one is not None:
            yield one

    def _later_options(self) -> Iterator[Alternative]:
        """Yield what lets the job run with an option that is later than if it waits, where that differs."""
        if np.isfinite(self.of.waits_s):
            change = Change(later=True)
            result = self._solved("watts", change)
            if result is not None and result.solved:
                least = self._least_raise(result)
                proofs = [Proof(round="watts", change=change, certificate=_document(result))]
                one = self._alternative("later", change, result, least, proofs)
                if one is not None:
                    yield one

    def _own_changes(self) -> Iterator[Alternative]:
        """Yield changes of what the job asks for: its least size, its deadline, and what it restricts."""
        job = self.of.known.jobs[self.of.job]
        if job.min_gpus is not None:
            counts = np.unique(self._options(Change(min_gpus=1)).gpus)[::-1].tolist()
            below = [n for n in counts if n < job.min_gpus]
            yield from self._first("size", below, lambda n: Change(min_gpus=n), lambda n: Change(min_gpus=n + 1))
        if (deadline_s := job.deadline_s) is not None:
            seconds = np.unique(self._options(Change(deadline_s=LARGEST)).completion_s).tolist()
            late = [s for s in seconds if s > deadline_s]
            yield from self._first(
                "deadline",
                late,
                lambda s: Change(deadline_s=s),
                lambda s: Change(deadline_s=max(deadline_s, s * (1 - NOT_YET))),
            )
        for name in _restricted(job):
            kind = "pool" if name == "pools" else "settings"
            yield from self._first(kind, [name], lambda one: Change(lifted=[one]))

    def _first(
        self,
        kind: Any,
        values: list[Any],
        change: Callable[[Any], Change],
        less: Callable[[Any], Change] | None = None,
    ) -> Iterator[Alternative]:
        """Yield the first of some values, each of which allows more than the one before, that lets it run."""
        low, high, best = -1, len(values), None
        while low + 1 < high:
            trial = (low + high) // 2
            result = self._solved("kept", change(values[trial]))
            if result is None or result.termination.reason not in ("optimal", "feasible", "infeasible"):
                self.unanswered.append(kind)
                return
            low, high = (low, trial) if result.solved else (trial, high)
            best = result if result.solved else best
        if best is None:
            return
        least, proofs = dict[str, float](), list[Proof]()
        below = self._solved("kept", None if less is None else less(values[high]))
        if below is not None and below.certificate is not None and not below.claimed:
            tried = Change() if less is None else less(values[high])
            proofs = [Proof(round="kept", change=tried, certificate=_document(below))]
            least = change(values[high]).amounts
        one = self._alternative(kind, change(values[high]), best, least, proofs)
        if one is not None:
            yield one

    def _options(self, change: Change | None = None) -> Options:
        """Options with which the job runs and is not later than if it waits; perhaps it asks for less."""
        round = self.of.known if change is None else jobs_of(changed(self.of.instance, self.of.job, change))
        options = options_of(round, np.array([self.of.job]))
        soon = options.completion_s <= self.of.waits_s * (1 + LAST_DIGITS)
        return options.take(np.flatnonzero(~options.waiting & soon))

    def _alternative(
        self, kind: Any, change: Change, result: Result, least: dict[str, float], proofs: list[Proof]
    ) -> Alternative | None:
        """Make an alternative of a decision, its budgets raised to what that uses; None if it is not valid."""
        raised = dict[str, float]()
        for name in BUDGETS:
            limit = getattr(self.of.instance.budgets, name)
            used = self._used(name, change, result)
            if limit is not None and used > limit * (1 + _TOLERATED):
                raised[name] = used - limit
        whole = change.model_copy(update=raised)
        if raised:
            kind = "mixed" if change != Change() or len(raised) > 1 else BUDGETS[next(iter(raised))]
        elif whole == Change():
            kind = "none"
        decision = self._nearest(self.of.derived("kept", whole), result.decision)
        if decision is None:
            return None
        least = {name: amount for name, amount in least.items() if getattr(whole, name)}
        difference = difference_of(self.of.decision, decision)
        return Alternative(kind=kind, change=whole, decision=difference, least=least, proofs=proofs)

    def _nearest(self, round: Instance, decision: Decision) -> Decision | None:
        """Valid decision of a round that changes least: all others stay, stay in place, or do as decided."""
        own = next((one for one in decision.jobs if one.job == self.of.known.jobs.names[self.of.job]), None)
        if own is None:
            return None
        for found in (self.of.joined(own), decision):
            for one in (self.of.placed(round, found), found):
                if not check(round, one).faults:
                    return one
        return None

    def _used(self, name: str, change: Change, result: Result) -> float:
        """Use of a budget by a decision in the changed round."""
        totals = check(self.of.derived("kept", change), result.decision).totals
        capped = "worst_power_w" if name == "power_w" and "worst_power_w" in totals else name
        return float(totals.get(capped, 0.0))

    # -- others ------------------------------------------------------------------------------------------

    def _cost(self) -> Cost | None:
        """What it costs others that the job runs although nothing is changed; None where it cannot."""
        result = self._solved("forced")
        if result is None or not result.solved or result.objective is None:
            if result is None or result.termination.reason != "infeasible":
                self.unanswered.append("cost")
            return None
        later = self._later(result.decision)
        weight, least_weight = self._weights(result)
        return Cost(
            decision=difference_of(self.of.decision, result.decision),
            later=later,
            objective=result.objective,
            bound=None if result.certificate is None else result.certificate.bound,
            certificate=None if result.certificate is None else _document(result),
            weight=weight,
            least_weight=least_weight,
        )

    def _later(self, decision: Decision) -> list[str]:
        """Names of the jobs that are complete later, or stop; those that lose most weighted time first."""
        _, before_s = self.of.outcome
        _, after_s = DecidedRound(self.of.instance, decision, self.of.job).outcome
        waits_s = self.of.known.round_s + self.of.known.best_s
        before_s, after_s = (np.where(np.isinf(s), waits_s, s) for s in (before_s, after_s))
        with np.errstate(invalid="ignore"):
            loss = self.of.known.weight * (after_s - before_s)
        worse = np.flatnonzero(after_s > before_s * (1 + 1e-9))
        return [self.of.known.jobs.names[j] for j in worse[np.argsort(-loss[worse], kind="stable")].tolist()]

    def _weights(self, forced: Result) -> tuple[float | None, float | None]:
        """Weights from which on the job runs in a decision as good as any, and below which it does not."""
        instance, job, own = self.of.instance, self.of.job, self.of.known.jobs.numbers("weight")
        if instance.objective not in LINEAR or self.result is None or self.result.certificate is None:
            return None, None
        if instance.uncertainty is not None or self.report.objective is None or forced.objective is None:
            return None, None
        goal = objective(instance.objective)
        sign = 1.0 if goal.sense == "min" else -1.0
        options = options_of(self.of.known, np.array([job]))
        each = sign * goal.value(options) / own[job]
        wait, best = float(each[options.waiting].max(initial=0.0)), float(each[~options.waiting].min())
        runs = float(each[matching_options(options, forced.decision)[job]])
        lost = sign * (forced.objective - self.result.certificate.bound)
        least_lost = sign * ((forced.certificate.bound if forced.certificate else -math.inf * sign) - self.report.objective)
        weight = own[job] + max(0.0, lost) / (wait - runs) * (1 + 1e-9) if wait > runs else None
        least = own[job] + max(0.0, least_lost) / (wait - best) if wait > best and math.isfinite(least_lost) else None
        return weight, None if least is None else least * (1 - 1e-9)

    def _never(self) -> Proof | None:
        """Proof that the job cannot run even if no other job did that may stop."""
        result = self._solved("alone")
        if result is None or result.termination.reason != "infeasible" or result.certificate is None:
            return None
        return Proof(round="alone", certificate=_document(result))

    def _why_dropped(self, name: str) -> str:
        """Reason why the job has no option."""
        from wattsched.formulations.sizing.left_out import decided_jobs

        return decided_jobs(self.of.instance).left_out.get(name, "it has no option")


def difference_of(before: Decision, after: Decision) -> Difference:
    """Parts of a decision that differ from another one."""
    known = {one.job: one for one in before.jobs}
    waited = set(before.waiting)
    jobs = [one for one in after.jobs if known.get(one.job) != one]
    return Difference(jobs=jobs, waiting=[name for name in after.waiting if name not in waited])


def _document(result: Result) -> dict[str, Any]:
    """Certificate of a result as a document."""
    assert result.certificate is not None
    found: dict[str, Any] = result.certificate.model_dump(mode="json", exclude_none=True)
    return found


def _restricted(job: Any) -> list[Any]:
    """Fields in which a job restricts the options of its table or model."""
    fields = ("pools", "gpu_counts", "frequencies_mhz", "power_limits_w", "batch_sizes")
    return [name for name in fields if getattr(job, name) is not None]
