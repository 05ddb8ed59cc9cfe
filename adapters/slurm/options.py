"""Options of jobs: from their comments, a file of the site, or their plain requests.

An `InputError` says why a job waits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import Field

from wattsched.adapters.allowed import JobOptions
from wattsched.adapters.options import (
    OF_MODELS,
    PLAIN_S,
    Launched,
    Stated,
    StatedOptions,
    merged,
    plain_table,
    under_way,
    with_table,
)
from wattsched.adapters.slurm.inventory import SlurmNode, gpu_type_of
from wattsched.adapters.slurm.reading import MARK, Site, SlurmJob, marked
from wattsched.instances.errors import InputError, validated
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.topology.fields import Count, Name


class SiteOptions(StatedOptions):
    """The file of the site: watts that Slurm does not know, and options of jobs.

    Attributes
    ----------
    qos, accounts : dict
        What is said of jobs by QOS and by account; members of `power_domains` are switches and nodes.
    """

    qos: dict[str, JobOptions] = Field(default_factory=dict)
    accounts: dict[str, JobOptions] = Field(default_factory=dict)


@dataclass(frozen=True)
class Ours:
    """Rule for the jobs that are ours: marked by their comment, or of one of these."""

    accounts: Sequence[str] = ()
    qos: Sequence[str] = ()
    partitions: Sequence[str] = ()

    def has(self, job: SlurmJob) -> bool:
        """True if a job is ours."""
        named = job.account in self.accounts or job.qos in self.qos
        named = named or bool(set(job.partitions) & set(self.partitions))
        # What we launched is ours while it runs, whatever its user makes of the comment.
        return named or marked(job.comment) is not None or (job.on_nodes and _is_launched(job))


def _is_launched(job: SlurmJob) -> bool:
    """Return whether its admin comment, which only operators write, says how it was released."""
    said = marked(job.admin_comment)
    return isinstance(said, dict) and "run" in said


class Launch(Launched):
    """Settings with which we released a job, kept in its admin comment: all that a restart of ours needs.

    Attributes
    ----------
    run : int
        Slurm's count of restarts when it was released.
    released_s : float
        When, in seconds since 1970.
    nodes : dict of str to int
        GPUs by node.
    asked_nodes : list of str
        What its user had asked for, as ours stand in their place in Slurm.
    waits : str, optional
        Of a job that was stopped: why it waits now.
    """

    run: int
    released_s: float
    pool: Name
    nodes: dict[Name, Count]
    asked_nodes: list[Name] = Field(default_factory=list)
    waits: str | None = None

    def text(self) -> str:
        """The admin comment."""
        said = self.model_dump(exclude_none=True)
        return json.dumps({MARK: {name: value for name, value in said.items() if value != []}})


def stated_names(
    site: Site, options: SiteOptions, ours: Ours, known: Mapping[str, Collection[str]] | None
) -> list[Stated]:
    """Names of the site's file and of options, and those that Slurm has: `known`, or without in the queue."""
    hosts = {*site.nodes, *site.switches}.union(*site.partitions.values())
    members = {name for domain in options.power_domains for name in domain.members}
    sure = known is not None
    accounts, qos = ({getattr(job, kind) for job in site.jobs.values()} for kind in ("account", "qos"))
    known = known or {"account": accounts, "qos": qos}
    return [
        Stated("power_domains of the site's file", members, hosts),
        Stated("--partition", ours.partitions, site.partitions, sure=True),
        Stated("--account", ours.accounts, known["account"], sure=sure, fault=sure),
        Stated("accounts of the site's file", options.accounts, known["account"], sure=sure, fault=sure),
        Stated("tenants of the site's file", options.tenants, known["account"], sure=sure, fault=sure),
        Stated("--qos", ours.qos, known["qos"], sure=sure, fault=sure),
        Stated("qos of the site's file", options.qos, known["qos"], sure=sure, fault=sure),
    ]


