"""An instance of shifting as arrays: jobs, the options of their tables, and the slots of the horizon.

The objective, and what budgets limit, are four criteria: the weighted mean of completion times in seconds,
grams of CO2, joules and money; arrays of shape (4,) have them in this order. A *cell* is a pool in a slot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wattsched.formulations.tolerances import ROUNDING
from wattsched.instances.shifting.forecasts import by_slot
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, largest_by

CRITERIA = ("completion_s", "carbon_g", "energy_j", "money")
"""Criteria that schedules are judged by; also the names of the budget rows and their prices."""
BUDGET_FIELDS = ("average_completion_s", "carbon_g", "energy_j", "money")
OBJECTIVES = ("mean-completion", "carbon", "energy", "money")
PAUSE = -1
"""Stands for an option where a job does not run in a slot."""
NO_KIND = -1
"""Kind of options of a job that holds no GPUs."""
OF_JOBS = (
    *("table", "first_slot", "kind_before", "ran_before", "must_finish", "work", "most_left", "share"),
    *("arrival_s", "deadline_s", "restart_s"),
)
"""Arrays of a horizon with an entry for each job."""
LEFT_OVER = 0.05
"""Share of a pool's GPUs that groups of a size leave over at least where they are counted."""


@dataclass(frozen=True)
class Horizon:
    """Jobs, options and slots of an instance.

    The options of a table that fit into their pools are listed once, whatever number of jobs share it.
    Options of one *kind* differ in frequency or power limit alone, so that changing between them is no
    restart; kinds are numbered over all tables.

    Attributes
    ----------
    instance : ShiftingInstance
    slots : int
        Their number.
    slot_s, begin_s : float arrays, shapes (slots,) and (slots + 1,)
        Seconds of each slot, and up to its begin; the last begin is the end of the horizon.
    resources : tuple of str
        ``gpus:POOL`` for the GPUs of a pool, ``groups:POOL:SIZE`` for its disjoint groups of so many GPUs,
        then ``power_w`` and ``power_w:DOMAIN`` for watts under a cap.
    capacity, slack : float arrays, shape (n_resources, slots)
        GPUs, groups, and watts that idle GPUs leave under a cap; and what of them counts as rounding.
    per_joule : float array, shape (3, slots + 1)
        Grams, joules and money per joule drawn in a slot; the last column is for what is drawn after the
        horizon.
    idle_use : float array, shape (4,)
        What all GPUs add to the criteria if they are idle throughout.
    option_start : int array, shape (n_tables + 1,)
        Options of a table are ``option_start[table]`` to ``option_start[table + 1]``.
    row, pool, gpus, kind : int arrays, shape (n_options,)
        `row` is that of the table.
    uses : float array, shape (n_options, n_resources)
        GPUs, groups, and watts above idle, that an option takes of each resource in a slot.
    rate, power_w, extra_w : float arrays, shape (n_options,)
        Work in a second, and watts; `extra_w` are those above the same GPUs' when they are idle.
    fastest : int array, shape (n_tables,)
        Option of most work in a second.
    table, first_slot, kind_before : int arrays, shape (n_jobs,)
        `kind_before` is what the job holds when the horizon begins, `NO_KIND` for nothing.
    ran_before, must_finish : bool arrays, shape (n_jobs,)
    work, most_left, share, arrival_s, deadline_s, restart_s : float arrays, shape (n_jobs,)
        `most_left` of the work may be left at the end of the horizon. `share` is the job's weight in the mean
        completion time; they add up to 1.
    budget : float array, shape (4,)
        Upper limits of the criteria, infinite for none.
    """

    instance: ShiftingInstance
    slots: int
    slot_s: FloatArray
    begin_s: FloatArray
    resources: tuple[str, ...]
    capacity: FloatArray
    slack: FloatArray
    per_joule: FloatArray
    idle_use: FloatArray
    option_start: IntArray
    row: IntArray
    pool: IntArray
    gpus: IntArray
    kind: IntArray
    uses: FloatArray
    rate: FloatArray
    power_w: FloatArray
    extra_w: FloatArray
    fastest: IntArray
    table: IntArray
    first_slot: IntArray
    kind_before: IntArray
    ran_before: BoolArray
    must_finish: BoolArray
    work: FloatArray
    most_left: FloatArray
    share: FloatArray
    arrival_s: FloatArray
    deadline_s: FloatArray
    restart_s: FloatArray
    budget: FloatArray

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.work)

    @property
    def n_runs(self) -> int:
        """Number of pairs of a slot and an option in which some job could run."""
        return int(np.diff(self.option_start)[self.table] @ (self.slots - self.first_slot))

    @property
    def n_cells(self) -> int:
        """Number of cells: resources by slots."""
        return self.capacity.size

    @property
    def free_cells(self) -> FloatArray:
        """Capacity of every cell, by resource and then slot, shape (n_cells,)."""
        return self.capacity.ravel()

    @property
    def room(self) -> FloatArray:
        """What schedules may hold of every cell, rounding included, shape (n_cells,)."""
        return self.free_cells + self.slack.ravel()

    @cached_property
    def counts_watts(self) -> BoolArray:
        """Mask of the cells that are watts under a cap, shape (n_cells,)."""
        return np.repeat([name.startswith("power_w") for name in self.resources], self.slots)

    @cached_property
    def fits(self) -> BoolArray:
        """Mask of the options that alone exceed no resource of a slot, shape (n_options, slots)."""
        most = self.capacity + self.slack
        return np.asarray((self.uses[:, :, None] <= most).all(axis=1))

    @cached_property
    def fastest_s(self) -> FloatArray:
        """Seconds that each job takes at its fastest, shape (n_jobs,)."""
        return np.asarray(self.work / self.rate[self.fastest[self.table]])

    @cached_property
    def limited(self) -> IntArray:
        """Criteria with a budget."""
        return np.flatnonzero(np.isfinite(self.budget))

    def options_of(self, job: int) -> IntArray:
        """Options of a job."""
        table = self.table[job]
        return np.arange(self.option_start[table], self.option_start[table + 1])

    def part(self, jobs: IntArray, used: FloatArray, spent: FloatArray) -> Horizon:
        """Return the horizon of some jobs, in what others leave.

        Parameters
        ----------
        used : float array, shape (n_cells,)
            What the others hold of each cell.
        spent : float array, shape (4,)
            What they add to the criteria.
        """
        left = np.maximum(self.capacity - used.reshape(self.capacity.shape), 0.0)
        of_jobs = {name: getattr(self, name)[jobs] for name in OF_JOBS}
        return replace(self, capacity=left, budget=self.budget - spent, **of_jobs)


