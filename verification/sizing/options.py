"""Every option of every job as arrays, in either arithmetic, with what it is worth and what it pays for.

An option is a job with a configuration, alone or in a set, or a job that waits. Nothing here depends on
prices. The checker lets an option be late by its tolerance: such options count for what is proven, and not
for what can have been claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray, IntArray, offsets, ranges
from wattsched.verification.arithmetic import Arithmetic, Numbers, alike, pareto_rows
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.job_rows import JobRows
from wattsched.verification.sizing.objectives import Choices, costs_of, goodput_of, slowed
from wattsched.verification.sizing.requirements import WAITS, Requirements

CHUNK = 1 << 18
"""Options that are looked at together: their arrays stay in the processor's cache."""


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
        Watts above idle; joules in the scope of the budgets.
    tenant_gpu, tenant_watt, tenant_joule : int arrays
        Numbers of the uses that `gpus`, `draw_w` and `drawn_j` are of: whatever a job's tenant has; 0 for
        none.
    gpus, draw_w, drawn_j : arrays
        In a set an equal part of them; joules where tenants have quotas of them, else 0.
    goodput, goodput_size : arrays
        Where there is a least one; else 0.
    deviation_w : array
        Watts by which an option may draw more than it states; 0 without uncertainty.
    slower, slower_size : arrays
        Cost by which a slower job may be worse, and the size of the numbers that it was computed from.
    required, required_size : arrays, shape (n_options, n_uses)
        What is paid for by rows of `requirements`.
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
    deviation_w: Numbers
    slower: Numbers
    slower_size: Numbers
    required: Numbers
    required_size: Numbers

    def take(self, which: BoolArray) -> Worth:
        """Return some of the options."""
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
        """Number of options to run of each job, shape (n_jobs,)."""
        return np.diff(self.start, append=len(self.running.cost))


