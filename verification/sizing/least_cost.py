"""What every job costs at least at given prices, over all options at once, in either arithmetic.

An option is a job with a configuration, alone or in a set, or a job that waits. The checker lets an option be
late by its tolerance: such options count for what is proven, and not for what can have been claimed.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance, Job
from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.verification.arithmetic import Arithmetic, Enclosure, Number, Numbers
from wattsched.verification.report import TOLERANCE
from wattsched.verification.sizing.configurations import Configuration, Configurations, JobConfigurations
from wattsched.verification.sizing.outcomes import Choices, costs_of, terms_of
from wattsched.verification.sizing.pools import block_of
from wattsched.verification.sizing.splits import Allowed
from wattsched.verification.sizing.surrogate import Reach

SURELY_IN_TIME = 1 - Fraction(1, 10**12)
"""Up to this part of its deadline an option is in time by any arithmetic."""

CHUNK = 1 << 18
"""Options that are looked at together: their arrays stay in the processor's cache."""

SMALLEST, LARGEST = 1e-40, 1e40
"""Between these no product of the numbers of an instance and its prices leaves the range of doubles."""


Use = tuple[str, ...] | tuple[str, str, int]
"""What an option can pay for: a block, ``("room", POOL, SIZE)``; a watt above idle, ``("watt", POOL)``; a
joule, ``("joule",)``; ``("share", SET, POOL, JOB)``."""

RowPrices = Mapping[Use, Fraction]
"""What options pay at given prices, in units of the cost that is minimised; only shares can be negative."""


class NoOptionError(ValueError):
    """The splits of a certificate tree leave a job nothing that it could do."""


class LeastCosts(NamedTuple):
    r"""The jobs' cheapest options at some prices.

    Attributes
    ----------
    total : Enclosure
        :math:`\sum_j \min_o (c_{jo} + \text{charge}_{jo})`.
    size : Fraction
        Sum of the magnitudes of the costs and charges that `total` is the sum of: whoever computes it in
        doubles is off by some rounding of these, even where they cancel. 0 in doubles, whose enclosure has
        that width.
    """

    total: Enclosure
    size: Fraction


def least_costs(
    instance: Instance,
    configurations: JobConfigurations,
    prices: RowPrices,
    arithmetic: Arithmetic,
    allowed: Allowed | None = None,
    chunk: int = CHUNK,
) -> LeastCosts:
    """Sum over the jobs of their cheapest options at these prices.

    Every number of an instance is a rational number, and so is every use and cost that follows from it, but
    for logarithms (of the proportional objective) and roots (of `work-value`).

    Parameters
    ----------
    allowed : Allowed, optional
        What splits leave to the jobs.

    Raises
    ------
    NoOptionError
        If splits leave a job no option in time.
    ValueError
        If a job has none without them.
    """
    if not instance.jobs:
        return LeastCosts(Enclosure(Fraction(0), Fraction(0)), Fraction(0))
    options = _Options(instance, configurations, prices, arithmetic, allowed)
    parts = [options.least(jobs) for jobs in options.chunks(chunk)]
    low, high, late, *sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
    _require_options(instance, low, options.allowed)
    total = Enclosure(arithmetic.sum_below(low), -arithmetic.sum_below(-_finite(high, late)))
    return LeastCosts(total, -arithmetic.sum_below(-sizes[0]) if sizes else Fraction(0))


def reach_of(
    instance: Instance,
    configurations: JobConfigurations,
    prices: RowPrices,
    arithmetic: Arithmetic,
    allowed: Allowed | None = None,
    chunk: int = CHUNK,
) -> Reach:
    """Values and charges of all options at these prices; parameters and errors as for `least_costs`.

    There must be jobs.
    """
    options = _Options(instance, configurations, prices, arithmetic, allowed)
    reach = Reach.joined(options.reach(jobs) for jobs in options.chunks(chunk))
    _require_options(instance, np.minimum.reduceat(reach.low, reach.start), options.allowed)
    return reach


def _require_options(instance: Instance, least: Numbers, allowed: Mapping[int, BoolArray]) -> None:
    lost = np.flatnonzero(least == np.inf)
    if any(int(job) in allowed for job in lost):
        raise NoOptionError
    if len(lost):
        name = instance.jobs[lost[0]].name
        raise ValueError(f"job '{name}' has no option that is complete by its deadline")


def _finite(high: Numbers, late: Numbers) -> Numbers:
    """Upper ends; those with late options where a job has none that is surely in time."""
    return np.where(high == np.inf, late, high)


