"""Energy and carbon of a replay: the watts of the whole cluster, integrated from event to event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wattsched.instances.traces.carbon import CarbonTrace
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool


@dataclass(frozen=True)
class Carbon:
    """Carbon intensity that stays the same from each time to the next; the last one stays for good.

    Attributes
    ----------
    time_s, g_per_kwh : float arrays, shape (n,)
        Times ascend; before the first one its intensity counts.

    Raises
    ------
    ValueError
        When times do not ascend, or an intensity is negative or no number.
    """

    time_s: FloatArray
    g_per_kwh: FloatArray

    def __post_init__(self) -> None:
        if len(self.time_s) == 0 or len(self.time_s) != len(self.g_per_kwh):
            raise ValueError("carbon intensity: give one value for each time, and at least one")
        if np.any(np.diff(self.time_s) <= 0):
            raise ValueError("carbon intensity: the times must ascend")
        if not np.all((self.g_per_kwh >= 0) & np.isfinite(self.g_per_kwh)):
            raise ValueError("carbon intensity: g_per_kwh must be at least 0")

    @classmethod
    def constant(cls, g_per_kwh: float) -> Carbon:
        """Intensity that never changes."""
        return cls(np.zeros(1), np.array([float(g_per_kwh)]))

    @classmethod
    def of(cls, trace: CarbonTrace, at_s: float) -> Carbon:
        """Intensities of a file that begins at `at_s`; where it has no value, the one before stays."""
        known = np.isfinite(trace.g_per_kwh)
        return cls(trace.begin_s[known] - trace.begin_s[0] + at_s, trace.g_per_kwh[known])

    def per_watt(self, until_s: FloatArray | float) -> FloatArray:
        """Grams for each watt drawn from time 0 until then."""
        at = np.maximum(np.searchsorted(self.time_s, until_s, side="right") - 1, 0)
        grams = self._before[at] + (np.asarray(until_s) - self.time_s[at]) * self.g_per_kwh[at]
        return np.asarray(grams / J_PER_KWH)

    def at(self, time_s: float) -> float:
        """Grams per kWh from then on."""
        return float(self.g_per_kwh[max(int(np.searchsorted(self.time_s, time_s, side="right")) - 1, 0)])

    @cached_property
    def _before(self) -> FloatArray:
        """Integral of the intensity from time 0 to each time."""
        steps = np.diff(self.time_s) * self.g_per_kwh[:-1]
        return np.cumsum([self.time_s[0] * self.g_per_kwh[0], *steps])


@dataclass(frozen=True)
class Sleep:
    """Nodes without a job fall asleep.

    Attributes
    ----------
    after_s : float
        Seconds without a job.
    power_w : float
        Draw of a sleeping node with its GPUs.
    wake_s : float
        Seconds that a job waits for a sleeping node.

    Raises
    ------
    ValueError
        For negative values.
    """

    after_s: float
    power_w: float = 0.0
    wake_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("after_s", "power_w", "wake_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"sleep: {name} must be at least 0, got {getattr(self, name):g}")


class Nodes:
    """Which nodes of all pools have jobs, and which are asleep.

    Raises
    ------
    ValueError
        When a node would draw more asleep than idle: budgets set aside what the cluster draws when idle.
    """

    def __init__(self, cluster: Cluster, pools: Sequence[Pool], sleep: Sleep | None, time_s: float) -> None:
        base = {node.name: node.base_power_w for node in cluster.nodes}
        # Without sleep, nodes do so after an endless time.
        self._after_s = sleep.after_s if sleep is not None else np.inf
        self._asleep_w, self._wake_s = (sleep.power_w, sleep.wake_s) if sleep is not None else (0.0, 0.0)
        self._first = np.cumsum([0, *(len(pool.nodes) for pool in pools)])
        self._node = [pool.node_index + first for pool, first in zip(pools, self._first, strict=False)]
        self.base_w = np.array([base[name] for pool in pools for name in pool.nodes], dtype=float)
        gpus = [np.bincount(p.node_index[p.available], minlength=len(p.nodes)) for p in pools]
        idle_w = [cluster.gpu_types[pool.gpu_type].idle_power_w for pool in pools]
        self._idle_w = np.concatenate([n * watts for n, watts in zip(gpus, idle_w, strict=True)])
        standing_w = self.base_w + self._idle_w
        for node in np.flatnonzero(self._asleep_w > standing_w * (1 + 1e-9))[:1]:
            name = [name for pool in pools for name in pool.nodes][node]
            raise ValueError(
                f"sleep: must be at most {standing_w[node]:g}, which node '{name}' draws when idle, "
                f"got {self._asleep_w:g}"
            )
        n = len(self.base_w)
        self._jobs = np.zeros(n, dtype=np.int64)
        self._empty_since = np.full(n, time_s)
        self.asleep: BoolArray = np.zeros(n, dtype=bool)

    def of(self, pool: int, start: int, gpus: int) -> IntArray:
        """Nodes of a run of GPUs on the line of a pool."""
        return np.unique(self._node[pool][start : start + gpus])

    def enter(self, nodes: IntArray) -> float:
        """Start a job there; returns the seconds that it waits for them to wake."""
        self._jobs[nodes] += 1
        wakes = bool(self.asleep[nodes].any())
        self.asleep[nodes] = False
        return self._wake_s if wakes else 0.0

    def leave(self, nodes: IntArray, time_s: float) -> None:
        """End a job there."""
        self._jobs[nodes] -= 1
        self._empty_since[nodes] = time_s

    def next_s(self) -> float:
        """Time at which the next node falls asleep."""
        waking = (self._jobs == 0) & ~self.asleep
        return float(np.min(self._empty_since[waking], initial=np.inf)) + self._after_s

    def doze(self, time_s: float) -> None:
        """Let nodes fall asleep whose time has come."""
        self.asleep |= (self._jobs == 0) & (self._empty_since + self._after_s <= time_s)

    def standing_w(self) -> tuple[float, float]:
        """Draw of the nodes without GPUs (asleep: with them), and idle draw that the sleepers' GPUs spare."""
        awake = float(self.base_w[~self.asleep].sum())
        sleeping = self._asleep_w * int(self.asleep.sum())
        return awake + sleeping, float(self._idle_w[self.asleep].sum())


@dataclass
class Meter:
    """Integrates the cluster's watts over time.

    Attributes
    ----------
    jobs_j, idle_j, base_j : float
        Joules of the GPUs that jobs hold, of the others, and of the nodes without GPUs.
    carbon_g : float
        Grams of all of them.
    busy_gpu_s : float
        GPU seconds that jobs held.
    """

    carbon: Carbon
    time_s: float = 0.0
    jobs_j: float = 0.0
    idle_j: float = 0.0
    base_j: float = 0.0
    carbon_g: float = 0.0
    busy_gpu_s: float = 0.0

    def advance(self, until_s: float, jobs_w: float, idle_w: float, base_w: float, busy_gpus: int) -> None:
        """Count watts that stay the same until then."""
        seconds = until_s - self.time_s
        self.jobs_j += jobs_w * seconds
        self.idle_j += idle_w * seconds
        self.base_j += base_w * seconds
        grams = float(self.carbon.per_watt(until_s) - self.carbon.per_watt(self.time_s))
        self.carbon_g += (jobs_w + idle_w + base_w) * grams
        self.busy_gpu_s += busy_gpus * seconds
        self.time_s = until_s

    @property
    def energy_j(self) -> float:
        """Joules of everything."""
        return self.jobs_j + self.idle_j + self.base_j
