"""Tenants of a round on a page: their quotas, and what their jobs ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from wattsched.instances.sizing.tenants import cohorts_of
from wattsched.report.terminal import heading, line, table
from wattsched.report.wording import count, listed, number, quantity
from wattsched.topology.arrays import largest_by, least_by

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.formulations.sizing.data import Options
    from wattsched.instances.sizing.instance import Instance
    from wattsched.instances.sizing.tenants import Tenant
    from wattsched.topology.arrays import IntArray

MOST_ROWS = 40
COLUMNS = ("tenant", ">jobs", "quota", ">may have", ">jobs ask for", "")


def print_tenants(
    out: Console, instance: Instance, options: Options, examples: IntArray, n_alike: IntArray
) -> None:
    """Print a row for every quota; `options` are of `examples`, each one of `n_alike` such jobs."""
    if not instance.tenants:
        return
    rows = list[tuple[str, ...]]()
    for number_of, (name, tenant) in enumerate(instance.tenants.items()):
        mine = options.of.tenant[examples] == number_of
        own, often = examples[mine], n_alike[mine]
        jobs = f"{int(often.sum()):,}"
        quotas = list(_quotas(tenant)) or [("none", "", "")]
        for place, (quota, limit, note) in enumerate(quotas):
            wanted = _asked(options, own, often, quota) if limit else ""
            rows.append((*((name, jobs) if place == 0 else ("", "")), quota, limit, wanted, note))
    counted = "in this round" if instance.budgets.scope == "round" else "until jobs are complete"
    heading(out, f"Tenants: {len(instance.tenants):,}", f"energy and carbon {counted}")
    table(out, COLUMNS, rows, most=MOST_ROWS)
    for cohort, names in cohorts_of(instance.tenants).items():
        own = sum(instance.tenants[name].gpus or 0 for name in names)
        line(out, f"cohort {cohort} has {count(own, 'GPU')} together: {listed(names)}", indent=2)


def _quotas(tenant: Tenant) -> Iterator[tuple[str, str, str]]:
    """Yield for every quota what it counts, how much there may be, and what of that is borrowed."""
    note = "" if tenant.weight == 1.0 else f"weight {number(tenant.weight)}"
    if tenant.gpus is not None:
        if tenant.cohort is not None:
            most = "" if tenant.borrow_gpus is None else f" {tenant.borrow_gpus:,}"
            note = ", ".join(part for part in (f"may borrow{most} of {tenant.cohort}", note) if part)
        yield "GPUs", f"{tenant.gpus:,}", note
        note = ""
    for name, limit in (("power", tenant.power_w), ("energy", tenant.energy_j), ("carbon", tenant.carbon_g)):
        if limit is not None:
            yield name, quantity(limit, _UNITS[name]), note
            note = ""


_UNITS = {"power": "W", "energy": "J", "carbon": "g"}


def _asked(options: Options, examples: IntArray, like: IntArray, quota: str) -> str:
    """Totals that jobs ask for if each takes the least, or the most, that it can run as: ``8 to 64``."""
    runs = np.flatnonzero(~options.waiting)
    match quota:
        case "GPUs":
            amount = options.gpu_share[runs]
        case "power":
            amount = options.power_w[runs]
        case metered:
            amount = options.drawn_j[runs] * options.per_joule[metered]
    job, n = options.job[runs], len(options.of)
    least, most = least_by(job, amount, n), largest_by(job, amount, n)
    # Those that have no options to run ask for nothing.
    least = np.where(np.isinf(least), 0.0, least)
    ends = [float((like * amount[examples]).sum()) for amount in (least, most)]
    unit = _UNITS.get(quota)
    return " to ".join(dict.fromkeys(f"{end:,.0f}" if unit is None else quantity(end, unit) for end in ends))
