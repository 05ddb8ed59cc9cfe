"""Records of a cluster by its scheduler: a trace of its jobs, and the cluster they ran on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from wattsched.instances.clusters import server_power_w
from wattsched.instances.errors import validated
from wattsched.instances.gpu_names import common_name, gpu_type_named
from wattsched.instances.traces import TraceJob
from wattsched.report.wording import count, duration
from wattsched.topology.cluster import Cluster
from wattsched.topology.fields import LONGEST_NAME, shortened

MOST_NOTES = 8


@dataclass(frozen=True)
class Machine:
    """A node as a scheduler has it, with GPUs of one type."""

    name: str
    gpu_type: str
    gpus: int
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
    waited_s : list of float
        From the arrival of each to its start.
    cluster : Cluster, optional
        None where nothing told its nodes.
    ended : Counter
        How the jobs ended, by the scheduler's word.
    left_out : Counter
        Jobs that are not in the trace, by reason.
    assumed : list of str
        What neither the scheduler nor a measurement told.
    notes : list of str
        What else is worth knowing.
    """

    jobs: list[TraceJob] = field(default_factory=list)
    cut: int = 0
    waited_s: list[float] = field(default_factory=list)
    cluster: Cluster | None = None
    ended: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _runs: Counter[str] = field(default_factory=Counter)

    def add(self, job: TraceJob, state: str, waited_s: float) -> None:
        """Put a run of a job into the trace, numbered, with names as long as files take them."""
        self.ended[state] += 1
        self.waited_s.append(max(0.0, waited_s))
        self._runs[job.name] += 1
        run = self._runs[job.name]
        kind = None if job.gpu_type is None else shortened(job.gpu_type)
        numbered = job.name if run == 1 else f"{job.name}#{run}"
        name, user, account = map(shortened, (numbered, job.user, job.account))
        kept = replace(job, name=name, user=user, account=account, gpu_type=kind, waited_s=self.waited_s[-1])
        self.cut += kept != replace(job, name=numbered, waited_s=kept.waited_s)
        self.jobs.append(kept)

    def note_gaps(self, running: int) -> None:
        """Say how many jobs still run, and of how many the GPU type is not clear."""
        if running:
            self.assumed.append(f"{count(running, 'job')} still running: what it has run is all of it")
        if vague := sum(job.gpu_type is None for job in self.jobs):
            self.notes.append(f"of {count(vague, 'job')} the GPU type is not clear; it is left empty")

    def lines(self) -> list[str]:
        """Return lines that say what there is, what is left out and what is assumed."""
        users, accounts = ({getattr(job, of) for job in self.jobs} - {""} for of in ("user", "account"))
        whose = [count(len(names), one) for names, one in ((users, "user"), (accounts, "account")) if names]
        of = f" of {' and '.join(whose)}" if whose else ""
        lines = [f"{count(len(self.jobs), 'job')}{of}: {counted(self.ended)}"]
        if self.cluster is not None:
            gpus, nodes = sum(node.gpus for node in self.cluster.nodes), len(self.cluster.nodes)
            lines.append(f"{count(nodes, 'node')} with {count(gpus, 'GPU')}")
        else:
            lines.append("no nodes were told, and so there is no cluster")
        waited_s = fmean(self.waited_s)
        completion_s = waited_s + fmean(job.duration_s for job in self.jobs)
        lines.append(f"mean wait {duration(waited_s)}, mean completion {duration(completion_s)}")
        lines += [f"left out: {counted(self.left_out)}"] if self.left_out else []
        lines += [f"assumed: {line}" for line in self.assumed]
        lines += [f"names of {count(self.cut, 'job')} cut to {LONGEST_NAME} characters"] if self.cut else []
        rest = len(self.notes) - MOST_NOTES
        return lines + self.notes[:MOST_NOTES] + ([f"and {rest:,} notes more"] if rest > 0 else [])


def counted(counts: Counter[str]) -> str:
    """Counts in words, the largest first."""
    return ", ".join(f"{n:,} {what}" for what, n in counts.most_common())


def cluster_of(
    machines: Iterable[Machine],
    name: str,
    assumed: list[str],
    *,
    switches: Mapping[str, str | None] | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> Cluster:
    """Cluster of some nodes.

    Parameters
    ----------
    assumed : list of str
        Takes what is assumed of its watts.
    switches : mapping of str to str or None, optional
        Switch to the one above it; those without nodes below are left out.
    stand_ins : mapping of str to str, optional
        GPU type to the known one that counts instead.
    """
    machines, switches, stand_ins = list(machines), switches or {}, stand_ins or {}
    kinds = sorted({machine.gpu_type for machine in machines})
    for kind in stand_ins:
        if kind not in kinds:
            raise ValueError(f"stand_ins: no node has GPUs of type '{kind}', there are {', '.join(kinds)}")
    known = {}
    for kind in kinds:
        known[kind], text = gpu_type_named(kind, stand_ins.get(kind))
        if text:
            assumed.append(f"GPU type '{kind}' {text}")
    base_w = {one.name: server_power_w(common_name(one.gpu_type), one.gpus) for one in machines}
    assumed += [f"a node without its GPUs draws {watts:g} W" for watts in sorted(set(base_w.values()))]
    used = set[str]()
    for machine in machines:
        above, seen = machine.parent, set[str]()
        while above is not None and above not in seen:
            seen.add(above)
            above = switches.get(above)
        used |= seen
    nodes = [
        {"name": shortened(one.name), "gpu_type": shortened(one.gpu_type), "gpus": one.gpus}
        | {"base_power_w": base_w[one.name]}
        | ({} if one.parent is None else {"parent": shortened(one.parent)})
        for one in machines
    ]
    groups = [
        {"name": shortened(switch), "level": "switch"}
        | ({} if parent is None else {"parent": shortened(parent)})
        for switch, parent in switches.items()
        if switch in used
    ]
    types = {shortened(kind): found.model_dump(exclude_unset=True) for kind, found in known.items()}
    return validated(Cluster, {"name": name, "gpu_types": types, "nodes": nodes, "groups": groups})
