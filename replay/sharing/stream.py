"""Replay of a stream of jobs that share units of one type: who runs with whom, from event to event.

A policy decides at every arrival and completion. Between events jobs progress, and units draw, as the
instance says of their sets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np

from wattsched.instances.sharing.instance import SharingInstance
from wattsched.replay.sharing.sets import Classes, Sets
from wattsched.topology.arrays import FloatArray

Units = dict[int, list[int]]
"""Numbers of the jobs that share a unit, by the unit's number."""

DONE = 1e-9
"""Part of an epoch that counts as nothing."""


@dataclass
class Moment:
    """What a policy sees of a stream of J jobs; it changes nothing of it.

    Attributes
    ----------
    sets : Sets
    units : int
        How many there are.
    job_class : list of int, length J
    epoch_s : list of float, length J
        Seconds per epoch alone.
    epochs, left, run_s : float arrays, shape (J,)
        Epochs of each job, those that are left, and seconds that it has run.
    present : list of int
        Jobs that have arrived and are not complete, in the order of their arrival.
    running : dict of int to list of int
        What is left of the sets that ran until now.
    """

    sets: Sets
    units: int
    job_class: list[int]
    epoch_s: list[float]
    epochs: FloatArray
    left: FloatArray
    run_s: FloatArray
    present: list[int] = field(default_factory=list)
    running: Units = field(default_factory=dict)

    def classes(self, jobs: Iterable[int]) -> Classes:
        """Set of classes that jobs would be."""
        return tuple(sorted(self.job_class[j] for j in jobs))

    def repeated_epochs(self, job: int) -> float:
        """Part of an epoch that a job has done since its last checkpoint, at the end of an epoch."""
        done = float(self.epochs[job] - self.left[job])
        return max(0.0, done - math.floor(done + 1e-6))


Policy = Callable[[Moment], Units]
"""From a moment to the sets that run from then on; more sets than units take turns of equal length."""


@dataclass(frozen=True)
class Replay:
    """What came of a stream of J jobs.

    Attributes
    ----------
    end_s, energy_j : float
        Time of the last completion, and energy of all units until then, sleeping ones included.
    active_units : float
        Mean number of units with jobs.
    started_s, completed_s : float arrays, shape (J,)
        When each job first ran and when it was complete.
    wait_s, run_s : float arrays, shape (J,)
        Time from arrival to completion, split in time without and with a unit.
    alone_s : float array, shape (J,)
        How long each job runs alone.
    moves, decisions : int
        How often a job left its unit for another, and how often the policy was asked.
    """

    end_s: float
    energy_j: float
    active_units: float
    started_s: FloatArray
    completed_s: FloatArray
    wait_s: FloatArray
    run_s: FloatArray
    alone_s: FloatArray
    moves: int
    decisions: int


def replay(
    instance: SharingInstance, arrival_s: Sequence[float], policy: Policy, *, repeat_epochs: bool = False
) -> Replay:
    """Run all jobs of an instance to completion.

    Parameters
    ----------
    instance : SharingInstance
        With units of one type. Its jobs are the stream, and have no deadlines.
    arrival_s : sequence of float
        When each job arrives, ascending.
    policy : callable
    repeat_epochs : bool
        Whether a job that moves to another unit repeats the epoch that it had begun, as there are checkpoints
        at the ends of epochs only. By default it moves without cost.

    Raises
    ------
    ValueError
        If the arrivals are not one ascending number per job, a job has a deadline or must have a unit to
        itself, or the policy runs no job, or one that is not there.
    """
    _require(instance, arrival_s)
    stream = _Stream(instance, arrival_s, repeat_epochs)
    while stream.open:
        if stream.moment.present:
            stream.adopt(policy(stream.moment))
        stream.run_until_event()
    return stream.report()


def _require(instance: SharingInstance, arrival_s: Sequence[float]) -> None:
    if len(arrival_s) != len(instance.jobs):
        raise ValueError(f"arrival_s: {len(arrival_s)} numbers for {len(instance.jobs)} jobs")
    if any(b < a for a, b in pairwise(arrival_s)):
        raise ValueError("arrival_s: must be ascending")
    for job in instance.jobs:
        if job.deadline_s is not None or job.exclusive:
            what = "is exclusive" if job.deadline_s is None else "has a deadline"
            raise ValueError(f"job '{job.name}' {what}, which a replay of sharing does not keep")


