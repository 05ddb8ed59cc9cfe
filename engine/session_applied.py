"""What jobs hold once a decision is what runs, and which decisions cannot be that any more."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from wattsched.instances.errors import InputError
from wattsched.instances.sizing.decision import AssignmentColumns
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.session_columns import divided
from wattsched.session_decision import SessionDecision


def held_after(
    decision: SessionDecision, jobs: JobColumns, held: AssignmentColumns, told: Collection[str]
) -> AssignmentColumns:
    """GPUs of all jobs once a decision is done: what it does not know keeps what it holds.

    Parameters
    ----------
    decision : SessionDecision
    jobs : JobColumns
        As they are now.
    held : AssignmentColumns
        What they hold now.
    told : collection of str
        Jobs of which somebody has said what they hold, or whether they may stop, since the last decision
        was done.

    Raises
    ------
    InputError
        For jobs that were told to hold others than when the decision began, and than it gives them.
    ValueError
        For a job that may not stop or move now, and the decision has it do so.
    """
    known = decision.instance.by_column()
    given, _ = divided(decision.assignments, jobs.place)
    mine, others = divided(held, known.place)
    doubtful = {name for name in told if name in known.place}
    now, then = _places(mine, doubtful), _places(given, doubtful)
    other = sorted(name for name in doubtful if now.get(name, []) != then.get(name, []))
    if later := [name for name in other if now.get(name, []) != _held(known, name)]:
        about = "what it holds was told after the decision was begun, which says otherwise"
        raise InputError([f"job '{name}': {about}; decide again" for name in later])
    stays = [jobs.names[j] for j in np.flatnonzero(jobs.fixed).tolist()]
    for name in sorted(name for name in stays if name in known.place):
        if name not in given.place or name in other:
            does = "moves it" if name in given.place else "lets it wait"
            raise ValueError(f"job '{name}' is not preemptible, and the decision {does}")
    return AssignmentColumns.joined([given, others]) if len(others) else given


def _places(assignments: AssignmentColumns, jobs: Collection[str]) -> dict[str, list[tuple[str, int]]]:
    """GPUs of some jobs, in order."""
    some, _ = divided(assignments, jobs)
    node, gpu, start = some.coded("node").tolist(), some.gpu.tolist(), some.start.tolist()
    rows = zip(some.names, start[:-1], start[1:], strict=True)
    return {name: sorted(zip(node[first:end], gpu[first:end], strict=True)) for name, first, end in rows}


def _held(jobs: JobColumns, name: str) -> list[tuple[str, int]]:
    held = jobs.held(jobs.place[name])
    return [] if held is None else sorted(held.places)
