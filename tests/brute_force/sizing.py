"""Optimum of a small `sizing` instance by trying every combination, written with scalars only.

Shares nothing with the package but the instance and the decision models: options, times, powers, budgets,
aligned blocks and objectives are worked out here once more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from tests.brute_force.sizing_places import (
    Gpu,
    Kind,
    capacity_of,
    domains_of,
    fit,
    kinds,
    may_be_had,
    next_power,
    structural_blocks,
)
from wattsched.instances.sizing.instance import Instance, JobSet
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.topology.cluster import Node

MAXIMISED = ("progress", "max-min", "goodput", "work-value")


@dataclass(frozen=True)
class Choice:
    """An option of a job: a row of its table on one kind of node, a part of a set, or waiting (no blocks).

    In a set, watts are an equal part, and only the first job has GPUs.
    """

    gpus: int
    kind: Kind | None
    completion_s: float
    power_w: float
    idle_w: float
    energy_to_completion_j: float
    value: float
    set: str | None = None
    goodput: float = 0.0
    unchanged: bool = False


# -- options -----------------------------------------------------------------------------------------


def rows_of(instance: Instance, job: Job) -> Iterator[tuple[int, Kind, float, float, int | None]]:
    """(gpus, kind of node, time from a standing start, power, batch size) of every row a job may use."""
    table = instance.tables[job.options] if isinstance(job.options, str) else job.options
    assert isinstance(table, OptionTable)
    assert job.pools is None
    for kind, nodes in kinds(instance).items():
        for r, gpus in enumerate(table.gpus):
            if table.pool[r] not in (kind[0], kind[3]) or not may_be_had(instance, kind, nodes, gpus):
                continue
            if gpus < (job.min_gpus or 1) or gpus > (job.max_gpus or math.inf):
                continue
            if not within_quota_alone(instance, job, gpus, table.power_w[r]):
                continue
            time = (
                job.remaining_work / table.rate[r]
                if table.rate
                else job.remaining_work * (table.completion_s or [])[r]
            )
            yield gpus, kind, time, table.power_w[r], table.batch_size[r] if table.batch_size else None


def quotas(instance: Instance) -> list[tuple[set[str], str, float]]:
    """Tenants, what is counted of them, and how much they may have together."""
    found: list[tuple[set[str], str, float]] = []
    for name, tenant in instance.tenants.items():
        if tenant.power_w is not None:
            found.append(({name}, "watts", tenant.power_w))
        if tenant.energy_j is not None:
            found.append(({name}, "joules", tenant.energy_j))
        if tenant.carbon_g is not None:
            found.append(({name}, "grams", tenant.carbon_g))
        if tenant.gpus is not None and tenant.cohort is None:
            found.append(({name}, "gpus", tenant.gpus))
        if tenant.gpus is not None and tenant.borrow_gpus is not None:
            found.append(({name}, "gpus", tenant.gpus + tenant.borrow_gpus))
    for cohort in {tenant.cohort for tenant in instance.tenants.values()} - {None}:
        mine = {name: t.gpus or 0 for name, t in instance.tenants.items() if t.cohort == cohort}
        found.append((set(mine), "gpus", sum(mine.values())))
    return found


def within_quota_alone(instance: Instance, job: Job, gpus: float, watts: float) -> bool:
    """Whether a job has no more than its tenant may, when no other job runs."""
    used = {"gpus": gpus, "watts": watts}
    mine = [(what, limit) for who, what, limit in quotas(instance) if job.tenant in who and what in used]
    return all(used[what] <= limit for what, limit in mine)


def drawn(instance: Instance, what: str, watts: float, completion_s: float) -> float:
    """Joules or grams of the GPUs of a job that runs, in the scope of the budgets."""
    lasting_s = min(completion_s, instance.round_s) if instance.budgets.scope == "round" else completion_s
    joules = watts * lasting_s
    return joules * (instance.carbon_g_per_kwh or 0.0) / 3.6e6 if what == "grams" else joules


def energy_alone(instance: Instance, job: Job, watts: float, completion_s: float) -> bool:
    """Whether a job uses no more joules and grams than its tenant may, when no other job runs."""
    mine = [(what, limit) for who, what, limit in quotas(instance) if job.tenant in who]
    return all(
        drawn(instance, what, watts, completion_s) <= limit * (1 + 1e-9)
        for what, limit in mine
        if what in ("joules", "grams")
    )


def within_quotas(instance: Instance, combination: tuple[Choice, ...]) -> bool:
    """Whether no tenant and no cohort has more than it may; in a set each job has an equal part."""
    gpus_of = {declared.name: declared.gpus / len(declared.rates) for declared in instance.sets}
    for who, what, limit in quotas(instance):
        used = 0.0
        for job, choice in zip(instance.jobs, combination, strict=True):
            if job.tenant in who and choice.kind is not None:
                gpus = choice.gpus if choice.set is None else gpus_of[choice.set]
                by = {"gpus": gpus, "watts": choice.power_w}
                used += by[what] if what in by else drawn(instance, what, choice.power_w, choice.completion_s)
        if used > limit * (1 + 1e-9):
            return False
    return True


def _goes_on(instance: Instance, job: Job, row: tuple[int, Kind, float, float, int | None]) -> bool:
    """True if a job that runs as this row says does not restart."""
    gpus, kind, _, _, batch = row
    held = job.current
    if held is None or (gpus, batch) != (held.gpus, held.batch_size):
        return False
    return _current_kind(instance, job) == kind


def choices_of(instance: Instance, job: Job, objective: str) -> list[Choice]:
    """All choices of a job, with their value in the objective."""
    rows = list(rows_of(instance, job))
    running = job.current is not None
    penalty = job.restart_s if running else 0.0
    if not rows or not any(energy_alone(instance, job, *one) for one in _draws(instance, job, rows)):
        return []
    best = min(row[2] for row in rows) + penalty
    # From now: going on as it runs takes a job no restart.
    least = min(row[2] + (0.0 if _goes_on(instance, job, row) else penalty) for row in rows)
    least_energy = min(row[3] * (row[2] + penalty) for row in rows)
    fewest = min(row[0] for row in rows)
    reference = max(1 / (row[2] / job.remaining_work) for row in rows if row[0] == fewest)
    deadline = job.deadline_s or math.inf
    found = []
    for row in rows:
        (gpus, kind, time, power, batch), unchanged = row, _goes_on(instance, job, row)
        if not job.preemptible and not unchanged:
            continue
        paid = penalty if running and not unchanged else 0.0
        completion = time + paid
        idle = instance.cluster.gpu_types[str(kind[0])].idle_power_w * gpus
        if completion <= deadline and energy_alone(instance, job, power, completion):
            rate = 1 / (time / job.remaining_work)
            joules = counted_j(instance, completion, power, idle)
            value = _value(instance, job, objective, completion, least, rate / reference, paid, joules=joules)
            value += price_of_change(instance, job, objective, unchanged)
            good = _value(instance, job, "goodput", completion, least, rate / reference, paid)
            joules = power * completion
            found.append(Choice(gpus, kind, completion, power, idle, joules, value, None, good, unchanged))
    for declared, kind, part in parts_of(instance, job):
        current, batch = job.current, declared.batch_sizes.get(job.name)
        unchanged = current is not None and (declared.gpus, batch) == (current.gpus, current.batch_size)
        unchanged = unchanged and _current_kind(instance, job) == kind
        paid = penalty if running and not unchanged else 0.0
        completion = job.remaining_work / declared.rates[job.name] + paid
        idle = instance.cluster.gpu_types[str(kind[0])].idle_power_w * declared.gpus * part
        power = declared.power_w * part
        if completion <= deadline:
            speedup = declared.rates[job.name] / reference
            joules = counted_j(instance, completion, power, idle)
            value = _value(instance, job, objective, completion, least, speedup, paid, joules=joules)
            value += price_of_change(instance, job, objective, unchanged)
            gpus = declared.gpus if next(iter(declared.rates)) == job.name else 0
            energy = power * completion
            good = _value(instance, job, "goodput", completion, least, speedup, paid)
            found.append(Choice(gpus, kind, completion, power, idle, energy, value, declared.name, good))
    late = instance.round_s + best
    if job.can_wait and job.preemptible and late <= deadline:
        joules = least_energy if instance.budgets.scope == "completion" else 0.0
        value = _value(instance, job, objective, late, least, 0.0, 0.0, waiting=True, joules=joules)
        value += price_of_change(instance, job, objective, False)
        found.append(Choice(0, None, late, 0.0, 0.0, least_energy, value))
    return found


def _draws(
    instance: Instance, job: Job, rows: list[tuple[int, Kind, float, float, int | None]]
) -> Iterator[tuple[float, float]]:
    """Watts and seconds to completion of everything that a job could run as."""
    each = [(gpus, kind, batch, time, power) for gpus, kind, time, power, batch in rows]
    for declared, kind, part in parts_of(instance, job):
        batch, time = declared.batch_sizes.get(job.name), job.remaining_work / declared.rates[job.name]
        each.append((declared.gpus, kind, batch, time, declared.power_w * part))
    for gpus, kind, batch, time, power in each:
        yield power, time + _lost_s(instance, job, kind, gpus, batch)


def _lost_s(instance: Instance, job: Job, kind: Kind, gpus: int, batch: int | None) -> float:
    """What a restart takes of a job that would run so, if it needs one."""
    current = job.current
    same = current is not None and (gpus, batch) == (current.gpus, current.batch_size)
    stays = current is None or (same and _current_kind(instance, job) == kind)
    return 0.0 if stays else job.restart_s


def formed(instance: Instance, declared: JobSet, kind: Kind, members: list[Job]) -> bool:
    """Whether a set may be formed: none of its jobs is late in it, or beyond what its tenant may use."""
    watts = declared.power_w / len(members)
    for job in members:
        lost_s = _lost_s(instance, job, kind, declared.gpus, declared.batch_sizes.get(job.name))
        completion = job.remaining_work / declared.rates[job.name] + lost_s
        if completion > (job.deadline_s or math.inf):
            return False
        if not energy_alone(instance, job, watts, completion):
            return False
        if not within_quota_alone(instance, job, declared.gpus / len(members), watts):
            return False
    return True


def counted_j(instance: Instance, completion: float, power: float, idle: float) -> float:
    """Energy of a job that runs, in the scope of the budgets."""
    if instance.budgets.scope == "completion":
        return power * completion
    return (power - idle) * min(completion, instance.round_s)


def price_of_change(instance: Instance, job: Job, objective: str, unchanged: bool) -> float:
    """What a change of a job that runs now makes of a value: less where more is better."""
    if job.current is None or unchanged:
        return 0.0
    price = instance.change_cost if job.change_cost is None else job.change_cost
    return -price if objective in MAXIMISED else price


def parts_of(instance: Instance, job: Job) -> Iterator[tuple[JobSet, Kind, float]]:
    """Sets that the job may be in, by kind of node, with its part of the set."""
    jobs = {other.name: other for other in instance.jobs}
    for declared in instance.sets:
        members = [jobs[name] for name in declared.rates]
        if job not in members or any((m.min_gpus or 1) > declared.gpus for m in members):
            continue
        if any((m.max_gpus or math.inf) < declared.gpus for m in members):
            continue
        for kind, nodes in kinds(instance).items():
            named = declared.pool in (kind[0], kind[3])
            fits = named and may_be_had(instance, kind, nodes, declared.gpus)
            if fits and formed(instance, declared, kind, members):
                yield declared, kind, 1 / len(members)


def together(instance: Instance, combination: tuple[Choice, ...]) -> bool:
    """Whether the jobs of every set that is taken are all in it, in one place."""
    taken = Counter((choice.set, choice.kind) for choice in combination if choice.set is not None)
    sizes = {declared.name: len(declared.rates) for declared in instance.sets}
    return all(count == sizes[str(name)] for (name, _), count in taken.items())


def _current_kind(instance: Instance, job: Job) -> Kind | None:
    assert job.current is not None
    held = next(iter(job.current.nodes))
    return next(kind for kind, nodes in kinds(instance).items() if held in nodes)


def _value(
    instance: Instance,
    job: Job,
    objective: str,
    completion: float,
    best: float,
    speedup: float,
    paid: float,
    waiting: bool = False,
    joules: float = 0.0,
) -> float:
    match objective:
        case "total-completion" | "makespan":
            return weight_of(instance, job) * completion
        case "progress":
            return 0.0 if waiting else weight_of(instance, job) * 3600 / completion
        case "max-min":
            return best / completion / weight_of(instance, job)
        case "proportional":
            return weight_of(instance, job) * math.log(completion / best)
        case "goodput":
            lasting = max(0.0, 1 - paid / instance.round_s)
            return 0.0 if waiting else weight_of(instance, job) * speedup * lasting
        case "work-value":
            held = min(max(600.0, instance.round_s), completion)
            return 0.0 if waiting else work_value(instance, job) * speedup * max(0.0, 1 - paid / held)
        case "energy":
            return joules
        case "carbon":
            return joules * (instance.carbon_g_per_kwh or 0.0) / 3.6e6
        case "money":
            return joules * (instance.price_per_kwh or 0.0) / 3.6e6
    raise AssertionError(objective)


def weight_of(instance: Instance, job: Job) -> float:
    """A job's weight times that of its tenant."""
    return job.weight * (1.0 if job.tenant is None else instance.tenants[job.tenant].weight)


