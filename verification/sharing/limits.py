"""Limits of a round of jobs that share units, and what jobs demand of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from wattsched.instances.replacing import replaced
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.verification.limits import Limit, budgets, demands

UNITS = {"power_w": "W", "energy_j": "J", "carbon_g": "g"}
DEMANDS = {"can_wait": True, "deadline_s": None, "exclusive": False}


def limits_of(instance: SharingInstance) -> Iterator[Limit]:
    """Yield budgets, units, GPUs of pools, and what jobs demand."""
    yield from budgets(instance, UNITS)
    for unit in instance.unit_types:
        grown = partial(_with_units, unit_type=unit.name)
        yield Limit(("units", unit.name), unit.count, "units", grown=grown, step=1)
    for pool in instance.pools:
        grown = partial(_with_gpus, pool=pool.name)
        yield Limit(("gpus", pool.name), pool.gpus, "GPUs", grown=grown, step=1)
    yield from demands(instance.jobs, DEMANDS)


def _with_units(instance: SharingInstance, units: float, unit_type: str) -> SharingInstance:
    """Return the round with so many units of a type, of which those that are more draw nothing asleep.

    Enough of them is one for each job.
    """
    known = next(unit for unit in instance.unit_types if unit.name == unit_type)
    more = len(instance.jobs) if math.isinf(units) else round(units) - known.count
    changes: dict[str, object] = {"unit_types": {unit_type: {"count": known.count + more}}}
    if instance.budgets.power_w is not None:
        changes["budgets"] = {"power_w": instance.budgets.power_w + more * known.sleep_power_w}
    grown = replaced(instance, changes)
    return grown


def _with_gpus(instance: SharingInstance, gpus: float, pool: str) -> SharingInstance:
    """Return the round with so many GPUs of a pool; enough is the largest unit for each job."""
    largest = max((unit.gpus for unit in instance.unit_types if unit.pool == pool), default=0)
    own = next(one.gpus for one in instance.pools if one.name == pool)
    many = own + largest * len(instance.jobs) if math.isinf(gpus) else round(gpus)
    grown = replaced(instance, {"pools": {pool: {"gpus": many}}})
    return grown
