"""What the fields of an instance of `sharing` say against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattsched.instances.sharing.instance import SharingInstance


def contradictions(instance: SharingInstance) -> Iterator[str]:
    """One line each: names that are unknown or given twice, and values that contradict others."""
    yield from _duplicates(instance)
    yield from _unknown(instance)
    yield from _bad_pools(instance)
    yield from _bad_sets(instance)
    yield from _bad_jobs(instance)
    if instance.budgets.carbon_g is not None and instance.carbon_g_per_kwh is None:
        yield "a carbon budget needs 'carbon_g_per_kwh'"


def _duplicates(instance: SharingInstance) -> Iterator[str]:
    for what, named in (
        ("pool", instance.pools),
        ("unit type", instance.unit_types),
        ("class", instance.classes),
        ("job", instance.jobs),
    ):
        counts = Counter(item.name for item in named)
        yield from (f"duplicate {what} '{name}'" for name, count in counts.items() if count > 1)
    seen = Counter((s.unit_type, tuple(sorted(s.classes))) for s in instance.sets)
    yield from (
        f"the set {', '.join(classes)} on '{unit_type}' is given {count} times"
        for (unit_type, classes), count in seen.items()
        if count > 1
    )


def _unknown(instance: SharingInstance) -> Iterator[str]:
    types = {unit_type.name for unit_type in instance.unit_types}
    classes = {job_class.name: job_class for job_class in instance.classes}
    for job_class in instance.classes:
        for name in job_class.alone:
            if name not in types:
                yield f"class '{job_class.name}' names the unknown unit type '{name}'"
    for i, measured in enumerate(instance.sets):
        if measured.unit_type not in types:
            yield f"sets[{i}] names the unknown unit type '{measured.unit_type}'"
        for name in measured.classes:
            if name not in classes:
                yield f"sets[{i}] names the unknown class '{name}'"
            elif measured.unit_type in types and measured.unit_type not in classes[name].alone:
                yield f"sets[{i}]: class '{name}' has nothing measured alone on '{measured.unit_type}'"
    for job in instance.jobs:
        if job.job_class not in classes:
            yield f"job '{job.name}' names the unknown class '{job.job_class}'"


def _bad_pools(instance: SharingInstance) -> Iterator[str]:
    pools = {pool.name for pool in instance.pools}
    for unit in instance.unit_types:
        if unit.name in pools:
            yield f"'{unit.name}' is the name of a pool and of a unit type"
        if unit.pool is not None and unit.pool not in pools:
            yield f"unit type '{unit.name}' names the unknown pool '{unit.pool}'"
        if unit.pool is not None and unit.sleep_power_w > 0:
            yield f"unit type '{unit.name}' is of a pool: sleep_power_w must be 0, not {unit.sleep_power_w:g}"


def _bad_sets(instance: SharingInstance) -> Iterator[str]:
    for i, measured in enumerate(instance.sets):
        if not measured.fits:
            continue
        if len(measured.slowdown) != len(measured.classes):
            yield (
                f"sets[{i}].slowdown has {len(measured.slowdown)} numbers for {len(measured.classes)} classes"
            )
            continue
        first: dict[str, float] = {}
        for name, slowdown in zip(measured.classes, measured.slowdown, strict=True):
            if first.setdefault(name, slowdown) != slowdown:
                yield f"sets[{i}].slowdown: two jobs of class '{name}' have {first[name]:g} and {slowdown:g}"


def _bad_jobs(instance: SharingInstance) -> Iterator[str]:
    for job in instance.jobs:
        if job.deadline_s is not None and job.deadline_s <= 0:
            yield f"job '{job.name}': deadline_s {job.deadline_s:g} is in the past"
