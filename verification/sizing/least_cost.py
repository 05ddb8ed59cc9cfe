r"""Least cost of every job at given prices, over all options at once, in either arithmetic.

Of bottleneck objectives prices prove a threshold, the surrogate bound. Let every job take an option that is
worth :math:`t` or better. At prices :math:`\lambda \ge 0` the rows allow charges of :math:`\lambda U`
together, so if even the least charges sum to more,

.. math:: \sum_j \min_{o \in O_j:\ c_{jo} \le t} \sum_r \lambda_r a_{r,jo} > \sum_r \lambda_r U^r ,

some job is worse than :math:`t` in every decision. The least :math:`t` for which this does not hold bounds
the objective; multiples of the prices prove the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import BoolArray, IntArray, offsets
from wattsched.verification.arithmetic import Arithmetic, Enclosure, Numbers
from wattsched.verification.sizing.by_kind import by_kind_of
from wattsched.verification.sizing.job_rows import GOODPUT_USE, JOULE_USE, LARGEST, SMALLEST
from wattsched.verification.sizing.options import Listed, Options, Worth
from wattsched.verification.sizing.rows import RowPrices
from wattsched.verification.sizing.splits import Allowed
from wattsched.verification.sizing.uncertainty import Piece


class Reach(NamedTuple):
    """Values of the options of some jobs, and the charges that they pay, job by job.

    Attributes
    ----------
    start : int array, shape (n_jobs,)
        Index of each job's first option.
    low, high : arrays, shape (n_options,)
        Ends of the options' values, infinite for options that are late: by the checker's tolerance in `low`,
        by any arithmetic in `high`.
    charge : array, shape (n_options,)
        Not above the charge of each option.
    """

    start: IntArray
    low: Numbers
    high: Numbers
    charge: Numbers

    @classmethod
    def joined(cls, parts: Iterable[Reach]) -> Reach:
        """Return the reach of the jobs of all parts."""
        starts, *values = zip(*parts, strict=True)
        lows, *_ = values
        before = offsets([len(low) for low in lows])
        moved = [start + n for start, n in zip(starts, before, strict=False)]
        return cls(np.concatenate(moved), *map(np.concatenate, values))

    def surely(self) -> Numbers:
        """Values of the options, those of any arithmetic; of jobs of which none is in time by it, `low`."""
        none = np.minimum.reduceat(self.high, self.start) == np.inf
        return np.where(np.repeat(none, np.diff([*self.start, len(self.low)])), self.low, self.high)

    def threshold(self, values: Numbers, capacity: Fraction, arithmetic: Arithmetic) -> Fraction:
        """Least value up to which options can pay no more than a capacity; the worst one if there is none.

        Parameters
        ----------
        values : array, shape (n_options,)
            `low` or `high`.
        """

        def pays_no_more(threshold: object) -> bool:
            least = np.minimum.reduceat(np.where(values <= threshold, self.charge, np.inf), self.start)
            return bool(np.all(least < np.inf)) and arithmetic.sum_below(least) <= capacity

        levels = np.unique(values[values < np.inf])
        place = bisect_left(levels, True, key=pays_no_more)
        return Fraction(levels[min(place, len(levels) - 1)])

    def none_fits(self, capacity: Fraction, arithmetic: Arithmetic) -> bool:
        """True if the options that pay least pay more than a capacity: there is no decision then."""
        least = np.minimum.reduceat(np.where(self.low < np.inf, self.charge, np.inf), self.start)
        return bool(np.any(least == np.inf)) or arithmetic.sum_below(least) > capacity


class NoOptionError(ValueError):
    """A job has nothing that it could do, or the splits of a certificate tree leave it nothing."""


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
    dearest : Fraction
        Not below what any choice of options costs, without charges, whatever splits leave.
    worth : Fraction
        About the sum of the largest magnitudes that the jobs' options cost, likewise: charges may cancel it.
    """

    total: Enclosure
    size: Fraction
    dearest: Fraction
    worth: Fraction