def in_range(instance: Instance, configurations: JobConfigurations, prices: RowPrices) -> bool:
    """Whether all numbers are so far from the ends of the range of doubles that no product leaves it."""
    if any(price and not SMALLEST <= abs(price) <= LARGEST for price in prices.values()):
        return False
    numbers = [instance.round_s, instance.carbon_g_per_kwh or 0.0]
    numbers += [t.idle_power_w for t in instance.cluster.gpu_types.values()]
    alone = {id(one): one.listed for one in map(configurations.of, instance.jobs)}
    listed = [*alone.values(), *(configurations.in_sets(job.name) for job in instance.jobs)]
    numbers += [value for rows in listed for row in rows for value in (row.rate, row.power_w)]
    numbers += [v for job in instance.jobs for v in (job.remaining_work, job.weight, job.restart_s)]
    sizes = np.array(numbers)
    return bool(np.all((sizes == 0) | ((sizes >= SMALLEST) & (sizes <= LARGEST))))


class _Priced(NamedTuple):
    """Options with their costs, what they pay, how much of that links them with others, and all sizes.

    `possible` ones are in time by the checker's tolerance, `certain` ones by any arithmetic.
    """

    possible: BoolArray
    certain: BoolArray
    cost: Numbers
    cost_size: Numbers
    charge: Numbers
    size: Numbers
    link: Numbers


