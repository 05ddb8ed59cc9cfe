"""Hardware of a cluster by Slurm's commands: nodes, switches above them, and what jobs need besides GPUs.

The engine knows GPUs and watts. A job that no node has all it needs for takes no part in its decision, so
that nothing is kept for it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import ceil, inf

from wattsched.adapters.slurm.documents import NodeRow, names_in, node_rows
from wattsched.instances.errors import InputError, validated
from wattsched.instances.gpu_parts import host_of, joined
from wattsched.reading.inputs import echo
from wattsched.topology.exchange import expand
from wattsched.topology.fields import shortened

_GPUS = re.compile(
    r"(?<![^,\s])(?:gres[:/])?gpu(?::(?!no_consume)([^:(),=]+))?(?::no_consume)?[:=](\d{1,12})"
    r"(?:\((?:IDX|S):([^)]*)\))?"
)
_FEATURES = re.compile(r"[\w.:+-]+(&[\w.:+-]+)*|[\w.:+-]+(\|[\w.:+-]+)*")
_PAIR = re.compile(r"(?<!\S)(\w[\w/:]*)=(\S*)")
_FREE_TEXT = re.compile(r"(?m)(?<!\S)(?:OS=.*?(?=\sRealMemory=|$)|(?:Comment|Extra|Reason)=.*$)")
"""Texts that people and systems choose: to the end of the line, but for OS where a line has all keys."""
_CLOSED = re.compile(
    "DOWN|DRAIN|FAIL|ERROR|UNKNOWN|FUTURE|MAINT|NOT_RESPONDING|NO_RESPOND|POWER|REBOOT|INVALID|.*[*]"
)
"""Beginnings of states and flags of nodes that take no new job; a star is for those that do not answer."""


@dataclass(frozen=True)
class SlurmNode:
    """A node with GPUs, or one kind of the GPUs of a node that has several, named ``NODE/TYPE``.

    Attributes
    ----------
    gpu_type : str
        As Slurm names it; of a whole node with several types as `gpu_parts.joined` has them.
    takes_jobs : bool
        False where it is down, drained, or does not answer.
    used : frozenset of int
        GPUs that Slurm counts as used, by their numbers on the whole node.
    cpus, memory_mib : float
        Infinite where Slurm does not tell.
    free_cpus, free_memory_mib : float
        Of these, what no job has.
    kinds : dict of str to int
        GPUs by type of the whole node, whose server's watts count here; none but on its first kind.
    """

    name: str
    gpu_type: str
    gpus: int
    partitions: tuple[str, ...]
    takes_jobs: bool
    used: frozenset[int] = frozenset()
    cpus: float = inf
    free_cpus: float = inf
    memory_mib: float = inf
    free_memory_mib: float = inf
    features: frozenset[str] = frozenset()
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Name by which Slurm knows it."""
        return host_of(self.name)


@dataclass(frozen=True)
class Needs:
    """Needs of a job on each of its nodes.

    Attributes
    ----------
    nodes, excluded : frozenset of str
        It has to have all of these (``--nodelist``; empty: any), and none of those.
    features : str
        Such as ``a&b`` or ``a|b``.
    cpus, memory_mib : float
        In all, over all nodes.
    cpus_each, cpus_gpu, memory_each_mib, memory_cpu_mib, memory_gpu_mib : float
        At least on each node; for each GPU and CPU.
    exclusive : bool
        It has nodes for itself.
    gpu_type : str
        Of a machine with several kinds of GPUs Slurm gives it this one; empty: any.
    """

    nodes: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    features: str = ""
    cpus: float = 1
    cpus_each: float = 1
    cpus_gpu: float = 0
    memory_each_mib: float = 0
    memory_cpu_mib: float = 0
    memory_gpu_mib: float = 0
    exclusive: bool = False
    gpu_type: str = ""

    def cpus_on(self, node: SlurmNode, nodes: int, gpus: int) -> float:
        """CPUs on `node`, one of so many `nodes` with so many GPUs on each."""
        if self.exclusive:
            return node.cpus
        return max(self.cpus_each, ceil(self.cpus / nodes), self.cpus_gpu * gpus)

    def memory_mib_on(self, node: SlurmNode, nodes: int, gpus: int) -> float:
        """Memory on `node`, one of so many `nodes` with so many GPUs on each."""
        by_cpu = self.memory_cpu_mib * self.cpus_on(node, nodes, gpus)
        return max(self.memory_each_mib, by_cpu, self.memory_gpu_mib * gpus)

    def lacks(self, node: SlurmNode, nodes: int, gpus: int) -> list[str]:
        """Return the needs that `node`, one of `nodes` with so many GPUs on each, does not meet if empty."""
        checks = {
            "--nodelist": not self.nodes or node.host in self.nodes,
            "--exclude": node.host not in self.excluded,
            f"--constraint={self.features}": self._features_are_on(node),
            "CPUs": self.cpus_on(node, nodes, gpus) <= node.cpus,
            self._kind: node.name == node.host or (node.gpu_type == self.gpu_type and not self.exclusive),
            "memory": self.memory_mib_on(node, nodes, gpus) <= node.memory_mib,
        }
        return [what for what, there in checks.items() if not there]

    def allowed(self, nodes: Iterable[SlurmNode], count: int, gpus: int) -> frozenset[str]:
        """Nodes that meet its needs as one of `count` with so many GPUs each; an `InputError` if none."""
        if self.features and not _FEATURES.fullmatch(self.features):
            text = "only names with either & or | between are looked at"
            raise InputError([f"--constraint={self.features}: {text}"])
        lacks = {node.name: self.lacks(node, count, gpus) for node in nodes}
        if found := frozenset(name for name, lacking in lacks.items() if not lacking):
            return found
        least = min(map(len, lacks.values()), default=0)
        scarce = sorted({what for lacking in lacks.values() if len(lacking) == least for what in lacking})
        raise InputError([f"asks for what no node with GPUs in its partitions has: {', '.join(scarce)}"])

    @property
    def _kind(self) -> str:
        """Name of the need that a machine with several kinds of GPUs may not meet."""
        if self.exclusive:
            return "one kind of GPUs (--exclusive)"
        unnamed = "one kind of GPUs (--gres=gpu:TYPE:1 names it)"
        return f"--gres=gpu:{self.gpu_type}" if self.gpu_type else unnamed

    def _features_are_on(self, node: SlurmNode) -> bool:
        if "|" in self.features:
            return bool(node.features & set(self.features.split("|")))
        return set(filter(None, self.features.split("&"))) <= node.features


