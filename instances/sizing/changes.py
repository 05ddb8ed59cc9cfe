"""Changes of a round as people type them: ``+2kW``, ``-10%``, ``=5000``, ``none``; fewer or more GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from wattsched.instances.errors import InputError, require_known, shown, validated
from wattsched.instances.sizing.instance import Instance
from wattsched.reading.inputs import number_in
from wattsched.reading.units import Numbers, Quantity
from wattsched.topology.cluster import Node
from wattsched.topology.pools import pools_of

REMOVED = object()
"""In place of a value of `replaced`: the entry of a mapping is taken out."""

FIELDS: dict[str, tuple[tuple[str, ...], Quantity | None]] = {
    "power_w": (("budgets", "power_w"), "power"),
    "energy_j": (("budgets", "energy_j"), "energy"),
    "carbon_g": (("budgets", "carbon_g"), None),
    "least_goodput": (("budgets", "least_goodput"), None),
    "carbon_g_per_kwh": (("carbon_g_per_kwh",), "carbon"),
    "price_per_kwh": (("price_per_kwh",), "money"),
}
"""Numbers of a round that may be changed: where they stand, and which units are read."""

_NONE = "none"


def replaced(node: Any, tree: Any) -> Any:
    """Return a part of an instance with other values at some paths; entries of lists go by their names."""
    if not isinstance(tree, dict):
        return tree
    if isinstance(node, BaseModel):
        return node.model_copy(update={name: replaced(getattr(node, name), to) for name, to in tree.items()})
    if isinstance(node, Mapping):
        changed = {key: replaced(value, tree[key]) if key in tree else value for key, value in node.items()}
        return {key: value for key, value in changed.items() if value is not REMOVED}
    assert isinstance(node, Sequence)
    return [replaced(entry, tree[entry.name]) if entry.name in tree else entry for entry in node]


def with_nodes(
    instance: Instance, model: Node, count: int, domains: Iterable[str], base_power_w: float
) -> Instance:
    """Return a round with more nodes like one, under the same power domains but in no group."""
    known, prefix = set(instance.cluster.node_columns().names), f"{model.name} "
    names = [name for i in range(len(known) + count) if (name := f"{prefix}{i}") not in known][:count]
    own: dict[str, Any] = {"parent": None, "base_power_w": base_power_w, "reserved_w": 0.0, "unavailable": []}
    added = [model.model_copy(update={"name": name, **own}) for name in names]
    feeds = {
        one.name: {"members": [*one.members, *names]}
        for one in instance.cluster.power_domains
        if one.name in set(domains)
    }
    cluster = {"nodes": [*instance.cluster.nodes, *added], "power_domains": feeds}
    changed: Instance = replaced(instance, {"cluster": cluster})
    return changed


def changed_value(
    field: str, value: float | None, text: str, quantity: Quantity | None = None
) -> float | None:
    """Return a number after a change: by so much, by so many percent, to so much, or to no limit.

    Parameters
    ----------
    field : str
        What is changed, for messages.
    value : float, optional
        As it is; None for no limit.
    text : str
        Such as ``+2kW``, ``-10%``, ``=5000``, ``5000`` or ``none``.
    quantity : str, optional
        Whose units are read; none are read without one.
    """
    found = re.fullmatch(r"\s*([-+=]?)\s*(\S.*?)\s*", text)
    sign, told = found.groups() if found else ("", "")
    if told == _NONE and sign in ("", "="):
        return None
    try:
        part = told.endswith("%")
        read = number_in if part or quantity is None else Numbers("", quantity)
        amount = read(told.removesuffix("%").strip()) * (0.01 if part else 1.0)
        if not np.isfinite(amount) or (sign in ("+", "-") and told[0] in "+-"):
            raise ValueError("it is not finite" if amount > 0 else "it has two signs")
    except ValueError as error:
        raise InputError(
            [f"{field}: {shown(text)} is no change such as +10, -5%, =100 or none: {error}"]
        ) from None
    if sign in ("", "=") and not part:
        return amount
    if value is None:
        raise InputError(
            [f"{field}: {shown(text)} changes a limit that the round does not have; give =NUMBER"]
        )
    if sign in ("", "="):
        return value * amount
    signed = amount if sign == "+" else -amount
    return value * (1.0 + signed) if part else value + signed


def changed(
    instance: Instance,
    numbers: Mapping[str, str],
    gpus: Mapping[str, str] | None = None,
    caps: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
) -> Instance:
    """Return a round after changes.

    Parameters
    ----------
    numbers : mapping of str to str
        Changes of `FIELDS`.
    gpus, caps : mapping of str to str
        Changes of the GPUs of pools, and of the caps of power domains in W.
    remove : sequence of str
        Jobs that are taken out, and with them the sets that they are in.

    Raises
    ------
    wattsched.InputError
        For an unknown name, a change that is none, and a round that is none afterwards; it names them.
    """
    tree: dict[str, Any] = {}
    for field, text in numbers.items():
        require_known("field", field, FIELDS)
        path, quantity = FIELDS[field]
        owner = instance.budgets if len(path) > 1 else instance
        branch = tree.setdefault(path[0], {}) if len(path) > 1 else tree
        branch[field] = changed_value(field, getattr(owner, field), text, quantity)
    domains = {one.name: one for one in instance.cluster.power_domains}
    for name, text in (caps or {}).items():
        _require_one("cap", "power domain", name, domains)
        field = f"power_domains.{name}.power_cap_w"
        value = changed_value(field, domains[name].power_cap_w, text, "power")
        if value is None:
            raise InputError([f"{field}: a power domain has a cap, {shown(text)} would take it away"])
        feeds = tree.setdefault("cluster", {}).setdefault("power_domains", {})
        feeds[name] = {"power_cap_w": value}
    jobs = instance.by_column()
    for name in remove:
        _require_one("remove", "job", name, jobs.place)
    if remove:
        gone = set(remove)
        kept = np.array([j for j, name in enumerate(jobs.names) if name not in gone], dtype=np.int64)
        tree["jobs"] = jobs.take(kept).listed()
        tree["sets"] = [one for one in instance.sets if gone.isdisjoint(one.rates)]
    found: Instance = replaced(instance, tree)
    for name, text in (gpus or {}).items():
        found = _with_gpus(found, name, text)
    return validated(Instance, found.model_dump(mode="json"))


def _require_one(option: str, what: str, name: str, known: Iterable[str]) -> None:
    try:
        require_known(what, name, list(known))
    except ValueError as error:
        raise InputError([f"{option}: {error}"]) from None


def _with_gpus(instance: Instance, name: str, text: str) -> Instance:
    """Return a round with more or fewer GPUs of a pool.

    More are on nodes like the pool's first. Fewer are taken from the nodes with the fewest that jobs hold,
    those that nobody holds first; a node without any draws nothing.
    """
    pools = {pool.name: pool for pool in pools_of(instance.cluster)}
    _require_one("gpus", "pool", name, pools)
    pool, field = pools[name], f"gpus.{name}"
    there = int(pool.available.sum())
    wanted = changed_value(field, float(there), text)
    if wanted is None or wanted < 0 or wanted != round(wanted):
        raise InputError([f"{field}: {shown(text)} of {there} GPUs leaves no whole number of them from 0 on"])
    more = round(wanted) - there
    nodes = instance.cluster.nodes
    if more > 0:
        model = nodes[int(pool.members[0])]
        whole = -(-more // pool.gpus_per_node)
        grown = with_nodes(instance, model, whole, pool.domains, model.base_power_w)
        last = grown.cluster.nodes[-1]
        rest = [*range(pool.gpus_per_node - (whole * pool.gpus_per_node - more), pool.gpus_per_node)]
        return _replacing(grown, {last.name: {"unavailable": rest}})
    return (
        instance
        if more == 0
        else _with_fewer(instance, [nodes[i] for i in pool.members.tolist()], -more, field)
    )


def _with_fewer(instance: Instance, nodes: list[Node], gpus: int, field: str) -> Instance:
    held: dict[tuple[str, int], bool] = {}
    for job in instance.jobs:
        if job.current is not None:
            held |= {place: held.get(place, False) or not job.preemptible for place in job.current.places}
    kept = {place for place, must_stay in held.items() if must_stay}
    free = {node.name: [g for g in range(node.gpus) if g not in node.unavailable] for node in nodes}
    places = [(node.name, gpu) for node in nodes for gpu in free[node.name]]
    in_use = {node.name: sum((node.name, gpu) in held for gpu in free[node.name]) for node in nodes}
    order = {node.name: i for i, node in enumerate(nodes)}
    places.sort(key=lambda p: (p in held, in_use[p[0]], -order[p[0]], -p[1]))
    gone = [place for place in places if place not in kept][:gpus]
    if len(gone) < gpus:
        told = f"{gpus} of {len(places)} GPUs cannot go: jobs that keep theirs hold {len(places) - len(gone)}"
        raise InputError([f"{field}: {told}"])
    changes: dict[str, Any] = {}
    for node in nodes:
        if out := [gpu for name, gpu in gone if name == node.name]:
            changes[node.name] = {"unavailable": sorted([*node.unavailable, *out])}
            if len(out) == len(free[node.name]):
                changes[node.name]["base_power_w"] = 0.0
    return _replacing(instance, changes)


def _replacing(instance: Instance, nodes: dict[str, Any]) -> Instance:
    found: Instance = replaced(instance, {"cluster": {"nodes": nodes}})
    return found
