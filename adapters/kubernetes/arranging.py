"""Where decided starts have room for all that their pods ask for, and why other jobs wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from wattsched.adapters.kubernetes.load import Binding, Load
from wattsched.adapters.kubernetes.options import KubeJob, complete
from wattsched.adapters.kubernetes.plan import Plan, Round, Start
from wattsched.adapters.kubernetes.reading import KubePod
from wattsched.adapters.kubernetes.room import Room


def arranged(plan: Plan, load: Load) -> tuple[list[Start], dict[str, str]]:
    """Starts in an order in which they find room, and why the others do not.

    What is leaving or to be stopped counts as gone. Who has room where it was decided goes first; where that
    leaves some without and the others would find room after these, these do.
    """
    later = _later(plan, load)
    there, astray = list[Start](), list[Start]()
    for start in plan.starts:
        bindings, why = placed(start, later)
        if why or bindings != start.bindings:
            _give_back(bindings, later)
            astray.append(start)
        else:
            there.append(start)
    _give_back([one for start in there for one in start.bindings], later)
    first, roomless = [*there, *astray], _roomless([*there, *astray], later)
    if roomless and not _roomless([*astray, *there], later):
        return [*astray, *there], {}
    return [start for start in first if start.job.name not in roomless], roomless


def queued(plan: Plan, round: Round, cap_w: float) -> dict[str, str]:
    """Why jobs that were told to the session are not among the starts of a plan."""
    load = round.load
    later, starting = _later(plan, load), {start.job.name for start in plan.starts}
    for start in plan.starts:
        placed(start, later)
    room, spare_w = Room(later), _spare_w(later, cap_w)
    return {
        record["name"]: _why(record, complete(load.waiting[record["name"]]), room, spare_w)
        for record in round.jobs
        if "current" not in record and record["name"] not in starting
    }


def _why(record: Mapping[str, Any], job: KubeJob, room: Room, spare_w: Mapping[str, dict[str, float]]) -> str:
    table, idle_w = record["options"], room.load.pools.idle_w
    added_w: dict[str, float] = {}
    for gpus, pool, power_w in zip(table["gpus"], table["pool"], table["power_w"], strict=True):
        added_w[pool] = min(added_w.get(pool, inf), power_w - gpus * idle_w[pool])
    if not (pools := [pool for pool in added_w if room.fits(job, pool)]):
        return "too few GPUs are free, or others go first"
    over = [
        next((cap for cap, left_w in spare_w[pool].items() if added_w[pool] > left_w), "") for pool in pools
    ]
    if all(over):
        return f"the {over[0]} leaves too few watts, or others go first"
    told = ["others go first"]
    told += [f"the quota of '{record['tenant']}' leaves too little"] if "tenant" in record else []
    told += ["its nodes would not be whole"] if len(job.pods) > 1 else []
    return ", or ".join(told)


def _spare_w(load: Load, cap_w: float) -> dict[str, dict[str, float]]:
    """Watts that are left below every cap that nodes of a pool are under."""
    above = {"cap": cap_w - load.power_w}
    domains = load.options.power_domains
    left_w = {one.name: one.power_cap_w - load.domain_w(one.name) for one in domains}
    return {
        pool: above | {f"cap of '{name}'": left_w[name] for name in load.domains_of(node.name)}
        for pool, node in load.pools.sample.items()
    }


def _later(plan: Plan, load: Load) -> Load:
    """What is there when what is leaving, or to be stopped, has gone."""
    stopped = [pod for name in plan.stops for pod in load.ours[name].pods]
    return load.without([*load.leaving, *stopped])


def _roomless(starts: Sequence[Start], load: Load) -> dict[str, str]:
    """Which starts find no room, one after the other, and why; the load is as before afterwards."""
    found, counted = dict[str, str](), list[Binding]()
    for start in starts:
        bindings, why = placed(start, load)
        if why:
            found[start.job.name] = why
            _give_back(bindings, load)
        else:
            counted += bindings
    _give_back(counted, load)
    return found


def _give_back(bindings: Sequence[Binding], load: Load) -> None:
    for one in bindings:
        load.give_back(one)


def placed(start: Start, load: Load) -> tuple[tuple[Binding, ...], str]:
    """The pods of a start with nodes that have room for them, counted; or those that had, and why not all."""
    found = list[Binding]()
    for one in start.bindings:
        pod = load.site.pods.get(one.pod.uid)
        if pod is None or not pod.waiting:
            return tuple(found), "has changed meanwhile"
        node = load.place(pod, one.node)
        if node is None:
            return tuple(found), f"waits for room: {_scarce(pod, one.node, load)}"
        binding = Binding(pod, node, one.launch)
        load.take(binding)
        found.append(binding)
    return tuple(found), ""


def _scarce(pod: KubePod, wanted: str, load: Load) -> str:
    """What nodes of a pool lack for a pod, those that lack the least."""
    nodes = [node for node in load.site.nodes.values() if node.ready]
    pool = load.pools.of_node.get(wanted)
    lacks = [load.lacks(pod, node) for node in nodes if load.pools.of_node[node.name] == pool]
    if not lacks:
        return "no node is ready"
    least = min(map(len, lacks))
    return ", ".join(sorted({what for one in lacks if len(one) == least for what in one}))
