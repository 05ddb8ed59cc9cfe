r"""Configurations and jobs of a round as arrays, for the proof of a certificate in double precision.

What every job costs at least at given prices, in double precision with a bound on the rounding.

For rounds of millions of options. Let :math:`u = 2^{-53}`. A reduced cost is a sum of at most four terms:
the option's value, what it pays for room and watts, for its set, and for joules. Each term is a product of at
most five factors; each factor is a number of the instance, a price rounded once, or a completion time, which
as a sum of positive products is known to :math:`4u` relative; a job's part of a set's watts is rounded once
more, and so is the root that values a job's work. Differences occur in two places, counted with
the sum of their parts: watts above idle, and the time that a restart leaves. A logarithm is known to
:math:`9u` absolute for its argument and, numpy's being accurate to four units in the last place, to
:math:`8u` relative for itself. Altogether a computed reduced cost is within :math:`22u` times its *size*, the
sum of the magnitudes of its parts, of the true one; :math:`\varepsilon = 2^{-48} = 32u` also covers the
rounding of the size and of the bound itself, so that

.. math:: r - \varepsilon\,\text{size} \le r^{true} \le r + \varepsilon\,\text{size} .

Minima of the left side, added without error (`math.fsum`) and rounded down, are below the true sum. Nothing
here can underflow or overflow: `in_range` admits numbers from 1e-40 to 1e40, and zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.interval import Enclosure
from wattsched.verification.sizing.cluster import block_of
from wattsched.verification.sizing.configurations import Configuration, Menu, Menus
from wattsched.verification.sizing.exact import SURELY_IN_TIME
from wattsched.verification.sizing.outcomes import TOLERANCE, hold_s, squared_values
from wattsched.verification.sizing.prices import BOTTLENECK, Tariff


@dataclass(frozen=True)
class Rows:
    """Configurations of all menus, one menu after the other; arrays of shape (n_rows,) but for `start`.

    `watts` and `watts_size` are what a row pays for watts above idle and for being in a set, and the size of
    that; `room` what it pays for its block. `place` is a number for pool, GPU count and batch size together.
    Rows that are not `alone` are a job's in sets.
    """

    start: IntArray
    unit_s: FloatArray
    power_w: FloatArray
    idle_w: FloatArray
    room: FloatArray
    watts: FloatArray
    watts_size: FloatArray
    place: IntArray
    alone: BoolArray


@dataclass(frozen=True)
class Jobs:
    """What is asked of each job; arrays of shape (n_jobs,). `held` is a number of `Rows.place`, or -1.

    `value` is what a second of its work is worth for the objective `work-value`; for others its weight.
    """

    menu: IntArray
    work: FloatArray
    weight: FloatArray
    value: FloatArray
    share: FloatArray
    deadline_s: FloatArray
    restart_s: FloatArray
    running: BoolArray
    held: IntArray
    kept: BoolArray
    can_wait: BoolArray
    best_s: FloatArray
    reference_s: FloatArray


class Offered(NamedTuple):
    """What jobs may run as: a menu that equal jobs share, or one job's with what it may run as in sets."""

    menu: Menu
    in_sets: list[Configuration]
    job: str

    @property
    def rows(self) -> list[Configuration]:
        """All of it."""
        return [*self.menu.listed, *self.in_sets]


def columns_of(instance: Instance, menus: Menus, tariff: Tariff) -> tuple[Rows, Jobs]:
    """Rows of every menu in use, and the jobs that choose from them."""
    numbered: dict[Hashable, int] = {}
    used: list[Offered] = []
    for job in instance.jobs:
        menu, in_sets = menus.of(job), menus.in_sets(job.name)
        key = job.name if in_sets else id(menu)
        if numbered.setdefault(key, len(used)) == len(used):
            used.append(Offered(menu, in_sets, job.name if in_sets else ""))
    places: dict[tuple[object, ...], int] = {}
    rows = _rows(instance, menus, tariff, used, places)
    return rows, _jobs(instance, menus, tariff, used, numbered, places)


