"""When a waiting job is expected to start: its round is continued, decision by decision, until it runs.

The plan of the queue is what the rounds after this one decide if nothing else happens. So the engine decides
again each time that a job is complete, without it, and with what is left of the work of the others.
"""

from __future__ import annotations

from math import ceil

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

_GAP = 1e-3
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
    found = [_seconds_to_start(of, factor, timer.share(0.5)) for factor in sorted({*durations})]
    seconds = [one for one in found if one is not None]
    return Start(earliest_s=min(seconds), latest_s=max(seconds)) if len(seconds) == len(found) else None


def _seconds_to_start(of: DecidedRound, factor: float, timer: Timer) -> float | None:
    """Return the seconds until a job runs if jobs take so many times as long as their options say."""
    name, now_s = of.known.jobs.names[of.job], 0.0
    while not timer.over():
        runs, completion_s = of.outcome
        if runs[of.job]:
            return now_s
        left_s = completion_s * factor
        if not runs.any():
            return None  # it never does
        step_s = of.instance.round_s * ceil(left_s.min() / of.instance.round_s * (1 - _DONE))
        round = _continued(of.instance, of.decision, np.minimum(1.0, step_s / left_s), step_s)
        limits = Limits(gap=_GAP, time_s=timer.remaining_s())
        result = answered(Call(round, (None, "auto", None), limits, of_session=True))
        if result.decision is None:
            return None
        now_s += step_s
        of = DecidedRound(round, result.decision, round.by_column().place[name])
    return None


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
