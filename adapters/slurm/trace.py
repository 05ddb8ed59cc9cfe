"""A trace of the jobs that Slurm has accounted for, and the cluster that they ran on."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from math import inf
from typing import Literal

import numpy as np

from wattsched.adapters.recorded import Machine, Recorded, cluster_of, counted
from wattsched.adapters.slurm.accounted import STILL_RUN, WAITING, Accounted, doubts, latest
from wattsched.adapters.slurm.accounting import FIELDS, are_dashes, read_accounting, separator_in
from wattsched.adapters.slurm.inventory import SlurmNode, nodes_in, switches_in
from wattsched.adapters.slurm.snapshot import SlurmError, ask
from wattsched.instances.errors import InputError
from wattsched.instances.gpu_names import common_name
from wattsched.instances.gpu_parts import has_parts, host_of, part_named
from wattsched.instances.traces import TraceJob
from wattsched.reading.inputs import echo, listed
from wattsched.reading.tables import CUT
from wattsched.report.imports import Entry
from wattsched.report.wording import count
from wattsched.topology.arrays import BoolArray
from wattsched.topology.exchange import logical_lines
from wattsched.topology.fields import shortened

ACCOUNTING, NODES, TOPOLOGY = "accounting", "nodes", "topology"
_OF_DOCUMENTS = {
    "jobs": (ACCOUNTING, {"time", "state", "tres"}),
    "nodes": (NODES, {"state", "gres"}),
    "sinfo": (NODES, {"node", "nodes"}),
}
"""Key of a document's rows -> what they tell, and fields of theirs that other documents do not have."""
MOST_W = 5_000.0
"""Energy that means more watts than this of each GPU, with its part of the server, is no measurement."""
LONGEST_S = 600.0
"""Seconds that the accounting may take to answer."""
SUMMED = ("assumed", "energy of a job's row counts no node twice: no row of a step tells its energy")

EnergyOf = Literal["nodes", "gpus"]


@dataclass
class Said:
    """Texts of Slurm's commands, by what they tell: jobs, nodes and switches.

    Attributes
    ----------
    files : dict of str to str
        Text to the file that it is of, for messages.
    """

    accounting: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    topology: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def add(self, text: str, file: str = "") -> None:
        """Take a text for what it is; a ValueError for none of the commands. Messages name its `file`."""
        getattr(self, kind_of(text)).append(text)
        self.files[text] = file

    @contextmanager
    def naming(self, text: str) -> Iterator[None]:
        """Name the file of a text in an `InputError` that is raised within."""
        try:
            yield
        except InputError as error:
            file = self.files.get(text)
            raise InputError(error.faults, file or error.source) from None


def kind_of(text: str) -> str:
    """Return what a text tells, by the command that printed it."""
    begin = text.lstrip()
    if begin.startswith("{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is no JSON: {echo(error, quote='', most=200)}") from None
        for key, (kind, own) in _OF_DOCUMENTS.items():
            rows = document.get(key)
            if isinstance(rows, list) and all(isinstance(row, dict) and own & row.keys() for row in rows):
                return kind
        rows = document.get("jobs")
        if isinstance(rows, list) and any(isinstance(row, dict) and "job_state" in row for row in rows):
            raise ValueError("is of squeue --json, which tells no run as a whole; give sacct --json")
        known = "'jobs' of sacct --json nor nodes of scontrol show node --json or sinfo --json"
        raise ValueError(f"has neither {known}")
    first = next((line for _, line in logical_lines(text)), "")
    if re.match("SwitchName=", first, re.IGNORECASE):
        return TOPOLOGY
    if first.startswith("NodeName="):
        return NODES
    if separator_in(begin) or any(map(are_dashes, begin.splitlines()[1:2])):
        return ACCOUNTING
    known = "sacct --parsable2 or --json, scontrol show node, sinfo --json or scontrol show topology"
    message = f"it begins with {echo(begin.splitlines()[0])}" if begin else "it is empty"
    if sign := re.search(r"\bJobID(?:Raw)?([,;\t])|^[0-9_]+([,;\t])", first):
        message += f", with {echo(sign[1] or sign[2])} between fields; --delimiter changes it"
    raise ValueError(f"is not what {known} prints: {message}")


