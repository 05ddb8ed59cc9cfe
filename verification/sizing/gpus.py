"""The GPUs of a decision: that they exist, are used once, and lie in blocks that are nobody else's.

Arrays state the rules; words are made for the few places where one is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from wattsched.topology.arrays import BoolArray, IntArray, distinct, ranges
from wattsched.verification.sizing.assigned import UNKNOWN, Assigned
from wattsched.verification.sizing.pools import block_of

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
    strange = (used.number == UNKNOWN) | (home != used.pool)
    told = [
        *_miscounted(assigned, used, twice),
        *_strange(assigned, used, np.flatnonzero(strange)),
        *_unavailable(assigned, used),
        *_shared(assigned, used),
    ]
    held, strangers = (np.bincount(user, minlength=len(pool)) for user in (used.user, used.user[strange]))
    at_home = (pool != UNKNOWN) & (held > 0) & (strangers == 0)
    in_blocks, on_nodes = (
        at_home & np.append([one == rule for one in places.capacity], False)[pool]
        for rule in ("blocks", "nodes")
    )
    told += _blocks(assigned, used.take(in_blocks[used.user]), np.flatnonzero(in_blocks), kept)
    told += _parts(assigned, used.take(on_nodes[used.user]), kept)
    return [text for *_, text in sorted(told)]


class _Used(NamedTuple):
    """GPUs that users have, each once, user after user; arrays of shape (n_used,).

    Attributes
    ----------
    user : int array
        Place among `Assigned.users`.
    pool : int array
        Of the user.
    node, gpu : int arrays
    number : int array
        Of the GPU in the cluster; `UNKNOWN` for one that does not exist.
    crowded : bool array
        Perhaps somebody else uses the GPU as well.
    """

    user: IntArray
    pool: IntArray
    node: IntArray
    gpu: IntArray
    number: IntArray
    crowded: BoolArray

    def take(self, which: BoolArray) -> _Used:
        """Some of them."""
        if which.all():
            return self
        columns: list[Any] = [column[which] for column in self]
        return _Used(*columns)


def _used(assigned: Assigned) -> tuple[_Used, BoolArray]:
    """GPUs of the users, and which of these list one twice."""
    listed, user = assigned.listed(assigned.users)
    node, gpu, number = assigned.node[listed], assigned.gpu[listed], assigned.number[listed]
    pool = assigned.pool[assigned.users][user]
    n = len(assigned.places.available)
    if number.min(initial=0) > UNKNOWN and distinct(number, n):  # and nobody has those of another
        nobody = np.zeros(len(user), dtype=bool)
        return _Used(user, pool, node, gpu, number, nobody), np.zeros(len(assigned.users), dtype=bool)
    uses = np.bincount(number[number != UNKNOWN], minlength=n)
    crowded = (number == UNKNOWN) | (uses[number] > 1)
    used = _Used(user, pool, node, gpu, number, crowded)
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


def _gpu(assigned: Assigned, used: _Used, entry: int) -> tuple[int, str, int]:
    """User, node and number of a GPU."""
    return int(used.user[entry]), assigned.node_names[used.node[entry]], int(used.gpu[entry])


def _miscounted(assigned: Assigned, used: _Used, twice: BoolArray) -> Iterator[Told]:
    held = np.bincount(used.user, minlength=len(twice))
    for user in np.flatnonzero(twice).tolist():
        yield user, 0, "", 0, f"job '{_name(assigned, user)}' lists a GPU twice"
    for user in np.flatnonzero(held != assigned.gpus[assigned.users]).tolist():
        asked, plural = assigned.gpus[assigned.users[user]], "" if held[user] == 1 else "s"
        found = f"{held[user]} GPU{plural} in its nodes, its configuration {asked}"
        yield user, 1, "", 0, f"job '{_name(assigned, user)}' has {found}"


def _strange(assigned: Assigned, used: _Used, strange: IntArray) -> Iterator[Told]:
    """GPUs that do not exist, or are in another pool than the job's."""
    places = assigned.places
    for entry in strange.tolist():
        user, node, gpu = _gpu(assigned, used, entry)
        who = f"job '{_name(assigned, user)}'"
        if used.number[entry] == UNKNOWN:
            yield user, 2, node, gpu, f"{who} uses GPU {gpu} of node '{node}', which does not exist"
        else:
            pool = assigned.records[int(assigned.users[user])].pool
            its = places.pools[places.pool[used.node[entry]]]
            yield user, 2, node, gpu, f"{who} runs in pool '{pool}' but node '{node}' is in '{its}'"


def _unavailable(assigned: Assigned, used: _Used) -> Iterator[Told]:
    broken = (used.number != UNKNOWN) & ~assigned.places.available[used.number]
    for entry in np.flatnonzero(broken).tolist():
        user, node, gpu = _gpu(assigned, used, entry)
        told = f"job '{_name(assigned, user)}' uses GPU {gpu} of node '{node}', which is unavailable"
        yield user, 3, node, gpu, told


def _shared(assigned: Assigned, used: _Used) -> Iterator[Told]:
    crowded = np.flatnonzero(used.crowded)
    later, first = _later(used.node[crowded], used.gpu[crowded]) if len(crowded) else (crowded, crowded)
    for mine, its in zip(crowded[later].tolist(), crowded[first].tolist(), strict=True):
        user, node, gpu = _gpu(assigned, used, mine)
        name, other = _name(assigned, user), _name(assigned, int(used.user[its]))
        if name != other:
            yield user, 4, node, gpu, f"jobs '{other}' and '{name}' both use GPU {gpu} of node '{node}'"


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
        (line + begin)[aligned], places.line[scattered.pool] + places.position[scattered.number]
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
