"""The cluster of a round of `sizing`, as docs/model.md and docs/file-format.md describe it.

Comments in quotation marks are sentences of these pages. Nothing of the package is imported.
"""

from dataclasses import dataclass, field

TOLERATED = 1e-6  # "It tolerates rounding of 1e-6 of a budget or a deadline."


class UnclearError(Exception):
    """The instance hangs on a comparison within the tolerance of the checker: both answers are right."""


def within(used: float, limit: float | None) -> bool:
    if limit is None or used <= limit + 1e-12 * abs(limit):
        return True
    # What is beyond by more than last digits may be tolerated, and need not be.
    if used <= limit + 3 * TOLERATED * abs(limit):
        raise UnclearError
    return False


def power_of_two(gpus: int) -> int:
    return 1 << (gpus - 1).bit_length()


@dataclass
class Pool:
    name: str
    nodes: list[str]
    size: int  # GPUs of a node
    idle_w: float
    capacity: str
    blocks: list[list[tuple[str, int]]] = field(default_factory=list)
    free: frozenset = frozenset()

    def holds(self, gpus: int) -> bool:
        # "What is larger than a pool would hold with all of its GPUs, its largest block where blocks are
        # aligned, is no option."
        if self.capacity == "blocks":
            return power_of_two(gpus) <= max(map(len, self.blocks))
        return gpus <= self.size * len(self.nodes)

    def aligned(self, size: int) -> list[frozenset]:
        # "An aligned block of size 2^k starts at a multiple of 2^k and lies inside one structural block."
        return [frozenset(b[i : i + size]) for b in self.blocks for i in range(0, len(b) - size + 1, size)]


def structural(children: list[list[list]]) -> list[list]:
    """Blocks of a vertex, from those of its children."""
    # "children of a vertex (GPUs of a node, nodes of a rack, racks of a pod) that are whole blocks of one
    # size are joined in runs of 2^m, from the first (groups before nodes, each in the order of the file)"
    whole: dict[int, list] = {}
    blocks = []
    for child in children:
        if len(child) == 1:
            whole.setdefault(len(child[0]), []).append(child[0])
        else:
            blocks += child
    for same in whole.values():
        while same:
            run = 1 << (len(same).bit_length() - 1)
            blocks.append([gpu for block in same[:run] for gpu in block])
            same = same[run:]
    return sorted(blocks, key=len, reverse=True)


