"""Holdings of jobs once a decision is applied, and checks that a decision can still be applied."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from wattsched.instances.errors import InputError
from wattsched.instances.sizing.decision import AssignmentColumns, Holdings
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.session_columns import divided
from wattsched.session_decision import SessionDecision
from wattsched.topology.arrays import IntArray, alike


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
    known, given, others = decision.instance.by_column(), decision.assignments, None
    if known.names is not jobs.names:
        given, _ = divided(given, jobs.place)
        held, others = divided(held, known.place)
    moved = set[str]()
    if doubtful := [known.place[name] for name in told if name in known.place]:
        now = _by_job(known, held)
        moved = _otherwise(known, doubtful, now, _by_job(known, given))
        was = known.running, known.holdings.take(known.current.codes[known.running])
        if later := moved and moved & _otherwise(known, doubtful, now, was):
            about = "what it holds was told after the decision was begun, which says otherwise"
            raise InputError([f"job '{name}': {about}; decide again" for name in sorted(later)])
    stays = [jobs.names[j] for j in np.flatnonzero(jobs.fixed).tolist()]
    for name in sorted(name for name in stays if name in known.place):
        if name not in given.place or name in moved:
            does = "moves it" if name in given.place else "lets it wait"
            raise ValueError(f"job '{name}' is not preemptible, and the decision {does}")
    return AssignmentColumns.joined([given, others]) if others else given


Held = tuple[IntArray, Holdings]
"""Jobs by number, and what each holds."""


def _by_job(jobs: JobColumns, held: AssignmentColumns) -> Held:
    numbers = np.fromiter(map(jobs.place.__getitem__, held.names), np.int64, len(held))
    return numbers, Holdings.of_assignments(held)


def _otherwise(jobs: JobColumns, some: list[int], one: Held, other: Held) -> set[str]:
    """Those of some jobs that hold other GPUs by one account than by another."""
    node_of, rows = dict[str, int](), []
    for numbers, held in (one, other):
        owner = np.repeat(numbers, np.diff(held.start))
        mine = np.isin(owner, some)
        named = [node_of.setdefault(name, len(node_of)) for name in held.node.values]
        node = np.array(named, dtype=np.int64)[held.node.codes[mine]]
        rows.append((owner[mine], node, held.gpu[mine]))
    owner, node, gpu = (np.concatenate(column) for column in zip(*rows, strict=True))
    _, which = alike([owner, node, gpu])
    # A GPU that only one of them has.
    alone = np.bincount(which, minlength=1)[which] == 1
    return {jobs.names[j] for j in np.unique(owner[alone]).tolist()}