def least_costs(
    options: Options, prices: RowPrices, allowed: Allowed | None = None, near: Options | None = None
) -> LeastCosts:
    """Sum over the jobs of their cheapest options at these prices of uses.

    Every number of an instance is a rational number, and so is every use and cost that follows from it, but
    for logarithms (of the proportional objective) and roots (of `work-value`).

    Parameters
    ----------
    allowed : Allowed, optional
        Options that splits leave to the jobs.
    near : Options, optional
        The same in doubles, where `in_range`: only options that these do not rule out as the cheapest are
        looked at in rational numbers.

    Raises
    ------
    NoOptionError
        If a job has no option in time, or splits leave it none.
    """
    if not options.instance.jobs:
        nothing = Fraction(0)
        return LeastCosts(Enclosure(nothing, nothing), nothing, nothing, nothing)
    left = allowed or {}
    (low, high, late), sizes = _least_of_all(options, prices, left, near)
    _require_options(low)
    arithmetic = options.arithmetic
    total = Enclosure(arithmetic.sum_below(low), -arithmetic.sum_below(-_finite(high, late)))
    if options.uncharged is None:
        options.uncharged = uncharged(options if near is None else near)
    size = -arithmetic.sum_below(-sizes) if len(sizes) else Fraction(0)
    return LeastCosts(total, size, *options.uncharged)


def uncharged(options: Options) -> tuple[Fraction, Fraction]:
    """Return `dearest` and `worth` of `LeastCosts`, which depend neither on prices nor on splits."""
    dearest = _dearest_of_all(options)
    (least, *_), _ = _least_of_all(options, {}, {}, None)
    worth = np.maximum(np.abs(dearest), np.abs(_finite(least, dearest)))
    below = options.arithmetic.sum_below
    return -below(-dearest), -below(-worth)


def _least_of_all(
    options: Options, prices: RowPrices, left: Allowed, near: Options | None
) -> tuple[Numbers, Numbers]:
    """Ends (`_enclosed`) of every job's least costs, shape (3, n_jobs), and the sizes in rational numbers."""
    exact = options.arithmetic.exact
    found = np.full((4 if exact else 3, len(options.offer)), np.inf, dtype=object if exact else float)
    if exact:
        if near is not None:
            found[:] = _least(_perhaps_cheapest(options, near, prices, left), options, prices)
        else:
            for listed in options.parts():
                found[:, listed.jobs] = _least(_left(listed, left), options, prices)
        return found[:3], found[3]
    together, alone = _divided(options, left)
    if len(together):
        found[:, together] = least_by_kind(options, prices, together)
    for listed in options.parts(alone):
        found[:, listed.jobs] = _least(_left(listed, left), options, prices)
    return found, np.zeros(0)


def least_by_kind(options: Options, prices: RowPrices, jobs: IntArray) -> list[Numbers]:
    """Ends (`_enclosed`) of the least costs of some of the jobs that are looked at by kind."""
    paid = _paid(options, prices)
    ran = by_kind_of(options).least(paid, jobs)
    waited = _ends(options.waiting(jobs), options, prices)
    found = [np.minimum(r, w) for r, w in zip(ran, waited, strict=True)]
    places, start, staying = options.staying(jobs)
    if len(places):
        for ends, stayed in zip(found, _ends(staying, options, prices), strict=True):
            ends[places] = np.minimum(ends[places], np.minimum.reduceat(stayed, start))
    return found


def _divided(options: Options, left: Allowed) -> tuple[IntArray, IntArray | None]:
    """Return the jobs that are looked at by kind, those of splits are not, and the others; None for all."""
    together = by_kind_of(options).jobs if options.instance.uncertainty is None else np.zeros(0, dtype=int)
    if left:
        together = together[~np.isin(together, list(left))]
    if not len(together):
        return together, None
    return together, np.setdiff1d(np.arange(len(options.offer)), together, assume_unique=True)


def _dearest_of_all(options: Options) -> Numbers:
    """Return upper bounds on what each job's dearest option costs without charges."""
    if options.arithmetic.exact:
        return np.concatenate([_dearest(listed, options.arithmetic) for listed in options.parts()])
    together, alone = _divided(options, {})
    found = [_dearest(listed, options.arithmetic) for listed in options.parts(alone)]
    return np.concatenate([*found, dearest_by_kind(options, together)] if len(together) else found)


def dearest_by_kind(options: Options, jobs: IntArray) -> Numbers:
    """Upper bounds on the dearest options, without charges, of jobs that are looked at by kind."""
    found = np.maximum(by_kind_of(options).dearest(jobs), _most(options.waiting(jobs), options.arithmetic))
    places, start, staying = options.staying(jobs)
    if len(places):
        stayed = np.maximum.reduceat(_most(staying, options.arithmetic), start)
        found[places] = np.maximum(found[places], stayed)
    return np.where(found == -np.inf, 0, found)


