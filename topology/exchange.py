"""Clusters in other programs' files: networkx node-link JSON, and Slurm's topology.conf and host lists."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from operator import itemgetter
from typing import Any, NamedTuple

from wattsched.reading.inputs import LONGEST_CELL, echo
from wattsched.topology.cluster import Cluster, GpuType, Group, Node, loop, top_down
from wattsched.topology.tree import cluster_from_tree, tree

MAX_HOSTS = 200_000
"""Most hosts in one file; the largest machine there was has 158,976."""
_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_IN_ALL = f" (more than {MAX_HOSTS:,} in all)"
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)", re.DOTALL)


def expand(expression: str, limit: int = MAX_HOSTS) -> list[str]:
    """Names that a host list expression stands for, in its order.

    Parameters
    ----------
    expression : str
        Names separated by commas; numbers, ranges and lists of them in brackets, several brackets to a name
        (the first varies slowest). The first number of a range states the width: ``n[08-11]``.
    limit : int
        Most names.

    Raises
    ------
    ValueError
        If the expression is malformed, or stands for more names or longer ones than there may be.
    """
    names: list[str] = []
    position = 0
    while True:
        item = _ITEM.match(expression, position)
        if item is None:
            raise ValueError(f"malformed host list {echo(expression)} at character {position + 1}")
        names += _expand_item(item.group(), limit - len(names))
        position = item.end()
        if position == len(expression):
            return names
        if expression[position] != ",":
            raise ValueError(f"malformed host list {echo(expression)} at character {position + 1}")
        position += 1


def _expand_item(item: str, limit: int) -> list[str]:
    choices: list[list[str]] = []
    total = 1
    for in_brackets, literal in map(re.Match.groups, _PIECE.finditer(item)):
        choices.append([literal] if literal is not None else _numbers(in_brackets, limit))
        total *= len(choices[-1])
        if total > limit:
            raise ValueError(f"host list {echo(item)} stands for too many names{_IN_ALL}")
    if sum(len(choice[0]) for choice in choices) > LONGEST_CELL:
        raise ValueError(f"host list {echo(item)} stands for names of more than {LONGEST_CELL} characters")
    return ["".join(parts) for parts in product(*choices)]


def _numbers(ranges: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            told = f"is no number or range in the host list brackets [{echo(ranges, '')}]"
            raise ValueError(f"{echo(text)} {told}")
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise ValueError(f"the range '{text}' in a host list runs backwards")
        if int(last) - int(first) >= limit - len(numbers):
            raise ValueError(f"the range '{text}' stands for too many names{_IN_ALL}")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers


def compress(names: Iterable[str]) -> str:
    """Short host list expression for names, in their order: ``expand(compress(names)) == names``.

    Neighbours that differ only in their last number share brackets.

    Raises
    ------
    ValueError
        If a name is empty or has a character that host lists use (comma, brackets).
    """
    pieces = []
    for (prefix, suffix), run in groupby(map(_parse, names), key=itemgetter(0, 2)):
        numbers = [number for _, number, _ in run]
        if suffix is None:
            pieces += [prefix] * len(numbers)
            continue
        ranges: list[list[str]] = []
        for number in numbers:
            if ranges and number == f"{int(ranges[-1][-1]) + 1:0{len(ranges[-1][0])}d}":
                ranges[-1][1:] = [number]
            else:
                ranges.append([number])
        joined = ",".join(map("-".join, ranges))
        pieces.append(f"{prefix}{joined if joined.isdigit() else f'[{joined}]'}{suffix}")
    return ",".join(pieces)


def _parse(name: str) -> tuple[str, str, str | None]:
    """Prefix, last number and suffix; a name without a number is all prefix."""
    if not name or set(name) & set(",[]"):
        raise ValueError(f"the name '{name}' cannot be written in a host list")
    match = _NUMBERED.fullmatch(name)
    return (name, "", None) if match is None else (match[1], match[2], match[3])


_PAIR = re.compile(r"\s*([A-Za-z]+)\s*=\s*(?:\"([^\"]*)\"|(\S+))")
_COMMENT = re.compile(r"(?<!\\)#.*")
_KEYS = {"switchname", "switches", "nodes", "linkspeed"}


def to_node_link(cluster: Cluster) -> str:
    """Write a cluster as networkx node-link JSON, with the attributes of `topology.tree`."""
    import networkx as nx

    return json.dumps(nx.node_link_data(tree(cluster), edges="edges"), indent=1)


def from_node_link(data: Any) -> Cluster:
    """Read a cluster from a networkx node-link graph, as JSON has it; a ValueError if it describes none."""
    import networkx as nx

    if not isinstance(data, dict) or not isinstance(data.get("graph", {}), dict):
        raise ValueError("no node-link graph: it must be an object, and its 'graph' too")
    edges = "edges" if "edges" in data else "links"
    _check_rows("nodes", data.get("nodes"), ("id",))
    _check_rows(edges, data.get(edges), ("source", "target"))
    if data.get("directed") is not True or data.get("multigraph", False) is not False:
        raise ValueError("the graph must be directed, from parents to children, and no multigraph")
    graph: nx.DiGraph[str] = nx.DiGraph(nx.node_link_graph(data, multigraph=False, edges=edges))
    return cluster_from_tree(graph)


def _check_rows(key: str, rows: object, needed: tuple[str, ...]) -> None:
    if not isinstance(rows, list):
        raise ValueError(f"no node-link graph: the list '{key}' is missing")
    for row in rows:
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in needed):
            raise ValueError(
                f"'{key}' must hold objects that name {' and '.join(needed)}, not {echo(row, '')}"
            )


class _Switch(NamedTuple):
    """One line of a topology.conf."""

    line: int
    name: str
    switches: list[str]
    nodes: list[str]
    link_speed: float | None


def from_slurm(
    text: str,
    *,
    gpu_type: str,
    gpus_per_node: int,
    idle_power_w: float,
) -> Cluster:
    """Read the switch tree of a Slurm ``topology.conf``.

    Switches become groups of level "switch" in the order of their lines, with the nodes in the order in which
    they are listed. ``LinkSpeed`` is read as the uplink's bandwidth in Gbit/s.

    Parameters
    ----------
    gpu_type : str
        Name of the GPU type of all nodes; the file does not know it.
    gpus_per_node : int
        GPUs of every node.
    idle_power_w : float
        Idle draw of one GPU.

    Raises
    ------
    ValueError
        With the line number, if the file cannot be understood or does not describe a tree.
    """
    switches: list[_Switch] = []
    left = MAX_HOSTS
    for number, line in logical_lines(text):
        switches.append(_read_switch(number, line, left))
        left -= len(switches[-1].switches) + len(switches[-1].nodes)
    if not switches:
        raise ValueError("the file has no SwitchName line")
    parents = _parents(switches)
    groups = [
        Group(name=s.name, level="switch", parent=parents.get(s.name), bandwidth_gbps=s.link_speed)
        for s in switches
    ]
    nodes = [
        Node(name=host, gpu_type=gpu_type, gpus=gpus_per_node, parent=switch.name)
        for switch in switches
        for host in switch.nodes
    ]
    return Cluster(gpu_types={gpu_type: GpuType(idle_power_w=idle_power_w)}, nodes=nodes, groups=groups)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, comments cut off and continuations joined, with their first line's number."""
    begun, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _COMMENT.sub("", raw).rstrip()
        first = first if begun else number
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        if (begun + line).strip():
            yield first, (begun + line).strip()
        begun = ""
    if begun.strip():
        yield first, begun.strip()


