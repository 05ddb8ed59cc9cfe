"""Configurations that the jobs of a trace may run in, and which of them a policy looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.sizing.configurations import Configurations
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

WAITS = -1
"""Row of a job that does not run."""


@dataclass(frozen=True)
class Menus:
    """Configurations of every kind of job, kind by kind; a *row* is the number of one of them.

    Attributes
    ----------
    of_job : int array, shape (n_jobs,)
        Kind of each job.
    start : int array, shape (n_kinds + 1,)
        Rows of kind k are ``start[k]`` to ``start[k + 1]``.
    pool, gpus, block : int arrays, shape (n_rows,)
        Number of the pool, GPUs, and the power of two that they are rounded up to.
    rate, power_w : float arrays, shape (n_rows,)
        Work per second, and draw of all GPUs of the job.
    batch_size, frequency_mhz, power_limit_w : float arrays, shape (n_rows,)
        Settings; nan where a row has no such setting.
    standard : bool array, shape (n_rows,)
        The one row of each kind, pool and GPU count that a user gets who tunes nothing.
    batches_compare : bool array, shape (n_kinds,)
        Whether rates at different batch sizes count the same progress.
    """

    of_job: IntArray
    start: IntArray
    pool: IntArray
    gpus: IntArray
    block: IntArray
    rate: FloatArray
    power_w: FloatArray
    batch_size: FloatArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    standard: BoolArray
    batches_compare: BoolArray

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def kind(self) -> IntArray:
        """Kind of each row."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @property
    def choice(self) -> IntArray:
        """Number of what a row is a setting of: the same for equal kind, pool and GPU count."""
        shape = (len(self.start), int(self.pool.max(initial=0)) + 1, int(self.gpus.max(initial=0)) + 1)
        number = np.ravel_multi_index((self.kind, self.pool, self.gpus), shape)
        return np.asarray(np.unique(number, return_inverse=True)[1])

    @property
    def comparable(self) -> BoolArray:
        """Rows whose rates count the same progress as those of the standard ones."""
        batch, choice = self.batch_size, self.choice
        usual = np.empty(choice.max(initial=-1) + 1)
        usual[choice[self.standard]] = batch[self.standard]
        same = (batch == usual[choice]) | np.isnan(batch)
        return np.asarray(same | self.batches_compare[self.kind])

    @classmethod
    def of(
        cls,
        templates: Configurations,
        default_batches: Sequence[int | None],
        batches_compare: Sequence[bool],
        largest: Sequence[int],
    ) -> Menus:
        """Take the templates of an instance over, as far as their blocks fit into the pools.

        Parameters
        ----------
        default_batches : sequence, shape (n_kinds,)
            Customary batch size of each kind, None where its rows have none.
        batches_compare : sequence of bool, shape (n_kinds,)
        largest : sequence of int, shape (n_pools,)
            Largest block of each pool of which every GPU is available.
        """
        n_kinds = len(templates.start) - 1
        pool, block = (np.asarray(templates.columns[name], dtype=np.int64) for name in ("pool", "block"))
        keep = block <= np.array(largest, dtype=np.int64)[pool]
        columns = {name: values[keep] for name, values in templates.columns.items()}
        kind = np.repeat(np.arange(n_kinds), np.diff(templates.start))[keep]

        def floats(name: str) -> FloatArray:
            return np.asarray(columns[name], dtype=float)

        def integers(name: str) -> IntArray:
            return np.asarray(columns[name], dtype=np.int64)

        default = np.array([np.nan if batch is None else batch for batch in default_batches], dtype=float)
        off = np.nan_to_num(np.abs(floats("batch_size") - default[kind]))
        clock = np.nan_to_num(floats("frequency_mhz")) + np.nan_to_num(floats("power_limit_w"))
        order = np.lexsort((-floats("rate"), -clock, off, integers("gpus"), integers("pool"), kind))
        alike = np.array([kind[order], integers("pool")[order], integers("gpus")[order]])
        standard = np.zeros(len(kind), dtype=bool)
        standard[order] = np.any(np.diff(alike, prepend=-1), axis=0)
        return cls(
            of_job=templates.of_job,
            start=np.concatenate([[0], np.cumsum(np.bincount(kind, minlength=n_kinds))]).astype(np.int64),
            pool=integers("pool"),
            gpus=integers("gpus"),
            block=integers("block"),
            rate=floats("rate"),
            power_w=floats("power_w"),
            batch_size=floats("batch_size"),
            frequency_mhz=floats("frequency_mhz"),
            power_limit_w=floats("power_limit_w"),
            standard=standard,
            batches_compare=np.array(batches_compare, dtype=bool),
        )


