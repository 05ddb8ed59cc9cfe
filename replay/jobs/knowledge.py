"""Policies know the work that jobs have left exactly, from time limits, from what ran before, or not at all.

A replay knows how long jobs take, and a scheduler does not. A policy sees `State.remaining` alone, and this
is where it comes from. Work is counted in seconds on the GPUs asked for, which a job's progress tells: rates
are taken as known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

from wattsched.instances.units import S_PER_H
from wattsched.perfmodels.durations import Durations
from wattsched.reading.inputs import notice
from wattsched.replay.jobs.trace import Trace
from wattsched.report.replays import EXACT
from wattsched.topology.arrays import FloatArray, IntArray, alike

Knows = Literal["exact", "limit", "history", "nothing"]
KNOWLEDGE: tuple[Knows, ...] = get_args(Knows)

BLIND = ("fifo", "tiresias-2dlas", "elasticflow", "gavel-max-min", "sia", "gandiva", "eaco")
"""Policies that do not decide by how long jobs take."""
LEAST_S = 60.0
"""Least that a job is taken to have left, on the GPUs that it asked for, where it is not known."""
LEARN_S, REVIEW_S = S_PER_H, 300.0
"""Time between two looks at what has run, and between two decisions at most, as an index changes with age."""
ENOUGH = 20
"""Runs before those replayed from which one would learn."""


class Knowledge(Protocol):
    """Tells what is known of the work that jobs have left.

    Attributes
    ----------
    review_s : float
        Seconds after which what is known has changed, even if no job has come or ended.
    """

    review_s: float

    def left_s(self, jobs: IntArray, age_s: FloatArray, time_s: float) -> FloatArray:
        """Return what jobs have left, of which all that have arrived and are not here have ended.

        Parameters
        ----------
        jobs : int array, shape (n,)
            Numbers of the jobs here, in the trace.
        age_s : float array, shape (n,)
            Work that each has done. It is as `left_s` in seconds on the GPUs asked for.
        """
        ...


@dataclass(frozen=True)
class Limits:
    """Jobs run until the limits that their users stated; those without one as long as the longest."""

    limit_s: FloatArray
    review_s = np.inf

    @classmethod
    def of(cls, trace: Trace) -> Limits:
        """Read the limits of a trace; a ValueError where none of its jobs has one."""
        stated = [job.time_limit_s or np.nan for job in trace.records]
        if np.isnan(stated).all():
            told = "no job that is replayed has one" if stated else "a list that tells work has none"
            raise ValueError(f"knows: 'limit' needs time limits, and {told}")
        earlier = [job.time_limit_s or np.nan for job in trace.history]
        longest_s = float(np.nanmax([*stated, *earlier]))
        if without := np.count_nonzero(np.isnan(stated)):
            of = f"{without:,} of {len(stated):,} jobs have no time limit"
            notice(f"assumed: {of}; theirs is the longest, {longest_s:,.0f} s")
        return cls(np.nan_to_num(stated, nan=longest_s))

    def left_s(self, jobs: IntArray, age_s: FloatArray, time_s: float) -> FloatArray:
        """Return the rest of each job's limit."""
        return np.maximum(self.limit_s[jobs] - age_s, LEAST_S)


