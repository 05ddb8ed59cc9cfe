"""What jobs may run as: from their comments, a file of the site, or their plain requests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from wattsched.adapters.slurm.reading import Site, SlurmJob, gpu_type_of
from wattsched.instances.clusters import BASE_POWER_W, GPU_TYPES
from wattsched.instances.errors import InputError, validated
from wattsched.instances.io import read_json
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job, Options, OptionTable, Weight, by_column
from wattsched.perfmodels.profile import Profile
from wattsched.topology.cluster import GpuType, PowerDomain
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Standing, Strict

MARK = "wattsched"
"""Key of our objects in the comments of jobs."""

PLAIN_S = 3600.0
"""What a job is taken to need that states neither its work nor a time limit."""

_OF_MODELS = ("model", "gpu_counts", "batch_sizes", "frequencies_mhz", "power_limits_w")


class JobOptions(Strict):
    """What a comment or the site's file says of a job: fields of a job of an instance."""

    options: Options | None = None
    model: Name | None = None
    remaining_work: Positive | None = None
    weight: Weight | None = None
    restart_s: NonNegative | None = None
    preemptible: bool | None = None
    min_gpus: Count | None = None
    max_gpus: Count | None = None
    pools: list[Name] | None = None
    gpu_counts: list[Count] | None = None
    batch_sizes: list[Count] | None = None
    frequencies_mhz: list[Count] | None = None
    power_limits_w: list[Positive] | None = None

    _by_column = field_validator("options", mode="before")(by_column)


class SiteOptions(Strict):
    """The file of the site: watts that Slurm does not know, and options of jobs.

    Attributes
    ----------
    gpu_types : dict
        GPU types as clusters have them; those of `GPU_TYPES` are known. ``max_power_w`` counts for GPUs that
        plain jobs and other people's jobs use.
    base_power_w : float
        Draw of a node without its GPUs.
    power_domains : list
        Caps of parts of the site; members are switches and nodes.
    tables, profiles
        As instances have them.
    jobs, qos, accounts : dict
        What is said of jobs by name (a pattern with ``*``), by QOS and by account.
    """

    gpu_types: dict[Name, GpuType] = Field(default_factory=dict)
    base_power_w: Standing = BASE_POWER_W
    power_domains: list[PowerDomain] = Field(default_factory=list)
    tables: dict[Name, OptionTable] = Field(default_factory=dict)
    profiles: list[Profile] = Field(default_factory=list)
    jobs: dict[str, JobOptions] = Field(default_factory=dict)
    qos: dict[str, JobOptions] = Field(default_factory=dict)
    accounts: dict[str, JobOptions] = Field(default_factory=dict)

    def gpu_type(self, name: str) -> GpuType:
        """Watts of a GPU type.

        Raises
        ------
        InputError
            Where the file has to state them.
        """
        kind = self.gpu_types.get(name) or GPU_TYPES.get(name)
        if kind is None:
            raise InputError(
                [f"gpu_types: the watts of '{name}' are not known; state them in the options file"]
            )
        return kind

    def max_power_w(self, name: str) -> float:
        """Most that one GPU of a type draws."""
        kind = self.gpu_type(name)
        return kind.idle_power_w if kind.max_power_w is None else kind.max_power_w


def site_options(path: str | Path | None) -> SiteOptions:
    """Read the site's file; defaults without one.

    Raises
    ------
    InputError
        With every fault.
    """
    return SiteOptions() if path is None else validated(SiteOptions, read_json(path), str(path))


@dataclass(frozen=True)
class Ours:
    """Which jobs are ours: marked by their comment, or of one of these."""

    accounts: Sequence[str] = ()
    qos: Sequence[str] = ()
    partitions: Sequence[str] = ()

    def has(self, job: SlurmJob) -> bool:
        """Whether a job is ours."""
        named = job.account in self.accounts or job.qos in self.qos
        return named or bool(set(job.partitions) & set(self.partitions)) or marked(job.comment) is not None


