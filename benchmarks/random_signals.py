"""Moments of public traces as shifting problems, and random signals on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np

from benchmarks.emerald import instance as problem_of
from benchmarks.emerald_events import HORIZON_S, events
from benchmarks.replays import Ground, itp, pai, philly
from wattsched.instances.clusters import known_gpu_type
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.signals import Signal
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import LARGEST

GROUNDS = {
    "ITP": tuple(replace(itp(c, day, 64, days=4), gpu_type="H100") for c, day in (("04", 2), ("01", 15))),
    "Philly": (philly("6214e9", 31, 64, days=4), philly("6c71a0", 26, 64, days=4)),
    "PAI": (pai(20, 64), pai(38, 64)),
}
"""The catalogue has power limits of V100, and in the place of ITP's A100 of H100."""
EMERALD = "Emerald"
JOBS, HALLS = (20, 200), ("hall-a", "hall-b")
SLOTS, SLOT_S, RESTART_S = (16, 24, 32, 48), (750.0, 900.0), (120.0, 300.0, 600.0)
CLASSES = (0.5, 0.75, 0.9)
"""Least progress of half of the jobs."""
START = datetime(2026, 7, 14, 12, tzinfo=UTC)

# -- rounds ----------------------------------------------------------------------------------------------


@cache
def trace_of(ground: Ground) -> Trace:
    """Trace of a ground."""
    return ground.trace(seed=0)


def there(trace: Trace, time_s: float) -> FloatArray:
    """Jobs that are there at a time if each begins when it arrives, and seconds that each has left."""
    left_s = trace.arrival_s + trace.work / trace.requested_rate - time_s
    return np.where(trace.arrival_s <= time_s, np.maximum(left_s, 0.0), 0.0)


def moment(rng: np.random.Generator, trace: Trace, jobs: tuple[int, int] = JOBS) -> float:
    """Draw a half hour of a trace at which so many jobs are there."""
    hours_s = np.arange(trace.arrival_s.min(), trace.arrival_s.max(), 1800.0)
    count = np.array([np.count_nonzero(there(trace, time_s)) for time_s in hours_s])
    return float(rng.choice(hours_s[(count >= jobs[0]) & (count <= jobs[1])]))


def of_trace(
    rng: np.random.Generator, name: str, slots: int, jobs: tuple[int, int] = JOBS
) -> ShiftingInstance:
    """Jobs of a moment, which all run, with the power limits of their models on the GPUs that they hold.

    In one of two rounds the GPUs are in two halls, each a power domain, and jobs keep to theirs.
    """
    ground = GROUNDS[name][rng.integers(len(GROUNDS[name]))]
    trace = trace_of(ground)
    left_s = there(trace, moment(rng, trace, jobs))
    rows, halls = np.flatnonzero(left_s), HALLS[: rng.integers(1, 3)]
    hall, gpus = rng.integers(len(halls), size=len(rows)), trace.requested_gpus[rows]
    tables, fields = {}, []
    for job, number, count in zip(rows.tolist(), hall.tolist(), gpus.tolist(), strict=True):
        options = f"{trace.configurations.of_job[job]} x {count} in {halls[number]}"
        tables[options] = table(trace, job, halls[number])
        about = {"name": trace.names[job], "options": options, "restart_s": float(rng.choice(RESTART_S))}
        work = {"remaining_work": float(left_s[job] * trace.requested_rate[job])}
        least = {"least_progress": float(rng.choice(CLASSES)) if rng.random() < 0.5 else 0.0}
        fields.append(about | work | least | {"current": {"gpus": count, "pool": halls[number]}})
    room = {name: 1 + int(rng.uniform(1.0, 1.2) * gpus[hall == n].sum()) for n, name in enumerate(halls)}
    idle_w = known_gpu_type(ground.gpu_type).idle_power_w
    document = {
        "problem": "shifting",
        "name": name,
        "slots": slots,
        "slot_s": float(rng.choice(SLOT_S)),
        "pools": {hall: {"gpus": n, "idle_power_w": idle_w} for hall, n in room.items()},
        "power_domains": {hall: {"pools": [hall], "power_w": LARGEST} for hall in halls if len(halls) > 1},
        "tables": tables,
        "jobs": fields,
    }
    return ShiftingInstance.model_validate(document)


def table(trace: Trace, job: int, hall: str) -> dict[str, list[Any]]:
    """Power limits of a job's model on the GPUs and with the batch that it was asked for."""
    rows, asked = trace.configurations, trace.request[job, 0]
    alike = trace.same_gpus(np.full(len(rows), asked), np.arange(len(rows)))
    alike = np.flatnonzero(alike & (rows.kind == rows.kind[asked]))
    columns = {"power_limit_w": rows.power_limit_w, "power_w": rows.power_w, "rate": rows.rate}
    held = {"gpus": rows.gpus[alike].tolist(), "pool": [hall] * len(alike)}
    return held | {name: column[alike].tolist() for name, column in columns.items()}


