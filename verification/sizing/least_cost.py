"""What every job costs at least at given prices, over all options at once, in either arithmetic.

An option is a job with a configuration, alone or in a set, or a job that waits. The checker lets an option be
late by its tolerance: such options count for what is proven, and not for what can have been claimed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance, Job
from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.verification.arithmetic import Arithmetic, Enclosure, Number, Numbers
from wattsched.verification.report import TOLERANCE
from wattsched.verification.sizing.configurations import Configuration, Configurations, JobConfigurations
from wattsched.verification.sizing.outcomes import BOTTLENECK, Choices, costs_of, weights_of
from wattsched.verification.sizing.pools import block_of

SURELY_IN_TIME = 1 - Fraction(1, 10**12)
"""Up to this part of its deadline an option is in time by any arithmetic."""

CHUNK = 1 << 18
"""Options that are looked at together: their arrays stay in the processor's cache."""

SMALLEST, LARGEST = 1e-40, 1e40
"""Between these no product of the numbers of an instance and its prices leaves the range of doubles."""


@dataclass
class RowPrices:
    """What options pay at given prices, in units of the cost that is minimised; only `share` can be negative.

    Attributes
    ----------
    room : dict of str to dict of int to Fraction
        By pool and block size: for the whole block.
    watt : dict of str to Fraction
        By pool: for a watt above idle.
    joule : Fraction
        For a joule, its carbon included.
    worst : dict of str to Fraction
        By job: its share in the bottleneck.
    share : dict of (str, str, str) to Fraction
        By set, pool and job: for being in the set.
    """

    room: dict[str, dict[int, Fraction]]
    watt: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    joule: Fraction = Fraction(0)
    worst: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    share: dict[tuple[str, str, str], Fraction] = field(default_factory=lambda: defaultdict(Fraction))


class LeastCosts(NamedTuple):
    r"""The jobs' cheapest options at some prices.

    Attributes
    ----------
    total : Enclosure
        :math:`\sum_j \min_o (m_j c_{jo} + \text{charge}_{jo})`, where :math:`m_j` is 1 for sums and the price
        of the job's row for bottlenecks.
    worst : Enclosure
        :math:`\max_j \min_o c_{jo}` for bottlenecks; else, and without jobs, 0.
    size : Fraction
        Sum of the magnitudes of the costs and charges that `total` is the sum of: whoever computes it in
        doubles is off by some rounding of these, even where they cancel. 0 in doubles, whose enclosure has
        that width.
    """

    total: Enclosure
    worst: Enclosure
    size: Fraction


def least_costs(
    instance: Instance,
    configurations: JobConfigurations,
    prices: RowPrices,
    arithmetic: Arithmetic,
    chunk: int = CHUNK,
) -> LeastCosts:
    """Sum over the jobs of their cheapest options at these prices, and the worst of the jobs' best values.

    Every number of an instance is a rational number, and so is every use and cost that follows from it, but
    for logarithms (of the proportional objective) and roots (of `work-value`).

    Raises
    ------
    ValueError
        If a job has no option in time.
    """
    none = Enclosure(Fraction(0), Fraction(0))
    if not instance.jobs:
        return LeastCosts(none, none, Fraction(0))
    options = _Options(instance, configurations, prices, arithmetic)
    parts = [options.least(span) for span in options.chunks(chunk)]
    low, high, late, *rest = (np.concatenate(part) for part in zip(*parts, strict=True))
    lost = np.flatnonzero(low == np.inf)
    if len(lost):
        name = instance.jobs[lost[0]].name
        raise ValueError(f"job '{name}' has no option that is complete by its deadline")
    total = Enclosure(arithmetic.sum_below(low), -arithmetic.sum_below(-_finite(high, late)))
    size = -arithmetic.sum_below(-rest.pop()) if arithmetic.exact else Fraction(0)
    if not rest:
        return LeastCosts(total, none, size)
    above = _finite(rest[1], rest[2])
    return LeastCosts(total, Enclosure(Fraction(rest[0].max()), Fraction(above.max())), size)


def _finite(high: Numbers, late: Numbers) -> Numbers:
    """Upper ends; those with late options where a job has none that is surely in time."""
    return np.where(high == np.inf, late, high)


