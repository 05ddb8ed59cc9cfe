"""A round as a session takes it, whoever schedules: its cluster and jobs, and what is left of quotas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattsched.adapters.options import StatedOptions
from wattsched.adapters.quarantine import Clock
from wattsched.instances.sizing.tenants import Tenant, cohorts_of
from wattsched.instances.units import J_PER_KWH
from wattsched.session_decision import SessionDecision

_LEAST = 1e-3
"""Watts, joules and grams that are left of a quota that is used up: quotas are positive."""


@dataclass(frozen=True)
class Kept:
    """GPUs and watts of a job that no decision stops, and the tenant that it is of."""

    tenant: str
    gpus: int
    power_w: float


@dataclass(frozen=True)
class Round:
    """Cluster and jobs that a session is told of in a round, and the waiting jobs left out, with why.

    Attributes
    ----------
    load : Drawing
        Who uses what.
    kept : list of Kept
        What jobs of tenants have that no decision stops.
    clock : Clock
        The time that the decision has.
    guarded : dict
        Jobs whose stop would be refused, and why; they are not to be stopped.
    """

    load: Any
    cluster: dict[str, Any]
    jobs: list[dict[str, Any]]
    left_out: dict[Any, str]
    kept: list[Kept]
    clock: Clock = field(default_factory=Clock)
    guarded: dict[Any, str] = field(default_factory=dict)

    def tenants(self, round_s: float) -> dict[str, dict[str, Any]]:
        """Return the quotas that tenants have left, in a round of so many seconds."""
        options = self.load.options
        return left_for(options.tenants, self.kept, round_s, options.carbon_g_per_kwh)


def cluster_row(
    name: str,
    options: StatedOptions,
    kinds: Iterable[str],
    nodes: list[dict[str, Any]],
    groups: Mapping[str, str | None],
    level: str,
) -> dict[str, Any]:
    """Return a cluster as instances have it.

    Parameters
    ----------
    groups : mapping of str to str or None
        What nodes stand in, and what is above it.
    level : str
        What such a group is.
    """
    above = [(group, {} if parent is None else {"parent": parent}) for group, parent in groups.items()]
    return {
        "name": name,
        "gpu_types": {kind: options.gpu_type(kind).model_dump(exclude_unset=True) for kind in sorted(kinds)},
        "nodes": nodes,
        "groups": [{"name": group, "level": level, **parent} for group, parent in above],
        "power_domains": options.domains_there({*groups, *(node["name"] for node in nodes)}),
        "capacity": "nodes",
    }


def assigned(
    jobs: Collection[Mapping[str, Any]], decision: SessionDecision
) -> Iterator[tuple[Any, Mapping[str, Any], int, dict[str, int]]]:
    """Yield the jobs that a decision runs: assignment, job, row of its table, and GPUs by node."""
    records = {job["name"]: job for job in jobs}
    option = dict(zip(decision.ids, decision.option.tolist(), strict=True))
    for row in decision.assignments:
        nodes = {node: len(gpus) for node, gpus in row.nodes.items()}
        yield row, records[row.job], option[row.job], nodes


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
