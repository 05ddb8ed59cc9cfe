"""Replay of a stream of jobs that share units of one type: who runs with whom, from event to event.

A policy decides at every arrival and completion. Between events jobs progress, and units draw, as the
instance says of their sets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, pairwise

import numpy as np

from wattsched.instances.sharing.instance import SharingInstance
from wattsched.topology.arrays import FloatArray
from wattsched.verification.sharing.checker import Outcomes

Classes = tuple[int, ...]
"""Numbers of classes in ascending order, one per job."""

Units = dict[int, list[int]]
"""Numbers of the jobs that share a unit, by the unit's number."""

DONE = 1e-9
"""Part of an epoch that counts as nothing."""


@dataclass(frozen=True)
class Together:
    """Speed of the jobs of one set, and power and utilisation of their unit.

    Attributes
    ----------
    epoch_s : dict of int to float
        Seconds per epoch by class.
    slowdown : float
        Mean over the jobs of the epoch time over that alone.
    admitted : bool
        True if the instance's limits let the set be formed. What is left of one when a job is complete goes
        on in any case.
    """

    power_w: float
    utilisation_pct: float
    epoch_s: dict[int, float]
    slowdown: float
    admitted: bool


class Sets:
    """The sets of an instance with units of one type; `of` says how jobs of some classes run together.

    Raises
    ------
    ValueError
        If there are several types of units.
    """

    def __init__(self, instance: SharingInstance):
        if len(instance.unit_types) != 1:
            raise ValueError(f"unit_types: a stream needs units of one type, got {len(instance.unit_types)}")
        self._unit = instance.unit_types[0].name
        self._names = [job_class.name for job_class in instance.classes]
        self._outcomes = Outcomes(instance)
        self.classes = range(len(self._names))
        self.of: Callable[[Classes], Together] = cache(self._find)

    def _find(self, classes: Classes) -> Together:
        outcome = self._outcomes.of(self._unit, tuple(self._names[c] for c in classes))
        epoch_s = dict(zip(classes, outcome.epoch_s, strict=True))
        slower = [
            epoch_s[c] / (epoch_s[c] if len(classes) == 1 else self.of((c,)).epoch_s[c]) for c in classes
        ]
        return Together(
            power_w=outcome.power_w,
            utilisation_pct=outcome.utilisation_pct,
            epoch_s=epoch_s,
            slowdown=sum(slower) / len(classes),
            admitted=not outcome.refused,
        )