def in_range(instance: Instance, configurations: JobConfigurations, prices: RowPrices) -> bool:
    """Whether all numbers are so far from the ends of the range of doubles that no product leaves it."""
    charged = [*prices.watt.values(), prices.joule, *prices.worst.values(), *prices.share.values()]
    charged += [price for sizes in prices.room.values() for price in sizes.values()]
    if any(price and not SMALLEST <= abs(price) <= LARGEST for price in charged):
        return False
    numbers = [instance.round_s, instance.carbon_g_per_kwh or 0.0]
    numbers += [t.idle_power_w for t in instance.cluster.gpu_types.values()]
    alone = {id(one): one.listed for one in map(configurations.of, instance.jobs)}
    listed = [*alone.values(), *(configurations.in_sets(job.name) for job in instance.jobs)]
    numbers += [value for rows in listed for row in rows for value in (row.rate, row.power_w)]
    numbers += [v for job in instance.jobs for v in (job.remaining_work, job.weight, job.restart_s)]
    sizes = np.array(numbers)
    return bool(np.all((sizes == 0) | ((sizes >= SMALLEST) & (sizes <= LARGEST))))


class _Offer(NamedTuple):
    """What jobs may run as: equal jobs alone, or one job with what it may run as in sets."""

    alone: Configurations
    in_sets: list[Configuration]
    job: str


@dataclass(frozen=True)
class _Rows:
    """Configurations of all offers, one offer after the other; arrays of shape (n_rows,) but for `start`.

    `room` is what a row pays for its block, `link` for being in a set, and `watts` for watts above idle and
    for the set, of size `watts_size`. `place` is a number for pool, GPU count and batch size together. Rows
    that are not `alone` are a job's in sets.
    """

    start: IntArray
    unit_s: Numbers
    power_w: Numbers
    idle_w: Numbers
    room: Numbers
    link: Numbers
    watts: Numbers
    watts_size: Numbers
    place: IntArray
    alone: BoolArray


@dataclass(frozen=True)
class _Jobs:
    """What is asked of each job; arrays of shape (n_jobs,). `held` is a number of `_Rows.place`, or -1.

    `share` is its price in a bottleneck; with `latest_s` an option may be late, with `surely_s` it is not.
    """

    offer: IntArray
    work: Numbers
    weight: Numbers
    weight_size: Numbers
    share: Numbers
    latest_s: Numbers
    surely_s: Numbers
    restart_s: Numbers
    running: BoolArray
    held: IntArray
    kept: BoolArray
    can_wait: BoolArray
    best_s: Numbers
    reference_s: Numbers