class _Stream:
    """Time, the moment, and sums so far."""

    def __init__(self, instance: SharingInstance, arrival_s: Sequence[float], repeat_epochs: bool):
        unit, sets = instance.unit_types[0], Sets(instance)
        number = {job_class.name: c for c, job_class in enumerate(instance.classes)}
        job_class = [number[job.job_class] for job in instance.jobs]
        epochs = np.array([job.remaining_epochs for job in instance.jobs])
        n = len(epochs)
        self.moment = Moment(
            sets=sets,
            units=unit.count,
            job_class=job_class,
            epoch_s=[sets.of((c,)).epoch_s[c] for c in job_class],
            epochs=epochs,
            left=epochs.copy(),
            run_s=np.zeros(n),
        )
        self._arrival_s, self._repeat_epochs, self._sleep_w = (
            list(arrival_s),
            repeat_epochs,
            unit.sleep_power_w,
        )
        self._last_unit: list[int | None] = [None] * n
        self._now_s, self._energy_j, self._unit_s = 0.0, 0.0, 0.0
        self._arrived, self._moves, self._decisions = 0, 0, 0
        self._started_s, self._completed_s = np.full(n, np.nan), np.full(n, np.nan)

    @property
    def open(self) -> bool:
        """Whether any job is not complete."""
        return bool(self.moment.present) or self._arrived < len(self._arrival_s)

    def adopt(self, units: Units) -> None:
        """Let jobs run as a policy says."""
        moment = self.moment
        units = {unit: jobs for unit, jobs in units.items() if jobs}
        jobs = Counter(chain.from_iterable(units.values()))
        if not jobs:
            raise ValueError(f"at {self._now_s:g} s no job runs of the {len(moment.present)} that are there")
        if jobs.keys() - set(moment.present) or max(jobs.values()) > 1:
            raise ValueError(f"at {self._now_s:g} s a job runs twice or is not there")
        for unit, members in units.items():
            for j in members:
                last = self._last_unit[j]
                if last == unit:
                    continue
                if last is None:
                    self._started_s[j] = self._now_s
                else:
                    self._moves += 1
                    if self._repeat_epochs:
                        moment.left[j] += moment.repeated_epochs(j)
                self._last_unit[j] = unit
        moment.running = units
        self._decisions += 1

    def run_until_event(self) -> None:
        """Let time pass until a job is complete or another arrives."""
        moment, running = self.moment, self.moment.running
        jobs, epoch_s, power_w = [], [], 0.0
        for members in running.values():
            together = moment.sets.of(moment.classes(members))
            power_w += together.power_w
            jobs += members
            epoch_s += [together.epoch_s[moment.job_class[j]] for j in members]
        active = min(moment.units, len(running))
        share = active / len(running) if running else 1.0
        index, rate = np.array(jobs, dtype=np.int64), share / np.array(epoch_s)
        passed_s = float(np.min(moment.left[index] / rate)) if jobs else np.inf
        if self._arrived < len(self._arrival_s):
            passed_s = min(passed_s, self._arrival_s[self._arrived] - self._now_s)
        moment.left[index] -= passed_s * rate
        moment.run_s[index] += passed_s * share
        self._energy_j += (power_w * share + (moment.units - active) * self._sleep_w) * passed_s
        self._unit_s += active * passed_s
        self._now_s += passed_s
        self._complete(index[moment.left[index] <= DONE].tolist())
        self._arrive()

    def report(self) -> Replay:
        """What came of it."""
        moment = self.moment
        total_s = self._completed_s - np.array(self._arrival_s)
        return Replay(
            end_s=self._now_s,
            energy_j=self._energy_j,
            active_units=self._unit_s / self._now_s if self._now_s else 0.0,
            started_s=self._started_s,
            completed_s=self._completed_s,
            wait_s=np.maximum(0.0, total_s - moment.run_s),
            run_s=moment.run_s,
            alone_s=moment.epochs * np.array(moment.epoch_s),
            moves=self._moves,
            decisions=self._decisions,
        )

    def _complete(self, jobs: list[int]) -> None:
        if not jobs:
            return
        moment, gone = self.moment, set(jobs)
        moment.left[jobs], self._completed_s[jobs] = 0.0, self._now_s
        moment.present = [j for j in moment.present if j not in gone]
        kept = {unit: [j for j in members if j not in gone] for unit, members in moment.running.items()}
        moment.running = {unit: members for unit, members in kept.items() if members}

    def _arrive(self) -> None:
        while self._arrived < len(self._arrival_s) and self._arrival_s[self._arrived] <= self._now_s:
            self.moment.present.append(self._arrived)
            self._arrived += 1