@dataclass
class State:
    """State of a stream of J jobs as a policy sees it; the policy changes nothing of it.

    Attributes
    ----------
    units : int
        Number of units.
    epoch_s : list of float, length J
        Seconds per epoch alone.
    epochs, left, run_s : float arrays, shape (J,)
        Epochs of each job, those that are left, and seconds that it has run.
    present : list of int
        Jobs that have arrived and are not complete, in the order of their arrival.
    running : dict of int to list of int
        Jobs that are left of the sets that ran until now, by unit.
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

    def waiting(self) -> Iterator[int]:
        """Jobs that do not run, in the order of their arrival."""
        runs = set(chain.from_iterable(self.running.values()))
        return (j for j in self.present if j not in runs)

    def free_units(self, taken: Units) -> Iterator[int]:
        """Units without jobs, in their order."""
        return (unit for unit in range(self.units) if unit not in taken)

    def repeated_epochs(self, job: int) -> float:
        """Part of an epoch that a job has done since its last checkpoint, at the end of an epoch."""
        done = float(self.epochs[job] - self.left[job])
        return max(0.0, done - math.floor(done + 1e-6))


Policy = Callable[[State], Units]
"""Function from a state to the sets that run from then on; more sets than units take equal turns."""


@dataclass
class Outcome:
    """Outcome of a stream of J jobs.

    Attributes
    ----------
    arrival_s, alone_s : float arrays, shape (J,)
        When each job arrives, and how long it runs alone.
    started_s, completed_s, run_s : float arrays, shape (J,)
        When each job first ran and when it was complete, and how long it had a unit.
    end_s, energy_j : float
        Time of the last event, and energy of all units until then, sleeping ones included.
    unit_s : float
        Seconds of units with jobs.
    moves, decisions : int
        How often a job left its unit for another, and how often the policy was asked.
    """

    arrival_s: FloatArray
    alone_s: FloatArray
    started_s: FloatArray
    completed_s: FloatArray
    run_s: FloatArray
    end_s: float = 0.0
    energy_j: float = 0.0
    unit_s: float = 0.0
    moves: int = 0
    decisions: int = 0

    @property
    def active_units(self) -> float:
        """Mean number of units with jobs."""
        return self.unit_s / self.end_s if self.end_s else 0.0

    @property
    def wait_s(self) -> FloatArray:
        """Time of each job from arrival to completion without a unit, shape (J,)."""
        return np.maximum(0.0, self.completed_s - self.arrival_s - self.run_s)


def replay(
    instance: SharingInstance, arrival_s: Sequence[float], policy: Policy, *, repeat_epochs: bool = False
) -> Outcome:
    """Run all jobs of an instance to completion.

    Parameters
    ----------
    instance : SharingInstance
        With units of one type. Its jobs are the stream, and have no deadlines.
    arrival_s : sequence of float
        When each job arrives, ascending.
    repeat_epochs : bool
        Whether a job that moves to another unit repeats the epoch that it had begun, as there are checkpoints
        at the ends of epochs only. By default it moves without cost.

    Raises
    ------
    ValueError
        If the arrivals are not one ascending number per job, a job has a deadline or must have a unit to
        itself, or the policy runs no job, or one that is not there.
    """
    if len(arrival_s) != len(instance.jobs):
        raise ValueError(f"arrival_s: {len(arrival_s)} numbers for {len(instance.jobs)} jobs")
    if any(b < a for a, b in pairwise(arrival_s)):
        raise ValueError("arrival_s: must be ascending")
    for job in instance.jobs:
        if job.deadline_s is not None or job.exclusive:
            what = "is exclusive" if job.deadline_s is None else "has a deadline"
            raise ValueError(f"job '{job.name}' {what}, which a replay of sharing does not keep")
    stream = _Stream(instance, list(arrival_s), repeat_epochs)
    while stream.state.present or stream.arriving:
        if stream.state.present:
            stream.adopt(policy(stream.state))
        stream.run_until_event()
    return stream.outcome


class _Stream:
    """The state of a stream, what has come of it so far, and who is still to arrive, the last first."""

    def __init__(self, instance: SharingInstance, arrival_s: list[float], repeat_epochs: bool):
        unit, sets = instance.unit_types[0], Sets(instance)
        number = {job_class.name: c for c, job_class in enumerate(instance.classes)}
        job_class = [number[job.job_class] for job in instance.jobs]
        epoch_s = [sets.of((c,)).epoch_s[c] for c in job_class]
        epochs = np.array([job.remaining_epochs for job in instance.jobs])
        started_s, completed_s = np.full((2, len(epochs)), np.nan)
        run_s = np.zeros(len(epochs))
        self.state = State(sets, unit.count, job_class, epoch_s, epochs, epochs.copy(), run_s)
        alone_s = epochs * np.array(epoch_s)
        self.outcome = Outcome(np.array(arrival_s), alone_s, started_s, completed_s, run_s)
        self.arriving = list(enumerate(arrival_s))[::-1]
        self._repeat_epochs, self._sleep_w = repeat_epochs, unit.sleep_power_w
        self._last_unit: list[int | None] = [None] * len(epochs)

    def adopt(self, units: Units) -> None:
        """Let jobs run as a policy says."""
        state, outcome = self.state, self.outcome
        units = {unit: jobs for unit, jobs in units.items() if jobs}
        jobs = Counter(chain.from_iterable(units.values()))
        if not jobs:
            raise ValueError(f"at {outcome.end_s:g} s no job runs of the {len(state.present)} that are there")
        if jobs.keys() - set(state.present) or max(jobs.values()) > 1:
            raise ValueError(f"at {outcome.end_s:g} s a job runs twice or is not there")
        for unit, members in units.items():
            for j in members:
                if (last := self._last_unit[j]) == unit:
                    continue
                if last is None:
                    outcome.started_s[j] = outcome.end_s
                else:
                    outcome.moves += 1
                    if self._repeat_epochs:
                        state.left[j] += state.repeated_epochs(j)
                self._last_unit[j] = unit
        state.running = units
        outcome.decisions += 1

    def run_until_event(self) -> None:
        """Let time pass until a job is complete or another arrives."""
        state, outcome = self.state, self.outcome
        jobs, epoch_s, power_w = [], [], 0.0
        for members in state.running.values():
            together = state.sets.of(state.classes(members))
            power_w += together.power_w
            jobs += members
            epoch_s += [together.epoch_s[state.job_class[j]] for j in members]
        active = min(state.units, len(state.running))
        share = active / len(state.running) if state.running else 1.0
        index, rate = np.array(jobs, dtype=np.int64), share / np.array(epoch_s)
        passed_s = float(np.min(state.left[index] / rate)) if jobs else np.inf
        if self.arriving:
            passed_s = min(passed_s, self.arriving[-1][1] - outcome.end_s)
        state.left[index] -= passed_s * rate
        state.run_s[index] += passed_s * share
        outcome.energy_j += (power_w * share + (state.units - active) * self._sleep_w) * passed_s
        outcome.unit_s += active * passed_s
        outcome.end_s += passed_s
        if len(done := index[state.left[index] <= DONE]):
            state.left[done], outcome.completed_s[done] = 0.0, outcome.end_s
            gone = set(done.tolist())
            state.present = [j for j in state.present if j not in gone]
            kept = {unit: [j for j in members if j not in gone] for unit, members in state.running.items()}
            state.running = {unit: members for unit, members in kept.items() if members}
        while self.arriving and self.arriving[-1][1] <= outcome.end_s:
            state.present.append(self.arriving.pop()[0])
