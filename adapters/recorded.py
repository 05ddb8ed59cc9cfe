"""Records of a cluster by its scheduler: a trace of its jobs, and the cluster they ran on."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from wattsched.instances.clusters import server_power_w
from wattsched.instances.errors import validated
from wattsched.instances.gpu_names import gpu_type_named, recognised_gpu_type
from wattsched.instances.gpu_parts import SEVERAL, boards_of, has_parts, part_named, unused_idle_w
from wattsched.instances.traces import TraceJob
from wattsched.reading.inputs import echo
from wattsched.report.imports import BEYOND, Entry, gpu_hours, overfull
from wattsched.report.wording import count, duration, number
from wattsched.topology.cluster import Cluster
from wattsched.topology.fields import LONGEST_NAME, shortened


@dataclass(frozen=True)
class Machine:
    """A node as a scheduler has it, with its GPUs by type."""

    name: str
    kinds: dict[str, int]
    parent: str | None = None


@dataclass
class Recorded:
    """A trace and a cluster, and what is to be said of them.

    Attributes
    ----------
    jobs : list of TraceJob
        Times are seconds since 1970.
    cut : int
        Jobs of which a name was longer than files take it.
    machines : list of Machine
        Its nodes; empty where nothing told them.
    cluster : Cluster, optional
        Of these nodes.
    ended : Counter
        How the jobs ended, by the scheduler's word.
    left_out : Counter
        Jobs that are not in the trace, by reason.
    gpu_h : dict of str to float
        GPU hours, by how jobs ended, or by the reason why they are left out.
    entries : list of Entry
        What neither the scheduler nor a measurement told, and what else is worth knowing.
    """

    jobs: list[TraceJob] = field(default_factory=list)
    cut: int = 0
    machines: list[Machine] = field(default_factory=list)
    cluster: Cluster | None = None
    ended: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    gpu_h: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    entries: list[Entry] = field(default_factory=list)
    # Runs so far of each job, by its name; names of the nodes of each of `jobs`.
    _runs: Counter[str] = field(default_factory=Counter)
    _nodes: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, job: TraceJob, state: str, waited_s: float | None, nodes: tuple[str, ...] = ()) -> None:
        """Put a run of a job into the trace, numbered, with names as long as files take them.

        It ended as `state` says, after it had waited for `waited_s` seconds, if known, and was on `nodes`.
        """
        self.ended[state] += 1
        self._runs[job.name] += 1
        run = self._runs[job.name]
        kind = None if job.gpu_type is None else shortened(job.gpu_type)
        numbered = job.name if run == 1 else f"{job.name}#{run}"
        name, user, account = map(shortened, (numbered, job.user, job.account))
        job = replace(job, waited_s=None if waited_s is None else max(0.0, waited_s))
        kept = replace(job, name=name, user=user, account=account, gpu_type=kind)
        self.cut += kept != replace(job, name=numbered)
        self.jobs.append(kept)
        self._nodes.append(nodes)
        self.gpu_h[state] += gpu_hours([kept])

    def leave_out(
        self, reason: str, gpus: int, duration_s: float, gpu_type: str | None = None, jobs: int = 1
    ) -> None:
        """Count jobs that are not in the trace, and the GPU hours that they held, where known."""
        self.left_out[reason] += jobs
        held_s = max(0.0, duration_s) if math.isfinite(duration_s) else 0.0
        self.gpu_h[reason] += gpu_hours([TraceJob(reason, 0.0, held_s, gpus, gpu_type=gpu_type)])

    def tell(self, treatment: str, what: str) -> None:
        """Put into the table, once, what is assumed or noted."""
        if (entry := Entry(treatment, what)) not in self.entries:
            self.entries.append(entry)

    def tell_foreign(self, nodes: Counter[str], record: str) -> None:
        """Point at nodes that the cluster lacks, each with the number of records on it, if there are any."""
        told = [f"{echo(name)} of {count(n, record)}" for name, n in nodes.most_common(4)]
        told += [f"{len(nodes) - 4:,} others"] if len(nodes) > 4 else []
        if told:
            self.tell("doubtful", f"on nodes that no file tells, and the cluster lacks: {', '.join(told)}")

    def note_gaps(self, running: Iterable[str], how: str = "what they have run is all of it") -> None:
        """Say how many jobs still run, in such states, and of how many the GPU type is not clear."""
        states = [state for state in running if state in self.ended]
        if jobs := sum(self.ended[state] for state in states):
            hours = sum(self.gpu_h[state] for state in states)
            self.entries.append(Entry("assumed", f"still running: {how}", jobs, hours))
        if vague := [job for job in self.jobs if job.gpu_type is None]:
            kinds = {job.gpu_type or "" for job in self.jobs}.union(*(one.kinds for one in self.machines))
            cut = has_parts(kinds)
            told = ", and whole GPUs, though there are slices" if cut else ""
            how = "doubtful" if cut else "assumed"
            self.entries.append(Entry.of(how, f"GPU type not clear: left empty{told}", vague))

    def lines(self) -> list[str]:
        """Return lines that say how many jobs, users and nodes there are, and how long jobs took."""
        users, accounts = ({getattr(job, of) for job in self.jobs} - {""} for of in ("user", "account"))
        whose = [count(len(names), one) for names, one in ((users, "user"), (accounts, "account")) if names]
        of = f" of {' and '.join(whose)}" if whose else ""
        lines = [f"{count(len(self.jobs), 'job')}{of}, {number(gpu_hours(self.jobs))} GPU h"]
        told = "no nodes were told, and so there is no cluster"
        told = _size_told(self.machines) if self.machines else told
        known = [(job.waited_s, job.duration_s) for job in self.jobs if job.waited_s is not None]
        if not known:
            return [*lines, told]
        wait_s, run_s = (fmean(seconds) for seconds in zip(*known, strict=True))
        return [*lines, told, f"mean wait {duration(wait_s)}, mean completion {duration(wait_s + run_s)}"]

    def table(self) -> list[Entry]:
        """Return what was read, converted, left out and assumed, and what cannot be right."""
        rows = [Entry("read", state, n, self.gpu_h[state]) for state, n in self.ended.most_common()]
        if measured := [job for job in self.jobs if job.power_w is not None]:
            rows.append(Entry.of("converted", "measured energy to the mean watts of GPUs", measured))
        if self.cut:
            rows.append(Entry("converted", f"names cut to {LONGEST_NAME} characters, or escaped", self.cut))
        rows += [Entry("left out", why, n, self.gpu_h.get(why)) for why, n in self.left_out.most_common()]
        rows += sorted(self.entries, key=lambda one: (one.treatment == "doubtful", one.treatment))
        if hot := [job for job in measured if (job.power_w or 0.0) > BEYOND * _most_w(job)]:
            rows.append(Entry.of("doubtful", "measured energy means more watts than their boards draw", hot))
        if self.cluster is not None:
            rows += overfull(self.jobs, self.cluster, datetime.fromtimestamp(0, UTC), self._nodes)
        return rows


def _most_w(job: TraceJob) -> float:
    """Watts that a job's GPUs can draw at most; infinite where their type does not tell it."""
    kind = recognised_gpu_type(job.gpu_type or "")
    return math.inf if kind is None or kind.max_power_w is None else job.gpus * kind.max_power_w


