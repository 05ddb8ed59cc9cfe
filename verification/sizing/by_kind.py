r"""The least costs of jobs of one kind together: few rows for all of them, and few numbers for each job.

What option :math:`o` costs job :math:`j` at some prices is, for the objectives that are sums,

.. math:: v_j A_o + w_j C_o + r_j D_o + g_j E_o + B_o + z_j ,

where :math:`v_j` is by how much more the job is worth than a job of weight 1 and work 1, :math:`w_j` its
work, :math:`r_j` the seconds that it takes to begin anew, and :math:`g_j` its goodput with the fewest GPUs,
none of them negative. What energy is worth as an objective is what a joule pays. A row of which another has
no larger :math:`A, C, D, E, B` is not needed, whatever the jobs are; few are left. So the least over the rows
of a kind is a small product of matrices for all its jobs. In the scope of a round a job draws watts above
idle until it is complete or the round over, whichever is first: the less of two such costs, so each row is
two.

Left to `least_cost`, which looks at one option after the other, are jobs that may run in sets, keep what they
hold or are split, kinds of few jobs, objectives for which a restart is no such sum, watts below idle, and
rounds with tenants.

Errors. For a row at its true coefficients, let :math:`S` be the sum of the sizes of its terms, as in
`DOUBLES`. The coefficients have two roundings more than the factors that `DOUBLES` counts, by which they are
shifted down, and up, by :math:`\varepsilon = 32u` times their sizes; the product with a job's numbers has
five terms, and so an error of at most :math:`6u S` in whatever order it is summed (Higham 2002, "Accuracy and
stability of numerical algorithms", section 3.1); adding :math:`z_j`, a sum of two, rounds twice more. A term
has at most :math:`10u` from its own factors, :math:`9u` absolute where it is a logarithm, so together less
than :math:`20u S`: what is found with coefficients shifted down is below every option, and what is found with
those shifted up above one. Rows are compared by the coefficients that are shifted down, without any error: to
leave out a row where another one is as good leaves the least of what these lead to as it is, and any row may
be left out of what is above the cheapest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.arithmetic import DOUBLES, MOST_COMPARED, Numbers, alike, pareto_rows
from wattsched.verification.sizing.job_rows import GOODPUT_USE, JOULE_USE
from wattsched.verification.sizing.objectives import (
    ENERGY,
    SHORTEST_HOLD_S,
    Choices,
    JobTerms,
    costs_of,
    goodput_of,
    per_joule,
)
from wattsched.verification.sizing.options import Options

SEVERAL = 16
"""Jobs of a kind that are worth looking at together."""

PRODUCT = 1 << 16
"""Numbers of a product of matrices that are found at once: they stay in the processor's cache."""

VALUE, WORK, RESTART, GOODPUT, ONE = range(5)
"""Columns of coefficients, and what of a job they are multiplied with."""

ALWAYS = ("total-completion", "goodput", "work-value", *ENERGY)
"""Objectives that are sums of this form for jobs that restart, too; of `work-value` where none that does is
complete before the shortest time that a configuration is expected to be kept."""

SUMS = (*ALWAYS, "progress", "proportional")
"""Objectives that are for those that do not."""


class Rows(NamedTuple):
    """Ends of the coefficients of the rows of all kinds at some prices, shape (n_ways, n_rows, 5).

    What a row costs is the least of its ways.
    """

    low: FloatArray
    high: FloatArray


class Group(NamedTuple):
    """Jobs of one kind by number; all or none restart wherever they run, and all or none are `timed`."""

    kind: int
    restarts: bool
    timed: bool
    jobs: IntArray


