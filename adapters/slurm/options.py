"""Options of jobs: from their comments, a file of the site, or their plain requests.

An `InputError` says why a job waits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from wattsched.adapters.agents import JobReport
from wattsched.adapters.allowed import Allow, JobOptions, Range
from wattsched.adapters.options import (
    OF_MODELS,
    PLAIN_S,
    Launched,
    Row,
    Stated,
    StatedOptions,
    merged,
    plain_table,
    rates_of,
    under_way,
    with_table,
)
from wattsched.adapters.slurm.inventory import SlurmNode, gpu_type_of
from wattsched.adapters.slurm.reading import MARK, Site, SlurmJob, marked
from wattsched.instances.errors import InputError, validated
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.topology.fields import Count, Name, NonNegative

TOLERATED = ("least_progress", "pausable", "paused_power_w", "checkpoint_signal", "grace_s")
"""Fields of what is said of a job that no session is told of."""
CheckpointSignal = Literal["USR1", "USR2", "HUP", "TERM", "B:USR1", "B:USR2", "B:HUP", "B:TERM"]
_LONGEST_S = 3600.0
"""Longest grace, in seconds."""
_NEEDS = {"paused_power_w": "pausable", "grace_s": "checkpoint_signal"}
"""Fields that count only beside another one."""


class SlurmJobOptions(JobOptions):
    """Fields that a comment or the site's file states of a job, also for cuts of the cap while it runs.

    A cut may suspend it if it is ``pausable``: each of its GPUs, which it keeps, then draws
    ``paused_power_w``, by default as an idle one. Its steps are sent ``checkpoint_signal`` (its script where
    ``B:`` is before the name, as for ``sbatch --signal``) ``grace_s`` before it is stopped, by default 60.
    """

    pausable: bool | None = None
    paused_power_w: NonNegative | None = None
    checkpoint_signal: CheckpointSignal | None = None
    grace_s: Annotated[float, Field(gt=0, le=_LONGEST_S)] | None = None

    def unmet(self, said: Mapping[str, Any]) -> list[str]:
        """Return a sentence for each of its fields that counts only beside one that is not `said`."""
        stated = [name for name in _NEEDS if getattr(self, name) is not None]
        return [f"{name}: needs '{_NEEDS[name]}'" for name in stated if not said.get(_NEEDS[name])]


class SlurmAllow(Allow):
    """Limits of what users may state, also of what their jobs tolerate."""

    pausable: bool = False
    paused_power_w: Range[NonNegative] | None = None
    checkpoint_signal: bool = False
    grace_s: Range[Annotated[float, Field(ge=0, le=_LONGEST_S)]] | None = None


class SiteOptions(StatedOptions):
    """The file of the site: watts that Slurm does not know, and options of jobs.

    Attributes
    ----------
    qos, accounts : dict
        What is said of jobs by QOS and by account; members of `power_domains` are switches and nodes.
    """

    jobs: dict[str, SlurmJobOptions] = Field(default_factory=dict)
    qos: dict[str, SlurmJobOptions] = Field(default_factory=dict)
    accounts: dict[str, SlurmJobOptions] = Field(default_factory=dict)
    allow: SlurmAllow = SlurmAllow()

    @model_validator(mode="after")
    def _fields_count(self) -> Self:
        for where, said in self._entries():
            if faults := said.unmet(dict(said)):
                raise ValueError(f"{where}.{faults[0]} beside it")
        return self

    def _entries(self) -> Iterator[tuple[str, SlurmJobOptions]]:
        """Yield what is said of jobs by name, QOS and account, each with where that stands."""
        for field in ("jobs", "qos", "accounts"):
            yield from ((f"{field}.{name}", said) for name, said in getattr(self, field).items())

    def odd_pauses(self, kinds: Collection[str]) -> list[str]:
        """Return notes on watts of paused GPUs that no GPU of some types can draw."""
        found = ((where, odd) for where, said in self._entries() for odd in self.odd_pause(said, kinds))
        return [f"{where} of the site's file: {odd}" for where, odd in found]

    def odd_pause(self, said: SlurmJobOptions, kinds: Iterable[str]) -> Iterator[str]:
        """Yield why no paused GPU of some types can draw the stated watts, if none can."""
        watts, of = said.paused_power_w, [self.gpu_type(kind) for kind in kinds if self.knows(kind)]
        if watts is None or not of:
            return
        least_w, most_w = min(one.idle_power_w for one in of), max(one.max_power_w or inf for one in of)
        if watts < least_w:
            yield f"paused_power_w: {watts:g} W is below the {least_w:g} W with which an idle GPU counts"
        elif watts >= most_w:
            text = f"paused_power_w: {watts:g} W is not below the {most_w:g} W of a busy GPU"
            yield f"{text}, so a pause saves nothing"

    def tolerance(self, said: Mapping[str, Any], gpus: int, pool: str) -> dict[str, Any]:
        """Return what a launch keeps of what is said of a job, which may be changed while it runs."""
        idle_w, found = self.gpu_type(gpu_type_of(pool)).idle_power_w, dict[str, Any]()
        if said.get("pausable"):
            found["paused_w"] = gpus * max(idle_w, said.get("paused_power_w", 0.0))
        if signal := said.get("checkpoint_signal"):
            found |= {"checkpoint_signal": signal, "grace_s": said.get("grace_s", 60.0)}
        return found


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
        return named or marked(job.comment) is not None or (job.on_nodes and is_launched(job))


def is_launched(job: SlurmJob) -> bool:
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
    asked_nodes, least_nodes : list of str, int, optional
        What its user had asked for, as ours stand in their place in Slurm.
    before_w : float, optional
        The most watts that it had before its settings were changed.
    lowering : bool, optional
        These still count: not all agents of its nodes have reported the new settings.
    changed_s, done_work : float
        When the settings were changed last, in seconds since 1970, and the work done by then.
    waits : str, optional
        Of a job that was stopped: why it waits now.
    paused_w, paused_s : float, optional
        Watts while it is suspended, None where it may not be, and since when we have it suspended.
    checkpoint_signal, grace_s, signalled_run, signalled_s : optional
        Signal before it is stopped, how long before, and in which run and when it was sent last.
    """

    run: int
    released_s: float
    pool: Name
    nodes: dict[Name, Count]
    asked_nodes: list[Name] = Field(default_factory=list)
    least_nodes: Count | None = None
    before_w: NonNegative | None = None
    lowering: bool | None = None
    changed_s: NonNegative | None = None
    done_work: NonNegative | None = None
    waits: str | None = None
    paused_w: NonNegative | None = None
    paused_s: NonNegative | None = None
    checkpoint_signal: CheckpointSignal | None = None
    grace_s: NonNegative | None = None
    signalled_run: int | None = None
    signalled_s: NonNegative | None = None

    def given(self, nodes: dict[str, int]) -> Launch:
        """Return the same with the GPUs that Slurm gave it, by node, each at its watts."""
        gpus = sum(nodes.values())
        watts = {"power_w": self.power_w / self.gpus * gpus, "before_w": None}
        return self.model_copy(update={"nodes": nodes, "gpus": gpus, **watts})

    def corrected(self, factor: float) -> Launch:
        """Return the same with so many times the watts of the model, those before a change among them."""
        times = factor / (self.factor or 1.0)
        before_w = None if self.before_w is None else self.before_w * times
        update = {"power_w": self.power_w * times, "before_w": before_w, "factor": factor}
        return self.model_copy(update=update)

    def text(self) -> str:
        """The admin comment."""
        said = self.model_dump(exclude_none=True)
        return json.dumps({MARK: {name: value for name, value in said.items() if value != []}})

    def work_at(self, job: SlurmJob, time_s: float, rate: float) -> float:
        """Work that a running job has done, at a rate with these settings."""
        return (self.done_work or 0.0) + rate * job.ran_s(time_s, self.changed_s or 0.0)