def _size_told(machines: Sequence[Machine]) -> str:
    """Say how many nodes, whole GPUs, and slices of how many boards there are."""
    parts = [{kind: n for kind, n in one.kinds.items() if part_named(kind).kind} for one in machines]
    slices = sum(sum(counts.values()) for counts in parts)
    boards = sum(sum(boards_of(counts).values()) for counts in parts)
    whole = sum(sum(one.kinds.values()) for one in machines) - slices
    told = [count(whole, "GPU")] if whole or not slices else []
    told += [f"{count(slices, 'slice')} of {count(boards, 'board')}"] if slices else []
    return f"{count(len(machines), 'node')} with {' and '.join(told)}"


def counted(counts: Counter[str]) -> str:
    """Counts in words, the largest first."""
    return ", ".join(f"{n:,} {what}" for what, n in counts.most_common())


def cluster_of(
    machines: Iterable[Machine],
    name: str,
    entries: list[Entry],
    *,
    switches: Mapping[str, str | None] | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> Cluster:
    """Cluster of some nodes.

    Of a node with GPUs of several types there is one for each, below a group of its name; the first has the
    watts of the server.

    Parameters
    ----------
    entries : list of Entry
        Takes what is assumed of its watts.
    switches : mapping of str to str or None, optional
        Switch to the one above it; those without nodes below are left out.
    stand_ins : mapping of str to str, optional
        GPU type to the known one that counts instead.
    """
    machines, switches, stand_ins = list(machines), switches or {}, stand_ins or {}
    kinds = sorted({kind for machine in machines for kind in machine.kinds})
    for kind in stand_ins:
        if kind not in kinds:
            raise ValueError(f"stand_ins: no node has GPUs of type '{kind}', there are {', '.join(kinds)}")
    known = {}
    for kind in kinds:
        known[kind], text = gpu_type_named(kind, stand_ins.get(kind))
        if text:
            entries.append(Entry("assumed", f"GPU type '{kind}' {text}"))
    servers = {SEVERAL.join(f"{n} {of}" for of, n in one.kinds.items()): one.kinds for one in machines}
    for of, own in sorted(servers.items()):
        entries.append(Entry("assumed", f"a node of {of} without its GPUs draws {server_power_w(own):g} W"))
    if unused_w := sum(unused_idle_w(one.kinds, known) for one in machines):
        told = f"what no slice has of its board idles, at {unused_w:.4g} W in all, with its server"
        entries.append(Entry("assumed", told))
    used = set[str]()  # switches with nodes below
    for machine in machines:
        above = machine.parent
        while above is not None and above not in used:
            used.add(above)
            above = switches.get(above)
    groups = [
        {"name": shortened(switch), "level": "switch"} | _below(parent)
        for switch, parent in switches.items()
        if switch in used
    ]
    nodes = list[dict[str, Any]]()
    for one in machines:
        base_w, several = server_power_w(one.kinds) + unused_idle_w(one.kinds, known), len(one.kinds) > 1
        groups += [{"name": shortened(one.name), "level": "host"} | _below(one.parent)] if several else []
        for kind, gpus in one.kinds.items():
            called, above = (f"{one.name}/{kind}", one.name) if several else (one.name, one.parent)
            row = {"name": shortened(called), "gpu_type": shortened(kind), "gpus": gpus}
            nodes.append(row | {"base_power_w": base_w} | _below(above))
            base_w = 0.0
    types = {shortened(kind): found.model_dump(exclude_unset=True) for kind, found in known.items()}
    return validated(Cluster, {"name": name, "gpu_types": types, "nodes": nodes, "groups": groups})


def _below(parent: str | None) -> dict[str, str]:
    return {} if parent is None else {"parent": shortened(parent)}
