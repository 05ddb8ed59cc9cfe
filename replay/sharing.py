"""Replay of a stream of jobs that may share units: who decides, at every arrival and completion.

Everything is decided anew at each event: a job may move to another unit, without cost, as at the end of an
epoch with a checkpoint. Between events the jobs progress as the instance says of their sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.sharing.instance import Job, SharingInstance
from wattsched.instances.sharing.outcomes import Outcomes

Decide = Callable[[SharingInstance], SharingDecision | None]

_DONE = 1e-9
"""Part of an epoch that counts as nothing."""


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
    decisions : int
    """

    end_s: float
    energy_j: float
    active_units: float
    started_s: NDArray[np.float64]
    completed_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    run_s: NDArray[np.float64]
    decisions: int


def replay(instance: SharingInstance, arrival_s: Sequence[float], decide: Decide) -> Replay:
    """Run all jobs of an instance to completion.

    Parameters
    ----------
    instance : SharingInstance
        Its jobs are the stream, and have no deadlines.
    arrival_s : sequence of float
        When each job arrives, ascending.
    decide : callable
        From the instance with the jobs that are there, in the order of their arrivals, to a decision.

    Raises
    ------
    ValueError
        If the arrivals are not one ascending number per job, a job has a deadline, or a decision runs no job.
    """
    _require(instance, arrival_s)
    state = _State(instance, arrival_s)
    while state.open:
        present = [j for j in range(state.arrived) if state.left[j] > 0]
        if not present:
            state.advance_to(arrival_s[state.arrived], [])
            continue
        jobs = [
            instance.jobs[j].model_copy(update={"remaining_epochs": float(state.left[j])}) for j in present
        ]
        decision = decide(instance.model_copy(update={"jobs": jobs}))
        state.decisions += 1
        if decision is None or not decision.sets:
            raise ValueError(f"at {state.now_s:g} s no job runs of the {len(jobs)} that are there")
        state.run_until_event(decision.sets)
    return state.report()


def _require(instance: SharingInstance, arrival_s: Sequence[float]) -> None:
    if len(arrival_s) != len(instance.jobs):
        raise ValueError(f"arrival_s: {len(arrival_s)} numbers for {len(instance.jobs)} jobs")
    if any(b < a for a, b in pairwise(arrival_s)):
        raise ValueError("arrival_s: must be ascending")
    if late := [job.name for job in instance.jobs if job.deadline_s is not None]:
        raise ValueError(f"job '{late[0]}' has a deadline, which a replay does not keep")


class _State:
    """Time, what remains of each job, and sums so far."""

    def __init__(self, instance: SharingInstance, arrival_s: Sequence[float]):
        self._instance, self._arrival_s = instance, arrival_s
        self._outcomes = Outcomes(instance)
        self._number = {job.name: j for j, job in enumerate(instance.jobs)}
        self._asleep_w = sum(unit.count * unit.sleep_power_w for unit in instance.unit_types)
        self.left = np.array([job.remaining_epochs for job in instance.jobs])
        n = len(self.left)
        self.now_s, self.energy_j, self.unit_s = 0.0, 0.0, 0.0
        self.arrived, self.decisions = 0, 0
        self.started_s, self.completed_s = np.full(n, np.nan), np.full(n, np.nan)
        self.run_s = np.zeros(n)

    @property
    def open(self) -> bool:
        """Whether any job is not complete."""
        return bool(np.any(self.left > 0))

    def advance_to(
        self, time_s: float, running: list[tuple[int, float]], power_w: float = 0.0, units: int = 0
    ) -> None:
        """Let time pass, with jobs and their epoch times."""
        passed_s = time_s - self.now_s
        for j, epoch_s in running:
            self.left[j] -= passed_s / epoch_s
            self.run_s[j] += passed_s
            if self.left[j] <= _DONE:
                self.left[j], self.completed_s[j] = 0.0, time_s
        self.energy_j += (self._asleep_w + power_w) * passed_s
        self.unit_s += units * passed_s
        self.now_s = time_s
        while self.arrived < len(self.left) and self._arrival_s[self.arrived] <= time_s:
            self.arrived += 1

    def run_until_event(self, sets: list[SharedSet]) -> None:
        """Run some sets until a job is complete or another arrives."""
        running, power_w = [], 0.0
        for formed in sets:
            members = [self._number[name] for name in formed.jobs]
            classes = tuple(self._job(j).job_class for j in members)
            outcome = self._outcomes.of(formed.unit_type, classes)
            power_w += outcome.power_w - self._outcomes.types[formed.unit_type].sleep_power_w
            running += list(zip(members, outcome.epoch_s, strict=True))
        for j, _ in running:
            if np.isnan(self.started_s[j]):
                self.started_s[j] = self.now_s
        end_s = self.now_s + min(self.left[j] * epoch_s for j, epoch_s in running)
        if self.arrived < len(self.left):
            end_s = min(end_s, self._arrival_s[self.arrived])
        self.advance_to(float(end_s), running, power_w, len(sets))

    def report(self) -> Replay:
        """What came of it."""
        total_s = self.completed_s - np.array(self._arrival_s)
        return Replay(
            end_s=self.now_s,
            energy_j=self.energy_j,
            active_units=self.unit_s / self.now_s if self.now_s else 0.0,
            started_s=self.started_s,
            completed_s=self.completed_s,
            wait_s=np.maximum(0.0, total_s - self.run_s),
            run_s=self.run_s,
            decisions=self.decisions,
        )

    def _job(self, number: int) -> Job:
        return self._instance.jobs[number]