def work_value(instance: Instance, job: Job) -> float:
    """Derivative of the optimal weighted flow time by the job's size, were all speed-ups square roots.

    Of equal jobs each counts as the middle one: their values squared are the mean of all orders'.
    """

    def size(one: Job) -> float:
        rows = list(rows_of(instance, one))
        fewest = min((row[0] for row in rows), default=0)
        return min((row[2] for row in rows if row[0] == fewest), default=math.inf) / weight_of(instance, one)

    mine = size(job)
    equal = [one for one in instance.jobs if math.isclose(size(one), mine, rel_tol=1e-9)]
    larger = [one for one in instance.jobs if size(one) > mine and one not in equal]
    before, same = (sum(weight_of(instance, one) for one in those) for those in (larger, equal))
    return math.sqrt(weight_of(instance, job) * ((before + same) ** 2 - before**2) / same)


# -- budgets and the search --------------------------------------------------------------------------


def sleepers(instance: Instance) -> list[Node]:
    """Nodes that draw nothing as long as no job is there."""
    kept = {
        name for job in instance.jobs if not job.preemptible and job.current for name in job.current.nodes
    }
    return [
        node
        for node in instance.cluster.nodes
        if node.sleeps and not node.unavailable and node.reserved_w == 0 and node.name not in kept
    ]


