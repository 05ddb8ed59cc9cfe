"""Kinds: jobs of one class that differ in nothing that matters, so that only their number does."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.program import BoolArray, FloatArray, IntArray
from wattsched.instances.sharing.instance import Job, SharingInstance
from wattsched.instances.sharing.patterns import Patterns

_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Kinds:
    """K kinds of jobs, in the order of their first jobs.

    Attributes
    ----------
    members : tuple of tuple of int
        Numbers of the jobs of each kind, ascending.
    job_class, jobs : int arrays, shape (K,)
        Number of the class, and of jobs.
    epochs, deadline_s : float arrays, shape (K,)
        Epochs that remain (1 where they do not matter), and the deadline, infinite without.
    exclusive, may_wait : bool arrays, shape (K,)
    """

    members: tuple[tuple[int, ...], ...]
    job_class: IntArray
    jobs: IntArray
    epochs: FloatArray
    deadline_s: FloatArray
    exclusive: BoolArray
    may_wait: BoolArray

    def __len__(self) -> int:
        return len(self.members)

    def of_job(self) -> IntArray:
        """Kind of each job."""
        kind = np.zeros(int(self.jobs.sum()), dtype=np.int64)
        for k, members in enumerate(self.members):
            kind[list(members)] = k
        return kind

    def admits(self, kinds: IntArray, patterns: Patterns, slots: IntArray) -> BoolArray:
        """Whether jobs of some kinds may be in some slots of their class; same shapes."""
        done_s = self.epochs[kinds] * patterns.epoch_s[slots]
        alone = patterns.size[patterns.pattern[slots]] == 1
        return np.asarray(
            (alone | ~self.exclusive[kinds]) & (done_s <= self.deadline_s[kinds] * (1 + _TOLERANCE))
        )


def kinds_of(instance: SharingInstance, patterns: Patterns, work_matters: bool) -> Kinds:
    """Group the jobs.

    Parameters
    ----------
    work_matters : bool
        Whether a cost or budget depends on the epochs that remain; deadlines always do.
    """
    number = {job_class.name: c for c, job_class in enumerate(instance.classes)}
    fastest = fastest_alone_s(instance, patterns)
    found: dict[Hashable, list[int]] = {}
    for j, job in enumerate(instance.jobs):
        waits = may_wait(instance, job, float(fastest[number[job.job_class]]))
        epochs = job.remaining_epochs if work_matters or job.deadline_s is not None else 1.0
        deadline_s = np.inf if job.deadline_s is None else job.deadline_s
        key = (number[job.job_class], epochs, deadline_s, job.exclusive, waits)
        found.setdefault(key, []).append(j)
    columns = list(zip(*found, strict=True)) or [()] * 5
    return Kinds(
        members=tuple(tuple(members) for members in found.values()),
        job_class=np.array(columns[0], dtype=np.int64),
        jobs=np.array([len(members) for members in found.values()], dtype=np.int64),
        epochs=np.array(columns[1], dtype=float),
        deadline_s=np.array(columns[2], dtype=float),
        exclusive=np.array(columns[3], dtype=bool),
        may_wait=np.array(columns[4], dtype=bool),
    )


def may_wait(instance: SharingInstance, job: Job, fastest_s: float) -> bool:
    """Whether a job may wait: it is allowed to, and alone it could still meet its deadline afterwards."""
    if not job.can_wait or job.deadline_s is None:
        return job.can_wait
    return instance.round_s + job.remaining_epochs * fastest_s <= job.deadline_s * (1 + _TOLERANCE)


def fastest_alone_s(instance: SharingInstance, patterns: Patterns) -> FloatArray:
    """Least epoch time of each class alone, infinite where it never runs alone."""
    fastest = np.full(len(instance.classes), np.inf)
    alone = np.flatnonzero(patterns.size[patterns.pattern] == 1)
    np.minimum.at(fastest, patterns.job_class[alone], patterns.epoch_s[alone])
    return fastest