def gpu_settings(of: Launch | JobReport) -> dict[str, str]:
    """Clock and power limit of GPUs as a settings file states them; watts are per GPU."""
    clock, limit = of.frequency_mhz, of.power_limit_w
    return {
        "WATTSCHED_FREQUENCY_MHZ": "" if clock is None else str(clock),
        "WATTSCHED_POWER_LIMIT_W": "" if limit is None else f"{limit:g}",
    }


def rows_for(table: Mapping[str, Any], launch: Launch) -> list[Row]:
    """Rows of a table for the GPUs of a launch that need no restart: clocks and power limits, each once."""
    columns = [name for name in SETTINGS if table.get(name) is not None]
    if not table or set(columns) != set(launch.settings):
        return []
    found, rates, kind = dict[tuple[Any, ...], Row](), rates_of(table), gpu_type_of(launch.pool)
    for i, (gpus, pool) in enumerate(zip(table["gpus"], table["pool"], strict=True)):
        if gpus != launch.gpus or gpu_type_of(pool) != kind:
            continue
        settings = {name: table[name][i] for name in columns}
        if settings.get("batch_size") == launch.batch_size:
            found.setdefault(tuple(settings.values()), Row(settings, table["power_w"][i], rates[i]))
    return [*found.values()]


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
    same = job.on_nodes and {node: len(gpus) for node, gpus in job.gpus.items()} == launch.nodes
    return launch if same else None