class Options(JobRows):
    """Every option of the jobs, job by job, with what it is worth and what it pays for.

    Attributes
    ----------
    uncharged : tuple of Fraction, optional
        `dearest` and `worth` of `LeastCosts`, once they were found.
    by_kind : by_kind.ByKind, optional
        Jobs that are looked at by kind, once these were asked for.
    """

    def __init__(self, instance: Instance, configurations: JobConfigurations, arithmetic: Arithmetic):
        super().__init__(instance, configurations, arithmetic)
        self.uncharged: tuple[Fraction, Fraction] | None = None
        self.by_kind: Any = None
        self.requirements = Requirements(configurations, arithmetic, self.terms, self.doing)
        if self.requirements.rule_out:
            self.timed = np.ones_like(self.timed)

    def __len__(self) -> int:
        """Options to run of all jobs."""
        return int(self.counts.sum())

    @cached_property
    def counts(self) -> IntArray:
        """Number of options to run of each job, shape (n_jobs,)."""
        return np.diff(self.start)[self.offer]

    def parts(self, jobs: IntArray | None = None) -> Iterator[Listed]:
        """Yield options of jobs, about `CHUNK` together; those of all jobs are kept if that is one part."""
        if jobs is None and len(self) <= CHUNK:
            yield self.of_all
            return
        jobs = np.arange(len(self.offer)) if jobs is None else jobs
        ends, first = offsets(self.counts[jobs]), 0
        while first < len(jobs):
            last = max(first + 1, int(np.searchsorted(ends, ends[first] + CHUNK, side="right")) - 1)
            yield self.of(jobs[first:last])
            first = last

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
        """Mask of the options to run in `_seen` that were looked at."""
        return np.zeros(len(self), dtype=bool)

    @cached_property
    def _seen(self) -> Worth:
        """Options to run, as far as they were looked at, with room for all others."""
        n = len(self)
        flags, uses, numbers = (np.zeros((m, n), dtype=of) for m, of in ((2, bool), (6, int), (14, object)))
        required = np.zeros((2, n, len(self.requirements.uses)), dtype=object)
        # In the order of the fields.
        return Worth(*flags, *numbers[:2], *uses[:3], *numbers[2:6], *uses[3:], *numbers[6:], *required)

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
        """Options of jobs to run, each as a row."""
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
        drawn_j = power_w * busy_s if self.metered else np.zeros(len(job), dtype=self.work.dtype)
        chosen = Choices(
            self.terms,
            job,
            runs=True,
            seconds=seconds,
            lost_s=lost_s,
            speed=lambda: self.reference_s[job] / unit_s,
            change_cost=np.where(restarts, self.change_cost[job], 0) if self.change_costs else 0,
            joules=joules,
            joules_size=joules_size,
        )
        goodput, goodput_size = self._goodput(job, unit_s, lost_s)
        possible = self._chosen(chosen, ~(restarts & self.kept[job]), drawn_j)
        slower, slower_size = self._slower(chosen, seconds - lost_s, possible[2:])
        required, required_size = self.requirements.paid(chosen, row)
        return Worth(
            *possible,
            # A job that keeps its GPUs needs no room: they were never free.
            room=np.where(self.kept[job], 0, self.room[row]),
            link=self.link[row],
            watt=self.watt[row],
            watts=above_w,
            watts_size=size_w,
            joules=joules,
            joules_size=joules_size,
            tenant_gpu=self.tenant_gpu[job],
            tenant_watt=self.tenant_watt[job],
            tenant_joule=self.tenant_joule[job],
            gpus=self.gpus[row],
            draw_w=power_w,
            drawn_j=drawn_j,
            goodput=goodput,
            goodput_size=goodput_size,
            deviation_w=power_w * self.power_deviation[job],
            slower=slower,
            slower_size=slower_size,
            required=required,
            required_size=required_size,
        )

    def _slower(
        self, chosen: Choices, works_s: Numbers, known: tuple[Numbers, ...]
    ) -> tuple[Numbers, Numbers]:
        """Return by how much choices cost more where jobs are slower, and the sizes of that.

        Parameters
        ----------
        works_s : array, shape (n_choices,)
            Seconds that a job works, those of a restart not among them.
        known : tuple of arrays
            Costs and sizes of the choices as stated.
        """
        share = self.rate_deviation[chosen.job]
        if not share.any():
            nothing = 0 * works_s
            return nothing, nothing
        cost, size = known
        slow, slow_size = costs_of(self.instance, slowed(chosen, works_s, share), self.arithmetic)
        # Slower seconds and speeds were rounded a few times more.
        return np.maximum(0, slow - cost), 2 * (size + slow_size)

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
        size = self.arithmetic.magnitude(joules)
        chosen = Choices(
            self.terms,
            jobs,
            runs=False,
            seconds=self.round_s + self.terms.best_s[jobs],
            lost_s=none,
            speed=lambda: none,
            # Who runs now is stopped; of all others a change costs nothing.
            change_cost=self.change_cost[jobs] if self.change_costs else 0,
            joules=joules,
            joules_size=size,
        )
        worth = self._chosen(chosen, self.can_wait[jobs])
        slower = self._slower(chosen, self.terms.best_s[jobs] - self.restart_s[jobs], worth[2:])
        # In the order of the fields: of all uses only joules, which have no number there.
        uses = no_use, no_use, no_use, none, none, joules, size
        tenants = no_use, no_use, no_use, none, none, none
        required = self.requirements.paid(chosen, WAITS)
        return Worth(*worth, *uses, *tenants, none, none, none, *slower, *required)

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
        """Joules per unit of work and watts, by kind, of the rows that may need the least energy."""
        found = []
        for first, last in pairwise(self.configurations.start.tolist()):
            power_w = self.power_w[first:last]
            joules = self.unit_s[first:last] * power_w
            left = pareto_rows([joules, power_w])
            found.append((joules[left], power_w[left]))
        return found

    def _chosen(
        self, chosen: Choices, allowed: BoolArray, drawn_j: Numbers | None = None
    ) -> tuple[BoolArray, BoolArray, Numbers, Numbers]:
        """Return the masks of possible and of surely possible options, their costs and the sizes of these.

        `drawn_j` is the energy of the options to run.
        """
        job = chosen.job
        possible = allowed & (chosen.seconds <= self.latest_s[job])
        certain = allowed & (chosen.seconds <= self.surely_s[job])
        if self.metered and drawn_j is not None:
            possible &= drawn_j <= self.most_j[job]
            certain &= drawn_j <= self.surely_j[job]
        if self.requirements.rule_out:
            possible &= self.requirements.within(chosen)
            certain &= self.requirements.within(chosen, surely=True)
        return possible, certain, *costs_of(self.instance, chosen, self.arithmetic)
