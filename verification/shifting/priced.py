"""A job and what its schedules are charged at prices, as far as splits of a certificate tree allow them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob
from wattsched.instances.sizing.job import OptionTable
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.verification.report import ROUNDING
from wattsched.verification.shifting.outcomes import after_horizon, fitting_rows
from wattsched.verification.shifting.splits import Allowed


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
        Charge for the GPUs of an option.
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
    after: tuple[float, float]

    @classmethod
    def of(cls, instance: ShiftingInstance, table: OptionTable, gpu: dict[str, FloatArray]) -> PricedOptions:
        """Options of a table; `gpu` is the charge for a GPU by pool, then slot."""
        rows = fitting_rows(instance, table)
        gpus = np.array(table.gpus, dtype=float)[rows]
        power_w = np.array(table.power_w, dtype=float)[rows]
        idle_w = np.array([instance.pools[table.pool[r]].idle_power_w for r in rows])
        batch: list[int | None] = (
            [None] * len(table.gpus) if table.batch_size is None else [*table.batch_size]
        )
        each = [(table.gpus[r], table.pool[r], batch[r]) for r in rows]
        kinds = {kind: k for k, kind in enumerate(dict.fromkeys(each))}
        return cls(
            row=np.array(rows, dtype=np.int64),
            rate=np.array(table.rate, dtype=float)[rows],
            power_w=power_w,
            extra_w=np.maximum(power_w - gpus * idle_w, 0.0),
            kinds=kinds,
            kind=np.array([kinds[kind] for kind in each], dtype=np.int64),
            gpu=np.array([gpu[table.pool[r]] for r in rows]).T * gpus,
            after=after_horizon(instance, table),
        )


class PricedJob:
    """A job, its options, and what they are charged.

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
        allowed: Allowed | None = None,
    ):
        held = job.current
        self.options, self.delay, self.joule = options, delay, joule
        self.slot_s, self.slots = instance.slot_s, instance.slots
        self.arrival_s = job.arrival_s
        self.first = math.ceil(job.arrival_s * (1 - ROUNDING) / instance.slot_s)
        self.work, self.restart_s, self.must_finish = job.remaining_work, job.restart_s, job.must_finish
        self.deadline_s = math.inf if job.deadline_s is None else job.deadline_s * (1 + ROUNDING)
        allowed = allowed or Allowed.everything(instance, job)
        self.gpu = np.where(allowed.runs[:, options.row], options.gpu, math.inf)
        self.idle, self.after_s, self.first_end = allowed.idle, allowed.after_s, allowed.first_end
        self.deadline_s = min(self.deadline_s, allowed.by_s)
        self.ran = job.has_run or held is not None
        self.held = -1 if held is None else options.kinds.get((held.gpus, held.pool, held.batch_size), -1)

    def unfinished(self, work: FloatArray) -> FloatArray:
        """Return the cost of work that is left at the end of the horizon; infinite where none may be left."""
        rate, power_w = self.options.after
        seconds = work / rate
        end_s = self.slots * self.slot_s + seconds
        cost = self.delay * np.maximum(end_s, self.after_s) + self.joule[-1] * power_w * seconds
        return np.where((end_s > self.deadline_s) | self.must_finish, math.inf, cost)