def _read_switch(number: int, line: str, most_names: int) -> _Switch:
    values: dict[str, str] = {}
    position = 0
    while position < len(line):
        pair = _PAIR.match(line, position)
        if pair is None:
            raise ValueError(f"line {number}: expected Key=Value, found {echo(line[position:].strip())}")
        key = pair[1].lower()
        if key not in _KEYS:
            raise ValueError(f"line {number}: unknown key {echo(pair[1])}")
        if key in values:
            raise ValueError(f"line {number}: '{pair[1]}' is given twice")
        values[key] = pair[2] if pair[2] is not None else pair[3]
        position = pair.end()
    if not values.get("switchname"):
        raise ValueError(f"line {number}: SwitchName is missing")
    if len(name := values["switchname"]) > LONGEST_CELL:
        raise ValueError(f"line {number}: SwitchName {echo(name)} has more than {LONGEST_CELL} characters")
    if ("switches" in values) == ("nodes" in values):
        raise ValueError(f"line {number}: switch '{name}' needs either Switches or Nodes")
    try:
        switches, nodes = (
            expand(values[key], most_names) if key in values else [] for key in ("switches", "nodes")
        )
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error
    speed = values.get("linkspeed")
    if speed is not None and (not re.fullmatch(r"[0-9]{1,12}", speed) or int(speed) == 0):
        raise ValueError(f"line {number}: LinkSpeed must be a positive whole number, not {echo(speed)}")
    return _Switch(number, name, switches, nodes, None if speed is None else float(speed))


