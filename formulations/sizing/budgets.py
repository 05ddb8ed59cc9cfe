"""Limits of a round: budgets, power caps, and quotas of tenants and of cohorts, whose tenants lend GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wattsched.formulations.reach import reached
from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.requirements import requirements_of
from wattsched.formulations.sizing.rooms import sleepers_of
from wattsched.formulations.sizing.uncertainty import uses_w
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.tenants import cohorts_of
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

_LAST_DIGITS, _NEARLY_ALL = 2.0**-51, 1e-6
"""Share of a limit that rounding takes, and share of it below which what is left is next to nothing."""


def left_of(limit: float, standing: float) -> float:
    """Return what idle GPUs and nodes leave of a limit; where next to nothing, rounding does not count."""
    left = limit - standing
    return left + _LAST_DIGITS * limit if abs(left) < _NEARLY_ALL * limit else left


@dataclass(frozen=True)
class BudgetRow:
    """One budget: what columns use of it and the capacity left once everything idle is paid for.

    Attributes
    ----------
    name : str
        Row name, for example ``power_w`` or ``power_w:rack3``.
    column : int array, shape (n_users,)
        Columns that use it, in their order.
    use : float array, shape (n_users,)
    capacity : float
        Amount left for the jobs; negative when what stands idle alone breaks the budget.
    limit : float
        The budget as the instance states it.
    least : bool
        Whether the limit is one from below: there must be as much at least.
    unit : float, optional
        What 1 of `use` and `capacity` is in the unit of the row's name, if they were scaled (`in_reach`).
    """

    name: str
    column: IntArray
    use: FloatArray
    capacity: float
    limit: float
    least: bool = False
    unit: float | None = None

    @classmethod
    def of(
        cls, name: str, use: FloatArray, limit: float, standing: float, *, least: bool = False
    ) -> BudgetRow:
        """Row of the `use` of all columns, shape (n_columns,); `standing` is that of idle GPUs and nodes."""
        column = np.flatnonzero(use)
        return cls(name, column, use[column], left_of(limit, standing), limit, least)

    def in_reach(self) -> BudgetRow:
        """The row in a unit in which its numbers are neither too large nor too small for solvers."""
        if (rescaled := reached(self.use, self.capacity, self.limit, least=self.least)) is None:
            return self
        use, capacity, unit = rescaled
        return replace(self, use=use, capacity=capacity, unit=unit)


def extra_power_w(options: Options) -> FloatArray:
    """Draw of each option beyond the idle draw of the GPUs it takes."""
    return options.power_w - options.idle_w


METERED = ("energy", "carbon")
"""Quantities that are counted of jobs by the second."""

_Counted = Literal["gpus", "power", "energy", "carbon"]
_TENANTS_LIMITS: dict[_Counted, str] = {"power": "power_w", "energy": "energy_j", "carbon": "carbon_g"}


@dataclass(frozen=True)
class Budget:
    """Budget of the round or quota of tenants: what it counts, and what is left of it beside everything idle.

    Attributes
    ----------
    name : str
        Row name: ``power_w``, ``power_w:DOMAIN``, ``energy_j`` or ``carbon_g``; of quotas
        ``tenant_gpus:NAME``, ``tenant_power_w:NAME``, ``tenant_energy_j:NAME``, ``tenant_carbon_g:NAME`` or
        ``cohort_gpus:NAME``.
    counts : {"gpus", "power", "energy", "carbon"}
    members : int array
        Numbers of the pools, or of a quota the tenants, whose jobs use it.
    limit : float
        The budget as the instance states it.
    standing : float
        What idle GPUs and nodes use of it whatever is decided.
    """

    name: str
    counts: _Counted
    members: IntArray
    limit: float
    standing: float = 0.0

    @property
    def capacity(self) -> float:
        """Amount left for the jobs; negative when the standing use alone breaks the budget."""
        return left_of(self.limit, self.standing)


def budgets_of(known: RoundJobs) -> list[Budget]:
    """All budgets and power caps of the round, with what idle GPUs and nodes use of them."""
    instance, pools, budgets = known.instance, known.pools, known.instance.budgets
    found, everywhere = list[Budget](), np.arange(len(pools))
    if (budgets.power_w, budgets.energy_j, budgets.carbon_g) == (None, None, None):
        idle_w = 0.0  # not used below
    else:
        idle_w = standing_power_w(known)
    if budgets.power_w is not None:
        found.append(Budget("power_w", "power", everywhere, budgets.power_w, idle_w))
    for domain in instance.cluster.power_domains:
        inside = np.flatnonzero([domain.name in pool.domains for pool in pools])
        standing = standing_power_w(known, domain.name)
        found.append(Budget(f"power_w:{domain.name}", "power", inside, domain.power_cap_w, standing))
    standing = idle_w * instance.round_s if budgets.scope == "round" else 0.0
    if budgets.energy_j is not None:
        found.append(Budget("energy_j", "energy", everywhere, budgets.energy_j, standing))
    if budgets.carbon_g is not None and instance.carbon_g_per_kwh is not None:
        grams = standing * known.per_joule["carbon"]
        found.append(Budget("carbon_g", "carbon", everywhere, budgets.carbon_g, grams))
    return found


def quotas_of(instance: Instance) -> list[Budget]:
    """All quotas of the round's tenants and cohorts."""
    tenants, found = instance.tenants, list[Budget]()
    for t, (name, tenant) in enumerate(tenants.items()):
        alone = np.array([t])
        # In a cohort without a limit to what is borrowed, its row is the limit.
        if tenant.gpus is not None and (tenant.cohort is None or tenant.borrow_gpus is not None):
            limit = tenant.gpus + (tenant.borrow_gpus or 0)
            found.append(Budget(f"tenant_gpus:{name}", "gpus", alone, limit))
        for counts, field in _TENANTS_LIMITS.items():
            if (limit := getattr(tenant, field)) is not None:
                found.append(Budget(f"tenant_{field}:{name}", counts, alone, limit))
    number = {name: t for t, name in enumerate(tenants)}
    for cohort, names in cohorts_of(tenants).items():
        members, own = np.array([number[name] for name in names]), sum(tenants[n].gpus or 0 for n in names)
        found.append(Budget(f"cohort_gpus:{cohort}", "gpus", members, own))
    return found


