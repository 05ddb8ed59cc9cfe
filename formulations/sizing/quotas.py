"""Quotas of tenants, and of cohorts, whose tenants lend one another GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from wattsched.formulations.sizing.data import Options
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.tenants import cohorts_of
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

METERED = ("energy", "carbon")
"""Quantities that are counted of jobs by the second."""


@dataclass(frozen=True)
class Quota:
    """Limit on what the jobs of some tenants use together.

    Attributes
    ----------
    name : str
        Row name: ``tenant_gpus:NAME``, ``tenant_power_w:NAME``, ``tenant_energy_j:NAME``,
        ``tenant_carbon_g:NAME`` or ``cohort_gpus:NAME``.
    counts : {"gpus", "power", "energy", "carbon"}
    tenants : int array
        Numbers of the tenants.
    limit : float
    """

    name: str
    counts: Literal["gpus", "power", "energy", "carbon"]
    tenants: IntArray
    limit: float

    @property
    def metered(self) -> bool:
        """True if it depends on how long jobs run."""
        return self.counts in METERED


def quotas_of(instance: Instance) -> list[Quota]:
    """All quotas of the round."""
    tenants, found = instance.tenants, list[Quota]()
    for t, (name, tenant) in enumerate(tenants.items()):
        alone = np.array([t])
        # In a cohort without a limit to what is borrowed, its row is the limit.
        if tenant.gpus is not None and (tenant.cohort is None or tenant.borrow_gpus is not None):
            limit = tenant.gpus + (tenant.borrow_gpus or 0)
            found.append(Quota(f"tenant_gpus:{name}", "gpus", alone, limit))
        if tenant.power_w is not None:
            found.append(Quota(f"tenant_power_w:{name}", "power", alone, tenant.power_w))
        if tenant.energy_j is not None:
            found.append(Quota(f"tenant_energy_j:{name}", "energy", alone, tenant.energy_j))
        if tenant.carbon_g is not None:
            found.append(Quota(f"tenant_carbon_g:{name}", "carbon", alone, tenant.carbon_g))
    number = {name: t for t, name in enumerate(tenants)}
    for cohort, names in cohorts_of(tenants).items():
        members, own = np.array([number[name] for name in names]), sum(tenants[n].gpus or 0 for n in names)
        found.append(Quota(f"cohort_gpus:{cohort}", "gpus", members, own))
    return found


def uses_of(options: Options, quota: Quota) -> FloatArray:
    """Return each option's use of a quota, shape (n_options,)."""
    match quota.counts:
        case "gpus":
            amount = options.gpu_share
        case "power":
            amount = options.power_w
        case metered:
            amount = options.drawn_j * options.per_joule[metered]
    return np.where(_under(options, [quota]), amount, 0.0)


def quota_criteria(options: Options) -> list[FloatArray]:
    """GPUs, watts and joules of the options that quotas count, as far as there are such quotas."""
    known, found = quotas_of(options.instance), list[FloatArray]()
    if some := [quota for quota in known if quota.counts == "gpus"]:
        found.append(np.where(_under(options, some), options.gpu_share, 0.0))
    if some := [quota for quota in known if quota.counts == "power"]:
        found.append(np.where(_under(options, some), options.power_w, 0.0))
    if some := [quota for quota in known if quota.metered]:
        found.append(np.where(_under(options, some), options.drawn_j, 0.0))
    return found


def _under(options: Options, quotas: list[Quota]) -> BoolArray:
    """Options of jobs whose tenants are under some of the quotas."""
    limited = np.isin(options.of.tenant, np.concatenate([quota.tenants for quota in quotas]))
    return np.asarray(limited[options.job])
