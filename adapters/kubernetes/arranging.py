"""Placement of decided starts where there is room for all that their pods ask for; why other jobs wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from wattsched.adapters.kubernetes.load import Binding, Load
from wattsched.adapters.kubernetes.options import KubeJob, complete
from wattsched.adapters.kubernetes.plan import Start
from wattsched.adapters.kubernetes.reading import KubePod
from wattsched.adapters.kubernetes.room import Room
from wattsched.adapters.plan import Kept, Round
from wattsched.adapters.reasons import Need, left_of, undecided, why_over_quota, why_waiting
from wattsched.adapters.rounds import Plan


def arranged(plan: Plan, load: Load) -> tuple[list[Start], dict[str, str]]:
    """Starts in an order in which they find room, and why the others do not.

    What is leaving or to be stopped counts as gone. Who has room where it was decided goes first; where that
    leaves some without and the others would find room after these, these do.
    """
    later = load.after(plan.stops)
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
    """Return why jobs that were told to the session are not among the starts of a plan."""
    load = round.load
    later, tenants = load.after(plan.stops), load.options.tenants
    for start in plan.starts:
        placed(start, later)
    pools = {node: pool for node, pool in load.pools.of_node.items() if pool in load.pools.sample}
    free = {name: later.free(node) for name, node in later.site.nodes.items() if node.ready}
    starts = [(start.job.name, {one.node for one in start.bindings}) for start in plan.starts]
    room, left = Room(later), left_of(later, cap_w, pools, free, starts)
    staying = [one for one in round.jobs if "current" in one and one["name"] not in plan.stops]
    gone_on = [(one.get("tenant"), one["current"]["gpus"], one["options"]["power_w"][0]) for one in staying]
    begun = [(load.options.tenant_of(one.job.pods[0]), one.job.gpus, one.power_w) for one in plan.starts]
    kept = [*round.kept, *(Kept(tenant, *used) for tenant, *used in (*gone_on, *begun) if tenant)]
    found = dict[str, str]()
    for record in undecided(plan, round.jobs):
        job = complete(load.waiting[record["name"]])
        needs = list(_needs(record, job, later))
        quota = why_over_quota(needs, record.get("tenant"), tenants, kept)
        if not quota and len(job.pods) > 1:
            quota = "its nodes would not be whole"
        open_to = [one for one in needs if left[one.pool].holds(one.gpus) >= one.times]
        if open_to and not any(room.fits(job, one.pool) for one in open_to):
            scarce = sorted(set[str]().union(*(room.scarce(job, one.pool) for one in open_to)))
            found[job.name] = f"waits for room: {', '.join(scarce)}"
        else:
            found[job.name] = why_waiting(needs, left, quota)
    return found


def _needs(record: Mapping[str, Any], job: KubeJob, later: Load) -> Iterator[Need]:
    """Yield the needs of a job by pool, each for the option that adds the fewest watts to idle GPUs."""
    table, added_w = record["options"], dict[str, float]()
    for gpus, pool, power_w in zip(table["gpus"], table["pool"], table["power_w"], strict=True):
        added_w[pool] = min(added_w.get(pool, inf), power_w - gpus * later.pools.idle_w[pool])
    for pool, more_w in added_w.items():
        yield Need(pool, job.pods[0].gpus, len(job.pods), more_w)


def _roomless(starts: Sequence[Start], load: Load) -> dict[str, str]:
    """Return the starts that find no room, one after the other, and why; the load is as before afterwards."""
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
    """Name the resources that a pod lacks on nodes of the wanted node's pool, those that lack the fewest."""
    nodes = [node for node in load.site.nodes.values() if node.ready]
    pool = load.pools.of_node.get(wanted)
    lacks = [load.lacks(pod, node) for node in nodes if load.pools.of_node[node.name] == pool]
    if not lacks:
        return "no node is ready"
    least = min(map(len, lacks))
    return ", ".join(sorted({what for one in lacks if len(one) == least for what in one}))
