"""The assignments of a decision by column, by the numbers of the jobs, pools and nodes that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from wattsched.instances.sizing.decision import Assignment, AssignmentColumns, Decision
from wattsched.topology.arrays import IntArray, ranges
from wattsched.topology.column import NONE, Coded
from wattsched.verification.sizing.pools import Places, Pool

UNKNOWN = -1
"""Number of a job, pool or GPU that there is not."""

_COUNTS = ("gpus", "frequency_mhz", "batch_size", "gpu")
SETTINGS = ("pool", "gpus", "frequency_mhz", "power_limit_w", "batch_size")
"""Fields that identify a configuration."""


class Assigned:
    """Assignments by column.

    Attributes
    ----------
    records : sequence of Assignment
        The same one by one, for words about a few of them.
    places : Places
    names : list of str
    job, pool : int arrays, shape (n_assignments,)
        `UNKNOWN` where the name is.
    set : Coded
    gpus, batch_size : int arrays, shape (n_assignments,)
        Batch sizes are 0 for none.
    settings : tuple of arrays, shape (n_assignments,)
        What singles out the configuration of each, as `SETTINGS` has it; 0 for none.
    start : int array, shape (n_assignments + 1,)
        Where the GPUs of each begin.
    nodes : dict of str to int
        Numbers of the nodes; those that do not exist have some beyond the cluster's.
    node, gpu, number : int arrays, shape (n_listed,)
        GPUs as they are listed, by their nodes, and in the cluster; `UNKNOWN` for one that does not exist.
    """

    def __init__(
        self, decision: Decision, jobs: Mapping[str, int], pools: Mapping[str, Pool], places: Places
    ):
        self.records: Sequence[Assignment] = decision.jobs
        self.places = places
        columns = _columns(decision.jobs)
        self.names: list[str] = columns["job"]
        self.job = np.fromiter(map(jobs.get, self.names, repeat(UNKNOWN)), np.int64, len(self.names))
        self.pool = _numbered(columns["pool"], {name: number for number, name in enumerate(pools)})
        self.set: Coded = columns["set"]
        limit_w = columns["power_limit_w"]
        limit_w = np.where(np.isnan(limit_w), 0.0, limit_w)
        self.gpus: IntArray = columns["gpus"]
        self.batch_size: IntArray = columns["batch_size"]
        self.settings = (self.pool, self.gpus, columns["frequency_mhz"], limit_w, self.batch_size)
        self.start: IntArray = columns["start"]
        self.gpu: IntArray = columns["gpu"]
        self.nodes, self.node = places.node, _numbered(columns["node"], places.node)
        if (self.node == UNKNOWN).any():
            unknown = dict.fromkeys(name for name in columns["node"].values if name not in places.node)
            self.nodes = places.node | {name: len(places.node) + more for more, name in enumerate(unknown)}
            self.node = _numbered(columns["node"], self.nodes)
        # What has no number in the cluster has no GPU there.
        size, first = (
            np.append(of, np.zeros(len(self.nodes) - len(of), np.int64)) for of in (places.size, places.first)
        )
        self.number = np.where(self.gpu < size[self.node], first[self.node] + self.gpu, UNKNOWN)

    def __len__(self) -> int:
        """Return the number of assignments."""
        return len(self.names)

    @cached_property
    def node_names(self) -> list[str]:
        """Nodes by number."""
        return list(self.nodes)

    @cached_property
    def formed(self) -> dict[str, list[int]]:
        """Assignments in each set that is formed."""
        found: dict[str, list[int]] = {}
        for place in np.flatnonzero(self.set.codes != NONE).tolist():
            found.setdefault(self.set.values[self.set.codes[place]], []).append(place)
        return found

    @cached_property
    def users(self) -> IntArray:
        """Assignments that take GPUs: the jobs alone, and the first of every set."""
        alone = np.flatnonzero(self.set.codes == NONE)
        return np.append(alone, [places[0] for places in self.formed.values()]).astype(np.int64)

    def listed(self, assignments: IntArray) -> tuple[IntArray, IntArray]:
        """GPUs of some assignments, entries of `number`, and to which of these each belongs."""
        length = self.start[assignments + 1] - self.start[assignments]
        return ranges(self.start[assignments], length), np.repeat(np.arange(len(assignments)), length)


def _columns(records: Sequence[Assignment]) -> dict[str, Any]:
    """Columns of assignments, each with the GPUs that it lists, whatever their number."""
    if isinstance(records, AssignmentColumns):
        return {
            "job": records.names,
            **{name: records.coded(name) for name in ("pool", "set", "node")},
            **{name: records.counts(name) for name in _COUNTS},
            "power_limit_w": records.numbers("power_limit_w"),
            "start": records.start,
        }
    counts = {name: [getattr(one, name) or 0 for one in records] for name in _COUNTS[:-1]}
    counts["gpu"] = [gpu for one in records for gpus in one.nodes.values() for gpu in gpus]
    held = [sum(map(len, one.nodes.values())) for one in records]
    return {
        "job": [one.job for one in records],
        "pool": Coded.of(one.pool for one in records),
        "set": Coded.of(one.set for one in records),
        "node": Coded.of(node for one in records for node, gpus in one.nodes.items() for _ in gpus),
        **{name: np.array(values, dtype=np.int64) for name, values in counts.items()},
        "power_limit_w": np.array([one.power_limit_w for one in records], dtype=float),
        "start": np.cumsum([0, *held]),
    }


def _numbered(column: Coded, numbers: Mapping[str, int]) -> IntArray:
    known = map(numbers.get, column.values, repeat(UNKNOWN))
    return np.array([*known, UNKNOWN], dtype=np.int64)[column.codes]
