"""Reasons, in numbers, why a job waits that was decided on: GPUs, watts, a quota, and who goes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattsched.adapters.plan import Kept
from wattsched.adapters.rounds import Plan
from wattsched.inputs import listed
from wattsched.instances.sizing.tenants import Tenant
from wattsched.report.wording import count

_NAMED = 2
"""So many of those that go first are named."""


@dataclass
class Left:
    """GPUs and watts that the starts of a round leave in a pool.

    Attributes
    ----------
    free : list of int
        Free GPUs of each node that takes jobs.
    caps : dict of str to tuple of float
        What draws through each cap that its nodes are under, '' for the site: its watts, and the cap.
    first : list of str
        Jobs that start there.
    """

    free: list[int] = field(default_factory=list)
    caps: dict[str, tuple[float, float]] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def holds(self, gpus: int) -> int:
        """Return the number of times that so many GPUs are free on one node."""
        return sum(free // gpus for free in self.free)


@dataclass(frozen=True)
class Need:
    """Need of an option in a pool: some times as many GPUs of one node, and watts beyond those idle."""

    pool: str
    gpus: int
    times: int
    added_w: float


def left_of(
    load: Any,
    cap_w: float,
    pools: Mapping[str, str],
    free: Mapping[str, int],
    starts: Iterable[tuple[str, Iterable[str]]],
) -> dict[str, Left]:
    """Return the GPUs and watts that the starts of a round leave in each pool.

    Parameters
    ----------
    load : Drawing
        When the starts have been done.
    pools : mapping of str to str
        Pool of each node.
    free : mapping of str to int
        Free GPUs of the nodes that take jobs.
    starts : iterable of tuple
        Name of each job that starts, and its nodes.
    """
    drawn_w, found = load.drawn_w, dict[str, Left]()
    caps = {node: {"": (drawn_w[""], cap_w)} for node in pools}
    for domain in load.options.power_domains:
        for node in caps.keys() & set(load.under[domain.name]):
            caps[node][f"'{domain.name}'"] = drawn_w[domain.name], domain.power_cap_w
    for node, pool in pools.items():
        left = found.setdefault(pool, Left(caps=caps[node]))
        left.free += [free[node]] if node in free else []
    for name, nodes in starts:
        for pool in {pools[node] for node in nodes}:
            found[pool].first.append(name)
    return found


def undecided(plan: Plan, jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the jobs told to a session that neither run nor are started by a plan."""
    starting = {str(start.name) for start in plan.starts}
    return [job for job in jobs if "current" not in job and job["name"] not in starting]


def why_waiting(needs: Iterable[Need], left: Mapping[str, Left], quota: str = "") -> str:
    """Say why none of the options of a job started.

    Parameters
    ----------
    needs : iterable of Need
        Of its options, at least one.
    quota : str
        What else there may be, of `why_over_quota`.
    """
    needs = [one for one in needs if one.pool in left]
    fitting = [one for one in needs if left[one.pool].holds(one.gpus) >= one.times]
    first = dict.fromkeys(name for one in needs for name in left[one.pool].first)
    told = list[str]()
    if not fitting and needs:
        least = min(needs, key=lambda one: (one.gpus * one.times, -left[one.pool].holds(one.gpus)))
        told.append(_too_few(least, {one.pool: left[one.pool] for one in needs}))
    elif len(over := [one for need in fitting if (one := _over(need, left[need.pool]))]) == len(fitting):
        told += [min(over)[1]] if over else []
        first = dict.fromkeys(name for one in left.values() for name in one.first)
    elif quota:
        told.append(quota)
    if first or not told:
        go = "goes" if len(first) == 1 else "go"
        told.append(f"{listed(first, '', _NAMED) or 'others'} {go} first")
    return "; ".join(told)


def _too_few(need: Need, left: Mapping[str, Left]) -> str:
    if need.times > 1:
        told = f"needs {need.times:,} times {count(need.gpus, 'GPU')} of one node"
        return f"{told}; there is room for {left[need.pool].holds(need.gpus):,}"
    most = max((free for one in left.values() for free in one.free), default=0)
    return f"needs {count(need.gpus, 'GPU')} on one node, {most} {'is' if most == 1 else 'are'} free"


def _over(need: Need, left: Left) -> tuple[float, str] | None:
    """Return the watts above the first cap that an option would break, and how that reads; else None."""
    for name, (drawn_w, cap_w) in left.caps.items():
        if (then_w := drawn_w + need.added_w) > cap_w:
            then, cap = _unlike(then_w, cap_w)
            return then_w - cap_w, f"{name or 'the site'} would draw {then} with it, of a cap of {cap}"
    return None


def _unlike(*powers_w: float) -> list[str]:
    """Format amounts in kilowatts, with as many digits as tell them apart."""
    told = ([f"{watts / 1e3:,.{digits}f} kW" for watts in powers_w] for digits in (1, 2, 3, 6))
    return next((texts for texts in told if len({*texts}) == len(texts)), [f"{w / 1e3} kW" for w in powers_w])


def why_over_quota(
    needs: Iterable[Need], name: str | None, tenants: Mapping[str, Tenant], kept: Iterable[Kept]
) -> str:
    """Say how a tenant's quota leaves too little for another job; empty where there is no tenant.

    Parameters
    ----------
    kept : iterable of Kept
        What jobs have that go on or start, of all tenants.
    """
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
