"""Limits of a horizon, and what jobs demand of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from wattsched.instances.replacing import REMOVED
from wattsched.instances.shifting.forecasts import BySlot, by_slot
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.verification.limits import Limit, budgets, demands
from wattsched.verification.orders import tighter
from wattsched.verification.shifting.checker import BUDGETS, CRITERIA, standing_of

UNITS = {"carbon_g": "g", "energy_j": "J", "money": "", "average_completion_s": "s"}
DEMANDS = {"must_finish": False, "deadline_s": None, "least_progress": 0.0}


def limits_of(instance: ShiftingInstance) -> Iterator[Limit]:
    """Yield budgets, power caps, GPUs of pools, and what jobs demand; that jobs exist is no limit.

    The value of a cap by slot is that of its lowest slot; with another one all slots change by as much.
    """
    yield from budgets(instance, UNITS)
    if instance.power_w is not None:
        yield _cap(("power_w",), instance.power_w, instance.slots, None)
    for name, domain in instance.power_domains.items():
        yield _cap(("power_domains", name), domain.power_w, instance.slots, REMOVED, domain)
    for name, pool in instance.pools.items():
        grown = partial(_with_gpus, pool=name)
        yield Limit(("gpus", name), pool.gpus, "GPUs", grown=grown, step=1)
    yield from demands(instance.jobs, DEMANDS)


def limited(instance: ShiftingInstance, limits: Mapping[str, float | None]) -> ShiftingInstance:
    """Return the horizon with limits on objectives, which are its budgets, or for None without these."""
    values = {}
    for name, limit in limits.items():
        field = BUDGETS[CRITERIA[name]]
        stated = getattr(instance.budgets, field)
        values[field] = None if limit is None else tighter(stated, limit, "min")
    return instance.model_copy(update={"budgets": instance.budgets.model_copy(update=values)})


def _cap(path: tuple[str, ...], watts: BySlot, slots: int, left_out: Any, domain: Any = None) -> Limit:
    """Return the limit of a cap, in a domain where one is given."""
    least = float(by_slot(watts, slots).min())

    def at(value: float) -> Any:
        raised = [w + value - least for w in watts] if isinstance(watts, list) else value
        return raised if domain is None else domain.model_copy(update={"power_w": raised})

    return Limit(path, least, "W", left_out, at)


def _with_gpus(instance: ShiftingInstance, gpus: float, pool: str) -> ShiftingInstance:
    """Return the horizon with so many GPUs of a pool, of which those that are more draw nothing while idle.

    Enough of them are those on which all jobs run at their largest.
    """
    known = instance.pools[pool]
    more = _most_gpus(instance, pool) if math.isinf(gpus) else round(gpus) - known.gpus
    larger = known.model_copy(update={"gpus": known.gpus + more})
    grown = instance.model_copy(update={"pools": {**instance.pools, pool: larger}})
    before, after = standing_of(instance), standing_of(grown)
    raised = {
        name: value + after[name] - before[name]
        for name in UNITS
        if name in before and (value := getattr(instance.budgets, name)) is not None
    }
    idle_w = more * known.idle_power_w
    changed: dict[str, Any] = {"budgets": instance.budgets.model_copy(update=raised)}
    if instance.power_w is not None:
        changed["power_w"] = _higher(instance.power_w, idle_w)
    changed["power_domains"] = {
        name: one.model_copy(update={"power_w": _higher(one.power_w, idle_w)}) if pool in one.pools else one
        for name, one in instance.power_domains.items()
    }
    return grown.model_copy(update=changed)


def _most_gpus(instance: ShiftingInstance, pool: str) -> int:
    """GPUs of a pool that all jobs together can use."""
    found = 0
    for job in instance.jobs:
        table = instance.table_of(job)
        found += max((g for g, at in zip(table.gpus, table.pool, strict=True) if at == pool), default=0)
    return found


def _higher(watts: BySlot, more_w: float) -> BySlot:
    return [each + more_w for each in watts] if isinstance(watts, list) else watts + more_w
