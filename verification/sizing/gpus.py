"""The GPUs of a decision: that they exist, are used once, and lie in blocks that are nobody else's.

Arrays state the rules; words are made for the few places where one is broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from wattsched.instances.sizing.decision import Assignment, AssignmentColumns, Decision
from wattsched.topology.arrays import BoolArray, IntArray, Table, distinct, ranges
from wattsched.topology.column import NONE, Coded
from wattsched.verification.sizing.pools import Places, Pool, block_of

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


Told = tuple[int, int, str, int, str]
"""A fault after what it is sorted by: its user, the number of the rule, a name, a GPU."""


def gpu_faults(assigned: Assigned, kept: BoolArray) -> list[str]:
    """Every job's GPUs exist, are its own, and lie where the pool lets a job have them.

    In pools of blocks that is an aligned block that no other job reaches into, all of whose GPUs are
    available; in pools of nodes one node, or whole nodes and at most one part of another. Of the jobs that
    share their GPUs the first counts.

    Parameters
    ----------
    kept : bool array, shape (n_assignments,)
        Jobs that keep the GPUs they hold, even where these are in no block or in that of another such job.
    """
    places, pool = assigned.places, assigned.pool[assigned.users]
    used, twice = _used(assigned)
    home = np.append(places.pool, UNKNOWN)[np.minimum(used.node, len(places.pool))]
    strange = (used.number == UNKNOWN) | (home != pool[used.user])
    told = [
        *_miscounted(assigned, used, twice),
        *_one_by_one(assigned, used, strange),
    ]
    held, foreign = (np.bincount(user, minlength=len(pool)) for user in (used.user, used.user[strange]))
    at_home = (pool != UNKNOWN) & (held > 0) & (foreign == 0)
    in_blocks, on_nodes = (
        at_home & np.append([one == rule for one in places.capacity], False)[pool]
        for rule in ("blocks", "nodes")
    )
    told += _blocks(assigned, used.take(in_blocks[used.user]), np.flatnonzero(in_blocks), kept)
    told += _parts(assigned, used.take(on_nodes[used.user]), kept)
    return [text for *_, text in sorted(told)]


@dataclass(frozen=True, eq=False)
class _Used(Table):
    """GPUs that users have, each once, user after user; arrays of shape (n_used,).

    ``user`` is a place among `Assigned.users`, ``number`` that of the GPU in the cluster, `UNKNOWN` for one
    that does not exist. Of what is ``crowded`` perhaps somebody else uses the GPU as well.
    """

    user: IntArray
    node: IntArray
    gpu: IntArray
    number: IntArray
    crowded: BoolArray


def _used(assigned: Assigned) -> tuple[_Used, BoolArray]:
    """GPUs of the users, and which of these list one twice."""
    listed, user = assigned.listed(assigned.users)
    node, gpu, number = assigned.node[listed], assigned.gpu[listed], assigned.number[listed]
    uses = np.bincount(number[number != UNKNOWN], minlength=len(assigned.places.available))
    crowded = (number == UNKNOWN) | (uses[number] > 1)
    used = _Used(user, node, gpu, number, crowded)
    again = np.flatnonzero(crowded)
    again = again[_later(user[again], node[again], gpu[again])[0]]
    once = np.ones(len(user), dtype=bool)
    once[again] = False
    return used.take(once), np.bincount(user[again], minlength=len(assigned.users)) > 0


def _later(*keys: IntArray) -> tuple[IntArray, IntArray]:
    """Entries whose keys all occur before, and the first entries that have them."""
    if not len(keys[0]):
        return keys[0], keys[0]
    _, first, group = np.unique(np.stack(keys, axis=1), axis=0, return_index=True, return_inverse=True)
    before = first[group.reshape(-1)]
    later = np.flatnonzero(before < np.arange(len(before)))
    return later, before[later]


def _name(assigned: Assigned, user: int) -> str:
    return assigned.names[int(assigned.users[user])]


def _miscounted(assigned: Assigned, used: _Used, twice: BoolArray) -> Iterator[Told]:
    held = np.bincount(used.user, minlength=len(twice))
    for user in np.flatnonzero(twice).tolist():
        yield user, 0, "", 0, f"job '{_name(assigned, user)}' lists a GPU twice"
    for user in np.flatnonzero(held != assigned.gpus[assigned.users]).tolist():
        asked, plural = assigned.gpus[assigned.users[user]], "" if held[user] == 1 else "s"
        found = f"{held[user]} GPU{plural} in its nodes, its configuration {asked}"
        yield user, 1, "", 0, f"job '{_name(assigned, user)}' has {found}"


def _one_by_one(assigned: Assigned, used: _Used, strange: BoolArray) -> Iterator[Told]:
    """GPUs that do not exist, are in another pool than the job's, take no jobs, or are somebody else's."""
    places, crowded = assigned.places, np.flatnonzero(used.crowded)
    broken = (used.number != UNKNOWN) & ~places.available[used.number]
    later, first = _later(used.node[crowded], used.gpu[crowded])
    before = dict(zip(crowded[later].tolist(), crowded[first].tolist(), strict=True))
    for entry in sorted({*np.flatnonzero(strange | broken).tolist(), *before}):
        user, node, gpu = int(used.user[entry]), assigned.node_names[used.node[entry]], int(used.gpu[entry])
        name = _name(assigned, user)
        who, where = f"job '{name}'", f"GPU {gpu} of node '{node}'"
        if used.number[entry] == UNKNOWN:
            yield user, 2, node, gpu, f"{who} uses {where}, which does not exist"
        elif strange[entry]:
            pool = assigned.records[int(assigned.users[user])].pool
            its = places.pools[places.pool[used.node[entry]]]
            yield user, 2, node, gpu, f"{who} runs in pool '{pool}' but node '{node}' is in '{its}'"
        if broken[entry]:
            yield user, 3, node, gpu, f"{who} uses {where}, which is unavailable"
        if entry in before and name != (other := _name(assigned, int(used.user[before[entry]]))):
            yield user, 4, node, gpu, f"jobs '{other}' and '{name}' both use {where}"


def _blocks(assigned: Assigned, used: _Used, users: IntArray, kept: BoolArray) -> Iterator[Told]:
    """Blocks of users whose GPUs are all in their own pool; `kept` is of all assignments."""
    if not len(users):
        return
    places, place = assigned.places, assigned.users[users]
    held = np.bincount(used.user, minlength=len(assigned.users))
    start = (np.cumsum(held) - held)[users]
    begin, aligned = places.reserved(used.number, start, assigned.gpus[place])
    for user in users[~aligned & ~kept[place]].tolist():
        size = block_of(assigned.gpus[assigned.users[user]])
        told = f"job '{_name(assigned, user)}' is not inside one aligned block of {size} GPUs"
        yield user, 5, "", 0, told
    line = places.line[assigned.pool[place]]
    whole = np.flatnonzero(aligned & ~kept[place])
    yield from _broken(assigned, used, users[whole], (line + begin)[whole])
    # Whose GPUs are scattered takes only them.
    apart = np.zeros(len(assigned.users), dtype=bool)
    apart[users[~aligned]] = True
    scattered = used.take(apart[used.user])
    first = np.append(
        (line + begin)[aligned],
        places.line[places.home[scattered.number]] + places.position[scattered.number],
    )
    length = np.append(block_of(assigned.gpus[place[aligned]]), np.ones(len(scattered.user), dtype=np.int64))
    owner = np.append(users[aligned], scattered.user)
    for mine, other in sorted(_overlaps(first, length, owner, len(places.position))):
        a, b = assigned.users[other], assigned.users[mine]
        names = assigned.names[a], assigned.names[b]
        if names[0] != names[1] and not (kept[a] and kept[b]):
            pool = assigned.records[int(b)].pool
            told = f"the blocks of jobs '{names[0]}' and '{names[1]}' in pool '{pool}' overlap"
            yield mine, 6, names[0], 0, told


def _broken(assigned: Assigned, used: _Used, users: IntArray, first: IntArray) -> Iterator[Told]:
    """GPUs of users' blocks that are unavailable, besides those that they use, of which others tell.

    Parameters
    ----------
    first : int array, shape (n_users,)
        Where their blocks begin on the lines.
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
            yield user, 5, name, gpu, f"job '{_name(assigned, user)}': {of}"


