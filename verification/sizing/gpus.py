"""Check the GPUs of a decision: they exist, are used once, and lie in blocks that no other job reaches into.

The rules are checked on arrays; messages are made for the few jobs that violate one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from wattsched.instances.sizing.decision import Assignment, AssignmentColumns, Decision
from wattsched.topology.arrays import BoolArray, IntArray, Table, alike, distinct, offsets, ranges
from wattsched.topology.column import NONE, Coded
from wattsched.verification.sizing.pools import Places, Pool, block_of

UNKNOWN = -1
"""Number of a job, pool or GPU that does not exist."""

_COUNTS = ("gpus", "frequency_mhz", "batch_size", "gpu")
SETTINGS = ("pool", "gpus", "frequency_mhz", "power_limit_w", "batch_size")
"""Fields that identify a configuration."""


class Assigned:
    """Assignments of a decision, by column.

    Attributes
    ----------
    records : sequence of Assignment
        The same one by one, for messages.
    places : Places
    names : list of str
    job, pool : int arrays, shape (n_assignments,)
        `UNKNOWN` where the name is.
    set : Coded
    gpus, batch_size : int arrays, shape (n_assignments,)
        Batch sizes are 0 for none.
    settings : tuple of arrays, shape (n_assignments,)
        Configuration of each, in the order of `SETTINGS`; 0 for none.
    start : int array, shape (n_assignments + 1,)
        Where the GPUs of each begin.
    nodes : dict of str to int
        Numbers of the nodes; those that do not exist have some beyond the cluster's.
    node, gpu, number : int arrays, shape (n_listed,)
        Node of each listed GPU, its index there, and its number in the cluster, or `UNKNOWN`.
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
        # A node that is unknown to the cluster has no GPUs.
        size, first = (
            np.append(of, np.zeros(len(self.nodes) - len(of), np.int64)) for of in (places.size, places.first)
        )
        self.number = np.where(self.gpu < size[self.node], first[self.node] + self.gpu, UNKNOWN)

    def __len__(self) -> int:
        """Return the number of assignments."""
        return len(self.names)

    @cached_property
    def node_names(self) -> list[str]:
        """Names of the nodes, by number."""
        return list(self.nodes)

    @cached_property
    def formed(self) -> dict[str, list[int]]:
        """Assignments in each set that is formed."""
        members: dict[str, list[int]] = {}
        for place in np.flatnonzero(self.set.codes != NONE).tolist():
            members.setdefault(self.set.values[self.set.codes[place]], []).append(place)
        return members

    @cached_property
    def users(self) -> IntArray:
        """Assignments that take GPUs: the jobs alone, and the first of every set."""
        alone = np.flatnonzero(self.set.codes == NONE)
        return np.append(alone, [places[0] for places in self.formed.values()]).astype(np.int64)

    def listed(self, assignments: IntArray) -> tuple[IntArray, IntArray]:
        """Return the GPUs of some assignments, as indices of `number`, and the assignment of each."""
        length = self.start[assignments + 1] - self.start[assignments]
        return ranges(self.start[assignments], length), np.repeat(np.arange(len(assignments)), length)


def _columns(records: Sequence[Assignment]) -> dict[str, Any]:
    """Return the fields of assignments as columns; GPUs are flattened, those of each from its `start` on."""
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
    n_gpus = [sum(map(len, one.nodes.values())) for one in records]
    return {
        "job": [one.job for one in records],
        "pool": Coded.of(one.pool for one in records),
        "set": Coded.of(one.set for one in records),
        "node": Coded.of(node for one in records for node, gpus in one.nodes.items() for _ in gpus),
        **{name: np.array(values, dtype=np.int64) for name, values in counts.items()},
        "power_limit_w": np.array([one.power_limit_w for one in records], dtype=float),
        "start": offsets(n_gpus),
    }


def _numbered(column: Coded, numbers: Mapping[str, int]) -> IntArray:
    """Return the number of each entry of a column, `UNKNOWN` where its value has none."""
    by_value = map(numbers.get, column.values, repeat(UNKNOWN))
    return np.array([*by_value, UNKNOWN], dtype=np.int64)[column.codes]


class _Fault(NamedTuple):
    """A fault of a user, a place among `Assigned.users`, by the number of the rule that it violates."""

    user: int
    rule: int
    node: str
    gpu: int
    text: str