class _Options:
    """Every job with every configuration that it may run as, and what they pay.

    Jobs that may run as the same have one *offer*; a job with configurations in sets has one of its own.

    Attributes
    ----------
    start : int array, shape (n_offers + 1,)
        Where each offer's configurations begin among the rows.
    unit_s, power_w, idle_w : arrays, shape (n_rows,)
        Seconds per unit of work; watts, and those of the GPUs if idle.
    room, link, watts, watts_size : arrays, shape (n_rows,)
        What a row pays for its block, for being in a set, and for watts above idle and the set, of that size.
    place : int array, shape (n_rows,)
        A number for pool, GPU count and batch size together.
    alone : bool array, shape (n_rows,)
        Others are a job's in sets.
    offer, held : int arrays, shape (n_jobs,)
        What is held is a number of `place`, or -1.
    terms, work, latest_s, surely_s, restart_s, reference_s : arrays, shape (n_jobs,)
        Until `latest_s` a job may be complete, until `surely_s` by any arithmetic; `reference_s` are seconds
        per unit of work at best with the fewest GPUs.
    running, kept, can_wait : bool arrays, shape (n_jobs,)
    """

    def __init__(
        self,
        instance: Instance,
        configurations: JobConfigurations,
        prices: RowPrices,
        arithmetic: Arithmetic,
        allowed: Allowed | None,
    ):
        self.instance, self.arithmetic = instance, arithmetic
        self.allowed = {} if allowed is None else allowed.of_job
        self.joule = arithmetic.number(prices.get(("joule",), 0))
        self.round_s = arithmetic.number(instance.round_s)
        offers: dict[Hashable, tuple[Configurations, list[Configuration], str]] = {}
        keys: list[Hashable] = []
        for job in instance.jobs:
            alone, in_sets = configurations.of(job), configurations.in_sets(job.name)
            keys.append(job.name if in_sets else id(alone))
            offers.setdefault(keys[-1], (alone, in_sets, job.name))
        numbered = {key: number for number, key in enumerate(offers)}
        self.offer = np.array([numbered[key] for key in keys])
        listed = [(row, job) for alone, in_sets, job in offers.values() for row in (*alone.listed, *in_sets)]
        self.start = np.cumsum(
            [0, *(len(alone.listed) + len(in_sets) for alone, in_sets, _ in offers.values())]
        )
        places = self._read_rows(configurations, prices, listed)
        self._read_jobs([alone for alone, _, _ in offers.values()], places)

    def _read_rows(
        self, configurations: JobConfigurations, prices: RowPrices, listed: list[tuple[Configuration, str]]
    ) -> dict[tuple[object, ...], int]:
        """Set the arrays of rows; `listed` are configurations, and jobs where they are in sets."""
        a, pools, rows = self.arithmetic, configurations.pools, [row for row, _ in listed]
        types = self.instance.cluster.gpu_types
        idle_of = {name: types[pool.gpu_type].idle_power_w for name, pool in pools.items()}
        watt_of = {name: a.number(prices.get(("watt", name), 0)) for name in pools}
        room_of = {use[1:]: a.number(price) for use, price in prices.items() if use[0] == "room"}
        self.unit_s = a.array(
            1 / a.number(row.rate) if row.completion_s is None else row.completion_s for row in rows
        )
        members = np.array([row.members for row in rows])
        self.power_w = a.array(row.power_w for row in rows) / members
        gpus = np.array([row.setting[1] for row in rows])
        self.idle_w = a.array(idle_of[row.setting[0]] for row in rows) * gpus / members
        blocks = ((row.setting[0], block_of(row.setting[1]) if row.leads else 0) for row in rows)
        self.room = a.array(room_of.get(block, 0) for block in blocks)
        self.link = a.array(
            0 if row.set is None else prices.get(("share", row.set, row.setting[0], job), 0)
            for row, job in listed
        )
        watt = a.array(watt_of[row.setting[0]] for row in rows)
        self.watts = watt * (self.power_w - self.idle_w) + self.link
        self.watts_size = a.magnitude(watt * (self.power_w + self.idle_w)) + a.magnitude(self.link)
        self.alone = np.array([row.set is None for row in rows])
        places: dict[tuple[object, ...], int] = {}
        settings = ((row.setting[1], row.setting[4], row.setting[0]) for row in rows)
        self.place = np.array([places.setdefault(setting, len(places)) for setting in settings])
        return places

    def _read_jobs(self, alone: list[Configurations], places: dict[tuple[object, ...], int]) -> None:
        """Set the arrays of jobs; `alone` is what those of each offer may run as outside of sets."""
        a, jobs = self.arithmetic, self.instance.jobs
        best, reference = [], []
        for first, one in zip(self.start[:-1], alone, strict=True):
            unit_s = self.unit_s[first : first + len(one.listed)]
            gpus = np.array([row.setting[1] for row in one.listed])
            best.append(unit_s.min())
            reference.append(unit_s[gpus == gpus.min()].min())
        self.work = a.array(job.remaining_work for job in jobs)
        self.running = np.array([job.current is not None for job in jobs])
        self.restart_s = np.where(self.running, a.array(job.restart_s for job in jobs), 0)
        held = ((h.gpus, h.batch_size, h.pool) if (h := job.current) else None for job in jobs)
        self.held = np.array([-1 if one is None else places.get(one, -1) for one in held])
        self.kept = np.array([not job.preemptible for job in jobs])
        self.can_wait = np.array([job.can_wait and job.preemptible for job in jobs])
        late, surely = 1 + a.number(TOLERANCE), a.number(SURELY_IN_TIME)
        self.latest_s, self.surely_s = _deadlines_s(jobs, late, a), _deadlines_s(jobs, surely, a)
        self.reference_s = a.array(reference)[self.offer]
        best_s = self.work * a.array(best)[self.offer] + self.restart_s
        self.terms = terms_of(self.instance, [alone[one].reference_rate for one in self.offer], best_s, a)

    def chunks(self, size: int) -> Iterator[IntArray]:
        """Jobs that follow each other and have about so many options together."""
        ends = np.cumsum(np.diff(self.start)[self.offer])
        first = 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + size, side="right")))
            yield np.arange(first, last)
            first = last

    def least(self, jobs: IntArray) -> list[Numbers]:
        """Of each job the least of what `_ends` finds, but of the last in rationals that of the cheapest."""
        start, counts, *priced = self._priced(jobs)
        ran, waited = map(self._ends, priced)
        if self.arithmetic.exact:
            cheapest = np.minimum(np.minimum.reduceat(ran[0], start), waited[0])
            ran[-1] = np.where(ran[0] == np.repeat(cheapest, counts), ran[-1], np.inf)
            waited[-1] = np.where(waited[0] == cheapest, waited[-1], np.inf)
        return [np.minimum(np.minimum.reduceat(r, start), w) for r, w in zip(ran, waited, strict=True)]

    def reach(self, jobs: IntArray) -> Reach:
        """Values and charges of all options, of each job that of waiting last."""
        start, counts, *priced = self._priced(jobs)
        ran, waited = (
            [
                *self._around(p.cost, p.cost_size, p.possible, p.certain)[:2],
                p.charge if self.arithmetic.exact else p.charge - self.arithmetic.epsilon * p.size,
            ]
            for p in priced
        )
        joined = (np.insert(r, start + counts, w) for r, w in zip(ran, waited, strict=True))
        return Reach(start + np.arange(len(jobs)), *joined)

    def _priced(self, jobs: IntArray) -> tuple[IntArray, IntArray, _Priced, _Priced]:
        """Where the jobs' options to run begin, and how many there are; these, and the options of waiting."""
        first = self.start[self.offer[jobs]]
        counts = self.start[self.offer[jobs] + 1] - first
        start = np.cumsum(counts) - counts
        job = np.repeat(jobs, counts)
        row = np.arange(len(job)) + np.repeat(first - start, counts)
        may_run, may_wait = self._left(jobs, start, len(job))
        running, waiting = self._running(job, row, may_run), self._waiting(jobs, job, row, start, may_wait)
        return start, counts, running, waiting

    def _left(self, jobs: IntArray, start: IntArray, rows: int) -> tuple[BoolArray, BoolArray]:
        """Which options to run, and of waiting, splits leave to some jobs."""
        may_run, may_wait = np.ones(rows, dtype=bool), np.ones(len(jobs), dtype=bool)
        for j in self.allowed.keys() & set(jobs.tolist()):
            place, (*runs, waits) = j - int(jobs[0]), self.allowed[j]
            may_run[start[place] : start[place] + len(runs)] = runs
            may_wait[place] = waits
        return may_run, may_wait

    def _running(self, job: IntArray, row: IntArray, left: BoolArray) -> _Priced:
        restarts = self.running[job] & (self.place[row] != self.held[job])
        lost_s = np.where(restarts, self.restart_s[job], 0)
        unit_s, power_w = self.unit_s[row], self.power_w[row]
        seconds = self.work[job] * unit_s + lost_s
        # A job that keeps its GPUs needs no room: they were never free.
        room = np.where(self.kept[job], 0, self.room[row])
        charge, size = room + self.watts[row], room + self.watts_size[row]
        if self.joule and self.instance.budgets.scope == "round":
            idle_w, busy_s = self.idle_w[row], np.minimum(seconds, self.round_s)
            charge += self.joule * (power_w - idle_w) * busy_s
            size += self.joule * (power_w + idle_w) * busy_s
        elif self.joule:
            energy = self.joule * power_w * seconds
            charge += energy
            size += energy
        chosen = Choices(self.terms, job, True, seconds, lost_s, lambda: self.reference_s[job] / unit_s)
        return self._chosen(chosen, left & ~(restarts & self.kept[job]), charge, size, self.link[row])

    def _waiting(
        self, jobs: IntArray, job: IntArray, row: IntArray, start: IntArray, left: BoolArray
    ) -> _Priced:
        """Options of waiting, which pay for the least energy that a job needs later."""
        none = 0 * self.work[jobs]
        charge = none
        if self.joule and self.instance.budgets.scope == "completion":
            seconds = self.work[job] * self.unit_s[row] + self.restart_s[job]
            energy_j = np.where(self.alone[row], self.power_w[row] * seconds, np.inf)
            charge = self.joule * np.minimum.reduceat(energy_j, start)
        seconds = self.round_s + self.terms.best_s[jobs]
        chosen = Choices(self.terms, jobs, False, seconds, none, lambda: none)
        return self._chosen(chosen, left & self.can_wait[jobs], charge, charge, none)

    def _chosen(
        self, chosen: Choices, allowed: BoolArray, charge: Numbers, size: Numbers, link: Numbers
    ) -> _Priced:
        possible = allowed & (chosen.seconds <= self.latest_s[chosen.job])
        certain = allowed & (chosen.seconds <= self.surely_s[chosen.job])
        cost = costs_of(self.instance, chosen, self.arithmetic)
        return _Priced(possible, certain, *cost, charge, size, link)

    def _ends(self, options: _Priced) -> list[Numbers]:
        """Ends of what options cost with their charges; and in rationals the size of that."""
        possible, certain, cost, cost_size, charge, size, link = options
        if self.arithmetic.exact:
            sizes = abs(cost) + abs(charge - link) + abs(link)
            return [*self._around(cost + charge, cost_size, possible, certain), sizes]
        return [*self._around(cost + charge, cost_size + size, possible, certain)]

    def _around(self, near: Numbers, size: Numbers, possible: BoolArray, certain: BoolArray) -> list[Numbers]:
        """Below and above numbers of known size, above also with late options; infinite for no options."""
        low = high = near
        if not self.arithmetic.exact or size.any():
            error = self.arithmetic.epsilon * size
            low, high = near - error, near + error
        above = np.where(certain, high, np.inf)
        late = above if np.array_equal(possible, certain) else np.where(possible, high, np.inf)
        return [np.where(possible, low, np.inf), above, late]


def _deadlines_s(jobs: list[Job], factor: Number, arithmetic: Arithmetic) -> Numbers:
    """Parts of the deadlines of jobs; the largest number for those that have none."""
    return arithmetic.array(
        sys.float_info.max if job.deadline_s is None else factor * arithmetic.number(job.deadline_s)
        for job in jobs
    )