def ask_slurm(since: str, until: str) -> Said:
    """Ask this machine's Slurm for jobs of a time, as ``sacct`` takes it: ``2026-11-01``, ``now-7days``."""
    period = (f"--starttime={since}", f"--endtime={until}")
    jobs = ask(
        *("sacct", "--allusers", "--duplicates", "--parsable2", f"--format={','.join(FIELDS)}", *period),
        timeout_s=LONGEST_S,
        environment={"SLURM_TIME_FORMAT": "%s"},
    )
    nodes = ask("scontrol", "--oneliner", "show", "node")
    try:
        topology = [ask("scontrol", "--oneliner", "show", "topology")]
    except SlurmError:  # without a plugin for it
        topology = []
    return Said([jobs], [nodes], topology)


def recorded(
    said: Said,
    zone: tzinfo | None = None,
    stand_ins: Mapping[str, str] | None = None,
    energy_of: EnergyOf = "nodes",
) -> Recorded:
    """Trace and cluster of what Slurm said.

    Parameters
    ----------
    zone : tzinfo, optional
        Of times that tell none (default: this machine's).
    stand_ins : mapping of str to str, optional
        GPU type to the known one that counts instead.
    energy_of : {"nodes", "gpus"}
        What Slurm's energy is of. Of whole nodes, the servers' part is taken off.

    Raises
    ------
    InputError, ValueError
        For what cannot be read, and stand-ins that are not known.
    """
    if not said.accounting:
        raise InputError(["no file tells jobs: give what 'sacct --parsable2' or 'sacct --json' prints"])
    found = Recorded()
    for text in said.accounting:
        if not text.endswith("\n") and not text.lstrip().startswith("{"):
            found.entries.append(Entry.told(f"{said.files.get(text) or 'sacct'}: {CUT}"))
    nodes = dict[str, SlurmNode]()
    for text in said.nodes:
        with said.naming(text):
            for name, node in nodes_in(text).items():
                known = nodes.setdefault(name, node)
                if (known.gpu_type, known.gpus) != (node.gpu_type, node.gpus):
                    told = f"{node.gpus} {node.gpu_type}, in another file {known.gpus} {known.gpu_type}"
                    raise InputError([f"node {echo(name)} has {told}; name one of these files"])
    jobs = list[Accounted]()
    for text in said.accounting:
        with said.naming(text):
            jobs += read_accounting(text, zone)
    if any(re.search(r"\bgpu(:[^:,\s]+)?:no_consume:", text) for text in said.nodes):
        found.tell("doubtful", "GPUs that no job consumes (no_consume): each counts as one, jobs share them")
    jobs = _apart(jobs, found)
    if nodes:
        lines = (line for text in said.topology for _, line in logical_lines(text))
        switches, above = switches_in("\n".join(lines), nodes)
        machines = [Machine(one.name, one.kinds, above.get(one.name)) for one in nodes.values()]
        found.machines = machines
        found.cluster = cluster_of(machines, "slurm", found.entries, switches=switches, stand_ins=stand_ins)
        if closed := sum(not node.takes_jobs for node in nodes.values()):
            found.tell("noted", f"down or drained now, but in the cluster: {count(closed, 'node')}")
    elif said.nodes:
        raise InputError(["no node has GPUs"])
    if zone is None and any(job.local for job in jobs):
        own = datetime.now().astimezone().tzname()
        found.tell("assumed", f"times without a zone are this machine's, {own}; --time-zone names another")
    runs = latest(jobs)
    found.entries += doubts(runs)
    _take(found, runs, nodes, energy_of)
    return found