@dataclass(frozen=True)
class _Runs:
    """All runs of which one may learn: those before the trace, then the jobs of the trace.

    Attributes
    ----------
    begin_s, duration_s : float arrays, shape (n_runs,)
        Those of the trace begin no sooner than they arrive.
    groups : tuple of int arrays, shape (n_runs,)
        By GPUs, then also by user, and then by name and limit as well.
    before : int
        Number of the runs before the trace.
    limit_s : float array, shape (n_runs,)
        Infinite where none was stated.
    """

    begin_s: FloatArray
    duration_s: FloatArray
    groups: tuple[IntArray, ...]
    before: int
    limit_s: FloatArray

    @classmethod
    def of(cls, trace: Trace) -> _Runs:
        """Runs of a trace and before it."""
        runs = [*trace.history, *trace.records]
        texts = [[run.user for run in runs], [run.job_name for run in runs]]
        numbers = [np.unique(np.array(column, dtype=object), return_inverse=True)[1] for column in texts]
        gpus, limit_s = np.array([(run.gpus, run.time_limit_s or np.inf) for run in runs]).reshape(-1, 2).T
        return cls(
            begin_s=np.append([run.started_s for run in trace.history], trace.arrival_s),
            duration_s=np.array([run.duration_s for run in runs]),
            groups=tuple(
                alike(columns)[1] for columns in ([gpus], [gpus, numbers[0]], [gpus, *numbers, limit_s])
            ),
            before=len(trace.history),
            limit_s=limit_s,
        )


class Learned:
    """Gittins indices of the distributions of what ran before, which is looked at once an hour.

    Attributes
    ----------
    survival : float array
        As `Durations` has it, from the last look at what has run.
    """

    review_s = REVIEW_S

    def __init__(self, trace: Trace) -> None:
        if not trace.records:
            raise ValueError("knows: 'history' needs jobs with durations, and those of the trace tell work")
        self._runs, self._looked_s, self.survival = _Runs.of(trace), -np.inf, np.empty((0, 0))

    def left_s(self, jobs: IntArray, age_s: FloatArray, time_s: float) -> FloatArray:
        """Return the reciprocals of the jobs' Gittins indices, at most the rest of their limits."""
        if time_s >= self._looked_s + LEARN_S:
            self._learn(jobs, age_s, time_s)
        here = self._runs.before + jobs
        left_s = Durations(self.survival).gittins_s(self._runs.groups[-1][here], age_s)
        return np.clip(self._runs.limit_s[here] - age_s, LEAST_S, np.maximum(left_s, LEAST_S))

    def _learn(self, jobs: IntArray, age_s: FloatArray, time_s: float) -> None:
        runs = self._runs
        since_s = time_s - runs.begin_s
        ended = since_s >= runs.duration_s
        ran_s = np.minimum(runs.duration_s, np.maximum(since_s, 0.0))
        # Jobs of the replay that have arrived have ended if they are not here, however long they waited.
        here, replayed = runs.before + jobs, slice(runs.before, None)
        ended[replayed], ran_s[replayed] = since_s[replayed] >= 0, runs.duration_s[replayed]
        ended[here], ran_s[here] = False, age_s
        self.survival = Durations.fit(ran_s, ended, since_s, runs.groups).survival
        self._looked_s = time_s


class Nothing:
    """Nothing is known but how long jobs have run: the more, the more they have left."""

    review_s = REVIEW_S

    def left_s(self, jobs: IntArray, age_s: FloatArray, time_s: float) -> FloatArray:
        """Return the reciprocals of Gittins indices under Lomax's distribution."""
        return Durations.unknown().gittins_s(np.zeros(len(jobs), dtype=np.int64), age_s)


def known_of(trace: Trace) -> Knows:
    """Return what a scheduler would know: what ran before, or limits; all where a trace tells neither."""
    if len(trace.history) >= ENOUGH:
        return "history"
    return "limit" if any(job.time_limit_s is not None for job in trace.records) else "exact"


def known_under(policy: str, knows: Knows) -> Knows:
    """Return what a policy of a name knows of durations where others know so much."""
    return "exact" if EXACT in policy or policy.startswith("clairvoyant") else knows


def knowledge_of(knows: Knows, trace: Trace) -> Knowledge | None:
    """Make a kind of knowledge of a trace; None where all is known.

    Raises
    ------
    ValueError
        Where the trace does not tell what it is of.
    """
    match knows:
        case "limit":
            return Limits.of(trace)
        case "history":
            return Learned(trace)
        case "nothing":
            return Nothing()
    return None