def gpu_faults(assigned: Assigned, kept: BoolArray) -> list[str]:
    """Return messages about GPUs that do not exist, are shared, or lie where their pool does not allow.

    A pool of blocks allows an aligned block that no other job reaches into, all of whose GPUs are
    available; a pool of nodes one node, or whole nodes and at most one part of another. Of a set of jobs
    that share GPUs the first is checked.

    Parameters
    ----------
    kept : bool array, shape (n_assignments,)
        Jobs that keep the GPUs they hold, even where these are in no block or in that of another such job.
    """
    places, pool = assigned.places, assigned.pool[assigned.users]
    used, twice = _used(assigned)
    # A node that the cluster does not have is in no pool.
    home = np.append(places.pool, UNKNOWN)[np.minimum(used.node, len(places.pool))]
    misplaced = (used.number == UNKNOWN) | (home != pool[used.user])
    faults = [*_wrong_counts(assigned, used, twice), *_single_gpu_faults(assigned, used, misplaced)]
    n_used, n_misplaced = (np.bincount(u, minlength=len(pool)) for u in (used.user, used.user[misplaced]))
    at_home = (pool != UNKNOWN) & (n_used > 0) & (n_misplaced == 0)
    in_blocks, on_nodes = (
        at_home & np.append([one == rule for one in places.capacity], False)[pool]
        for rule in ("blocks", "nodes")
    )
    faults += _block_faults(assigned, used.take(in_blocks[used.user]), np.flatnonzero(in_blocks), kept)
    faults += _partial_node_faults(assigned, used.take(on_nodes[used.user]), kept)
    return [fault.text for fault in sorted(faults)]


@dataclass(frozen=True, eq=False)
class _Used(Table):
    """GPUs that users have, each once, user after user; arrays of shape (n_used,).

    ``user`` is a place among `Assigned.users`, ``number`` that of the GPU in the cluster, `UNKNOWN` for one
    that does not exist. A GPU that is not ``crowded`` has one user for certain.
    """

    user: IntArray
    node: IntArray
    gpu: IntArray
    number: IntArray
    crowded: BoolArray


def _used(assigned: Assigned) -> tuple[_Used, BoolArray]:
    """Return the GPUs of the users, and the mask of users that list one twice."""
    listed, user = assigned.listed(assigned.users)
    node, gpu, number = assigned.node[listed], assigned.gpu[listed], assigned.number[listed]
    uses = np.bincount(number[number != UNKNOWN], minlength=len(assigned.places.available))
    crowded = (number == UNKNOWN) | (uses[number] > 1)
    used = _Used(user, node, gpu, number, crowded)
    again = np.flatnonzero(crowded)
    later, _ = _later(user[again], node[again], gpu[again])
    again = again[later]
    once = np.ones(len(user), dtype=bool)
    once[again] = False
    return used.take(once), np.bincount(user[again], minlength=len(assigned.users)) > 0


def _later(*keys: IntArray) -> tuple[IntArray, IntArray]:
    """Return the entries whose keys all occur before, and the first entries that have them."""
    if not len(keys[0]):
        return keys[0], keys[0]
    first, group = alike(keys)
    before = first[group]
    later = np.flatnonzero(before < np.arange(len(before)))
    return later, before[later]


def _name(assigned: Assigned, user: int) -> str:
    return assigned.names[int(assigned.users[user])]


def _wrong_counts(assigned: Assigned, used: _Used, twice: BoolArray) -> Iterator[_Fault]:
    """Yield users that list a GPU twice, or other than as many GPUs as their configurations have."""
    n_used = np.bincount(used.user, minlength=len(twice))
    for user in np.flatnonzero(twice).tolist():
        yield _Fault(user, 0, "", 0, f"job '{_name(assigned, user)}' lists a GPU twice")
    for user in np.flatnonzero(n_used != assigned.gpus[assigned.users]).tolist():
        configured, plural = assigned.gpus[assigned.users[user]], "" if n_used[user] == 1 else "s"
        counts = f"{n_used[user]} GPU{plural} in its nodes, its configuration {configured}"
        yield _Fault(user, 1, "", 0, f"job '{_name(assigned, user)}' has {counts}")


def _single_gpu_faults(assigned: Assigned, used: _Used, misplaced: BoolArray) -> Iterator[_Fault]:
    """Yield GPUs that do not exist or are in another pool (`misplaced`), are unavailable, or used twice."""
    places, crowded = assigned.places, np.flatnonzero(used.crowded)
    broken = (used.number != UNKNOWN) & ~places.available[used.number]
    later, first = _later(used.node[crowded], used.gpu[crowded])
    before = dict(zip(crowded[later].tolist(), crowded[first].tolist(), strict=True))
    for entry in sorted({*np.flatnonzero(misplaced | broken).tolist(), *before}):
        user, node, gpu = int(used.user[entry]), assigned.node_names[used.node[entry]], int(used.gpu[entry])
        name = _name(assigned, user)
        who, where = f"job '{name}'", f"GPU {gpu} of node '{node}'"
        if used.number[entry] == UNKNOWN:
            yield _Fault(user, 2, node, gpu, f"{who} uses {where}, which does not exist")
        elif misplaced[entry]:
            pool = assigned.records[int(assigned.users[user])].pool
            its = places.pools[places.pool[used.node[entry]]]
            text = f"{who} runs in pool '{pool}' but node '{node}' is in '{its}'"
            yield _Fault(user, 2, node, gpu, text)
        if broken[entry]:
            yield _Fault(user, 3, node, gpu, f"{who} uses {where}, which is unavailable")
        if entry in before and name != (other := _name(assigned, int(used.user[before[entry]]))):
            yield _Fault(user, 4, node, gpu, f"jobs '{other}' and '{name}' both use {where}")