class Launch(Strict):
    """How we released a job, kept in its admin comment: all that a restart of ours needs to know.

    Attributes
    ----------
    run : int
        Slurm's count of restarts when it was released.
    released_s : float
        When, in seconds since 1970.
    nodes : dict of str to int
        GPUs by node.
    """

    run: int
    released_s: float
    gpus: Count
    pool: Name
    nodes: dict[Name, Count]
    power_w: NonNegative
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    batch_size: Count | None = None

    def text(self) -> str:
        """The admin comment."""
        return json.dumps({MARK: self.model_dump(exclude_none=True)})

    @property
    def settings(self) -> dict[str, Any]:
        """Clock, power limit and batch size, those that there are."""
        fields = {"frequency_mhz", "power_limit_w", "batch_size"}
        return self.model_dump(include=fields, exclude_none=True)


def marked(comment: str) -> Any:
    """Our part of a comment; None where there is none."""
    if MARK not in comment:
        return None
    try:
        document = json.loads(comment)
    except (ValueError, RecursionError):
        return None
    found = document.get(MARK) if isinstance(document, dict) else None
    return {} if found in (True, 1) else found


def launch_of(job: SlurmJob) -> Launch | None:
    """How a job was released that runs, ends or is about to start."""
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


def said_of(job: SlurmJob, options: SiteOptions) -> dict[str, Any]:
    """Fields that are said of a job; its comment goes before its name, its QOS and its account.

    Raises
    ------
    InputError
        For a comment that cannot be understood.
    """
    comment = marked(job.comment)
    layers = [options.accounts.get(job.account), options.qos.get(job.qos)]
    layers += [said for name, said in options.jobs.items() if fnmatchcase(job.name, name)]
    layers += [validated(JobOptions, comment) if comment is not None else None]
    fields: dict[str, Any] = {}
    for layer in layers:
        own = {} if layer is None else {name: value for name, value in layer if value is not None}
        if own.keys() & {"options", "model"}:
            fields = {name: value for name, value in fields.items() if name not in ("options", "model")}
        fields |= own
    return fields


def fields_of(job: SlurmJob, site: Site, options: SiteOptions, pools: list[str]) -> dict[str, Any]:
    """Fields of a job of an instance: what is said of a job or, where nothing is, its plain request.

    Parameters
    ----------
    pools : list of str
        Those of its partitions.

    Raises
    ------
    InputError
        With why it can have no option.
    """
    fields = said_of(job, options)
    if "options" not in fields and "model" not in fields:
        fields = {"options": _plain(job, site, options), "remaining_work": _plain_s(job), **fields}
    elif isinstance(own := fields.get("options"), str):
        if own not in options.tables:
            raise InputError([f"options: '{own}' is no table of the options file"])
        fields["options"] = options.tables[own]
    kinds = {node.gpu_type for node in site.nodes.values()}
    stated = fields.get("pools")
    if stated and (strange := [name for name in stated if name not in kinds]):
        raise InputError([f"pools: '{strange[0]}' is no GPU type of the cluster"])
    allowed = [pool for pool in pools if stated is None or gpu_type_of(pool) in stated]
    if not allowed:
        raise InputError(["none of its partitions has GPUs that it may use"])
    checked = validated(Job, {**fields, "pools": allowed, "name": str(job.id), "preemptible": True})
    return {**checked.model_dump(exclude_unset=True), "preemptible": fields.get("preemptible", True)}


def modelled(
    cluster: Mapping[str, Any], fields: Mapping[str, Any], profiles: Sequence[Profile]
) -> dict[str, list[Any]]:
    """Table of a job with a performance model.

    Raises
    ------
    InputError
        Where there is no such model, or it has no option on this cluster.
    """
    from wattsched.formulations.sizing.data import options_of
    from wattsched.formulations.sizing.jobs import jobs_of

    job = {**fields, "name": "job", "preemptible": True}
    known = jobs_of(validated(Instance, {"cluster": cluster, "jobs": [job], "profiles": profiles}))
    found = options_of(known)
    rows = np.flatnonzero(found.pool >= 0)
    if not len(rows):
        raise InputError([f"model: '{fields['model']}' has no option on the GPUs of this cluster"])
    table: dict[str, list[Any]] = {
        "gpus": found.gpus[rows].tolist(),
        "pool": [found.pools[pool].name for pool in found.pool[rows]],
        "power_w": found.power_w[rows].tolist(),
        "rate": found.rate[rows].tolist(),
    }
    for field, kind in (("frequency_mhz", int), ("power_limit_w", float), ("batch_size", int)):
        values = getattr(found, field)[rows]
        if not np.isnan(values).any():
            table[field] = [kind(value) for value in values]
    return table