def _rows(
    instance: Instance,
    menus: Menus,
    tariff: Tariff,
    used: list[Offered],
    places: dict[tuple[object, ...], int],
) -> Rows:
    listed = [row for offered in used for row in offered.rows]
    members = np.array([row.members for row in listed], dtype=float)
    types = instance.cluster.gpu_types
    idle_w = {name: types[place.gpu_type].idle_power_w for name, place in menus.places.items()}
    watt = {name: float(tariff.watt[name]) for name in menus.places}
    room = {name: {s: float(p) for s, p in by_size.items()} for name, by_size in tariff.room.items()}
    pools = [row.setting[0] for row in listed]
    gpus = np.array([row.setting[1] for row in listed], dtype=float)
    power = np.array([row.power_w for row in listed], dtype=float) / members
    idle = np.array([idle_w[pool] for pool in pools], dtype=float) * gpus / members
    price = np.array([watt[pool] for pool in pools], dtype=float)
    link = np.array(list(_links(tariff, used)), dtype=float)
    configurations = ((row.setting[0], row.setting[1], row.setting[4]) for row in listed)
    return Rows(
        start=np.concatenate([[0], np.cumsum([len(offered.rows) for offered in used])]).astype(np.int64),
        unit_s=np.array(
            [1.0 / row.rate if row.unit_s is None else row.unit_s for row in listed], dtype=float
        ),
        power_w=power,
        idle_w=idle,
        room=np.array(
            [room[row.setting[0]][block_of(row.setting[1])] if row.leads else 0.0 for row in listed],
            dtype=float,
        ),
        watts=price * (power - idle) + link,
        watts_size=price * (power + idle) + np.abs(link),
        alone=np.array([row.set is None for row in listed], dtype=bool),
        place=np.array([places.setdefault(c, len(places)) for c in configurations], dtype=np.int64),
    )


def _links(tariff: Tariff, used: list[Offered]) -> Iterator[float]:
    for offered in used:
        yield from itertools.repeat(0.0, len(offered.menu.listed))
        for row in offered.in_sets:
            assert row.set is not None
            yield float(tariff.share[row.set, row.setting[0], offered.job])


def _jobs(
    instance: Instance,
    menus: Menus,
    tariff: Tariff,
    used: list[Offered],
    numbered: dict[Hashable, int],
    places: dict[tuple[object, ...], int],
) -> Jobs:
    jobs = instance.jobs
    bottleneck = instance.objective in BOTTLENECK
    keys = (job.name if menus.in_sets(job.name) else id(menus.of(job)) for job in jobs)
    menu = np.array([numbered[key] for key in keys], dtype=np.int64)
    work = np.array([job.remaining_work for job in jobs], dtype=float)
    running = np.array([job.current is not None for job in jobs], dtype=bool)
    restart_s = np.where(running, [job.restart_s for job in jobs], 0.0)
    held = [
        -1 if c is None else places.get((c.pool, c.gpus, c.batch_size), -1) for c in (j.current for j in jobs)
    ]
    extremes = [_extremes(offered.menu) for offered in used]
    best, reference = (np.array(part, dtype=float) for part in zip(*extremes, strict=True))
    weight = np.array([job.weight for job in jobs], dtype=float)
    value = weight
    if instance.objective == "work-value":
        squares = squared_values((job, menus.of(job).reference_rate) for job in jobs)
        value = np.sqrt([float(squares[job.name]) for job in jobs])
    return Jobs(
        menu=menu,
        work=work,
        weight=weight,
        value=value,
        share=np.array([float(tariff.worst[job.name]) if bottleneck else 1.0 for job in jobs], dtype=float),
        deadline_s=np.array([math.inf if job.deadline_s is None else job.deadline_s for job in jobs]),
        restart_s=restart_s,
        running=running,
        held=np.array(held, dtype=np.int64),
        kept=np.array([not job.preemptible for job in jobs], dtype=bool),
        can_wait=np.array([job.can_wait and job.preemptible for job in jobs], dtype=bool),
        best_s=work * best[menu] + restart_s,
        reference_s=reference[menu],
    )


def _unit_s(row: Configuration) -> float:
    return 1.0 / row.rate if row.unit_s is None else row.unit_s


def _extremes(menu: Menu) -> tuple[float, float]:
    """Seconds per unit of work at best, and at best with the fewest GPUs."""
    unit_s = list(map(_unit_s, menu.listed))
    fewest = min(row.setting[1] for row in menu.listed)
    few = [s for s, row in zip(unit_s, menu.listed, strict=True) if row.setting[1] == fewest]
    return min(unit_s), min(few)


EPSILON = 2.0**-48
CHUNK = 1 << 18
"""Options that are looked at together: their arrays stay in the processor's cache."""

_SMALLEST, _LARGEST = 1e-40, 1e40


