"""Room on nodes for more than GPUs: CPU, memory, places for pods, and what else they offer.

The engine knows GPUs and watts. A job for which there are GPUs and not the rest takes no part in its
decision, so that nothing is kept for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from wattsched.adapters.kubernetes.load import Load, Start
from wattsched.adapters.kubernetes.options import KubeJob, complete
from wattsched.adapters.kubernetes.reading import GPU, KubeNode, KubePod
from wattsched.adapters.plan import Kept, Need, Round, left_of, undecided, why_over_quota, why_waiting
from wattsched.adapters.pools import Claim
from wattsched.adapters.rounds import Plan, Reason
from wattsched.instances.errors import InputError


@dataclass
class Room:
    """Room for pods on nodes by pool; answers are kept, so the load must not change.

    Attributes
    ----------
    hosts : frozenset of str, optional
        The nodes that count; without it all do.
    """

    load: Load
    hosts: frozenset[str] | None = None
    _nodes: dict[str, list[KubeNode]] = field(default_factory=lambda: defaultdict(list))
    _known: dict[Hashable, bool] = field(default_factory=dict)
    _copies: dict[Hashable, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.load.site.nodes.values():
            if node.ready and (self.hosts is None or node.name in self.hosts):
                self._nodes[self.load.pools.of_node[node.name]].append(node)

    def fits(self, job: KubeJob, pool: str) -> bool:
        """True if the nodes of a pool have room for all pods of a job, each kind of them on its own."""
        return all(self._holds(pod, count, pool, pod.needs) for pod, count in _kinds(job))

    def scarce(self, job: KubeJob, pool: str) -> set[str]:
        """Return the resources that a job lacks on a pool's nodes, though they have GPUs enough for it."""
        found = set[str]()
        for pod, count in _kinds(job):
            if self._holds(pod, count, pool, ()) and not self._holds(pod, count, pool, pod.needs):
                alone = [what for what in pod.needs if not self._holds(pod, count, pool, [what])]
                found.update(alone or pod.needs)
        return found

    def copies(self, pod: KubePod) -> dict[str, int]:
        """Return the number of pods like one that fit on each node."""
        asked = (pod.gpus, tuple(sorted(pod.needs.items())))
        if asked not in self._copies:
            nodes = (node for some in self._nodes.values() for node in some)
            self._copies[asked] = {node.name: self.load.copies(pod, node, pod.needs) for node in nodes}
        return self._copies[asked]

    def _holds(self, pod: KubePod, count: int, pool: str, what: Collection[str]) -> bool:
        """True if so many pods like one have room, by their GPUs and some other resources."""
        asked = (pool, pod.gpus, count, tuple((name, pod.needs[name]) for name in sorted(what)))
        if asked not in self._known:
            left = count
            for node in self._nodes[pool]:
                left -= self.load.copies(pod, node, what)
                if left <= 0:
                    break
            self._known[asked] = left <= 0
        return self._known[asked]


def _kinds(job: KubeJob) -> list[tuple[KubePod, int]]:
    """A pod of every kind, by what they ask for, and how many there are."""
    counts = Counter(tuple(sorted(pod.needs.items())) for pod in job.pods)
    samples = {tuple(sorted(pod.needs.items())): pod for pod in job.pods}
    return [(samples[needs], count) for needs, count in counts.items()]


