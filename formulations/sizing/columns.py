"""Choice columns that the formulations of `sizing` have in common: one for each option worth keeping.

Options that another option of the same job dominates are dropped before anything is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.sizing.budgets import (
    METERED,
    BudgetRow,
    budget_rows,
    extra_power_w,
    quotas_of,
    under,
)
from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.objectives import Objective
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.sizing.requirements import good_enough, requirements_of
from wattsched.formulations.sizing.uncertainty import costs
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, offsets, run_starts
from wattsched.topology.column import NONE

_CELLS = 4_000_000
"""Comparisons held in memory at once."""

_STEP = 16
"""Lengths of runs are rounded up to multiples of this, so that many are compared at once."""


def undominated(options: Options, cost: FloatArray) -> BoolArray:
    """Mask of options worth keeping, shape (n_options,).

    An option goes when another option of the same job in the same pool costs no more, takes no larger
    block and uses no more of any budget (the first of equals stays), or when waiting does. Options in sets
    stay, and beat none: they depend on what other jobs do.
    """
    criteria = _criteria(options, cost)
    keep = ~_beaten_by_waiting(options, criteria)
    # What is left is compared in pairs, so it pays to drop the others first.
    left = np.flatnonzero(keep & ~options.shared)
    keep[left] = ~beaten_in_runs(options.job[left], options.pool[left], criteria[:, left])
    return keep


def _criteria(options: Options, cost: FloatArray) -> FloatArray:
    """Cost, block and uses of budgets of every option, shape (n_criteria, n_options)."""
    uses = [*_budget_criteria(options), *_quota_criteria(options)]
    return np.array([cost, options.block.astype(float), *uses])


def _budget_criteria(options: Options) -> list[FloatArray]:
    """Watts, joules and goodput, where these are limited; grams and watts of domains follow from them."""
    budgets = options.instance.budgets
    capped = np.array([budgets.power_w is not None or bool(p.domains) for p in options.pools] + [False])
    criteria = [np.where(capped[options.pool], extra_power_w(options), 0.0)] if capped.any() else []
    if capped.any() and options.of.box:  # a job's deviations grow with its watts
        criteria.append(np.where(capped[options.pool], options.power_w, 0.0))
    if budgets.energy_j is not None or budgets.carbon_g is not None:
        energy = options.counted_j
        if not any(np.array_equal(energy, power * options.instance.round_s) for power in criteria):
            criteria.append(energy)
    criteria += [-one.use if one.least else one.use for one in requirements_of(options)]
    return criteria if budgets.least_goodput is None else [*criteria, -options.goodput]


def _quota_criteria(options: Options) -> list[FloatArray]:
    """GPUs, watts and joules of the options that quotas count, as far as there are such quotas."""
    quotas, found = quotas_of(options.instance), list[FloatArray]()
    for counted, amount in ((("gpus",), "gpu_share"), (("power",), "power_w"), (METERED, "drawn_j")):
        if some := [quota for quota in quotas if quota.counts in counted]:
            found.append(np.where(under(options, some), getattr(options, amount), 0.0))
    return found


def row_criteria(known: RoundJobs, value: FloatArray) -> dict[str, FloatArray]:
    """Return criteria, `value` among them, of which less makes a row better for all jobs; {} if none does."""
    rows, budgets = known.configurations, known.instance.budgets
    extra_w = rows.power_w - known.row_idle_w
    # Not for deadlines alone: what is quicker has used less of a budget when the round ends.
    pace = 1.0 / rows.rate
    criteria = {"value": value, "block": rows.block.astype(float)}
    if not np.array_equal(value, pace):
        criteria["pace"] = pace
    energy = budgets.energy_j is not None or budgets.carbon_g is not None
    capped = budgets.power_w is not None or bool(known.instance.cluster.power_domains)
    if capped or (energy and budgets.scope == "round"):
        criteria["extra_w"] = extra_w
    if energy and budgets.scope == "completion":
        criteria["energy"] = rows.power_w / rows.rate
        if known.restart_s.any():  # it draws as much while it restarts
            criteria["power_w"] = rows.power_w
    elif energy and (extra_w < 0).any():  # the longer, the less such a row uses
        return {}
    quotas = quotas_of(known.instance)
    if any(quota.counts == "gpus" for quota in quotas):
        criteria["gpus"] = rows.gpus.astype(float)
    # What draws no more and is as quick uses no more joules, in either scope.
    if any(quota.counts in ("power", *METERED) for quota in quotas):
        criteria["power_w"] = rows.power_w
    return criteria


def _beaten_by_waiting(options: Options, criteria: FloatArray) -> BoolArray:
    """Mask of options, none in a set, that have no less of any criterion than their job's waiting."""
    # A job's waiting option, where it has one, is its last.
    rival = (options.start[1:] - 1)[options.job]
    beaten = options.waiting[rival] & ~options.waiting & ~options.shared
    for values in criteria:
        beaten &= values[rival] <= values
    return beaten


