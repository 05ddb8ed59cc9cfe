"""The checker's own reading of tenants: weights, what a job may use alone, and who has more than a quota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import FloatArray
from wattsched.verification.report import TOLERANCE, exceeds

ROUNDING = 1e-9
"""Tolerance of parts of GPUs and watts, relative to a quota."""

UNITS = {"share": " GPUs", "draw": " W", "energy": " J", "carbon": " g CO2"}
"""Units of what quotas count."""


class Quota(NamedTuple):
    """The row of its name: what it counts (a key of `UNITS`), of which tenants, and how much there may be."""

    name: str
    counts: str
    tenants: tuple[str, ...]
    limit: float


def quotas_of(instance: Instance) -> list[Quota]:
    """Quotas of every tenant, with what it may borrow, and of the tenants of every cohort together."""
    found, own = list[Quota](), dict[str, dict[str, int]]()
    for name, tenant in instance.tenants.items():
        if tenant.power_w is not None:
            found.append(Quota(f"tenant_power_w:{name}", "draw", (name,), tenant.power_w))
        if tenant.energy_j is not None:
            found.append(Quota(f"tenant_energy_j:{name}", "energy", (name,), tenant.energy_j))
        if tenant.carbon_g is not None:
            found.append(Quota(f"tenant_carbon_g:{name}", "carbon", (name,), tenant.carbon_g))
        if tenant.gpus is None:
            continue
        if tenant.cohort is None:
            found.append(Quota(f"tenant_gpus:{name}", "share", (name,), tenant.gpus))
            continue
        own.setdefault(tenant.cohort, {})[name] = tenant.gpus
        if tenant.borrow_gpus is not None:
            limit = tenant.gpus + tenant.borrow_gpus
            found.append(Quota(f"tenant_gpus:{name}", "share", (name,), limit))
    for cohort, gpus in own.items():
        found.append(Quota(f"cohort_gpus:{cohort}", "share", tuple(gpus), sum(gpus.values())))
    return found


def alone(instance: Instance, tenant: str | None) -> tuple[float, float]:
    """GPUs and watts that a job of a tenant may have if no other runs, infinite without a quota."""
    most = {"share": inf, "draw": inf}
    for quota in quotas_of(instance) if tenant in instance.tenants else ():
        if tenant in quota.tenants and quota.counts in most:
            most[quota.counts] = min(most[quota.counts], quota.limit)
    return most["share"], most["draw"] * (1 + ROUNDING)


def alone_j(instance: Instance, tenant: str | None) -> float:
    """Joules that a job of a tenant may use if no other runs, infinite without a quota."""
    of = instance.tenants.get(tenant) if tenant is not None else None
    if of is None:
        return inf
    most = inf if of.energy_j is None else of.energy_j
    if of.carbon_g is not None and instance.carbon_g_per_kwh:
        most = min(most, of.carbon_g * J_PER_KWH / instance.carbon_g_per_kwh)
    return most


def metered(instance: Instance) -> bool:
    """True if any tenant has a quota of joules or grams."""
    return bool(instance.tenants) and any(
        quota.counts in ("energy", "carbon") for quota in quotas_of(instance)
    )


def drawn_j(instance: Instance, power_w: FloatArray | float, seconds: FloatArray | float) -> FloatArray:
    """Joules of jobs that run, in the scope of the budgets, idle draw included."""
    if instance.budgets.scope == "round":
        return np.asarray(power_w * np.minimum(seconds, instance.round_s))
    return np.asarray(power_w * seconds)


def weights(instance: Instance, jobs: JobColumns) -> FloatArray:
    """Weights of jobs times those of their tenants."""
    found = jobs.numbers("weight")
    if not instance.tenants:
        return found
    names = jobs.coded("tenant").tolist()
    by_name = {name: tenant.weight for name, tenant in instance.tenants.items()}
    return np.asarray(found * np.array([by_name.get(name, 1.0) for name in names], dtype=float))


def faults(instance: Instance, names: list[str | None], used: Mapping[str, FloatArray]) -> Iterator[str]:
    """Yield a fault for every tenant and cohort that has more than it may.

    Parameters
    ----------
    names : list of str
        Tenant of each job that runs.
    used : mapping of str to float array, shape (n_running,)
        GPUs (``share``), watts (``draw``), joules (``energy``) and grams (``carbon``) of these jobs.
    """
    for quota in quotas_of(instance):
        mine = np.array([name in quota.tenants for name in names], dtype=bool)
        amount = float(used[quota.counts][mine].sum())
        row, _, name = quota.name.partition(":")
        who, _, _ = row.partition("_")  # tenant or cohort
        unit, tolerance = UNITS[quota.counts], ROUNDING if quota.counts == "share" else TOLERANCE
        if exceeds(amount, quota.limit, tolerance):
            yield f"{who} '{name}' has {amount:.9g}{unit}, it may have {quota.limit:.9g}{unit}"