class Cluster:
    """Pools of a document, what is free there, and what they draw without any job."""

    def __init__(self, document: dict):
        cluster = document["cluster"]
        self.nodes = {n["name"]: n for n in cluster["nodes"]}
        self.jobs = {j["name"]: j for j in document["jobs"]}
        self.keepers = {
            name for name, j in self.jobs.items() if j.get("preemptible") is False and j.get("current")
        }
        self.make_pools(cluster)
        self.make_room()

    def make_pools(self, cluster: dict) -> None:
        groups = {g["name"]: g for g in cluster.get("groups", [])}
        domains = cluster.get("power_domains", [])

        def above(name: str) -> set[str]:
            # "a group stands for everything below it"
            found = {name}
            vertex = self.nodes.get(name) or groups.get(name)
            while vertex and vertex.get("parent"):
                found.add(vertex["parent"])
                vertex = groups.get(vertex["parent"])
            return found

        feeds = {n: tuple(d["name"] for d in domains if above(n) & set(d["members"])) for n in self.nodes}
        kinds: dict[str, set] = {}
        for n, node in self.nodes.items():
            kinds.setdefault(node["gpu_type"], set()).add((node["gpus"], feeds[n]))
        self.pools: dict[str, Pool] = {}
        self.pool_of, self.feeds = {}, {}
        capacity = cluster.get("capacity", "blocks")
        for n, node in self.nodes.items():
            of = node["gpu_type"]
            name = node.get("pool")
            if name is None:  # the table of "How pools are named"
                name = of
                sizes, sets = ({kind[i] for kind in kinds[of]} for i in (0, 1))
                labelled = any("pool" in m for m in self.nodes.values() if m["gpu_type"] == of)
                if len(sizes) > 1 or (labelled and len(sets) == 1):
                    name += f"x{node['gpus']}"
                if len(sets) > 1:
                    name += "@" + ("+".join(feeds[n]) or "none")
            # "or an object by pool or GPU type, of which the pool's own name counts first, and where pools
            # that are not named have blocks"
            kind = capacity if isinstance(capacity, str) else capacity.get(name, capacity.get(of, "blocks"))
            idle_w = cluster["gpu_types"][of]["idle_power_w"]
            self.pools.setdefault(name, Pool(name, [], node["gpus"], idle_w, kind)).nodes.append(n)
            self.pool_of[n], self.feeds[name] = name, feeds[n]

        def blocks(pool: str, vertex: str | None) -> list:
            below = [blocks(pool, g) for g in groups if groups[g].get("parent") == vertex]
            for n in self.pools[pool].nodes:
                if self.nodes[n].get("parent") == vertex:
                    below.append(structural([[[(n, i)]] for i in range(self.nodes[n]["gpus"])]))
            return structural([child for child in below if child])

        for name, pool in self.pools.items():
            pool.blocks = blocks(name, None)

    def make_room(self) -> None:
        broken = {(n, i) for n, node in self.nodes.items() for i in node.get("unavailable", [])}
        taken = set(broken)
        kept = set()
        for name in self.keepers:
            mine = self.held(name)
            pool = self.pools[self.jobs[name]["current"]["pool"]]
            # "Its GPUs (its whole block, if its GPU count is no power of two) do not count as free."
            if pool.capacity == "blocks" and power_of_two(len(mine)) != len(mine):
                mine = next((b for b in pool.aligned(power_of_two(len(mine))) if mine <= b), mine)
            taken |= mine
            kept |= {n for n, _ in self.held(name)}
        self.broken, self.taken = broken, taken
        for pool in self.pools.values():
            every = {(n, i) for n in pool.nodes for i in range(pool.size)}
            pool.free = frozenset(every - taken)
        # "It is awake whatever is decided [...] if others reserve watts there (`reserved_w`), if a GPU is
        # `unavailable`, which others may use, or if a job keeps its GPUs there."
        self.sleepers = {
            n
            for n, node in self.nodes.items()
            if node.get("sleeps")
            and not node.get("reserved_w")
            and not node.get("unavailable")
            and n not in kept
        }

    def held(self, job: str) -> frozenset:
        nodes = (self.jobs[job].get("current") or {}).get("nodes") or {}
        return frozenset((n, i) for n, gpus in nodes.items() for i in gpus)

    def awake_w(self, node: str) -> float:
        # "or a nodes pool draw a watts awake, beta + n iota"
        pool = self.pools[self.pool_of[node]]
        return self.nodes[node].get("base_power_w", 0) + pool.size * pool.idle_w

    def standing_w(self, pools: list[str]) -> float:
        # "the base power of its nodes and the idle draw of its available GPUs, but for those of nodes that
        # sleep"; "What is not ours to decide comes on top: gamma_n is the node's `reserved_w`"
        return sum(
            node.get("base_power_w", 0)
            + node.get("reserved_w", 0)
            + self.pools[self.pool_of[n]].idle_w * (node["gpus"] - len(set(node.get("unavailable", []))))
            for n, node in self.nodes.items()
            if self.pool_of[n] in pools and n not in self.sleepers
        )

    def matching(self, pool: str) -> list[Pool]:
        # "Wherever a pool is asked for, except in `current`, the name of a GPU type stands for all its
        # pools."
        of_type = [p for p in self.pools.values() if self.nodes[p.nodes[0]]["gpu_type"] == pool]
        return of_type or [self.pools[name] for name in (pool,) if name in self.pools]

    def may_use(self, job: dict, pool: Pool) -> bool:
        return not job.get("pools") or any(pool in self.matching(name) for name in job["pools"])
