"""A round as a session takes it, whoever schedules: cluster, jobs, quotas, and why jobs wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattsched.adapters.options import StatedOptions
from wattsched.adapters.overdraw import kept_w
from wattsched.adapters.quarantine import Clock
from wattsched.adapters.rounds import Plan, Reason
from wattsched.instances.gpu_parts import host_of
from wattsched.instances.sizing.tenants import Tenant, cohorts_of
from wattsched.instances.units import J_PER_KWH
from wattsched.reading.inputs import echo, listed
from wattsched.report.wording import count
from wattsched.sessions.session_decision import SessionDecision

_LEAST = 1e-3
"""Watts, joules and grams that are left of a quota that is used up: quotas are positive."""
_NAMED = 2
"""So many of those that go first are named."""


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
    then : Drawing, optional
        The load by a first decision, for whose margins the next one leaves room.
    """

    load: Any
    cluster: dict[str, Any]
    jobs: list[dict[str, Any]]
    left_out: dict[Any, str]
    kept: list[Kept]
    clock: Clock = field(default_factory=Clock)
    guarded: dict[Any, str] = field(default_factory=dict)
    then: Any = None


def cluster_row(
    name: str,
    options: StatedOptions,
    kinds: Iterable[str],
    nodes: list[dict[str, Any]],
    groups: Mapping[str, str | None],
    level: str,
) -> dict[str, Any]:
    """Return a cluster as instances have it, with GPU types `kinds`; `groups` have the group above each.

    They are of a `level`, but for those that are a machine with several kinds of GPUs, and so several nodes.
    """
    above = [(group, {} if parent is None else {"parent": parent}) for group, parent in groups.items()]
    levels = {host_of(node["name"]): "host" for node in nodes}
    return {
        "name": name,
        "gpu_types": {kind: options.gpu_type(kind).model_dump(exclude_unset=True) for kind in sorted(kinds)},
        "nodes": nodes,
        "groups": [{"name": group, "level": levels.get(group, level), **parent} for group, parent in above],
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
        name: _reduced(tenant, gpus[name], power_w[name], round_s, g_per_joule)
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


def _reduced(tenant: Tenant, gpus: int, power_w: float, round_s: float, g_per_joule: float) -> dict[str, Any]:
    """A tenant as sessions take it, its quotas less what jobs with these GPUs and watts use in a round."""
    joules = power_w * round_s
    used = {"power_w": power_w, "energy_j": joules, "carbon_g": joules * g_per_joule}
    stated = tenant.model_dump(exclude_none=True)
    stated |= {name: max(_LEAST, stated[name] - use) for name, use in used.items() if name in stated}
    return stated | ({} if tenant.gpus is None else {"gpus": max(0, tenant.gpus - gpus)})


@dataclass
class Left:
    """GPUs and watts that the starts of a round leave in a pool.

    Attributes
    ----------
    free : dict of str to int
        Free GPUs of each node that takes jobs.
    caps : dict of str to tuple of float
        What draws through each cap that its nodes are under, '' for the site: its watts, and the cap.
    first : list of str
        Jobs that start there.
    """

    free: dict[str, int] = field(default_factory=dict)
    caps: dict[str, tuple[float, float]] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def holds(self, gpus: int) -> int:
        """Return the number of times that so many GPUs are free on one node."""
        return sum(free // gpus for free in self.free.values())


@dataclass(frozen=True)
class Need:
    """Need of an option in a pool: some times as many GPUs of one node, and watts beyond those idle."""

    pool: str
    gpus: int
    times: int
    added_w: float


def left_of(
    load: Any,
    cap_w: Mapping[str, float],
    pools: Mapping[str, str],
    free: Mapping[str, int],
    starts: Iterable[tuple[str, Iterable[str]]],
) -> dict[str, Left]:
    """Return the GPUs and watts that the starts of a round leave in each pool.

    `load` is that after the starts, `pools` has the pool of each node, `free` the free GPUs of those that
    take jobs, and `starts` the name and the nodes of each job that starts.
    """
    drawn_w, cap_of, found = load.drawn_w, kept_w(load, cap_w), dict[str, Left]()
    caps = {node: {"": (drawn_w[""], cap_of[""])} for node in pools}
    for domain in load.options.power_domains:
        for node in caps.keys() & set(load.under[domain.name]):
            caps[node][f"'{domain.name}'"] = drawn_w[domain.name], cap_of[domain.name]
    for node, pool in pools.items():
        left = found.setdefault(pool, Left(caps=caps[node]))
        if node in free:
            left.free[node] = free[node]
    for name, nodes in starts:
        for pool in {pools[node] for node in nodes}:
            found[pool].first.append(name)
    return found


def undecided(plan: Plan, jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the jobs told to a session that neither run nor are started by a plan."""
    starting = {str(start.name) for start in plan.starts}
    return [job for job in jobs if "current" not in job and job["name"] not in starting]


def why_waiting(needs: Iterable[Need], left: Mapping[str, Left], quota: str = "", seen: str = "") -> Reason:
    """Say why none of the options of a job started, by their `needs`, or else by its `quota`.

    Jobs that go first are named if their names begin with what the owner may see, and only counted otherwise.
    """
    needs = [one for one in needs if one.pool in left]
    fitting = [one for one in needs if left[one.pool].holds(one.gpus) >= one.times]
    over = [excess for need in fitting if (excess := _over(need, left[need.pool]))]
    first = dict.fromkeys(name for one in needs for name in left[one.pool].first)
    parts = dict[str, str]()  # by kind
    if not fitting and needs:
        least = min(needs, key=lambda one: (one.gpus * one.times, -left[one.pool].holds(one.gpus)))
        parts["room"] = _too_few(least, {one.pool: left[one.pool] for one in needs})
    elif len(over) == len(fitting):
        parts |= {"power": min(over)[1]} if over else {}
        first = dict.fromkeys(name for one in left.values() for name in one.first)
    elif quota:
        parts[getattr(quota, "kind", "quota")] = quota
    if first or not parts:
        parts["order"] = _go_first(list(first), seen)
    return Reason("; ".join(parts.values()), next(iter(parts)))


def _go_first(names: list[str], seen: str) -> str:
    """Say which jobs go first: some of those whose names begin with `seen`, and how many others."""
    if not names:
        return "others go first"
    shown = [name for name in names if name.startswith(seen)][:_NAMED]
    if others := len(names) - len(shown):
        shown.append(f"{others:,} more" if shown else count(others, "other job"))
    text = " and ".join(filter(None, (listed(shown[:-1], quote=""), echo(shown[-1], quote=""))))
    return f"{text} {'goes' if len(names) == 1 else 'go'} first"


def _too_few(need: Need, left: Mapping[str, Left]) -> str:
    """Say which GPUs a need asks for, and how many of its pool or of any pool in `left` are free."""
    if need.times > 1:
        text = f"needs {need.times:,} blocks of {count(need.gpus, 'GPU')}, each on one node"
        return f"{text}; there is room for {left[need.pool].holds(need.gpus):,}"
    free = [pair for one in left.values() for pair in one.free.items()]
    node, most = max(free, key=lambda pair: pair[1], default=("", 0))
    there = (
        f"{most} {'is' if most == 1 else 'are'} free on {echo(node, quote='')}" if most else "none is free"
    )
    return f"needs {count(need.gpus, 'GPU')} on one node, {there}"


def _over(need: Need, left: Left) -> tuple[float, str] | None:
    """Return the watts above the first cap that an option would break, and how that reads; else None."""
    for name, (drawn_w, cap_w) in left.caps.items():
        if (then_w := drawn_w + need.added_w) > cap_w:
            then, cap = _unlike(then_w, cap_w)
            return then_w - cap_w, f"{name or 'the site'} would draw {then} with it, of a cap of {cap}"
    return None


def _unlike(*powers_w: float) -> list[str]:
    """Format amounts in kilowatts, with as many digits as tell them apart."""
    tries = ([f"{watts / 1e3:,.{digits}f} kW" for watts in powers_w] for digits in (1, 2, 3, 6))
    exact = [f"{watts / 1e3} kW" for watts in powers_w]
    return next((texts for texts in tries if len({*texts}) == len(texts)), exact)


def why_over_quota(
    needs: Iterable[Need], name: str | None, tenants: Mapping[str, Tenant], kept: Iterable[Kept]
) -> str:
    """Say how a tenant's quota leaves too little beside the jobs `kept`; empty where there is no tenant."""
    if name is None:
        return ""
    tenant, own = tenants[name], [one for one in kept if one.tenant == name]
    gpus, power_w = sum(one.gpus for one in own), sum(one.power_w for one in own)
    fewest = min((need.gpus * need.times for need in needs), default=0)
    if tenant.gpus is not None and gpus + fewest > tenant.gpus + (tenant.borrow_gpus or 0):
        more = f" and {tenant.borrow_gpus:,} borrowed" if tenant.borrow_gpus else ""
        return f"needs {fewest:,} GPUs, the quota of '{name}' is {tenant.gpus:,}{more}, and {gpus:,} are used"
    if tenant.power_w is not None and power_w > 0:
        return f"the quota of '{name}' is {tenant.power_w:,.0f} W, and {power_w:,.0f} W are used"
    return f"the quota of '{name}' leaves too little"
