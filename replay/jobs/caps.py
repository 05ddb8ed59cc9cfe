"""Caps on the draw of a replay's cluster, of the whole site and of its power domains.

A cap holds for what its nodes would draw if all were awake, all restarts had ended and no job ended. They
draw no more between two decisions, so a cap that holds at every decision holds at every moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wattsched.replay.jobs.accounts import Nodes, Steps
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

ROUNDING = 1e-9
"""Part of a cap by which sums of watts may exceed it."""


class CapError(ValueError):
    """A cap that the idle cluster exceeds, or within which a job could not even run alone."""


@dataclass(frozen=True)
class Caps:
    """Power caps of a cluster; none by default.

    Attributes
    ----------
    names : tuple of str
        ``power_w`` for the whole site, which comes first, ``power_w:DOMAIN`` for a power domain.
    limits : tuple of Steps
        Watts over time, of each cap.
    beside_w, standing_w : float arrays, shape (n_caps,)
        What is drawn besides the nodes, and that with what these draw when all GPUs are idle.
    inside : bool array, shape (n_pools, n_caps)
        Pools whose nodes draw under each cap.
    """

    names: tuple[str, ...] = ()
    limits: tuple[Steps, ...] = ()
    beside_w: FloatArray = field(default_factory=lambda: np.zeros(0))
    standing_w: FloatArray = field(default_factory=lambda: np.zeros(0))
    inside: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))

    @classmethod
    def of(cls, trace: Trace, power_w: float | None = None) -> Caps:
        """Caps of a cluster's power domains, and `power_w` on it; a `CapError` if it draws more when idle."""
        pools, domains = trace.pools, trace.cluster.power_domains
        idle_w = Nodes(trace.cluster, pools, None, 0.0).idle_w_of_pools
        caps = [(d.name, d.power_cap_w, d.reserved_w, [d.name in p.domains for p in pools]) for d in domains]
        found = [(f"power_w:{name}", *cap) for name, *cap in caps]
        if power_w is not None:
            found.insert(0, ("power_w", power_w, 0.0, [True] * len(pools)))
        names, watts, reserved_w, inside = zip(*found, strict=True) if found else ((), (), (), ())
        members = np.array(inside, dtype=bool).reshape(len(found), len(pools)).T
        limits = tuple(Steps(np.zeros(1), np.array([cap_w], dtype=float)) for cap_w in watts)
        beside_w = np.array(reserved_w, dtype=float)
        standing_w = beside_w + idle_w @ members
        for name, cap_w, idle in zip(names, watts, standing_w.tolist(), strict=True):
            if cap_w < idle * (1 - ROUNDING):
                raise CapError(f"{name}: must be at least {idle:g}, the watts when idle, got {cap_w:g}")
        return cls(tuple(names), limits, beside_w, standing_w, members)

    @property
    def site_w(self) -> float | None:
        """Watts of the cap on the whole site, None without one."""
        return float(self.limits[0].values[0]) if "power_w" in self.names else None

    def room_w(self, time_s: float) -> FloatArray:
        """Watts beyond the idle draw that all jobs together may draw at a time, under each cap."""
        limit_w = np.array([float(limit.at(time_s)) for limit in self.limits])
        return limit_w * (1 + ROUNDING) - self.standing_w

    def of_pool(self, pool: int) -> list[int]:
        """Numbers of the caps under which the nodes of a pool draw."""
        return np.flatnonzero(self.inside[pool]).tolist() if self.names else []

    def use_w(self, pool: IntArray, extra_w: FloatArray) -> FloatArray:
        """Watts under each cap of each job that draws so much beyond idle in a pool, shape (n, n_caps)."""
        return extra_w[:, None] * self.inside[pool] if self.names else np.zeros((len(pool), 0))

    def fit(self, trace: Trace, time_s: float) -> BoolArray:
        """Mask of the configurations of a trace in which a job alone keeps every cap at a time."""
        room_w, pool = self.room_w(time_s), trace.configurations.pool
        fits = np.ones(len(pool), dtype=bool)
        for most_w, inside in zip(room_w.tolist(), self.inside.T, strict=True):
            fits &= ~inside[pool] | (trace.extra_w <= most_w)
        return fits

    def require_room(self, trace: Trace, policy: str, among: BoolArray | None) -> None:
        """Refuse a policy under which some job could not even run alone: a `CapError` names the first.

        `among` is the mask of the configurations that it chooses from; None where jobs run as was asked for.
        """
        if not self.names:
            return
        fits, rows = self.fit(trace, float(trace.arrival_s[0])), trace.configurations
        if among is None:
            able = np.append(fits, False)[trace.request].any(axis=1)
        else:
            able = np.logical_or.reduceat(fits & among, rows.start[:-1])[rows.of_job]
        for job in np.flatnonzero(~able)[:1].tolist():
            kind = rows.of_job[job]
            every = np.arange(*rows.start[kind : kind + 2])
            mine = trace.request[job] if among is None else every[among[every]]
            least_w = trace.extra_w[mine[mine >= 0]].min()
            asked = "in the configuration that its user asked for" if among is None else "at least"
            left_w = self.room_w(float(trace.arrival_s[0]))[0]
            told = f"job '{trace.names[job]}' alone draws {least_w:,.0f} W above idle GPUs {asked}"
            told = f"{told}, and the cap leaves {left_w:,.0f} W"
            raise CapError(f"{self.names[0]}: is too low for policy '{policy}': {told}")