def _parts(assigned: Assigned, used: _Used, kept: BoolArray) -> Iterator[Told]:
    """Users, all of them in pools of nodes, with parts of several nodes."""
    if not len(used.user):
        return
    n_nodes = len(assigned.places.size)
    pair, gpus = np.unique(used.user * n_nodes + used.node, return_counts=True)
    user, node = pair // max(1, n_nodes), pair % max(1, n_nodes)
    parts = np.bincount(user[gpus < assigned.places.size[node]], minlength=len(assigned.users))
    for one in np.flatnonzero(parts > 1).tolist():
        if not kept[assigned.users[one]]:
            told = f"job '{_name(assigned, one)}' has parts of {parts[one]} nodes, of which one is allowed"
            yield one, 5, "", 0, told


def _overlaps(first: IntArray, length: IntArray, owner: IntArray, n_spots: int) -> set[tuple[int, int]]:
    """Owners of ranges, each with an earlier one that has one of its spots first."""
    spots = ranges(first, length)
    if distinct(spots, n_spots):
        return set()
    change = np.bincount(first, minlength=n_spots + 1) - np.bincount(first + length, minlength=n_spots + 1)
    crowded, owners = np.cumsum(change[:-1]) > 1, np.repeat(owner, length)
    order = np.argsort(owners, kind="stable")
    order = order[crowded[spots[order]]]
    spots, owners = spots[order], owners[order]
    later, before = _later(spots)
    return set(zip(owners[later].tolist(), owners[before].tolist(), strict=True))
