"""Energy and carbon of a replay: the watts of the whole cluster, integrated from event to event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Self

import numpy as np

from wattsched.instances.traces.carbon import CarbonTrace, shown
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.reading.inputs import listed
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, offsets
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool


class Steps:
    """A quantity that stays the same from each time to the next; the last value stays for good.

    Parameters
    ----------
    time_s, values : float arrays, shape (n,)
        Times ascend; before the first one its value counts.
    """

    def __init__(self, time_s: FloatArray, values: FloatArray) -> None:
        self.time_s, self.values = time_s, values
        self._before = np.append(0.0, np.cumsum(values[:-1] * np.diff(time_s)))

    def at(self, time_s: FloatArray | float) -> FloatArray:
        """Value from each time on."""
        return np.asarray(self.values[self._last(time_s)])

    def integral(self, until_s: FloatArray | float) -> FloatArray:
        """Integral from the first time until each time."""
        last = self._last(until_s)
        return np.asarray(self._before[last] + (until_s - self.time_s[last]) * self.values[last])

    def _last(self, time_s: FloatArray | float) -> IntArray:
        return np.maximum(np.searchsorted(self.time_s, time_s, side="right") - 1, 0)


class PerKwh(Steps):
    """Amount that each kWh counts for over time: joules, grams, or money, which may be below 0."""

    what, least, range = "price", -np.inf, "every value must be a finite number"

    def __init__(self, time_s: FloatArray, per_kwh: FloatArray, currency: str = "") -> None:
        if len(time_s) == 0 or len(time_s) != len(per_kwh):
            raise ValueError(f"{self.what}: give one value for each time, and at least one")
        if np.any(np.diff(time_s) <= 0):
            raise ValueError(f"{self.what}: the times must ascend")
        if not np.all((per_kwh >= self.least) & np.isfinite(per_kwh)):
            raise ValueError(f"{self.what}: {self.range}")
        super().__init__(time_s, per_kwh)
        self.currency = currency
        self.source, self.clock_s, self.gaps_s = "", 0.0, np.empty((0, 2))

    @classmethod
    def constant(cls, per_kwh: float) -> Self:
        """Amount that never changes."""
        return cls(np.zeros(1), np.array([float(per_kwh)]))

    @classmethod
    def of(cls, trace: CarbonTrace, at_s: float, start: datetime | None = None) -> Self:
        """Amounts of a file of which `start` (default: its begin) is at `at_s`, where it must have a value.

        Where it has no value later, the one before stays.
        """
        begin_s, end_s = float(trace.begin_s[0]), float(trace.begin_s[-1] + trace.step_s[-1])
        start_s = begin_s if start is None else start.timestamp()
        if not begin_s <= start_s < end_s:
            reach = f"it reaches from {shown(begin_s)} to {shown(end_s)}"
            raise ValueError(f"{trace.source}: no value at {shown(start_s)}; {reach}")
        known = np.isfinite(trace.per_kwh)
        found = cls(trace.begin_s[known] - start_s + at_s, trace.per_kwh[known], trace.currency)
        step_s, next_s = trace.step_s[known], np.append(trace.begin_s[known][1:], np.inf)
        ends_s = trace.begin_s[known] + step_s
        gaps_s = np.column_stack([ends_s, next_s])[next_s - ends_s > step_s / 2]
        found.source, found.clock_s, found.gaps_s = trace.source, start_s - at_s, gaps_s
        return found

    def stale(self, begin_s: float, end_s: float) -> Iterator[str]:
        """Say for which times in between the file has no value, so that the one before stays."""
        spans_s = np.clip(self.gaps_s, begin_s + self.clock_s, end_s + self.clock_s)
        spans_s = spans_s[spans_s[:, 1] > spans_s[:, 0]]
        if len(spans_s):
            hours = float(np.diff(spans_s).sum()) / S_PER_H
            told = listed((f"{shown(since_s)} to {shown(until_s)}" for since_s, until_s in spans_s), "", 3)
            yield f"{self.source}: the last value stands for {hours:,.4g} h without one, {told}"

    def per_watt(self, begin_s: FloatArray | float, end_s: FloatArray | float) -> FloatArray:
        """Amount for each watt drawn in between."""
        return np.asarray((self.integral(end_s) - self.integral(begin_s)) / J_PER_KWH)


class Carbon(PerKwh):
    """Carbon intensity over time, in grams per kWh, none below 0."""

    what, least, range = "carbon intensity", 0.0, "g_per_kwh must be at least 0"


def require_finite(what: str, values: Mapping[str, float]) -> None:
    """Refuse values that are negative, infinite or no numbers, with a ValueError that names the first."""
    for name, value in values.items():
        if not 0 <= value < np.inf:
            raise ValueError(f"{what}: {name} must be at least 0, got {value:g}")


@dataclass(frozen=True)
class Sleep:
    """Nodes fall asleep `after_s` without a job, draw `power_w` then, and take `wake_s` to wake for one."""

    after_s: float
    power_w: float = 0.0
    wake_s: float = 0.0

    def __post_init__(self) -> None:
        require_finite("sleep", vars(self))


class Nodes:
    """State of the nodes of all pools: how many jobs each has, and whether it is asleep.

    Attributes
    ----------
    asleep : bool array, shape (n_nodes,)
    idle_cluster_w : float
        Draw of the cluster when all its GPUs are idle and all nodes awake.
    idle_w_of_pools : float array, shape (n_pools,)
        The same of the nodes of each pool.

    Raises
    ------
    ValueError
        When a node would draw more asleep than idle: budgets set aside what the cluster draws when idle.
    """

    def __init__(self, cluster: Cluster, pools: Sequence[Pool], sleep: Sleep | None, time_s: float) -> None:
        # Without `sleep` no node ever falls asleep.
        self._after_s = np.inf if sleep is None else sleep.after_s
        self._asleep_w, self._wake_s = (0.0, 0.0) if sleep is None else (sleep.power_w, sleep.wake_s)
        names = [name for pool in pools for name in pool.nodes]
        first = offsets([len(pool.nodes) for pool in pools])
        self._node = [pool.node_index + begin for pool, begin in zip(pools, first, strict=False)]
        base_w = {node.name: node.base_power_w for node in cluster.nodes}
        self._base_w = np.array([base_w[name] for name in names], dtype=float)
        gpus = [np.bincount(p.node_index[p.available], minlength=len(p.nodes)) for p in pools]
        idle_w = [cluster.gpu_types[pool.gpu_type].idle_power_w for pool in pools]
        self._idle_w = np.concatenate([n * watts for n, watts in zip(gpus, idle_w, strict=True)])
        standing_w = self._base_w + self._idle_w
        self.idle_cluster_w = float(standing_w.sum())
        self._pool = np.repeat(np.arange(len(pools)), np.diff(first))
        self.idle_w_of_pools = self._of_pools(standing_w, len(pools))
        for node in np.flatnonzero(self._asleep_w > standing_w * (1 + 1e-9))[:1]:
            raise ValueError(
                f"sleep: must be at most {standing_w[node]:g}, which node '{names[node]}' draws when idle, "
                f"got {self._asleep_w:g}"
            )
        self._jobs = np.zeros(len(names), dtype=np.int64)
        self._empty_since = np.full(len(names), time_s)
        self.asleep: BoolArray = np.zeros(len(names), dtype=bool)

    def enter(self, pool: int, start: int, gpus: int) -> float:
        """Start a job on consecutive GPUs of a pool; return the seconds that it waits for nodes to wake."""
        nodes = np.unique(self._node[pool][start : start + gpus])
        self._jobs[nodes] += 1
        wakes = bool(self.asleep[nodes].any())
        self.asleep[nodes] = False
        return self._wake_s if wakes else 0.0

    def leave(self, pool: int, start: int, gpus: int, time_s: float) -> None:
        """End a job on consecutive GPUs of a pool."""
        nodes = np.unique(self._node[pool][start : start + gpus])
        self._jobs[nodes] -= 1
        self._empty_since[nodes] = time_s

    def next_s(self) -> float:
        """Time at which the next node falls asleep."""
        empty = (self._jobs == 0) & ~self.asleep
        return float(np.min(self._empty_since[empty], initial=np.inf)) + self._after_s

    def doze(self, time_s: float) -> None:
        """Let nodes fall asleep that have had no job for long enough."""
        self.asleep |= (self._jobs == 0) & (self._empty_since + self._after_s <= time_s)

    def draw(self) -> tuple[float, float]:
        """Return the watts of the servers themselves, and of all GPUs on awake nodes if these were idle.

        A sleeping node draws one figure, its GPUs included, which counts as its server's.
        """
        awake = ~self.asleep
        sleeping_w = self._asleep_w * int(self.asleep.sum())
        return float(self._base_w[awake].sum()) + sleeping_w, float(self._idle_w[awake].sum())

    def draw_of_pools(self) -> FloatArray:
        """Draw of the nodes of each pool, as if all their GPUs were idle."""
        watts = np.where(self.asleep, self._asleep_w, self._base_w + self._idle_w)
        return self._of_pools(watts, len(self.idle_w_of_pools))

    def _of_pools(self, watts: FloatArray, n_pools: int) -> FloatArray:
        return np.bincount(self._pool, watts, n_pools).astype(float)


@dataclass
class StepLog:
    """A recorded quantity that stays the same from each time to the next."""

    time_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, time_s: float, value: float) -> None:
        """Append a value, dropping one that lasted no time and one that is equal to the last."""
        if self.time_s and self.time_s[-1] == time_s:
            self.time_s.pop()
            self.values.pop()
        if not self.values or self.values[-1] != value:
            self.time_s.append(time_s)
            self.values.append(value)

    @property
    def steps(self) -> Steps:
        """The quantity as arrays."""
        return Steps(np.array(self.time_s), np.array(self.values))

    def highest(self, begin_s: float, end_s: float, most: int) -> tuple[FloatArray, FloatArray]:
        """Edges of the steps, and values; of more than `most` steps the highest of equally long times."""
        edges = self._edges(begin_s, end_s, most)
        times = np.unique([*np.clip(self.time_s, begin_s, end_s), *edges])
        return edges, np.maximum.reduceat(self.steps.at(times), np.searchsorted(times, edges[:-1]))

    def means(self, begin_s: float, end_s: float, most: int) -> tuple[FloatArray, FloatArray]:
        """Edges of the steps, and values; of more than `most` steps the means over equally long times."""
        edges = self._edges(begin_s, end_s, most)
        until = self.steps.integral(np.maximum(edges, self.time_s[0]))
        return edges, np.diff(until) / np.diff(edges)

    def _edges(self, begin_s: float, end_s: float, most: int) -> FloatArray:
        edges = np.unique([*np.clip(self.time_s, begin_s, end_s), begin_s, end_s])
        return edges if len(edges) <= most + 1 else np.linspace(begin_s, end_s, most + 1)


class Flows(NamedTuple):
    """Draw and GPU counts of the cluster, which stay the same between two events.

    Attributes
    ----------
    jobs_w, idle_w, base_w : float
        Draw of the GPUs that jobs hold, of the other GPUs, and of the servers themselves (`Nodes.draw`).
    busy, free, fragments : float
        GPUs that jobs hold, that are free, and that are fragments (`pools.fragments`).
    """

    jobs_w: float = 0.0
    idle_w: float = 0.0
    base_w: float = 0.0
    busy: float = 0.0
    free: float = 0.0
    fragments: float = 0.0

    @property
    def power_w(self) -> float:
        """Draw of the whole cluster."""
        return self.jobs_w + self.idle_w + self.base_w


@dataclass
class Meter:
    """Integrals of `Flows` over time, and logs of watts, also under each power cap, and of GPUs in use."""

    carbon: Carbon
    time_s: float = 0.0
    tariff: PerKwh | None = None
    money: float = 0.0
    jobs_j: float = 0.0
    idle_j: float = 0.0
    base_j: float = 0.0
    carbon_g: float = 0.0
    busy_gpu_s: float = 0.0
    free_gpu_s: float = 0.0
    fragment_gpu_s: float = 0.0
    now: Flows = field(default_factory=Flows)
    power: StepLog = field(default_factory=StepLog)
    busy: StepLog = field(default_factory=StepLog)
    capped: list[StepLog] = field(default_factory=list)

    def advance(self, until_s: float) -> None:
        """Integrate the present flows until then."""
        seconds, now = until_s - self.time_s, self.now
        self.jobs_j += now.jobs_w * seconds
        self.idle_j += now.idle_w * seconds
        self.base_j += now.base_w * seconds
        self.carbon_g += now.power_w * float(self.carbon.per_watt(self.time_s, until_s))
        if self.tariff is not None:
            self.money += now.power_w * float(self.tariff.per_watt(self.time_s, until_s))
        self.busy_gpu_s += now.busy * seconds
        self.free_gpu_s += now.free * seconds
        self.fragment_gpu_s += now.fragments * seconds
        self.time_s = until_s

    def measure(self, flows: Flows) -> None:
        """Record the flows from now on."""
        self.now = flows
        self.power.add(self.time_s, flows.power_w)
        self.busy.add(self.time_s, flows.busy)

    def stale(self, begin_s: float) -> list[str]:
        """Say for which times since then files of carbon and prices have no value."""
        files = filter(None, (self.carbon, self.tariff))
        return [told for file in files for told in file.stale(begin_s, self.time_s)]

    @property
    def energy_j(self) -> float:
        """Energy of the whole cluster so far."""
        return self.jobs_j + self.idle_j + self.base_j

    @property
    def fragmentation(self) -> float:
        """Share of the free GPU time so far in which GPUs were fragments."""
        return self.fragment_gpu_s / self.free_gpu_s if self.free_gpu_s else 0.0
