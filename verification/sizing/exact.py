"""What every job costs at least at given prices, in rational arithmetic, one option at a time."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from wattsched.instances.sizing.instance import Instance, Job
from wattsched.verification.interval import Enclosure, logarithm, square_root
from wattsched.verification.sizing.cluster import block_of
from wattsched.verification.sizing.configurations import Configuration, Menu, Menus
from wattsched.verification.sizing.outcomes import TOLERANCE, hold_s, squared_values
from wattsched.verification.sizing.prices import BOTTLENECK, Tariff

SURELY_IN_TIME = 1 - Fraction(1, 10**12)
"""Up to this part of its deadline an option is in time by any arithmetic; the checker lets it be late by
`TOLERANCE`. Options in between count for what is proven, not for what can have been claimed."""

_GRID = 1 << 200
_LARGEST = Fraction(sys.float_info.max)


@dataclass(frozen=True)
class _Row:
    """A configuration: pool, GPU count, batch size, seconds per unit of work, watts; the set it is a part of.

    In a set, `power_w` and `idle_w` are the job's part; `block` is 0 for a job that takes no GPUs itself.
    """

    pool: str
    gpus: int
    batch: int | None
    unit_s: Fraction
    power_w: Fraction
    idle_w: Fraction
    block: int
    set: str | None


@dataclass(frozen=True)
class _Option:
    """A row that a job may run as, None for waiting; `lost_s` is the time of a restart."""

    row: _Row | None
    completion_s: Fraction
    lost_s: Fraction = Fraction(0)


def cheapest_exactly(
    instance: Instance, menus: Menus, tariff: Tariff
) -> tuple[Enclosure, Enclosure, Fraction]:
    r"""Sum over the jobs of their cheapest options at these prices, and the worst of the jobs' best values.

    Every number of the instance is a rational number, and so is every use and cost that follows from it. Only
    logarithms (of the proportional objective) and roots (of `work-value`) are enclosed. Each job's minimum is
    rounded outwards to a multiple of :math:`2^{-200}`, or the fractions of a sum would grow with every job.

    Returns
    -------
    total : Enclosure
        :math:`\sum_j \min_o (m_j c_{jo} + \text{charge}_{jo})`, where :math:`m_j` is 1 for sums and the price
        of the job's row for bottlenecks.
    worst : Enclosure
        :math:`\max_j \min_o c_{jo}`; 0 without jobs.
    size : Fraction
        Sum of the magnitudes of the costs and charges that `total` is the sum of: whoever computes it in
        doubles is off by some rounding of these, even where they cancel.

    Raises
    ------
    ValueError
        If a job has no option in time.
    """
    site = _Site(instance, menus, tariff)
    low = high = 0
    size = Fraction(0)
    least: list[Enclosure] = []
    for job in instance.jobs:
        total, best, parts = site.cheapest(job, menus.of(job), menus.in_sets(job.name))
        low += math.floor(total.low * _GRID)
        high += math.ceil(total.high * _GRID)
        least.append(best)
        size += Fraction(math.ceil(parts * _GRID), _GRID)
    worst = Enclosure.of(0)
    if least:
        worst = Enclosure(max(best.low for best in least), max(best.high for best in least))
    return Enclosure(Fraction(low, _GRID), Fraction(high, _GRID)), worst, size


class _Site:
    """An instance with its prices, and the exact rows of each menu."""

    def __init__(self, instance: Instance, menus: Menus, tariff: Tariff):
        self.instance = instance
        self.tariff = tariff
        types = instance.cluster.gpu_types
        self.idle_w = {
            name: Fraction(types[place.gpu_type].idle_power_w) for name, place in menus.places.items()
        }
        self.round_s = Fraction(instance.round_s)
        self.bottleneck = instance.objective in BOTTLENECK
        self.values: dict[str, Enclosure] = {}
        if instance.objective == "work-value":
            squares = squared_values((job, menus.of(job).reference_rate) for job in instance.jobs)
            self.values = {name: square_root(square) for name, square in squares.items()}
        self._rows: dict[int, list[_Row]] = {}

    def rows(self, menu: Menu) -> list[_Row]:
        """Configurations of a menu in exact numbers."""
        if id(menu) not in self._rows:
            self._rows[id(menu)] = [self._row(row) for row in menu.listed]
        return self._rows[id(menu)]

    def _row(self, row: Configuration) -> _Row:
        pool, gpus, _, _, batch = row.setting
        return _Row(
            pool=pool,
            gpus=gpus,
            batch=batch,
            unit_s=1 / Fraction(row.rate) if row.unit_s is None else Fraction(row.unit_s),
            power_w=Fraction(row.power_w) / row.members,
            idle_w=self.idle_w[pool] * gpus / row.members,
            block=block_of(gpus) if row.leads else 0,
            set=row.set,
        )

    def cheapest(
        self, job: Job, menu: Menu, in_sets: list[Configuration]
    ) -> tuple[Enclosure, Enclosure, Fraction]:
        """Least cost of a job with what it pays, and without; the size of the former's parts."""
        rows = self.rows(menu)
        restart_s = Fraction(job.restart_s) if job.current is not None else Fraction(0)
        best_s = min(row.unit_s for row in rows) * Fraction(job.remaining_work) + restart_s
        fewest = min(row.gpus for row in rows)
        reference_s = min(row.unit_s for row in rows if row.gpus == fewest)
        paid, free, sure, sizes = [], [], [], []
        for option in self._options(job, [*rows, *map(self._row, in_sets)], best_s):
            late = 0 if job.deadline_s is None else option.completion_s / Fraction(job.deadline_s)
            if late > 1 + Fraction(TOLERANCE) or option.completion_s > _LARGEST:
                continue
            cost = self._cost(job, option, best_s, reference_s)
            share = self.tariff.worst[job.name] if self.bottleneck else Fraction(1)
            charge, link = self._charge(job, option, rows, restart_s), self._link(job, option)
            paid.append(cost * share + (charge + link))
            sizes.append(abs(cost.high) * share + abs(charge) + abs(link))
            free.append(cost)
            sure.append(late <= SURELY_IN_TIME)
        if not paid:
            raise ValueError(f"job '{job.name}' has no option that is complete by its deadline")
        cheapest = min(range(len(paid)), key=lambda option: paid[option].low)
        return _least(paid, sure), _least(free, sure), sizes[cheapest]

    def _options(self, job: Job, rows: list[_Row], best_s: Fraction) -> Iterator[_Option]:
        held, work = job.current, Fraction(job.remaining_work)
        for row in rows:
            restarts = held is not None and (row.gpus, row.batch, row.pool) != (
                held.gpus,
                held.batch_size,
                held.pool,
            )
            if not (restarts and not job.preemptible):
                lost_s = Fraction(job.restart_s) if restarts else Fraction(0)
                yield _Option(row, row.unit_s * work + lost_s, lost_s)
        if job.can_wait and job.preemptible:
            yield _Option(None, self.round_s + best_s)

    def _cost(self, job: Job, option: _Option, best_s: Fraction, reference_s: Fraction) -> Enclosure:
        """Value of an option, with the sign that makes it a cost."""
        weight, seconds, row = Fraction(job.weight), option.completion_s, option.row
        match self.instance.objective:
            case "total-completion" | "makespan":
                return Enclosure.of(weight * seconds)
            case "progress":
                return Enclosure.of(0 if row is None else -3600 * weight / seconds)
            case "max-min":
                return Enclosure.of(-best_s / seconds / weight)
            case "proportional":
                return logarithm(seconds / best_s) * weight
            case "goodput":
                if row is None:
                    return Enclosure.of(0)
                useful = max(Fraction(0), 1 - option.lost_s / self.round_s)
                return Enclosure.of(-weight * reference_s / row.unit_s * useful)
            case "work-value":
                if row is None:
                    return Enclosure.of(0)
                kept_s = min(Fraction(hold_s(self.instance)), seconds)
                useful = max(Fraction(0), 1 - option.lost_s / kept_s)
                return self.values[job.name] * (-reference_s / row.unit_s * useful)
        raise ValueError(f"objective '{self.instance.objective}' is not known")

    def _charge(self, job: Job, option: _Option, rows: list[_Row], restart_s: Fraction) -> Fraction:
        """What the prices make an option pay for its block, its watts and its joules."""
        tariff, row = self.tariff, option.row
        if row is None:
            if not tariff.joule or self.instance.budgets.scope == "round":
                return Fraction(0)
            work = Fraction(job.remaining_work)
            return tariff.joule * min(other.power_w * (other.unit_s * work + restart_s) for other in rows)
        extra_w = row.power_w - row.idle_w
        # A job that keeps its GPUs needs no room: they were never free.
        room = tariff.room[row.pool][row.block] if job.preemptible and row.block else Fraction(0)
        if self.instance.budgets.scope == "round":
            energy_j = extra_w * min(option.completion_s, self.round_s)
        else:
            energy_j = row.power_w * option.completion_s
        return room + tariff.watt[row.pool] * extra_w + tariff.joule * energy_j

    def _link(self, job: Job, option: _Option) -> Fraction:
        """What the prices make an option pay for its set."""
        row = option.row
        if row is None or row.set is None:
            return Fraction(0)
        return self.tariff.share[row.set, row.pool, job.name]


def _least(values: list[Enclosure], sure: list[bool]) -> Enclosure:
    """Minimum: over all options from below, over those that surely are in time from above."""
    certain = [value.high for value, certain in zip(values, sure, strict=True) if certain]
    return Enclosure(min(v.low for v in values), min(certain or [v.high for v in values]))
