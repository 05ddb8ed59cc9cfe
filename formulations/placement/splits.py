"""Counts in certificate trees of `placement`: nodes in use and tasks on them, anywhere or on equal nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from wattsched.formulations.counts import Counting, Counts
from wattsched.formulations.placement.data import Window
from wattsched.formulations.placement.outcomes import Outcomes
from wattsched.formulations.program import Program
from wattsched.topology.arrays import FloatArray

_NO_PRICE = 1e-9


class _Key(NamedTuple):
    """Nodes with some tasks at least, by profile and number; or tasks of a profile; all or of a class."""

    cls: int | None = None
    profile: int | None = None
    hosts: tuple[tuple[int, int], ...] = ()


def counts_of(window: Window, outcomes: Outcomes, program: Program) -> Counts:
    """Counts of a program over all outcomes, from those of everything to those of single outcomes.

    Parameters
    ----------
    program : Program
        Of `patterns.program_of`.
    """
    counting, hosted, repeated = Counting(), outcomes.hosted, window.demand > 1
    for column, (cls, tasks) in enumerate(zip(outcomes.cls.tolist(), hosted.tolist(), strict=True)):
        counting.add(0, _Key(), column)
        counting.add(1, _Key(cls), column)
        for profile in np.flatnonzero(tasks).tolist():
            counting.add(2, _Key(None, profile), column, tasks[profile])
            counting.add(3, _Key(cls, profile), column, tasks[profile])
            for times in range(1, tasks[profile] + 1 if repeated[profile] else 1):
                counting.add(4, _Key(cls, None, ((profile, times),)), column)
        if np.count_nonzero(tasks) > 1:
            here = np.flatnonzero(outcomes.cls == cls)
            whole = _Key(cls, None, tuple((p, tasks[p]) for p in np.flatnonzero(tasks).tolist()))
            for larger in here[(hosted[here] >= tasks).all(axis=1)].tolist():
                counting.add(5, whole, larger)
    nodes, names = window.nodes.names, [task.name for task in window.instance.tasks]
    first = {int(profile): names[task] for task, profile in reversed(list(enumerate(window.profile)))}

    def named(key: _Key) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if key.cls is not None:
            told["nodes"] = [nodes[node] for node in window.classes.members[key.cls]]
        if key.profile is not None:
            told["task"] = first[key.profile]
        return told | ({"hosts": {first[p]: times for p, times in key.hosts}} if key.hosts else {})

    # What prices prove counts on every node of a class hosting what is best at these.
    upper = np.asarray(window.classes.count[outcomes.cls] + 1, dtype=float)
    classes = np.unique(outcomes.cls)

    def prices(y: FloatArray) -> dict[str, float]:
        of_tasks, of_nodes = np.split(y, [len(window.demand)])
        node_cost = np.zeros(len(window.classes.count))
        node_cost[classes] = -of_nodes
        return named_prices(window, window.worth + of_tasks, node_cost)

    return counting.counts(replace(program, upper=upper), prices, named)


def named_prices(window: Window, task_worth: FloatArray, node_cost: FloatArray) -> dict[str, float]:
    """Prices under the names of tasks and nodes; parameters as of `outcomes.Prices`."""
    tasks, named = window.instance.tasks, {}
    for task, profile in zip(tasks, window.profile, strict=True):
        named[f"task:{task.name}"] = float(task_worth[profile])
    for cls, nodes in enumerate(window.classes.members):
        if node_cost[cls] > _NO_PRICE:
            named |= {f"node:{window.nodes.names[node]}": -float(node_cost[cls]) for node in nodes}
    return named
