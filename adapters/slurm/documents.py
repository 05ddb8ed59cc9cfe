"""Read the JSON of Slurm's commands into one shape, for releases 21.08 to 26.05.

Since 23.02 numbers are objects that say whether they are set, states become lists, and ``sinfo`` tells of
groups of nodes instead of nodes. Such differences are known here and nowhere else. What else a document has
is not looked at; what it lacks is told with the release that printed it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from wattsched.adapters.parts import Part, at, listing
from wattsched.instances.errors import InputError, shown, validated
from wattsched.reading.inputs import UNKNOWN, echo
from wattsched.topology.exchange import expand


def _number(value: Any) -> Any:
    """A number that may be wrapped; what is not set, or unlimited, is None."""
    if isinstance(value, dict) and "number" in value:
        value = value["number"] if value.get("set", True) and not value.get("infinite") else None
    return None if isinstance(value, int | float) and value in UNKNOWN else value


def _words(value: Any) -> Any:
    """States in capitals, of a text or a list."""
    if isinstance(value, str):
        return [word for word in re.split(r"[+,\s]+", value.upper()) if word]
    return [str(word).upper() for word in value] if isinstance(value, list) else value


def _text(value: Any) -> Any:
    """A text, empty for null."""
    return "" if value is None else value


def _comment(value: Any) -> str:
    """A comment; of one that is an object what its user or an administrator says."""
    if isinstance(value, dict):
        value = value.get("job") or value.get("administrator")
    return value if isinstance(value, str) else ""


def names_in(value: Any) -> list[str]:
    """Names of a list, or of a host list expression."""
    if isinstance(value, list):
        return [str(name) for name in value]
    return expand(value) if isinstance(value, str) and value not in ("", "(null)", "None assigned") else []


def _between_commas(value: Any) -> list[str]:
    found = value if isinstance(value, list) else str(value or "").split(",")
    return [str(name).strip() for name in found if str(name).strip()]


def _cell(value: Any) -> str:
    """A value as tables have it: a number, a text, resources as in ``gres/gpu=4``; empty if it is not set."""
    value = _number(value)
    if isinstance(value, list):
        return ",".join(map(_cell, value))
    if isinstance(value, dict) and "type" in value:
        name, count = (_cell(value.get(key)) for key in ("name", "count"))
        return f"{_cell(value['type'])}{'/' * bool(name)}{name}={count or min(UNKNOWN)}"
    if isinstance(value, dict | bool):
        raise ValueError(f"must be a text or a number, got {shown(value)}")
    return "" if value is None else f"{value:.16g}" if isinstance(value, float) else str(value)


Number = Annotated[float | None, BeforeValidator(_number)]
Whole = Annotated[int | None, BeforeValidator(_number)]
Words = Annotated[list[str], BeforeValidator(_words)]
Text = Annotated[str, BeforeValidator(_text)]
Comment = Annotated[str, BeforeValidator(_comment)]
Names = Annotated[list[str], BeforeValidator(names_in)]
Cell = Annotated[str, BeforeValidator(_cell)]
Listed = Annotated[list[str], BeforeValidator(_between_commas)]


class NodeRow(Part):
    """A node."""

    name: str
    state: Words
    gres: Text
    partitions: Listed
    state_flags: Words = []
    gres_used: Text = ""
    cpus: Number = None
    alloc_cpus: Number = None
    real_memory: Number = None
    alloc_memory: Number = None
    active_features: Listed = []


class _Group(Part):
    """Nodes of a partition that are alike, as ``sinfo --json`` has them since 23.02."""

    names: Annotated[Names, at("nodes", "nodes")]
    state: Annotated[Words, at("node", "state")]
    gres: Annotated[Text, at("gres", "total")]
    gres_used: Annotated[Text, at("gres", "used")] = ""
    partitions: Annotated[Listed, at("partition", "name")]
    cpus: Annotated[Number, at("cpus", "total")] = None
    cpus_each: Annotated[Number, at("cpus", "maximum")] = None
    alloc_cpus: Annotated[Number, at("cpus", "allocated")] = None
    real_memory: Annotated[Number, at("memory", "maximum")] = None
    alloc_memory: Annotated[Number, at("memory", "allocated")] = None
    active_features: Annotated[Listed, at("features", "active")] = []

    def rows(self) -> Iterable[NodeRow]:
        """Its nodes, each with its part of what is allocated."""
        number = max(1, len(self.names))
        parts = {name: (getattr(self, name) or 0) / number for name in ("alloc_cpus", "alloc_memory")}
        alike = {**vars(self), **parts, "cpus": self.cpus_each or (self.cpus or 0) / number}
        return (NodeRow.model_validate({**alike, "name": name}) for name in self.names)


class NumberedRow(Part):
    """Number and state of a job: a row of ``squeue --json`` without them is no job."""

    job_id: int
    job_state: Words


class QueuedRow(NumberedRow):
    """A job of ``squeue --json``; without the fields that have no default nothing can be decided on it."""

    partition: Text
    comment: Comment
    admin_comment: Comment
    nodes: Names
    gres_detail: list[str] | None
    tres_per_node: Text
    priority: Whole
    state_reason: Text
    restart_cnt: Whole
    name: Text = ""
    user_name: Text = ""
    account: Text = ""
    qos: Text = ""
    required_nodes: Names = []
    excluded_nodes: Names = []
    tres_per_job: Text = ""
    node_count: Whole = 1
    max_nodes: Whole = 0
    features: Text = ""
    cpus: Number = None
    minimum_cpus_per_node: Number = None
    memory_per_node: Number = None
    memory_per_cpu: Number = None
    memory_per_tres: Text = ""
    cpus_per_tres: Text = ""
    shared: Words | None = None
    time_limit: Whole = None
    start_time: Whole = 0
    suspend_time: Whole = 0
    pre_sus_time: Whole = 0
    submit_time: Whole = 0
    eligible_time: Whole = 0
    requeue: bool = False
    batch_flag: bool = True
    array_task_string: Text = ""
    het_job_id: Whole = 0
    resv_name: Text = ""
    dependency: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _limited_by_its_user(cls, row: Any) -> Any:
        """Take a limit of as many nodes as tasks for none: newer releases tell it without -N, 22.05 0."""
        limit = row.get("max_nodes") if isinstance(row, dict) else None
        return {**row, "max_nodes": 0} if isinstance(limit, dict) and limit == row.get("tasks") else row


class QueuedRows(Part):
    """Output of ``squeue --json``: its jobs are read one by one, each a `QueuedRow`."""

    jobs: list[Any]
    meta: Any = None


class AccountedStep(Part):
    """A step of a job of ``sacct --json``, with its fields as the columns of a table."""

    id: Annotated[Any, at("step", "id")] = None
    ConsumedEnergyRaw: Annotated[Cell, at("statistics", "energy", "consumed")] = ""
    Start: Annotated[Cell, at("time", "start")] = ""
    ElapsedRaw: Annotated[Cell, at("time", "elapsed")] = ""
    NodeList: Annotated[Cell, at("nodes", "range")] = ""


class AccountedRow(Part):
    """A job of ``sacct --json``, with its fields as the columns of a table."""

    job_id: int
    array_job: Annotated[Whole, at("array", "job_id")] = 0
    array_task: Annotated[Whole, at("array", "task_id")] = None
    array_tasks: Annotated[Text, at("array", "task")] = ""
    het_job: Annotated[Whole, at("het", "job_id")] = 0
    het_offset: Annotated[Whole, at("het", "job_offset")] = None
    State: Annotated[Cell, at("state", "current")]
    Submit: Annotated[Cell, at("time", "submission")]
    Eligible: Annotated[Cell, at("time", "eligible")] = ""
    Start: Annotated[Cell, at("time", "start")]
    End: Annotated[Cell, at("time", "end")] = ""
    ElapsedRaw: Annotated[Cell, at("time", "elapsed")]
    SuspendedRaw: Annotated[Cell, at("time", "suspended")] = ""
    TimelimitRaw: Annotated[Cell, at("time", "limit")] = ""
    AllocTRES: Annotated[Cell, at("tres", "allocated")]
    ReqTRES: Annotated[Cell, at("tres", "requested")] = ""
    Cluster: Annotated[Cell, at("cluster")] = ""
    User: Annotated[Cell, at("user")] = ""
    Account: Annotated[Cell, at("account")] = ""
    JobName: Annotated[Cell, at("name")] = ""
    NodeList: Annotated[Cell, at("nodes")] = ""
    Restarts: Annotated[Cell, at("restart_cnt")] = ""
    steps: list[AccountedStep] = []

    @property
    def name(self) -> str:
        """Number as tables have it: of an array with its tasks, of a part of a job with its place."""
        if self.array_job and self.array_task is not None:
            return f"{self.array_job}_{self.array_task}"
        if self.array_job and self.array_tasks:
            return f"{self.array_job}_[{self.array_tasks}]"
        if self.het_job and self.het_offset is not None:
            return f"{self.het_job}+{self.het_offset}"
        return str(self.job_id)


def document_in(model: Any, command: str, text: str) -> Any:
    """Read what a command prints as JSON, as a `model` that is a `Part`."""
    return part_of(model, _parsed(command, text), command)


def node_rows(text: str) -> list[NodeRow]:
    """Nodes of ``scontrol show node --json``, or of ``sinfo --json`` of any release."""
    command = "sinfo --json"
    document = _parsed(command, text)
    if not isinstance(document, dict) or "sinfo" not in document:
        command = f"{command} or scontrol show node --json"
        return list(part_of(listing("nodes", NodeRow), document, command).nodes)
    found = dict[str, NodeRow]()
    for group in part_of(listing("sinfo", _Group), document, command).sinfo:
        for row in group.rows():
            # A node has a row for each of its partitions.
            known = found.setdefault(row.name, row)
            known.partitions += [name for name in row.partitions if name not in known.partitions]
    return list(found.values())


def _parsed(command: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError([f"{command}: no JSON: {echo(error, quote='', most=200)}"]) from None


def part_of(model: Any, document: Any, source: str, meta: Any = None) -> Any:
    """Read a document as a `model`, or a part of one whose ``meta`` is given: faults name its release."""
    try:
        return validated(model, document)
    except InputError as error:
        meta = document.get("meta") if meta is None and isinstance(document, dict) else meta
        release = _release_in(meta)
        text = f" (Slurm {release})" if release else ""
        raise InputError([f"{fault}{text}" for fault in error.faults], source) from None


def _release_in(meta: Any) -> str:
    """Release that printed a document; empty where its ``meta`` does not say."""
    # 21.08 to 23.02 write it with a capital.
    slurm = (meta.get("slurm") or meta.get("Slurm")) if isinstance(meta, dict) else None
    if not isinstance(slurm, dict):
        return ""
    version = slurm.get("version")
    parts = [version.get(part) for part in ("major", "minor", "micro")] if isinstance(version, dict) else []
    return echo(slurm.get("release") or ".".join(map(str, parts)), quote="", most=40)
