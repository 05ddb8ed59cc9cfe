"""The checker's own reading of a cluster: pools and buddy blocks, walked from the tree.

It states in plain loops what `topology` computes with arrays, and shares no code with it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

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