class ByKind:
    """Jobs that are looked at together.

    Parameters
    ----------
    options : Options
        In doubles.

    Attributes
    ----------
    jobs : int array
        Numbers of the jobs, ascending.
    """

    def __init__(self, options: Options):
        self._options = options
        every = np.arange(len(options.offer))
        # What jobs of a `Group` have in common.
        self._code = 4 * options.offer + 2 * (options.restart_s > 0) + options.timed
        sums = options.instance.objective in SUMS and not options.instance.tenants
        sums &= not options.instance.budgets.objectives and not options.instance.unlike
        # Where a joule is paid for, the most joules count of a row's ways, and charges may cancel them.
        sums &= options.instance.objective not in ENERGY or per_joule(options.instance, DOUBLES) >= 0
        able = every[self._able()] if sums else every[:0]
        several = np.bincount(self._code[able], minlength=1) >= SEVERAL
        self.jobs = able[several[self._code[able]]]

    def _able(self) -> BoolArray:
        """Return the mask of the jobs whose costs are sums of this form, under an objective of `SUMS`."""
        options, of = self._options, self._options.configurations
        able = ~options.kept
        able[of.settable] = False
        if options.instance.budgets.scope == "round":
            above = options.power_w >= options.idle_w
            drawing = np.array([bool(above[rows].all()) for rows in self._slices])
            able &= np.append(drawing, np.zeros(len(of.settable), dtype=bool))[options.offer]
        restarts = options.restart_s > 0
        if options.instance.objective not in ALWAYS:
            able &= ~restarts
        if options.instance.objective == "work-value":
            hold_s = max(SHORTEST_HOLD_S, options.round_s)
            able &= ~restarts | (options.terms.best_s >= hold_s)
        return able

    @cached_property
    def _slices(self) -> list[slice]:
        """Rows of each kind."""
        start = self._options.configurations.start.tolist()
        return [slice(*ends) for ends in pairwise(start)]

    def groups(self, jobs: IntArray) -> Iterator[Group]:
        """Groups of some of the jobs."""
        for code, places in alike(self._code[jobs]):
            yield Group(code // 4, bool(code & 2), bool(code & 1), jobs[places])

    def least(self, paid: Numbers, jobs: IntArray) -> list[FloatArray]:
        """Bounds from below and above on what jobs' cheapest options to run cost; above with late ones, too.

        Parameters
        ----------
        paid : array, shape (n_uses + 1,)
            What options pay for each use (`Options.uses`).
        jobs : int array
            Ascending numbers of some of `jobs`. Options without a restart of jobs that have one count as if
            they had it, and paid for the change.
        """
        rows, found = self._rows(paid), np.full((3, len(self._code)), np.inf)
        for group in self.groups(jobs):
            found[:, group.jobs] = self._least(rows, group)
        return list(found[:, jobs])

    def dearest(self, jobs: IntArray) -> FloatArray:
        """Upper bounds on what the dearest options to run of some of the jobs cost without charges."""
        options, (near, size), (values, _) = self._options, self._worth, self._value
        above, found = near + DOUBLES.epsilon * size, np.full(len(self._code), -np.inf)
        for group in self.groups(jobs):
            worth, unit_s = above[self._slices[group.kind]], options.unit_s[self._slices[group.kind]]
            value = values[group.jobs]
            if options.instance.objective in ENERGY:
                found[group.jobs] = self._most_energy(group)
            elif group.timed:
                for part in _parts(len(group.jobs), len(worth)):
                    possible, _ = self._in_time(unit_s, group.jobs[part])
                    costs = np.where(possible, np.multiply.outer(worth, value[part]), -np.inf)
                    found[group.jobs[part]] = costs.max(axis=0)
            else:
                found[group.jobs] = worth.max() * value
            _, beside = self._beside(group)
            found[group.jobs] += beside
        return found[jobs]

    def _most_energy(self, group: Group) -> FloatArray:
        """Upper bounds on what the energy of a group's jobs costs in the objective."""
        options, of = self._options, self._slices[group.kind]
        power_w, unit_s = options.power_w[of], options.unit_s[of]
        if options.instance.budgets.scope == "round":
            most_j = np.full(len(group.jobs), (power_w + options.idle_w[of]).max() * options.round_s)
        else:
            most_j = (power_w * unit_s).max() * options.work[group.jobs]
            most_j += power_w.max() * options.restart_s[group.jobs]
        return np.asarray(most_j * (per_joule(options.instance, DOUBLES) * (1 + DOUBLES.epsilon)))

    def _least(self, rows: Rows, group: Group) -> FloatArray:
        """Return bounds on the costs of a group's cheapest options (see `least`), shape (3, n_jobs)."""
        of, jobs = self._slices[group.kind], group.jobs
        columns = [VALUE, WORK, *([RESTART] if group.restarts else [])]
        columns += [*([GOODPUT] if rows.low[0, of, GOODPUT].any() else []), ONE]
        low, high = (ends[:, of, columns].reshape(-1, len(columns)) for ends in rows)
        unit_s = np.tile(self._options.unit_s[of], len(rows.low))
        # To compare rows with so many takes as long as to multiply all of them with the jobs' numbers.
        most = min(MOST_COMPARED, len(jobs))
        left = pareto_rows([*low.T, unit_s] if group.timed else list(low.T), most)
        low, high, unit_s = low[left], high[left], unit_s[left]
        options, (value, _), (goodput, _) = self._options, self._value, self._goodput
        own = value, options.work, options.restart_s, goodput
        numbers = [*(number[jobs] for number in own), np.ones(len(jobs))]
        factors = np.stack([numbers[column] for column in columns])
        found = np.empty((3, len(jobs)))
        for part in _parts(len(jobs), len(left)):
            below, above = low @ factors[:, part], high @ factors[:, part]
            if group.timed:
                possible, certain = self._in_time(unit_s, jobs[part])
                below[~possible] = np.inf
                found[2, part] = np.where(possible, above, np.inf).min(axis=0)
                above[~certain] = np.inf
            found[0, part], found[1, part] = below.min(axis=0), above.min(axis=0)
        if not group.timed:
            found[2] = found[1]
        down, up = self._beside(group, np.abs(rows.low[0, of, GOODPUT]).max())
        return found + np.stack([down, up, up])

    def _in_time(self, unit_s: FloatArray, jobs: IntArray) -> tuple[BoolArray, BoolArray]:
        """Return masks by row and job: in time by the checker's tolerance, and by any arithmetic."""
        options = self._options
        seconds = np.multiply.outer(unit_s, options.work[jobs]) + options.restart_s[jobs]
        return seconds <= options.latest_s[jobs], seconds <= options.surely_s[jobs]

    @cached_property
    def _worth(self) -> tuple[FloatArray, FloatArray]:
        """Worth, as a cost, of every row of a kind to a job of weight 1 and work 1, and its size."""
        options, of = self._options, self._options.configurations
        n_rows, n_of_kind = int(of.start[-1]), np.diff(of.start)
        if options.instance.objective in ENERGY:  # for which joules pay
            return np.zeros(n_rows), np.zeros(n_rows)
        unit_s, ones = options.unit_s[:n_rows], np.ones(n_rows)
        of_kind = (options.kind_best_s, options.kind_reference_s)
        best_s, reference_s = (np.repeat(column, n_of_kind) for column in of_kind)
        chosen = Choices(
            JobTerms(ones, ones, best_s, best_s),
            job=np.arange(n_rows),
            runs=True,
            seconds=unit_s,
            lost_s=np.zeros(n_rows),
            speed=lambda: reference_s / unit_s,
        )
        return costs_of(options.instance, chosen, DOUBLES)

    @cached_property
    def _value(self) -> tuple[FloatArray, FloatArray]:
        """Factor by which each job is worth more than one of weight 1 and work 1, and its size."""
        options = self._options
        weight, every = options.terms.weight, np.arange(len(options.offer))
        match options.instance.objective:
            case "total-completion":
                value = weight * options.work
            case "progress":
                value = weight / options.work
            case "proportional":
                value = weight
            case name if name in ENERGY:
                value = 0.0 * weight
            case _:
                # What a job gains by running as fast as with the fewest GPUs, less what a restart takes.
                never, ones = np.full(len(every), np.inf), np.ones(len(every))
                lost_s = options.restart_s
                chosen = Choices(
                    options.terms, every, runs=True, seconds=never, lost_s=lost_s, speed=lambda: ones
                )
                cost, size = costs_of(options.instance, chosen, DOUBLES)
                return 0.0 - cost, size
        return value, value

    @cached_property
    def _goodput(self) -> tuple[FloatArray, FloatArray]:
        """Goodput of each job with the fewest GPUs, less what a restart takes, and the sizes."""
        options = self._options
        found = goodput_of(np.ones(len(options.weight)), options.weight, options.restart_s, options.round_s)
        return found, options.weight

    def _beside(self, group: Group, charge: float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Return bounds from below and from above on the part of jobs' costs that no choice changes.

        Parameters
        ----------
        charge : float
            The most that a unit of goodput is charged, or given.
        """
        value, size = (column[group.jobs] for column in self._value)
        late = 0.0 * value
        if self._options.instance.objective == "total-completion":
            late = self._options.terms.weight[group.jobs] * self._options.restart_s[group.jobs]
        late = late + self._options.change_cost[group.jobs]
        # The size of a value that is a difference is larger than it.
        _, worth_size = self._worth
        error = DOUBLES.epsilon * (late + (size - value) * worth_size[self._slices[group.kind]].max())
        if charge:
            good, of = (column[group.jobs] for column in self._goodput)
            error += DOUBLES.epsilon * charge * (of - good)
        return late - error, late + error

    def _rows(self, paid: Numbers) -> Rows:
        """Coefficients of all rows at the prices of uses."""
        options, n_rows = self._options, int(self._options.configurations.start[-1])
        power_w, idle_w, unit_s, watt, room = (
            column[:n_rows]
            for column in (options.power_w, options.idle_w, options.unit_s, options.watt, options.room)
        )
        instance, ends = options.instance, []
        joule = paid[JOULE_USE] + (per_joule(instance, DOUBLES) if instance.objective in ENERGY else 0.0)
        of_kind = np.repeat(options.kind_reference_s, np.diff(options.configurations.start))
        goodput = paid[GOODPUT_USE] * (of_kind / unit_s) if paid[GOODPUT_USE] else 0.0
        # The coefficients, then their sizes. In the scope of a round, joules are of the time to completion in
        # one way, and of the round in the other.
        for worth, above_w in zip(self._worth, (power_w - idle_w, power_w + idle_w), strict=True):
            once = paid[room] + paid[watt] * above_w
            ways = np.zeros((2, n_rows, 5))
            ways[:, :, VALUE], ways[:, :, GOODPUT], ways[:, :, ONE] = worth, goodput, once
            drawn_w = power_w
            if instance.budgets.scope == "round":
                drawn_w = above_w
                ways[1, :, ONE] += joule * (above_w * options.round_s)
            ways[0, :, WORK], ways[0, :, RESTART] = joule * (drawn_w * unit_s), joule * drawn_w
            two = joule and instance.budgets.scope == "round"
            ends.append(ways if two else ways[:1])
        near, size = ends
        error = DOUBLES.epsilon * np.abs(size)
        return Rows(near - error, near + error)


def by_kind_of(options: Options) -> ByKind:
    """Jobs of options in doubles that are looked at together; they are kept with the options."""
    if options.by_kind is None:
        options.by_kind = ByKind(options)
    found: ByKind = options.by_kind
    return found


def _parts(n_jobs: int, n_rows: int) -> Iterator[slice]:
    """Slices of jobs that are multiplied with rows at once."""
    step = max(1, PRODUCT // max(1, n_rows))
    return (slice(first, first + step) for first in range(0, n_jobs, step))
