"""Every option of every job as arrays, in either arithmetic, with what it is worth and what it pays for.

An option is a job with a configuration, alone or in a set, or a job that waits. Nothing here depends on
prices. The checker lets an option be late by its tolerance: such options count for what is proven, and not
for what can have been claimed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.column import NONE
from wattsched.verification.arithmetic import Arithmetic, Number, Numbers
from wattsched.verification.report import TOLERANCE
from wattsched.verification.sizing.configurations import Configuration, JobConfigurations
from wattsched.verification.sizing.grouping import alike, ranges, together
from wattsched.verification.sizing.outcomes import Choices, costs_of, goodput_of, terms_of
from wattsched.verification.sizing.skyline import skyline
from wattsched.verification.sizing.tenants import alone_j, metered

SURELY_IN_TIME = 1 - Fraction(1, 10**12)
"""Up to this part of its deadline an option is in time by any arithmetic."""

SMALLEST, LARGEST = 1e-40, 1e40
"""Between these no product of the numbers of an instance and its prices leaves the range of doubles."""

Use = tuple[str, ...] | tuple[str, str, int]
"""What an option can pay for: a block, or so many GPUs, ``("room", POOL, SIZE)``; a watt above idle,
``("watt", POOL)``; a joule, ``("joule",)``; ``("share", SET, POOL, JOB)``; of a tenant's jobs a GPU,
``("gpus", TENANT)``, a watt, ``("draw", TENANT)``, and a joule, ``("drawn", TENANT)``; or give,
``("goodput",)``. What a node that is woken gives as room, ``("node", POOL)``, and pays for its watts,
``("node_watt", POOL)``, and joules, ``("node_joule",)``."""


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
    tenant_gpu, tenant_watt, tenant_joule : int arrays
        Numbers of the uses that `gpus`, `draw_w` and `drawn_j` are of: whatever a job's tenant has; 0 for
        none.
    gpus, draw_w, drawn_j : arrays
        In a set an equal part of them; joules where tenants have quotas of them, else 0.
    goodput, goodput_size : arrays
        Where there is a least one; else 0.
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
    tenant_gpu: IntArray
    tenant_watt: IntArray
    tenant_joule: IntArray
    gpus: Numbers
    draw_w: Numbers
    drawn_j: Numbers
    goodput: Numbers
    goodput_size: Numbers

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

    Jobs of one kind have one *offer*, of the number of the kind; a job with configurations in sets has one
    of its own.

    Parameters
    ----------
    instance : Instance
    configurations : JobConfigurations
    arithmetic : Arithmetic

    Attributes
    ----------
    uses : dict of Use to int
        Everything that options pay for, numbered; 0 is no use.
    uncharged : tuple of Fraction, optional
        `dearest` and `worth` of `LeastCosts`, once they were found.
    by_kind : by_kind.ByKind, optional
        Jobs that are looked at by kind, once these were asked for.
    start : int array, shape (n_offers + 1,)
        Where each offer's configurations begin among the rows.
    unit_s, power_w, idle_w, gpus : arrays, shape (n_rows,)
        Seconds per unit of work; watts, those of the GPUs if idle, and GPUs, in a set parts of them.
    room, link, watt : int arrays, shape (n_rows,)
        Numbers of uses: the block, being in a set, watts above idle.
    place : int array, shape (n_rows,)
        A number for pool, GPU count and batch size together.
    alone : bool array, shape (n_rows,)
        Others are a job's in sets.
    offer, held : int arrays, shape (n_jobs,)
        What is held is a number of `place`, or -1.
    kind_best_s, kind_reference_s : arrays, shape (n_kinds,)
        Seconds per unit of work at best, and at best with the fewest GPUs.
    terms, work, latest_s, surely_s, restart_s, change_cost, reference_s : arrays, shape (n_jobs,)
        Until `latest_s` a job may be complete, until `surely_s` by any arithmetic.
    change_costs : bool
        Whether there are any.
    tenant_gpu, tenant_watt, tenant_joule : int arrays, shape (n_jobs,)
        Numbers of the uses of a GPU, a watt and a joule by the jobs of the tenant; 0 for none.
    metered : bool
        Whether tenants have quotas of joules or grams.
    most_j, surely_j : arrays, shape (n_jobs,), if metered
        Joules that the tenant lets a job use alone, and that it does by any arithmetic.
    runs, kept, can_wait, timed : bool arrays, shape (n_jobs,)
        Those that are `timed` have a deadline, or so many joules.
    """

    def __init__(self, instance: Instance, configurations: JobConfigurations, arithmetic: Arithmetic):
        self.instance, self.configurations, self.arithmetic = instance, configurations, arithmetic
        self.uses: dict[Use, int] = {("joule",): 1, ("goodput",): 2}
        self.uncharged: tuple[Fraction, Fraction] | None = None
        self.by_kind: Any = None
        self.round_s = arithmetic.number(instance.round_s)
        places = self._read_rows(*self._offers())
        self._read_jobs(places)

    def __len__(self) -> int:
        """Options to run of all jobs."""
        return int(self.counts.sum())

    @cached_property
    def counts(self) -> IntArray:
        """How many options to run each job has, shape (n_jobs,)."""
        return np.diff(self.start)[self.offer]

    def _number(self, use: Use) -> int:
        return self.uses.setdefault(use, len(self.uses) + 1)

    def _offers(self) -> tuple[list[tuple[Configuration, str]], IntArray]:
        """Set `offer` and `start`; configurations in sets with their jobs, and what the offers consist of.

        Returns
        -------
        in_sets : list of tuples
        parts : int array, shape (n_rows,)
            Numbers of configurations alone, and beyond these of those in sets.
        """
        of = self.configurations
        self.offer, own = of.kind.copy(), of.settable
        self.offer[own] = len(of.start) - 1 + np.arange(len(own))
        parts, in_sets = [np.arange(len(of.every))], list[tuple[Configuration, str]]()
        for j in own.tolist():
            kind, beyond = of.kind[j], len(of.every) + len(in_sets)
            in_sets += [(row, of.jobs.names[j]) for row in of.in_sets(of.jobs.names[j])]
            mine = np.arange(beyond, len(of.every) + len(in_sets))
            parts.append(np.append(np.arange(of.start[kind], of.start[kind + 1]), mine))
        self.start = np.append(of.start, of.start[-1] + np.cumsum([len(part) for part in parts[1:]]))
        self.start = self.start.astype(np.int64)
        return in_sets, np.concatenate(parts)

    def _read_rows(
        self, in_sets: list[tuple[Configuration, str]], parts: IntArray
    ) -> dict[tuple[object, ...], int]:
        """Set the arrays of rows, which consist of those parts."""
        a, every, types = self.arithmetic, self.configurations.every, self.instance.cluster.gpu_types
        sets = [row for row, _ in in_sets]
        stated = np.append(every.completion_s, [np.nan] * len(sets))
        rates = np.append(every.rate, [row.rate for row in sets])
        rates = a.array(np.where(np.isnan(stated), rates, 1.0))
        with np.errstate(over="ignore", divide="ignore"):
            self.unit_s = (1 / rates)[parts]
        told = np.flatnonzero(~np.isnan(stated[parts]))
        self.unit_s[told] = a.array(stated[parts[told]])
        members = np.array([1] * len(every) + [row.members for row in sets])
        self.power_w = (a.array(np.append(every.power_w, [row.power_w for row in sets])) / members)[parts]
        settings = [*every.settings(list(self.configurations.pools)), *(row.setting for row in sets)]
        places: dict[tuple[str, int, int | None], int] = {}
        named = [(pool, gpus, batch) for pool, gpus, _, _, batch in settings]
        self.place = np.array([places.setdefault(one, len(places)) for one in named], dtype=np.int64)[parts]
        gpus = np.array([count for _, count, _ in places], dtype=np.int64)
        pool_type = {name: types[pool.gpu_type] for name, pool in self.configurations.pools.items()}
        idle_w = a.array(pool_type[pool].idle_power_w for pool, _, _ in places) * gpus
        self.idle_w = idle_w[self.place] / members[parts]
        counts = zip(gpus[self.place].tolist(), members[parts].tolist(), strict=True)
        self.gpus = a.array(Fraction(*count) for count in counts)
        watt = [self._number(("watt", pool)) for pool, _, _ in places]
        pools = self.configurations.pools
        room = [self._number(("room", pool, pools[pool].taken(count))) for pool, count, _ in places]
        self.watt, self.room = (np.array(uses, dtype=np.int64)[self.place] for uses in (watt, room))
        leads = np.array([True] * len(every) + [row.leads for row in sets], dtype=bool)
        self.room[~leads[parts]] = 0
        links = [self._number(("share", str(row.set), row.setting[0], job)) for row, job in in_sets]
        self.link = np.array([0] * len(every) + links, dtype=np.int64)[parts]
        self.alone = parts < len(every)
        return {(gpus, batch, pool): number for (pool, gpus, batch), number in places.items()}

    def _read_jobs(self, places: dict[tuple[object, ...], int]) -> None:
        """Set the arrays of jobs."""
        a, of = self.arithmetic, self.configurations
        jobs = of.jobs
        best, reference = [], []
        for first, last in pairwise(of.start.tolist()):
            unit_s, gpus = self.unit_s[first:last], of.every.gpus[first:last]
            best.append(unit_s.min())
            reference.append(unit_s[gpus == gpus.min()].min())
        self.kind_best_s, self.kind_reference_s = a.array(best), a.array(reference)
        self.reference_s = self.kind_reference_s[of.kind]
        self.work = a.array(jobs.numbers("remaining_work"))
        current = jobs.current
        self.runs = current.codes != NONE
        self.restart_s = np.where(self.runs, a.array(jobs.numbers("restart_s")), 0)
        self.change_cost = a.array(of.change_cost)
        self.change_costs = bool(of.change_cost.any())
        held = jobs.holdings
        first, number = together([held.gpus, held.batch_size, held.pool.codes])
        pools = [held.pool.at(i) for i in first.tolist()]
        settings = zip(held.gpus[first].tolist(), held.batch_size[first].tolist(), pools, strict=True)
        place = np.array([places.get((gpus, batch or None, pool), -1) for gpus, batch, pool in settings])
        self.held = np.append(place[number], -1).astype(np.int64)[current.codes]
        self.kept = jobs.fixed
        self.can_wait = jobs.flags("can_wait") & ~self.kept
        late, surely = 1 + a.number(TOLERANCE), a.number(SURELY_IN_TIME)
        deadline_s = jobs.numbers("deadline_s")
        self.timed = ~np.isnan(deadline_s)
        self.latest_s, self.surely_s = (_limits(deadline_s, part, a) for part in (late, surely))
        best_s = self.work * self.kind_best_s[of.kind] + self.restart_s
        rates = of.reference_rates(np.arange(len(jobs)))
        self.terms = terms_of(of, rates, best_s, a)
        tenant = jobs.coded("tenant")
        self.tenant_gpu, self.tenant_watt, self.tenant_joule = (
            np.array([*(self._number((use, name)) for name in tenant.values), 0])[tenant.codes]
            for use in ("gpus", "draw", "drawn")
        )
        self.metered = metered(self.instance)
        if self.metered:
            most_j = np.array([alone_j(self.instance, name) for name in (*tenant.values, None)])[tenant.codes]
            stated = np.where(np.isinf(most_j), np.nan, most_j)
            self.most_j, self.surely_j = (_limits(stated, part, a) for part in (late, surely))
            self.timed |= np.isfinite(most_j)

    @cached_property
    def weight(self) -> Numbers:
        """Weights of the jobs, shape (n_jobs,)."""
        return self.arithmetic.array(self.configurations.weight)

    @cached_property
    def in_range(self) -> bool:
        """Whether all numbers of the instance are far from the ends of the range of doubles."""
        instance, of = self.instance, self.configurations
        idle_w = [t.idle_power_w for t in instance.cluster.gpu_types.values()]
        sets = [row for j in of.settable.tolist() for row in of.in_sets(of.jobs.names[j])]
        numbers = [
            np.array([instance.round_s, instance.carbon_g_per_kwh or 0.0, instance.price_per_kwh or 0.0]),
            np.array(idle_w),
            np.array([value for row in sets for value in (row.rate, row.power_w)]),
            *(of.every.rate, of.every.power_w),
            *(of.jobs.numbers(name) for name in ("remaining_work", "restart_s")),
            of.weight,
            of.change_cost,
        ]
        return all(bool(np.all((some == 0) | ((some >= SMALLEST) & (some <= LARGEST)))) for some in numbers)

    def chunks(self, jobs: IntArray, size: int) -> Iterator[IntArray]:
        """Jobs in parts that have about so many options together."""
        ends = np.cumsum(self.counts[jobs])
        first = 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + size, side="right")))
            yield jobs[first:last]
            first = last

    def parts(self, size: int, jobs: IntArray | None = None) -> Iterator[Listed]:
        """Options of jobs, about so many together; those of all jobs are kept where they are one part."""
        if jobs is None and len(self) <= size:
            yield self.of_all
        else:
            yield from map(self.of, self.chunks(np.arange(len(self.offer)) if jobs is None else jobs, size))

    @cached_property
    def of_all(self) -> Listed:
        """Options of all jobs, which are kept."""
        return self.of(np.arange(len(self.offer)))

    def some(self, which: BoolArray) -> Listed:
        """Options of all jobs, but of those to run only some, at least one of each job.

        What was looked at before is kept: rational numbers take their time.

        Parameters
        ----------
        which : bool array, shape (n_options,)
            Of all options to run, job by job.
        """
        job, row = self._laid_out
        missing = np.flatnonzero(which & ~self._looked_at)
        if len(missing):
            for column, values in zip(self._seen, self.running(job[missing], row[missing]), strict=True):
                column[missing] = values
            self._looked_at[missing] = True
        counts = np.bincount(job[which], minlength=len(self.offer))
        every = np.arange(len(self.offer))
        return Listed(every, np.cumsum(counts) - counts, self._seen.take(which), self._waiting)

    @cached_property
    def _laid_out(self) -> tuple[IntArray, IntArray]:
        """Job and row of every option to run."""
        counts = self.counts
        return np.repeat(np.arange(len(counts)), counts), ranges(self.start[self.offer], counts)

    @cached_property
    def _looked_at(self) -> BoolArray:
        return np.zeros(len(self), dtype=bool)

    @cached_property
    def _seen(self) -> Worth:
        """Options to run, as far as they were looked at."""
        n = len(self)
        flags, uses, numbers = (np.zeros((m, n), dtype=of) for m, of in ((2, bool), (6, int), (11, object)))
        return Worth(*flags, *numbers[:2], *uses[:3], *numbers[2:6], *uses[3:], *numbers[6:])

    @cached_property
    def _waiting(self) -> Worth:
        return self.waiting(np.arange(len(self.offer)))

    def of(self, jobs: IntArray) -> Listed:
        """Options of some jobs."""
        counts = self.counts[jobs]
        start = np.cumsum(counts) - counts
        row = ranges(self.start[self.offer[jobs]], counts)
        return Listed(jobs, start, self.running(np.repeat(jobs, counts), row), self.waiting(jobs))

    def staying(self, jobs: IntArray) -> tuple[IntArray, IntArray, Worth]:
        """Options of jobs in the place that they hold, of those that have any.

        Returns
        -------
        places : int array
            Which of the jobs have some.
        start : int array
            Where the options of each begin.
        options : Worth
        """
        held, span = self.held[jobs], len(self.place) + 1
        of_row = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start)) * span + self.place
        order = np.argsort(of_row, kind="stable")
        wanted = np.where(held < 0, -1, self.offer[jobs] * span + held)
        first, last = (np.searchsorted(of_row, wanted, side, sorter=order) for side in ("left", "right"))
        places, counts = np.flatnonzero(last > first), last - first
        counts = counts[places]
        rows = order[ranges(first[places], counts)]
        worth = self.running(np.repeat(jobs[places], counts), rows)
        return places, np.cumsum(counts) - counts, worth

    def running(self, job: IntArray, row: IntArray) -> Worth:
        """Options of jobs to run as rows."""
        restarts = self.runs[job] & (self.place[row] != self.held[job])
        lost_s = np.where(restarts, self.restart_s[job], 0)
        unit_s, power_w, idle_w = self.unit_s[row], self.power_w[row], self.idle_w[row]
        seconds = self.work[job] * unit_s + lost_s
        above_w, size_w = power_w - idle_w, self.arithmetic.magnitude(power_w + idle_w)
        if self.instance.budgets.scope == "round":
            busy_s = np.minimum(seconds, self.round_s)
            joules, joules_size = above_w * busy_s, size_w * busy_s
        else:
            busy_s = seconds
            joules = power_w * seconds
            joules_size = self.arithmetic.magnitude(joules)
        paid = np.where(restarts, self.change_cost[job], 0) if self.change_costs else 0
        energy, stays = (joules, joules_size), ~(restarts & self.kept[job])
        drawn_j = power_w * busy_s if self.metered else np.zeros(len(job), dtype=self.work.dtype)
        chosen = Choices(
            self.terms, job, True, seconds, lost_s, lambda: self.reference_s[job] / unit_s, paid, *energy
        )
        return Worth(
            *self._chosen(chosen, stays, drawn_j),
            # A job that keeps its GPUs needs no room: they were never free.
            np.where(self.kept[job], 0, self.room[row]),
            self.link[row],
            self.watt[row],
            above_w,
            size_w,
            joules,
            joules_size,
            self.tenant_gpu[job],
            self.tenant_watt[job],
            self.tenant_joule[job],
            self.gpus[row],
            power_w,
            drawn_j,
            *self._goodput(job, unit_s, lost_s),
        )

    def _goodput(self, job: IntArray, unit_s: Numbers, lost_s: Numbers) -> tuple[Numbers, Numbers]:
        """Goodput of jobs at so many seconds per unit of work, and the sizes, where there is a least one."""
        if self.instance.budgets.least_goodput is None:
            nothing = np.zeros(len(job), dtype=self.work.dtype)
            return nothing, nothing
        speed, weight = self.reference_s[job] / unit_s, self.weight[job]
        found = goodput_of(speed, weight, lost_s, self.round_s)
        return found, self.arithmetic.magnitude(weight * speed)

    def waiting(self, jobs: IntArray) -> Worth:
        """Options of waiting, which pay for the least energy that a job needs later."""
        none, no_use = 0 * self.work[jobs], np.zeros(len(jobs), dtype=np.int64)
        joules = self._least_joules(jobs) if self.instance.budgets.scope == "completion" else none
        seconds = self.round_s + self.terms.best_s[jobs]
        # Who runs now is stopped; of all others a change costs nothing.
        paid = self.change_cost[jobs] if self.change_costs else 0
        size = self.arithmetic.magnitude(joules)
        chosen = Choices(self.terms, jobs, False, seconds, none, lambda: none, paid, joules, size)
        worth = self._chosen(chosen, self.can_wait[jobs])
        uses = no_use, no_use, no_use, none, none, joules, size
        return Worth(*worth, *uses, no_use, no_use, no_use, none, none, none, none, none)

    def _least_joules(self, jobs: IntArray) -> Numbers:
        """Least energy of jobs that begin anew, alone."""
        found = 0 * self.work[jobs]
        kinds, start_s = self.configurations.kind[jobs], self.restart_s[jobs]
        for kind, places in alike(kinds):
            per_work, power_w = self._thrifty[kind]
            least = per_work[0] * self.work[jobs[places]] + power_w[0] * start_s[places]
            for joules, watts in zip(per_work[1:], power_w[1:], strict=True):
                least = np.minimum(least, joules * self.work[jobs[places]] + watts * start_s[places])
            found[places] = least
        return found

    @cached_property
    def _thrifty(self) -> list[tuple[Numbers, Numbers]]:
        """Of each kind joules per unit of work, and watts, of rows that may need the least energy."""
        found = []
        for first, last in pairwise(self.configurations.start.tolist()):
            power_w = self.power_w[first:last]
            joules = self.unit_s[first:last] * power_w
            left = skyline([joules, power_w])
            found.append((joules[left], power_w[left]))
        return found

    def _chosen(
        self, chosen: Choices, allowed: BoolArray, drawn_j: Numbers | None = None
    ) -> tuple[BoolArray, BoolArray, Numbers, Numbers]:
        """Whether options are possible, surely so, and what they cost; `drawn_j` of those to run."""
        job = chosen.job
        possible = allowed & (chosen.seconds <= self.latest_s[job])
        certain = allowed & (chosen.seconds <= self.surely_s[job])
        if self.metered and drawn_j is not None:
            possible &= drawn_j <= self.most_j[job]
            certain &= drawn_j <= self.surely_j[job]
        return possible, certain, *costs_of(self.instance, chosen, self.arithmetic)


def _limits(stated: FloatArray, factor: Number, arithmetic: Arithmetic) -> Numbers:
    """Parts of what limits jobs, such as deadlines; the largest number for those that have none."""
    none = np.isnan(stated)
    most = factor * arithmetic.array(np.where(none, 0.0, stated))
    return np.asarray(np.where(none, arithmetic.number(sys.float_info.max), most))
