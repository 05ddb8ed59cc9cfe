"""Every option of every job as arrays, in either arithmetic, with what it is worth and what it pays for.

An option is a job with a configuration, alone or in a set, or a job that waits. Nothing here depends on
prices. The checker lets an option be late by its tolerance: such options count for what is proven, and not
for what can have been claimed.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job
from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.verification.arithmetic import Arithmetic, Number, Numbers
from wattsched.verification.report import TOLERANCE
from wattsched.verification.sizing.configurations import Configuration, Configurations, JobConfigurations
from wattsched.verification.sizing.outcomes import Choices, costs_of, terms_of
from wattsched.verification.sizing.pools import block_of

SURELY_IN_TIME = 1 - Fraction(1, 10**12)
"""Up to this part of its deadline an option is in time by any arithmetic."""

SMALLEST, LARGEST = 1e-40, 1e40
"""Between these no product of the numbers of an instance and its prices leaves the range of doubles."""

Use = tuple[str, ...] | tuple[str, str, int]
"""What an option can pay for: a block, ``("room", POOL, SIZE)``; a watt above idle, ``("watt", POOL)``; a
joule, ``("joule",)``; ``("share", SET, POOL, JOB)``."""


class Worth(NamedTuple):
    """Options of some jobs.

    Attributes
    ----------
    possible, certain : bool arrays
        In time by the checker's tolerance, and by any arithmetic.
    cost, cost_size : arrays
        What they are worth as a cost, and the size of that number (`arithmetic`).
    room, link : int arrays
        Numbers of the uses that they pay for once, in `Options.uses`; 0 for none.
    watt : int array
        Number of the use that `watts`, of that size, are of.
    watts, watts_size, joules, joules_size : arrays
    """

    possible: BoolArray
    certain: BoolArray
    cost: Numbers
    cost_size: Numbers
    room: IntArray
    link: IntArray
    watt: IntArray
    watts: Numbers
    watts_size: Numbers
    joules: Numbers
    joules_size: Numbers

    def take(self, which: BoolArray) -> Worth:
        """Some of the options."""
        values: list[Any] = [value[which] for value in self]
        return Worth(*values)


class Listed(NamedTuple):
    """Options of some jobs, job by job.

    Attributes
    ----------
    jobs, start : int arrays, shape (n_jobs,)
        Where each job's options to run begin.
    running : Worth
        Of all options to run.
    waiting : Worth
        Of each job's option to wait.
    """

    jobs: IntArray
    start: IntArray
    running: Worth
    waiting: Worth

    @property
    def counts(self) -> IntArray:
        """How many options to run each job has."""
        return np.diff(self.start, append=len(self.running.cost))


class Options:
    """Every job with every configuration that it may run as.

    Jobs that may run as the same have one *offer*; a job with configurations in sets has one of its own.

    Parameters
    ----------
    instance : Instance
    configurations : JobConfigurations
    arithmetic : Arithmetic

    Attributes
    ----------
    uses : dict of Use to int
        Everything that options pay for, numbered; 0 is no use.
    dearest : Fraction, optional
        Not below what any choice of options costs, once that was found.
    start : int array, shape (n_offers + 1,)
        Where each offer's configurations begin among the rows.
    unit_s, power_w, idle_w : arrays, shape (n_rows,)
        Seconds per unit of work; watts, and those of the GPUs if idle.
    room, link, watt : int arrays, shape (n_rows,)
        Numbers of uses: the block, being in a set, watts above idle.
    place : int array, shape (n_rows,)
        A number for pool, GPU count and batch size together.
    alone : bool array, shape (n_rows,)
        Others are a job's in sets.
    offer, held : int arrays, shape (n_jobs,)
        What is held is a number of `place`, or -1.
    terms, work, latest_s, surely_s, restart_s, reference_s : arrays, shape (n_jobs,)
        Until `latest_s` a job may be complete, until `surely_s` by any arithmetic; `reference_s` are seconds
        per unit of work at best with the fewest GPUs.
    runs, kept, can_wait : bool arrays, shape (n_jobs,)
    """

    def __init__(self, instance: Instance, configurations: JobConfigurations, arithmetic: Arithmetic):
        self.instance, self.configurations, self.arithmetic = instance, configurations, arithmetic
        self.uses: dict[Use, int] = {("joule",): 1}
        self.dearest: Fraction | None = None
        self.round_s = arithmetic.number(instance.round_s)
        offers: dict[Hashable, tuple[Configurations, list[Configuration], str]] = {}
        keys: list[Hashable] = []
        for job in instance.jobs:
            alone, in_sets = configurations.of(job), configurations.in_sets(job.name)
            keys.append(job.name if in_sets else id(alone))
            offers.setdefault(keys[-1], (alone, in_sets, job.name))
        numbered = {key: number for number, key in enumerate(offers)}
        self.offer = np.array([numbered[key] for key in keys], dtype=np.int64)
        listed = [(row, job) for alone, in_sets, job in offers.values() for row in (*alone.listed, *in_sets)]
        self.start = np.cumsum([0, *(len(alone) + len(in_sets) for alone, in_sets, _ in offers.values())])
        places = self._read_rows(listed)
        self._read_jobs([alone for alone, _, _ in offers.values()], places)

    def __len__(self) -> int:
        """Options to run of all jobs."""
        return int(np.diff(self.start)[self.offer].sum())

    def _number(self, use: Use) -> int:
        return self.uses.setdefault(use, len(self.uses) + 1)

    def _read_rows(self, listed: list[tuple[Configuration, str]]) -> dict[tuple[object, ...], int]:
        """Set the arrays of rows; `listed` are configurations, and jobs where they are in sets."""
        a, pools, rows = self.arithmetic, self.configurations.pools, [row for row, _ in listed]
        types = self.instance.cluster.gpu_types
        idle_of = {name: types[pool.gpu_type].idle_power_w for name, pool in pools.items()}
        self.unit_s = a.array(
            1 / a.number(row.rate) if row.completion_s is None else row.completion_s for row in rows
        )
        members = np.array([row.members for row in rows])
        self.power_w = a.array(row.power_w for row in rows) / members
        gpus = np.array([row.setting[1] for row in rows])
        self.idle_w = a.array(idle_of[row.setting[0]] for row in rows) * gpus / members
        number = self._number
        self.watt = np.array([number(("watt", row.setting[0])) for row in rows], dtype=np.int64)
        self.room = np.array(
            [number(("room", r.setting[0], block_of(r.setting[1]))) if r.leads else 0 for r in rows],
            dtype=np.int64,
        )
        self.link = np.array(
            [0 if r.set is None else number(("share", r.set, r.setting[0], job)) for r, job in listed],
            dtype=np.int64,
        )
        self.alone = np.array([row.set is None for row in rows], dtype=bool)
        places: dict[tuple[object, ...], int] = {}
        settings = ((row.setting[1], row.setting[4], row.setting[0]) for row in rows)
        self.place = np.array([places.setdefault(setting, len(places)) for setting in settings])
        return places

    def _read_jobs(self, alone: list[Configurations], places: dict[tuple[object, ...], int]) -> None:
        """Set the arrays of jobs; `alone` is what those of each offer may run as outside of sets."""
        a, jobs = self.arithmetic, self.instance.jobs
        best, reference = [], []
        for first, one in zip(self.start[:-1], alone, strict=True):
            unit_s = self.unit_s[first : first + len(one)]
            gpus = np.array([setting[1] for setting in one.settings])
            best.append(unit_s.min())
            reference.append(unit_s[gpus == gpus.min()].min())
        self.work = a.array(job.remaining_work for job in jobs)
        self.runs = np.array([job.current is not None for job in jobs])
        self.restart_s = np.where(self.runs, a.array(job.restart_s for job in jobs), 0)
        held = ((h.gpus, h.batch_size, h.pool) if (h := job.current) else None for job in jobs)
        self.held = np.array([-1 if one is None else places.get(one, -1) for one in held])
        self.kept = np.array([not job.preemptible for job in jobs])
        self.can_wait = np.array([job.can_wait and job.preemptible for job in jobs])
        late, surely = 1 + a.number(TOLERANCE), a.number(SURELY_IN_TIME)
        self.latest_s, self.surely_s = _deadlines_s(jobs, late, a), _deadlines_s(jobs, surely, a)
        self.reference_s = a.array(reference)[self.offer]
        best_s = self.work * a.array(best)[self.offer] + self.restart_s
        self.terms = terms_of(self.instance, [alone[one].reference_rate for one in self.offer], best_s, a)

    @cached_property
    def in_range(self) -> bool:
        """Whether all numbers of the instance are far from the ends of the range of doubles."""
        instance, of = self.instance, self.configurations
        numbers = [instance.round_s, instance.carbon_g_per_kwh or 0.0]
        numbers += [t.idle_power_w for t in instance.cluster.gpu_types.values()]
        alone = {id(one): one.listed for one in map(of.of, instance.jobs)}
        listed = [*alone.values(), *(of.in_sets(job.name) for job in instance.jobs)]
        numbers += [value for rows in listed for row in rows for value in (row.rate, row.power_w)]
        numbers += [v for job in instance.jobs for v in (job.remaining_work, job.weight, job.restart_s)]
        sizes = np.array(numbers)
        return bool(np.all((sizes == 0) | ((sizes >= SMALLEST) & (sizes <= LARGEST))))

    def chunks(self, size: int) -> Iterator[IntArray]:
        """Jobs that follow each other and have about so many options together."""
        ends = np.cumsum(np.diff(self.start)[self.offer])
        first = 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + size, side="right")))
            yield np.arange(first, last)
            first = last

    def parts(self, size: int) -> Iterator[Listed]:
        """Options of all jobs, about so many together; kept where that is one part."""
        if len(self) <= size:
            yield self._all
        else:
            yield from map(self.of, self.chunks(size))

    @cached_property
    def _all(self) -> Listed:
        return self.of(np.arange(len(self.offer)))

    def of(self, jobs: IntArray) -> Listed:
        """Options of some jobs."""
        first = self.start[self.offer[jobs]]
        counts = self.start[self.offer[jobs] + 1] - first
        start = np.cumsum(counts) - counts
        job = np.repeat(jobs, counts)
        row = np.arange(len(job)) + np.repeat(first - start, counts)
        return Listed(jobs, start, self._running(job, row), self._waiting(jobs, job, row, start))

    def _running(self, job: IntArray, row: IntArray) -> Worth:
        restarts = self.runs[job] & (self.place[row] != self.held[job])
        lost_s = np.where(restarts, self.restart_s[job], 0)
        unit_s, power_w, idle_w = self.unit_s[row], self.power_w[row], self.idle_w[row]
        seconds = self.work[job] * unit_s + lost_s
        above_w, size_w = power_w - idle_w, self.arithmetic.magnitude(power_w + idle_w)
        if self.instance.budgets.scope == "round":
            busy_s = np.minimum(seconds, self.round_s)
            joules, joules_size = above_w * busy_s, size_w * busy_s
        else:
            joules = power_w * seconds
            joules_size = self.arithmetic.magnitude(joules)
        chosen = Choices(self.terms, job, True, seconds, lost_s, lambda: self.reference_s[job] / unit_s)
        return Worth(
            *self._chosen(chosen, ~(restarts & self.kept[job])),
            # A job that keeps its GPUs needs no room: they were never free.
            np.where(self.kept[job], 0, self.room[row]),
            self.link[row],
            self.watt[row],
            above_w,
            size_w,
            joules,
            joules_size,
        )

    def _waiting(self, jobs: IntArray, job: IntArray, row: IntArray, start: IntArray) -> Worth:
        """Options of waiting, which pay for the least energy that a job needs later."""
        none, no_use = 0 * self.work[jobs], np.zeros(len(jobs), dtype=np.int64)
        joules = none
        if self.instance.budgets.scope == "completion":
            seconds = self.work[job] * self.unit_s[row] + self.restart_s[job]
            energy_j = np.where(self.alone[row], self.power_w[row] * seconds, np.inf)
            joules = np.minimum.reduceat(energy_j, start) if len(jobs) else none
        seconds = self.round_s + self.terms.best_s[jobs]
        chosen = Choices(self.terms, jobs, False, seconds, none, lambda: none)
        worth = self._chosen(chosen, self.can_wait[jobs])
        size = self.arithmetic.magnitude(joules)
        return Worth(*worth, no_use, no_use, no_use, none, none, joules, size)

    def _chosen(self, chosen: Choices, allowed: BoolArray) -> tuple[BoolArray, BoolArray, Numbers, Numbers]:
        possible = allowed & (chosen.seconds <= self.latest_s[chosen.job])
        certain = allowed & (chosen.seconds <= self.surely_s[chosen.job])
        return possible, certain, *costs_of(self.instance, chosen, self.arithmetic)


def _deadlines_s(jobs: Sequence[Job], factor: Number, arithmetic: Arithmetic) -> Numbers:
    """Parts of the deadlines of jobs; the largest number for those that have none."""
    return arithmetic.array(
        sys.float_info.max if job.deadline_s is None else factor * arithmetic.number(job.deadline_s)
        for job in jobs
    )
