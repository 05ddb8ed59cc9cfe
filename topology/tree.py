"""The cluster as a networkx tree, from the site down to the single GPU, and back.

Vertices are named as in the cluster, GPUs ``{node}/{number}``. Attributes of the vertices:

========  =================================================================================================
all       ``level`` ("gpu", "node", or the level of the group) and ``power_domains``, the sorted names of the
          domains that the vertex is in, its own and those above it
group     ``bandwidth_gbps`` if it has an uplink but no parent
node      ``gpu_type``, ``base_power_w``, ``reserved_w``; ``pool``, ``bandwidth_gbps`` (without parent) if set
gpu       ``gpu_type``, ``index``, ``available``, ``idle_power_w``; ``max_power_w`` if known
========  =================================================================================================

Edges point from parent to child and carry ``bandwidth_gbps`` where it is known. The graph itself has
``name``, ``gpu_types`` (type to its fields) and ``power_domains`` (a list of their fields).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wattsched.topology.cluster import Cluster, Group, Node

if TYPE_CHECKING:
    import networkx as nx

    Tree = nx.DiGraph[str]

LEVELS_BELOW_GROUPS = ("node", "gpu")


def tree(cluster: Cluster) -> Tree:
    """Tree of a cluster; a ValueError for groups of the level of nodes or GPUs, and for names of GPUs."""
    import networkx as nx

    graph: Tree = nx.DiGraph(
        name=cluster.name,
        gpu_types={name: gpu.model_dump(exclude_none=True) for name, gpu in cluster.gpu_types.items()},
        power_domains=[domain.model_dump() for domain in cluster.power_domains],
    )
    domains = {name: sorted(found) for name, found in cluster.domain_names().items()}
    for group in cluster.groups:
        if group.level in LEVELS_BELOW_GROUPS:
            raise ValueError(f"group '{group.name}' has the level '{group.level}', which is not for groups")
        graph.add_node(group.name, level=group.level, power_domains=domains[group.name])
    for node in cluster.nodes:
        own = node.model_dump(include={"gpu_type", "base_power_w", "reserved_w", "pool"}, exclude_none=True)
        graph.add_node(node.name, level="node", power_domains=domains[node.name], **own)
    places: list[Group | Node] = [*cluster.groups, *cluster.nodes]
    for place in places:
        uplink = place.model_dump(include={"bandwidth_gbps"}, exclude_none=True)
        if place.parent is None:
            graph.nodes[place.name].update(uplink)
        else:
            graph.add_edge(place.parent, place.name, **uplink)
    for node in cluster.nodes:
        power_w = {"idle_power_w", "max_power_w"}
        of_type = cluster.gpu_types[node.gpu_type].model_dump(include=power_w, exclude_none=True)
        for index in range(node.gpus):
            name = f"{node.name}/{index}"
            if name in graph:
                raise ValueError(f"the name '{name}' is needed for GPU {index} of node '{node.name}'")
            own = {"gpu_type": node.gpu_type, "index": index, "available": index not in node.unavailable}
            graph.add_node(name, level="gpu", power_domains=[*domains[node.name]], **own, **of_type)
            graph.add_edge(node.name, name)
    return graph


def cluster_from_tree(graph: Tree) -> Cluster:
    """Cluster of a tree, the inverse of `tree`; vertices and children keep their order.

    What follows from other attributes may be left out: ``power_domains``, ``idle_power_w`` and
    ``max_power_w`` of vertices, ``gpu_type`` of nodes, ``index`` and ``available`` of GPUs (then counted in
    order, and true). A ValueError says that the graph is no tree (a cycle, a vertex with several parents),
    that a GPU is not below a node, or that an attribute is missing, of the wrong kind or contradicts another.
    """
    _check_is_tree(graph)
    types = graph.graph.get("gpu_types")
    if not isinstance(types, dict) or not all(isinstance(fields, dict) for fields in types.values()):
        raise ValueError("the graph lacks the attribute 'gpu_types', a mapping of GPU types to their fields")
    groups: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    for name in graph:
        level = _text(graph, name, "level")
        if level == "gpu":
            _check_gpu(graph, name)
        elif level == "node":
            nodes.append(_place(graph, name) | _node_fields(graph, name))
        else:
            groups.append(_place(graph, name) | {"level": level})
    cluster = Cluster.model_validate(
        {
            "name": graph.graph.get("name") or "cluster",
            "gpu_types": types,
            "nodes": nodes,
            "groups": groups,
            "power_domains": graph.graph.get("power_domains", []),
        }
    )
    _check_domains(graph, cluster)
    return cluster


def _check_is_tree(graph: Tree) -> None:
    """Refuse a graph with several parents of a vertex, or with a cycle."""
    import networkx as nx

    for name, parents in graph.in_degree():
        if parents > 1:
            raise ValueError(f"vertex '{name}' has several parents: {', '.join(graph.predecessors(name))}")
    if not nx.is_directed_acyclic_graph(graph):
        loop = [name for name, _ in nx.find_cycle(graph)]
        raise ValueError(f"the graph has a cycle: {' -> '.join([*loop, loop[0]])}")


def _text(graph: Tree, name: str, key: str) -> str:
    """Return an attribute of a vertex, which must be text."""
    if key not in graph.nodes[name]:
        raise ValueError(f"vertex '{name}' lacks the attribute '{key}'")
    value = graph.nodes[name][key]
    if not isinstance(value, str):
        raise ValueError(f"the attribute '{key}' of vertex '{name}' must be text, not {value!r}")
    return value


def _parent(graph: Tree, name: str) -> str | None:
    return next(iter(graph.predecessors(name)), None)


def _place(graph: Tree, name: str) -> dict[str, Any]:
    """Return the fields that a group and a node have in common."""
    parent = _parent(graph, name)
    if parent is not None and _text(graph, parent, "level") in LEVELS_BELOW_GROUPS:
        raise ValueError(f"vertex '{name}' is below '{parent}', which is no group")
    uplink = graph.nodes[name] if parent is None else graph.edges[parent, name]
    return {"name": name, "parent": parent, "bandwidth_gbps": uplink.get("bandwidth_gbps")}


def _node_fields(graph: Tree, name: str) -> dict[str, Any]:
    """Return the other fields of a node, from its attributes and from the GPUs below it."""
    data = graph.nodes[name]
    gpus = list(graph.successors(name))
    if not gpus:
        raise ValueError(f"node '{name}' has no GPUs below it")
    index = {gpu: graph.nodes[gpu].get("index", i) for i, gpu in enumerate(gpus)}
    if any(not isinstance(i, int) for i in index.values()) or set(index.values()) != set(range(len(gpus))):
        raise ValueError(f"the GPUs of node '{name}' must be numbered from 0 to {len(gpus) - 1}")
    types = {_text(graph, gpu, "gpu_type") for gpu in gpus}
    if "gpu_type" in data:
        types.add(_text(graph, name, "gpu_type"))
    if len(types) > 1:
        raise ValueError(f"node '{name}' has several GPU types: {', '.join(sorted(types))}")
    return {
        "gpu_type": types.pop(),
        "gpus": len(gpus),
        "unavailable": [i for gpu, i in index.items() if not graph.nodes[gpu].get("available", True)],
        "base_power_w": data.get("base_power_w", 0.0),
        "reserved_w": data.get("reserved_w", 0.0),
        "pool": data.get("pool"),
    }


def _check_gpu(graph: Tree, name: str) -> None:
    """Refuse a GPU that is not below a node, or whose watts are not those of its type."""
    parent = _parent(graph, name)
    if parent is None or _text(graph, parent, "level") != "node":
        raise ValueError(f"GPU '{name}' is not below a node")
    gpu_type = _text(graph, name, "gpu_type")
    stated = graph.graph["gpu_types"].get(gpu_type, {})
    for key in ("idle_power_w", "max_power_w"):
        value = graph.nodes[name].get(key)
        if value is not None and value != stated.get(key):
            raise ValueError(f"GPU '{name}' has {key} {value}, its type '{gpu_type}' has {stated.get(key)}")


def _check_domains(graph: Tree, cluster: Cluster) -> None:
    """Refuse power domains of vertices that are not those of the cluster."""
    for name, found in cluster.domain_names().items():
        stated = graph.nodes[name].get("power_domains", list(found))
        if not isinstance(stated, list) or sorted(map(str, stated)) != sorted(found):
            raise ValueError(f"vertex '{name}' has the power_domains {stated}, not {sorted(found)}")