def said_of(
    job: SlurmJob, options: SiteOptions, *, believe: bool = True, kinds: Iterable[str] = ()
) -> dict[str, Any]:
    """Fields that are said of a job; its comment, if believed, goes before its name, QOS and account.

    The watts that a comment states of paused GPUs have to be possible on one of `kinds` that it asks for.
    """
    layers: list[JobOptions | None] = [options.accounts.get(job.account), options.qos.get(job.qos)]
    layers += [said for name, said in options.jobs.items() if fnmatchcase(job.name, name)]
    if believe and MARK in job.comment:
        options.allow.require_short(job.comment)
        if (comment := marked(job.comment)) is not None:
            own = validated(SlurmJobOptions, comment)
            layers.append(options.believed(own, gpu_type_of))
            wanted = [one for one in kinds if job.request.gpu_type in ("", one)]
            if faults := [*own.unmet(merged(layers)), *options.odd_pause(own, wanted)]:
                raise InputError(faults)
    return merged(layers)


def fields_of(
    said: dict[str, Any], job: SlurmJob, site: Site, options: SiteOptions, pools: list[str]
) -> dict[str, Any]:
    """Fields of a job of an instance: what is said of a job or, where nothing is, its plain request."""
    if "options" not in said and "model" not in said:
        limit_s = job.limit_s if 0 < job.limit_s <= 1e12 else PLAIN_S
        said = {"options": _plain(job, site, options), "remaining_work": limit_s, **said}
    fields = _with_idle_watts(with_table(said, options.tables), options)
    least = {name: fields.pop(name) for name in TOLERATED if name in fields}
    kinds = {node.gpu_type for node in site.nodes.values()}
    stated = fields.get("pools")
    if stated and (strange := [name for name in stated if name not in kinds]):
        raise InputError([f"pools: '{strange[0]}' is no GPU type of the cluster"])
    allowed = [pool for pool in pools if stated is None or gpu_type_of(pool) in stated]
    if not allowed:
        raise InputError(["none of its partitions has GPUs that it may use"])
    checked = validated(Job, {**fields, "pools": allowed, "name": str(job.id), "preemptible": True})
    return {**checked.model_dump(exclude_unset=True), **least, "preemptible": fields.get("preemptible", True)}


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
    fields: Mapping[str, Any],
    job: SlurmJob,
    site: Site,
    held: Launch | None,
    hosts: Iterable[SlurmNode],
    *,
    adjustable: bool = False,
) -> dict[str, Any]:
    """A job as a session takes it, without what it holds.

    `hosts` has a node of each kind that it may have. The last row of a running job is what it has (`held`);
    before it are other clocks and power limits on the same GPUs, if it is `adjustable`.
    """
    record = {name: value for name, value in fields.items() if name not in (*OF_MODELS, *TOLERATED)}
    record["options"] = _possible(job, fields["options"], hosts, held, adjustable)
    if held is not None:
        work = held.work_at(job, site.time_s, rates_of(record["options"])[-1])
        record = under_way(record, job.ran_s(site.time_s), work)
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


def _possible(
    job: SlurmJob, table: Mapping[str, Any], hosts: Iterable[SlurmNode], held: Launch | None, adjustable: bool
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
        return _with_own(rows, columns, held, adjustable)
    if not kept and job.needs.exclusive:
        raise InputError(["has nodes for itself (--exclusive), with all their GPUs: ask for all of them"])
    if not kept:
        text = "has no option of one node's GPUs, or of as many whole nodes as -N allows"
        raise InputError([f"{text}, with the CPUs and memory that it asks for"])
    return rows


def _holds(job: SlurmJob, gpus: int, host: SlurmNode) -> bool:
    """True if a job can have so many GPUs on nodes like `host` alone: some of one, or all of several."""
    nodes, each = (1, gpus) if gpus <= host.gpus else (gpus // host.gpus, host.gpus)
    if nodes * each != gpus or not job.least_nodes <= nodes <= max(1, job.most_nodes):
        return False
    if job.needs.nodes and nodes != len(job.needs.nodes):
        return False
    # Who has nodes for himself is given all their GPUs.
    if job.needs.exclusive and each != host.gpus:
        return False
    enough = job.needs.cpus_on(host, nodes, each) <= host.cpus
    return enough and job.needs.memory_mib_on(host, nodes, each) <= host.memory_mib


def _with_own(
    rows: dict[str, Any], columns: Mapping[str, Any], held: Launch, adjustable: bool
) -> dict[str, Any]:
    """Rows, and at last that of a running job as it was launched (`held`), at its speed in the table.

    Before it are its other settings on the same GPUs, if it is `adjustable`.
    """
    speed = "completion_s" if "completion_s" in columns else "rate"
    others = rows_for(columns, held)
    rate = next((row.rate for row in others if row.settings == held.settings), 1.0)
    own = Row(held.settings, held.power_w, rate)
    names = {"gpus", "pool", "power_w", speed, *held.settings}
    kept = [own] if not adjustable else [*(row for row in others if row.settings != held.settings), own]
    table = {name: [*rows[name]] if names == set(rows) else [] for name in names}
    for row in kept:
        values = {"gpus": held.gpus, "pool": held.pool, "power_w": row.power_w, **row.settings}
        values[speed] = row.rate if speed == "rate" else 1.0 / row.rate
        for name, value in values.items():
            table[name].append(value)
    return table
