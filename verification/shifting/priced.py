"""A job and what its schedules are charged at prices, as far as splits of a certificate tree allow them.

A split is of one job. Either ``ends_by_s``, seconds from the beginning of the horizon: inside it ends by
then, outside later. Or ``slot`` and ``rows``, numbers of rows of its table: inside it runs in that slot as
one of these, outside as another or not at all. Or a split is of all jobs: inside, each costs at ``prices`` at
most its least cost and ``within``, and outside some job costs more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob
from wattsched.instances.sizing.job import OptionTable
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.fields import Strict
from wattsched.verification.report import ROUNDING
from wattsched.verification.shifting.checker import after_horizon, first_slot, fitting_rows, most_left
from wattsched.verification.tree import Taken, read_split


@dataclass
class Allowed:
    """Rows, pauses and ends that splits leave to a job.

    Ends that are a rounding away from a limit are on both sides of it: nothing is lost between the two.

    Attributes
    ----------
    runs : bool array, shape (slots, n_rows)
        By slot and row of the job's table.
    idle : bool array, shape (slots,)
        True where it may run nothing in a slot.
    after_s, by_s : float
        It ends later than the one, or counts as if it did, and by the other.
    first_end : int
        Slot that it must not end before.
    """

    runs: BoolArray
    idle: BoolArray
    after_s: float = -math.inf
    by_s: float = math.inf
    first_end: int = 0

    @classmethod
    def everything(cls, instance: ShiftingInstance, job: ShiftingJob) -> Allowed:
        """All that the instance allows."""
        n_rows = len(instance.table_of(job).gpus)
        return cls(np.ones((instance.slots, n_rows), dtype=bool), np.ones(instance.slots, dtype=bool))

    def end(self, by_s: float, inside: bool) -> None:
        """Keep schedules that end by some second, or those that do not."""
        if inside:
            self.by_s = min(self.by_s, by_s * (1 + ROUNDING))
        else:
            self.after_s = max(self.after_s, by_s * (1 - ROUNDING))

    def end_in(self, slot: int, begin_s: FloatArray, inside: bool) -> None:
        """Keep schedules that end in a slot or before, or those that run on after it."""
        if inside:
            self.by_s = min(self.by_s, float(begin_s[slot + 1]) * (1 + ROUNDING))
        else:
            self.first_end = max(self.first_end, slot + 1)

    def run(self, slot: int, rows: Sequence[int], inside: bool) -> None:
        """Keep schedules that run as some rows in a slot, or those that do not."""
        named = np.zeros(self.runs.shape[1], dtype=bool)
        named[rows] = True
        self.runs[slot] &= named if inside else ~named
        if inside:
            self.idle[slot] = False
            self.first_end = max(self.first_end, slot)


class EndSplit(Strict):
    """A split of a job by when it ends."""

    job: str
    ends_by_s: Annotated[float, Field(allow_inf_nan=False)]


class RunSplit(Strict):
    """A split of a job by the rows of its table that it may run in a slot."""

    job: str
    slot: Annotated[int, Field(ge=0)]
    rows: list[Annotated[int, Field(ge=0)]]


class ListSplit(Strict):
    """A split of all jobs by the schedules that cost little at prices."""

    prices: dict[str, Any]
    within: Annotated[float, Field(ge=0, allow_inf_nan=False)]


def allowed_by(instance: ShiftingInstance, taken: Sequence[Taken]) -> dict[str, Allowed]:
    """Return what splits leave to the jobs that were split, by name; a ValueError says what one lacks."""
    jobs = {job.name: job for job in instance.jobs} if taken else {}
    found: dict[str, Allowed] = {}
    for split, inside, _ in taken:
        if lists(split):
            continue
        form: type[EndSplit] | type[RunSplit] = EndSplit if "ends_by_s" in split else RunSplit
        known: EndSplit | RunSplit = read_split(form, split)
        if (job := jobs.get(known.job)) is None:
            raise ValueError(f"split.job: {known.job!r:.80} is not a job of the instance")
        if known.job not in found:
            found[known.job] = Allowed.everything(instance, job)
        if isinstance(known, EndSplit):
            found[known.job].end(known.ends_by_s, inside)
            continue
        if known.slot >= instance.slots:
            raise ValueError(f"split.slot: {known.slot} is not one of the {instance.slots} slots")
        if max(known.rows, default=-1) >= len(instance.table_of(job).gpus):
            raise ValueError(f"split.rows: {max(known.rows)} is no row of the table of job '{job.name}'")
        found[known.job].run(known.slot, known.rows, inside)
    return found


def is_on_side(
    split: Mapping[str, Any], inside: bool, end_s: FloatArray, rows_in: Callable[[int], IntArray]
) -> BoolArray:
    """Return the mask of the schedules of a split's job that are on a side of it.

    Parameters
    ----------
    end_s : float array, shape (n,)
        Their ends, from the beginning of the horizon.
    rows_in : callable
        Slot to the rows of the job's table that they run there, -1 for none, shape (n,).
    """
    if "ends_by_s" in split:
        by_s = split["ends_by_s"]
        return np.asarray(end_s <= by_s * (1 + ROUNDING) if inside else end_s >= by_s * (1 - ROUNDING))
    return np.asarray(np.isin(rows_in(split["slot"]), split["rows"]) == inside)


def lists(split: Mapping[str, Any]) -> bool:
    """True if a split lists schedules by their costs; a ValueError where it does so wrongly."""
    return "within" in split and bool(read_split(ListSplit, split))


def listing_of(taken: Sequence[Taken]) -> int | None:
    """Position of the last split that lists schedules; None without one."""
    return next((i for i in range(len(taken) - 1, -1, -1) if lists(taken[i].split)), None)


@dataclass(frozen=True)
class PricedOptions:
    """Rows of a table that fit into their pools, and what they are charged.

    Attributes
    ----------
    row : int array, shape (n_options,)
    rate, power_w, extra_w : float arrays, shape (n_options,)
        `extra_w` is the draw above that of idle GPUs.
    kinds : dict of (int, str, int or None) to int
        GPU count, pool and batch size: options of one kind change into each other without a restart.
    kind : int array, shape (n_options,)
    gpu : float array, shape (slots, n_options)
        Charge for the GPUs of an option, and for its watts under caps, for a whole slot.
    fits : bool array, shape (slots, n_options)
        False where an option alone draws more than a cap leaves.
    after : (float, float)
        Rate and watts of what is left after the horizon.
    """

    row: IntArray
    rate: FloatArray
    power_w: FloatArray
    extra_w: FloatArray
    kinds: dict[tuple[int, str, int | None], int]
    kind: IntArray
    gpu: FloatArray
    fits: BoolArray
    after: tuple[float, float]

    @classmethod
    def of(
        cls,
        instance: ShiftingInstance,
        table: OptionTable,
        gpu: dict[str, dict[int, FloatArray]],
        watt: dict[str, FloatArray],
        spare_w: dict[str, FloatArray],
    ) -> PricedOptions:
        """Options of a table, with the charges for a group of GPUs by pool, size and slot.

        `watt` is likewise the charge for a watt above idle, and `spare_w` what all caps leave above idle,
        by pool and slot.
        """
        rows = fitting_rows(instance, table)
        gpus = np.array(table.gpus, dtype=float)[rows]
        power_w = np.array(table.power_w, dtype=float)[rows]
        idle_w = np.array([instance.pools[table.pool[r]].idle_power_w for r in rows])
        batch: list[int | None] = (
            [None] * len(table.gpus) if table.batch_size is None else [*table.batch_size]
        )
        each = [(table.gpus[r], table.pool[r], batch[r]) for r in rows]
        kinds = {kind: k for k, kind in enumerate(dict.fromkeys(each))}
        extra_w = np.maximum(power_w - gpus * idle_w, 0.0)
        of_gpus = [
            sum(price * (table.gpus[r] // size) for size, price in gpu[table.pool[r]].items()) for r in rows
        ]
        watts = [[of[table.pool[r]] for r in rows] for of in (watt, spare_w)]
        return cls(
            row=np.array(rows, dtype=np.int64),
            rate=np.array(table.rate, dtype=float)[rows],
            power_w=power_w,
            extra_w=extra_w,
            kinds=kinds,
            kind=np.array([kinds[kind] for kind in each], dtype=np.int64),
            gpu=np.array(of_gpus).T + np.array(watts[0]).T * extra_w,
            fits=extra_w <= np.array(watts[1]).T,
            after=after_horizon(instance, table),
        )


class PricedJob:
    """A job, its options, and what they are charged.

    Beside these, `work` is what is left of it, and `restart_s` what a restart takes.

    Attributes
    ----------
    options : PricedOptions
    delay : float
        Charge for a second of completion time, which counts from the beginning of the horizon here.
    joule : float array, shape (slots + 1,)
        Charge for a joule, at last after the horizon.
    gpu : float array, shape (slots, n_options)
        Charge for the GPUs of an option, infinite where it must not run.
    idle : bool array, shape (slots,)
        Whether nothing may run in a slot.
    after_s : float
        Ends before that count as if at it.
    first_end : int
        Slot that it must not end before.
    arrival_s : float
    first, slots : int
        First slot that the job may run in, and slots of the horizon.
    slot_s, begin_s : float arrays, shapes (slots,) and (slots + 1,)
        Seconds of each slot, and up to its begin; the last begin is the end of the horizon.
    deadline_s : float
        Infinite for none.
    ran : bool
        Makes the first start a restart.
    held : int
        Kind of options that needs no restart in the first slot, -1 for none.
    """

    def __init__(
        self,
        instance: ShiftingInstance,
        job: ShiftingJob,
        options: PricedOptions,
        delay: float,
        joule: FloatArray,
        times_s: tuple[FloatArray, FloatArray],
        allowed: Allowed | None = None,
    ):
        held = job.current
        self.options, self.delay, self.joule = options, delay, joule
        (self.slot_s, self.begin_s), self.slots = times_s, instance.slots
        self.arrival_s, self.first = job.arrival_s, first_slot(job, self.begin_s)
        self.work, self.restart_s, self.must_finish = job.remaining_work, job.restart_s, job.must_finish
        self.most_left = most_left(instance, job, self.begin_s) + 2 * ROUNDING * job.remaining_work
        self.deadline_s = math.inf if job.deadline_s is None else job.deadline_s * (1 + ROUNDING)
        allowed = allowed or Allowed.everything(instance, job)
        self.gpu = np.where(allowed.runs[:, options.row] & options.fits, options.gpu, math.inf)
        self.idle, self.after_s, self.first_end = allowed.idle, allowed.after_s, allowed.first_end
        self.deadline_s = min(self.deadline_s, allowed.by_s)
        self.ran = job.has_run or held is not None
        self.held = -1 if held is None else options.kinds.get((held.gpus, held.pool, held.batch_size), -1)

    def pays_to_run(self, slot: int) -> bool:
        """True if running or drawing more may cost less in the slot or later."""
        return bool(self.joule[slot:].min() < 0.0 or self.gpu[slot:].min(initial=0.0) < 0.0)

    @property
    def least_for_runs(self) -> float:
        """Lower bound on what a schedule is charged for joules, and for GPUs where that is negative."""
        options, joule, (rate, power_w) = self.options, self.joule[self.first :], self.options.after
        if not self.pays_to_run(self.first):
            return self.work * float((options.extra_w / options.rate).min()) * float(joule.min())
        paid = np.minimum(joule, 0.0)
        inside_s, after_s = float(paid[:-1] @ self.slot_s[self.first :]), float(paid[-1]) * self.work / rate
        gained = float(self.gpu[self.first :].min(axis=1, initial=0.0).sum())
        return inside_s * float(options.extra_w.max()) + after_s * power_w + gained

    def unfinished(self, work: FloatArray, up_to: FloatArray | None = None) -> FloatArray:
        """Return the cost of work left at the end of the horizon; infinite where none may be left.

        With `up_to`, a lower bound for amounts of work from the one to the other.
        """
        rate, power_w = self.options.after
        seconds = work / rate
        end_s = self.begin_s[-1] + seconds
        drawn_s = seconds if up_to is None or self.joule[-1] >= 0.0 else up_to / rate
        cost = self.delay * np.maximum(end_s, self.after_s) + self.joule[-1] * power_w * drawn_s
        forbidden = (end_s > self.deadline_s) | self.must_finish | (work > self.most_left)
        return np.where(forbidden, math.inf, cost)
