"""Tenants: groups of jobs with quotas, shares that they lend one another, and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from wattsched.instances.errors import require, require_range
from wattsched.instances.sizing.job import LARGEST_WEIGHT, SMALLEST_WEIGHT, Weight
from wattsched.topology.column import NONE
from wattsched.topology.fields import LARGEST, Name, Positive, Strict

if TYPE_CHECKING:
    from wattsched.instances.sizing.job_columns import JobColumns
    from wattsched.topology.arrays import FloatArray

Gpus = Annotated[int, Field(ge=0, le=1_000_000)]

NEARLY = 1 + 1e-9
"""Watts and joules of a job that are equal to a quota may be above it by their last digits."""


class Tenant(Strict):
    """Whose jobs together keep to quotas; None is no limit.

    Attributes
    ----------
    weight : float
        By which the weights of its jobs are multiplied.
    gpus : int, optional
        GPUs that its jobs may have together; in a cohort, those that are its own.
    cohort : str, optional
        Tenants of one cohort lend one another GPUs: together they may have what is their own together.
    borrow_gpus : int, optional
        The most that it may have beyond its own.
    power_w : float, optional
        What the GPUs of its jobs may draw together.
    energy_j, carbon_g : float, optional
        What these GPUs may use together, counted as the scope of the budgets says: during the round, or until
        the jobs that run are complete. Jobs that wait use nothing.
    """

    weight: Weight = 1.0
    gpus: Gpus | None = None
    cohort: Name | None = None
    borrow_gpus: Gpus | None = None
    power_w: Positive | None = None
    energy_j: Positive | None = None
    carbon_g: Positive | None = None

    @model_validator(mode="after")
    def _own_before_borrowed(self) -> Self:
        """Refuse a tenant that lends or borrows without what that needs."""
        if self.cohort is not None and self.gpus is None:
            raise ValueError("a tenant of a cohort needs 'gpus', those that are its own")
        if self.cohort is None and self.borrow_gpus is not None:
            raise ValueError("'borrow_gpus' needs a 'cohort' to borrow from")
        return self


class Most(NamedTuple):
    """Limits of the tenant's quotas on what a job may use alone."""

    gpus: float = inf
    power_w: float = inf
    energy_j: float = inf


def cohorts_of(tenants: Mapping[str, Tenant]) -> dict[str, list[str]]:
    """Names of the tenants of each cohort."""
    found: dict[str, list[str]] = {}
    for name, tenant in tenants.items():
        if tenant.cohort is not None:
            found.setdefault(tenant.cohort, []).append(name)
    return found


def gpus_of(tenants: Mapping[str, Tenant], name: str) -> float:
    """GPUs that a tenant's jobs may have together, whatever those of others have."""
    tenant = tenants[name]
    if tenant.gpus is None:
        return inf
    if tenant.cohort is None:
        return tenant.gpus
    own = inf if tenant.borrow_gpus is None else tenant.gpus + tenant.borrow_gpus
    return min(own, sum(tenants[other].gpus or 0 for other in cohorts_of(tenants)[tenant.cohort]))


def most_alone(tenants: Mapping[str, Tenant], name: str | None, g_per_joule: float = 0.0) -> Most:
    """Return the limits on a job of a tenant that runs alone, at `g_per_joule` grams of carbon per joule."""
    if name is None or name not in tenants:
        return Most()
    tenant = tenants[name]
    grams_j = inf if tenant.carbon_g is None or g_per_joule == 0.0 else tenant.carbon_g / g_per_joule
    power_w, energy_j = (inf if limit is None else limit for limit in (tenant.power_w, tenant.energy_j))
    return Most(gpus_of(tenants, name), power_w * NEARLY, min(energy_j, grams_j) * NEARLY)


def weights_of(tenants: Mapping[str, Tenant], jobs: JobColumns) -> FloatArray:
    """Weights of jobs, those of their tenants included; shape (n_jobs,)."""
    weight = jobs.numbers("weight")
    if not tenants:
        return weight
    of = jobs.coded("tenant")
    known = (tenants.get(name) for name in of.values)
    factor = np.array([*(1.0 if tenant is None else tenant.weight for tenant in known), 1.0])
    return np.asarray(weight * factor[of.codes])


def tenant_faults(tenants: Mapping[str, Tenant], jobs: JobColumns) -> Iterator[str]:
    """Jobs of tenants that there are not, or whose weights leave the range of weights."""
    of = jobs.coded("tenant")
    for j in np.flatnonzero(of.where(lambda name: name not in tenants)).tolist():
        yield f"job '{jobs.names[j]}' names the unknown tenant '{of.at(j)}'"
    if not tenants:
        return
    weight = weights_of(tenants, jobs)
    beyond = (of.codes != NONE) & ((weight < SMALLEST_WEIGHT) | (weight > LARGEST_WEIGHT))
    for j in np.flatnonzero(beyond).tolist():
        told = f"from {SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}, it is {weight[j]:g}"
        yield f"job '{jobs.names[j]}': its weight times that of tenant '{of.at(j)}' must be {told}"


def fair_share(usage: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    r"""Weights of tenants by what they used and what their share is, as Slurm's priorities have it.

    Parameters
    ----------
    usage : mapping of str to float
        What each tenant used lately, in any unit: GPU hours, joules. Who is not named used nothing.
    shares : mapping of str to float
        The parts of all tenants, in any unit.

    Returns
    -------
    dict of str to float
        :math:`2^{-U / S}` of each share, where :math:`U` and :math:`S` are a tenant's parts of all usage and
        of all shares: 1/2 for who used just its share, 1 for who used nothing; 1e-6 at least.

    Raises
    ------
    ValueError, TypeError
        For usage of a tenant without a share, and numbers that are none.
    """
    for argument, numbers in (("usage", usage), ("shares", shares)):
        require(argument, numbers, (Mapping,), "a mapping of tenants to numbers")
        for name, number in numbers.items():
            require(f"{argument}['{name}']", number, (int, float), "a number")
    for name, used in usage.items():
        require_range(name in shares, f"usage['{name}']", "of a tenant that has a share", used)
        require_range(0.0 <= used <= LARGEST, f"usage['{name}']", f"from 0 to {LARGEST:g}", used)
    for name, share in shares.items():
        require_range(0.0 < share <= LARGEST, f"shares['{name}']", f"positive and at most {LARGEST:g}", share)
    used, whole = sum(usage.values()) or 1.0, sum(shares.values())
    return {
        name: max(SMALLEST_WEIGHT, 2.0 ** -(usage.get(name, 0.0) / used / (share / whole)))
        for name, share in shares.items()
    }
