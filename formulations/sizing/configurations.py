"""The running configurations that jobs of one kind share, before their remaining work is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattsched.instances.sizing.instance import Instance, content_of_kinds
from wattsched.instances.sizing.job import Job
from wattsched.instances.sizing.job_columns import BOUNDS, JobColumns
from wattsched.instances.sizing.option_rows import SETTINGS, rows_of_kinds
from wattsched.instances.sizing.tenants import most_alone
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, Rows, largest_by, least_by, offsets
from wattsched.topology.column import Coded
from wattsched.topology.pools import Pool
from wattsched.topology.remembered import Last
from wattsched.topology.room import largest_room, room_for

Columns = dict[str, NDArray[np.generic]]

T = TypeVar("T")

COLUMNS = ("pool", "gpus", "block", "rate", "power_w", *SETTINGS)


WAIT = -1
"""Row and pool of a job that does not run."""

# Jobs of a kind, on average, from which on the kinds of one round are looked for in the next.
_ALIKE = 2


@dataclass(frozen=True, kw_only=True)
class RowColumns:
    """Columns that say what each row runs as, is worth and uses; a row may also be waiting.

    Attributes
    ----------
    pool, gpus, block : int arrays, shape (n_rows,)
        Number of the pool, `WAIT` for waiting, GPUs, and those that it takes for itself (`topology.room`):
        the GPU count rounded up to a power of two in pools of blocks.
    rate, power_w : float arrays, shape (n_rows,)
        Work per second, and draw of the job's GPUs.
    frequency_mhz, power_limit_w, batch_size : float arrays, shape (n_rows,)
        Settings; nan where a row has no such setting.
    """

    pool: IntArray
    gpus: IntArray
    block: IntArray
    rate: FloatArray
    power_w: FloatArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    batch_size: FloatArray

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def columns(self) -> Columns:
        """Values of each row, by name."""
        return {name: getattr(self, name) for name in COLUMNS}


@dataclass(frozen=True, kw_only=True)
class Configurations(RowColumns):
    """Running configurations of every kind of job, kind by kind; a *row* is the number of one of them.

    Attributes
    ----------
    of_job : int array, shape (n_jobs,)
        Kind of each job.
    start : int array, shape (n_kinds + 1,)
        Rows of kind k are ``start[k]`` to ``start[k + 1]``.
    """

    of_job: IntArray
    start: IntArray
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    def of_jobs(self, of_job: IntArray) -> Configurations:
        """The same rows, and what was found of them by `once`, for other jobs of these kinds."""
        return replace(self, of_job=of_job)

    def once(self, key: Any, compute: Callable[[], T]) -> T:
        """Return a result found from the rows, computed once for equal `key`."""
        if key not in self._cache:
            self._cache[key] = compute()
        known: T = self._cache[key]
        return known

    def latest(self, name: str, key: Any, compute: Callable[[], T]) -> T:
        """Return a result under a key that changes from round to round; by name the last one is kept."""
        last_key, answer = self._cache.get(name, (None, None))
        if last_key != key:
            answer = compute()
            self._cache[name] = key, answer
        known: T = answer
        return known

    @property
    def by_setting(self) -> Rows:
        """Rows by kind and all that a decision says of a job that runs."""
        stated = ("pool", "gpus", *SETTINGS)
        return self.once("setting", lambda: Rows([self.kind, *(getattr(self, name) for name in stated)]))

    @cached_property
    def kind(self) -> IntArray:
        """Kind of each row."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @cached_property
    def best_rate(self) -> FloatArray:
        """Highest rate of each kind, 0 without rows; shape (n_kinds,)."""
        return largest_by(self.kind, self.rate, len(self.start) - 1)

    @cached_property
    def reference_rate(self) -> FloatArray:
        """Highest rate of each kind at its smallest GPU count, 1 without rows; shape (n_kinds,)."""
        n = len(self.start) - 1
        small = self.gpus == least_by(self.kind, self.gpus, n)[self.kind]
        reference = largest_by(self.kind[small], self.rate[small], n)
        return np.where(self.best_rate > 0, reference, 1.0)

    @cached_property
    def least_power_w(self) -> FloatArray:
        """Least draw of each kind, infinite without rows; shape (n_kinds,)."""
        return least_by(self.kind, self.power_w, len(self.start) - 1)

    @cached_property
    def slowest_rate(self) -> FloatArray:
        """Lowest rate of each kind, infinite without rows; shape (n_kinds,)."""
        return least_by(self.kind, self.rate, len(self.start) - 1)

    @cached_property
    def least_energy_row(self) -> IntArray:
        """Row of each kind that takes the least energy per work, `WAIT` without rows; shape (n_kinds,)."""
        found = np.full(len(self.start) - 1, WAIT)
        order = np.lexsort((self.power_w / self.rate, self.kind))
        with_rows = np.flatnonzero(np.diff(self.start))
        found[with_rows] = order[self.start[with_rows]]
        return found

    @cached_property
    def thrifty_rows(self) -> IntArray:
        """Rows of each kind that may take the least energy, whatever work and restart, ascending."""
        per_work, (_, number) = self.power_w / self.rate, np.unique(self.power_w, return_inverse=True)
        order = np.lexsort((number, per_work, self.kind))
        # Less power than all that take no more energy per work: kinds are apart, the later the lower.
        height = number[order] - self.kind[order] * (len(self) + 1)
        before = np.minimum.accumulate(np.append(len(self) + 1, height))[:-1]
        return np.sort(order[height < before])

    def only(self, keep: BoolArray) -> Configurations:
        """Keep the rows of a mask."""
        return self.taken(np.flatnonzero(keep))

    def taken(self, rows: IntArray) -> Configurations:
        """Some rows, kind by kind, in their order."""
        counts = np.bincount(self.kind[rows], minlength=len(self.start) - 1)
        start = offsets(counts)
        columns: dict[str, Any] = {name: values[rows] for name, values in self.columns.items()}
        return Configurations(of_job=self.of_job, start=start, **columns)

    def laid_out(self, kinds: IntArray, rows: IntArray | None = None) -> tuple[IntArray, IntArray, IntArray]:
        """Write the rows of jobs behind one another, each job's waiting last.

        Jobs have these `kinds`; `rows` to choose from ascend, default: all. Returns `start`, where options of
        job j are ``start[j]`` to ``start[j + 1]``, and the job and row of each option, `WAIT` for waiting.

        By running sums: `np.repeat` lets no other thread run, for a second where there are many.
        """
        first = self.start if rows is None else np.searchsorted(rows, self.start)
        begin = first[kinds]
        sizes = first[kinds + 1] - begin + 1
        start = offsets(sizes)
        # At first the differences of successive entries.
        job, row = np.zeros(start[-1], dtype=np.int64), np.ones(start[-1], dtype=np.int64)
        job[start[1:-1]] = 1
        row[:1] = begin[:1]
        row[start[1:-1]] = begin[1:] - begin[:-1] - sizes[:-1] + 1
        np.cumsum(job, out=job)
        np.cumsum(row, out=row)
        if rows is not None:
            row = np.append(rows, WAIT)[row]
        row[start[1:] - 1] = WAIT
        return start, job, row


