"""Changes of a round as people type them: ``+2kW``, ``-10%``, ``=5000``, ``none``; fewer or more GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from wattsched.instances.errors import InputError, require_known, shown, validated
from wattsched.instances.replacing import replaced
from wattsched.instances.sizing.instance import Instance
from wattsched.reading.inputs import number_in
from wattsched.reading.units import Numbers, Quantity
from wattsched.topology.cluster import Node
from wattsched.topology.pools import pools_of

BUDGETS: dict[str, Quantity | None] = {
    "power_w": "power",
    "energy_j": "energy",
    "carbon_g": None,
    "least_goodput": None,
}
FIELDS: dict[str, Quantity | None] = {**BUDGETS, "carbon_g_per_kwh": "carbon", "price_per_kwh": "money"}
"""Numbers of a round that may be changed, and the quantity whose units are read."""


def with_nodes(
    instance: Instance, model: Node, count: int, domains: Iterable[str], base_power_w: float
) -> Instance:
    """Return a round with more nodes like one, under the same power domains but in no group."""
    known = set(instance.cluster.node_columns().names)
    names = [name for i in range(len(known) + count) if (name := f"{model.name} {i}") not in known][:count]
    own: dict[str, Any] = {"parent": None, "base_power_w": base_power_w, "reserved_w": 0.0, "unavailable": []}
    added = [model.model_copy(update={"name": name, **own}) for name in names]
    feeds = {
        one.name: {"members": [*one.members, *names]}
        for one in instance.cluster.power_domains
        if one.name in domains
    }
    cluster = {"nodes": [*instance.cluster.nodes, *added], "power_domains": feeds}
    return replaced(instance, {"cluster": cluster})


def changed_number(field: str, value: float | None, text: str, quantity: Quantity | None) -> float | None:
    """Return a number after a change; None is no limit.

    Parameters
    ----------
    field : str
        What is changed, for messages.
    value : float, optional
        As it is.
    text : str
        By so much, ``+2kW``, or so many percent, ``-10%``; to so much, ``=5000`` or ``5000``, or ``none``.
    quantity : str, optional
        Whose units are read; none are without one.
    """
    bare = text.strip()
    sign = bare[:1] if bare.startswith(("+", "-", "=")) else ""
    told = bare.removeprefix(sign).strip()
    if told == "none" and sign in ("", "="):
        return None
    try:
        share = told.endswith("%")
        read = number_in if share or quantity is None else Numbers("", quantity)
        amount = read(told.removesuffix("%").strip())
        if not math.isfinite(amount) or (told[0] in "+-" and sign != "="):
            raise ValueError("give one sign and a finite number")
    except ValueError as error:
        told = f"{shown(text)} is no change such as +10, -5%, =100 or none: {error}"
        raise InputError([f"{field}: {told}"]) from None
    if sign in ("", "=") and not share:
        return amount
    if value is None:
        raise InputError([f"{field}: {shown(text)} changes a limit that the round does not have"])
    amount *= value / 100 if share else 1.0
    return {"+": value + amount, "-": value - amount}.get(sign, amount)


def changed(
    instance: Instance,
    numbers: Mapping[str, str],
    gpus: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
) -> Instance:
    """Return a round after changes of `FIELDS`, of the GPUs of pools, and without some jobs and their sets.

    Raises
    ------
    ValueError, wattsched.InputError
        For an unknown name, a change that is none, and a round that is none afterwards; it names them.
    """
    tree: dict[str, Any] = {"budgets": {}}
    for field, text in numbers.items():
        require_known("changes", field, FIELDS)
        owner, branch = (instance.budgets, tree["budgets"]) if field in BUDGETS else (instance, tree)
        branch[field] = changed_number(field, getattr(owner, field), text, FIELDS[field])
    jobs = instance.by_column()
    for name in remove:
        require_known("remove", name, jobs.place)
    if gone := set(remove):
        kept = np.array([j for j, name in enumerate(jobs.names) if name not in gone], dtype=np.int64)
        tree["jobs"] = jobs.take(kept).listed()
        tree["sets"] = [one for one in instance.sets if gone.isdisjoint(one.rates)]
    found = replaced(instance, tree)
    for name, text in (gpus or {}).items():
        found = _with_gpus(found, name, text)
    return validated(Instance, found.model_dump(mode="json"))


def _with_gpus(instance: Instance, name: str, text: str) -> Instance:
    """Return a round with more GPUs of a pool, on nodes like its first, or with fewer."""
    pools = {pool.name: pool for pool in pools_of(instance.cluster)}
    require_known("gpus", name, pools)
    pool, there = pools[name], int(pools[name].available.sum())
    wanted = changed_number(f"gpus.{name}", float(there), text, None)
    if wanted is None or wanted < 0 or wanted != round(wanted):
        raise InputError([f"gpus.{name}: {shown(text)} of {there} leaves no whole number of GPUs from 0 on"])
    nodes = [instance.cluster.nodes[i] for i in pool.members.tolist()]
    more = round(wanted) - there
    if more < 0:
        return _with_fewer(instance, nodes, -more, f"gpus.{name}")
    if more % pool.gpus_per_node:
        raise InputError([f"gpus.{name}: more come in nodes of {pool.gpus_per_node}, got {shown(text)}"])
    return with_nodes(instance, nodes[0], more // pool.gpus_per_node, pool.domains, nodes[0].base_power_w)


def _with_fewer(instance: Instance, nodes: list[Node], gpus: int, field: str) -> Instance:
    """Take GPUs from the nodes with the fewest that jobs hold, free ones first; none that a job keeps."""
    holders = [(place, job) for job in instance.jobs if job.current for place in job.current.places]
    held, kept = {place for place, _ in holders}, {place for place, job in holders if not job.preemptible}
    free = {node.name: [g for g in range(node.gpus) if g not in node.unavailable] for node in nodes}
    in_use = {name: sum((name, gpu) in held for gpu in there) for name, there in free.items()}
    places = [
        (name, gpu) for name in reversed(free) for gpu in reversed(free[name]) if (name, gpu) not in kept
    ]
    places.sort(key=lambda place: (place in held, in_use[place[0]]))
    if len(places) < gpus:
        raise InputError([f"{field}: {gpus} cannot go, jobs that keep theirs leave {len(places)}"])
    changes: dict[str, Any] = {}
    for node in nodes:
        if out := [gpu for name, gpu in places[:gpus] if name == node.name]:
            changes[node.name] = {"unavailable": sorted([*node.unavailable, *out])}
            if len(out) == len(free[node.name]):  # a node without any draws nothing
                changes[node.name]["base_power_w"] = 0.0
    return replaced(instance, {"cluster": {"nodes": changes}})
