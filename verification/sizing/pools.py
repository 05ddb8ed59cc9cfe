"""The checker's own reading of a cluster: its pools, their buddy blocks, and who may use which GPUs.

It states in plain loops over the tree of nodes what `topology` computes with arrays. GPUs of a job exist,
nobody else uses them, and they lie in an aligned block of a power of two that no other job reaches into.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from wattsched.instances.sizing.decision import Assignment
from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray
from wattsched.topology.cluster import Cluster, Node

Gpu = tuple[str, int]
Block = list[Gpu]
Spot = tuple[int, int]
"""Number of a structural block of a pool, and offset in it."""

_Kind = tuple[str | None, str, int, tuple[str, ...]]
"""What nodes of a pool have in common: label, GPU type, GPU count, power domains."""


@dataclass
class Pool:
    """Nodes that are alike, and where each of their GPUs lies in which structural block.

    ``where`` maps a GPU to the number of its block and its offset in it; ``sizes`` are the blocks' sizes.
    """

    name: str
    gpu_type: str
    gpus_per_node: int
    domains: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)
    where: dict[Gpu, Spot] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    @property
    def largest_block(self) -> int:
        """Size of the largest block a job can have here."""
        return max(self.sizes)

    @property
    def available(self) -> int:
        """GPUs that take jobs."""
        return sum(node.gpus - len(node.unavailable) for node in self.nodes)


def pools_of(cluster: Cluster) -> dict[str, Pool]:
    """Pools of a cluster by name, in the order of their first nodes.

    Nodes with a label form the pool of that label. Other nodes are one pool when they agree in GPU type, GPU
    count and power domains. It is called like its type where the type has one pool, else ``x`` with the GPU
    count and ``@`` with the domains are added, each where it differs within the type.
    """
    domains = _domains(cluster)
    alike: dict[_Kind, list[Node]] = defaultdict(list)
    children: dict[str | None, list[str]] = defaultdict(list)
    for node in cluster.nodes:
        alike[node.pool, node.gpu_type, node.gpus, domains[node.name]].append(node)
    for group in cluster.groups:
        children[group.parent].append(group.name)
    pools: dict[str, Pool] = {}
    reserved = {kind[0] for kind in alike if kind[0] is not None} | set(cluster.gpu_types)
    for kind, nodes in alike.items():
        label, gpu_type, gpus, power = kind
        name = label or _name(kind, [k for k in alike if k[1] == gpu_type], reserved | set(pools))
        pools[name] = pool = Pool(name, gpu_type, gpus, power, nodes)
        blocks = sorted(_blocks(children, nodes), key=len, reverse=True)
        pool.sizes = [len(block) for block in blocks]
        pool.where = {gpu: (b, offset) for b, block in enumerate(blocks) for offset, gpu in enumerate(block)}
    return pools


def _name(kind: _Kind, siblings: list[_Kind], taken: set[str]) -> str:
    _, gpu_type, gpus, domains = kind
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
    memberships: dict[str, set[int]] = defaultdict(set)
    for number, domain in enumerate(cluster.power_domains):
        for member in domain.members:
            memberships[member].add(number)
    above: dict[str | None, set[int]] = {None: set()}
    found = {}
    for node in cluster.nodes:
        path, group = [], node.parent
        while group not in above:
            assert group is not None
            path.append(group)
            group = parents[group]
        for name in reversed(path):
            above[name] = above[parents[name]] | memberships[name]
        own = sorted(above[node.parent] | memberships[node.name])
        found[node.name] = tuple(cluster.power_domains[number].name for number in own)
    return found


def _blocks(children: dict[str | None, list[str]], nodes: list[Node]) -> list[Block]:
    """Structural blocks of the tree of groups over these nodes only: children before their parents."""
    here: dict[str | None, list[Node]] = defaultdict(list)
    for node in nodes:
        here[node.parent].append(node)
    order: list[str | None] = [None]
    for group in order:
        order += children.get(group, [])
    blocks: dict[str | None, list[Block]] = {}
    for group in reversed(order):
        parts = [found for child in children.get(group, []) if (found := blocks.pop(child))]
        parts += [_merged([[[(node.name, gpu)]] for gpu in range(node.gpus)]) for node in here[group]]
        blocks[group] = _merged(parts)
    return blocks[None]


def _merged(parts: list[list[Block]]) -> list[Block]:
    """Join children that are one block each, equal ones in powers of two from the first: 7 to 4 + 2 + 1."""
    joined = [block for blocks in parts if len(blocks) > 1 for block in blocks]
    equal: dict[int, list[Block]] = defaultdict(list)
    for blocks in parts:
        if len(blocks) == 1:
            equal[len(blocks[0])].append(blocks[0])
    for rest in equal.values():
        while rest:
            count = 1 << len(rest).bit_length() - 1
            joined.append([gpu for block in rest[:count] for gpu in block])
            del rest[:count]
    return joined


# --- the GPUs of a decision ---------------------------------------------------------------------------


def gpu_faults(instance: Instance, users: list[Assignment], pools: dict[str, Pool]) -> Iterator[str]:
    """Every job's GPUs exist, are its own and lie in an aligned block that no other job reaches into.

    Of the jobs that share their GPUs, `users` has one.
    """
    kept = {job.name for job in instance.jobs if not job.preemptible}
    home = {node.name: (pool.name, node.gpus) for pool in pools.values() for node in pool.nodes}
    broken = {(node.name, gpu) for node in instance.cluster.nodes for gpu in node.unavailable}
    user: dict[Gpu, str] = {}
    reserver: dict[str, dict[Spot, str]] = {name: {} for name in pools}
    for assignment in users:
        who = f"job '{assignment.job}'"
        gpus = gpus_of(assignment.nodes)
        if len(gpus) < sum(len(numbers) for numbers in assignment.nodes.values()):
            yield f"{who} lists a GPU twice"
        if len(gpus) != assignment.gpus:
            held = f"{len(gpus)} GPU{'s'[: len(gpus) != 1]}"
            yield f"{who} has {held} in its nodes, its configuration {assignment.gpus}"
        pool = pools.get(assignment.pool)
        # Sets tell at once that most jobs have no fault; only the others are looked at closely.
        if pool is None or not gpus <= pool.where.keys():
            yield from _strangers(assignment, gpus, home)
            pool = None
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
        if pool is not None and gpus:
            yield from _block_faults(assignment, pool, gpus, kept, reserver[pool.name])


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
    assignment: Assignment, pool: Pool, gpus: set[Gpu], kept: set[str], reserver: dict[Spot, str]
) -> Iterator[str]:
    """Reserve the block of a job; two jobs that keep their GPUs may have come to share one."""
    spots, aligned = _reserved(pool, assignment.gpus, gpus)
    if not aligned and assignment.job not in kept:
        yield f"job '{assignment.job}' is not inside one aligned block of {block_of(assignment.gpus)} GPUs"
    if not reserver.keys().isdisjoint(spots):
        others = {reserver[spot] for spot in spots if spot in reserver} - {assignment.job}
        for other in sorted(others):
            if not (assignment.job in kept and other in kept):
                yield f"the blocks of jobs '{other}' and '{assignment.job}' in pool '{pool.name}' overlap"
        spots = [spot for spot in spots if spot not in reserver]
    reserver.update(dict.fromkeys(spots, assignment.job))


def _reserved(pool: Pool, count: int, gpus: set[Gpu]) -> tuple[list[Spot], bool]:
    """Spots that a job with these GPUs takes: the aligned block around them, if there is one.

    A job that keeps its GPUs may hold scattered ones, which then are all it takes.

    Returns
    -------
    spots : list of Spot
    aligned : bool
        Whether the GPUs lie in one aligned block.
    """
    size = block_of(count)
    spots = [pool.where[gpu] for gpu in gpus]
    block, first = spots[0][0], spots[0][1] // size * size
    aligned = all(b == block and first <= offset < first + size for b, offset in spots)
    if aligned and first + size <= pool.sizes[block]:
        return [(block, offset) for offset in range(first, first + size)], True
    return spots, False


def gpus_of(nodes: dict[str, list[int]]) -> set[Gpu]:
    """GPUs as pairs of node name and number."""
    return {(name, gpu) for name, numbers in nodes.items() for gpu in numbers}


# --- the GPUs that there are --------------------------------------------------------------------------


def free_gpus(instance: Instance, pools: dict[str, Pool]) -> dict[str, dict[int, int]]:
    """For every pool and power of two: GPUs in entirely free aligned blocks of that size.

    Unavailable GPUs are not free, nor are the blocks of jobs that keep what they hold. Sizes go up to the
    pool's largest block.
    """
    free = {name: [np.ones(size, dtype=bool) for size in pool.sizes] for name, pool in pools.items()}
    taken = [
        (name, pool.where[node.name, gpu])
        for name, pool in pools.items()
        for node in pool.nodes
        for gpu in node.unavailable
    ]
    for job in instance.jobs:
        if not job.preemptible and job.current is not None:
            held = job.current
            spots, _ = _reserved(pools[held.pool], held.gpus, gpus_of(held.nodes))
            taken += [(held.pool, spot) for spot in spots]
    for name, (block, offset) in taken:
        free[name][block][offset] = False
    return {name: _by_size(blocks) for name, blocks in free.items()}


def _by_size(blocks: list[BoolArray]) -> dict[int, int]:
    """A block of twice the size is free when both of its halves are."""
    found: dict[int, int] = defaultdict(int)
    for free in blocks:
        size, whole = 1, free
        found[size] += int(whole.sum())
        while len(whole) > 1:
            size, whole = 2 * size, whole[0::2] & whole[1::2]
            found[size] += size * int(whole.sum())
    return found


def block_of(gpus: int) -> int:
    """GPUs that a job reserves: its count, rounded up to a power of two."""
    return 1 << max(0, gpus - 1).bit_length()