def horizon_of(instance: ShiftingInstance) -> Horizon:
    """Return the arrays of a valid instance."""
    jobs, pools, names = instance.jobs, instance.pools.values(), list(instance.pools)
    tables, table = _tables(instance)
    of_table, row, pool, gpus, batch, rate, power_w = _options(instance, tables)
    start = np.searchsorted(of_table, np.arange(len(tables) + 1))
    idle_w = np.array([p.idle_power_w for p in pools])
    in_pools = np.array([p.gpus for p in pools], dtype=float)
    of_pool, size = _groups(in_pools, pool, gpus)
    capped, cap_w = _caps(instance)
    extra_w = np.maximum(0.0, power_w - gpus * idle_w[pool])
    slot_s, begin_s = instance.lengths_s, instance.begin_s
    per_joule = _per_joule(instance, slot_s)
    arrival_s = np.array([job.arrival_s for job in jobs])
    # A slot that begins a rounding before the arrival counts.
    first_slot = np.searchsorted(begin_s, arrival_s * (1 - ROUNDING))
    settings = np.column_stack([of_table, gpus, pool, batch])
    kinds, kind = np.unique(settings, axis=0, return_inverse=True)
    number = {tuple(values): k for k, values in enumerate(kinds.tolist())}
    kind_before = [
        number.get((t, c.gpus, names.index(c.pool), c.batch_size or 0), NO_KIND)
        if (c := job.current)
        else NO_KIND
        for t, job in zip(table.tolist(), jobs, strict=True)
    ]
    # Of equally fast options the one that draws least.
    fastest = np.lexsort((power_w, -rate, of_table))[start[:-1]]
    of_kind = largest_by(kind.ravel(), rate, len(kinds))
    held_rate = np.where(np.array(kind_before) == NO_KIND, rate[fastest][table], of_kind[kind_before])
    weight = np.array([job.weight for job in jobs])
    return Horizon(
        instance=instance,
        slots=instance.slots,
        slot_s=slot_s,
        begin_s=begin_s,
        resources=(
            *(
                f"gpus:{names[p]}" if n == 1 else f"groups:{names[p]}:{n}"
                for p, n in zip(of_pool, size, strict=True)
            ),
            *capped,
        ),
        capacity=np.concatenate(
            [
                np.repeat(in_pools[of_pool, None] // size[:, None], instance.slots, axis=1),
                cap_w - (np.array([*capped.values()]).reshape(-1, len(names)) @ (idle_w * in_pools))[:, None],
            ]
        ),
        slack=np.concatenate([np.zeros((len(size), instance.slots)), 0.5 * ROUNDING * cap_w]),
        per_joule=per_joule,
        idle_use=np.concatenate([[0.0], float(idle_w @ in_pools) * (per_joule[:, :-1] @ slot_s)]),
        option_start=start,
        row=row,
        pool=pool,
        gpus=gpus,
        kind=kind.ravel(),
        rate=rate,
        power_w=power_w,
        uses=np.column_stack(
            [
                (gpus[:, None] // size) * (pool[:, None] == of_pool),
                *(extra_w * of[pool] for of in capped.values()),
            ]
        ),
        extra_w=extra_w,
        fastest=fastest,
        table=table,
        first_slot=first_slot,
        kind_before=np.array(kind_before, dtype=np.int64),
        ran_before=np.array([job.has_run or job.current is not None for job in jobs], dtype=bool),
        must_finish=np.array([job.must_finish for job in jobs], dtype=bool),
        work=np.array([job.remaining_work for job in jobs]),
        most_left=_most_left(instance, begin_s[-1] - begin_s[first_slot], held_rate),
        share=weight / max(weight.sum(), 1e-300),
        arrival_s=arrival_s,
        deadline_s=np.array([np.inf if job.deadline_s is None else job.deadline_s for job in jobs]),
        restart_s=np.array([job.restart_s for job in jobs]),
        budget=np.array(
            [np.inf if (b := getattr(instance.budgets, f)) is None else b for f in BUDGET_FIELDS]
        ),
    )


def _tables(instance: ShiftingInstance) -> tuple[list[OptionTable], IntArray]:
    """Distinct tables that jobs use, and which of them each job has."""
    of_job = [instance.table_of(job) for job in instance.jobs]
    tables = {id(table): table for table in of_job}
    number = {key: t for t, key in enumerate(tables)}
    return list(tables.values()), np.array([number[id(table)] for table in of_job], dtype=np.int64)


def _options(
    instance: ShiftingInstance, tables: list[OptionTable]
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, FloatArray, FloatArray]:
    """List rows that fit into their pools, by table: table, row, pool, GPUs, batch (0: none), rate, watts."""
    number = {name: p for p, name in enumerate(instance.pools)}
    found = [
        (t, row, number[pool], gpus, 0 if table.batch_size is None else table.batch_size[row])
        for t, table in enumerate(tables)
        for row, (gpus, pool) in enumerate(zip(table.gpus, table.pool, strict=True))
        if gpus <= instance.pools[pool].gpus
    ]
    of_table, row, pool, gpus, batch = np.array(found, dtype=np.int64).reshape(-1, 5).T
    rates = [np.array(table.rate, dtype=float) for table in tables]
    rate = np.array([rates[t][r] for t, r, *_ in found], dtype=float)
    power_w = np.array([tables[t].power_w[r] for t, r, *_ in found], dtype=float)
    return of_table, row, pool, gpus, batch, rate, power_w


def _groups(in_pools: FloatArray, pool: IntArray, gpus: IntArray) -> tuple[IntArray, IntArray]:
    """Return the pool and the size of the groups of GPUs that are counted, groups of one first.

    A job of g GPUs holds the whole part of g / k groups of k GPUs, and a pool has as many groups: a rounding
    cut (Gomory 1958). Sizes are those of options. Groups that leave few of the pool's GPUs over say little.
    """
    sizes = np.unique(np.column_stack([pool, gpus]), axis=0).reshape(-1, 2)
    left_over = in_pools[sizes[:, 0]] % sizes[:, 1]
    groups = sizes[left_over >= np.maximum(1, LEFT_OVER * in_pools[sizes[:, 0]])]
    singles = np.column_stack([np.arange(len(in_pools)), np.ones(len(in_pools), dtype=np.int64)])
    of_pool, size = np.concatenate([singles, groups]).T
    return of_pool, size


def _caps(instance: ShiftingInstance) -> tuple[dict[str, FloatArray], FloatArray]:
    """Caps by name, with 1 for each pool that draws under them, and their watts, shape (n_caps, slots)."""
    found = {} if instance.power_w is None else {"power_w": ([*instance.pools], instance.power_w)}
    found |= {f"power_w:{name}": (one.pools, one.power_w) for name, one in instance.power_domains.items()}
    inside = {
        name: np.array([float(pool in pools) for pool in instance.pools])
        for name, (pools, _) in found.items()
    }
    watts = [by_slot(power_w, instance.slots) for _, power_w in found.values()]
    return inside, np.array(watts).reshape(len(found), instance.slots)


def _most_left(instance: ShiftingInstance, able_s: FloatArray, rate: FloatArray) -> FloatArray:
    """Work that jobs may leave that have so many seconds, by the rate of which their progress is a share.

    Below 0 for those that have to end.
    """
    least = np.array([job.least_progress for job in instance.jobs])
    work = np.array([job.remaining_work for job in instance.jobs])
    must_finish = np.array([job.must_finish for job in instance.jobs], dtype=bool)
    left = np.where(least > 0, work - least * rate * able_s, np.inf)
    return np.where(must_finish, 0.0, left)


def _per_joule(instance: ShiftingInstance, slot_s: FloatArray) -> FloatArray:
    """Grams, joules and money per joule by slot and, last, on average over time: for after the horizon."""
    per_kwh = (instance.carbon_g_per_kwh or 0.0, J_PER_KWH, instance.price_per_kwh or 0.0)
    lines = [by_slot(values, instance.slots) / J_PER_KWH for values in per_kwh]
    return np.array([np.append(line, np.average(line, weights=slot_s)) for line in lines])
