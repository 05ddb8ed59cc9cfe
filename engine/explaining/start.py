"""When a waiting job is expected to start: its round is continued, decision by decision, until it runs.

The plan of the queue is what the rounds after this one decide if nothing else happens. So the engine decides
again each time that a job is complete, without it, and with what is left of the work of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil, isfinite

import numpy as np

from wattsched.explaining.rounds import DecidedRound
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.decision import AssignmentColumns, Decision, held_by
from wattsched.instances.sizing.explanation import Start
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.solvers.solution import Limits
from wattsched.solving.call import Call
from wattsched.solving.engine import answered
from wattsched.topology.arrays import FloatArray

_GAP = 1e-2
"""Gap of the later decisions."""
_DONE = 1e-9
"""Part of a job's work that counts as none."""


def states_durations(instance: Instance) -> bool:
    """True if a round says how much work its jobs have left, or how long each option takes; not with sets."""
    jobs = instance.by_column()
    tables = (
        instance.tables.get(one) if isinstance(one, str) else one for one in jobs.coded("options").values
    )
    timed = all(isinstance(table, OptionTable) and table.completion_s is not None for table in tables)
    return not instance.sets and ("remaining_work" in jobs.columns or (timed and "model" not in jobs.columns))


def expected_start(of: DecidedRound, durations: tuple[float, float], timer: Timer) -> Start | None:
    """Return when a waiting job is expected to start; None where it never does, or that is not found in time.

    Parameters
    ----------
    durations : tuple of float
        Shortest and longest time that jobs take, as factors of what their options say.
    """
    name, found = of.known.jobs.names[of.job], list[float]()
    for factor in sorted({*durations}):
        starts = _starts(of, [name], timer.share(0.5), factor=factor)
        if name not in starts:
            return None
        found.append(starts[name])
    return Start(earliest_s=min(found), latest_s=max(found))


def starts_by_limits(
    instance: Instance, decision: Decision, limits_s: Mapping[str, float], timer: Timer
) -> dict[str, float]:
    """Return in how many seconds waiting jobs start if every job takes all the time that it may.

    Parameters
    ----------
    limits_s : mapping of str to float
        Seconds that each job may still run, or may run once it starts. Jobs without a limit never end.

    Returns
    -------
    dict of str to float
        Only the jobs that are found to start before the time is over.
    """
    of = DecidedRound(instance.model_copy(update={"jobs": instance.by_column()}), decision, 0)
    return _starts(of, decision.waiting, timer, limits_s=limits_s)


def _starts(
    of: DecidedRound,
    waiting: Collection[str],
    timer: Timer,
    *,
    factor: float = 1.0,
    limits_s: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Continue a round until some waiting jobs run; return the seconds until each of those that do.

    Jobs take so many times as long as their options say, or else all of their limits.
    """
    now_s, found, left = 0.0, dict[str, float](), None if limits_s is None else dict(limits_s)
    while True:
        names, (runs, completion_s) = of.known.jobs.names, of.outcome
        running = [names[j] for j in np.flatnonzero(runs)]
        found |= dict.fromkeys((name for name in running if name in waiting and name not in found), now_s)
        left_s = completion_s * factor
        if left is not None:
            left_s[runs] = [left.get(name, np.inf) for name in running]
        next_s = float(left_s.min(initial=np.inf))
        if timer.over() or len(found) == len(waiting) or not isfinite(next_s):
            return found
        step_s = of.instance.round_s * max(1, ceil(next_s / of.instance.round_s * (1 - _DONE)))
        if left is not None:
            left |= {name: left[name] - step_s for name in running if name in left}
        round = _continued(of.instance, of.decision, np.minimum(1.0, step_s / left_s), step_s)
        limits = Limits(gap=_GAP, time_s=timer.remaining_s())
        result = answered(Call(round, (None, "auto", None), limits, of_session=True))
        if result.decision is None:
            return found
        now_s, of = now_s + step_s, DecidedRound(round, result.decision, 0)


def _continued(instance: Instance, decision: Decision, done: FloatArray, step_s: float) -> Instance:
    """Return a round so many seconds later, in which parts of the work of its jobs are done as decided."""
    jobs = instance.by_column()
    left = np.flatnonzero(done < 1 - _DONE)
    taken = jobs.take(left)
    columns = {
        **taken.columns,
        "remaining_work": taken.numbers("remaining_work") * (1 - done[left]),
        "current": held_by(len(left), taken.place, AssignmentColumns.from_records(decision.jobs)),
    }
    if "deadline_s" in columns:  # one that is over binds no more
        later_s = taken.numbers("deadline_s") - step_s
        columns["deadline_s"] = np.where(later_s > 0, later_s, np.nan)
    return instance.model_copy(update={"jobs": JobColumns(columns)})
