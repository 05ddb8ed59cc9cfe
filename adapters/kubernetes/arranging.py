"""Where decided starts have room for all that their pods ask for, and which have none."""

from __future__ import annotations

from collections.abc import Sequence

from wattsched.adapters.kubernetes.load import Binding, Load
from wattsched.adapters.kubernetes.plan import Plan, Start
from wattsched.adapters.kubernetes.reading import KubePod


def arranged(plan: Plan, load: Load) -> tuple[list[Start], dict[str, str]]:
    """Starts in an order in which they find room, and why the others do not.

    What is leaving or to be stopped counts as gone. Who has room where it was decided goes first; where that
    leaves some without and the others would find room after these, these do.
    """
    stopped = [pod for name in plan.stops for pod in load.ours[name].pods]
    later = load.without([*load.leaving, *stopped])
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
