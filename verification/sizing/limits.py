"""Limits of a round, and what jobs demand of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from wattsched.instances.replacing import replaced
from wattsched.instances.sizing.changes import with_nodes
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.tenants import Tenant
from wattsched.instances.units import J_PER_KWH
from wattsched.verification.limits import Limit, budgets, demands
from wattsched.verification.sizing.objectives import OBJECTIVES
from wattsched.verification.sizing.pools import Pool, block_of, places_of, pools_of

UNITS = {"power_w": "W", "energy_j": "J", "carbon_g": "g"}
DEMANDS = {"can_wait": True, "preemptible": True, "deadline_s": None}
WORST = {"power_w": "worst_power_w"}
BEYOND = 1e9
"""Watts of a cap that limits nothing."""
MOST_GPUS = 1_000_000


def limits_of(instance: Instance) -> Iterator[Limit]:
    """Yield budgets, power caps, quotas, capacities, and what jobs demand.

    That jobs exist, their options, and what stands idle are no limits. A deadline may demand that a job runs.
    """
    # What a cap is kept by is the worst case, where watts are uncertain.
    yield from budgets(instance, UNITS, WORST if instance.uncertainty else {})
    if (least := instance.budgets.least_goodput) is not None:
        yield Limit(("budgets", "least_goodput"), least, at_least=True, total="goodput")
    for name, limit in instance.budgets.reached.items():
        more = OBJECTIVES[name] == "max"
        yield Limit(("budgets", "objectives", name), limit, at_least=more, total=f"objective:{name}")
    for domain in instance.cluster.power_domains:
        path = ("cluster", "power_domains", domain.name, "power_cap_w")
        yield Limit(path, domain.power_cap_w, "W", BEYOND)
    yield from _quotas(instance)
    for name, pool in pools_of(instance.cluster).items():
        grown = partial(_with_gpus, pool=name)
        yield Limit(("gpus", name), pool.available, "GPUs", grown=grown, step=pool.gpus_per_node)
    yield from demands(instance.jobs, DEMANDS)


def _quotas(instance: Instance) -> Iterator[Limit]:
    cohorts: dict[str, int] = {}
    for name, tenant in instance.tenants.items():
        for quota, unit in UNITS.items():
            if (value := getattr(tenant, quota)) is not None:
                yield Limit(("tenants", name, quota), value, unit)
        if tenant.cohort is not None:
            cohorts[tenant.cohort] = cohorts.get(tenant.cohort, 0) + (tenant.gpus or 0)
        field = "gpus" if tenant.cohort is None else "borrow_gpus"
        if (gpus := getattr(tenant, field)) is not None:
            yield Limit(("tenants", name, field), gpus, "GPUs", at=round, step=1)
    for name, gpus in cohorts.items():
        yield Limit(("cohort_gpus", name), gpus, "GPUs", grown=partial(_with_shares, cohort=name), step=1)


def _with_shares(instance: Instance, gpus: float, cohort: str) -> Instance:
    """Return the round with so many GPUs of a cohort, the others' being of a tenant without jobs."""
    own = sum(tenant.gpus or 0 for tenant in instance.tenants.values() if tenant.cohort == cohort)
    more = MOST_GPUS if math.isinf(gpus) else round(gpus) - own
    lender = Tenant(gpus=more, cohort=cohort)
    return instance.model_copy(update={"tenants": {**instance.tenants, f"lender of {cohort}": lender}})


def _with_gpus(instance: Instance, gpus: float, pool: str) -> Instance:
    """Return the round with so many GPUs of a pool, on nodes of which none draws anything while it is idle.

    Enough of them are those on which all jobs have room that demand something.
    """
    known = pools_of(instance.cluster)[pool]
    if math.isinf(gpus):
        whole = [block_of(most) if known.capacity == "blocks" else most for most in _sizes(instance, known)]
        more = math.ceil(sum(whole) / known.gpus_per_node)
        more = int(block_of(more)) if known.capacity == "blocks" else more
    else:
        more = round((gpus - known.available) / known.gpus_per_node)
    places = places_of(instance.cluster)
    model = instance.cluster.nodes[int(np.argmax(places.pool == places.pools.index(pool)))]
    base_w = model.base_power_w if model.sleeps else 0.0
    grown = with_nodes(instance, model, more, known.domains, base_w)
    of_one_w = instance.cluster.gpu_types[known.gpu_type].idle_power_w
    idle_w = 0.0 if model.sleeps else of_one_w * known.gpus_per_node * more
    return _with_standing(grown, idle_w, known.domains)


def _sizes(instance: Instance, pool: Pool) -> Iterator[int]:
    """Yield the most GPUs that each job which demands something, or adds to a goodput, may use of a pool."""
    everybody = instance.budgets.least_goodput is not None
    for job in instance.jobs:
        if not everybody and not any(demands([job], DEMANDS)):
            continue
        if job.model is not None:
            yield max(job.gpu_counts or [pool.gpus_per_node])
            continue
        table, names = instance.table_of(job), (pool.name, pool.gpu_type)
        yield max((g for g, at in zip(table.gpus, table.pool, strict=True) if at in names), default=0)


def _with_standing(instance: Instance, idle_w: float, domains: tuple[str, ...]) -> Instance:
    """Return the round with what more watts of idle GPUs use added to its limits."""
    joules = idle_w * instance.round_s if instance.budgets.scope == "round" else 0.0
    grams = joules * (instance.carbon_g_per_kwh or 0.0) / J_PER_KWH
    stated = dict(instance.budgets)
    uses = zip(UNITS, (idle_w, joules, grams), strict=True)
    caps = {one.name: one.power_cap_w for one in instance.cluster.power_domains if one.name in domains}
    tree = {
        "budgets": {name: stated[name] + more for name, more in uses if stated[name] is not None},
        "cluster": {"power_domains": {name: {"power_cap_w": cap + idle_w} for name, cap in caps.items()}},
    }
    return replaced(instance, tree)