def in_range(instance: Instance, menus: Menus, tariff: Tariff) -> bool:
    """Whether all numbers are so far from the ends of the range of doubles that no product leaves it."""
    numbers = [instance.round_s, instance.carbon_g_per_kwh or 0.0]
    numbers += [t.idle_power_w for t in instance.cluster.gpu_types.values()]
    prices = [*tariff.watt.values(), tariff.joule, *tariff.worst.values()]
    prices += [price for sizes in tariff.room.values() for price in sizes.values()]
    prices += map(abs, tariff.share.values())
    if any(price and not _SMALLEST <= price <= _LARGEST for price in prices):
        return False
    used = {id(menu): menu for menu in map(menus.of, instance.jobs)}
    for menu in used.values():
        numbers += [value for row in menu.listed for value in (row.rate, row.power_w)]
    in_sets = (row for job in instance.jobs for row in menus.in_sets(job.name))
    numbers += [value for row in in_sets for value in (row.rate, row.power_w)]
    numbers += [v for job in instance.jobs for v in (job.remaining_work, job.weight, job.restart_s)]
    sizes = np.array(numbers)
    return bool(np.all((sizes == 0) | ((sizes >= _SMALLEST) & (sizes <= _LARGEST))))


def cheapest_in_doubles(
    instance: Instance, menus: Menus, tariff: Tariff, chunk: int = CHUNK
) -> tuple[Enclosure, Enclosure, Fraction]:
    """The enclosures of `certificate_exact.cheapest_exactly`, wider by the rounding; so its size is left 0.

    Raises
    ------
    ValueError
        If a job has no option in time.
    """
    rows, jobs = columns_of(instance, menus, tariff)
    site = _Site(instance, rows, jobs, float(tariff.joule))
    parts = [site.cheapest(span) for span in _chunks(jobs, rows, chunk)]
    low, high, late, *best = (np.concatenate(part) for part in zip(*parts, strict=True))
    lost = np.flatnonzero(np.isinf(low))
    if len(lost):
        name = instance.jobs[lost[0]].name
        raise ValueError(f"job '{name}' has no option that is complete by its deadline")
    total = Enclosure(_sum(low, -math.inf), _sum(_finite(high, late), math.inf))
    if not best:
        return total, Enclosure.of(0), Fraction(0)
    above = _finite(best[1], best[2])
    worst = Enclosure(Fraction(float(best[0].max())), Fraction(float(above.max())))
    return total, worst, Fraction(0)


def _finite(high: FloatArray, late: FloatArray) -> FloatArray:
    """Upper ends; those with late options where a job has none that is surely in time."""
    return np.where(np.isinf(high), late, high)


def _sum(values: FloatArray, towards: float) -> Fraction:
    return Fraction(math.nextafter(math.fsum(values.tolist()), towards))


def _chunks(jobs: Jobs, rows: Rows, chunk: int) -> Iterator[slice]:
    """Runs of jobs with about so many options together."""
    ends = np.cumsum(np.diff(rows.start)[jobs.menu])
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + chunk, side="right")))
        yield slice(first, last)
        first = last