def _parents(switches: list[_Switch]) -> dict[str, str]:
    """Switch above each switch and node; checks that the lines describe a forest of distinct names."""
    lines: dict[str, int] = {}
    for s in switches:
        if s.name in lines:
            raise ValueError(f"line {s.line}: switch '{s.name}' is defined already in line {lines[s.name]}")
        lines[s.name] = s.line
    parents: dict[str, str] = {}
    below = [(s, "switch", name) for s in switches for name in s.switches]
    below += [(s, "node", name) for s in switches for name in s.nodes]
    for switch, kind, name in below:
        if kind == "switch" and name not in lines:
            raise ValueError(f"line {switch.line}: switch '{name}' is not defined")
        if kind == "node" and name in lines:
            raise ValueError(f"line {switch.line}: '{name}' is both a node and a switch")
        if name in parents:
            raise ValueError(f"line {switch.line}: {kind} '{name}' is below '{parents[name]}' already")
        parents[name] = switch.name
    for name in loop({switch.name: parents.get(switch.name) for switch in switches}):
        raise ValueError(f"line {lines[name]}: switch '{name}' is below itself")
    return parents


def to_slurm(cluster: Cluster) -> str:
    """Write the groups and nodes of a cluster as a Slurm ``topology.conf``.

    The format knows names, the tree and a whole number for the speed of a switch's uplink (here Gbit/s,
    rounded, at least 1); everything else is left out, and so are groups without nodes.

    Raises
    ------
    ValueError
        If a node has no group, a group has both groups and nodes below it, or a name cannot be written.
    """
    stray = [node.name for node in cluster.nodes if node.parent is None]
    if stray:
        raise ValueError(f"topology.conf needs a group above every node, node '{stray[0]}' has none")
    hosts: dict[str | None, list[str]] = defaultdict(list)
    for node in cluster.nodes:
        hosts[node.parent].append(node.name)
    parents, used = cluster.parents(), set(hosts)
    for name in reversed(top_down(parents)):
        if name in used:
            used.add(parents[name])
    groups = [group for group in cluster.groups if group.name in used]
    switches: dict[str | None, list[str]] = defaultdict(list)
    for group in groups:
        switches[group.parent].append(group.name)
    return "".join(_switch_line(group, switches[group.name], hosts[group.name]) for group in groups)


def _switch_line(group: Group, switches: list[str], hosts: list[str]) -> str:
    if switches and hosts:
        raise ValueError(f"group '{group.name}' has groups and nodes below it, topology.conf allows only one")
    for name in (group.name, *hosts):
        if re.search(r"[\s\"#=\\]", name):
            raise ValueError(f"the name '{name}' cannot be written to topology.conf")
    below = f"Switches={compress(switches)}" if switches else f"Nodes={compress(hosts)}"
    speed = ""
    if group.bandwidth_gbps is not None:
        speed = f" LinkSpeed={max(1, round(group.bandwidth_gbps))}"
    return f"SwitchName={group.name} {below}{speed}\n"