def gpu_type_of(pool: str) -> str:
    """GPU type of a pool, which may itself be named instead."""
    return pool.partition("/")[0]


def gpus_in(text: str | None) -> list[tuple[str, int, list[int]]]:
    """GPU type, count and numbers of each entry of a GRES or TRES text: ``gpu:A100:4(IDX:0-3)``."""
    found = []
    for kind, count, numbers in _GPUS.findall(text or ""):
        listed = re.fullmatch(r"[\d,-]+", numbers) and "(IDX:" in (text or "")
        found.append((kind, int(count), [int(n) for n in expand(f"[{numbers}]")] if listed else []))
    return found


def held_in(text: str | None) -> dict[str, list[int]]:
    """Numbers of the GPUs in use by a GRES text, by type; a GPU with shards in use is among them."""
    found = defaultdict[str, list[int]](list)
    for kind, _, numbers in gpus_in((text or "").replace("shard:", "gpu:")):
        found[kind] += numbers
    return found


def nodes_in(text: str, *, apart: bool = False) -> dict[str, SlurmNode]:
    """Nodes with GPUs of ``scontrol show node``, also with ``--json``, or of ``sinfo --json``, by name.

    Of nodes with several kinds of GPUs one for each kind, if they are to be `apart`.
    """
    if text.lstrip().startswith("{"):
        rows = node_rows(text)
    else:
        told = _FREE_TEXT.sub("", text)
        lines = [" ".join(one.split()) for one in re.split(r"(?m)^\s*(?=NodeName=)", told)]
        found = [one for one in records("\n".join(lines)) if "NodeName" in one]
        if not found:
            raise InputError([f"scontrol show node: {echo(text.strip(), quote='', most=200) or 'nothing'}"])
        rows = [_node_row(one, name) for one in found for name in expand(one["NodeName"])]
    return {node.name: node for row in rows for node in _nodes(row, apart=apart)}


def _node_row(found: dict[str, str], name: str) -> NodeRow:
    """Row of a node, one of those that a record of ``scontrol show node`` stands for."""
    if missing := [key for key in ("State", "Gres") if key not in found]:
        raise InputError([f"scontrol show node: node {echo(name)}: {missing[0]} is missing"])
    fields = {"state": found["State"], "gres": found["Gres"], "partitions": found.get("Partitions", "")}
    return validated(NodeRow, {"name": name, **fields})


def _nodes(row: NodeRow, *, apart: bool) -> Iterator[SlurmNode]:
    """Yield the node of a row if it has GPUs or, `apart`, one node for each kind of them."""
    kinds = Counter[str]()
    for kind, count, _ in gpus_in(row.gres):
        kinds[kind or "gpu"] += count
    if kinds := +kinds:  # without types of 0 GPUs
        closed = any(_CLOSED.match(word) for word in (*row.state, *row.state_flags))
        used = held_in(row.gres_used)
        cpus, memory_mib = row.cpus or inf, row.real_memory or inf
        whole = SlurmNode(
            row.name,
            joined(kinds),
            kinds.total(),
            tuple(row.partitions),
            not closed,
            frozenset(number for numbers in used.values() for number in numbers),
            cpus=cpus,
            free_cpus=cpus - (row.alloc_cpus or 0),
            memory_mib=memory_mib,
            free_memory_mib=memory_mib - (row.alloc_memory or 0),
            features=frozenset(row.active_features),
            kinds=kinds,
        )
        for kind in kinds if apart and len(kinds) > 1 else ():
            part = replace(whole, name=shortened(f"{row.name}/{kind}"), gpu_type=kind, gpus=kinds[kind])
            yield replace(part, used=frozenset([*used[kind], *used[""]]))
            whole = replace(whole, kinds={})
        if not apart or len(kinds) == 1:
            yield whole


def records(text: str) -> Iterator[dict[str, str]]:
    """Yield lines of ``scontrol --oneliner``, each by key, without keys that are in free text."""
    for line in _FREE_TEXT.sub("", text).splitlines():
        if found := dict(_PAIR.findall(line)):
            yield found


def switches_in(text: str, nodes: Collection[str]) -> tuple[dict[str, str | None], dict[str, str]]:
    """Switches that have a name of their own, each with the one above it, and the switch of each node."""
    found = [{key.lower(): value for key, value in one.items()} for one in records(text)]
    lines = [one for one in found if one.get("switchname", "") not in ("", *nodes)]
    switches: dict[str, str | None] = {one["switchname"]: None for one in lines}
    above: dict[str, str] = {}
    for one in lines:
        name = one["switchname"]
        if "switches" in one:
            below = [other for other in names_in(one["switches"]) if other in switches and other != name]
            switches |= dict.fromkeys(below, name)
        else:
            above |= {node: name for node in names_in(one.get("nodes", "")) if node in nodes}
    return switches, above
