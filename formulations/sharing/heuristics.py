"""Rules that have a decision at once: a decision while it is built, and the published `rules` on it.

For `eaco`, candidates are the units with jobs whose limits leave room, the most utilised first, then idle
units, those first on which the job needs the least energy. The first is taken on which every deadline holds
for all. No rule reads the objective, though one has the same name, `eaco` (`objectives.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.sharing import rules
from wattsched.formulations.sharing.columns import budgets_of
from wattsched.formulations.sharing.data import Patterns
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import LAST_DIGITS
from wattsched.instances.sharing.decision import SharedSet, SharingDecision


@dataclass
class OpenSet:
    """Jobs, by number, that share a unit so far."""

    pattern: int
    jobs: list[int]


class Packing:
    """A decision while a rule builds it: sets `by_pattern`, `free` units by type, and what budgets have left.

    If `thrifty`, a job alone gets the unit on which it needs the least energy, else the fastest one.
    """

    def __init__(self, patterns: Patterns, *, thrifty: bool = False):
        self.patterns = patterns
        self._thrifty = thrifty
        self.instance = instance = patterns.instance
        self.job_class = patterns.class_of_job.tolist()
        self.free = [unit.count for unit in instance.unit_types]
        self.by_pattern: dict[int, list[OpenSet]] = {}
        self._numbers = patterns.numbers
        self._classes = {p: key for key, p in self._numbers.items()}
        self._extended: dict[tuple[int, int], int | None] = {}
        self._budgets = budgets_of(patterns)
        self._left = [budget.capacity for budget in self._budgets]

    def together(self, unit_type: int, jobs: Sequence[int]) -> int | None:
        """Pattern of jobs on a unit type, None where they cannot be."""
        return self._numbers.get((unit_type, tuple(sorted(self.job_class[j] for j in jobs))))

    def extended(self, pattern: int, job: int) -> int | None:
        """Pattern with one more job, None where there is none."""
        key = pattern, (job_class := self.job_class[job])
        if key not in self._extended:
            unit_type, classes = self._classes[pattern]
            self._extended[key] = self._numbers.get((unit_type, tuple(sorted((*classes, job_class)))))
        return self._extended[key]

    def slot(self, pattern: int, job: int) -> int:
        """Slot of a job in a pattern."""
        begin, end = int(self.patterns.start[pattern]), int(self.patterns.start[pattern + 1])
        return begin + int(np.searchsorted(self.patterns.job_class[begin:end], self.job_class[job]))

    def epoch_s(self, pattern: int, job: int) -> float:
        """Epoch time of a job in a pattern."""
        return float(self.patterns.epoch_s[self.slot(pattern, job)])

    def normalised_throughput(self, pattern: int, jobs: Sequence[int]) -> float:
        """Sum over the jobs of their speed in a pattern, relative to that alone on the same unit type."""
        unit_type = int(self.patterns.unit_type[pattern])
        total = 0.0
        for job in jobs:
            single = self.together(unit_type, [job])
            alone = np.inf if single is None else self.epoch_s(single, job)
            total += alone / self.epoch_s(pattern, job)
        return total

    def idle(self, job: int) -> Iterator[int]:
        """Patterns of a job alone on unit types of which a unit is free and admits it."""
        for unit_type, free in enumerate(self.free):
            pattern = self.together(unit_type, [job])
            if free and pattern is not None and self.admits(pattern, [job]):
                yield pattern

    def admits(self, pattern: int, jobs: Sequence[int], instead_of: OpenSet | None = None) -> bool:
        """True if exclusive jobs, deadlines and budgets let jobs form it, `instead_of` a smaller set."""
        known = [self.instance.jobs[j] for j in jobs]
        if len(jobs) > 1 and any(job.exclusive for job in known):
            return False
        for j, job in zip(jobs, known, strict=True):
            if job.deadline_s is not None:
                done_s = job.remaining_epochs * self.epoch_s(pattern, j)
                if done_s > job.deadline_s * (1 + LAST_DIGITS):
                    return False
        uses = self._uses(pattern, jobs)
        before = [0.0] * len(uses) if instead_of is None else self._uses(instead_of.pattern, instead_of.jobs)
        return all(u - b <= left for u, b, left in zip(uses, before, self._left, strict=True))

    def start(self, job: int) -> bool:
        """Give a job the best free unit to itself; False if there is none."""
        values = self.patterns.epoch_energy_j if self._thrifty else self.patterns.epoch_s
        idle = min(self.idle(job), key=lambda pattern: values[self.slot(pattern, job)], default=None)
        if idle is not None:
            self.open(idle, [job])
        return idle is not None

    def join_fullest(self, job: int) -> bool:
        """Let a job join the most utilised set that takes it; False if none does."""
        utilisation = self.patterns.utilisation_pct
        for pattern in sorted(self.by_pattern, key=lambda p: (-utilisation[p], p)):
            if (larger := self.extended(pattern, job)) is None:
                continue
            for formed in self.by_pattern[pattern]:
                if self.admits(larger, [*formed.jobs, job], instead_of=formed):
                    self.join(formed, larger, job)
                    return True
        return False

    def join_best_pair(self, job: int) -> bool:
        """Let a job join the single job with which its pair is fastest, if above `PACKING_THRESHOLD`."""
        best, found = rules.PACKING_THRESHOLD, None
        for pattern in sorted(self.by_pattern):
            singles = self.by_pattern[pattern] if self.patterns.size[pattern] == 1 else []
            pair = self.extended(pattern, job)
            if pair is None or not singles:
                continue
            value = self.normalised_throughput(pair, [*singles[0].jobs, job])
            if value > best:
                takers = (s for s in singles if self.admits(pair, [*s.jobs, job], instead_of=s))
                if (taker := next(takers, None)) is not None:
                    best, found = value, (taker, pair)
        if found is not None:
            self.join(*found, job)
        return found is not None

    def open(self, pattern: int, jobs: Sequence[int]) -> None:
        """Put jobs onto a free unit."""
        self.free[self.patterns.unit_type[pattern]] -= 1
        self._take(self._uses(pattern, jobs))
        self.by_pattern.setdefault(pattern, []).append(OpenSet(pattern, list(jobs)))

    def join(self, target: OpenSet, pattern: int, job: int) -> None:
        """Add a job to a set, which becomes this pattern."""
        self._take([-use for use in self._uses(target.pattern, target.jobs)])
        self.by_pattern[target.pattern].remove(target)
        target.pattern, target.jobs = pattern, [*target.jobs, job]
        self._take(self._uses(pattern, target.jobs))
        self.by_pattern.setdefault(pattern, []).append(target)

    def decision(self) -> SharingDecision | None:
        """Decide as packed; None where a job may not wait, or sleeping units alone break a budget."""
        if any(budget.capacity < 0 for budget in self._budgets):
            return None
        names = [job.name for job in self.instance.jobs]
        sets = [s for p in sorted(self.by_pattern) for s in self.by_pattern[p]]
        running = {j for s in sets for j in s.jobs}
        waiting = [j for j in range(len(names)) if j not in running]
        if not all(self.patterns.may_wait[j] for j in waiting):
            return None
        types = [unit.name for unit in self.instance.unit_types]
        formed = [
            SharedSet(unit_type=types[self.patterns.unit_type[s.pattern]], jobs=[names[j] for j in s.jobs])
            for s in sorted(sets, key=lambda s: min(s.jobs))
        ]
        return SharingDecision(sets=formed, waiting=[names[j] for j in waiting])

    def _uses(self, pattern: int, jobs: Sequence[int]) -> list[float]:
        """Use of each budget by a unit with this pattern of jobs."""
        epochs = [(self.slot(pattern, j), self.instance.jobs[j].remaining_epochs) for j in jobs]
        return [
            float(budget.of_pattern[pattern]) + sum(float(budget.per_epoch[s]) * r for s, r in epochs)
            for budget in self._budgets
        ]

    def _take(self, uses: list[float]) -> None:
        self._left = [left - use for left, use in zip(self._left, uses, strict=True)]


def eaco(patterns: Patterns, objective: str, timer: Timer | None = None) -> SharingDecision | None:
    """Decide by EaCO's rule; jobs that may not wait come first, then exclusive ones, then in their order."""
    packing = Packing(patterns, thrifty=True)
    jobs = patterns.instance.jobs
    order = sorted(range(len(jobs)), key=lambda j: (patterns.may_wait[j], not jobs[j].exclusive))
    rules.eaco(order, packing.join_fullest, packing.start)
    return packing.decision()


