"""Check explanations of why a job waits: rebuild each derived round, and prove again what is said of it.

The rounds are built from ``docs/explain.md`` alone; no code of `explaining`, formulations or solvers takes
part in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from wattsched.instances.digest import digest_of
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.explanation import Alternative, Change, Cost, Difference, Explanation, Proof
from wattsched.instances.sizing.instance import Budgets, Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.validity import faults_of as faults_of_instance
from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Cluster, Node, NodeColumns
from wattsched.topology.column import NONE, Coded
from wattsched.verification.report import TOLERANCE, Report
from wattsched.verification.report import Proof as Proven
from wattsched.verification.sizing.bound import Prover
from wattsched.verification.sizing.checker import check
from wattsched.verification.sizing.configurations import JobConfigurations, lasts_s
from wattsched.verification.sizing.gpus import UNKNOWN, Assigned
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.outcomes import UNSAID, WAITS, outcomes_of
from wattsched.verification.sizing.pools import places_of, pools_of
from wattsched.verification.sizing.rows import rows_of
from wattsched.verification.verdict import Rules, prove_certificate

WAITING_COUNTS = {"total-completion", "makespan", "max-min", "proportional"}
"""Objectives by which a job that waits is complete after the round and its best time."""

BUDGETS = ("power_w", "energy_j", "carbon_g")
EARLIER = 2e-5
"""Part of a deadline by which the one that is proven too early may be earlier."""


class ExplanationChecker:
    """Checks one explanation against its round and the decision that is explained.

    Parameters
    ----------
    rules : Rules
        Of sizing.
    instance : Instance
        With the objective of the decision.
    decision : Decision
        Valid.
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
        self.rules, self.instance, self.decision = rules, instance, decision
        self.explanation, self.bound = explanation, bound
        self.sign = 1.0 if rules.objectives[instance.objective] == "min" else -1.0
        self.running = {one.job: one for one in decision.jobs}

    def faults(self) -> Iterator[str]:
        """Yield what does not hold, one line each."""
        found, name = self.explanation, self.explanation.job
        if found.instance != self.instance.name or found.digest != digest_of(self.instance):
            yield "digest: the explanation is of another instance, or it was changed since"
            return
        if found.objective_name != self.instance.objective:
            yield f"objective_name: the decision is of '{self.instance.objective}', not of '{found.objective_name:.80}'"
            return
        if name not in self.instance.by_column().place:
            yield f"job: '{name:.80}' is not in the instance"
            return
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
        if runs != (found.state == "runs"):
            yield f"state: '{found.state}' is said of a job that {'runs' if runs else 'waits'}"
        if found.state == "runs" and (found.alternatives or found.cost is not None):
            yield "state: the job runs, there is nothing to change"
        dropped = found.job in decided(self.instance).left_out
        if dropped and found.state != "never":
            yield "state: the job has no option, so it never runs"
        if found.state != "never":
            if found.proof is not None:
                yield "proof: is only of a job that never runs"
            return
        if not dropped:
            if found.proof is None or found.proof.round != "alone" or found.proof.change != Change():
                yield "state: nothing proves that the job never runs"
            else:
                yield from self._impossible(found.proof)

    # -- derived rounds ----------------------------------------------------------------------------------

    @cached_property
    def seconds(self) -> tuple[FloatArray, JobConfigurations]:
        """Seconds to completion of each job by the decision, infinite for waiting, and the configurations."""
        return self._seconds_of(self.decision)

    def _seconds_of(self, decision: Decision) -> tuple[FloatArray, JobConfigurations]:
        pools = pools_of(self.instance.cluster)
        of = JobConfigurations(self.instance, pools)
        assigned = Assigned(decision, of.jobs.place, pools, places_of(self.instance.cluster))
        waits = np.fromiter(map(of.jobs.place.get, decision.waiting, repeat(UNKNOWN)), np.int64)
        said = np.full(len(of.jobs) + 1, UNSAID)
        said[waits], said[assigned.job] = WAITS, np.arange(len(assigned.job))
        outcomes, _ = outcomes_of(of, assigned, said[:-1], np.arange(len(of.jobs)))
        found = np.full(len(of.jobs), math.inf)
        found[outcomes.jobs[outcomes.runs]] = outcomes.completion_s[outcomes.runs]
        return found, of

    @cached_property
    def short_s(self) -> float:
        """Length of the round of watts: half of the shortest time to completion without a restart."""
        _, of = self.seconds
        work, alone_s = of.jobs.numbers("remaining_work"), of.best_s - of.start_s
        alone_s = np.where(np.isfinite(of.best_s), work / np.where(np.isfinite(alone_s), of.best_rate, 1.0), math.inf)
        sets = (work[of.jobs.place[job]] / rate for one in self.instance.sets for job, rate in one.rates.items())
        shortest = min([*alone_s.tolist(), *sets])
        return 0.5 * shortest if math.isfinite(shortest) else 0.5 * self.instance.round_s

    def derived(self, name: str, change: Change) -> Instance:
        """Derive a round by its name; a ValueError for a change that the round cannot have."""
        of = self._changed(change)
        jobs, x = of.by_column(), self.job
        can_wait, deadline_s = jobs.flags("can_wait").copy(), jobs.numbers("deadline_s").copy()
        must = jobs.fixed | ~can_wait
        can_wait[x] = False
        if name == "alone":
            must[x] = True
            rest = _replaced(jobs, can_wait=can_wait).take(np.flatnonzero(must))
            sets = [one for one in of.sets if set(one.rates) <= set(rest.names)]
            return of.model_copy(update={"jobs": rest, "sets": sets})
        if name == "forced":
            return of.model_copy(update={"jobs": _replaced(jobs, can_wait=can_wait)})
        seconds, configurations = self.seconds
        for j in np.flatnonzero(np.isfinite(seconds)).tolist():
            can_wait[j], deadline_s[j] = False, seconds[j]
        if self.instance.objective in WAITING_COUNTS and not change.later:
            waits_s = self.instance.round_s + float(configurations.best_s[x])
            if math.isfinite(waits_s):
                deadline_s[x] = min(waits_s, math.inf if math.isnan(deadline_s[x]) else deadline_s[x])
        kept = _replaced(jobs, can_wait=can_wait, deadline_s=deadline_s)
        if name == "kept":
            return of.model_copy(update={"jobs": kept})
        kept = _replaced(kept, change_cost=np.zeros(len(kept)))
        watts = name == "watts"
        budgets = Budgets() if watts else of.budgets.model_copy(update={"energy_j": None, "carbon_g": None})
        new: dict[str, Any] = {"jobs": kept, "budgets": budgets, "objective": "energy", "uncertainty": None}
        if watts:
            none = {"energy_j": None, "carbon_g": None}
            new["tenants"] = {tenant: one.model_copy(update=none) for tenant, one in of.tenants.items()}
            new["round_s"] = self.short_s
        return of.model_copy(update=new)

    def _changed(self, change: Change) -> Instance:
        """Return the round with a change; a ValueError for one that it cannot have."""
        of, jobs, x = self.instance, self.instance.by_column(), self.job
        raised = {
            name: limit + getattr(change, name) for name, limit in of.budgets if name in BUDGETS and limit is not None
        }
        new: dict[str, Any] = {"budgets": of.budgets.model_copy(update=raised)}
        if change.gpus:
            cluster = of.cluster
            for pool, gpus in change.gpus.items():
                cluster = _grown(cluster, pool, gpus)
            new["cluster"] = cluster
        if change.tenant_gpus:
            owner = jobs.coded("tenant").at(x)
            if owner not in of.tenants or of.tenants[owner].gpus is None:
                raise ValueError("tenant_gpus: the job's tenant has no quota of GPUs")
            more = (of.tenants[owner].gpus or 0) + change.tenant_gpus
            new["tenants"] = {**of.tenants, owner: of.tenants[owner].model_copy(update={"gpus": more})}
        own: dict[str, Any] = {}
        if change.min_gpus is not None:
            if not change.min_gpus <= int(jobs.counts("min_gpus")[x]):
                raise ValueError("min_gpus: is above what the job asks for")
            own["min_gpus"] = jobs.counts("min_gpus").copy()
            own["min_gpus"][x] = change.min_gpus
        if change.deadline_s is not None:
            own["deadline_s"] = jobs.numbers("deadline_s").copy()
            if not change.deadline_s >= own["deadline_s"][x]:
                raise ValueError("deadline_s: the job has none, or a later one")
            own["deadline_s"][x] = change.deadline_s
        for field in change.lifted:
            codes = jobs.coded(field).codes.copy()
            codes[x] = NONE
            own[field] = Coded(codes, jobs.coded(field).values)
        if own:
            new["jobs"] = _replaced(jobs, **own)
        changed = of.model_copy(update=new)
        if (change.gpus or own) and (faults := faults_of_instance(changed)):
            raise ValueError(f"the changed round has a fault: {faults[0]}")
        return changed

    # -- claims ------------------------------------------------------------------------------------------

    def _merged(self, difference: Difference) -> Decision:
        """Return the decision with what differs; a job may be named only once."""
        new = {one.job: one for one in difference.jobs}
        jobs: list[Assignment] = [one for one in self.running.values() if one.job not in new]
        jobs = [one for one in jobs if one.job not in set(difference.waiting)] + difference.jobs
        waiting = [name for name in self.decision.waiting if name not in new]
        return Decision(jobs=jobs, waiting=[*waiting, *difference.waiting])

    def _decides(self, round: Instance, difference: Difference) -> tuple[Report, Iterator[str]]:
        """Check a decision of a derived round in which the job runs."""
        report = check(round, self._merged(difference))
        runs = any(one.job == self.explanation.job for one in difference.jobs)
        return report, iter([*([] if runs else ["decision: the job does not run in it"]), *report.faults])

    def _alternative(self, one: Alternative) -> Iterator[str]:
        """Yield the faults of an alternative: of its decision, its proofs, and the least amounts they prove."""
        try:
            _, faults = self._decides(self.derived("kept", one.change), one.decision)
        except ValueError as error:
            yield f"change: {error}"
            return
        yield from faults
        bare = one.change.model_copy(update=dict.fromkeys(BUDGETS, 0.0))
        least, facts = dict[str, float](), list[str]()
        for number, proof in enumerate(one.proofs):
            try:
                proven = self._proven(proof)
            except ValueError as error:
                facts.append(f"proofs[{number}]: {error}")
                continue
            facts += [f"proofs[{number}]: {fault}" for fault in proven.faults]
            if not proven.faults:
                self._take(least, one.change, bare, proof, proven)
        yield from facts
        amounts = one.change.amounts
        for name, claimed in one.least.items():
            if name not in amounts:
                yield f"least: '{name}' is not changed"
            elif claimed > least.get(name, 0.0) + self._tolerance(name):
                yield f"least: {claimed:.9g} is claimed of '{name}', {least.get(name, 0.0):.9g} is proven"
            elif name in ("min_gpus", "deadline_s", "gpus", "tenant_gpus") and claimed != amounts[name]:
                yield f"least: {claimed:.9g} of '{name}' is not the change's {amounts[name]:.9g}"
        if one.change.lifted and one.proofs and "lifted" not in least:
            yield "proofs: do not show that what is lifted is needed"

    def _take(
        self, least: dict[str, float], change: Change, bare: Change, proof: Proof, proven: Proven
    ) -> None:
        """Add what a proof shows that a change needs at least."""
        impossible, tried = proven.excess > 0, proof.change
        if not impossible:
            if tried == bare and proof.round == "watts" and self.instance.budgets.power_w is not None:
                least["power_w"] = max(0.0, self._watts(proof, proven) - self.instance.budgets.power_w)
            if tried == bare and proof.round == "joules":
                joules = self._joules(proof, proven)
                if self.instance.budgets.energy_j is not None:
                    least["energy_j"] = max(0.0, joules - self.instance.budgets.energy_j)
                if self.instance.budgets.carbon_g is not None:
                    grams = joules * (self.instance.carbon_g_per_kwh or 0.0) / 3.6e6
                    least["carbon_g"] = max(0.0, grams - self.instance.budgets.carbon_g)
            return
        if proof.round not in ("kept", "watts"):
            return
        if change.lifted and tried == bare.model_copy(update={"lifted": []}):
            least["lifted"] = 1.0
        if proof.round == "watts" and len(change.gpus) == 1:
            (pool, gpus), fewer = next(iter(change.gpus.items())), sum(tried.gpus.values())
            if tried == bare.model_copy(update={"gpus": {pool: fewer} if fewer else {}}) and fewer < gpus:
                least["gpus"] = max(least.get("gpus", 0.0), fewer + 1.0)
        if proof.round == "watts" and tried == bare.model_copy(update={"tenant_gpus": tried.tenant_gpus}):
            if tried.tenant_gpus < change.tenant_gpus:
                least["tenant_gpus"] = max(least.get("tenant_gpus", 0.0), tried.tenant_gpus + 1.0)
        if proof.round == "kept" and change.min_gpus is not None and tried.min_gpus == change.min_gpus + 1:
            if tried == bare.model_copy(update={"min_gpus": tried.min_gpus}):
                least["min_gpus"] = float(change.min_gpus)
        if proof.round == "kept" and change.deadline_s is not None and tried.deadline_s is not None:
            if tried == bare.model_copy(update={"deadline_s": tried.deadline_s}):
                if tried.deadline_s >= change.deadline_s * (1 - EARLIER):
                    least["deadline_s"] = change.deadline_s

    def _tolerance(self, name: str) -> float:
        """Amount of a budget by which a proof may fall short: decisions are checked no closer."""
        limit = getattr(self.instance.budgets, name, None)
        return 0.0 if limit is None else TOLERANCE * limit

    def _proven(self, proof: Proof) -> Proven:
        """Prove a certificate of a derived round again; a ValueError for a change that the round cannot have."""
        round = self.derived(proof.round, proof.change)
        return self._prove(round, proof.certificate)

    def _prove(self, round: Instance, certificate: Any) -> Proven:
        """Prove a certificate, which may claim no better bound than its prices lead to."""
        found = prove_certificate(self.rules, round, certificate)["bound"]
        if found.faults or found.excess > 0 or found.bound is None:
            return found
        sign = 1.0 if self.rules.objectives[round.objective] == "min" else -1.0
        reach, claimed = found.bound if found.reach is None else found.reach, certificate["bound"]
        if sign * (claimed - reach) > 0:
            fault = f"certificate: claims the bound {claimed:.12g}, its prices prove {found.bound:.12g}"
            return Proven([fault])
        return found

    def _impossible(self, proof: Proof) -> Iterator[str]:
        """Yield a fault where a certificate does not prove that a derived round has no decision."""
        proven = self._proven(proof)
        yield from (f"proof: {fault}" for fault in proven.faults)
        if not proven.faults and not proven.excess > 0:
            yield "proof: leaves room for a decision"

    def _watts(self, proof: Proof, proven: Proven) -> float:
        """Least draw of the cluster that a round of watts proves."""
        round = self.derived(proof.round, proof.change)
        unlimited = round.model_copy(update={"budgets": Budgets(power_w=1e15)})
        row = rows_of(unlimited, JobConfigurations(unlimited, pools_of(unlimited.cluster)))["power_w"]
        reach = proven.reach if proven.reach is not None else proven.bound
        return float(row.standing) + float(reach or 0.0) / self.short_s

    def _joules(self, proof: Proof, proven: Proven) -> float:
        """Least energy, in the scope of the budgets, that a round of joules proves."""
        round = self.derived(proof.round, proof.change)
        budgets = round.budgets.model_copy(update={"energy_j": 1e18})
        unlimited = round.model_copy(update={"budgets": budgets})
        row = rows_of(unlimited, JobConfigurations(unlimited, pools_of(unlimited.cluster)))["energy_j"]
        reach = proven.reach if proven.reach is not None else proven.bound
        return float(row.standing) + float(reach or 0.0)

    # -- what it costs others ----------------------------------------------------------------------------

    def _cost(self, cost: Cost) -> Iterator[str]:
        """Yield the faults of what is said of a round in which the job must run."""
        round = self.derived("forced", Change())
        report, faults = self._decides(round, cost.decision)
        told = list(faults)
        yield from told
        if told or report.objective is None:
            return
        if abs(report.objective - cost.objective) > TOLERANCE * max(1e-9, abs(report.objective)):
            yield f"objective: {cost.objective:.9g} is claimed, recomputed {report.objective:.9g}"
        if sorted(self._later(cost)) != sorted(cost.later):
            yield "later: these are not the jobs that are complete later, or stop"
        proven = None
        if cost.bound is not None:
            proven = self._prove(round, cost.certificate)
            yield from proven.faults
            if not proven.faults and (cost.certificate or {}).get("bound") != cost.bound:
                yield "bound: is not that of the certificate"
        yield from self._weights(cost, report.objective)

    def _later(self, cost: Cost) -> list[str]:
        """Names of jobs that are complete later in a decision than in the one that is explained."""
        before, of = self.seconds
        after, _ = self._seconds_of(self._merged(cost.decision))
        waits_s = self.instance.round_s + of.best_s
        before, after = (np.where(np.isinf(one), waits_s, one) for one in (before, after))
        return [of.jobs.names[j] for j in np.flatnonzero(after > before * (1 + 1e-9)).tolist()]

    def _weights(self, cost: Cost, objective: float) -> Iterator[str]:
        """Yield faults of the weights with which the job would, or would not, run."""
        if cost.weight is None and cost.least_weight is None:
            return
        each = self._costs_per_weight()
        own = check(self.instance, self.decision).objective
        if each is None or own is None or self.bound is None:
            yield "weight: nothing is proven of weights in this round"
            return
        wait, best, chosen = each(None), min(each(row) for row in self._rows()), self._chosen(cost)
        weight = float(self.instance.by_column().numbers("weight")[self.job])
        if cost.weight is not None:
            gained = (cost.weight - weight) * (wait - each(chosen))
            if gained < self.sign * (objective - self.bound) - TOLERANCE * abs(objective):
                yield f"weight: with {cost.weight:.9g} a decision in which the job waits may be better"
        if cost.least_weight is not None:
            lost = -math.inf if cost.bound is None else self.sign * (cost.bound - own)
            most = weight + max(0.0, lost) / (wait - best) if wait > best else weight
            if cost.least_weight > most * (1 + TOLERANCE):
                yield f"least_weight: with less than {cost.least_weight:.9g} it may run"

    def _rows(self) -> list[Any]:
        """Configurations in which the job may run, alone or in sets."""
        _, of = self.seconds
        return [*of.of(self.job), *of.in_sets(self.explanation.job)]

    def _chosen(self, cost: Cost) -> Any:
        """Configuration in which the job runs in the decision of a cost."""
        a = next(one for one in cost.decision.jobs if one.job == self.explanation.job)
        wanted = (a.set, (a.pool, a.gpus, a.frequency_mhz, a.power_limit_w, a.batch_size))
        return next(row for row in self._rows() if (row.set, row.setting) == wanted)

    def _costs_per_weight(self) -> Any:
        """Function of a configuration, None for waiting, to its cost for a weight of 1; None where there is none."""
        _, of = self.seconds
        job, x, round_s = of.jobs[self.job], self.job, self.instance.round_s
        factor, best_s = float(of.weight[x]) / job.weight, float(of.best_s[x])
        reference = float(of.reference_rate[x])

        def seconds(row: Any) -> float:
            return round_s + best_s if row is None else lasts_s(job, row)

        def speed(row: Any) -> float:
            lost_s = seconds(row) - job.remaining_work / row.rate
            return float(row.rate / reference * max(0.0, 1 - lost_s / round_s))

        if self.instance.uncertainty is not None:
            return None
        match self.instance.objective:
            case "total-completion":
                return lambda row: factor * seconds(row)
            case "proportional":
                return lambda row: factor * math.log(seconds(row) / best_s)
            case "progress":
                return lambda row: 0.0 if row is None else -3600.0 * factor / seconds(row)
            case "goodput":
                return lambda row: 0.0 if row is None else -factor * speed(row)
        return None