def record_of(fields: Mapping[str, Any], job: SlurmJob, site: Site, held: Launch | None) -> dict[str, Any]:
    """A job as a session takes it, without what it holds.

    Parameters
    ----------
    fields : mapping
        Of `fields_of`, with a table.
    held : Launch, optional
        What a running job was released as; its clock and power limit cannot change while it runs.

    Raises
    ------
    InputError
        With why it can have no option.
    """
    record = {name: value for name, value in fields.items() if name not in _OF_MODELS}
    record["options"] = _possible(job, fields["options"], site, held)
    if held is not None:
        record = _after(record, job, held, max(0.0, site.time_s - job.start_s) if job.running else 0.0)
    record["preemptible"] = held is None or (record["preemptible"] and job.requeue)
    return record


def _plain(job: SlurmJob, site: Site, options: SiteOptions) -> OptionTable:
    """The one option of a job that says nothing: its GPUs, each at the most that its type draws."""
    gpus, wanted = job.request.gpus, job.request.gpu_type
    if not gpus:
        raise InputError(["asks for no GPUs with --gres, --gpus-per-node or --gpus"])
    kinds = sorted({node.gpu_type for node in site.nodes.values()})
    kinds = [kind for kind in kinds if wanted in ("", kind)]
    if not kinds:
        raise InputError([f"asks for GPUs of type '{wanted}', which no node has"])
    watts = [gpus * options.max_power_w(kind) for kind in kinds]
    return OptionTable(gpus=[gpus] * len(kinds), pool=kinds, power_w=watts, rate=[1.0] * len(kinds))


def _plain_s(job: SlurmJob) -> float:
    return job.limit_s if 0 < job.limit_s <= 1e12 else PLAIN_S


def _possible(job: SlurmJob, table: Mapping[str, Any], site: Site, held: Launch | None) -> dict[str, Any]:
    """Rows of a table that Slurm can do: one node's GPUs or whole nodes, a running job's clock."""
    columns = {name: column for name, column in table.items() if column is not None}
    sizes: dict[str, set[int]] = {}
    for node in site.nodes.values():
        sizes.setdefault(node.gpu_type, set()).add(node.gpus)
    kept = []
    for i, (gpus, pool) in enumerate(zip(columns.get("gpus", ()), columns.get("pool", ()), strict=True)):
        kind = gpu_type_of(pool)
        fits = any(
            gpus <= size or (gpus % size == 0 and gpus // size <= job.most_nodes)
            for size in sizes.get(kind, ())
        )
        wanted = job.request.gpu_type in ("", kind)
        here = held is not None and (gpus, kind) == (held.gpus, gpu_type_of(held.pool))
        kept += [i] * (fits and wanted and not here)
    rows = {name: [column[i] for i in kept] for name, column in columns.items()}
    if held is not None:
        return _with_own(rows, columns, held)
    if not kept:
        raise InputError(["has no option of one node's GPUs, or of as many whole nodes as -N allows"])
    return rows


def _with_own(rows: dict[str, Any], columns: Mapping[str, Any], held: Launch) -> dict[str, Any]:
    """Rows with the one that runs now as it was launched, at its speed in the table."""
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


def _after(record: dict[str, Any], job: SlurmJob, held: Launch, ran_s: float) -> dict[str, Any]:
    """What is left of a running job: its table's rate tells the work done; what stopping it would lose.

    Who states ``restart_s`` goes on from a checkpoint. All others would begin anew.
    """
    table, work = record["options"], record.get("remaining_work", 1.0)
    rate = table["rate"][-1] if "rate" in table else 1.0 / table["completion_s"][-1]
    return {"restart_s": ran_s, **record, "remaining_work": max(0.01 * work, work - rate * ran_s)}