def fifo(patterns: Patterns, objective: str, timer: Timer | None = None) -> SharingDecision | None:
    """Give each job the fastest free unit to itself; the first that has none stops the queue."""
    packing = Packing(patterns)
    rules.fifo(range(len(patterns.instance.jobs)), packing.start)
    return packing.decision()


def fifo_packed(patterns: Patterns, objective: str, timer: Timer | None = None) -> SharingDecision | None:
    """Place jobs as `fifo`; one without a free unit joins the single job that makes the fastest pair.

    The pair's normalised throughput must be above `rules.PACKING_THRESHOLD`; the first job without a partner
    stops the queue.
    """
    packing = Packing(patterns)
    rules.fifo_packed(range(len(patterns.instance.jobs)), packing.start, packing.join_best_pair)
    return packing.decision()


def gandiva(patterns: Patterns, objective: str, timer: Timer | None = None) -> SharingDecision | None:
    """Pair jobs at random if there are more jobs than units, and place pairs and single jobs in order.

    A pair that would run slower than the two taking turns is not formed. Each set gets the free unit on
    which it is fastest; one without a unit waits, where Gavel's simulator has sets take turns over rounds.
    """
    packing, rule = Packing(patterns), rules.Gandiva()
    jobs = range(len(patterns.instance.jobs))

    def propose(single: list[int]) -> Iterator[tuple[int, int]]:
        rule.draw.shuffle(single)
        # Reversed, so that a seed still gives the pairs that it gave when they were taken from the end.
        return rules.neighbours(single[::-1], lambda *pair: bool(_worthwhile(packing, pair)))

    for group in rule.groups(jobs, len(jobs) > sum(packing.free), propose):
        on_free_unit = (p for p in _worthwhile(packing, group) if packing.free[patterns.unit_type[p]])
        if (pattern := next(on_free_unit, None)) is not None:
            packing.open(pattern, group)
    return packing.decision()


def _worthwhile(packing: Packing, group: Sequence[int]) -> list[int]:
    """Patterns that a group may form and that are not slower than taking turns, the fastest first."""
    known = [p for t in range(len(packing.free)) if (p := packing.together(t, group)) is not None]
    worthwhile = [
        p
        for p in known
        if packing.admits(p, group)
        and (len(group) == 1 or packing.normalised_throughput(p, group) >= rules.LEAST_THROUGHPUT)
    ]
    return sorted(worthwhile, key=lambda p: sum(packing.epoch_s(p, j) for j in group))
