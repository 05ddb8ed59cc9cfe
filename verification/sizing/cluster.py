"""The checker's own reading of a cluster: pools and buddy blocks, walked from the tree.

It states in plain loops what `topology` computes with arrays, and shares no code with it.

The checker's rules of GPUs: they exist, nobody shares them, and every job has its aligned block.

The checker's own count of the GPUs that jobs can be placed on, by size of free aligned block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from wattsched.instances.sizing.decision import Assignment
from wattsched.instances.sizing.instance import Instance
from wattsched.topology.cluster import Cluster, Node

Gpu = tuple[str, int]
Block = list[Gpu]


@dataclass
class Place:
    """A pool: nodes that are alike, and where each of their GPUs lies in which structural block.

    ``where`` maps a GPU to the number of its block and its offset in it; ``sizes`` are the blocks' sizes.
    """

    name: str
    gpu_type: str
    gpus_per_node: int
    domains: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)
    where: dict[Gpu, tuple[int, int]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    @property
    def largest_block(self) -> int:
        """Size of the largest block a job can have here."""
        return max(self.sizes)

    @property
    def available(self) -> int:
        """GPUs that take jobs."""
        return sum(node.gpus - len(node.unavailable) for node in self.nodes)


def places_of(cluster: Cluster) -> dict[str, Place]:
    """Pools of a cluster by name, in the order of their first nodes.

    Nodes with a label form the pool of that label. Other nodes are one pool when they agree in GPU type, GPU
    count and power domains. It is called like its type where the type has one pool, else ``x`` with the GPU
    count and ``@`` with the domains are added, each where it differs within the type.
    """
    domains = _domains(cluster)
    alike: dict[tuple[str | None, str, int, tuple[str, ...]], list[Node]] = {}
    for node in cluster.nodes:
        alike.setdefault((node.pool, node.gpu_type, node.gpus, domains[node.name]), []).append(node)
    places: dict[str, Place] = {}
    reserved = {key[0] for key in alike if key[0] is not None} | set(cluster.gpu_types)
    for key, nodes in alike.items():
        label, gpu_type, gpus, power = key
        name = label or _name(key, [k for k in alike if k[1] == gpu_type], reserved | set(places))
        places[name] = Place(name, gpu_type, gpus, power, nodes)
    children = _children(cluster)
    for place in places.values():
        blocks = sorted(_blocks(cluster, children, place.nodes), key=len, reverse=True)
        place.sizes = [len(block) for block in blocks]
        place.where = {gpu: (b, offset) for b, block in enumerate(blocks) for offset, gpu in enumerate(block)}
    return places


def _name(
    key: tuple[str | None, str, int, tuple[str, ...]],
    siblings: list[tuple[str | None, str, int, tuple[str, ...]]],
    taken: set[str],
) -> str:
    _, gpu_type, gpus, domains = key
    if len(siblings) == 1:
        return gpu_type
    size, feed = f"x{gpus}", "@" + ("+".join(domains) or "none")
    several_sizes = len({k[2] for k in siblings}) > 1
    several_feeds = len({k[3] for k in siblings}) > 1
    short = gpu_type + (size if several_sizes else "") + (feed if several_feeds else "")
    for name in (short, gpu_type + size, gpu_type + size + feed):
        if name not in taken:
            return name
    number = 2
    while (name := f"{gpu_type}{size}{feed}#{number}") in taken:
        number += 1
    return name


def _domains(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """Power domains of each node, through any group above it, in file order."""
    parents = {group.name: group.parent for group in cluster.groups}
    memberships: dict[str, list[int]] = defaultdict(list)
    for number, domain in enumerate(cluster.power_domains):
        for member in set(domain.members):
            memberships[member].append(number)
    above: dict[str | None, frozenset[int]] = {None: frozenset()}
    found = {}
    for node in cluster.nodes:
        path, vertex = [], node.parent
        while vertex not in above:
            assert vertex is not None
            path.append(vertex)
            vertex = parents[vertex]
        numbers = above[vertex]
        for group in reversed(path):
            numbers = numbers | set(memberships.get(group, ()))
            above[group] = numbers
        own = sorted(numbers | set(memberships.get(node.name, ())))
        found[node.name] = tuple(cluster.power_domains[n].name for n in own)
    return found


def _children(cluster: Cluster) -> dict[str | None, list[str]]:
    children: dict[str | None, list[str]] = defaultdict(list)
    for group in cluster.groups:
        children[group.parent].append(group.name)
    return children


def _blocks(cluster: Cluster, children: dict[str | None, list[str]], nodes: list[Node]) -> list[Block]:
    """Structural blocks of the tree over these nodes only: children before their parents."""
    here: dict[str | None, list[Node]] = defaultdict(list)
    for node in nodes:
        here[node.parent].append(node)
    order: list[str | None] = []
    stack: list[str | None] = [None]
    while stack:
        vertex = stack.pop()
        order.append(vertex)
        stack += children.get(vertex, [])
    blocks: dict[str | None, list[Block]] = {}
    for vertex in reversed(order):
        parts = [blocks.pop(child) for child in children.get(vertex, []) if blocks.get(child)]
        blocks.setdefault(vertex, [])
        for node in here.get(vertex, []):
            parts.append(_merged([[[(node.name, gpu)]] for gpu in range(node.gpus)]))
        blocks[vertex] = _merged(parts)
    return blocks[None]


def _merged(parts: list[list[Block]]) -> list[Block]:
    """Join children that are one block each, equal ones in powers of two from the first: 7 to 4 + 2 + 1."""
    joined = [block for blocks in parts if len(blocks) > 1 for block in blocks]
    equal: dict[int, list[Block]] = defaultdict(list)
    for blocks in parts:
        if len(blocks) == 1:
            equal[len(blocks[0])].append(blocks[0])
    for group in equal.values():
        rest = group
        while rest:
            count = 1
            while 2 * count <= len(rest):
                count *= 2
            joined.append([gpu for block in rest[:count] for gpu in block])
            rest = rest[count:]
    return joined


Spot = tuple[int, int]
"""Number of a structural block of a pool, and offset in it."""


def gpu_faults(instance: Instance, users: list[Assignment], places: dict[str, Place]) -> Iterator[str]:
    """Every job's GPUs exist, are its own and lie in an aligned block that no other job reaches into.

    Of the jobs that share their GPUs, `users` has one.
    """
    kept = {job.name for job in instance.jobs if not job.preemptible}
    home = {node.name: (place.name, node.gpus) for place in places.values() for node in place.nodes}
    broken = {(node.name, gpu) for node in instance.cluster.nodes for gpu in node.unavailable}
    user: dict[Gpu, str] = {}
    reserver: dict[str, dict[Spot, str]] = {name: {} for name in places}
    for assignment in users:
        who = f"job '{assignment.job}'"
        listed = sum(len(numbers) for numbers in assignment.nodes.values())
        gpus = gpus_of(assignment.nodes)
        if len(gpus) < listed:
            yield f"{who} lists a GPU twice"
        if len(gpus) != assignment.gpus:
            yield f"{who} has {len(gpus)} GPUs in its nodes, its configuration {assignment.gpus}"
        place = places.get(assignment.pool)
        sound = place is not None and gpus <= place.where.keys()
        # Sets tell at once that most jobs have no fault; only the others are looked at closely.
        if not sound:
            yield from _strangers(assignment, gpus, home)
        if not broken.isdisjoint(gpus):
            for name, gpu in sorted(gpus & broken):
                yield f"{who} uses GPU {gpu} of node '{name}', which is unavailable"
        if user.keys().isdisjoint(gpus):
            user.update(dict.fromkeys(gpus, assignment.job))
        else:
            for name, gpu in sorted(gpus):
                other = user.setdefault((name, gpu), assignment.job)
                if other != assignment.job:
                    yield f"jobs '{other}' and '{assignment.job}' both use GPU {gpu} of node '{name}'"
        if sound and gpus:
            assert place is not None
            yield from _block_faults(assignment, place, gpus, kept, reserver[place.name])


def _strangers(assignment: Assignment, gpus: set[Gpu], home: dict[str, tuple[str, int]]) -> Iterator[str]:
    """GPUs that do not exist, or are in another pool than the job's; `home` has each node's pool and size."""
    who = f"job '{assignment.job}'"
    for name, gpu in sorted(gpus):
        pool, size = home.get(name, ("", 0))
        if gpu >= size:
            yield f"{who} uses GPU {gpu} of node '{name}', which does not exist"
        elif pool != assignment.pool:
            yield f"{who} runs in pool '{assignment.pool}' but node '{name}' is in '{pool}'"


def _block_faults(
    assignment: Assignment, place: Place, gpus: set[Gpu], kept: set[str], reserver: dict[Spot, str]
) -> Iterator[str]:
    """Reserve the block of a job; two jobs that keep their GPUs may have come to share one."""
    spots, aligned = reserved(place, assignment.gpus, gpus)
    if not aligned and assignment.job not in kept:
        yield f"job '{assignment.job}' is not inside one aligned block of {block_of(assignment.gpus)} GPUs"
    if not reserver.keys().isdisjoint(spots):
        others = {reserver[spot] for spot in spots if spot in reserver} - {assignment.job}
        for other in sorted(others):
            if not (assignment.job in kept and other in kept):
                yield f"the blocks of jobs '{other}' and '{assignment.job}' in pool '{place.name}' overlap"
        spots = [spot for spot in spots if spot not in reserver]
    reserver.update(dict.fromkeys(spots, assignment.job))


def reserved(place: Place, count: int, gpus: set[Gpu]) -> tuple[list[Spot], bool]:
    """Spots that a job with these GPUs takes: the aligned block around them, if there is one.

    A job that keeps its GPUs may hold scattered ones, which then are all it takes.

    Returns
    -------
    spots : list of Spot
    aligned : bool
        Whether the GPUs lie in one aligned block.
    """
    size = block_of(count)
    spots = [place.where[gpu] for gpu in gpus]
    block, first = spots[0][0], spots[0][1] // size * size
    aligned = all(b == block and first <= offset < first + size for b, offset in spots)
    if aligned and first + size <= place.sizes[block]:
        return [(block, offset) for offset in range(first, first + size)], True
    return spots, False


def gpus_of(nodes: dict[str, list[int]]) -> set[Gpu]:
    """GPUs as pairs of node name and number."""
    return {(name, gpu) for name, numbers in nodes.items() for gpu in numbers}


def free_gpus(instance: Instance, places: dict[str, Place]) -> dict[str, dict[int, int]]:
    """For every pool and power of two: GPUs in entirely free aligned blocks of that size.

    Unavailable GPUs are not free, nor are the blocks of jobs that keep what they hold. Sizes go up to the
    pool's largest block.
    """
    free = {name: [np.ones(size, dtype=bool) for size in place.sizes] for name, place in places.items()}
    for place in places.values():
        for node in place.nodes:
            for gpu in node.unavailable:
                block, offset = place.where[node.name, gpu]
                free[place.name][block][offset] = False
    for job in instance.jobs:
        if not job.preemptible and job.current is not None:
            held = job.current
            for block, offset in reserved(places[held.pool], held.gpus, gpus_of(held.nodes))[0]:
                free[held.pool][block][offset] = False
    return {name: _by_size(blocks) for name, blocks in free.items()}


def _by_size(blocks: list[np.ndarray[tuple[int], np.dtype[np.bool_]]]) -> dict[int, int]:
    """A block of twice the size is free when both of its halves are."""
    found: dict[int, int] = {}
    for free in blocks:
        size, whole = 1, free
        while True:
            found[size] = found.get(size, 0) + size * int(whole.sum())
            if len(whole) == 1:
                break
            size, whole = 2 * size, whole[0::2] & whole[1::2]
    return found


def block_of(gpus: int) -> int:
    """GPUs that a job reserves: its count, rounded up to a power of two."""
    size = 1
    while size < gpus:
        size *= 2
    return size