def launch_of(job: SlurmJob) -> Launch | None:
    """Return how a job was released that runs, ends or is about to start; None where it was not, by us."""
    found = marked(job.admin_comment)
    try:
        launch = validated(Launch, found) if isinstance(found, dict) else None
    except InputError:
        return None
    # A job that is requeued counts as restarted while it still ends.
    runs = (job.restarts,) if job.running or job.pending else (job.restarts, job.restarts - 1)
    if launch is None or launch.run in runs:
        return launch
    # After a node failed Slurm may start it again by itself, as it was.
    same = job.running and {node: len(gpus) for node, gpus in job.gpus.items()} == launch.nodes
    return launch if same else None


def said_of(job: SlurmJob, options: SiteOptions, *, believe: bool = True) -> dict[str, Any]:
    """Fields that are said of a job; its comment, if believed, goes before its name, QOS and account."""
    layers = [options.accounts.get(job.account), options.qos.get(job.qos)]
    layers += [said for name, said in options.jobs.items() if fnmatchcase(job.name, name)]
    if believe and MARK in job.comment:
        options.allow.require_short(job.comment)
        if (comment := marked(job.comment)) is not None:
            layers.append(options.believed(validated(JobOptions, comment), gpu_type_of))
    return merged(layers)


def fields_of(
    said: dict[str, Any], job: SlurmJob, site: Site, options: SiteOptions, pools: list[str]
) -> dict[str, Any]:
    """Fields of a job of an instance: what is said of a job or, where nothing is, its plain request."""
    if "options" not in said and "model" not in said:
        said = {"options": _plain(job, site, options), "remaining_work": _plain_s(job), **said}
    fields = _with_idle_watts(with_table(said, options.tables), options)
    kinds = {node.gpu_type for node in site.nodes.values()}
    stated = fields.get("pools")
    if stated and (strange := [name for name in stated if name not in kinds]):
        raise InputError([f"pools: '{strange[0]}' is no GPU type of the cluster"])
    allowed = [pool for pool in pools if stated is None or gpu_type_of(pool) in stated]
    if not allowed:
        raise InputError(["none of its partitions has GPUs that it may use"])
    checked = validated(Job, {**fields, "pools": allowed, "name": str(job.id), "preemptible": True})
    return {**checked.model_dump(exclude_unset=True), "preemptible": fields.get("preemptible", True)}


def _with_idle_watts(fields: dict[str, Any], options: SiteOptions) -> dict[str, Any]:
    """Fields whose options draw no less than their GPUs do when they are idle, whatever a comment says."""
    table = fields.get("options")
    if not isinstance(table, OptionTable):
        return fields
    idle_w = {pool: options.gpu_type(gpu_type_of(pool)).idle_power_w for pool in set(table.pool)}
    rows = zip(table.gpus, table.pool, table.power_w, strict=True)
    watts = [max(power_w, gpus * idle_w[pool]) for gpus, pool, power_w in rows]
    return {**fields, "options": table.model_copy(update={"power_w": watts})}


def record_of(
    fields: Mapping[str, Any], job: SlurmJob, site: Site, held: Launch | None, hosts: Iterable[SlurmNode]
) -> dict[str, Any]:
    """A job as a session takes it, without what it holds.

    `hosts` has a node of each kind that it may have. What a running job was released as (`held`), its clock
    and power limit among it, cannot change while it runs.
    """
    record = {name: value for name, value in fields.items() if name not in OF_MODELS}
    record["options"] = _possible(job, fields["options"], hosts, held)
    if held is not None:
        table, ran_s = record["options"], max(0.0, site.time_s - job.start_s) if job.running else 0.0
        rate = table["rate"][-1] if "rate" in table else 1.0 / table["completion_s"][-1]
        record = under_way(record, ran_s, rate)
    record["preemptible"] = held is None or (record["preemptible"] and job.requeue)
    return record


