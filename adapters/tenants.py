"""Quotas of accounts and namespaces: what is left of them for jobs that are to be decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wattsched.instances.sizing.tenants import Tenant, cohorts_of
from wattsched.instances.units import J_PER_KWH

_LEAST = 1e-3
"""Watts, joules and grams that are left of a quota that is used up: quotas are positive."""


@dataclass(frozen=True)
class Kept:
    """GPUs and watts of a job that no decision stops, and the tenant that it is of."""

    tenant: str
    gpus: int
    power_w: float


def left_for(
    tenants: Mapping[str, Tenant], kept: Iterable[Kept], round_s: float, carbon_g_per_kwh: float | None
) -> dict[str, dict[str, Any]]:
    """Tenants as sessions take them, with what jobs that no decision stops leave of their quotas.

    What these use beyond a quota, which may have been larger when they began, is not held against anybody:
    nothing is left then. They are taken to draw their watts to the end of the round.
    """
    gpus, power_w = dict.fromkeys(tenants, 0), dict.fromkeys(tenants, 0.0)
    for one in kept:
        gpus[one.tenant] += one.gpus
        power_w[one.tenant] += one.power_w
    g_per_joule = (carbon_g_per_kwh or 0.0) / J_PER_KWH
    found = {
        name: _but(tenant, gpus[name], power_w[name], round_s, g_per_joule)
        for name, tenant in tenants.items()
    }
    for names in cohorts_of(tenants).values():
        # Who borrows now leaves others less than their own.
        left = max(0, sum(tenants[name].gpus or 0 for name in names) - sum(gpus[name] for name in names))
        for name in names:
            own, borrow = tenants[name].gpus or 0, tenants[name].borrow_gpus
            found[name]["gpus"] = mine = min(max(0, own - gpus[name]), left)
            left -= mine
            if borrow is not None:
                found[name]["borrow_gpus"] = max(0, own + borrow - gpus[name] - mine)
    return found


def _but(tenant: Tenant, gpus: int, power_w: float, round_s: float, g_per_joule: float) -> dict[str, Any]:
    """A tenant without what some of its jobs use."""
    joules = power_w * round_s
    used = {"power_w": power_w, "energy_j": joules, "carbon_g": joules * g_per_joule}
    stated = tenant.model_dump(exclude_none=True)
    stated |= {name: max(_LEAST, stated[name] - use) for name, use in used.items() if name in stated}
    return stated | ({} if tenant.gpus is None else {"gpus": max(0, tenant.gpus - gpus)})
