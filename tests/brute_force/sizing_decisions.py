"""What a decision of `sizing` breaks and is worth, job by job in plain Python, as the documentation says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.brute_force.sizing import (
    _value,
    counted_j,
    decided,
    drawn,
    price_of_change,
    price_of_waking,
    quotas,
    sleepers,
    within_quota_alone,
)
from tests.brute_force.sizing_moves import displaced
from tests.brute_force.sizing_places import (
    Gpu,
    Kind,
    capacity_of,
    domains_of,
    may_be_had,
    next_power,
    structural_blocks,
)
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.topology.pools import pools_of

TOLERANCE = 1e-6


@dataclass(frozen=True)
class Ran:
    """What a job does; `least_j` is what it needs at least if it waits."""

    job: Job
    chosen: Assignment | None
    completion_s: float
    power_w: float
    idle_w: float
    least_j: float
    value: float
    goodput: float = 0.0


def gpus_of(nodes: dict[str, list[int]]) -> set[Gpu]:
    """GPUs as pairs."""
    return {(node, gpu) for node, gpus in nodes.items() for gpu in gpus}


class Judge:
    """Judges decisions on one instance of jobs with tables."""

    def __init__(self, instance: Instance):
        self.every, self.instance = instance, decided(instance)
        self.pool_of = {node: pool.name for pool in pools_of(instance.cluster) for node in pool.nodes}
        self.nodes = {node.name: node for node in instance.cluster.nodes}
        self.blocks = {
            pool.name: structural_blocks(instance, list(pool.nodes)) for pool in pools_of(instance.cluster)
        }

    def _kind(self, pool: str) -> tuple[Kind, list[str]]:
        """What the nodes of a pool are, and which."""
        nodes = [name for name in self.nodes if self.pool_of[name] == pool]
        node = self.nodes[nodes[0]]
        return (node.gpu_type, node.gpus, domains_of(self.instance, node), node.pool), nodes

    def _may_be_had(self, pool: str, gpus: int) -> bool:
        return may_be_had(self.instance, *self._kind(pool), gpus)

    def objective(self, decision: Decision) -> float | None:
        """What a sound decision is worth; None for one that breaks a rule."""
        names = [a.job for a in decision.jobs] + decision.waiting
        if sorted(names) != sorted(job.name for job in self.every.jobs):
            return None
        chosen = {a.job: a for a in decision.jobs}
        if not chosen.keys() <= {job.name for job in self.instance.jobs}:
            return None
        jobs = [self._ran(job, chosen.get(job.name)) for job in self.instance.jobs]
        ran = [one for one in jobs if one is not None]
        if len(ran) < len(jobs) or not self._sets(decision) or not self._gpus(decision):
            return None
        used = {name for a in decision.jobs for name in self._awake(a)}
        able = sleepers(self.instance)
        asleep = {node.name for node in able} - used
        if not self._within_budgets(ran, asleep) or not self._within_quotas(ran):
            return None
        values = [one.value for one in ran]
        woken = [node for node in able if node.name in used]
        if price := price_of_waking(self.instance, self.instance.objective, woken):
            values.append(price)
        worst = {"makespan": max, "max-min": min}.get(self.instance.objective)
        return math.fsum(values) if worst is None or not values else worst(values)

    def _awake(self, a: Assignment) -> set[str]:
        """Nodes that a job uses GPUs of, or has its block on."""
        gpus, size = gpus_of(a.nodes), next_power(a.gpus)
        found = {name for name, _ in gpus}
        kept = any(job.name == a.job and not job.preemptible for job in self.instance.jobs)
        if kept or capacity_of(self.instance, self._kind(a.pool)[0]) != "blocks":
            return found
        for block in self.blocks[a.pool]:
            for first in range(0, len(block) - size + 1, size):
                if gpus <= set(block[first : first + size]):
                    found |= {name for name, _ in block[first : first + size]}
        return found

    def _rows(self, job: Job) -> Iterator[tuple[tuple[Any, ...], float, float]]:
        """Settings, seconds per unit of work and watts of every row that the job may use."""
        table = self.instance.tables[job.options] if isinstance(job.options, str) else job.options
        assert isinstance(table, OptionTable)
        types = {self.pool_of[name]: node.gpu_type for name, node in self.nodes.items()}
        for pool, gpu_type in types.items():
            for r, gpus in enumerate(table.gpus):
                within = (job.min_gpus or 1) <= gpus <= (job.max_gpus or math.inf)
                if table.pool[r] not in (pool, gpu_type) or not (within and self._may_be_had(pool, gpus)):
                    continue
                if not within_quota_alone(self.instance, job, gpus, table.power_w[r]):
                    continue
                seconds = 1 / table.rate[r] if table.rate else (table.completion_s or [])[r]
                settings = (table.frequency_mhz, table.power_limit_w, table.batch_size)
                yield (pool, gpus, *(s and s[r] for s in settings)), seconds, table.power_w[r]

    def _ran(self, job: Job, a: Assignment | None) -> Ran | None:
        """What a job does, or None where it cannot do that."""
        rows = list(self._rows(job))
        if not rows:
            return None
        held, instance = job.current, self.instance
        start_s = 0.0 if held is None else job.restart_s
        best_s = min(seconds for _, seconds, _ in rows) * job.remaining_work + start_s
        going_s = [
            seconds * job.remaining_work
            for row, seconds, _ in rows
            if held is not None and (row[1], row[4], row[0]) == (held.gpus, held.batch_size, held.pool)
        ]
        least_s = min([best_s, *going_s])
        least_j = min(watts * (seconds * job.remaining_work + start_s) for _, seconds, watts in rows)
        fewest = min(row[1] for row, _, _ in rows)
        reference_s = min(seconds for row, seconds, _ in rows if row[1] == fewest)
        deadline_s = (job.deadline_s or math.inf) * (1 + TOLERANCE)
        if a is None:
            later_s = instance.round_s + best_s
            joules = least_j if instance.budgets.scope == "completion" else 0.0
            asked = instance, job, instance.objective
            value = _value(*asked, later_s, least_s, 0.0, 0.0, waiting=True, joules=joules)
            value += price_of_change(instance, job, instance.objective, False)
            allowed = job.can_wait and job.preemptible and later_s <= deadline_s
            return Ran(job, None, later_s, 0.0, 0.0, least_j, value) if allowed else None
        found = self._row(job, a, rows)
        if found is None:
            return None
        unit_s, power_w, members = found
        stays = held is not None and (a.gpus, a.batch_size, a.pool) == (held.gpus, held.batch_size, held.pool)
        lost_s = 0.0 if stays else start_s
        seconds = unit_s * job.remaining_work + lost_s
        moved = held is not None and gpus_of(a.nodes) != gpus_of(held.nodes)
        if seconds > deadline_s or (not job.preemptible and (moved or not stays)):
            return None
        speed = reference_s / unit_s
        gpu_type = next(node.gpu_type for name, node in self.nodes.items() if self.pool_of[name] == a.pool)
        idle_w = instance.cluster.gpu_types[gpu_type].idle_power_w * a.gpus / members
        joules = counted_j(instance, seconds, power_w / members, idle_w)
        value = _value(instance, job, instance.objective, seconds, least_s, speed, lost_s, joules=joules)
        unmoved = not moved or displaced(instance, job)
        value += price_of_change(instance, job, instance.objective, stays and unmoved)
        good = _value(instance, job, "goodput", seconds, least_s, speed, lost_s)
        return Ran(job, a, seconds, power_w / members, idle_w, least_j, value, good)

    def _row(
        self, job: Job, a: Assignment, rows: list[tuple[tuple[Any, ...], float, float]]
    ) -> tuple[float, float, int] | None:
        """Seconds per unit of work, watts, and among how many jobs these are divided."""
        asked = (a.pool, a.gpus, a.frequency_mhz, a.power_limit_w, a.batch_size)
        if a.set is None:
            return next(((seconds, watts, 1) for row, seconds, watts in rows if row == asked), None)
        declared = next((one for one in self.instance.sets if one.name == a.set), None)
        if declared is None or job.name not in declared.rates or a.pool not in self.blocks:
            return None
        batch = declared.batch_sizes.get(job.name)
        named = (declared.gpus, declared.frequency_mhz, declared.power_limit_w, batch)
        of_type = {n.gpu_type for name, n in self.nodes.items() if self.pool_of[name] == a.pool}
        fits = self._may_be_had(a.pool, a.gpus)
        if asked[1:] != named or declared.pool not in {a.pool, *of_type} or not fits:
            return None
        return 1 / declared.rates[job.name], declared.power_w, len(declared.rates)

    def _sets(self, decision: Decision) -> bool:
        """Whether the jobs of every set that is formed are all in it, on the same GPUs."""
        for name in {a.set for a in decision.jobs if a.set is not None}:
            members = [a for a in decision.jobs if a.set == name]
            declared = next((one for one in self.instance.sets if one.name == name), None)
            if declared is None or {a.job for a in members} != set(declared.rates):
                return False
            if any(
                (a.pool, gpus_of(a.nodes)) != (members[0].pool, gpus_of(members[0].nodes)) for a in members
            ):
                return False
        return True

    def _gpus(self, decision: Decision) -> bool:
        """Whether GPUs exist, work, are used once, and lie in blocks that are nobody else's."""
        jobs = {job.name: job for job in self.instance.jobs}
        formed: set[str] = set()
        taken: list[tuple[bool, set[Gpu], set[Gpu]]] = []
        for a in decision.jobs:
            if a.set is not None and a.set in formed:
                continue
            formed |= {a.set} if a.set is not None else set()
            gpus = gpus_of(a.nodes)
            if not len(gpus) == sum(map(len, a.nodes.values())) == a.gpus:
                return False
            for name, gpu in gpus:
                node = self.nodes.get(name)
                if node is None or not 0 <= gpu < node.gpus or gpu in node.unavailable:
                    return False
                if self.pool_of[name] != a.pool:
                    return False
            kept, size = not jobs[a.job].preemptible, next_power(a.gpus)
            rule = capacity_of(self.instance, self._kind(a.pool)[0])
            if rule != "blocks":
                parts = [name for name, own in a.nodes.items() if own and len(own) < self.nodes[name].gpus]
                if rule == "nodes" and len(parts) > 1 and not kept:
                    return False
                taken.append((kept, gpus, gpus))
                continue
            around = [
                set(block[first : first + size])
                for block in self.blocks[a.pool]
                for first in range(0, len(block) - size + 1, size)
                if gpus <= set(block[first : first + size])
            ]
            whole = [block for block in around if not any(g in self.nodes[n].unavailable for n, g in block)]
            if not whole and not kept:
                return False
            taken.append((kept, gpus, around[0] if around else gpus))
        pairs = [(one, other) for i, one in enumerate(taken) for other in taken[:i]]
        return not any(
            one[1] & other[1] or (one[2] & other[2] and not (one[0] and other[0])) for one, other in pairs
        )

    def _within_quotas(self, ran: list[Ran]) -> bool:
        """Whether tenants and cohorts have no more than they may; in a set each job has an equal part."""
        sizes = {declared.name: len(declared.rates) for declared in self.instance.sets}
        for who, what, limit in quotas(self.instance):
            mine = [one for one in ran if one.chosen is not None and one.job.tenant in who]
            parts = [one.chosen.gpus / sizes.get(str(one.chosen.set), 1) for one in mine if one.chosen]
            joules = [drawn(self.instance, what, one.power_w, one.completion_s) for one in mine]
            used = math.fsum({"gpus": parts, "watts": [one.power_w for one in mine]}.get(what, joules))
            if used > limit * (1 + TOLERANCE):
                return False
        return True

    def _within_budgets(self, ran: list[Ran], asleep: set[str]) -> bool:
        """Whether site, power domains, energy and carbon keep to their limits."""
        instance = self.instance
        budgets, intensity = instance.budgets, instance.carbon_g_per_kwh or 0.0

        def power_w(domain: str | None) -> float:
            total = sum(d.reserved_w for d in instance.cluster.power_domains if d.name == domain)
            inside = {n for n, node in self.nodes.items() if domain in (None, *domains_of(instance, node))}
            for name in inside - asleep:
                node = self.nodes[name]
                idle_w = instance.cluster.gpu_types[node.gpu_type].idle_power_w
                total += node.base_power_w + node.reserved_w + idle_w * (node.gpus - len(node.unavailable))
            pools = {self.pool_of[name] for name in inside}
            return total + sum(o.power_w - o.idle_w for o in ran if o.chosen and o.chosen.pool in pools)

        if budgets.scope == "completion":
            energy_j = sum(o.least_j if o.chosen is None else o.power_w * o.completion_s for o in ran)
        else:
            early = [max(0.0, instance.round_s - o.completion_s) if o.chosen else 0.0 for o in ran]
            saved_j = sum((o.power_w - o.idle_w) * s for o, s in zip(ran, early, strict=True))
            energy_j = power_w(None) * instance.round_s - saved_j
        if sum(one.goodput for one in ran) < (budgets.least_goodput or 0.0) * (1 - TOLERANCE):
            return False
        limits = [(power_w(None), budgets.power_w), (energy_j, budgets.energy_j)]
        limits += [(energy_j * intensity / 3.6e6, budgets.carbon_g)]
        limits += [(power_w(d.name), d.power_cap_w) for d in instance.cluster.power_domains]
        return all(limit is None or value <= limit * (1 + TOLERANCE) for value, limit in limits)