def uses_of(options: Options, quota: Budget) -> FloatArray:
    """Return each option's use of a quota, shape (n_options,)."""
    match quota.counts:
        case "gpus":
            amount = options.gpu_share
        case "power":
            amount = options.power_w
        case metered:
            amount = options.drawn_j * options.per_joule[metered]
    return np.where(under(options, [quota]), amount, 0.0)


def under(options: Options, quotas: list[Budget]) -> BoolArray:
    """Mask of options of jobs whose tenants are under some of the quotas."""
    limited = np.isin(options.of.tenant, np.concatenate([quota.members for quota in quotas]))
    return np.asarray(limited[options.job])


def budget_rows(options: Options, index: IntArray | None = None) -> list[BudgetRow]:
    """Rows of all budgets, power caps and quotas, of the least goodput, and of requirements.

    The `index` is the option of each column; without it, every option is one.
    """
    budgets, quotas = budgets_of(options.of), quotas_of(options.instance)
    least, others = options.instance.budgets.least_goodput, requirements_of(options)
    if not budgets and not quotas and not others and least is None:
        return []
    index = np.arange(len(options)) if index is None else index
    extra, pool = extra_power_w(options)[index], options.pool[index]
    by_pool = np.argsort(pool, kind="stable")
    ends = np.searchsorted(pool[by_pool], np.arange(len(options.pools) + 1))
    energy = options.counted_j[index] if any(b.counts != "power" for b in budgets) else extra[:0]
    rows = []
    for budget in budgets:
        if budget.name == "power_w":
            use, besides_w = uses_w(options, index, budget.name, extra)
            rows.append(BudgetRow.of("power_w", use, budget.limit, budget.standing + besides_w))
        elif budget.counts == "power":
            parts = [by_pool[ends[p] : ends[p + 1]] for p in budget.members.tolist()]
            column = np.sort(np.concatenate([ends[:0], *parts]))
            use, besides_w = uses_w(options, index, budget.name, extra)
            column = column[use[column] != 0.0]
            capacity = left_of(budget.limit, budget.standing + besides_w)
            rows.append(BudgetRow(budget.name, column, use[column], capacity, budget.limit))
        else:
            use = energy * options.per_joule[budget.counts]
            rows.append(BudgetRow.of(budget.name, use, budget.limit, budget.standing))
    for quota in quotas:
        rows.append(BudgetRow.of(quota.name, uses_of(options, quota)[index], quota.limit, 0.0))
    if least is not None:
        rows.append(BudgetRow.of("least_goodput", options.goodput[index], least, 0.0, least=True))
    for one in others:
        rows.append(BudgetRow.of(one.name, one.use[index], one.limit, 0.0, least=one.least))
    if any(len(some) for some in sleepers_of(options.of)):  # whose watts are added
        return rows
    return [row.in_reach() for row in rows]


def standing_power_w(jobs: RoundJobs, domain: str | None = None) -> float:
    """Compute the watts drawn whatever is decided, in the whole site or through a power domain.

    That is what others draw (`reserved_w`), and of nodes the base power and the idle draw of available GPUs.
    Nodes that may sleep (`sleepers_of`) count as asleep, at 0 W.
    """
    cluster = jobs.instance.cluster
    nodes = cluster.node_columns()
    base_w, reserved_w = nodes.numbers("base_power_w"), nodes.numbers("reserved_w")
    of_nodes_w = 0.0
    for pool, sleeping in zip(jobs.pools, sleepers_of(jobs), strict=True):
        if domain is None or domain in pool.domains:
            up = np.delete(pool.members, sleeping) if len(sleeping) else pool.members
            idle_w = cluster.gpu_types[pool.gpu_type].idle_power_w
            awake_gpus = int(pool.available.sum()) - pool.gpus_per_node * len(sleeping)
            of_nodes_w += idle_w * awake_gpus + (base_w + reserved_w)[up].sum()
    # A domain's own reserve is drawn outside the instance, so the site's budget has no part in it.
    of_domain_w = sum(each.reserved_w for each in cluster.power_domains if each.name == domain)
    return float(of_nodes_w + of_domain_w)
