"""The table of an import: what was read, converted, assumed and left out, as printed and kept in a trace."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

import numpy as np

from wattsched.instances.gpu_parts import part_named
from wattsched.instances.traces import TraceJob
from wattsched.instances.units import S_PER_H
from wattsched.report.wording import count, number
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.fields import shortened

Held = list[tuple[int, int]]
"""Jobs by number, and GPUs that each holds."""
BEYOND = 1.1
"""Factor by which watts may be below the idle draw of a job's GPUs, or above the most that they can draw."""


@dataclass(frozen=True)
class Entry:
    """Jobs, or other records, that an import treated alike, with their number and GPU hours where known.

    They are read, converted, assumed, left out or noted; what cannot be right is doubtful.
    """

    treatment: str
    what: str
    records: int | None = None
    gpu_h: float | None = None

    @classmethod
    def of(cls, treatment: str, what: str, jobs: Sequence[TraceJob]) -> Self:
        """Entry of some jobs."""
        return cls(treatment, what, len(jobs), gpu_hours(jobs))

    @classmethod
    def told(cls, sentence: str) -> Self:
        """Entry of a sentence such as ``left out: 'a', of which no log has a sample``."""
        found = re.fullmatch(r"(|.*?: )(left out|assumed|converted|doubtful): (.*)", sentence)
        return cls(found[2], found[1] + found[3]) if found else cls("noted", sentence)

    def sentence(self) -> str:
        """Entry of jobs in words: ``left out: without GPUs, 3 jobs, 0 GPU h``."""
        records = [] if self.records is None else [count(self.records, "job")]
        hours = [] if self.gpu_h is None else [f"{number(self.gpu_h)} GPU h"]
        return f"{self.treatment}: {', '.join([self.what, *records, *hours])}"


def gpu_hours(jobs: Iterable[TraceJob]) -> float:
    """GPU hours that jobs held; of a slice, the share of its board counts."""
    shares = ((float(part_named(job.gpu_type or "").share), job) for job in jobs)
    return sum(share * job.gpus * job.duration_s for share, job in shares) / S_PER_H


def table_of(entries: Sequence[Entry], record: str = "job") -> tuple[list[str], list[list[str]]]:
    """Return the titles and rows of a table of entries."""
    amounts = [["" if n is None else number(n) for n in (one.records, one.gpu_h)] for one in entries]
    rows = [[one.treatment, *told, one.what] for one, told in zip(entries, amounts, strict=True)]
    return ["", f">{record}s", ">GPU h", ""], rows


def overfull(
    jobs: Sequence[TraceJob],
    cluster: Cluster,
    clock: datetime | None,
    nodes: Sequence[tuple[str, ...]] | None = None,
) -> Iterator[Entry]:
    """Point at the moments at which jobs hold more GPUs than there are in all, of a type or on a node.

    Jobs start when they have waited. `clock` is the date of second 0; `nodes` are the names of each job's.
    """
    start_s = np.array([job.started_s for job in jobs])
    end_s = start_s + [job.duration_s for job in jobs]
    found = defaultdict[str, list[tuple[float, str]]](list)
    for (of, name), there, held in _held(jobs, cluster, nodes or [()] * len(jobs)):
        numbers, gpus = np.array(held, dtype=np.int64).T
        most, at_s, beyond_h = _most_held(start_s[numbers], end_s[numbers], gpus, there)
        if most > there:
            moment = f"at {at_s:,.0f} s"
            if clock is not None:
                moment = f"on {(clock + timedelta(seconds=at_s)).replace(tzinfo=None).isoformat(sep=' ')}"
                moment += " UTC" if clock.tzinfo else ""
            where = f" {of} {name}" if of else ""
            told = f"jobs hold {most:,} GPUs{where} {moment}, of {there:,} that there are"
            found[of].append((beyond_h, told))
    for some in found.values():
        _, worst = max(some)
        others = f", the worst of {len(some):,}" if len(some) > 1 else ""
        yield Entry("doubtful", f"{worst}{others}", gpu_h=sum(hours for hours, _ in some))


def _held(
    jobs: Sequence[TraceJob], cluster: Cluster, nodes: Sequence[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, str], int, Held]]:
    """Yield what is counted (a type or node, with its name, or all), its GPUs, and what jobs hold of it.

    Slices are no GPUs. A record does not tell how many GPUs a job has on each of its nodes: on each count
    those for which the others have no room.
    """
    there = {node.name: node.gpus for node in cluster.nodes}
    kinds, typed = {node.gpu_type for node in cluster.nodes}, all(job.gpu_type for job in jobs)
    slices = {kind for kind in kinds if typed and part_named(kind).kind}
    room, on = Counter[tuple[str, str]](), defaultdict[tuple[str, str], Held](list)
    for node in cluster.nodes:
        room["on node", node.name] = node.gpus
        room["of type", node.gpu_type] += node.gpus
        room["", ""] += 0 if node.gpu_type in slices else node.gpus
    for j, (job, names) in enumerate(zip(jobs, nodes, strict=True)):
        if len(kinds) > 1 and job.gpu_type in kinds:
            on["of type", job.gpu_type].append((j, job.gpus))
        own = [name if name in there else f"{name}/{job.gpu_type}" for name in map(shortened, names)]
        if all(name in there for name in own):
            free = sum(there[name] for name in own) - job.gpus
            for name in own:
                on["on node", name].append((j, max(0, there[name] - free)))
        if job.gpu_type not in slices:
            on["", ""].append((j, job.gpus))
    for key, held in on.items():
        yield key, room[key], held


def _most_held(
    start_s: FloatArray, end_s: FloatArray, gpus: IntArray, there: int
) -> tuple[int, float, float]:
    """Return the most GPUs that jobs hold at once, when, and the GPU hours that they hold beyond `there`."""
    time_s, change = np.round([*start_s, *end_s], 3), np.append(gpus, -gpus)
    order = np.lexsort((change, time_s))
    held, time_s = np.cumsum(change[order]), time_s[order]
    beyond_s = float(np.maximum(held - there, 0)[:-1] @ np.diff(time_s))
    return int(held.max()), float(time_s[held.argmax()]), beyond_s / S_PER_H
