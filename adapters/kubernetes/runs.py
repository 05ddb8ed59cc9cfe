"""Runs of pods and of Kueue's workloads: GPUs that something held for a time, and which are one job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from math import inf
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, Field

from wattsched.adapters.kubernetes.objects import Condition, Metadata, Moment, Several, Texts
from wattsched.adapters.kubernetes.reading import GANG, KubeNode, KubePod, read_pod
from wattsched.adapters.parts import Part, at
from wattsched.adapters.recorded import Recorded
from wattsched.instances.gpu_names import common_name
from wattsched.instances.gpu_parts import part_named
from wattsched.reading.inputs import listed
from wattsched.report.wording import count

POD_GROUP = "kueue.x-k8s.io/pod-group-name"
RAY, _OF_RAY = "ray.io/cluster", "ray.io/originated-from-cr-name"
LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/name"
GROUPS = (
    *(GANG, "training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name", RAY, LEADER_WORKER_SET),
    *("volcano.sh/job-name", "scheduling.x-k8s.io/pod-group", "batch.kubernetes.io/job-name", "job-name"),
)
"""Labels of pods that run together, the widest first."""
TOGETHER_S = 60.0
"""Pods that a Job makes within so many seconds are its first ones."""
GANG_PART, JOB_PART = 0.5, 0.99
"""Pods of a gang are one job if in this part of their GPU time at least it holds as many GPUs as ever.

Those of a Job, which may be independent of one another, are if all of them hold their GPUs in the other part.
"""
Name = tuple[str, str]
"""A namespace, and a name or a UID in it."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TimedCondition(Condition):
    """Condition of an object, with its reason, and since when it has it."""

    reason: str | None = ""
    moment_s: Annotated[Moment, Field(alias="lastTransitionTime")] = None


class _Owner(Part):
    name: str = ""
    uid: str = ""


class Owned(Metadata):
    """Metadata of an object, with its owners."""

    owners: Annotated[Several[_Owner], Field(alias="ownerReferences")] = []

    @property
    def words(self) -> set[Name]:
        """Return names and UIDs, with the namespace, that a workload and its pods have in common."""
        found = {self.uid, *(word for one in self.owners for word in (one.name, one.uid))}
        found |= {self.labels.get(label, "") for label in (POD_GROUP, _OF_RAY, *GROUPS)}
        # KubeRay names the cluster of the RayJob train train-x9k2l, or train-raycluster-x9k2l.
        found.add(re.sub("(-raycluster)?-[a-z0-9]{5}$", "", self.labels.get(RAY, "")))
        return {(self.namespace, word) for word in found if word}


@dataclass(frozen=True)
class Run:
    """GPUs that something held for a time.

    Attributes
    ----------
    group : str
        What it ran together with; its own name for a pod on its own.
    start_s, end_s : float
        Infinite where it never started, or has not ended.
    limit_s : float
        Longest time that it may run.
    seen_s : float
        When it was asked for last.
    gpu_type : str
        As nodes have it; empty where that is not clear.
    excluded : str
        Why it is not in the trace, though it ran; or empty.
    job : (str, str)
        Namespace and name of the workload, or of a pod's Job; without a name where it is of none.
    gang : bool
        Whether its group is a gang: more than the pods of one Job.
    """

    group: str
    namespace: str
    user: str
    state: str
    created_s: float
    start_s: float
    end_s: float
    limit_s: float
    seen_s: float
    gpus: int = 0
    gpu_type: str = ""
    excluded: str = ""
    job: Name = ("", "")
    gang: bool = False

    @property
    def alike(self) -> tuple[str, str]:
        """Return its group, and its GPU type if that is of parts of boards."""
        return self.group, self.gpu_type if part_named(self.gpu_type).kind else ""


