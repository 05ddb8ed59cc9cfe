"""Kueue's workloads, and what they ran since they were admitted last."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, Field

from wattsched.adapters.kubernetes.objects import Several, Texts
from wattsched.adapters.kubernetes.reading import KubeNode, KubePod, read_pod
from wattsched.adapters.kubernetes.runs import (
    Name,
    Owned,
    Run,
    Seconds,
    TimedCondition,
    split_by_type,
    unread_devices,
)
from wattsched.adapters.parts import Part, at
from wattsched.adapters.recorded import Recorded
from wattsched.instances.gpu_names import common_name
from wattsched.instances.gpu_parts import part_named
from wattsched.report.wording import count

FINISHED = ("Finished", "True")
"""Condition, and its status, of a workload that has ended."""


class _PodSet(Part):
    name: str = "main"
    count: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    spec: Annotated[dict[str, Any], at("template", "spec")] = {}


class _Assigned(Part):
    name: str = "main"
    count: Annotated[int | None, Field(ge=0, le=1_000_000)] = None
    flavors: Texts = {}


_PAST = AliasChoices(
    AliasPath("status", "accumulatedPastExecutionTimeSeconds"),
    AliasPath("status", "accumulatedPastExexcutionTimeSeconds"),  # so spelled in v1beta1
)


class Workload(Part):
    """Workload of Kueue, as far as it is read."""

    metadata: Owned
    sets: Annotated[list[_PodSet], at("spec", "podSets")] = []
    queue: Annotated[str | None, at("spec", "queueName")] = ""
    limit_s: Annotated[Seconds | None, at("spec", "maximumExecutionTimeSeconds")] = None
    conditions: Annotated[Several[TimedCondition], at("status", "conditions")] = []
    assigned: Annotated[list[_Assigned], at("status", "admission", "podSetAssignments")] = []
    reclaimable: Annotated[Several[Any], at("status", "reclaimablePods")] = []
    past_s: Annotated[Seconds | None, Field(validation_alias=_PAST)] = None

    @property
    def words(self) -> set[Name]:
        """Return those of its metadata, its name, and its job's: of ``job-train-1a2b3`` also ``train``."""
        names = self.metadata.name, re.sub("^[a-z]+-(.+)-[0-9a-f]{5}$", r"\1", self.metadata.name)
        return self.metadata.words | {(self.metadata.namespace, name) for name in names}


def runs_of_workloads(
    workloads: Iterable[tuple[Workload, float]],
    nodes: Collection[KubeNode],
    limits: Mapping[Name, float],
    found: Recorded,
) -> Iterator[Run]:
    """Yield what workloads ran since they were admitted last; of earlier runs Kueue keeps their time alone.

    `workloads` have when each was seen last, in seconds since 1970; `limits` are those of Jobs, in s. Waits
    are without that time.
    """
    reclaimed = evicted = 0
    for row, seen_s in workloads:
        runs = _last_runs(row, nodes, limits, seen_s, found)
        run, *_ = runs
        evicted_s = _since(row, "Evicted", status=None)
        if row.past_s is not None or (evicted_s < inf and evicted_s <= run.start_s):
            for one in runs:
                found.leave_out("before an eviction", one.gpus, row.past_s or 0.0, one.gpu_type, one is run)
            evicted += run.start_s < inf and row.past_s is None
        reclaimed += bool(row.reclaimable)
        yield from (replace(one, created_s=one.created_s + (row.past_s or 0.0)) for one in runs)
    if evicted:
        found.tell("assumed", f"waits of {count(evicted, 'evicted workload')} have the earlier runs in them")
    if reclaimed:
        told = "pods that have ended count as long as the others"
        found.tell("assumed", f"of {count(reclaimed, 'workload')}, {told}")


def _since(row: Workload, kind: str, status: str | None = "True") -> float:
    """Return since when a workload has had a condition, with a status (None: any); infinite if it has not."""
    held = [one.moment_s for one in row.conditions if one.type == kind and status in (None, one.status)]
    return next((moment_s for moment_s in held if moment_s is not None), inf)


def _last_runs(
    row: Workload, nodes: Collection[KubeNode], limits: Mapping[Name, float], seen_s: float, found: Recorded
) -> list[Run]:
    """A workload since it was admitted last, with the pods that were admitted, by GPU type."""
    pods, asked = pods_of(row), Counter[str]()
    for pod, number in pods:
        asked.update({name: number * gpus for name, gpus in pod.resources.items() if number})
    flavors = {one.flavors[name] for one in row.assigned for name in asked.keys() & one.flavors.keys()}
    boards = {common_name(part_named(flavor).board) for flavor in flavors}
    own = [node for node in nodes if boards & {common_name(part_named(kind).board) for kind in node.kinds}]
    of_owners_s = [limits.get((row.metadata.namespace, one.name), inf) for one in row.metadata.owners]
    others = [name for pod, number in pods if number for name in pod.others]
    finished = [one.reason or "finished" for one in row.conditions if (one.type, one.status) == FINISHED]
    run = Run(
        group=f"{row.metadata.namespace}/{row.metadata.name}",
        namespace=row.metadata.namespace,
        user=row.queue or "",
        state=finished[0].lower() if finished else "running",
        created_s=row.metadata.creation_s or inf,
        start_s=_since(row, "Admitted"),
        end_s=_since(row, "Finished"),
        limit_s=min([row.limit_s or inf, *(pod.limit_s for pod, _ in pods), *of_owners_s]),
        seen_s=seen_s,
        job=row.metadata.named,
        excluded="" if asked else unread_devices(others),
    )
    return split_by_type(run, asked, own or nodes, nodes, found)


def pods_of(row: Workload) -> list[tuple[KubePod, int]]:
    """A pod of each set of a workload, and how many were admitted, or are asked for."""
    admitted = {one.name: one.count for one in row.assigned if one.count is not None}
    name = row.metadata.name
    pods = [read_pod({"metadata": {"name": name}, "spec": one.spec}) for one in row.sets]
    return [(pod, admitted.get(one.name, one.count)) for pod, one in zip(pods, row.sets, strict=True)]
