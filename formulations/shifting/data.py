"""An instance of shifting as arrays: jobs, the options of their tables, and the slots of the horizon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wattsched.formulations.tolerances import ROUNDING
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

CRITERIA = ("completion_s", "carbon_g", "energy_j", "money")
"""Criteria that schedules are judged by; also the names of the budget rows and their prices."""
BUDGET_FIELDS = ("average_completion_s", "carbon_g", "energy_j", "money")
OBJECTIVES = ("mean-completion", "carbon", "energy", "money")
PAUSE = -1
NEVER = -1


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
    slot_s : float
    capacity : int array, shape (n_pools,)
    per_joule : float array, shape (3, slots + 1)
        Grams, joules and money per joule drawn in a slot; the last column is for what is drawn after the
        horizon.
    standing : float array, shape (4,)
        Criteria of the idle GPUs, before the jobs' draw is added.
    option_start : int array, shape (n_tables + 1,)
        Options of a table are ``option_start[table]`` to ``option_start[table + 1]``.
    row, pool, gpus, kind : int arrays, shape (n_options,)
        `row` is that of the table.
    rate, power_w, extra_w : float arrays, shape (n_options,)
        `extra_w` is the draw above that of the same GPUs when they are idle.
    fastest : int array, shape (n_tables,)
    table, first_slot, kind_before : int arrays, shape (n_jobs,)
        `kind_before` is what the job holds when the horizon begins, `NEVER` for nothing.
    ran_before, must_finish : bool arrays, shape (n_jobs,)
    work, share, arrival_s, deadline_s, restart_s : float arrays, shape (n_jobs,)
        `share` is the job's weight in the average.
    budget : float array, shape (4,)
        Upper limits of the criteria, infinite for none.
    """

    instance: ShiftingInstance
    slots: int
    slot_s: float
    capacity: IntArray
    per_joule: FloatArray
    standing: FloatArray
    option_start: IntArray
    row: IntArray
    pool: IntArray
    gpus: IntArray
    kind: IntArray
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
    def n_cells(self) -> int:
        """Number of cells: pools by slots."""
        return len(self.capacity) * self.slots

    @property
    def free_cells(self) -> IntArray:
        """GPUs of every cell, by pool and then slot, shape (n_cells,)."""
        return np.repeat(self.capacity, self.slots)

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


def horizon_of(instance: ShiftingInstance) -> Horizon:
    """Expand an instance that is free of faults."""
    jobs, pools, names = instance.jobs, instance.pools.values(), list(instance.pools)
    tables, table = _tables(instance)
    of_table, row, pool, gpus, batch, rate, power_w = _options(instance, tables)
    start = np.searchsorted(of_table, np.arange(len(tables) + 1))
    idle_w = np.array([p.idle_power_w for p in pools])
    capacity = np.array([p.gpus for p in pools], dtype=np.int64)
    per_joule = _per_joule(instance)
    idle_j = float(idle_w @ capacity) * instance.slot_s
    settings = np.column_stack([of_table, gpus, pool, batch])
    kinds, kind = np.unique(settings, axis=0, return_inverse=True)
    number = {tuple(values): k for k, values in enumerate(kinds.tolist())}
    held = [
        (t, c.gpus, names.index(c.pool), c.batch_size or 0) if (c := job.current) else None
        for t, job in zip(table.tolist(), jobs, strict=True)
    ]
    weight = np.array([job.weight for job in jobs])
    arrival_s = np.array([job.arrival_s for job in jobs])
    return Horizon(
        instance=instance,
        slots=instance.slots,
        slot_s=instance.slot_s,
        capacity=capacity,
        per_joule=per_joule,
        standing=np.concatenate([[0.0], idle_j * per_joule[:, :-1].sum(axis=1)]),
        option_start=start,
        row=row,
        pool=pool,
        gpus=gpus,
        kind=kind.ravel(),
        rate=rate,
        power_w=power_w,
        extra_w=np.maximum(0.0, power_w - gpus * idle_w[pool]),
        # Of equally fast options the one that draws least.
        fastest=np.lexsort((power_w, -rate, of_table))[start[:-1]],
        table=table,
        # A slot that begins a rounding before the arrival counts.
        first_slot=np.ceil(arrival_s * (1 - ROUNDING) / instance.slot_s).astype(np.int64),
        kind_before=np.array([NEVER if h is None else number.get(h, NEVER) for h in held], dtype=np.int64),
        ran_before=np.array([job.has_run or job.current is not None for job in jobs], dtype=bool),
        must_finish=np.array([job.must_finish for job in jobs], dtype=bool),
        work=np.array([job.remaining_work for job in jobs]),
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
    """Rows that fit into their pools, table by table: table, row, pool, GPUs, batch size, rate and watts."""
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


def _per_joule(instance: ShiftingInstance) -> FloatArray:
    none = [0.0] * instance.slots
    lines = [
        np.array(values[: instance.slots]) / unit
        for values, unit in (
            (instance.carbon_g_per_kwh or none, J_PER_KWH),
            ([1.0] * instance.slots, 1.0),
            (instance.price_per_kwh or none, J_PER_KWH),
        )
    ]
    return np.array([np.append(line, line.mean()) for line in lines])