def split_by_type(
    run: Run, asked: Mapping[str, int], own: Iterable[KubeNode], nodes: Iterable[KubeNode], found: Recorded
) -> list[Run]:
    """Split a run that asks for GPUs by resource into one for each GPU type, as its own nodes have it.

    The type of whole GPUs is empty if that is not clear. Parts of boards that none of its own nodes has are
    those of most other nodes, or are named by the resource alone, as in ``1g.5gb``.
    """
    kinds = Counter[str]()
    for resource, number in asked.items():
        part, having = part_named(resource).kind, [node for node in own if resource in node.resources]
        if (part or resource.endswith(".shared")) and not having:
            having = [node for node in nodes if resource in node.resources]
        products = Counter(node.resources[resource] for node in having)
        if part and len(products) > 1:
            found.tell("assumed", f"slices {part}, of which of several boards is not told: the most frequent")
        kind = products.most_common(1)[0][0] if len(products) == 1 or (part and products) else part
        kinds[kind] += number
    return [replace(run, gpus=gpus, gpu_type=kind) for kind, gpus in sorted(kinds.items())] or [run]


def unread_devices(others: Sequence[str]) -> str:
    """Return why something has no GPUs that are read, though it asks for other devices; empty where not."""
    return f"without GPUs that are read, but with {listed(sorted(set(others)), '')}" if others else ""


def together(runs: Iterable[Run], found: Recorded) -> list[Run]:
    """Runs of a gang as one: those of a group that overlap, and hold their GPUs at the same time.

    Others that overlap, such as pods of a Job that run one after the other, stay what they are, and so do
    slices beside those of another kind, or beside whole GPUs: each counts by its share of a board.
    """
    overlapping, busy_until_s = list[list[Run]](), -inf
    for run in sorted(runs, key=lambda run: (run.alike, run.start_s)):
        if not overlapping or run.alike != overlapping[-1][0].alike or run.start_s >= busy_until_s:
            overlapping.append([])
            busy_until_s = -inf
        overlapping[-1].append(run)
        busy_until_s = max(busy_until_s, run.end_s)
    jobs = [_joined(own) for own in overlapping]
    if apart := len({own[0].alike for own in jobs if len(own) > 1}):
        told = "whose pods did not run at the same time count as separate jobs"
        found.tell("noted", f"{count(apart, 'gang')} {told}")
    starts_s = [(own[0].start_s, first.start_s) for own, (first, *_) in zip(jobs, overlapping, strict=True)]
    if waited := sum(start_s > first_s + TOGETHER_S for start_s, first_s in starts_s):
        told = "from when the last pod began; what others held before makes it longer"
        found.tell("assumed", f"{count(waited, 'gang')} whose pods began apart: one job {told}")
    return sorted(chain(*jobs), key=lambda run: (run.created_s, run.group, run.start_s))


def _joined(runs: list[Run]) -> list[Run]:
    """Runs of a gang as one with all their GPUs and their GPU time; others as they are."""
    if len(runs) < 2:
        return runs
    gpu_s = sum(run.gpus * (run.end_s - run.start_s) for run in runs)
    changes = Counter[float]()
    for run in runs:
        changes[run.start_s] += run.gpus
        changes[run.end_s] -= run.gpus
    moments = sorted(changes)
    held = list(accumulate(changes[moment_s] for moment_s in moments))
    gang, most = any(run.gang for run in runs), max(held)
    gpus = most if gang else sum(run.gpus for run in runs)
    # Seconds in which a gang holds as many GPUs as ever, and a Job those of all of its pods.
    whole_s = sum(until_s - s for (s, until_s), n in zip(pairwise(moments), held, strict=False) if n == gpus)
    if gpus * whole_s < (GANG_PART if gang else JOB_PART) * gpu_s:
        return runs
    start_s = moments[held.index(gpus)]
    states, types = {run.state for run in runs}, {run.gpu_type for run in runs}
    return [
        replace(
            runs[0],
            state=next((one for one in ("running", "failed") if one in states), runs[0].state),
            created_s=min(run.created_s for run in runs),
            start_s=start_s,
            end_s=start_s + gpu_s / gpus,
            gpus=gpus,
            gpu_type=runs[0].gpu_type if len(types) == 1 else "",
        )
    ]


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
        admitted = any(one.type == "Admitted" for one in row.conditions)  # not deactivated before it was
        if row.past_s is not None or (admitted and evicted_s < inf and evicted_s <= run.start_s):
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