def _dearest(listed: Listed, arithmetic: Arithmetic) -> Numbers:
    """Upper bounds on the dearest options, without charges, of jobs whose options are listed."""
    ran, waited = (_most(worth, arithmetic) for worth in (listed.running, listed.waiting))
    found = np.maximum(np.maximum.reduceat(ran, listed.start), waited)
    return np.where(found == -np.inf, 0, found)


def _most(worth: Worth, arithmetic: Arithmetic) -> Numbers:
    """Return upper bounds on what options cost without charges; -infinite for late ones."""
    return np.where(worth.possible, worth.cost + arithmetic.epsilon * worth.cost_size, -np.inf)


def ends_by_part(
    options: Options, prices: RowPrices, allowed: Allowed
) -> Iterator[tuple[Listed, list[Numbers], list[Numbers]]]:
    """Yield the options that splits leave, with the ends (`_enclosed`) of what running and waiting cost."""
    for part in options.parts():
        listed = _left(part, allowed)
        yield listed, _ends(listed.running, options, prices), _ends(listed.waiting, options, prices)


def reach_of(options: Options, prices: RowPrices, allowed: Allowed | None = None) -> Reach:
    """Values, and charges at prices, of the options that splits leave to the jobs, of which there are some.

    A NoOptionError says that a job has none in time.
    """
    left = allowed or {}
    parts = (_left(listed, left) for listed in options.parts())
    reach = Reach.joined(_reach(listed, options, prices) for listed in parts)
    _require_options(np.minimum.reduceat(reach.low, reach.start))
    return reach


def in_range(options: Options, prices: RowPrices) -> bool:
    """True if all numbers are so far from the ends of the range of doubles that no product leaves it."""
    return options.in_range and not any(
        price and not SMALLEST <= abs(price) <= LARGEST for price in prices.values()
    )


def _require_options(least: Numbers) -> None:
    if (least == np.inf).any():
        raise NoOptionError


def _finite(high: Numbers, late: Numbers) -> Numbers:
    """Return upper ends; those with late options where a job has none that is surely in time."""
    return np.where(high == np.inf, late, high)


def _left(listed: Listed, left: Allowed) -> Listed:
    """Return the options that splits leave."""
    may_run, may_wait = _masks(listed, left)
    return listed._replace(running=_but(listed.running, may_run), waiting=_but(listed.waiting, may_wait))


def _masks(listed: Listed, left: Allowed) -> tuple[BoolArray, BoolArray]:
    """Return the masks of the options to run, and of the jobs' options to wait, that splits leave."""
    may_run, may_wait = np.ones(len(listed.running.cost), dtype=bool), np.ones(len(listed.jobs), dtype=bool)
    for j in left.keys() & set(listed.jobs.tolist()) if left else ():
        place, (*runs, waits) = int(np.searchsorted(listed.jobs, j)), left[j]
        first = listed.start[place]
        may_run[first : first + len(runs)] = runs
        may_wait[place] = waits
    return may_run, may_wait


def _but(options: Worth, left: BoolArray) -> Worth:
    """Return options of which none outside of a mask is possible."""
    if left.all():
        return options
    return options._replace(possible=options.possible & left, certain=options.certain & left)


def _perhaps_cheapest(options: Options, near: Options, prices: RowPrices, left: Allowed) -> Listed:
    """Options in rational numbers, without those that by doubles surely cost more than another of the job."""
    every = near.of_all
    may_run, may_wait = _masks(every, left)
    run_low, run_high, _ = _ends(_but(every.running, may_run), near, prices)
    _, wait_high, _ = _ends(_but(every.waiting, may_wait), near, prices)
    least = np.minimum(np.minimum.reduceat(run_high, every.start), wait_high)
    keep = np.asarray(run_low <= np.repeat(least, every.counts))
    # Whether an option is in time is for rational numbers to say.
    keep |= np.repeat(options.timed, every.counts)
    # Every job keeps one, so that its place does not get lost.
    keep[every.start] = True
    listed = options.some(keep)
    may = _but(listed.running, may_run[keep])
    return listed._replace(running=may, waiting=_but(listed.waiting, may_wait))


def _paid(options: Options, prices: RowPrices) -> Numbers:
    """Return the prices of all uses, in the order of their numbers; 0 for number 0."""
    return options.arithmetic.array(prices.get(use, 0) for use in (("",), *options.uses))