def _block_faults(assigned: Assigned, used: _Used, users: IntArray, kept: BoolArray) -> Iterator[_Fault]:
    """Yield blocks that are not aligned, have unavailable GPUs, or overlap, of users that are at home."""
    if not len(users):
        return
    places, place = assigned.places, assigned.users[users]
    n_used = np.bincount(used.user, minlength=len(assigned.users))
    start = (np.cumsum(n_used) - n_used)[users]
    begin, aligned = places.reserved(used.number, start, assigned.gpus[place])
    for user in users[~aligned & ~kept[place]].tolist():
        size = block_of(assigned.gpus[assigned.users[user]])
        text = f"job '{_name(assigned, user)}' is not inside one aligned block of {size} GPUs"
        yield _Fault(user, 5, "", 0, text)
    line = places.line[assigned.pool[place]]
    whole = np.flatnonzero(aligned & ~kept[place])
    yield from _unavailable_in_blocks(assigned, used, users[whole], (line + begin)[whole])
    # A job whose GPUs are scattered occupies only them.
    is_scattered = np.zeros(len(assigned.users), dtype=bool)
    is_scattered[users[~aligned]] = True
    scattered = used.take(is_scattered[used.user])
    first = np.append(
        (line + begin)[aligned],
        places.line[places.home[scattered.number]] + places.position[scattered.number],
    )
    length = np.append(block_of(assigned.gpus[place[aligned]]), np.ones(len(scattered.user), dtype=np.int64))
    owner = np.append(users[aligned], scattered.user)
    for mine, other in sorted(_overlaps(first, length, owner, len(places.position))):
        a, b = assigned.users[other], assigned.users[mine]
        one, two = assigned.names[a], assigned.names[b]
        if one != two and not (kept[a] and kept[b]):
            pool = assigned.records[int(b)].pool
            text = f"the blocks of jobs '{one}' and '{two}' in pool '{pool}' overlap"
            yield _Fault(mine, 6, one, 0, text)


def _unavailable_in_blocks(
    assigned: Assigned, used: _Used, users: IntArray, first: IntArray
) -> Iterator[_Fault]:
    """Yield unavailable GPUs of users' blocks that the users do not list (`_single_gpu_faults` has those).

    Parameters
    ----------
    first : int array, shape (n_users,)
        Position on the lines at which each block begins.
    """
    places = assigned.places
    if places.available.all():
        return
    size = block_of(assigned.gpus[assigned.users[users]])
    for place in np.flatnonzero(places.broken(first, size)).tolist():
        user = int(users[place])
        block = places.on_lines[first[place] : first[place] + size[place]]
        others = np.setdiff1d(block[~places.available[block]], used.number[used.user == user])
        for number in others[:1].tolist():
            node = int(np.searchsorted(places.first, number, side="right")) - 1
            name, gpu = assigned.node_names[node], number - int(places.first[node])
            of = f"GPU {gpu} of node '{name}' in its block of {size[place]} is unavailable"
            yield _Fault(user, 5, name, gpu, f"job '{_name(assigned, user)}': {of}")


def _partial_node_faults(assigned: Assigned, used: _Used, kept: BoolArray) -> Iterator[_Fault]:
    """Yield users in pools of nodes that occupy several nodes in part; one is allowed."""
    if not len(used.user):
        return
    n_nodes = len(assigned.places.size)
    pair, gpus = np.unique(used.user * n_nodes + used.node, return_counts=True)
    user, node = pair // max(1, n_nodes), pair % max(1, n_nodes)
    n_partial = np.bincount(user[gpus < assigned.places.size[node]], minlength=len(assigned.users))
    for one in np.flatnonzero(n_partial > 1).tolist():
        if not kept[assigned.users[one]]:
            parts = f"parts of {n_partial[one]} nodes, of which one is allowed"
            text = f"job '{_name(assigned, one)}' has {parts}"
            yield _Fault(one, 5, "", 0, text)


def _overlaps(first: IntArray, length: IntArray, owner: IntArray, n_spots: int) -> set[tuple[int, int]]:
    """Return pairs of owners, the later first, whose ranges from `first` on overlap, of `n_spots` in all."""
    spots = ranges(first, length)
    if distinct(spots, n_spots):
        return set()
    change = np.bincount(first, minlength=n_spots + 1) - np.bincount(first + length, minlength=n_spots + 1)
    crowded, owners = np.cumsum(change[:-1]) > 1, np.repeat(owner, length)  # spots in several ranges
    order = np.argsort(owners, kind="stable")
    order = order[crowded[spots[order]]]
    spots, owners = spots[order], owners[order]
    later, before = _later(spots)
    return set(zip(owners[later].tolist(), owners[before].tolist(), strict=True))
