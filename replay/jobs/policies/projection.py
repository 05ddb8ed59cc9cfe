"""Jobs of a view, simulated to their ends under a quick rule.

Nobody arrives, and GPUs are counted, not placed, so nobody has to move. All else is as in a replay: work,
restarts, and a decision at every completion. Plain lists are faster here than arrays: there are some tens of
jobs with a handful of configurations each.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattsched.replay.jobs.menus import WAITS, Menus, Selection
from wattsched.replay.jobs.policy import View
from wattsched.topology.arrays import IntArray
from wattsched.topology.buddy import free_by_level

_DONE = 1e-9


@dataclass(frozen=True)
class Kind:
    """Configurations of a kind of job by pool, small ones first.

    `smallest` has the smallest of each pool, the fastest first.
    """

    row: list[int]
    pool: list[int]
    block: list[int]
    gpus: list[int]
    rate: list[float]
    smallest: list[int]
    slowest: float

    @classmethod
    def of(cls, menus: Menus, rows: IntArray) -> Kind:
        """Take rows over."""
        rows = rows[np.lexsort((menus.block[rows], menus.pool[rows]))]
        pool, rate = menus.pool[rows], menus.rate[rows]
        first = np.unique(pool, return_index=True)[1]
        first = first[np.argsort(-rate[first], kind="stable")]
        columns = (rows, pool, menus.block[rows], menus.gpus[rows], rate, first, rate.min())
        return cls(*(column.tolist() for column in columns))

    def index(self, pool: int, gpus: int) -> int:
        """Configuration with so many GPUs of a pool, -1 if there is none."""
        found = (k for k, held in enumerate(zip(self.pool, self.gpus, strict=True)) if held == (pool, gpus))
        return next(found, WAITS)


@dataclass
class Crowd:
    """Jobs present at a moment; of each its number, kind, and what a view knows of it.

    Attributes
    ----------
    held : list of int
        Configuration by its place in the kind, -1 for a job that waits.
    rate_asked : list of float
        Work per second in the configuration that the user asked for.
    room : list of lists of int
        Free GPUs of each pool by level, were nobody running (`topology.buddy`).
    """

    job: list[int]
    kind: list[Kind]
    work: list[float]
    rate_asked: list[float]
    held: list[int]
    ran: list[bool]
    delay_s: list[float]
    restart_s: float
    room: list[list[int]]

    def __len__(self) -> int:
        return len(self.job)

    def delays_s(self, j: int) -> list[float]:
        """Seconds before a job works, by configuration."""
        delays = [self.restart_s if self.ran[j] else 0.0] * len(self.kind[j].rate)
        if self.held[j] != WAITS:
            delays[self.held[j]] = self.delay_s[j]
        return delays

    def keep(self, who: Sequence[int]) -> None:
        """Let all others go."""
        self.job, self.kind = [self.job[j] for j in who], [self.kind[j] for j in who]
        self.work, self.rate_asked = [self.work[j] for j in who], [self.rate_asked[j] for j in who]
        self.held, self.ran = [self.held[j] for j in who], [self.ran[j] for j in who]
        self.delay_s = [self.delay_s[j] for j in who]


Rule = Callable[[Crowd], list[int]]
"""Configuration of each job, -1 where it waits."""


def crowd_of(view: View, selection: Selection, kinds: dict[int, Kind]) -> Crowd:
    """Take the jobs of a view over; `kinds` keeps what is known of their kinds."""
    menus = view.menus
    for kind in np.unique(view.kind).tolist():
        if kind not in kinds:
            span = slice(selection.start[kind], selection.start[kind + 1])
            kinds[kind] = Kind.of(menus, selection.rows[span])
    mine = [kinds[kind] for kind in view.kind.tolist()]
    held = [
        WAITS if row == WAITS else kind.index(int(menus.pool[row]), int(menus.gpus[row]))
        for kind, row in zip(mine, view.row.tolist(), strict=True)
    ]
    return Crowd(
        job=view.jobs.tolist(),
        kind=mine,
        work=view.remaining.tolist(),
        rate_asked=view.trace.requested_rate[view.jobs].tolist(),
        held=held,
        ran=view.ran.tolist(),
        delay_s=view.restarting_s.tolist(),
        restart_s=view.restart_s,
        room=[free_by_level(pool.blocks, pool.available).tolist() for pool in view.trace.pools],
    )


@dataclass(frozen=True)
class Projection:
    """What comes of a rule: its first decision, and the seconds until each job ends."""

    first: list[int]
    end_s: dict[int, float]

    @property
    def total_s(self) -> float:
        """Sum of the jobs' seconds."""
        return sum(self.end_s.values())

    @property
    def last(self) -> int:
        """The job that ends last."""
        return max(self.end_s, key=self.end_s.__getitem__)

    @property
    def makespan_s(self) -> float:
        """Seconds until all have ended; endless if some never do."""
        return max(self.end_s.values())