def of_emerald(rng: np.random.Generator, slots: int) -> ShiftingInstance:
    """The six jobs of one of the events, over its 400 minutes in so many slots, without its limit."""
    event = events()[rng.integers(3)]
    changed = {"name": EMERALD, "power_w": None, "slots": slots, "slot_s": HORIZON_S / slots}
    return problem_of(event).model_copy(update=changed)


def random_round(rng: np.random.Generator, name: str) -> ShiftingInstance:
    """Draw a round of a source."""
    slots = int(rng.choice(SLOTS))
    return of_emerald(rng, slots) if name == EMERALD else of_trace(rng, name, slots)


# -- signals ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """A limit on the site, or on a domain: its seconds from the begin of the horizon, and its watts.

    `before_w` is where a ramp begins, infinite for a limit that holds at once.
    """

    begin_s: float
    end_s: float
    low_w: float
    before_w: float = np.inf
    ramp_w_per_s: float = 0.0
    domain: str | None = None

    def pools(self, instance: ShiftingInstance) -> list[str]:
        """Pools whose draw it limits."""
        return [self.domain] if self.domain else [*instance.pools]

    def cut_of(self, idle_w: float, busy_w: float) -> float:
        """Part of the draw above idle GPUs that it takes away at its deepest, of pools with such draws."""
        return (busy_w - self.low_w) / (busy_w - idle_w) if busy_w > idle_w else 0.0

    def limit_w(self, time_s: FloatArray) -> FloatArray:
        """Watts that may be drawn at some times; infinite while it does not hold."""
        if not np.isfinite(self.before_w):
            return np.where((self.begin_s <= time_s) & (time_s < self.end_s), self.low_w, np.inf)
        falls = [
            np.maximum(self.low_w, self.before_w - self.ramp_w_per_s * (t - self.begin_s))
            for t in (time_s, self.end_s)
        ]
        rises = falls[1] + self.ramp_w_per_s * (time_s - self.end_s)
        held_w = np.where(time_s < self.end_s, falls[0], rises)
        return np.where((self.begin_s <= time_s) & (held_w < self.before_w), held_w, np.inf)

    def document(self, notice_s: float) -> dict[str, Any]:
        """Return it as a limit of a signal."""
        begin, end = (START + timedelta(seconds=seconds) for seconds in (self.begin_s, self.end_s))
        ramp = {"ramp_w_per_s": self.ramp_w_per_s} if self.ramp_w_per_s else {}
        return {
            "from": begin,
            "to": end,
            "power_w": self.low_w,
            "domain": self.domain,
            "notice_s": notice_s,
        } | ramp


def draw_w(instance: ShiftingInstance, pools: Sequence[str]) -> tuple[float, float]:
    """Watts of the idle GPUs of some pools, and of these pools when all jobs run at their fastest."""
    idle_w = sum(instance.pools[pool].gpus * instance.pools[pool].idle_power_w for pool in pools)
    extra_w = 0.0
    for job in instance.jobs:
        of = instance.table_of(job)
        most = int(np.argmax(of.rate))
        if of.pool[most] in pools:
            extra_w += of.power_w[most] - of.gpus[most] * instance.pools[of.pool[most]].idle_power_w
    return idle_w, idle_w + extra_w


def random_signal(rng: np.random.Generator, instance: ShiftingInstance) -> tuple[Signal, list[Event]]:
    """Draw up to three events; one in eight asks for more than most rounds can give."""
    baseline_w, found = draw_w(instance, [*instance.pools])[1], []
    for _ in range(rng.choice([1, 2, 3], p=[0.5, 0.3, 0.2])):
        domain = str(rng.choice(HALLS)) if instance.power_domains and rng.random() < 0.4 else None
        idle_w, busy_w = draw_w(instance, [domain] if domain else [*instance.pools])
        cut = rng.uniform(0.75, 1.05) if rng.random() < 0.125 else rng.uniform(0.05, 0.7)
        low_w = float(idle_w + (1 - cut) * (busy_w - idle_w))
        minutes = instance.horizon_s / 60
        begin_s = 60.0 * rng.integers(0, int(0.7 * minutes))
        end_s = begin_s + 60.0 * rng.integers(5, int(0.5 * minutes))
        ramp_s = rng.choice([0.0, 300.0, 900.0, 1800.0])
        ramp = (
            {"before_w": baseline_w, "ramp_w_per_s": (baseline_w - low_w) / ramp_s}
            if ramp_s and not domain
            else {}
        )
        found.append(Event(begin_s, end_s, low_w, domain=domain, **ramp))
    limits = [event.document(float(rng.choice([0.0, 30.0, 900.0]))) for event in found]
    return Signal.model_validate({"baseline_w": baseline_w, "limits": limits}), found