def _charges(worth: Worth, options: Options, prices: RowPrices) -> tuple[Numbers, Numbers, Numbers]:
    """Return the charges of options, their sizes, and the part of them that links options with others."""
    paid = _paid(options, prices)
    room, link, watt, joule = paid[worth.room], paid[worth.link], paid[worth.watt], paid[JOULE_USE]
    charge, size = room + watt * worth.watts + link, room + watt * worth.watts_size + abs(link)
    if joule:
        charge, size = charge + joule * worth.joules, size + joule * worth.joules_size
    if options.instance.tenants:
        of_tenant = paid[worth.tenant_gpu] * worth.gpus + paid[worth.tenant_watt] * worth.draw_w
        if options.metered:
            of_tenant = of_tenant + paid[worth.tenant_joule] * worth.drawn_j
        charge, size = charge + of_tenant, size + of_tenant
    if giving := paid[GOODPUT_USE]:
        charge, size = charge + giving * worth.goodput, size + abs(giving) * worth.goodput_size
    if options.requirements.uses:
        required, required_size = _required(worth, options, prices)
        # Each of these terms is rounded once more when it is added.
        charge = charge + required
        size = (size + required_size) * (1 + len(options.requirements.uses) // 8)
    for piece, price in prices.items():
        if isinstance(piece, Piece):
            each = options.arithmetic.number(price)
            amount, amount_size = piece.amounts(worth, options)
            charge, size = charge + each * amount, size + each * amount_size
    return charge, size, link


def _required(worth: Worth, options: Options, prices: RowPrices) -> tuple[Numbers, Numbers]:
    """Return the charges of options by rows of requirements, and their sizes."""
    paid = options.arithmetic.array(prices.get(use, 0) for use in options.requirements.uses)
    return worth.required @ paid, worth.required_size @ abs(paid)


def _inexact(worth: Worth, options: Options, prices: RowPrices) -> Numbers:
    """Return the size of logarithms and roots in what options cost and are charged, in rationals."""
    if not options.requirements.uses:
        return worth.cost_size
    return np.asarray(worth.cost_size + _required(worth, options, prices)[1])


def _least(listed: Listed, options: Options, prices: RowPrices) -> list[Numbers]:
    """Return for each job the least of what `_ends` finds; in rationals the last is of its best option."""
    ran, waited = (_ends(worth, options, prices) for worth in (listed.running, listed.waiting))
    if options.arithmetic.exact:
        (run_low, *_), (wait_low, *_) = ran, waited
        cheapest = np.minimum(np.minimum.reduceat(run_low, listed.start), wait_low)
        ran[-1] = np.where(run_low == np.repeat(cheapest, listed.counts), ran[-1], np.inf)
        waited[-1] = np.where(wait_low == cheapest, waited[-1], np.inf)
    return [np.minimum(np.minimum.reduceat(r, listed.start), w) for r, w in zip(ran, waited, strict=True)]


def _reach(listed: Listed, options: Options, prices: RowPrices) -> Reach:
    """Values and charges of all options, of each job that of waiting last."""
    found = []
    for worth in (listed.running, listed.waiting):
        charge, size, _ = _charges(worth, options, prices)
        size = _inexact(worth, options, prices) - worth.cost_size if options.arithmetic.exact else size
        low, high, _ = _enclosed(worth.cost, worth.cost_size, worth, options.arithmetic)
        found.append([low, high, charge - options.arithmetic.epsilon * size])
    joined = (np.insert(r, listed.start + listed.counts, w) for r, w in zip(*found, strict=True))
    return Reach(listed.start + np.arange(len(listed.jobs)), *joined)


def _ends(worth: Worth, options: Options, prices: RowPrices) -> list[Numbers]:
    """Ends (`_enclosed`) of what options cost with their charges; and in rationals the size of that."""
    charge, size, link = _charges(worth, options, prices)
    if options.arithmetic.exact:
        sizes = abs(worth.cost) + abs(charge - link) + abs(link)
        return [
            *_enclosed(worth.cost + charge, _inexact(worth, options, prices), worth, options.arithmetic),
            sizes,
        ]
    return _enclosed(worth.cost + charge, worth.cost_size + size, worth, options.arithmetic)


def _enclosed(near: Numbers, size: Numbers, worth: Worth, arithmetic: Arithmetic) -> list[Numbers]:
    """Return the ends of options' numbers of some size: below, above, and above with late options.

    They are infinite where options are not possible or, but for the last, not surely in time.
    """
    low = high = near
    if not arithmetic.exact or size.any():
        error = arithmetic.epsilon * size
        low, high = near - error, near + error
    above = np.where(worth.certain, high, np.inf)
    late = above if np.array_equal(worth.possible, worth.certain) else np.where(worth.possible, high, np.inf)
    return [np.where(worth.possible, low, np.inf), above, late]
