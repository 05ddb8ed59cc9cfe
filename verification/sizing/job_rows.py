"""Rows and jobs of a round as arrays, in either arithmetic: what options are made of.

Nothing here depends on prices.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import FloatArray, IntArray, alike
from wattsched.topology.column import NONE
from wattsched.verification.arithmetic import Arithmetic, Number, Numbers
from wattsched.verification.report import TOLERANCE
from wattsched.verification.sizing.configurations import Configuration, JobConfigurations
from wattsched.verification.sizing.objectives import RELATIVE, terms_of
from wattsched.verification.sizing.tenants import alone_j, metered

SURELY_IN_TIME = 1 - Fraction(1, 10**12)
"""Up to this part of its deadline an option is in time by any arithmetic."""

SMALLEST, LARGEST = 1e-40, 1e40
"""Between these no product of the numbers of an instance and its prices leaves the range of doubles."""

Use = tuple[str, ...] | tuple[str, str, int]
"""Use that an option can pay for: a block, or so many GPUs, ``("room", POOL, SIZE)``; a watt above idle,
``("watt", POOL)``; a joule, ``("joule",)``; ``("share", SET, POOL, JOB)``; of a tenant's jobs a GPU,
``("gpus", TENANT)``, a watt, ``("draw", TENANT)``, and a joule, ``("drawn", TENANT)``; or give,
``("goodput",)``; what it is worth in another objective, ``("objective", NAME)``, and 1 for what is as in
another decision, ``("same", NUMBER)``. What a node that is woken gives as room, ``("node", POOL)``, and pays
for its watts, ``("node_watt", POOL)``, and joules, ``("node_joule",)``."""


JOULE_USE, GOODPUT_USE = 1, 2
"""Numbers of two uses in `JobRows.uses`."""


class JobRows:
    """Every job with every configuration that it may run as.

    Jobs of one kind have one *offer*, of the number of the kind; a job with configurations in sets has one
    of its own.

    Attributes
    ----------
    uses : dict of Use to int
        Everything that options pay for, numbered; 0 is no use.
    start : int array, shape (n_offers + 1,)
        Where each offer's configurations begin among the rows.
    unit_s, power_w, idle_w, gpus : arrays, shape (n_rows,)
        Seconds per unit of work; watts, those of the GPUs if idle, and GPUs, in a set parts of them.
    room, link, watt : int arrays, shape (n_rows,)
        Numbers of uses: the block, being in a set, watts above idle.
    doing : list, shape (n_rows,), or none where no decision is to be differed from
        What a job does that runs as a row: pool, GPU count, frequency, power limit, batch size and set.
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
    power_deviation, rate_deviation : arrays, shape (n_jobs,)
        Shares of the jobs' watts and rates that are uncertain.
    runs, kept, can_wait, timed : bool arrays, shape (n_jobs,)
        Those that are `timed` have a deadline, or so many joules.
    """

    def __init__(self, instance: Instance, configurations: JobConfigurations, arithmetic: Arithmetic):
        self.instance, self.configurations, self.arithmetic = instance, configurations, arithmetic
        self.uses: dict[Use, int] = {("joule",): JOULE_USE, ("goodput",): GOODPUT_USE}
        self.round_s = arithmetic.number(instance.round_s)
        places = self._read_rows(*self._offers())
        self._read_jobs(places)

    def _number(self, use: Use) -> int:
        """Return the number of a use, a new one where it has none yet."""
        return self.uses.setdefault(use, len(self.uses) + 1)

    def _offers(self) -> tuple[list[tuple[Configuration, str]], IntArray]:
        """Set `offer` and `start`.

        Returns
        -------
        in_sets : list of tuples
            Configurations in sets, each with the name of its job.
        parts : int array, shape (n_rows,)
            Configuration of each row: number of one alone, or beyond these of one in sets.
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
        """Set the arrays of rows; return the numbers in `place` by GPU count, batch size and pool."""
        a, every, types = self.arithmetic, self.configurations.every, self.instance.cluster.gpu_types
        sets = [row for row, _ in in_sets]
        stated = np.append(every.completion_s, [np.nan] * len(sets))
        rates = np.append(every.rate, [row.rate for row in sets])
        rates = a.array(np.where(np.isnan(stated), rates, 1.0))
        with np.errstate(over="ignore", divide="ignore"):
            self.unit_s = (1 / rates)[parts]
        timed = np.flatnonzero(~np.isnan(stated[parts]))
        self.unit_s[timed] = a.array(stated[parts[timed]])
        members = np.array([1] * len(every) + [row.members for row in sets])
        self.power_w = (a.array(np.append(every.power_w, [row.power_w for row in sets])) / members)[parts]
        settings = [*every.settings(list(self.configurations.pools)), *(row.setting for row in sets)]
        places: dict[tuple[str, int, int | None], int] = {}
        named = [(pool, gpus, batch) for pool, gpus, _, _, batch in settings]
        self.doing: list[tuple[object, ...]] = []
        if self.instance.unlike:
            together = [None] * len(every) + [row.set for row in sets]
            doing = [(*one, name) for one, name in zip(settings, together, strict=True)]
            self.doing = [doing[part] for part in parts.tolist()]
        self.place = np.array([places.setdefault(one, len(places)) for one in named], dtype=np.int64)[parts]
        gpus = np.array([count for _, count, _ in places], dtype=np.int64)
        pool_type = {name: types[pool.gpu_type] for name, pool in self.configurations.pools.items()}
        idle_w = a.array(pool_type[pool].idle_power_w for pool, _, _ in places) * gpus
        self.idle_w = idle_w[self.place] / members[parts]
        counts, row = np.unique(np.stack([gpus[self.place], members[parts]]), axis=1, return_inverse=True)
        self.gpus = a.array(Fraction(*count) for count in counts.T.tolist())[row.ravel()]
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
        """Set the arrays of jobs, by the numbers in `place` that `_read_rows` returns."""
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
        first, number = alike([held.gpus, held.batch_size, held.pool.codes])
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
        rates = of.reference_rate
        relative = RELATIVE & {self.instance.objective, *self.instance.budgets.reached}
        least_s = self._least_s(best_s) if relative else best_s
        self.terms = terms_of(of, rates, best_s, least_s, a, self.instance.objective)
        self.power_deviation = a.array(self.instance.deviations(jobs, "power_deviation"))
        self.rate_deviation = a.array(self.instance.deviations(jobs, "rate_deviation"))
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

    def _least_s(self, best_s: Numbers) -> Numbers:
        """Return the best completion of each job from now, where going on as it runs takes no restart."""
        of, a, least_s = self.configurations, self.arithmetic, best_s.copy()
        alone = np.arange(of.start[-1])
        kind = np.repeat(np.arange(len(of.start) - 1), np.diff(of.start))
        span = int(max(self.place.max(initial=0), self.held.max(initial=0))) + 1
        key = kind * span + self.place[alone]
        order = np.argsort(key, kind="stable")
        known, first = np.unique(key[order], return_index=True)
        running = np.flatnonzero(self.runs & (self.held >= 0))
        if not len(known) or not len(running):
            return least_s
        unit_s = np.minimum.reduceat(self.unit_s[alone][order], first)
        wanted = of.kind[running] * span + self.held[running]
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        same = known[place] == wanted
        going = running[same]
        least_s[going] = np.minimum(best_s[going], self.work[going] * unit_s[place[same]])
        return a.array(least_s)

    @cached_property
    def weight(self) -> Numbers:
        """Weights of the jobs, shape (n_jobs,)."""
        return self.arithmetic.array(self.configurations.weight)

    @cached_property
    def in_range(self) -> bool:
        """True if all numbers of the instance are far from the ends of the range of doubles."""
        instance, of = self.instance, self.configurations
        idle_w = [t.idle_power_w for t in instance.cluster.gpu_types.values()]
        sets = [row for j in of.settable.tolist() for row in of.in_sets(of.jobs.names[j])]
        numbers = [
            np.abs([instance.round_s, instance.carbon_g_per_kwh or 0.0, instance.price_per_kwh or 0.0]),
            np.array(idle_w),
            np.array([value for row in sets for value in (row.rate, row.power_w)]),
            *(of.every.rate, of.every.power_w),
            *(of.jobs.numbers(name) for name in ("remaining_work", "restart_s")),
            of.weight,
            of.change_cost,
        ]
        return all(bool(np.all((some == 0) | ((some >= SMALLEST) & (some <= LARGEST)))) for some in numbers)


def _limits(stated: FloatArray, factor: Number, arithmetic: Arithmetic) -> Numbers:
    """Return jobs' stated limits, such as deadlines, times a factor; the largest number for nan."""
    none = np.isnan(stated)
    most = factor * arithmetic.array(np.where(none, 0.0, stated))
    return np.asarray(np.where(none, arithmetic.number(sys.float_info.max), most))
