"""Growing jobs by the gain of further GPUs: `sidecar`, `termination`, `optimus` and `elasticflow`.

Every job gets its smallest configuration, in some order, as long as there is room. Then the job with the
largest gain per GPU grows, again and again, until no growth gains or fits.

``sidecar``, ``termination``
    Progress-based elastic rule with restart costs (Wang et al., SC 2020). Remaining time is remaining work
    over speed, plus the restart that a running job pays for another GPU count. Smallest counts go to the
    shortest jobs first; a gain is the seconds saved. The two differ only in what a restart costs: a process
    inside its pod, or a pod that is terminated.
``optimus``
    Marginal gain of completion time per GPU, blind to restarts (Peng et al., EuroSys 2018): one GPU (or the
    least possible) for each job in the order of arrival, then the most seconds saved.
``elasticflow``
    Greedy growth by marginal throughput, for jobs without deadlines (Gu et al., ASPLOS 2023). Every job's
    minimum satisfactory share is its smallest configuration then, given in the order of arrival. A gain is
    the throughput over that at the smallest count; it is blind to restarts and to remaining work.

The published rules know GPUs of one kind. On a cluster with several pools a running job keeps its pool while
there is room in it; any other goes where its smallest configuration is fastest, as far as there is room. It
grows inside its pool. Plain lists are faster here than arrays: there are some tens of jobs with a handful of
configurations each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.policies.requests import FreeGpus
from wattsched.replay.jobs.policies.rounds import fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import IntArray


@dataclass(frozen=True)
class Kind:
    """Configurations of a kind of job by pool, small ones first.

    `place` has the index of each by pool and GPU count, `smallest` those of the smallest of each pool, the
    fastest first; `least_gpu_s` are the GPU seconds of a unit of work in the most efficient one.
    """

    row: list[int]
    pool: list[int]
    block: list[int]
    gpus: list[int]
    rate: list[float]
    extra_w: list[float]
    place: dict[tuple[int, int], int]
    smallest: list[int]
    slowest: float
    least_gpu_s: float

    @classmethod
    def of(cls, trace: Trace, rows: IntArray) -> Kind:
        """Make the kind of rows of the configurations."""
        of = trace.configurations
        rows = rows[np.lexsort((of.block[rows], of.pool[rows]))]
        pool, rate = of.pool[rows], of.rate[rows]
        first = np.unique(pool, return_index=True)[1]
        first = first[np.argsort(-rate[first], kind="stable")]
        gpus = of.gpus[rows]
        row, pools, block, counts, rates, extra_w, smallest = (
            column.tolist() for column in (rows, pool, of.block[rows], gpus, rate, trace.extra_w[rows], first)
        )
        place = {held: k for k, held in enumerate(zip(pools, counts, strict=True))}
        least_gpu_s = float((gpus / rate).min())
        return cls(row, pools, block, counts, rates, extra_w, place, smallest, min(rates), least_gpu_s)


@dataclass
class Snapshot:
    """Jobs present at a moment, as lists.

    `held` has configurations by their index in the kind, -1 for jobs that wait; `rate_asked` the work per
    second in the requested ones; `room` makes the GPUs and watts that there were, were nobody running.
    """

    job: list[int]
    kind: list[Kind]
    work: list[float]
    rate_asked: list[float]
    held: list[int]
    ran: list[bool]
    delay_s: list[float]
    restart_s: float
    room: Callable[[], FreeGpus]

    def __len__(self) -> int:
        return len(self.job)

    def delays_s(self, j: int) -> list[float]:
        """Seconds before a job works, by configuration."""
        delays = [self.restart_s if self.ran[j] else 0.0] * len(self.kind[j].rate)
        if self.held[j] != WAIT:
            delays[self.held[j]] = self.delay_s[j]
        return delays

    def keep(self, who: Sequence[int]) -> None:
        """Drop all other jobs."""
        for name in ("job", "kind", "work", "rate_asked", "held", "ran", "delay_s"):
            values = getattr(self, name)
            setattr(self, name, [values[j] for j in who])

    def decision(self, chosen: Sequence[int]) -> Decision:
        """Decision of chosen configurations."""
        row = [WAIT if k == WAIT else kind.row[k] for kind, k in zip(self.kind, chosen, strict=True)]
        return Decision(np.array(row, dtype=np.int64))


class Snapshots:
    """Makes snapshots of states, with the standard rows that are faster than those of fewer GPUs."""

    def __init__(self, trace: Trace) -> None:
        rows, of = fastest(trace, trace.standard), trace.configurations
        spans = np.split(rows, np.searchsorted(rows, of.start[1:-1]))
        self._kinds = [Kind.of(trace, span) for span in spans]

    def of(self, state: State) -> Snapshot:
        """Make the snapshot of a state."""
        of = state.configurations
        mine = [self._kinds[kind] for kind in state.kind.tolist()]
        held = [
            WAIT if row == WAIT else kind.place.get((int(of.pool[row]), int(of.gpus[row])), WAIT)
            for kind, row in zip(mine, state.row.tolist(), strict=True)
        ]
        return Snapshot(
            job=state.jobs.tolist(),
            kind=mine,
            work=state.remaining.tolist(),
            rate_asked=state.trace.requested_rate[state.jobs].tolist(),
            held=held,
            ran=state.ran.tolist(),
            delay_s=state.restarting_s.tolist(),
            restart_s=state.restart_s,
            room=partial(FreeGpus.all, state),
        )


Rule = Callable[[Snapshot], list[int]]
"""Configuration of each job by its place in the kind, -1 where it waits."""


class Growth:
    """A rule of growth as a policy, whose restarts are of processes inside their pods, or of pods."""

    def __init__(self, context: PolicyContext, rule: Rule, *, pods: bool = False) -> None:
        self.restart_s = context.restarts.pod_s if pods else context.restarts.process_s
        self._snapshots, self._rule = Snapshots(context.trace), rule

    def decide(self, state: State) -> Decision:
        """Share the GPUs out."""
        now = self._snapshots.of(state)
        return now.decision(self._rule(now))


def seconds_saved(now: Snapshot) -> list[int]:
    """SideCar's rule."""
    value = [
        [-(work / rate + delay_s) for rate, delay_s in zip(kind.rate, now.delays_s(j), strict=True)]
        for j, (kind, work) in enumerate(zip(now.kind, now.work, strict=True))
    ]
    alone_s = [work / rate for work, rate in zip(now.work, now.rate_asked, strict=True)]
    return grow(now, sorted(range(len(now)), key=alone_s.__getitem__), value)