def _apart(jobs: list[Accounted], found: Recorded) -> list[Accounted]:
    """Name jobs of several clusters by these, those of one number and several users by these; and say so."""
    if len(clusters := sorted({job.cluster for job in jobs} - {""})) > 1:
        found.tell("doubtful", f"jobs of the clusters {listed(clusters)} count together")
        return [replace(job, id=f"{job.cluster}/{job.id}".lstrip("/")) for job in jobs]
    users = defaultdict[str, set[str]](set)
    for job in jobs:
        users[job.id] |= {job.user} - {""}
    if shared := {id for id, names in users.items() if len(names) > 1}:
        told = "of several users, as with several clusters and no column Cluster"
        found.tell("doubtful", f"{count(len(shared), 'job number')} {told}")
    return [replace(job, id=f"{job.user}/{job.id}".lstrip("/")) if job.id in shared else job for job in jobs]


def _take(
    found: Recorded, jobs: Sequence[Accounted], nodes: Mapping[str, SlurmNode], energy_of: EnergyOf
) -> None:
    """Put jobs into the trace, or count why not."""
    strange, others, unused, foreign = (Counter[str]() for _ in range(4))
    types, machines = (found.cluster.gpu_types, found.cluster.nodes) if found.cluster else ({}, [])
    server_w, idle_w = defaultdict[str, float](float), defaultdict[str, float](float)
    for one in machines:  # of which several stand for a node with several types
        name = host_of(one.name)
        server_w[name] += one.base_power_w if energy_of == "nodes" else 0.0
        idle_w[name] += one.gpus * types[one.gpu_type].idle_power_w
    alone = _alone(jobs)
    there = {kind.lower(): kind for node in nodes.values() for kind in node.kinds}
    told = defaultdict[tuple[str, str], list[TraceJob]](list)
    for job, undisturbed in zip(jobs, alone, strict=True):
        others.update(job.other_gres)
        if reason := _why_not(job):
            found.leave_out(reason, job.gpus or 0, job.held_s, _gpu_type(job, nodes, there), job.tasks)
            continue
        absent = [name for name in job.gpu_types if name and there and name.lower() not in there]
        if cut := [name for name in absent if part_named(name).kind]:
            found.leave_out(f"on slices {echo(cut[0])}, which no node has", job.gpus or 0, job.held_s, cut[0])
            continue
        strange.update(absent)
        foreign.update(name for name in dict.fromkeys(job.nodes) if nodes and name not in nodes)
        power_w = None
        if job.partly_measured and job.energy_j is None:
            unused["is of steps that do not cover its nodes and time"] += 1
        if job.energy_j is not None:
            names = [shortened(name) for name in job.nodes]
            power_w = job.energy_j / job.held_s - sum(server_w[name] for name in names)
            least_w = sum(idle_w[name] for name in names)
            spoilt = "is that of shared nodes" if nodes and not undisturbed else ""
            spoilt = "is of the whole of runs that may be cut" if job.start_cut or job.end_cut else spoilt
            if why := spoilt or _why_not_its_own(job, power_w, least_w, nodes):
                power_w = None
                unused[why] += 1
        found.add(
            TraceJob(
                name=job.id,
                submitted_s=(job.start_s if job.start_cut else None) or job.eligible_s,
                duration_s=job.held_s,
                gpus=job.gpus or 0,
                gpu_type=_gpu_type(job, nodes, there),
                power_w=power_w,
                user=job.user,
                account=job.account,
                time_limit_s=job.time_limit_s,
                job_name=job.job_name,
            ),
            job.state.lower() or "unknown",
            None if job.start_cut else (job.start_s or job.eligible_s) - job.eligible_s,
            job.nodes,
        )
        summed = [SUMMED] if power_w is not None and not job.steps else []
        for remark in [*job.remarks, *summed]:
            told[remark].append(found.jobs[-1])
    found.entries += [Entry.of(*alike, those) for alike, those in told.items()]
    if not found.jobs:
        text = "sacct tells of no job; without --starttime it tells of today's alone"
        text = counted(found.left_out) or text
        raise InputError([f"no job has used a GPU: {text}"])
    if strange:
        text = ", ".join(f"{echo(name)}, which {count(n, 'job')} used" for name, n in strange.most_common(4))
        found.tell("noted", f"no node has GPUs of type {text}; nodes have {listed(there.values())}")
    found.tell_foreign(foreign, "job")
    if others:
        text = ", ".join(f"{echo(name)} of {count(n, 'job')}" for name, n in others.most_common(4))
        found.tell("noted", f"not counted as GPUs: {text}")
    found.note_gaps(state.lower() for state in STILL_RUN)
    for why, n in unused.items():
        found.tell("noted", f"energy of {count(n, 'job')} {why}; it is left out")
    if measured := [job for job in found.jobs if job.power_w is not None]:
        of = "whole nodes, less the watts of servers (else: --energy-of gpus)"
        of = of if energy_of == "nodes" else "GPUs alone"
        found.entries.append(Entry.of("assumed", f"measured energy is that of {of}", measured))
    elif not unused:
        found.tell("noted", "Slurm has measured no energy; jobs have no watts")


