"""Changes that a decision makes to what runs: which jobs start, stop, move or run otherwise."""

from __future__ import annotations

from typing import Any, Literal

from wattsched.instances.sizing.decision import AssignmentColumns
from wattsched.instances.sizing.instance import Instance

Change = Literal["start", "stop", "resize", "move", "setting"]
"""Change of a job; a setting is its clock, power limit or batch, with the same GPUs."""

_SETTINGS = ("frequency_mhz", "batch_size")


def changes_of(instance: Instance, running: AssignmentColumns) -> dict[str, Change]:
    """Jobs that assignments have do something else than what they do in the round, and what.

    Jobs that hold the same GPUs with the same settings are left out.
    """
    jobs = instance.by_column()
    now = {} if jobs.assigned is None else _running(jobs.assigned)
    then = _running(running)
    found = {name: _change(now.get(name), then.get(name)) for name in jobs.names}
    return {name: change for name, change in found.items() if change is not None}


def _change(before: tuple[Any, ...] | None, after: tuple[Any, ...] | None) -> Change | None:
    if before == after:
        return None
    if before is None:
        return "start"
    if after is None:
        return "stop"
    if before[0] != after[0]:
        return "resize"
    return "move" if before[1] != after[1] else "setting"


def _running(assignments: AssignmentColumns) -> dict[str, tuple[int, frozenset[tuple[str, int]], Any]]:
    """GPU count, places and settings of each job that runs."""
    node, gpu = assignments.coded("node").tolist(), assignments.gpu.tolist()
    counts, start = assignments.counts("gpus").tolist(), assignments.start.tolist()
    limits = assignments.numbers("power_limit_w")
    settings = zip(*(assignments.counts(name).tolist() for name in _SETTINGS), strict=True)
    limit_w = [None if limit != limit else limit for limit in limits.tolist()]
    rows = zip(assignments.names, counts, start[:-1], start[1:], settings, limit_w, strict=True)
    return {
        name: (count, frozenset(zip(node[first:end], gpu[first:end], strict=True)), (*setting, limit))
        for name, count, first, end, setting, limit in rows
    }
