"""Check an explanation of why a job waits: build each derived round anew, and prove again what is said of it.

The rounds are those of ``docs/explain.md``; no code that makes explanations, or solves, takes part in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from wattsched.instances.digest import digest_of
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.explanation import Alternative, Change, Cost, Difference, Explanation, Proof
from wattsched.instances.sizing.instance import Budgets, Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.validity import faults_of
from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Cluster, Node, NodeColumns
from wattsched.topology.column import NONE, Coded
from wattsched.verification.certificates import beyond_proof, proofs_of
from wattsched.verification.report import TOLERANCE, Report
from wattsched.verification.report import Proof as Proven
from wattsched.verification.sizing.checker import check
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.gpus import UNKNOWN, Assigned
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.outcomes import UNSAID, WAITS, outcomes_of
from wattsched.verification.sizing.pools import places_of, pools_of
from wattsched.verification.verdict import Rules

WAITING_COUNTS = {"total-completion", "makespan", "max-min", "proportional"}
"""Objectives by which a job that waits is complete after the round and its best time."""

WEIGHT_SCALES = {"total-completion", "progress", "proportional", "goodput"}
"""Objectives in which the weight of a job is a factor of what it does, and of nothing else."""

BUDGETS = ("power_w", "energy_j", "carbon_g")
EARLIER = 2e-5
"""Part of a deadline by which one may be earlier that is proven to be too early."""

ROUNDING = 1e-9
"""Part of an objective by which two values differ that are told apart."""


class ExplanationChecker:
    """Checks an explanation against its round, which is of its objective, and a valid decision.

    Parameters
    ----------
    rules : Rules
        Of sizing.
    bound : float, optional
        Proven bound on the objective of all decisions of the round.
    """

    def __init__(
        self,
        rules: Rules[Any, Any],
        instance: Instance,
        decision: Decision,
        explanation: Explanation,
        bound: float | None = None,
    ):
        self.rules, self.decision = rules, decision
        self.instance = instance.model_copy(update={"jobs": instance.by_column()})
        self.explanation, self.bound = explanation, bound
        self.sign = 1.0 if rules.objectives[instance.objective] == "min" else -1.0
        self.running = {one.job: one for one in decision.jobs}

    def faults(self) -> Iterator[str]:
        """Yield what does not hold, one line each."""
        found, name = self.explanation, self.explanation.job
        if found.instance != self.instance.name or found.digest != digest_of(self.instance):
            yield "digest: the explanation is of another instance, or it was changed since"
        elif found.objective_name != self.instance.objective:
            yield f"objective_name: '{found.objective_name:.80}' is not that of the decision"
        elif name not in self.instance.by_column().place:
            yield f"job: '{name:.80}' is not in the instance"
        else:
            yield from self._state()
            for number, one in enumerate(found.alternatives):
                yield from (f"alternatives[{number}]: {fault}" for fault in self._alternative(one))
            if found.cost is not None:
                yield from (f"cost: {fault}" for fault in self._cost(found.cost))

    @property
    def job(self) -> int:
        """Number of the job that is explained."""
        return self.instance.by_column().place[self.explanation.job]

    def _state(self) -> Iterator[str]:
        """Yield a fault where the job does not do what is said of it."""
        found, runs = self.explanation, self.explanation.job in self.running
        dropped = found.job in decided(self.instance).left_out
        if runs != (found.state == "runs"):
            yield f"state: '{found.state}' is said of a job that {'runs' if runs else 'waits'}"
        elif runs and (found.alternatives or found.cost or found.proof):
            yield "state: the job runs, there is nothing to change"
        elif dropped and found.state != "never":
            yield "state: the job has no option, so it never runs"
        elif found.state == "never" and not dropped:
            impossible = (
                found.proof is not None and found.proof.round == "forced" and found.proof.change == Change()
            )
            if not impossible or found.proof is None or not self._proven(found.proof).excess > 0:
                yield "state: nothing proves that the job never runs"
        elif found.proof is not None:
            yield "proof: needs a job that never runs although it has options"
        if bool(found.reason) != (dropped and not runs):
            yield "reason: is one why a job has no option, and for no other job"

    # -- derived rounds ----------------------------------------------------------------------------------

    def _seconds_of(self, decision: Decision) -> FloatArray:
        """Seconds to completion of each job by a decision of the round, infinite for waiting."""
        of, places = self.configurations, places_of(self.instance.cluster)
        assigned = Assigned(decision, of.jobs.place, of.pools, places)
        waits = np.fromiter(map(of.jobs.place.get, decision.waiting, repeat(UNKNOWN)), np.int64)
        said = np.full(len(of.jobs) + 1, UNSAID)
        said[waits], said[assigned.job] = WAITS, np.arange(len(assigned.job))
        outcomes, _ = outcomes_of(of, assigned, said[:-1], np.arange(len(of.jobs)))
        found = np.full(len(of.jobs), math.inf)
        found[outcomes.jobs[outcomes.runs]] = outcomes.completion_s[outcomes.runs]
        return found

    @cached_property
    def configurations(self) -> JobConfigurations:
        """Configurations of all jobs of the round."""
        return JobConfigurations(self.instance, pools_of(self.instance.cluster))

    @cached_property
    def seconds(self) -> FloatArray:
        """Seconds to completion of each job by the decision that is explained, infinite for waiting."""
        return self._seconds_of(self.decision)

    @cached_property
    def waits_s(self) -> FloatArray:
        """Seconds to completion of each job if it waits, infinite without options."""
        return self.instance.round_s + self.configurations.best_s

    def derived(self, name: str, change: Change) -> Instance:
        """Derive a round by its name; a ValueError for a change that the round cannot have."""
        of = self._changed(change)
        jobs, x = of.by_column(), self.job
        can_wait, deadline_s = jobs.flags("can_wait").copy(), jobs.numbers("deadline_s").copy()
        can_wait[x] = False
        if name == "forced":
            return of.model_copy(update={"jobs": _replaced(jobs, can_wait=can_wait)})
        runs = np.isfinite(self.seconds)
        can_wait[runs], deadline_s[runs] = False, self.seconds[runs]
        if self.instance.objective in WAITING_COUNTS and not change.later and math.isfinite(self.waits_s[x]):
            deadline_s[x] = np.nanmin([deadline_s[x], self.waits_s[x]])
        kept = _replaced(jobs, can_wait=can_wait, deadline_s=deadline_s)
        if name == "kept":
            return of.model_copy(update={"jobs": kept})
        new: dict[str, Any] = {"objective": "energy", "uncertainty": None}
        new["jobs"] = _replaced(kept, change_cost=np.zeros(len(kept)))
        new["budgets"] = of.budgets.model_copy(update={"energy_j": None, "carbon_g": None})
        if name == "watts":
            none = {"energy_j": None, "carbon_g": None}
            new["tenants"] = {tenant: one.model_copy(update=none) for tenant, one in of.tenants.items()}
            new |= {"budgets": Budgets(), "round_s": _short_s(of)}
        return of.model_copy(update=new)

    def _changed(self, change: Change) -> Instance:
        """Return the round with a change; a ValueError for one that it cannot have."""
        of, jobs, x = self.instance, self.instance.by_column(), self.job
        limits = {name: limit for name, limit in of.budgets if name in BUDGETS and limit is not None}
        higher = {name: limit + getattr(change, name) for name, limit in limits.items()}
        new: dict[str, Any] = {"budgets": of.budgets.model_copy(update=higher)}
        for pool, gpus in change.gpus.items():
            new["cluster"] = _grown(new.get("cluster", of.cluster), pool, gpus)
        if unknown := change.power_domains.keys() - {one.name for one in of.cluster.power_domains}:
            raise ValueError(f"power_domains: there is no '{min(unknown):.80}'")
        if change.power_domains:
            cluster = new.get("cluster", of.cluster)
            caps = {one.name: one.power_cap_w for one in cluster.power_domains}
            caps |= {name: caps[name] + watts for name, watts in change.power_domains.items()}
            domains = [
                one.model_copy(update={"power_cap_w": caps[one.name]}) for one in cluster.power_domains
            ]
            new["cluster"] = cluster.model_copy(update={"power_domains": domains})
        if change.tenant_gpus:
            owner = jobs.coded("tenant").at(x)
            if owner not in of.tenants or (quota := of.tenants[owner].gpus) is None:
                raise ValueError("tenant_gpus: the job's tenant has no quota of GPUs")
            own_quota = of.tenants[owner].model_copy(update={"gpus": quota + change.tenant_gpus})
            new["tenants"] = {**of.tenants, owner: own_quota}
        own: dict[str, Any] = {}
        for name, asked in (
            ("min_gpus", jobs.counts("min_gpus")),
            ("deadline_s", jobs.numbers("deadline_s")),
        ):
            if (value := getattr(change, name)) is not None:
                if not (value <= asked[x] if name == "min_gpus" else value >= asked[x]):
                    raise ValueError(f"{name}: {value:.9g} is no less than what the job asks for")
                own[name] = asked.copy()
                own[name][x] = value
        for field in change.lifted:
            column = jobs.coded(field)
            own[field] = Coded(np.where(np.arange(len(jobs)) == x, NONE, column.codes), column.values)
        changed = of.model_copy(update={**new, **({"jobs": _replaced(jobs, **own)} if own else {})})
        if (change.gpus or change.lifted) and (faults := faults_of(changed)):
            raise ValueError(f"the changed round has a fault: {faults[0]}")
        return changed

    # -- claims ------------------------------------------------------------------------------------------

    def _merged(self, difference: Difference) -> Decision:
        """Return the decision with what differs."""
        named = {one.job for one in difference.jobs} | set(difference.waiting)
        jobs = [one for name, one in self.running.items() if name not in named]
        waiting = [name for name in self.decision.waiting if name not in named]
        return Decision(jobs=[*jobs, *difference.jobs], waiting=[*waiting, *difference.waiting])

    def _decision_faults(self, report: Report, difference: Difference) -> Iterator[str]:
        """Yield the faults of a decision of a derived round, in which the job must run."""
        if all(one.job != self.explanation.job for one in difference.jobs):
            yield "decision: the job does not run in it"
        yield from report.faults

    def _alternative(self, one: Alternative) -> Iterator[str]:
        """Yield the faults of an alternative: of its decision, its proofs, and the amounts they prove."""
        least = dict[str, float]()
        try:
            report = check(self.derived("kept", one.change), self._merged(one.decision))
            yield from self._decision_faults(report, one.decision)
            for number, proof in enumerate(one.proofs):
                proven = self._proven(proof)
                yield from (f"proofs[{number}]: {fault}" for fault in proven.faults)
                if not proven.faults:
                    shown = self._least(one, proof, proven)
                    if not shown:
                        yield f"proofs[{number}]: shows nothing of this change"
                    least |= shown
        except ValueError as error:
            yield f"change: {error}"
            return
        for name, claimed in one.least.items():
            limit = getattr(self.instance.budgets, name, None) or 0.0  # decisions are checked no closer
            if name not in one.change.amounts:
                yield f"least: '{name}' is not changed"
            elif claimed > least.get(name, -math.inf) + TOLERANCE * limit:
                yield f"least: {claimed:.9g} is claimed of '{name}', {least.get(name, 0.0):.9g} is proven"

    def _least(self, one: Alternative, proof: Proof, proven: Proven) -> dict[str, float]:
        """Amounts that a change needs at least, as a proof shows; of `lifted` 1 if it is needed."""
        bare, tried = one.change.without_budgets, proof.change
        amounts = {str(name): amount for name, amount in one.change.amounts.items()}
        if proven.excess > 0:
            # Without a decision at any watts, or with the budgets as they are and nothing else is changed.
            if proof.round != "watts" and (proof.round != "kept" or bare != one.change):
                return {}
            fewer = sum(tried.gpus.values())
            less = {
                "gpus": (fewer + 1.0, tried.gpus.keys() <= bare.gpus.keys() and len(bare.gpus) == 1),
                "tenant_gpus": (tried.tenant_gpus + 1.0, True),
                "power_domains": (sum(tried.power_domains.values()), _in_proportion(tried, bare)),
                "min_gpus": ((tried.min_gpus or math.inf) - 1.0, tried.min_gpus is not None),
                "deadline_s": (amounts.get("deadline_s", 0.0), self._just_too_early(one.change, tried)),
                "lifted": (1.0, not tried.lifted),
            }
            return {
                name: amount
                for name, (amount, holds) in less.items()
                if getattr(bare, name) not in (None, 0, {}, [])
                and holds
                and tried == bare.model_copy(update={name: getattr(tried, name)})
                and (name == "lifted" or amount <= amounts[name])
            }
        asked = one.change.model_copy(update={"energy_j": 0.0, "carbon_g": 0.0})
        if (proof.round, tried) not in (("watts", bare), ("joules", asked)):
            return {}
        # The objective counts what is used beyond what is used whatever is decided.
        round = self.derived(proof.round, tried)
        report = check(round, self._merged(one.decision))
        reach = proven.bound if proven.reach is None else proven.reach
        assert reach is not None
        beyond = reach - (report.objective or 0.0)
        if proof.round == "watts":
            used = {"power_w": report.totals["power_w"] + beyond / round.round_s}
        else:
            grams = (self.instance.carbon_g_per_kwh or 0.0) / 3.6e6
            joules = report.totals["energy_j"] + beyond
            used = {"energy_j": joules, "carbon_g": joules * grams}
        limits = {name: getattr(self.instance.budgets, name) for name in used}
        return {
            name: max(0.0, used[name] - (math.inf if limits[name] is None else limits[name])) for name in used
        }

    @staticmethod
    def _just_too_early(change: Change, tried: Change) -> bool:
        """True if the deadline that was tried is all but that of a change."""
        if change.deadline_s is None or tried.deadline_s is None:
            return False
        return change.deadline_s * (1 - EARLIER) <= tried.deadline_s < change.deadline_s

    def _proven(self, proof: Proof) -> Proven:
        """Prove a certificate of a derived round again; a ValueError where there is no such round."""
        return self._prove(self.derived(proof.round, proof.change), proof.certificate)

    def _prove(self, round: Instance, certificate: Any) -> Proven:
        """Prove a certificate again, which may claim no better bound than that."""
        proofs = proofs_of(self.rules.prover(round), self.rules.objectives[round.objective], certificate)
        found = next((one for one in proofs.values() if one.faults), proofs["bound"])
        beyond = beyond_proof(proofs, certificate, self.rules.objectives[round.objective])
        return found if found.faults or beyond is None else Proven([beyond])

    def _cost(self, cost: Cost) -> Iterator[str]:
        """Yield the faults of what is said of the round in which the job must run."""
        round, decision = self.derived("forced", Change()), self._merged(cost.decision)
        report = check(round, decision)
        faults = [*self._decision_faults(report, cost.decision)]
        yield from faults
        if faults or report.objective is None:
            return
        if abs(report.objective - cost.objective) > TOLERANCE * max(1e-9, abs(report.objective)):
            yield f"objective: {cost.objective:.9g} is claimed, recomputed {report.objective:.9g}"
        before, after = self.seconds, self._seconds_of(decision)
        before, after = (np.where(np.isinf(one), self.waits_s, one) for one in (before, after))
        later = {round.by_column().names[j] for j in np.flatnonzero(after > before * (1 + 1e-9)).tolist()}
        later.discard(self.explanation.job)
        if len(cost.later) != len(later) or set(cost.later) != later:
            yield "later: these are not the jobs that are complete later, or stop"
        if cost.bound is not None:
            yield from self._prove(round, cost.certificate).faults
            if (cost.certificate or {}).get("bound") != cost.bound:
                yield "bound: is not that of the certificate"
        if cost.weight is not None and not self._lead(decision, cost.weight) >= -ROUNDING:
            yield f"weight: with {cost.weight:.9g} a decision in which the job waits may be better"
        elif cost.weight is not None and self._lead(decision, cost.weight * (1 - TOLERANCE)) > ROUNDING:
            yield f"weight: less than {cost.weight:.9g} is enough, too"

    def _lead(self, decision: Decision, weight: float) -> float:
        """Return by what part a decision is, with another weight of the job, ahead of all in which it waits.

        The bound on these moves by as much as any of them does. -inf where nothing is known of them.
        """
        if (
            self.bound is None
            or self.instance.objective not in WEIGHT_SCALES
            or self.instance.uncertainty is not None
        ):
            return -math.inf
        weights = self.instance.by_column().numbers("weight").copy()
        weights[self.job] = weight
        jobs = _replaced(self.instance.by_column(), weight=weights)
        weighted = self.instance.model_copy(update={"jobs": jobs})
        known = (self.instance, self.decision), (weighted, self.decision), (weighted, decision)
        before, waits, runs = (check(*one).objective for one in known)
        if before is None or waits is None or runs is None:
            return -math.inf
        lead = self.sign * (self.bound + waits - before - runs)
        return lead / max(abs(runs), abs(waits), 1e-300)


def _short_s(instance: Instance) -> float:
    """Half of the shortest time to completion of any option of a round, without a restart."""
    of = JobConfigurations(instance, pools_of(instance.cluster))
    work, best_rate = of.jobs.numbers("remaining_work"), np.zeros(len(of.start) - 1)
    np.maximum.at(best_rate, of.every.kind, of.every.rate)
    with np.errstate(divide="ignore"):
        alone_s = work / best_rate[of.kind]
    sets = (work[of.jobs.place[job]] / rate for one in instance.sets for job, rate in one.rates.items())
    shortest_s = min([*alone_s.tolist(), *sets])
    return 0.5 * (shortest_s if math.isfinite(shortest_s) else instance.round_s)


def _in_proportion(tried: Change, change: Change) -> bool:
    """True if caps of power domains were raised by the same part of what a change raises them by."""
    part = sum(tried.power_domains.values()) / (sum(change.power_domains.values()) or 1.0)
    return (
        all(
            math.isclose(tried.power_domains.get(name, 0.0), part * watts, rel_tol=1e-9, abs_tol=1e-9)
            for name, watts in change.power_domains.items()
        )
        and not tried.power_domains.keys() - change.power_domains.keys()
    )


def _grown(cluster: Cluster, pool: str, gpus: int) -> Cluster:
    """Return a cluster with so many more GPUs in a pool; a ValueError for one that there is not."""
    known, nodes = list(pools_of(cluster)), cluster.node_columns()
    if pool not in known:
        raise ValueError(f"gpus: there is no pool '{pool:.80}'")
    if gpus > cluster.total_gpus + int(nodes.counts("gpus").max()):
        raise ValueError(f"gpus: {gpus:,} are more than twice as many as there are")
    last = nodes[int(np.flatnonzero(places_of(cluster).pool == known.index(pool))[-1])]
    new, number, taken = list[Node](), 0, set(nodes.names)
    while gpus > 0:
        if (name := f"new{number}") not in taken:
            own: dict[str, Any] = {
                "name": name,
                "reserved_w": 0.0,
                "unavailable": list(range(gpus, last.gpus)),
            }
            new.append(last.model_copy(update=own if last.sleeps else own | {"base_power_w": 0.0}))
            gpus -= last.gpus
        number += 1
    names = [one.name for one in new]
    domains = [
        one.model_copy(update={"members": one.members + names}) if last.name in one.members else one
        for one in cluster.power_domains
    ]
    both = NodeColumns.joined([nodes, NodeColumns.from_records(new)])
    return cluster.model_copy(update={"nodes": both, "power_domains": domains})


def _replaced(jobs: JobColumns, **columns: Any) -> JobColumns:
    """Return the jobs with other columns."""
    return JobColumns(jobs.columns | columns)