def awake_w(instance: Instance, nodes: Iterable[Node]) -> float:
    """What nodes draw without jobs."""
    types = instance.cluster.gpu_types
    return sum(node.base_power_w + node.gpus * types[node.gpu_type].idle_power_w for node in nodes)


def price_of_waking(instance: Instance, objective: str, nodes: Iterable[Node]) -> float:
    """What it costs in the objective that nodes are awake."""
    per_joule = {"energy": 1.0, "carbon": (instance.carbon_g_per_kwh or 0.0) / 3.6e6}
    per_joule["money"] = (instance.price_per_kwh or 0.0) / 3.6e6
    if instance.budgets.scope == "completion":
        return 0.0
    return awake_w(instance, nodes) * instance.round_s * per_joule.get(objective, 0.0)


def within_budgets(instance: Instance, combination: tuple[Choice, ...], asleep: Collection[str] = ()) -> bool:
    """Site power, power domains, energy and carbon."""
    types = instance.cluster.gpu_types

    def power(domain: str | None) -> float:
        total = sum(d.reserved_w for d in instance.cluster.power_domains if d.name == domain)
        for node in instance.cluster.nodes:
            inside = domain is None or domain in domains_of(instance, node)
            if inside and node.name not in asleep:
                total += node.base_power_w + node.reserved_w
                total += types[node.gpu_type].idle_power_w * (node.gpus - len(node.unavailable))
        for choice in combination:
            if choice.kind is not None and (domain is None or domain in choice.kind[2]):
                total += choice.power_w - choice.idle_w
        return total

    def below(value: float, limit: float | None) -> bool:
        return limit is None or value <= limit * (1 + 1e-9)

    budgets = instance.budgets
    if budgets.scope == "round":
        energy = power(None) * instance.round_s
        for choice in combination:
            over = max(0.0, instance.round_s - choice.completion_s) if choice.kind is not None else 0.0
            energy -= (choice.power_w - choice.idle_w) * over
    else:
        energy = sum(choice.energy_to_completion_j for choice in combination)
    carbon = energy * (instance.carbon_g_per_kwh or 0.0) / 3.6e6
    if sum(choice.goodput for choice in combination) < (budgets.least_goodput or 0.0) * (1 - 1e-9):
        return False
    return (
        below(power(None), budgets.power_w)
        and all(below(power(d.name), d.power_cap_w) for d in instance.cluster.power_domains)
        and below(energy, budgets.energy_j)
        and below(carbon, budgets.carbon_g)
    )