@dataclass(frozen=True)
class _Site:
    """An instance in arrays, and the price of a joule."""

    instance: Instance
    rows: Rows
    jobs: Jobs
    joule: float

    @property
    def bottleneck(self) -> bool:
        """Whether the worst job counts."""
        return self.instance.objective in BOTTLENECK

    def cheapest(self, span: slice) -> list[FloatArray]:
        """Ends of each job's least cost as by `_around`; for bottlenecks also without what it pays."""
        jobs = Jobs(**{name: getattr(self.jobs, name)[span] for name in Jobs.__dataclass_fields__})
        first = self.rows.start[jobs.menu]
        counts = self.rows.start[jobs.menu + 1] - first
        start = np.cumsum(counts) - counts
        job = np.repeat(np.arange(len(counts)), counts)
        row = np.arange(len(job)) + np.repeat(first - start, counts)
        running = self._running(jobs, job, row)
        energy_j = self._waiting_energy_j(jobs, job, row, start)
        waiting = self._waiting(jobs, energy_j)
        return [
            np.minimum(np.minimum.reduceat(ran, start), waited)
            for ran, waited in zip(running, waiting, strict=True)
        ]

    def _running(self, jobs: Jobs, job: IntArray, row: IntArray) -> list[FloatArray]:
        rows = self.rows
        restarts = jobs.running[job] & (rows.place[row] != jobs.held[job])
        lost_s = np.where(restarts, jobs.restart_s[job], 0.0)
        unit_s, power_w = rows.unit_s[row], rows.power_w[row]
        seconds = jobs.work[job] * unit_s + lost_s
        cost, size = self._value(jobs, job, seconds, unit_s, lost_s)
        room = np.where(jobs.kept[job], 0.0, rows.room[row])
        pays, pays_size = room + rows.watts[row], room + rows.watts_size[row]
        if self.joule:
            if self.instance.budgets.scope == "round":
                idle_w, busy_s = rows.idle_w[row], np.minimum(seconds, self.instance.round_s)
                pays += self.joule * (power_w - idle_w) * busy_s
                pays_size += self.joule * (power_w + idle_w) * busy_s
            else:
                energy = self.joule * power_w * seconds
                pays += energy
                pays_size += energy
        return self._ends(jobs, job, seconds, ~(restarts & jobs.kept[job]), (cost, size), (pays, pays_size))

    def _waiting(self, jobs: Jobs, energy_j: FloatArray) -> list[FloatArray]:
        job = np.arange(len(jobs.work))
        seconds = self.instance.round_s + jobs.best_s
        if self.instance.objective in ("progress", "goodput", "work-value"):
            cost = size = np.zeros(len(job))
        else:
            cost, size = self._value(jobs, job, seconds, seconds, seconds)
        pays = self.joule * energy_j
        return self._ends(jobs, job, seconds, jobs.can_wait, (cost, size), (pays, pays))

    def _waiting_energy_j(self, jobs: Jobs, job: IntArray, row: IntArray, start: IntArray) -> FloatArray:
        if not self.joule or self.instance.budgets.scope == "round":
            return np.zeros(len(start))
        seconds = jobs.work[job] * self.rows.unit_s[row] + jobs.restart_s[job]
        energy_j = np.where(self.rows.alone[row], self.rows.power_w[row] * seconds, np.inf)
        return np.asarray(np.minimum.reduceat(energy_j, start))

    def _value(
        self, jobs: Jobs, job: IntArray, seconds: FloatArray, unit_s: FloatArray, lost_s: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Values with the sign that makes them costs, and their sizes."""
        weight = jobs.weight[job]
        match self.instance.objective:
            case "total-completion" | "makespan":
                cost = size = weight * seconds
            case "progress":
                size = 3600.0 * weight / seconds
                cost = -size
            case "max-min":
                size = jobs.best_s[job] / seconds / weight
                cost = -size
            case "proportional":
                slowdown = np.log(seconds / jobs.best_s[job])
                cost, size = weight * slowdown, weight * (1.0 + np.abs(slowdown))
            case "goodput":
                size = weight * (jobs.reference_s[job] / unit_s)
                cost = -size * np.maximum(0.0, 1.0 - lost_s / self.instance.round_s)
            case "work-value":
                size = jobs.value[job] * (jobs.reference_s[job] / unit_s)
                cost = -size * np.maximum(0.0, 1.0 - lost_s / np.minimum(hold_s(self.instance), seconds))
            case name:
                raise ValueError(f"objective '{name}' is not known")
        return cost, size

    def _ends(
        self,
        jobs: Jobs,
        job: IntArray,
        seconds: FloatArray,
        allowed: BoolArray,
        value: tuple[FloatArray, FloatArray],
        pays: tuple[FloatArray, FloatArray],
    ) -> list[FloatArray]:
        """Ends of the enclosures of options, infinite for those that are not allowed or late."""
        deadline_s = jobs.deadline_s[job]
        possible = allowed & (seconds <= deadline_s * (1 + TOLERANCE))
        certain = allowed & (seconds <= deadline_s * float(SURELY_IN_TIME))
        if not self.bottleneck:
            return _around((value[0] + pays[0], value[1] + pays[1]), possible, certain)
        share = jobs.share[job]
        paid = (share * value[0] + pays[0], share * value[1] + pays[1])
        return [*_around(paid, possible, certain), *_around(value, possible, certain)]


def _around(
    value: tuple[FloatArray, FloatArray], possible: BoolArray, certain: BoolArray
) -> list[FloatArray]:
    """Below and above a computed value of known size; above also for options that may be late."""
    near, error = value[0], EPSILON * value[1]
    above = np.where(certain, near + error, np.inf)
    late = above if np.array_equal(possible, certain) else np.where(possible, near + error, np.inf)
    return [np.where(possible, near - error, np.inf), above, late]
