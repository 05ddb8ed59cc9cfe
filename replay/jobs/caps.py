"""Caps on the draw of a replay's cluster, of the whole site and of its power domains.

A cap holds for what its nodes would draw if all were awake, all restarts had ended and no job ended. They
draw no more between two decisions, so a cap that holds at every decision holds at every moment.

A power limit of the GPUs, as an operator sets it for all jobs alike, makes another trace (`limited`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from wattsched.instances.errors import require_known
from wattsched.replay.jobs.accounts import Nodes, Steps
from wattsched.replay.jobs.trace import Trace, requests, standard_rows
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, alike, least_by

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
    told_as : tuple of str
        Names for messages, which begin with ``signal`` where it limits.
    """

    names: tuple[str, ...] = ()
    limits: tuple[Steps, ...] = ()
    beside_w: FloatArray = field(default_factory=lambda: np.zeros(0))
    standing_w: FloatArray = field(default_factory=lambda: np.zeros(0))
    inside: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    told_as: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, trace: Trace, power_w: float | None = None, signal: Mapping[str | None, Steps] | None = None
    ) -> Caps:
        """Caps of a cluster's power domains, and `power_w` on it; a `CapError` if it draws more when idle.

        A `signal` has lower limits over time, by power domain; of the whole site by None.
        """
        pools, domains = trace.pools, trace.cluster.power_domains
        idle_w = Nodes(trace.cluster, pools, None, 0.0).idle_w_of_pools
        signal = signal or {}
        for strange in signal.keys() - {None}:
            require_known("signal: power domain", strange or "", [d.name for d in domains])
        found: list[tuple[str, float, str | None, float, list[bool]]] = [
            (f"power_w:{d.name}", d.power_cap_w, d.name, d.reserved_w, [d.name in p.domains for p in pools])
            for d in domains
        ]
        if power_w is not None or None in signal:
            site_w = math.inf if power_w is None else power_w
            found.insert(0, ("power_w", site_w, None, 0.0, [True] * len(pools)))
        names, watts, whose, reserved_w, inside = zip(*found, strict=True) if found else ((),) * 5
        limits = [_least(*limit) for limit in zip(watts, map(signal.get, whose), strict=True)]
        members = np.array(inside, dtype=bool).reshape(len(found), len(pools)).T
        beside_w = np.array(reserved_w, dtype=float)
        standing_w = beside_w + idle_w @ members
        told_as = tuple("signal: " * (d in signal) + name for name, d in zip(names, whose, strict=True))
        for name, limit, idle in zip(told_as, limits, standing_w.tolist(), strict=True):
            if (cap_w := float(limit.values.min())) < idle * (1 - ROUNDING):
                raise CapError(f"{name}: must be at least {idle:g}, the watts when idle, got {cap_w:g}")
        return cls(tuple(names), tuple(limits), beside_w, standing_w, members, told_as)

    @property
    def site(self) -> Steps | None:
        """Cap on the whole site over time, None without one."""
        return self.limits[0] if "power_w" in self.names else None

    def next_s(self, time_s: float) -> float:
        """Time after `time_s` at which a cap changes first; infinite when none does."""
        changes = [limit.time_s[limit.time_s > time_s][:1] for limit in self.limits]
        return float(np.concatenate([*changes, [math.inf]]).min())

    def room_w(self, time_s: float) -> FloatArray:
        """Watts beyond the idle draw that all jobs together may draw at a time, under each cap."""
        return self._beyond_idle_w([float(limit.at(time_s)) for limit in self.limits])

    def most_room_w(self, time_s: float) -> FloatArray:
        """The most of these watts that there will be at any moment from a time on."""
        later = [limit.values[limit.time_s > time_s].max(initial=0.0) for limit in self.limits]
        now = [float(limit.at(time_s)) for limit in self.limits]
        return self._beyond_idle_w(np.maximum(now, later))

    def _beyond_idle_w(self, limit_w: ArrayLike) -> FloatArray:
        return np.asarray(limit_w, dtype=float) * (1 + ROUNDING) - self.standing_w

    def of_pool(self, pool: int) -> list[int]:
        """Numbers of the caps under which the nodes of a pool draw."""
        return np.flatnonzero(self.inside[pool]).tolist() if self.names else []

    def use_w(self, pool: IntArray, extra_w: FloatArray) -> FloatArray:
        """Watts under each cap of each job that draws so much beyond idle in a pool, shape (n, n_caps)."""
        return extra_w[:, None] * self.inside[pool] if self.names else np.zeros((len(pool), 0))

    def fit(self, trace: Trace, time_s: float) -> BoolArray:
        """Mask of a trace's configurations in which a job alone will keep every cap, at a time or later."""
        room_w, pool = self.most_room_w(time_s), trace.configurations.pool
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
            room_w = self.most_room_w(float(trace.arrival_s[0]))
            lowest = int(room_w.argmin())
            left_w = room_w[lowest]
            told = f"job '{trace.names[job]}' alone draws {least_w:,.0f} W above idle GPUs {asked}"
            told = f"{told}, and the cap leaves {left_w:,.0f} W"
            raise CapError(f"{self.told_as[lowest]}: is too low for policy '{policy}': {told}")


def _least(power_w: float, limit: Steps | None) -> Steps:
    """The lower of a constant limit and one over time, at every time."""
    if limit is None:
        return Steps(np.zeros(1), np.array([power_w], dtype=float))
    return Steps(limit.time_s, np.minimum(limit.values, power_w))


def limited(trace: Trace, limit_w: float) -> Trace:
    """Leave out the rows in which a GPU draws more than a limit.

    The power limit of a row counts where it has one, else the mean draw of its GPUs. Of rows that differ in
    this setting alone the lowest stays in any case: no model describes a lower one. Work stays what it is.
    """
    rows = trace.configurations
    each_w = np.where(np.isnan(rows.power_limit_w), rows.power_w / rows.gpus, rows.power_limit_w)
    _, alone = alike([trace.choice, np.nan_to_num(rows.batch_size)])
    lowest_w = least_by(alone, each_w, int(alone.max(initial=-1)) + 1)[alone]
    keep = each_w <= np.maximum(limit_w, lowest_w) * (1 + 1e-9)
    kept = rows.only(keep)
    standard = standard_rows(kept, trace.usual_batch[trace.choice][keep])
    request = requests(kept, standard, trace.requested_gpus, len(trace.pools))
    return replace(trace, configurations=kept, standard=standard, request=request)


def distinct_limits(traces: Iterable[Trace], limits_w: Sequence[float]) -> list[float]:
    """Limits, the highest first, of which each makes jobs of the traces run otherwise than the one before."""
    traces = list(traces)
    found, last = list[float](), [_requested_w(trace) for trace in traces]
    for limit_w in sorted(limits_w, reverse=True):
        now = [_requested_w(limited(trace, limit_w)) for trace in traces]
        if not all(map(np.array_equal, now, last)):
            found.append(limit_w)
        last = now
    return found


def _requested_w(trace: Trace) -> FloatArray:
    """Watts of what each job asked for in each pool, 0 where there is nothing."""
    return np.append(trace.configurations.power_w, 0.0)[trace.request]
