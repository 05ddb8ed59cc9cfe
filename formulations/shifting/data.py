"""Jobs that share what dynamic programming needs: a table, a restart time, and a number of levels.

An instance of shifting as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.sizing.instance import OptionTable
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

RAN, NEVER_RAN = -2, -1
"""States of a job that runs nothing: it ran before, or its next start is free. They are the last ones."""
_LEVELS_PER_SLOT, _MOST_DOUBLINGS = 4, 3
"""Levels that the middle option does in a slot at least, if so many times twice the levels are enough."""


@dataclass(frozen=True)
class JobGroup:
    """Jobs of one table and restart time.

    Attributes
    ----------
    levels : int
        Of the work that is left of each job.
    option : int array, shape (n_options,)
        Options of the table, by kind.
    kind : int array, shape (n_options,)
        Kinds numbered within the group, ascending.
    restart_s : float
    job, first_slot, kind_before : int arrays, shape (n_jobs,)
        `kind_before` is `RAN` or `NEVER_RAN` for jobs that hold nothing before their first slot.
    work, share, deadline_s : float arrays, shape (n_jobs,)
    must_finish : bool array, shape (n_jobs,)
    """

    levels: int
    option: IntArray
    kind: IntArray
    restart_s: float
    job: IntArray
    first_slot: IntArray
    kind_before: IntArray
    work: FloatArray
    share: FloatArray
    deadline_s: FloatArray
    must_finish: BoolArray

    @property
    def n_kinds(self) -> int:
        """Number of kinds."""
        return int(self.kind[-1]) + 1

    @property
    def step(self) -> FloatArray:
        """Work between two levels, shape (n_jobs,)."""
        return self.work / self.levels

    def take(self, which: IntArray) -> JobGroup:
        """Some of the jobs."""
        return JobGroup(
            self.levels,
            self.option,
            self.kind,
            self.restart_s,
            *(getattr(self, name)[which] for name in ("job", "first_slot", "kind_before")),
            *(getattr(self, name)[which] for name in ("work", "share", "deadline_s", "must_finish")),
        )


def groups_of(horizon: Horizon, levels: int) -> list[JobGroup]:
    """Put the jobs into groups.

    Parameters
    ----------
    levels : int
        Of the work of a job that takes a few slots; twice, four or eight times as many where it takes more.
    """
    if not horizon.n_jobs:
        return []
    tables = pairwise(horizon.option_start)
    middle = np.array([np.median(horizon.rate[start:end]) for start, end in tables])
    needed = _LEVELS_PER_SLOT * horizon.work / (middle[horizon.table] * horizon.slot_s) / levels
    doubled = np.clip(np.ceil(np.log2(needed)), 0, _MOST_DOUBLINGS).astype(np.int64)
    keys = np.column_stack([horizon.table, horizon.restart_s, doubled])
    _, of_job = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(of_job.ravel(), kind="stable")
    cuts = np.flatnonzero(np.diff(of_job.ravel()[order])) + 1
    return [_group(horizon, jobs, levels << int(doubled[jobs[0]])) for jobs in np.split(order, cuts)]


def _group(horizon: Horizon, jobs: IntArray, levels: int) -> JobGroup:
    option = horizon.options_of(int(jobs[0]))
    option = option[np.argsort(horizon.kind[option], kind="stable")]
    kinds, kind = np.unique(horizon.kind[option], return_inverse=True)
    held = np.searchsorted(kinds, horizon.kind_before[jobs])
    resting = np.where(horizon.ran_before[jobs], RAN, NEVER_RAN)
    return JobGroup(
        levels=levels,
        option=option,
        kind=kind.ravel().astype(np.int64),
        restart_s=float(horizon.restart_s[jobs[0]]),
        job=jobs,
        first_slot=horizon.first_slot[jobs],
        kind_before=np.where(horizon.kind_before[jobs] == NEVER, resting, held),
        work=horizon.work[jobs],
        share=horizon.share[jobs],
        deadline_s=horizon.deadline_s[jobs],
        must_finish=horizon.must_finish[jobs],
    )


CRITERIA = ("completion_s", "carbon_g", "energy_j", "money")
"""What schedules are judged by; also the names of the budget rows and their prices."""
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
    def n_pools(self) -> int:
        """Number of pools."""
        return len(self.capacity)

    def options_of(self, job: int) -> IntArray:
        """Options of a job."""
        table = self.table[job]
        return np.arange(self.option_start[table], self.option_start[table + 1])


def horizon_of(instance: ShiftingInstance) -> Horizon:
    """Expand an instance that is free of faults."""
    pools = list(instance.pools)
    tables, table_of_job = _tables(instance)
    options = _options(instance, tables, pools)
    jobs = instance.jobs
    rows = np.arange(len(options["row"]))
    start = np.searchsorted(options["table"], np.arange(len(tables) + 1))
    fastest = [
        min(rows[start[t] : start[t + 1]], key=lambda o: (-options["rate"][o], options["power_w"][o], o))
        for t in range(len(tables))
    ]
    idle_w = np.array([p.idle_power_w for p in instance.pools.values()])
    per_joule = _per_joule(instance)
    idle_j = float(idle_w @ [p.gpus for p in instance.pools.values()]) * instance.slot_s
    weight = np.array([job.weight for job in jobs])
    kinds, kind = np.unique(
        np.column_stack([options[name] for name in ("table", "gpus", "pool", "batch")]),
        axis=0,
        return_inverse=True,
    )
    number = {tuple(k): i for i, k in enumerate(kinds.tolist())}
    before = [
        NEVER
        if job.current is None
        else number.get(
            (t, job.current.gpus, pools.index(job.current.pool), job.current.batch_size or 0), NEVER
        )
        for t, job in zip(table_of_job, jobs, strict=True)
    ]
    budgets = instance.budgets
    return Horizon(
        instance=instance,
        slots=instance.slots,
        slot_s=instance.slot_s,
        capacity=np.array([p.gpus for p in instance.pools.values()], dtype=np.int64),
        per_joule=per_joule,
        standing=np.concatenate([[0.0], idle_j * per_joule[:, :-1].sum(axis=1)]),
        option_start=start.astype(np.int64),
        row=options["row"],
        pool=options["pool"],
        gpus=options["gpus"],
        kind=kind.ravel().astype(np.int64),
        rate=options["rate"],
        power_w=options["power_w"],
        extra_w=np.maximum(0.0, options["power_w"] - options["gpus"] * idle_w[options["pool"]]),
        fastest=np.array(fastest, dtype=np.int64),
        table=np.array(table_of_job, dtype=np.int64),
        first_slot=_first_slots(instance),
        kind_before=np.array(before, dtype=np.int64),
        ran_before=np.array([job.has_run or job.current is not None for job in jobs], dtype=bool),
        must_finish=np.array([job.must_finish for job in jobs], dtype=bool),
        work=np.array([job.remaining_work for job in jobs]),
        share=weight / max(weight.sum(), 1e-300),
        arrival_s=np.array([job.arrival_s for job in jobs]),
        deadline_s=np.array([np.inf if job.deadline_s is None else job.deadline_s for job in jobs]),
        restart_s=np.array([job.restart_s for job in jobs]),
        budget=np.array([np.inf if (b := getattr(budgets, f)) is None else b for f in BUDGET_FIELDS]),
    )


def _tables(instance: ShiftingInstance) -> tuple[list[OptionTable], list[int]]:
    """Distinct tables that jobs use, and which of them each job has."""
    tables: dict[int, OptionTable] = {}
    for job in instance.jobs:
        table = instance.table_of(job)
        tables.setdefault(id(table), table)
    number = {key: t for t, key in enumerate(tables)}
    return list(tables.values()), [number[id(instance.table_of(job))] for job in instance.jobs]


def _options(instance: ShiftingInstance, tables: list[OptionTable], pools: list[str]) -> dict[str, Any]:
    """Rows that fit into their pools, table by table."""
    number = {name: p for p, name in enumerate(pools)}
    columns: dict[str, list[float]] = {
        name: [] for name in ("table", "row", "pool", "gpus", "batch", "rate", "power_w")
    }
    for t, table in enumerate(tables):
        assert table.rate is not None
        for row, (gpus, pool) in enumerate(zip(table.gpus, table.pool, strict=True)):
            if gpus > instance.pools[pool].gpus:
                continue
            batch = 0 if table.batch_size is None else table.batch_size[row]
            values = (t, row, number[pool], gpus, batch, table.rate[row], table.power_w[row])
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    whole = ("table", "row", "pool", "gpus", "batch")
    return {
        name: np.array(values, dtype=np.int64 if name in whole else np.float64)
        for name, values in columns.items()
    }


def _per_joule(instance: ShiftingInstance) -> FloatArray:
    ones = [1.0] * instance.slots
    forecasts = (instance.carbon_g_per_kwh, None, instance.price_per_kwh)
    lines = [
        np.array(ones if criterion == "energy_j" else (values or [0.0] * instance.slots)[: instance.slots])
        / (1.0 if criterion == "energy_j" else J_PER_KWH)
        for criterion, values in zip(CRITERIA[1:], forecasts, strict=True)
    ]
    return np.array([np.append(line, line.mean()) for line in lines])


def _first_slots(instance: ShiftingInstance) -> IntArray:
    """Slots that begin when jobs arrive or later; a slot that begins a rounding earlier counts."""
    arrival_s = np.array([job.arrival_s for job in instance.jobs])
    return np.ceil(arrival_s * (1 - 1e-9) / instance.slot_s).astype(np.int64)