def project(crowd: Crowd, rule: Rule) -> Projection:
    """Simulate the jobs to their ends."""
    now = replace(crowd)
    now.keep(range(len(crowd)))
    first: list[int] = []
    end_s: dict[int, float] = {}
    time_s = 0.0
    while len(now):
        chosen = rule(now)
        first = first or chosen
        step_s = _settle(now, chosen)
        time_s += step_s
        if step_s == math.inf:
            end_s.update(dict.fromkeys(now.job, math.inf))
            break
        left = []
        for j, k in enumerate(chosen):
            if k != WAITS:
                rate, delay_s = now.kind[j].rate[k], now.delay_s[j]
                now.work[j] -= rate * max(step_s - delay_s, 0.0)
                now.delay_s[j] = max(delay_s - step_s, 0.0)
                if now.work[j] <= _DONE * rate:
                    end_s[now.job[j]] = time_s
                    continue
            left.append(j)
        now.keep(left)
    return Projection(first, end_s)


def _settle(now: Crowd, chosen: list[int]) -> float:
    """Give the jobs their configurations; seconds until the first of them ends."""
    step_s = math.inf
    for j, k in enumerate(chosen):
        if k == WAITS:
            now.delay_s[j] = 0.0
            continue
        if k != now.held[j]:
            now.delay_s[j] = now.restart_s if now.ran[j] else 0.0
            now.ran[j] = True
        step_s = min(step_s, now.delay_s[j] + now.work[j] / now.kind[j].rate[k])
    now.held = chosen
    return step_s


def grow(crowd: Crowd, admitted: Sequence[int], value: Sequence[Sequence[float]]) -> list[int]:
    """Choose configurations by marginal value per GPU, as `gains.grow` does.

    Parameters
    ----------
    admitted : sequence of int
        Jobs that get their smallest configuration first, in this order, as far as there is room.
    value : sequence of float sequences
        Of each job's configurations; waiting is worth nothing.
    """
    room = [list(free) for free in crowd.room]
    chosen = [WAITS] * len(crowd)
    for j in admitted:
        kind, held = crowd.kind[j], crowd.held[j]
        smallest = kind.smallest
        if len(smallest) > 1 and held != WAITS:
            smallest = sorted(smallest, key=lambda k: kind.pool[k] != kind.pool[held])
        for k in smallest:
            if _fits(room[kind.pool[k]], kind.block[k], 0):
                _take(room[kind.pool[k]], kind.block[k], 0)
                chosen[j] = k
                break

    def best(j: int) -> tuple[float, int, int] | None:
        kind, held, worth = crowd.kind[j], chosen[j], value[j]
        block, gpus, base = (0, 0, 0.0) if held == WAITS else (kind.block[held], kind.gpus[held], worth[held])
        most, at = 0.0, WAITS
        for k in range(held + 1, len(worth)):
            if held != WAITS and kind.pool[k] != kind.pool[held]:
                break
            gain = (worth[k] - base) / (kind.gpus[k] - gpus)
            if gain > most and _fits(room[kind.pool[k]], kind.block[k], block):
                most, at = gain, k
        return None if at == WAITS else (-most, j, at)

    heap = [entry for j in range(len(crowd)) if (entry := best(j)) is not None]
    heapq.heapify(heap)
    while heap:
        _, j, larger = heapq.heappop(heap)
        kind, held = crowd.kind[j], chosen[j]
        free, less = room[kind.pool[larger]], 0 if held == WAITS else kind.block[held]
        if _fits(free, kind.block[larger], less):
            _take(free, kind.block[larger], less)
            chosen[j] = larger
        if (entry := best(j)) is not None:
            heapq.heappush(heap, entry)
    return chosen


def _fits(free: list[int], more: int, less: int) -> bool:
    """Whether a block may grow from `less` GPUs to `more`; it counts at every level up to its own."""
    if more >> len(free):
        return False
    for level in range(more.bit_length()):
        if free[level] < more - (less if 1 << level <= less else 0):
            return False
    return True


def _take(free: list[int], more: int, less: int) -> None:
    for level in range(more.bit_length()):
        free[level] -= more - (less if 1 << level <= less else 0)
