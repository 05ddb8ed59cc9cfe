"""Why a job waits that took part in a decision, in numbers: GPUs, watts, a quota, and who goes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wattsched.adapters.tenants import Kept
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
        Watts that are drawn below each cap that its nodes are under, and that cap.
    first : list of str
        Jobs that start there.
    """

    free: list[int] = field(default_factory=list)
    caps: dict[str, tuple[float, float]] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def holds(self, gpus: int) -> int:
        """How many times so many GPUs are free on one node."""
        return sum(free // gpus for free in self.free)


@dataclass(frozen=True)
class Need:
    """What an option asks of a pool: some times as many GPUs of one node, and watts beyond those idle."""

    pool: str
    gpus: int
    times: int
    added_w: float


def why_waiting(needs: Iterable[Need], left: Mapping[str, Left], quota: str = "") -> str:
    """Why none of the options of a job started.

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
    """By how many watts an option is over the first cap that it does not keep, and how that reads."""
    for name, (drawn_w, cap_w) in left.caps.items():
        if (needs_w := drawn_w + need.added_w) > cap_w:
            return needs_w - cap_w, f"needs {_unlike(needs_w, cap_w, name)}"
    return None


def _unlike(power_w: float, most_w: float, name: str) -> str:
    """Two amounts in kilowatts, with as many digits as tell them apart."""
    digits = next((n for n in (1, 2, 3) if f"{power_w / 1e3:.{n}f}" != f"{most_w / 1e3:.{n}f}"), 6)
    return f"{power_w / 1e3:,.{digits}f} kW, the {name} is {most_w / 1e3:,.{digits}f} kW"


def why_over_quota(needs: Iterable[Need], name: str, tenant: Tenant, kept: Iterable[Kept]) -> str:
    """How what a tenant's jobs have leaves too little for another one; empty where it does not.

    Parameters
    ----------
    kept : iterable of Kept
        What jobs have that go on or start, of all tenants.
    """
    own = [one for one in kept if one.tenant == name]
    gpus, power_w = sum(one.gpus for one in own), sum(one.power_w for one in own)
    fewest = min((need.gpus * need.times for need in needs), default=0)
    if tenant.gpus is not None and gpus + fewest > tenant.gpus + (tenant.borrow_gpus or 0):
        more = f" and {tenant.borrow_gpus:,} borrowed" if tenant.borrow_gpus else ""
        return f"needs {fewest:,} GPUs, the quota of '{name}' is {tenant.gpus:,}{more}, and {gpus:,} are used"
    if tenant.power_w is not None and power_w > 0:
        return f"the quota of '{name}' is {tenant.power_w:,.0f} W, and {power_w:,.0f} W are used"
    return f"the quota of '{name}' leaves too little"