def _why_not(job: Accounted) -> str:
    """Return why a job is not in the trace; empty where it is."""
    if job.gpus == 0:
        return "without GPUs"
    if job.state in WAITING:
        return "still waiting"
    if job.start_s is None or (not job.elapsed_s and not job.nodes):
        return "never started"
    if job.gpus is None:
        return "with an unknown number of GPUs"
    if len(job.gpu_types) > 1 and has_parts(job.gpu_types):
        told = "gres/gpu:TYPE in AccountingStorageTRES tells them"
        return f"on slices beside GPUs of another board or no type ({told})"
    return "" if job.held_s > 0 else "ended at once"


def _alone(jobs: Sequence[Accounted]) -> BoolArray:
    """Return of which jobs no other, with or without GPUs, was on one of their nodes at the same time."""
    alone, on = np.ones(len(jobs), dtype=bool), defaultdict[str, list[int]](list)
    for j, job in enumerate(jobs):
        for name in job.nodes if job.start_s is not None and job.held_s > 0 else ():
            on[name].append(j)
    for held in on.values():  # in the order of their starts
        begin_s, held_s = np.array([(jobs[j].start_s, jobs[j].held_s) for j in held]).T
        end_s = begin_s + held_s
        alone[np.array(held)[:-1][begin_s[1:] < end_s[:-1]]] = False
        alone[np.array(held)[1:][begin_s[1:] < np.maximum.accumulate(end_s)[:-1]]] = False
    return alone


def _why_not_its_own(job: Accounted, power_w: float, least_w: float, nodes: Mapping[str, SlurmNode]) -> str:
    """Return why `power_w`, by the energy of its nodes, is not a job's own; empty if it held all GPUs."""
    if not nodes:
        return "may be that of shared nodes, which a file of nodes would tell"
    if not job.nodes or sum(nodes[n].gpus if n in nodes else inf for n in job.nodes) > (job.gpus or 0):
        return "is that of nodes of which they held only some GPUs"
    if power_w < least_w:
        return "means less than its nodes draw when idle"
    return "means more than any GPUs draw" if power_w > MOST_W * (job.gpus or 0) else ""


def _gpu_type(job: Accounted, nodes: Mapping[str, SlurmNode], known: Mapping[str, str]) -> str | None:
    """GPU type of a job as nodes have it; `known` has it by the accounting's name, in small letters."""
    if not nodes:
        return common_name(next(iter(job.gpu_types))) if len(job.gpu_types) == 1 else None
    kinds = {known[kind.lower()] for kind in job.gpu_types if kind.lower() in known}
    if not kinds or "" in job.gpu_types:
        if not nodes.keys() >= set(job.nodes):
            return None
        kinds |= {kind for name in job.nodes for kind in nodes[name].kinds}
    return next(iter(kinds)) if len(kinds) == 1 else None