@dataclass(frozen=True)
class Selection:
    """Some rows of every kind, in the order of the menus.

    Attributes
    ----------
    start : int array, shape (n_kinds + 1,)
    rows : int array, shape (n_selected,)
    """

    start: IntArray
    rows: IntArray

    @classmethod
    def of(cls, menus: Menus, keep: BoolArray) -> Selection:
        """Select the rows that `keep` marks."""
        counts = np.bincount(menus.kind[keep], minlength=len(menus.start) - 1)
        return cls(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), np.flatnonzero(keep))

    def laid_out(self, kinds: IntArray) -> tuple[IntArray, IntArray]:
        """Write the selected rows of jobs of these kinds behind one another.

        Returns
        -------
        start : int array, shape (n_jobs + 1,)
        rows : int array, shape (n_rows,)
        """
        counts = np.diff(self.start)[kinds]
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return start, self.rows[np.arange(start[-1]) + np.repeat(self.start[kinds] - start[:-1], counts)]


def efficient(menus: Menus, busy_w: FloatArray) -> Selection:
    """Rows on the upper concave hull of rate over draw, for each kind, pool and block size.

    Whatever a joule costs, the best row of a block is one of them. Only rows whose rates compare take part.

    Parameters
    ----------
    busy_w : float array, shape (n_rows,)
        Draw above that of idle GPUs.
    """
    groups = np.stack([menus.kind, menus.pool, menus.block])
    order = np.lexsort((-menus.rate, busy_w, *groups[::-1]))
    order = order[menus.comparable[order]]
    chosen = np.zeros(len(menus), dtype=bool)
    hull: list[int] = []
    last = -1
    for row in order.tolist():
        if last >= 0 and np.any(groups[:, row] != groups[:, last]):
            chosen[hull] = True
            hull = []
        last = row
        if hull and menus.rate[row] <= menus.rate[hull[-1]]:
            continue
        while hull and _below(menus.rate, busy_w, hull[-2] if len(hull) > 1 else None, hull[-1], row):
            hull.pop()
        hull.append(row)
    chosen[hull] = True
    return Selection.of(menus, chosen)


def _below(rate: FloatArray, watts: FloatArray, before: int | None, row: int, after: int) -> bool:
    """Whether a row lies on or below the line from the one before (None: from nothing) to the one after."""
    rate_0, watts_0 = (0.0, 0.0) if before is None else (rate[before], watts[before])
    rise = (rate[row] - rate_0) * (watts[after] - watts_0)
    return bool(rise <= (rate[after] - rate_0) * (watts[row] - watts_0))


def fastest(menus: Menus, among: BoolArray | None = None) -> Selection:
    """Rows that no other row of the kind beats: as fast or faster in the same pool in no larger block."""
    keep = np.ones(len(menus), dtype=bool) if among is None else among
    rows = np.flatnonzero(keep)
    key = menus.kind[rows] * (int(menus.pool.max(initial=0)) + 1) + menus.pool[rows]
    order = np.lexsort((menus.gpus[rows], -menus.rate[rows], menus.block[rows], key))
    rows, key = rows[order], key[order]
    chosen = np.zeros(len(menus), dtype=bool)
    best, last = 0.0, -1
    for row, group in zip(rows.tolist(), key.tolist(), strict=True):
        best = best if group == last else 0.0
        last = group
        if menus.rate[row] > best:
            best = float(menus.rate[row])
            chosen[row] = True
    return Selection.of(menus, chosen)