def run_time_saved(now: Snapshot) -> list[int]:
    """Optimus' rule."""
    value = [[-work / rate for rate in kind.rate] for kind, work in zip(now.kind, now.work, strict=True)]
    return grow(now, range(len(now)), value)


def throughput_gained(now: Snapshot) -> list[int]:
    """ElasticFlow's rule."""
    return grow(now, range(len(now)), [[rate / kind.slowest for rate in kind.rate] for kind in now.kind])


sidecar = partial(Growth, rule=seconds_saved)
termination = partial(Growth, rule=seconds_saved, pods=True)
optimus = partial(Growth, rule=run_time_saved)
elasticflow = partial(Growth, rule=throughput_gained)


def grow(now: Snapshot, admitted: Sequence[int], value: Sequence[Sequence[float]]) -> list[int]:
    """Choose configurations by marginal value per GPU; waiting is worth nothing.

    The `admitted` jobs get their smallest configuration first, in this order, as far as there is room.
    """
    room, chosen = now.room(), [WAIT] * len(now)
    for j in admitted:
        kind, held = now.kind[j], now.held[j]
        smallest = kind.smallest
        if len(smallest) > 1 and held != WAIT:
            smallest = sorted(smallest, key=lambda k: kind.pool[k] != kind.pool[held])
        for k in smallest:
            if room.fits(*(taken := (kind.pool[k], kind.block[k], 0, kind.extra_w[k]))):
                room.take(*taken)
                chosen[j] = k
                break

    def growth(j: int, k: int) -> tuple[int, int, int, float]:
        """Return what a job takes by growing: its pool, its block, the block held before, and watts."""
        kind, held = now.kind[j], chosen[j]
        block, watts = (0, 0.0) if held == WAIT else (kind.block[held], kind.extra_w[held])
        return kind.pool[k], kind.block[k], block, kind.extra_w[k] - watts

    def best(j: int) -> tuple[float, int, int] | None:
        kind, held, worth = now.kind[j], chosen[j], value[j]
        gpus, base = (0, 0.0) if held == WAIT else (kind.gpus[held], worth[held])
        most, at = 0.0, WAIT
        for k in range(held + 1, len(worth)):
            if held != WAIT and kind.pool[k] != kind.pool[held]:
                break
            gain = (worth[k] - base) / (kind.gpus[k] - gpus)
            if gain > most and room.fits(*growth(j, k)):
                most, at = gain, k
        return None if at == WAIT else (-most, j, at)

    heap = [entry for j in range(len(now)) if (entry := best(j)) is not None]
    heapq.heapify(heap)
    while heap:
        _, j, larger = heapq.heappop(heap)
        grown = growth(j, larger)
        if room.fits(*grown):
            room.take(*grown)
            chosen[j] = larger
        if (entry := best(j)) is not None:
            heapq.heappush(heap, entry)
    return chosen