def beaten_in_runs(job: IntArray, pool: IntArray, criteria: FloatArray) -> BoolArray:
    """Mask of columns that another one of the same job and pool beats, or equals and comes first."""
    if len(criteria) == 2:
        return _beaten_by_two(job, pool, *criteria)
    # Waiting is a run of its own.
    return _beaten_in_run(np.append(run_starts(job, pool), len(job)), criteria)


def _beaten_by_two(job: IntArray, pool: IntArray, first: FloatArray, second: FloatArray) -> BoolArray:
    """Mask of beaten columns where two criteria count: by the second, they have no less of the first."""
    n, begins = len(job), np.ones(len(job), dtype=bool)
    begins[1:] = (job[1:] != job[:-1]) | (pool[1:] != pool[:-1])
    run = begins.cumsum()
    if not (begins[1:] | (second[1:] >= second[:-1])).all():
        order = np.lexsort((second, run))
        beaten = np.empty(n, dtype=bool)
        beaten[order] = _beaten_by_two(run, run, first[order], second[order])
        return beaten
    # Of those of a run that are equal in the second, the first of the least is left.
    starts = run_starts(run, second)
    least = np.minimum.reduceat(first, starts) if n else first
    hits = np.flatnonzero(first == np.repeat(least, np.diff(np.append(starts, n))))
    left = hits[np.searchsorted(hits, starts)]
    values, rank = np.unique(least, return_inverse=True)
    # Runs are apart, the later the lower.
    height = rank - run[left] * (len(values) + 1)
    beaten = np.ones(n, dtype=bool)
    beaten[left] = False
    beaten[left[1:]] = np.minimum.accumulate(height)[:-1] <= height[1:]
    return beaten