_LAST = Last[Configurations]()


def configurations_of(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> Configurations:
    """Configurations that the jobs of an instance may run in, for each kind of job once.

    Rows are in the order of the pools, and within a pool in the order of the table or profile. Those of the
    round before are taken where the kinds are the same.
    """
    first, of_job = jobs.kinds
    if len(jobs) < _ALIKE * len(first):
        return _configurations_of(instance, jobs, pools)
    found = partial(_configurations_of, instance, jobs, pools)
    return _LAST.answer(instance.cluster, content_of_kinds(instance, jobs), found).of_jobs(of_job)


def _configurations_of(instance: Instance, jobs: JobColumns, pools: tuple[Pool, ...]) -> Configurations:
    """Configurations that the jobs may run in, by kind, found anew."""
    first, of_job = jobs.kinds
    n = len(first)
    allowed = _allowed(jobs.coded("pools").take(first), pools)
    pieces = [_from_tables(instance, pools, allowed), *_from_models(instance, pools, jobs, allowed)]
    kind, columns = pieces[0]
    if len(pieces) > 1:
        kind = np.concatenate([kind for kind, _ in pieces])
        columns = {name: np.concatenate([columns[name] for _, columns in pieces]) for name in columns}
    gpus = columns["gpus"].astype(np.int64, copy=False)
    largest = np.array([largest_room(pool) for pool in pools], dtype=np.int64)
    fewest, most = (jobs.counts(name)[first] for name in BOUNDS)
    most = np.where(most == 0, np.iinfo(np.int64).max, most)
    columns["block"] = block = room_for(pools, columns["pool"].astype(np.int64, copy=False), gpus)
    keep = (block <= largest[columns["pool"]]) & (gpus >= fewest[kind]) & (gpus <= most[kind])
    if instance.tenants:
        tenants = jobs.coded("tenant").take(first).tolist()
        most_of = [most_alone(instance.tenants, tenant) for tenant in tenants]
        most_gpus, most_w, _ = np.array(most_of, dtype=float).reshape(n, 3).T
        keep &= (gpus <= most_gpus[kind]) & (columns["power_w"] <= most_w[kind])
    if not (keep.all() and (kind[1:] >= kind[:-1]).all()):
        rows = np.flatnonzero(keep)
        rows = rows[np.argsort(kind[rows], kind="stable")]
        kind, columns = kind[rows], {name: values[rows] for name, values in columns.items()}
    start = offsets(np.bincount(kind, minlength=n))
    whole = ("pool", "gpus", "block")
    stated: dict[str, Any] = {
        name: columns[name].astype(np.int64 if name in whole else float, copy=False) for name in COLUMNS
    }
    return Configurations(of_job=of_job, start=start, **stated)


def _allowed(names: Coded, pools: tuple[Pool, ...]) -> BoolArray:
    """Mask of pools that each list of names stands for, of pools or GPU types; all without a list."""
    stated = [[pool.name in some or pool.gpu_type in some for pool in pools] for some in names.values]
    return np.array([*stated, [True] * len(pools)], dtype=bool)[names.codes]


def usable_pools(job: Job, pools: tuple[Pool, ...]) -> list[bool]:
    """Return for each pool whether a job may use it; its own name or its GPU type stands for it."""
    if job.pools is None:
        return [True] * len(pools)
    return [pool.name in job.pools or pool.gpu_type in job.pools for pool in pools]


def _from_tables(instance: Instance, pools: tuple[Pool, ...], allowed: BoolArray) -> tuple[IntArray, Columns]:
    """Rows of tables, once for each pool that a row's pool or GPU type stands for; with the kind of each."""
    known = rows_of_kinds(instance)
    kind, named, pieces = known.table, known.pool, list[IntArray]()
    for p, pool in enumerate(pools):
        meant = np.array([name in (pool.name, pool.gpu_type) for name in named.values], dtype=bool)
        pieces.append(np.flatnonzero(meant[named.codes] & allowed[kind, p]))
    sizes = [len(piece) for piece in pieces]
    rows: IntArray | slice = np.concatenate(pieces)
    if len(sizes) == 1 and sizes[0] == len(kind):
        rows = slice(None)
    rate = np.where(np.isnan(known.rate), 1.0 / known.completion_s, known.rate)
    columns: Columns = {
        "pool": np.repeat(np.arange(len(pools)), sizes),
        "gpus": known.gpus[rows],
        "rate": rate[rows],
        "power_w": known.power_w[rows],
        **{name: getattr(known, name)[rows] for name in SETTINGS},
    }
    return kind[rows], columns


def _from_models(
    instance: Instance, pools: tuple[Pool, ...], jobs: JobColumns, allowed: BoolArray
) -> Iterable[tuple[IntArray, Columns]]:
    """Configurations of jobs with a performance model, one kind and pool after another."""
    for k, job in jobs.of_models.items():
        for p in np.flatnonzero(allowed[k]).tolist():
            rows = instance.configurations_of(job, pools[p])
            if rows is None:
                continue
            columns: Columns = {
                "pool": np.full(len(rows), p, dtype=np.int64),
                "gpus": rows.gpus,
                "rate": rows.rate,
                "power_w": rows.power_w,
                "frequency_mhz": rows.frequency_mhz,
                "power_limit_w": rows.power_limit_w,
                "batch_size": rows.batch_size.astype(float),
            }
            yield np.full(len(rows), k, dtype=np.int64), columns