def decided(instance: Instance) -> Instance:
    """The round without jobs that have no option but may wait, and without the sets that they are in."""
    free = [job for job in instance.jobs if job.can_wait and job.preemptible]
    out = {job.name for job in free if not choices_of(instance, job, "makespan")}
    if not out:
        return instance
    jobs = [job for job in instance.jobs if job.name not in out]
    sets = [declared for declared in instance.sets if out.isdisjoint(declared.rates)]
    return decided(instance.model_copy(update={"jobs": jobs, "sets": sets}))


def optimum(instance: Instance, objective: str) -> float | None:
    """Best objective over all combinations, None when there is no feasible one; moves have no price here."""
    instance = decided(instance)
    by_kind = kinds(instance)
    blocks = {kind: structural_blocks(instance, nodes) for kind, nodes in by_kind.items()}
    free = _free(instance, blocks)
    fixed = [not job.preemptible for job in instance.jobs]
    placeable: dict[tuple[object, ...], bool] = {}
    best: float | None = None
    able = sleepers(instance)
    awake = [set(some) for n in range(len(able) + 1) for some in combinations([n.name for n in able], n)]
    for combination in product(*(choices_of(instance, job, objective) for job in instance.jobs)):
        if not together(instance, combination) or not within_quotas(instance, combination):
            continue
        value = _total(objective, [c.value for c in combination])
        for woken in awake:
            asleep = {node.name for node in able} - woken
            if not within_budgets(instance, combination, asleep):
                continue
            left = {(node, gpu) for node, gpu in free if node not in asleep}
            fits = True
            for kind, nodes in by_kind.items():
                counts = sorted(
                    c.gpus
                    for c, keep in zip(combination, fixed, strict=True)
                    if c.kind == kind and c.gpus and not keep
                )
                key = (kind, *sorted(asleep), *counts)
                if key not in placeable:
                    placeable[key] = fit(instance, kind, nodes, left, counts)
                fits = fits and placeable[key]
            if fits:
                price = price_of_waking(instance, objective, [n for n in able if n.name in woken])
                best = _better(best, value + price, objective)
    return best


def _free(instance: Instance, blocks: dict[Kind, list[list[Gpu]]]) -> set[Gpu]:
    gone = {(n.name, g) for n in instance.cluster.nodes for g in n.unavailable}
    for job in instance.jobs:
        if not job.preemptible and job.current is not None:
            held = {(node, g) for node, gpus in job.current.nodes.items() for g in gpus}
            size = next_power(job.current.gpus)
            in_blocks = [
                b for kind, found in blocks.items() if capacity_of(instance, kind) == "blocks" for b in found
            ]
            for block in in_blocks:
                for start in range(0, len(block) - size + 1, size):
                    if held <= set(block[start : start + size]):
                        held = set(block[start : start + size])
            gone |= held
    return {(n.name, g) for n in instance.cluster.nodes for g in range(n.gpus)} - gone


def _total(objective: str, values: list[float]) -> float:
    if not values:
        return 0.0
    return {"makespan": max, "max-min": min}.get(objective, sum)(values)


def _better(best: float | None, value: float, objective: str) -> float:
    if best is None:
        return value
    return max(best, value) if objective in MAXIMISED else min(best, value)