def claim_of(job: KubeJob, hosts: frozenset[str], empty: Room, now: Room) -> Claim:
    """Nodes that a waiting job may have, and how many of them it needs; rooms on these, empty and now."""
    _require_nodes(job, hosts, empty)
    first, kinds = job.pods[0], _kinds(job)
    # Nodes for the GPUs of all pods, and for all that those of each kind ask for.
    most = [(len(job.pods), max(empty.load.site.nodes[name].gpus for name in hosts) // first.gpus)]
    most += [(count, max(empty.copies(pod).values(), default=1)) for pod, count in kinds]
    nodes = max(-(-pods // max(1, on_one)) for pods, on_one in most)
    full = frozenset(name for pod, _ in kinds for name, fit in now.copies(pod).items() if not fit)
    return Claim(hosts, first.created_s, nodes, first.gpus, full)


def _require_nodes(job: KubeJob, hosts: frozenset[str], empty: Room) -> None:
    """Raise an `InputError` where the empty nodes that a job may have are too few or too small for it."""
    each, pods = job.pods[0].gpus, len(job.pods)
    if not each:
        raise InputError([f"asks for no {GPU}"])
    if any(pod.gpus != each for pod in job.pods):
        raise InputError(["its pods ask for different numbers of GPUs"])
    if not hosts:
        asked = ", ".join(dict.fromkeys(name for pod in job.pods for name in pod.resources))
        raise InputError([f"no node with {asked} is as its selector, affinity and tolerations ask"])
    gpus = [empty.load.site.nodes[name].gpus for name in hosts]
    if each > max(gpus):
        text = f"a pod asks for {each:,} GPUs, and no node that it may have has more than {max(gpus)}"
        raise InputError([text])
    if pods > (there := sum(most // each for most in gpus)):
        text = f"its {pods} pods ask for {each} GPUs each, and the nodes that they may have"
        raise InputError([f"{text} have room for {there} of them when they are empty"])
    never = [empty.scarce(job, pool) for pool in {empty.load.pools.of_node[name] for name in hosts}]
    if all(never):
        raise _without_room("asks for more than nodes have", never)


def _without_room(what: str, scarce: Iterable[set[str]]) -> InputError:
    """An error that says of a job which resources it lacks."""
    return InputError([Reason(f"{what}: {', '.join(sorted(set[str]().union(*scarce)))}", "room")])


def with_room(job: KubeJob, table: Mapping[str, list[Any]], empty: Room, now: Room) -> dict[str, list[Any]]:
    """Rows of a table in pools where the pods of a job have room for all that they ask for.

    On `empty` nodes in pools that no job divides, and now, without pods that are leaving or could be stopped.
    """
    pools, plain = now.load.pools.sample, empty.load.pools.of_node
    never = {pool: empty.scarce(job, plain[pools[pool].name]) for pool in set(table["pool"])}
    scarce = {pool: lacks or now.scarce(job, pool) for pool, lacks in never.items()}
    rows = [i for i, pool in enumerate(table["pool"]) if not scarce[pool]]
    if not rows:
        what = "asks for more than nodes have" if all(never.values()) else "waits for room"
        raise _without_room(what, scarce.values())
    return {name: [column[i] for i in rows] for name, column in table.items()}


def arranged(plan: Plan, load: Load) -> tuple[list[Start], dict[str, str]]:
    """Starts in an order in which they find room, each where it does, and why the others do not.

    What is leaving or to be stopped counts as gone. Who has room where it was decided goes first; where that
    leaves some without and the others would find room after these, these do.
    """
    later = load.after(plan.stops)
    there, astray = list[Start](), list[Start]()
    for start in plan.starts:
        bindings, why = later.placed(start)
        if why or bindings != start.bindings:
            later.give_back(bindings)
            astray.append(start)
        else:
            there.append(start)
    first, roomless = _in_turn([*there, *astray], load.after(plan.stops))
    if roomless:
        second, none_left = _in_turn([*astray, *there], load.after(plan.stops))
        if not none_left:
            return second, {}
    return first, roomless


def queued(plan: Plan, round: Round, cap_w: Mapping[str, float]) -> dict[str, str]:
    """Return why jobs that were told to the session are not among the starts of a plan."""
    load = round.load
    later, tenants = load.after(plan.stops, plan.starts), load.options.tenants
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
            quota = Reason("its nodes would not be whole", "room")
        open_to = [one for one in needs if left[one.pool].holds(one.gpus) >= one.times]
        if open_to and not any(room.fits(job, one.pool) for one in open_to):
            scarce = sorted(set[str]().union(*(room.scarce(job, one.pool) for one in open_to)))
            found[job.name] = Reason(f"waits for room: {', '.join(scarce)}", "room")
        else:
            seen = "" if load.options.names_of_other_namespaces else f"{job.pods[0].namespace}/"
            found[job.name] = why_waiting(needs, left, quota, seen)
    return found


def _needs(record: Mapping[str, Any], job: KubeJob, later: Load) -> Iterator[Need]:
    """Yield the needs of a job by pool, each for the option that adds the fewest watts to idle GPUs."""
    table, added_w = record["options"], dict[str, float]()
    for gpus, pool, power_w in zip(table["gpus"], table["pool"], table["power_w"], strict=True):
        added_w[pool] = min(added_w.get(pool, inf), power_w - gpus * later.pools.idle_w[pool])
    for pool, more_w in added_w.items():
        yield Need(pool, job.pods[0].gpus, len(job.pods), more_w)


def _in_turn(starts: Sequence[Start], load: Load) -> tuple[list[Start], dict[str, str]]:
    """Return starts where they find room, one after the other, and why the rest finds none."""
    found, roomless = list[Start](), dict[str, str]()
    for start in starts:
        bindings, why = load.placed(start)
        if why:
            roomless[start.job.name] = why
            load.give_back(bindings)
        else:
            found.append(replace(start, bindings=bindings))
    return found, roomless