def _beaten_in_run(runs: IntArray, criteria: FloatArray) -> BoolArray:
    """Mask of columns that another one of their run beats, or equals and comes first."""
    n = criteria.shape[1]
    # Runs of about the same length are compared together, filled up with a column that beats nothing.
    padded = np.hstack([criteria, np.full((len(criteria), 1), np.inf)])
    beaten = np.zeros(n + 1, dtype=bool)
    length = np.diff(runs)
    width = -(-length // _STEP) * _STEP
    for size in np.unique(width[length > 1]):
        members = np.flatnonzero((width == size) & (length > 1))
        step = max(1, int(_CELLS // (size * len(criteria))))
        for i in range(0, len(members), step):
            some = members[i : i + step, None]
            place = np.arange(size)
            cells = np.where(place < length[some], runs[some] + place, n)
            beaten[cells] = _pareto(padded[:, cells])
    return beaten[:n]


def _pareto(values: FloatArray) -> BoolArray:
    """Mask of dominated members of equally long runs, shape (n_runs, size).

    Smaller values are better; their shape is (n_criteria, n_runs, size).
    """
    size = values.shape[2]
    order = np.lexsort(values[::-1], axis=-1)
    ranked = np.take_along_axis(values, order[None], axis=2)
    beaten = np.zeros(order.shape, dtype=bool)
    # In lexicographic order only an earlier member can dominate a later one, equals included.
    for i in range(size - 1):
        worse = ~beaten[:, i : i + 1] & ~beaten[:, i + 1 :]
        for criterion in ranked[1:]:
            worse &= criterion[:, i : i + 1] <= criterion[:, i + 1 :]
        beaten[:, i + 1 :] |= worse
    result = np.empty_like(beaten)
    np.put_along_axis(result, order, beaten, axis=1)
    return result


def worst_range(start: IntArray, cost: FloatArray) -> tuple[float, float]:
    """Bounds on the worst job's cost: no better than the worst of the bests, no worse than the worst."""
    if not len(cost):
        return 0.0, 0.0
    best = np.minimum.reduceat(cost, start[:-1])
    return float(best.max()), float(cost.max())


@dataclass(frozen=True)
class Link:
    """Two columns of a set, of its first job and another: both are taken or none is.

    A column is None where its job's deadline rules the set out.
    """

    name: str
    first: int | None
    other: int | None


@dataclass(frozen=True)
class Choices:
    """The columns that stand for options.

    Attributes
    ----------
    options : Options
    objective : Objective
    index : int array, shape (n_choices,)
        Option of each column.
    start : int array, shape (n_jobs + 1,)
        Columns of job j are ``start[j]`` to ``start[j + 1]``.
    cost : float array, shape (n_choices,)
        To be minimised.
    """

    options: Options
    objective: Objective
    index: IntArray
    start: IntArray
    cost: FloatArray

    def __len__(self) -> int:
        return len(self.index)

    @property
    def dropped(self) -> int:
        """Number of dominated options."""
        return len(self.options) - len(self.index)

    @cached_property
    def budgets(self) -> list[BudgetRow]:
        """Budget rows of the columns."""
        return budget_rows(self.options, self.index)

    @cached_property
    def needs_room(self) -> BoolArray:
        """Mask of columns that need a block of free GPUs."""
        options = self.options
        return ~(options.waiting[self.index] | options.fixed[self.job]) & (self.block > 0)

    @cached_property
    def taken(self) -> IntArray:
        """Free GPUs that each column takes for itself."""
        return np.where(self.needs_room, self.block, 0)

    @cached_property
    def links(self) -> list[Link]:
        """Pairs of columns, by set and pool, that are taken together: its first job's and another's."""
        options, names = self.options, self.options.of.jobs.names
        columns = np.flatnonzero(options.shared[self.index])
        of_column = zip(
            options.job_set[self.index[columns]].tolist(), self.job[columns].tolist(), strict=True
        )
        at = dict(zip(of_column, columns.tolist(), strict=True))
        return [
            Link(f"share:{one.declared.name}:{options.pools[one.pool].name}:{names[j]}", first, other)
            for s, one in enumerate(options.job_sets)
            for first in [at.get((s, one.members[0]))]
            for j in one.members[1:]
            for other in [at.get((s, j))]
            if first is not None or other is not None
        ]

    @cached_property
    def pool(self) -> IntArray:
        """Pool of each column, -1 for waiting."""
        return self.options.pool[self.index]

    @cached_property
    def block(self) -> IntArray:
        """Block size of each column; 0 for waiting, and in sets for all jobs but the first."""
        return self.options.block[self.index]

    @cached_property
    def job(self) -> IntArray:
        """Job of each column."""
        return self.options.job[self.index]

    @cached_property
    def criteria(self) -> FloatArray:
        """Cost, block and uses of budgets of every option, shape (n_criteria, n_options)."""
        return _criteria(self.options, costs(self.options, self.objective))

    def attributes(self) -> dict[str, FloatArray]:
        """Quantities of the columns that published rules read: GPUs, seconds and joules."""
        options, index = self.options, self.index
        return {
            "gpus": options.gpus[index].astype(float),
            "completion_s": options.completion_s[index],
            "energy_j": options.energy_j[index],
        }

    def name_of(self, column: int) -> str:
        """Name such as ``job7:A100:8g:b256:1200MHz``, ``job7:A100:2g:set:pair`` and ``job7:wait``."""
        options, i = self.options, int(self.index[column])
        name = options.of.jobs.names[options.job[i]]
        if options.pool[i] < 0:
            return f"{name}:wait"
        parts = [name, options.pools[options.pool[i]].name, f"{options.gpus[i]}g"]
        settings = ((options.batch_size, "b{:.0f}"), (options.frequency_mhz, "{:.0f}MHz"))
        parts += [form.format(values[i]) for values, form in settings if not np.isnan(values[i])]
        if not np.isnan(options.power_limit_w[i]):
            parts.append(f"{options.power_limit_w[i]:g}W")
        if options.shared[i]:
            return ":".join([*parts, "set", options.job_sets[options.job_set[i]].declared.name])
        # Option tables may hold several rows with the same settings.
        unique = bool((options.of.jobs.coded("model").codes != NONE).all())
        return ":".join(parts) if unique else f"{':'.join(parts)}#{i}"

    def chosen(self, x: FloatArray) -> IntArray:
        """Chosen option of each job from a point of the program."""
        if not len(self):
            return np.empty(0, dtype=np.int64)
        picked = np.flatnonzero(x[: len(self)] > 0.5)
        if len(picked) != len(self.start) - 1 or not np.array_equal(self.job[picked], np.arange(len(picked))):
            raise ValueError("the point does not choose exactly one option of every job")
        return self.index[picked]


def choices(options: Options, objective: str, *, keep_dominated: bool = False) -> Choices:
    """Columns for the undominated options (or for all of them).

    Raises
    ------
    ValueError
        If a job has no option at all, so that no program can be built, or the objective is unknown.
    InfeasibleError
        If a job has none that another objective's limit leaves.
    """
    goal, empty = find_objective(objective), np.flatnonzero(np.diff(options.start) == 0)
    if len(empty):
        names = [options.of.jobs.names[j] for j in empty[:5].tolist()]
        raise ValueError(f"no option meets the deadline of: {', '.join(names)}")
    if options.instance.budgets.reached and not (enough := good_enough(options)).all():
        options = options.take(np.flatnonzero(enough))
        for j in np.flatnonzero(np.diff(options.start) == 0)[:1].tolist():
            limits = options.instance.budgets.reached.items()
            told = ", ".join(f"{name} {limit:.9g}" for name, limit in limits)
            raise InfeasibleError(f"job '{options.of.jobs.names[j]}' has no option within the limits {told}")
    cost = costs(options, goal)
    keep = np.ones(len(options), dtype=bool) if keep_dominated else undominated(options, cost)
    index = np.flatnonzero(keep)
    counts = np.bincount(options.job[index], minlength=len(options.start) - 1)
    start = offsets(counts)
    return Choices(options, goal, index, start, cost[index])