class _Options:
    """All jobs and configurations of an instance, and what they pay."""

    def __init__(
        self,
        instance: Instance,
        configurations: JobConfigurations,
        prices: RowPrices,
        arithmetic: Arithmetic,
    ):
        self.instance, self.arithmetic = instance, arithmetic
        self.bottleneck = instance.objective in BOTTLENECK
        self.joule = arithmetic.number(prices.joule)
        self.round_s = arithmetic.number(instance.round_s)
        offers: list[_Offer] = []
        numbered: dict[Hashable, int] = {}
        offered = []
        for job in instance.jobs:
            alone, in_sets = configurations.of(job), configurations.in_sets(job.name)
            key = job.name if in_sets else id(alone)
            if numbered.setdefault(key, len(offers)) == len(offers):
                offers.append(_Offer(alone, in_sets, job.name))
            offered.append(numbered[key])
        places: dict[tuple[object, ...], int] = {}
        self.rows = self._rows(configurations, prices, offers, places)
        self.jobs = self._jobs(prices, offers, np.array(offered), places)

    def _rows(
        self,
        configurations: JobConfigurations,
        prices: RowPrices,
        offers: list[_Offer],
        places: dict[tuple[object, ...], int],
    ) -> _Rows:
        a, types = self.arithmetic, self.instance.cluster.gpu_types
        listed = [row for offer in offers for row in (*offer.alone.listed, *offer.in_sets)]
        pools, gpus = [row.setting[0] for row in listed], [row.setting[1] for row in listed]
        idle_of = {name: types[pool.gpu_type].idle_power_w for name, pool in configurations.pools.items()}
        price_of = {name: a.number(prices.watt[name]) for name in configurations.pools}
        # A job that leads no set takes no GPUs itself: its block is 0.
        room_of = {name: {0: a.number(0)} for name in configurations.pools}
        for name, sizes in prices.room.items():
            room_of[name] |= {size: a.number(price) for size, price in sizes.items()}
        members = np.array([row.members for row in listed])
        power = a.array(row.power_w for row in listed) / members
        idle = a.array(idle_of[pool] for pool in pools) * np.array(gpus) / members
        price = a.array(price_of[pool] for pool in pools)
        link = a.array(
            0 if row.set is None else prices.share[row.set, row.setting[0], offer.job]
            for offer in offers
            for row in (*offer.alone.listed, *offer.in_sets)
        )
        settings = ((row.setting[0], row.setting[1], row.setting[4]) for row in listed)
        return _Rows(
            start=np.cumsum([0, *(len(offer.alone.listed) + len(offer.in_sets) for offer in offers)]),
            unit_s=a.array(
                1 / a.number(row.rate) if row.completion_s is None else row.completion_s for row in listed
            ),
            power_w=power,
            idle_w=idle,
            room=a.array(
                room_of[row.setting[0]][block_of(row.setting[1]) if row.leads else 0] for row in listed
            ),
            link=link,
            watts=price * (power - idle) + link,
            watts_size=a.magnitude(price * (power + idle)) + a.magnitude(link),
            place=np.array([places.setdefault(setting, len(places)) for setting in settings]),
            alone=np.array([row.set is None for row in listed]),
        )

    def _jobs(
        self,
        prices: RowPrices,
        offers: list[_Offer],
        offer: IntArray,
        places: dict[tuple[object, ...], int],
    ) -> _Jobs:
        a, jobs = self.arithmetic, self.instance.jobs
        best, reference = zip(
            *(self._extremes(number, one) for number, one in enumerate(offers)), strict=True
        )
        weight, weight_size = weights_of(
            self.instance, [offers[number].alone.reference_rate for number in offer], a
        )
        work = a.array(job.remaining_work for job in jobs)
        running = np.array([job.current is not None for job in jobs])
        restart_s = np.where(running, a.array(job.restart_s for job in jobs), 0)
        late, surely = 1 + a.number(TOLERANCE), a.number(SURELY_IN_TIME)
        held = ((h.pool, h.gpus, h.batch_size) if (h := job.current) else None for job in jobs)
        return _Jobs(
            offer=offer,
            work=work,
            weight=weight,
            weight_size=weight_size,
            share=a.array(prices.worst[job.name] if self.bottleneck else 1 for job in jobs),
            latest_s=_deadlines_s(jobs, late, a),
            surely_s=_deadlines_s(jobs, surely, a),
            restart_s=restart_s,
            running=running,
            held=np.array([-1 if one is None else places.get(one, -1) for one in held]),
            kept=np.array([not job.preemptible for job in jobs]),
            can_wait=np.array([job.can_wait and job.preemptible for job in jobs]),
            best_s=work * a.array(best)[offer] + restart_s,
            reference_s=a.array(reference)[offer],
        )

    def _extremes(self, number: int, offer: _Offer) -> tuple[Number, Number]:
        """Seconds per unit of work at best, and at best with the fewest GPUs."""
        first = self.rows.start[number]
        unit_s = self.rows.unit_s[first : first + len(offer.alone.listed)]
        gpus = np.array([row.setting[1] for row in offer.alone.listed])
        return unit_s.min(), unit_s[gpus == gpus.min()].min()

    def chunks(self, size: int) -> Iterator[slice]:
        """Runs of jobs with about so many options together."""
        ends = np.cumsum(np.diff(self.rows.start)[self.jobs.offer])
        first = 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + size, side="right")))
            yield slice(first, last)
            first = last

    def least(self, span: slice) -> list[Numbers]:
        """Of each job the least of what `_ends` finds, but of the last in rationals that of the cheapest."""
        jobs = _Jobs(**{column.name: getattr(self.jobs, column.name)[span] for column in fields(_Jobs)})
        first = self.rows.start[jobs.offer]
        counts = self.rows.start[jobs.offer + 1] - first
        start = np.cumsum(counts) - counts
        job = np.repeat(np.arange(len(counts)), counts)
        row = np.arange(len(job)) + np.repeat(first - start, counts)
        ran, waited = self._running(jobs, job, row), self._waiting(jobs, job, row, start)
        if self.arithmetic.exact:
            cheapest = np.minimum(np.minimum.reduceat(ran[0], start), waited[0])
            ran[-1] = np.where(ran[0] == cheapest[job], ran[-1], np.inf)
            waited[-1] = np.where(waited[0] == cheapest, waited[-1], np.inf)
        return [np.minimum(np.minimum.reduceat(r, start), w) for r, w in zip(ran, waited, strict=True)]

    def _running(self, jobs: _Jobs, job: IntArray, row: IntArray) -> list[Numbers]:
        rows = self.rows
        restarts = jobs.running[job] & (rows.place[row] != jobs.held[job])
        lost_s = np.where(restarts, jobs.restart_s[job], 0)
        unit_s, power_w = rows.unit_s[row], rows.power_w[row]
        seconds = jobs.work[job] * unit_s + lost_s
        # A job that keeps its GPUs needs no room: they were never free.
        room = np.where(jobs.kept[job], 0, rows.room[row])
        charge, size = room + rows.watts[row], room + rows.watts_size[row]
        if self.joule and self.instance.budgets.scope == "round":
            idle_w, busy_s = rows.idle_w[row], np.minimum(seconds, self.round_s)
            charge += self.joule * (power_w - idle_w) * busy_s
            size += self.joule * (power_w + idle_w) * busy_s
        elif self.joule:
            energy = self.joule * power_w * seconds
            charge += energy
            size += energy
        chosen = Choices(
            job=job,
            weight=jobs.weight,
            weight_size=jobs.weight_size,
            best_s=jobs.best_s,
            runs=True,
            seconds=seconds,
            lost_s=lost_s,
            speed=lambda: jobs.reference_s[job] / unit_s,
        )
        return self._ends(jobs, chosen, ~(restarts & jobs.kept[job]), charge, size, rows.link[row])

    def _waiting(self, jobs: _Jobs, job: IntArray, row: IntArray, start: IntArray) -> list[Numbers]:
        """Options of waiting, which pay for the least energy that a job needs later."""
        rows, none = self.rows, 0 * jobs.work
        charge = none
        if self.joule and self.instance.budgets.scope == "completion":
            seconds = jobs.work[job] * rows.unit_s[row] + jobs.restart_s[job]
            energy_j = np.where(rows.alone[row], rows.power_w[row] * seconds, np.inf)
            charge = self.joule * np.minimum.reduceat(energy_j, start)
        chosen = Choices(
            job=np.arange(len(jobs.work)),
            weight=jobs.weight,
            weight_size=jobs.weight_size,
            best_s=jobs.best_s,
            runs=False,
            seconds=self.round_s + jobs.best_s,
            lost_s=none,
            speed=lambda: none,
        )
        return self._ends(jobs, chosen, jobs.can_wait, charge, charge, none)

    def _ends(
        self, jobs: _Jobs, chosen: Choices, allowed: BoolArray, charge: Numbers, size: Numbers, link: Numbers
    ) -> list[Numbers]:
        """Ends of what options cost, in bottlenecks also without charges; and in rationals its size."""
        possible = allowed & (chosen.seconds <= jobs.latest_s[chosen.job])
        certain = allowed & (chosen.seconds <= jobs.surely_s[chosen.job])
        cost, cost_size = costs_of(self.instance, chosen, self.arithmetic)
        free = []
        if self.bottleneck:
            free = self._around(cost, cost_size, possible, certain)
            share = jobs.share[chosen.job]
            cost, cost_size = share * cost, share * cost_size
        if self.arithmetic.exact:
            sizes = abs(cost) + abs(charge - link) + abs(link)
            return [*self._around(cost + charge, cost_size, possible, certain), *free, sizes]
        return [*self._around(cost + charge, cost_size + size, possible, certain), *free]

    def _around(self, near: Numbers, size: Numbers, possible: BoolArray, certain: BoolArray) -> list[Numbers]:
        """Below and above numbers of known size, above also with late options; infinite for no options."""
        low, high = self.arithmetic.around(near, size)
        above = np.where(certain, high, np.inf)
        late = above if np.array_equal(possible, certain) else np.where(possible, high, np.inf)
        return [np.where(possible, low, np.inf), above, late]


def _deadlines_s(jobs: list[Job], factor: Number, arithmetic: Arithmetic) -> Numbers:
    """Parts of the deadlines of jobs; the largest number for those that have none."""
    return arithmetic.array(
        sys.float_info.max if job.deadline_s is None else factor * arithmetic.number(job.deadline_s)
        for job in jobs
    )
