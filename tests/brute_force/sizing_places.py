"""Which jobs fit on nodes together, by trying: aligned blocks, parts of nodes and whole ones, or any GPUs."""

from __future__ import annotations

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.cluster import Node

Gpu = tuple[str, int]
Kind = tuple[str, int, tuple[str, ...], str | None]
"""GPU type, GPU count, power domains and label of interchangeable nodes."""


def next_power(gpus: int) -> int:
    """Smallest power of two that is at least this many GPUs."""
    return 1 if gpus == 1 else 2 * next_power((gpus + 1) // 2)


def domains_of(instance: Instance, node: Node) -> tuple[str, ...]:
    """Power domains that list the node or a group above it."""
    parents = {group.name: group.parent for group in instance.cluster.groups}
    places, above = {node.name}, node.parent
    while above is not None:
        places.add(above)
        above = parents[above]
    return tuple(d.name for d in instance.cluster.power_domains if places & set(d.members))


def kinds(instance: Instance) -> dict[Kind, list[str]]:
    """Nodes by what makes them interchangeable: GPU type, GPU count, power domains, label."""
    found: dict[Kind, list[str]] = {}
    for node in instance.cluster.nodes:
        domains = domains_of(instance, node)
        found.setdefault((node.gpu_type, node.gpus, domains, node.pool), []).append(node.name)
    return found


def structural_blocks(instance: Instance, nodes: list[str]) -> list[list[Gpu]]:
    """Largest aligned blocks: halves of a parent pair up in order; what has no partner stays alone."""
    by_name = {node.name: node for node in instance.cluster.nodes}
    order = [*instance.cluster.groups, *instance.cluster.nodes]
    final: list[list[Gpu]] = []

    def split(gpus: list[Gpu]) -> list[list[Gpu]]:
        """Aligned power-of-two pieces of a row of GPUs, from the left."""
        pieces = []
        while gpus:
            size = 1
            while size * 2 <= len(gpus):
                size *= 2
            pieces.append(gpus[:size])
            gpus = gpus[size:]
        return pieces

    def whole(vertex: str | None) -> list[Gpu] | None:
        """GPUs of a subtree when they form one block; otherwise its blocks are final."""
        if vertex in by_name:
            if vertex not in nodes:
                return []
            pieces = split([(str(vertex), g) for g in range(by_name[str(vertex)].gpus)])
        else:
            by_size: dict[int, list[list[Gpu]]] = {}
            broken = False
            for child in order:
                if child.parent != vertex:
                    continue
                block = whole(child.name)
                if block:
                    by_size.setdefault(len(block), []).append(block)
                elif block is None:
                    broken = True
            pieces = []
            for blocks in by_size.values():
                while blocks:
                    run = 1
                    while run * 2 <= len(blocks):
                        run *= 2
                    pieces.append([gpu for block in blocks[:run] for gpu in block])
                    blocks = blocks[run:]
            if broken:
                final.extend(pieces)
                return None
        if not pieces:
            return []
        if len(pieces) == 1:
            return pieces[0]
        final.extend(pieces)
        return None

    top = whole(None)
    if top:
        final.append(top)
    return final


def can_place(blocks: list[list[Gpu]], free: set[Gpu], sizes: list[int]) -> bool:
    """Backtracking: put the sizes, largest first, into disjoint aligned free blocks."""
    if not sizes:
        return True
    size = sizes[0]
    for block in blocks:
        for start in range(0, len(block) - size + 1, size):
            place = set(block[start : start + size])
            if place <= free and can_place(blocks, free - place, sizes[1:]):
                return True
    return False


def capacity_of(instance: Instance, kind: Kind) -> str:
    """What jobs take of nodes of a kind: "blocks", "nodes" or "count"."""
    said = instance.cluster.capacity
    if isinstance(said, str):
        return said
    return str(said.get(str(kind[3]), said.get(kind[0], "blocks")))


def may_be_had(instance: Instance, kind: Kind, nodes: list[str], gpus: int) -> bool:
    """Whether nodes of a kind have room for a job of that size when nothing else is there."""
    if capacity_of(instance, kind) != "blocks":
        return gpus <= kind[1] * len(nodes)
    return next_power(gpus) <= max(len(block) for block in structural_blocks(instance, nodes))


def fit(instance: Instance, kind: Kind, nodes: list[str], free: set[Gpu], counts: list[int]) -> bool:
    """Whether jobs with these GPU counts fit on free GPUs of nodes of a kind."""
    match capacity_of(instance, kind):
        case "blocks":
            sizes = sorted(map(next_power, counts), reverse=True)
            return can_place(structural_blocks(instance, nodes), free, sizes)
        case "count":
            return sum(counts) <= sum(node in nodes for node, _ in free)
    left = [sum(name == node for name, _ in free) for node in nodes]
    return can_share(left, kind[1], sorted(counts, reverse=True))


def can_share(left: list[int], whole: int, counts: list[int]) -> bool:
    """Backtracking: give every job whole nodes and a part of one; `left` are the nodes' free GPUs."""
    if not counts:
        return True
    nodes, part = divmod(counts[0], whole)
    entire = [i for i, free in enumerate(left) if free == whole][:nodes]
    if len(entire) < nodes:
        return False
    rest = [0 if i in entire else free for i, free in enumerate(left)]
    if not part:
        return can_share(rest, whole, counts[1:])
    return any(
        can_share([free - part * (i == at) for i, free in enumerate(rest)], whole, counts[1:])
        for at in range(len(rest))
        if rest[at] >= part
    )