def _grown(cluster: Cluster, pool: str, gpus: int) -> Cluster:
    """Return a cluster with so many more GPUs in a pool; a ValueError for one that there is not."""
    known, nodes = pools_of(cluster), cluster.node_columns()
    if pool not in known:
        raise ValueError(f"gpus: there is no pool '{pool:.80}'")
    last = nodes[int(np.flatnonzero(places_of(cluster).pool == list(known).index(pool))[-1])]
    if gpus > nodes.counts("gpus").sum() + last.gpus:
        raise ValueError(f"gpus: {gpus:,} are more than twice what there is")
    new: list[Node] = []
    number, left = 0, gpus
    while left > 0:
        name, number = f"new{number}", number + 1
        if name in set(nodes.names):
            continue
        own: dict[str, Any] = {"name": name, "reserved_w": 0.0, "unavailable": list(range(left, last.gpus))}
        new.append(last.model_copy(update=own if last.sleeps else own | {"base_power_w": 0.0}))
        left -= last.gpus
    names = [one.name for one in new]
    domains = [
        one.model_copy(update={"members": one.members + names}) if last.name in one.members else one
        for one in cluster.power_domains
    ]
    both = NodeColumns.joined([nodes, NodeColumns.from_records(new)])
    return cluster.model_copy(update={"nodes": both, "power_domains": domains})


def _replaced(jobs: JobColumns, **columns: Any) -> JobColumns:
    return JobColumns(jobs.columns | columns)
