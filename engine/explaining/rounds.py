"""Rounds that are derived from a round and its decision, to ask what would let one of its jobs run.

``docs/explain.md`` defines them; `verification.sizing.explanation` reads the same page and shares no code
with this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from wattsched.formulations.sizing.budgets import budgets_of
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.formulations.sizing.data import options_in, options_of
from wattsched.formulations.sizing.decisions import place
from wattsched.formulations.sizing.jobs import RoundJobs, jobs_of
from wattsched.formulations.sizing.matching import UNKNOWN, matching_options, matching_rows
from wattsched.instances.sizing.decision import Assignment, AssignmentColumns, Decision, held_by
from wattsched.instances.sizing.explanation import COMPLETIONS, Change, RoundName
from wattsched.instances.sizing.instance import Budgets, Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.tenants import Tenant
from wattsched.topology.arrays import BoolArray, FloatArray
from wattsched.topology.cluster import Cluster, Node, NodeColumns
from wattsched.topology.column import NONE, Coded, Column
from wattsched.topology.pools import pools_of

SHORT = 0.5
"""Length of the round of watts, as a part of the shortest time in which any job could be complete."""


@dataclass(frozen=True)
class DecidedRound:
    """A round, its decision, and the job that is to run.

    Attributes
    ----------
    instance : Instance
        With the objective of the decision.
    job : int
        Number of the job.
    """

    instance: Instance
    decision: Decision
    job: int

    @cached_property
    def known(self) -> RoundJobs:
        """Jobs of the round as arrays."""
        return jobs_of(self.instance)

    @cached_property
    def outcome(self) -> tuple[BoolArray, FloatArray]:
        """Mask of the jobs that run by the decision, and seconds to completion, shape (n_jobs,)."""
        rows = matching_rows(self.known, self.decision)
        if (rows == UNKNOWN).any():  # jobs in sets
            options = options_of(self.known)
            chosen = matching_options(options, self.decision)
            waits = (chosen < 0) | options.waiting[chosen]
            return ~waits, np.where(waits, np.inf, options.completion_s[chosen])
        runs = rows != WAIT
        jobs, seconds = np.flatnonzero(runs), np.full(len(rows), np.inf)
        seconds[jobs] = options_in(self.known, jobs, rows[jobs]).completion_s
        return runs, seconds

    @property
    def waits_s(self) -> float:
        """Seconds to completion of the job if it waits, where the objective counts these; else infinite."""
        counts = self.instance.objective in COMPLETIONS
        return float(self.known.round_s + self.known.best_s[self.job]) if counts else np.inf

    def overdraw_w(self, decision: Decision) -> dict[str, float]:
        """Watts above the cap of each power domain that a decision exceeds; empty with jobs in sets."""
        rows = matching_rows(self.known, decision)
        if (rows == UNKNOWN).any():
            return {}
        options = options_in(self.known, np.arange(len(rows)), rows)
        above_w, found = np.where(options.waiting, 0.0, options.power_w - options.idle_w), dict[str, float]()
        for budget in budgets_of(self.known):
            kind, _, name = budget.name.partition(":")
            over_w = float(above_w[np.isin(options.pool, budget.members)].sum()) - budget.capacity
            if kind == "power_w" and name and over_w > 0.0:
                found[name] = over_w
        return found

    def placed(self, round: Instance, decision: Decision) -> Decision:
        """Return a decision of a derived round with jobs where they were decided to be, if they fit there."""
        jobs, held = round.by_column(), AssignmentColumns.from_records(self.decision.jobs)
        holding = _with(jobs, current=held_by(len(jobs), jobs.place, held))
        known = jobs_of(round.model_copy(update={"jobs": holding}))
        rows, every = matching_rows(known, decision), np.arange(len(jobs))
        if (rows == UNKNOWN).any():  # jobs in sets
            return decision
        try:
            return place(options_in(known, every, rows), every)
        except ValueError:  # fragments on which they do not fit
            return decision

    def joined(self, assignment: Assignment) -> Decision:
        """Return the decision with the job running as in an assignment, and all others as they are."""
        waiting = [name for name in self.decision.waiting if name != assignment.job]
        return Decision.model_construct(jobs=[*self.decision.jobs, assignment], waiting=waiting)

    def with_weight(self, weight: float) -> JobColumns:
        """Return the jobs with another weight of the job."""
        jobs = self.instance.by_column()
        return _with(jobs, weight=_but(jobs.numbers("weight"), self.job, weight))

    def derived(self, name: RoundName, change: Change) -> Instance:
        """Derive a round of a name, with a change of what there is or of what the job asks for."""
        round = changed(self.instance, self.job, change)
        jobs = round.by_column()
        can_wait = _but(jobs.flags("can_wait"), self.job, False)
        if name == "forced":
            return round.model_copy(update={"jobs": _with(jobs, can_wait=can_wait)})
        runs, seconds = self.outcome
        deadline_s = np.where(runs, seconds, jobs.numbers("deadline_s"))
        if np.isfinite(self.waits_s) and not change.later:
            deadline_s[self.job] = np.fmin(deadline_s[self.job], self.waits_s)
        kept = _with(jobs, can_wait=can_wait & ~runs, deadline_s=deadline_s)
        if name == "kept":
            return round.model_copy(update={"jobs": kept})
        free = {"jobs": _without(kept, "change_cost"), "change_cost": 0.0, "uncertainty": None}
        free |= {"objective": "energy"}
        if name == "joules":
            budgets = round.budgets.model_copy(update={"energy_j": None, "carbon_g": None})
            return round.model_copy(update={**free, "budgets": budgets})
        tenants = {name: _without_energy(tenant) for name, tenant in round.tenants.items()}
        short: dict[str, Any] = {"budgets": Budgets(), "tenants": tenants, "round_s": short_s(round)}
        return round.model_copy(update=free | short)


def short_s(instance: Instance) -> float:
    """Length of the round of watts: a part of the shortest time to completion of any option, no restart."""
    known = jobs_of(instance)
    alone_s, place, work = known.shortest_s, known.jobs.place, known.work
    in_sets_s = (work[place[job]] / rate for one in instance.sets for job, rate in one.rates.items())
    shortest_s = min([float(alone_s.min(initial=np.inf)), *in_sets_s])
    return SHORT * (shortest_s if np.isfinite(shortest_s) else instance.round_s)


def changed(instance: Instance, job: int, change: Change) -> Instance:
    """Return a round with a change, which is also of what one of its jobs asks for."""
    budgets, tenants, cluster = instance.budgets, instance.tenants, instance.cluster
    for field in ("power_w", "energy_j", "carbon_g"):
        if (limit := getattr(budgets, field)) is not None:
            budgets = budgets.model_copy(update={field: limit + getattr(change, field)})
    jobs = instance.by_column()
    owner = jobs.coded("tenant").at(job)
    if change.tenant_gpus and owner in tenants and tenants[owner].gpus is not None:
        more = (tenants[owner].gpus or 0) + change.tenant_gpus
        tenants = tenants | {owner: tenants[owner].model_copy(update={"gpus": more})}
    for pool, gpus in change.gpus.items():
        cluster = more_gpus(cluster, pool, gpus)
    if raised := change.power_domains:
        domains = [
            one.model_copy(update={"power_cap_w": one.power_cap_w + raised.get(one.name, 0.0)})
            for one in cluster.power_domains
        ]
        cluster = cluster.model_copy(update={"power_domains": domains})
    own: dict[str, Column] = {}
    if change.min_gpus is not None:
        own["min_gpus"] = _but(jobs.counts("min_gpus"), job, change.min_gpus)
    if change.deadline_s is not None:
        own["deadline_s"] = _but(jobs.numbers("deadline_s"), job, change.deadline_s)
    for field in change.lifted:
        column = jobs.coded(field)
        own[field] = Coded(_but(column.codes, job, NONE), column.values)
    new = {"budgets": budgets, "tenants": tenants, "cluster": cluster}
    return instance.model_copy(update=new | ({"jobs": _with(jobs, **own)} if own else {}))


def more_gpus(cluster: Cluster, pool: str, gpus: int) -> Cluster:
    """Return a cluster with more GPUs in a pool, on new nodes that are like the pool's last one.

    What the last new node has too many is unavailable; its server draws nothing.
    """
    last = next(one for one in pools_of(cluster) if one.name == pool)
    like = cluster.node_columns()[int(last.members[-1])]
    taken, nodes = set(cluster.node_columns().names), list[Node]()
    names = (name for n in count() if (name := f"new{n}") not in taken)
    for begin in range(0, gpus, like.gpus):
        own = {"name": next(names), "unavailable": list(range(gpus - begin, like.gpus)), "reserved_w": 0.0}
        nodes.append(like.model_copy(update=own if like.sleeps else {**own, "base_power_w": 0.0}))
    domains = [
        one.model_copy(update={"members": [*one.members, *(node.name for node in nodes)]})
        if like.name in one.members
        else one
        for one in cluster.power_domains
    ]
    columns = NodeColumns.joined([cluster.node_columns(), NodeColumns.from_records(nodes)])
    return cluster.model_copy(update={"nodes": columns, "power_domains": domains})


def _without_energy(tenant: Tenant) -> Tenant:
    return tenant.model_copy(update={"energy_j": None, "carbon_g": None})


def _with(jobs: JobColumns, **columns: Column) -> JobColumns:
    """Return the jobs with other columns."""
    return JobColumns({**jobs.columns, **columns})


def _but(column: Any, place: int, value: Any) -> Any:
    """Return a copy of an array with another value in one place."""
    found = column.copy()
    found[place] = value
    return found


def _without(jobs: JobColumns, field: str) -> JobColumns:
    """Return the jobs with the default of a field."""
    return JobColumns({name: column for name, column in jobs.columns.items() if name != field})