def _plain(job: SlurmJob, site: Site, options: SiteOptions) -> OptionTable:
    """The one option of a job that says nothing: its GPUs, each at the most that its type draws."""
    gpus, wanted = job.request.gpus, job.request.gpu_type
    if not gpus:
        raise InputError(["asks for no GPUs with --gres, --gpus-per-node or --gpus"])
    there = {node.gpu_type for node in site.nodes.values()}
    kinds = sorted(kind for kind in there if wanted in ("", kind) and options.knows(kind))
    if not kinds:
        raise InputError([f"asks for GPUs of type '{wanted}', which no node has"])
    return plain_table(gpus, kinds, options)


def _plain_s(job: SlurmJob) -> float:
    return job.limit_s if 0 < job.limit_s <= 1e12 else PLAIN_S


def _possible(
    job: SlurmJob, table: Mapping[str, Any], hosts: Iterable[SlurmNode], held: Launch | None
) -> dict[str, Any]:
    """Rows of a table that Slurm can do: one node's GPUs or whole nodes; a running job as launched (`held`).

    `hosts` has a node of each kind that the job may have.
    """
    columns = {name: column for name, column in table.items() if column is not None}
    hosts, wanted = list(hosts), job.request.gpu_type
    kinds = map(gpu_type_of, columns.get("pool", ()))
    pairs = list(zip(columns.get("gpus", ()), kinds, strict=True))
    # Tables of models have hundreds of rows, and few such pairs.
    fitting = {
        (gpus, kind)
        for gpus, kind in set(pairs)
        if wanted in ("", kind) and any(host.gpu_type == kind and _holds(job, gpus, host) for host in hosts)
    }
    fitting -= set() if held is None else {(held.gpus, gpu_type_of(held.pool))}
    kept = [i for i, pair in enumerate(pairs) if pair in fitting]
    rows = {name: [column[i] for i in kept] for name, column in columns.items()}
    if held is not None:
        return _with_own(rows, columns, held)
    if not kept and job.needs.exclusive:
        raise InputError(["has nodes for itself (--exclusive), with all their GPUs: ask for all of them"])
    if not kept:
        text = "has no option of one node's GPUs, or of as many whole nodes as -N allows"
        raise InputError([f"{text}, with the CPUs and memory that it asks for"])
    return rows


def _holds(job: SlurmJob, gpus: int, host: SlurmNode) -> bool:
    """True if a job can have so many GPUs on nodes like `host` alone: some of one, or all of several."""
    nodes, each = (1, gpus) if gpus <= host.gpus else (gpus // host.gpus, host.gpus)
    if nodes * each != gpus or (nodes > 1 and nodes > job.most_nodes):
        return False
    if job.needs.nodes and nodes != len(job.needs.nodes):
        return False
    # Who has nodes for himself is given all their GPUs.
    if job.needs.exclusive and each != host.gpus:
        return False
    enough = job.needs.cpus_on(host, nodes, each) <= host.cpus
    return enough and job.needs.memory_mib_on(host, nodes, each) <= host.memory_mib


def _with_own(rows: dict[str, Any], columns: Mapping[str, Any], held: Launch) -> dict[str, Any]:
    """Rows, and at last that of a running job as it was launched (`held`), at its speed in the table."""
    speed = "completion_s" if "completion_s" in columns else "rate"
    own = {"gpus": held.gpus, "pool": held.pool, "power_w": held.power_w, **held.settings}
    same = [
        i
        for i, gpus in enumerate(columns.get("gpus", ()))
        if gpus == held.gpus
        and gpu_type_of(columns["pool"][i]) == gpu_type_of(held.pool)
        and all(columns[name][i] == value for name, value in held.settings.items() if name in columns)
    ]
    own[speed] = columns[speed][same[0]] if same else 1.0
    if set(own) != set(rows):  # its table was another when it was released
        return {name: [value] for name, value in own.items()}
    return {name: [*rows[name], own[name]] for name in rows}
