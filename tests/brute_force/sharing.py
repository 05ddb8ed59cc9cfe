"""Every partition of the jobs of a tiny `sharing` instance, judged by the definitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import inf

from wattsched.instances.sharing.instance import Job, SharingInstance


def partitions(items: list[Job]) -> Iterator[list[list[Job]]]:
    """All ways to split a list into non-empty sets."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for split in partitions(rest):
        yield [[first], *split]
        for i in range(len(split)):
            yield [*split[:i], [first, *split[i]], *split[i + 1 :]]


def run_of(instance: SharingInstance, unit_name: str, jobs: list[Job]) -> tuple[float, list[float]] | None:
    """Watts of the unit and epoch seconds of each job; None if the set is not allowed."""
    unit = next(u for u in instance.unit_types if u.name == unit_name)
    tables = {c.name: c.alone for c in instance.classes}
    names = sorted(job.job_class for job in jobs)
    if any(unit_name not in tables[name] for name in names) or len(jobs) > instance.limits.jobs_per_set:
        return None
    if len(jobs) > 1 and any(job.exclusive for job in jobs):
        return None
    alone = {name: tables[name][unit_name] for name in names}
    total = sum(alone[name].utilisation_pct for name in names)
    memory = sum(alone[name].memory_pct for name in names)
    util, watts = min(total, 100.0), None
    law, n = instance.slowdown, len(jobs)
    slow = dict.fromkeys(names, 1.0)
    if n == 1:
        watts = alone[names[0]].power_w
    else:
        slow = dict.fromkeys(
            names,
            max(total / 100, 1 + (n - 1) * (law.per_job + law.per_load * (total / 100) ** law.exponent)),
        )
        same = [m for m in instance.sets if m.unit_type == unit_name and sorted(m.classes) == names]
        if not same and instance.unmeasured == "refuse":
            return None
        for m in same:
            slow = dict(zip(m.classes, m.slowdown, strict=False))
            watts = m.power_w
            util = util if m.utilisation_pct is None else m.utilisation_pct
            memory = memory if m.memory_pct is None else m.memory_pct
    for m in instance.sets:
        if m.unit_type == unit_name and not m.fits:
            rest = list(names)
            for name in m.classes:
                if name in rest:
                    rest.remove(name)
            if len(rest) == len(names) - len(m.classes):
                return None
    if util > instance.limits.utilisation_pct + 1e-9 or memory > instance.limits.memory_pct + 1e-9:
        return None
    if watts is None:
        watts = (
            unit.idle_power_w + (unit.full_power_w - unit.idle_power_w) * (util / 100) ** unit.power_exponent
        )
    epochs = [alone[job.job_class].epoch_s * slow[job.job_class] for job in jobs]
    for job, epoch in zip(jobs, epochs, strict=True):
        if job.deadline_s is not None and job.remaining_epochs * epoch > job.deadline_s * (1 + 1e-12):
            return None
    return watts, epochs


def _wait_cost(instance: SharingInstance, job: Job, objective: str) -> float | None:
    """Cost of waiting, None if the job may not."""
    free = job.model_copy(update={"deadline_s": None})
    alone = {
        u.name: (u, run) for u in instance.unit_types if (run := run_of(instance, u.name, [free])) is not None
    }
    fastest = min(run[1][0] for _, run in alone.values())
    late = job.deadline_s is not None and (
        instance.round_s + job.remaining_epochs * fastest > job.deadline_s * (1 + 1e-12)
    )
    if late or not job.can_wait:
        return None
    if objective == "throughput":
        return 0.0
    worst = 0.0
    for unit, (watts, (epoch,)) in alone.values():
        kwh = watts * epoch * job.remaining_epochs / 3.6e6
        worst = max(
            worst,
            {
                "power": watts - unit.sleep_power_w,
                "energy": kwh,
                "eaco": instance.alpha * kwh + (1 - instance.alpha) * epoch / 3600 / len(instance.jobs),
            }[objective],
        )
    return instance.waiting_penalty * worst


def optimum(instance: SharingInstance, objective: str) -> float | None:
    """Best objective, None if no decision exists."""
    types = [u.name for u in instance.unit_types]
    waits = {job.name: _wait_cost(instance, job, objective) for job in instance.jobs}
    fastest = {c.name: min(a.epoch_s for a in c.alone.values()) for c in instance.classes}
    best = inf
    for split in partitions(list(instance.jobs)):
        for places in product([*types, None], repeat=len(split)):
            cost = _cost(instance, objective, split, places, waits, fastest)
            best = min(best, inf if cost is None else cost)
    return None if best == inf else (-best if objective == "throughput" else best)


def _cost(
    instance: SharingInstance,
    objective: str,
    split: list[list[Job]],
    places: tuple[str | None, ...],
    waits: dict[str, float | None],
    fastest: dict[str, float],
) -> float | None:
    """Cost of jobs on units, None where that is no decision."""
    watts_all = energy = epochs = through = penalty = 0.0
    for unit in instance.unit_types:
        if places.count(unit.name) > unit.count:
            return None
        watts_all += (unit.count - places.count(unit.name)) * unit.sleep_power_w
    for pool in instance.pools:
        units = [unit for unit in instance.unit_types if unit.pool == pool.name]
        if sum((unit.gpus or 0) * places.count(unit.name) for unit in units) > pool.gpus:
            return None
    for jobs, place in zip(split, places, strict=True):
        if place is None:
            wait = waits[jobs[0].name]
            if len(jobs) > 1 or wait is None:
                return None
            penalty += wait
            continue
        run = run_of(instance, place, jobs)
        if run is None:
            return None
        watts_all += run[0]
        for job, epoch in zip(jobs, run[1], strict=True):
            energy += run[0] / len(jobs) * epoch * job.remaining_epochs
            epochs += epoch
            through += fastest[job.job_class] / epoch
    budgets, carbon = instance.budgets, energy / 3.6e6 * (instance.carbon_g_per_kwh or 0.0)
    for value, limit in (
        (watts_all, budgets.power_w),
        (energy, budgets.energy_j),
        (carbon, budgets.carbon_g),
    ):
        if limit is not None and value > limit * (1 + 1e-9):
            return None
    return {
        "throughput": -through,
        "power": watts_all + penalty,
        "energy": energy / 3.6e6 + penalty,
        "eaco": instance.alpha * energy / 3.6e6
        + (1 - instance.alpha) * epochs / 3600 / len(instance.jobs)
        + penalty,
    }[objective]
