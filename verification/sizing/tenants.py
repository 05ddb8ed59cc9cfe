"""The checker's own reading of tenants: weights, what a job may use alone, and who has more than a quota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.topology.arrays import FloatArray
from wattsched.verification.report import TOLERANCE, exceeds

ROUNDING = 1e-9
"""By how much parts of GPUs and watts may be off, relative to a quota."""


class Quota(NamedTuple):
    """The row of its name: what it counts, of which tenants, and how much there may be."""

    name: str
    counts: str
    tenants: tuple[str, ...]
    limit: float


def quotas_of(instance: Instance) -> list[Quota]:
    """Quotas of each tenant, of what may be borrowed too, and of all that have a cohort in common."""
    found, own = list[Quota](), dict[str, dict[str, int]]()
    for name, tenant in instance.tenants.items():
        if tenant.power_w is not None:
            found.append(Quota(f"tenant_power_w:{name}", "draw", (name,), tenant.power_w))
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
    """GPUs and watts that a job of a tenant may have if no other runs."""
    most = {"share": inf, "draw": inf}
    for quota in quotas_of(instance) if tenant in instance.tenants else ():
        if tenant in quota.tenants:
            most[quota.counts] = min(most[quota.counts], quota.limit)
    return most["share"], most["draw"] * (1 + ROUNDING)


def weights(instance: Instance, jobs: JobColumns) -> FloatArray:
    """Weights of jobs times those of their tenants."""
    found = jobs.numbers("weight")
    if not instance.tenants:
        return found
    names = jobs.coded("tenant").tolist()
    by_name = {name: tenant.weight for name, tenant in instance.tenants.items()}
    return np.asarray(found * np.array([by_name.get(name, 1.0) for name in names], dtype=float))


def faults(instance: Instance, names: list[str | None], used: Mapping[str, FloatArray]) -> Iterator[str]:
    """Tenants and cohorts that have more than they may.

    Parameters
    ----------
    names : list of str
        Tenant of each job that runs.
    used : mapping of str to float array, shape (n_running,)
        GPUs (``share``) and watts (``draw``) of these jobs.
    """
    for quota in quotas_of(instance):
        mine = np.array([name in quota.tenants for name in names], dtype=bool)
        amount = float(used[quota.counts][mine].sum())
        row, _, name = quota.name.partition(":")
        unit, tolerance = (" W", TOLERANCE) if quota.counts == "draw" else (" GPUs", ROUNDING)
        if exceeds(amount, quota.limit, tolerance):
            told = f"{row.partition('_')[0]} '{name}' has {amount:.9g}{unit}"
            yield f"{told}, it may have {quota.limit:.9g}{unit}"
