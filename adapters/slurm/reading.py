"""A snapshot of Slurm, read: nodes with their GPUs, switches, reservations, and the jobs in the queue."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import inf
from typing import Any, TypeAlias

from wattsched.adapters.agents import NodeReport
from wattsched.adapters.allowed import MOST_CHARACTERS
from wattsched.adapters.options import first_of
from wattsched.adapters.quarantine import why
from wattsched.adapters.slurm.documents import (
    NumberedRow,
    QueuedRow,
    QueuedRows,
    document_in,
    names_in,
    part_of,
)
from wattsched.adapters.slurm.inventory import (
    Needs,
    SlurmNode,
    gpus_in,
    held_in,
    nodes_in,
    records,
    switches_in,
)
from wattsched.adapters.slurm.snapshot import AGENTS, Snapshot
from wattsched.instances.errors import InputError
from wattsched.instances.gpu_parts import host_of
from wattsched.reading.clocks import clock_s, fitting, moment_s, moments_s
from wattsched.reading.inputs import echo

RUNNING, PENDING, SUSPENDED = "RUNNING", "PENDING", "SUSPENDED"
ON_NODES = frozenset(
    ["RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"]
)
"""States of jobs that have something on their nodes."""
LEASE = "wattsched_lease_"
"""Prefix of the reservations by which one process of ours acts; they keep no node."""
MARK = "wattsched"
"""Key of our objects in the comments of jobs."""
_KEPT = {
    "JobHeldAdmin": "an administrator (scontrol hold)",
    "JobHoldMaxRequeue": "Slurm, as it was requeued too often",
    "JobLaunchFailure": "Slurm, as it could not be launched",
}
"""Holds that are not ours to end; what waits for us is held as by its user."""
_RUN = ("UP", "DRAIN")
"""States of partitions that start what is in their queue."""
_Hosts: TypeAlias = Mapping[str, Mapping[str, str]]
"""Machine -> type of its GPUs -> node that has these."""
_HELD_PRIORITY = 0
"""Slurm holds a job by giving it no priority."""

_CORE = (
    *("job_id", "job_state", "nodes", "gres_detail", "node_count", "comment", "admin_comment", "restart_cnt"),
    *("priority", "requeue", "batch_flag", "start_time"),
)
"""Fields that are used of a job whose record cannot be read: what Slurm itself writes of what it has."""


@dataclass(frozen=True)
class Request:
    """GPUs that a job asks for.

    Attributes
    ----------
    gpus : int
        In all.
    gpu_type : str
        Empty where any will do.
    per : {"node", "job", ""}
        Which of Slurm's fields asks, as it has to be the one that changes; empty where a job asks for tasks'
        or sockets' GPUs, which cannot be changed.
    """

    gpus: int = 0
    gpu_type: str = ""
    per: str = ""


@dataclass(frozen=True)
class SlurmJob:
    """A job in the queue.

    Attributes
    ----------
    gpus : dict of str to list of int
        Numbers of the GPUs that it uses, by node; of a job that is ending its nodes, without numbers.
    required : list of str
        Nodes that it is pinned to.
    asked_nodes : int
        Nodes that Slurm takes it to ask for.
    least_nodes, most_nodes : int, float
        Nodes that it is to have, and may have: the limits of its user (``-N``), whatever we asked for.
    needs : Needs
        What it asks of its nodes; of one that we pinned without the pin, see `options.own_nodes`.
    reason : str
        Why it waits, as Slurm has it.
    start_s, suspended_s : float
        When it began, later by the time for which it was suspended; when that was last, or when it went on.
    odd : str
        Why it cannot be ours whatever it says, such as being an array; or empty.
    """

    id: int
    name: str
    user: str
    account: str
    qos: str
    partitions: tuple[str, ...]
    states: frozenset[str]
    comment: str
    admin_comment: str
    gpus: dict[str, list[int]]
    required: list[str]
    request: Request
    asked_nodes: int
    least_nodes: int
    most_nodes: float
    needs: Needs
    held: bool
    reason: str
    restarts: int
    limit_s: float
    start_s: float
    suspended_s: float
    submit_s: float
    eligible_s: float
    requeue: bool
    odd: str

    @property
    def running(self) -> bool:
        """True if its script runs."""
        return RUNNING in self.states and "COMPLETING" not in self.states

    @property
    def suspended(self) -> bool:
        """True if its processes stand still on its GPUs; others may have its CPUs meanwhile."""
        return SUSPENDED in self.states and "COMPLETING" not in self.states

    def ran_s(self, time_s: float, since_s: float = 0.0) -> float:
        """Seconds that its script has run up to a time, perhaps since another; 0 where it does not run."""
        until_s = self.suspended_s if self.suspended else time_s if self.running else 0.0
        return max(0.0, until_s - max(self.start_s, since_s))

    @property
    def pending(self) -> bool:
        """True if it waits in the queue and has nothing on nodes."""
        return PENDING in self.states and not self.states & ON_NODES

    @property
    def on_nodes(self) -> bool:
        """True if something of it is on its nodes."""
        return bool(self.states & ON_NODES)


@dataclass(frozen=True)
class Reservation:
    """Nodes that are set aside from a time on, in seconds since 1970."""

    name: str
    start_s: float
    end_s: float
    nodes: frozenset[str]


@dataclass(frozen=True)
class Site:
    """The cluster as Slurm has it.

    Attributes
    ----------
    switches : dict of str to str or None
        Switch to the one above it.
    above : dict of str to str
        Node to its switch.
    partitions : dict of str to list of str
        Nodes of each partition, those without GPUs, too.
    closed : dict of str to str
        Partitions that start no jobs, and their state.
    notes : list of str
        What was left out, and why.
    agents : str
        Reports of the nodes' agents, as a snapshot has them.
    reports : dict of str to NodeReport
        Those of them that count, by node; see `load.usable`.
    """

    time_s: float
    nodes: dict[str, SlurmNode]
    jobs: dict[int, SlurmJob]
    reservations: list[Reservation]
    switches: dict[str, str | None]
    above: dict[str, str]
    closed: dict[str, str]
    notes: list[str] = field(default_factory=list)
    partitions: dict[str, list[str]] = field(default_factory=dict)
    agents: str = "{}"
    reports: dict[str, NodeReport] = field(default_factory=dict)

    def switches_above(self, node: str) -> list[str]:
        """Switches above a node."""
        found, at = list[str](), self.above.get(node)
        while at is not None and at not in found:
            found.append(at)
            at = self.switches.get(at)
        return found


def read(snapshot: Snapshot) -> Site:
    """Read what the commands said."""
    try:
        time_s = float(snapshot["time"])
        if not 0.0 < time_s < inf:
            raise ValueError(f"time: must be seconds since 1970, got '{snapshot['time']}'")
        nodes = nodes_in(snapshot["nodes"], apart=True)
        hosts = defaultdict[str, dict[str, str]](dict)
        for node in nodes.values():
            hosts[node.host][node.gpu_type] = node.name
        queue = document_in(QueuedRows, "squeue --json", snapshot["jobs"])
        switches, above = switches_in(snapshot["topology"], hosts)
        for node in nodes.values():
            # A machine with several kinds of GPUs stands between these and its switch.
            if node.name != node.host:
                switches[node.host], above[node.name] = above.get(node.host), node.host
        partitions = [found for found in records(snapshot["partitions"]) if "PartitionName" in found]
        if not partitions:
            text = echo(snapshot["partitions"], quote="", most=200) or "nothing"
            raise ValueError(f"scontrol show partition: {text}")
        jobs, notes = _jobs(queue, hosts)
        return Site(
            time_s=time_s,
            nodes=nodes,
            jobs=jobs,
            reservations=list(_reservations(snapshot["reservations"], hosts)),
            switches=switches,
            above=above,
            partitions={p["PartitionName"]: names_in(p.get("Nodes", "")) for p in partitions},
            closed={p["PartitionName"]: s for p in partitions if (s := p.get("State", "UP")) not in _RUN},
            notes=notes,
            agents=snapshot.get(AGENTS, "{}"),
        )
    except ValueError as error:
        raise InputError([f"Slurm's answer cannot be read: {error}"]) from None


def _jobs(queue: QueuedRows, hosts: _Hosts) -> tuple[dict[int, SlurmJob], list[str]]:
    """Return jobs by number, and notes on rows that are left out, without number or state."""
    notes = {
        place: note for place, row in enumerate(queue.jobs) if (note := _unnamed(place, row, queue.meta))
    }
    if len(notes) == len(queue.jobs):
        notes = {}  # it is no queue, and its first row says so
    rows = ((place, row) for place, row in enumerate(queue.jobs) if place not in notes)
    jobs = (_any_job(*row, queue.meta, hosts) for row in rows)
    return {job.id: job for job in jobs}, first_of(notes.values())


def _unnamed(place: int, row: Any, meta: Any) -> str:
    """Return the note on a row without a number or a state; '' for any other."""
    try:
        part_of(NumberedRow, row, f"squeue --json: jobs[{place}]", meta)
    except InputError as error:
        known = row if isinstance(row, dict) else {}
        named = " ".join(echo(known[key]) for key in ("job_id", "name") if known.get(key)) or "the row"
        return f"{error.source}: {error.faults[0]}; {named} is left out"
    return ""


def _any_job(place: int, row: Any, meta: Any, hosts: _Hosts) -> SlurmJob:
    """A job, whatever its user had Slurm write of it; `place` and `meta` are for messages."""
    try:
        return _job(part_of(QueuedRow, row, "", meta), hosts)
    except Exception as error:
        besides = dict.fromkeys(("partition", "tres_per_node", "state_reason"), "")
        core = row
        if isinstance(row, dict):
            core = {**besides, **{name: row[name] for name in _CORE if name in row}}
        job = _job(part_of(QueuedRow, core, f"squeue --json: jobs[{place}]", meta), hosts)
        return replace(job, odd=f"its record cannot be read: {why(error)}")


def _job(row: QueuedRow, hosts: _Hosts) -> SlurmJob:
    """Job of a row of the queue."""
    states = frozenset(row.job_state)
    odd = ""
    if row.array_task_string:
        odd = "is an array, of which Slurm shows its tasks only when they run"
    elif row.het_job_id:
        odd = "is a part of a heterogeneous job"
    elif row.resv_name:
        odd = f"belongs to the reservation '{row.resv_name}'"
    elif row.dependency:
        odd = "waits for other jobs"
    elif len({kind for text in (row.tres_per_node, row.tres_per_job) for kind, *_ in gpus_in(text)}) > 1:
        odd = "asks for GPUs of several types, which are not decided on together"
    elif PENDING in states and row.priority == _HELD_PRIORITY and row.state_reason in _KEPT:
        odd = f"is held by {_KEPT[row.state_reason]}; 'scontrol uhold {row.job_id}' gives it back"
    return SlurmJob(
        id=row.job_id,
        name=row.name,
        user=row.user_name,
        account=row.account,
        qos=row.qos,
        partitions=tuple(row.partition.split(",")),
        states=states,
        comment=row.comment,
        admin_comment=row.admin_comment,
        gpus=_gpus_of(row, hosts) if states & ON_NODES else {},
        required=row.required_nodes,
        request=_request(row),
        asked_nodes=max(1, row.node_count or 1),
        least_nodes=_least_nodes(row),
        most_nodes=row.max_nodes or inf,
        needs=_needs(row),
        held=row.priority == _HELD_PRIORITY,
        reason=row.state_reason,
        restarts=row.restart_cnt or 0,
        limit_s=inf if row.time_limit is None else 60.0 * row.time_limit,
        start_s=float(
            row.suspend_time - (row.pre_sus_time or 0) if row.suspend_time else row.start_time or 0
        ),
        suspended_s=float(row.suspend_time or 0),
        submit_s=float(row.submit_time or 0),
        eligible_s=float(row.eligible_time or 0),
        requeue=row.requeue and row.batch_flag,
        odd=odd,
    )


def _gpus_of(row: QueuedRow, hosts: _Hosts) -> dict[str, list[int]]:
    """Numbers of the GPUs that a job uses, by node; what may be of any kind counts for each of a host."""
    found = defaultdict[str, list[int]](list)
    # One entry for each host, in the order of the hosts.
    for host, text in zip_longest(row.nodes, (row.gres_detail or ())[: len(row.nodes)]):
        own = hosts.get(host, {"": host})
        held = {kind: numbers for kind, numbers in held_in(text).items() if numbers}
        for kind, numbers in (held or {_request(row).gpu_type: []}).items():
            for name in [own[kind]] if kind in own else own.values():
                found[name] += numbers
    return dict(found)


def marked(comment: str) -> Any:
    """Our part of a comment, empty where it is only true; None where there is none."""
    if MARK not in comment or len(comment) > MOST_CHARACTERS:
        return None
    try:
        document = json.loads(comment)
    except (ValueError, RecursionError):
        return None
    found = document.get(MARK) if isinstance(document, dict) else None
    return {} if found in (True, 1) else found


def own_nodes(required: list[str], admin_comment: str) -> list[str]:
    """Nodes that the user of a job asked for; what we pinned it to does not count."""
    launch = marked(admin_comment)
    pinned = launch.get("nodes") if isinstance(launch, dict) else None
    if not required or not isinstance(pinned, dict) or {*map(host_of, pinned)} != set(required):
        return required
    return names_in(launch.get("asked_nodes"))


def _least_nodes(row: QueuedRow) -> int:
    """Nodes that the user of a job asked for at least; a launch of ours keeps them, and else there is one."""
    launch = marked(row.admin_comment)
    asked = launch.get("least_nodes") if isinstance(launch, dict) else row.node_count
    return max(1, asked) if isinstance(asked, int) else 1


def _needs(row: QueuedRow) -> Needs:
    """Return what a job asks of its nodes besides GPUs."""
    return Needs(
        nodes=frozenset(own_nodes(row.required_nodes, row.admin_comment)),
        excluded=frozenset(row.excluded_nodes),
        features=row.features,
        cpus=row.cpus or 1,
        cpus_each=row.minimum_cpus_per_node or 1,
        cpus_gpu=_per_gpu(row.cpus_per_tres),
        memory_each_mib=row.memory_per_node or 0,
        memory_cpu_mib=row.memory_per_cpu or 0,
        memory_gpu_mib=_per_gpu(row.memory_per_tres),
        exclusive="NONE" in (row.shared or ()),
        gpu_type=_request(row).gpu_type,
    )


def _per_gpu(text: str | None) -> float:
    return sum(count for _, count, _ in gpus_in(text))


def _request(row: QueuedRow) -> Request:
    """Return the GPUs that a job asks for, by the first of Slurm's fields that names any."""
    for per, text, times in (("node", row.tres_per_node, row.node_count or 1), ("job", row.tres_per_job, 1)):
        if entries := gpus_in(text):
            kind, number, _ = entries[0]
            return Request(number * times, kind, per)
    return Request()


def _reservations(text: str, hosts: _Hosts) -> Iterator[Reservation]:
    """Yield the reservations of nodes, without our leases."""
    if not text.startswith(("ReservationName=", "No reservations")):
        raise ValueError(f"scontrol show reservation: {echo(text, quote='', most=200) or 'nothing'}")
    for found in records(text):
        if found.get("ReservationName", LEASE).startswith(LEASE):
            continue
        times = [moments_s(moment_s(found.get(key, ""))[0], None) for key in ("StartTime", "EndTime")]
        (start_s, end_s), _ = fitting(times, clock_s(found.get("Duration", "")))
        named = names_in(found.get("Nodes", ""))
        nodes = frozenset(node for host in named for node in hosts.get(host, {}).values())
        yield Reservation(found["ReservationName"], start_s, end_s, nodes)
