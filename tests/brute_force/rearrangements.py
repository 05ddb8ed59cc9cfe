"""Fewest jobs of a small round that move so that others fit: every set of movers is tried, small ones first.

Written from docs/defragment.md.
"""

from __future__ import annotations

from itertools import chain, combinations, product

from tests.brute_force.sizing_places import (
    Gpu,
    Kind,
    can_place,
    capacity_of,
    kinds,
    next_power,
    structural_blocks,
)
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job


def fewest_moves(instance: Instance, wanted: list[dict[str, int]]) -> int | None:
    """Fewest moves after which each of the wanted fits, GPUs by GPU type and node size; None for none."""
    running = [job for job in instance.jobs if job.current is not None]
    may_move = [job for job in running if _may_move(instance, job, running)]
    for n in range(len(may_move) + 1):
        for movers in combinations(may_move, n):
            if _fits(instance, [job for job in running if job not in movers], movers, wanted):
                return n
    return None


def _fits(instance: Instance, stay: list[Job], movers: tuple[Job, ...], wanted: list[dict[str, int]]) -> bool:
    gone = {(node.name, g) for node in instance.cluster.nodes for g in node.unavailable}
    taken = gone.union(*(_held(job) | set(_block(instance, job) or ()) for job in stay))
    for choice in product(*(one.items() for one in wanted)):
        fine = True
        for kind, nodes in kinds(instance).items():
            sizes = [len(_held(job)) for job in movers if _kind(instance, job) == kind]
            sizes += [gpus for name, gpus in choice if name == pool_name(instance, kind)]
            free = {
                (n.name, g) for n in instance.cluster.nodes if n.name in nodes for g in range(n.gpus)
            } - taken
            fine = fine and _placeable(instance, kind, nodes, free, sizes)
        if fine:
            return True
    return False


def _placeable(instance: Instance, kind: Kind, nodes: list[str], free: set[Gpu], sizes: list[int]) -> bool:
    """Whether jobs of these sizes fit on free GPUs of a pool."""
    if capacity_of(instance, kind) == "count":
        return sum(sizes) <= len(free)
    if capacity_of(instance, kind) == "blocks":
        blocks = structural_blocks(instance, nodes)
        return can_place(blocks, free, sorted((next_power(s) for s in sizes), reverse=True))
    n = kind[1]
    parts = [*chain.from_iterable([n] * (s // n) + [s % n] * (s % n > 0) for s in sizes)]
    left = tuple(sorted(sum(name == node for node, _ in free) for name in nodes))
    return _on_nodes(left, sorted(parts, reverse=True))


def _on_nodes(left: tuple[int, ...], parts: list[int]) -> bool:
    if not parts:
        return True
    return any(
        left[i] >= parts[0] and _on_nodes((*left[:i], left[i] - parts[0], *left[i + 1 :]), parts[1:])
        for i in range(len(left))
        if i == 0 or left[i] != left[i - 1]
    )


def _may_move(instance: Instance, job: Job, running: list[Job]) -> bool:
    """Whether the page says that a job may move."""
    assert job.current is not None
    capacity = capacity_of(instance, _kind(instance, job))
    if not job.preemptible or capacity == "count":
        return False
    if capacity == "nodes":
        return len(job.current.nodes) == 1
    block = _block(instance, job)
    gone = {(node.name, g) for node in instance.cluster.nodes for g in node.unavailable}
    others = gone.union(*(_held(o) | set(_block(instance, o) or ()) for o in running if o is not job))
    return block is not None and not set(block) & others


def _block(instance: Instance, job: Job) -> list[Gpu] | None:
    """Aligned block around a job's GPUs, in a pool of blocks."""
    kind, held = _kind(instance, job), _held(job)
    size = next_power(len(held))
    if capacity_of(instance, kind) != "blocks":
        return None
    for block in structural_blocks(instance, kinds(instance)[kind]):
        for start in range(0, len(block) - size + 1, size):
            if held <= set(block[start : start + size]):
                return block[start : start + size]
    return None


def _held(job: Job) -> set[Gpu]:
    assert job.current is not None
    return set(job.current.places)


def _kind(instance: Instance, job: Job) -> Kind:
    assert job.current is not None
    node = next(iter(job.current.nodes))
    return next(kind for kind, nodes in kinds(instance).items() if node in nodes)


def pool_name(instance: Instance, kind: Kind) -> str:
    """Name of a pool whose nodes have no label and no power domains."""
    same = [other for other in kinds(instance) if other[0] == kind[0]]
    return kind[0] if len(same) == 1 else f"{kind[0]}x{kind[1]}"
