"""A trace of the jobs that Kubernetes still knows, of pods or of Kueue's workloads, and its cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any

from pydantic import Field

from wattsched.adapters.kubernetes.objects import (
    Condition,
    Metadata,
    Moment,
    PodStatus,
    Several,
    Texts,
)
from wattsched.adapters.kubernetes.options import KubernetesOptions, groups_above
from wattsched.adapters.kubernetes.reading import GANG, GPU, KubeNode, KubePod, read, read_node, read_pod
from wattsched.adapters.parts import Part, at
from wattsched.adapters.recorded import Machine, Recorded, cluster_of, counted
from wattsched.instances.errors import MOST_FAULTS, InputError, shown, validated
from wattsched.instances.gpu_names import common_name
from wattsched.instances.traces import TraceJob
from wattsched.reading.inputs import echo
from wattsched.report.wording import count

AMD = "amd.com/gpu"
GPU_LABELS = (f"{GPU}.product", f"{AMD}.product-name")
QUEUE = "kueue.x-k8s.io/queue-name"
GROUPS = (
    GANG,
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "ray.io/cluster",
    "volcano.sh/job-name",
    "scheduling.x-k8s.io/pod-group",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels of pods that run together, the widest first."""
KINDS = ("Node", "Pod", "Workload")


class _Container(Part):
    finished_s: Annotated[Moment, at("state", "terminated", "finishedAt")] = None


class _PodStatus(PodStatus):
    containers: Annotated[Several[_Container], Field(alias="containerStatuses")] = []


class _Condition(Condition):
    reason: str | None = ""
    moment_s: Annotated[Moment, Field(alias="lastTransitionTime")] = None


class _PodSet(Part):
    count: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    spec: Annotated[dict[str, Any], at("template", "spec")] = {}


class _Assigned(Part):
    flavors: Texts = {}


class _Workload(Part):
    metadata: Metadata
    sets: Annotated[list[_PodSet], at("spec", "podSets")] = []
    queue: Annotated[str | None, at("spec", "queueName")] = ""
    conditions: Annotated[Several[_Condition], at("status", "conditions")] = []
    assigned: Annotated[list[_Assigned], at("status", "admission", "podSetAssignments")] = []


class _Status(Part):
    metadata: Metadata
    status: _PodStatus = _PodStatus()


@dataclass(frozen=True)
class Run:
    """GPUs that something held for a time.

    Attributes
    ----------
    group : str
        What it ran together with; its own name for a pod on its own.
    start_s, end_s : float
        Infinite where it never started, or has not ended.
    gpu_type : str
        As nodes have it; empty where that is not clear.
    """

    group: str
    namespace: str
    user: str
    state: str
    created_s: float
    start_s: float
    end_s: float
    gpus: int
    gpu_type: str


def items_of(document: Any) -> list[dict[str, Any]]:
    """Nodes, pods and workloads of what ``kubectl get ... -o json`` printed."""
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise InputError(["is no list such as 'kubectl get nodes,pods -A -o json' prints"])
    found = {number: _with_nvidia(one) for number, one in enumerate(items) if one.get("kind") in KINDS}
    faults: list[str] = []
    for number, item in found.items():
        try:
            _require_readable(item)
        except (InputError, ValueError) as error:
            lines = error.faults if isinstance(error, InputError) else [str(error)]
            faults += [f"items[{number}], {_called(item)}: {line}" for line in lines]
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InputError(faults)
    return list(found.values())


def _called(item: Mapping[str, Any]) -> str:
    """Kind and name of an object, as far as it has one."""
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{item['kind']} {echo(name)}" if isinstance(name, str) else f"a {item['kind']}"


def _require_readable(item: Mapping[str, Any]) -> None:
    """Refuse an object that is none of its kind."""
    if item["kind"] == "Node":
        read_node(item, GPU_LABELS[0])
    elif item["kind"] == "Pod":
        read_pod(item)
        validated(_Status, item)
    else:
        _gpus_of(validated(_Workload, item))


def _with_nvidia(value: Any) -> Any:
    """An object in which AMD's GPUs count as `GPU`, which all that reads objects knows."""
    if isinstance(value, dict):
        return {GPU if key == AMD else key: _with_nvidia(one) for key, one in value.items()}
    return [_with_nvidia(one) for one in value] if isinstance(value, list) else value


def recorded(
    items: Sequence[Mapping[str, Any]], now_s: float, stand_ins: Mapping[str, str] | None = None
) -> Recorded:
    """Trace and cluster of objects of the API.

    Where there are workloads of Kueue, they are the jobs; otherwise pods are.

    Parameters
    ----------
    items : sequence of mapping
        Of `items_of`.
    now_s : float
        When the objects were asked for: what runs then counts until then.
    stand_ins : mapping of str to str, optional
        GPU type to the known one that counts instead.
    """
    once = _once(items)
    by_kind: dict[str, list[Any]] = {kind: [one for one in once if one["kind"] == kind] for kind in KINDS}
    labels = (
        one
        for one in GPU_LABELS
        if any(one in (node["metadata"].get("labels") or ()) for node in by_kind["Node"])
    )
    label = next(labels, GPU_LABELS[0])
    nodes = read({"time": now_s, "nodes": by_kind["Node"], "pods": []}, label).nodes
    found = Recorded()
    if nodes:
        found.cluster = _cluster(nodes, found, stand_ins)
    workloads, pods = by_kind["Workload"], by_kind["Pod"]
    _take(found, _of_workloads(workloads, nodes) if workloads else _of_pods(pods, nodes), now_s)
    return found


def _once(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each object once, though several lists have it: as it was last, but rather one that has ended."""
    known: dict[object, Mapping[str, Any]] = {}
    for item in items:
        named = item["metadata"]
        key = item["kind"], named.get("uid") or (named.get("namespace"), named["name"])
        if key not in known or _has_ended(item) or not _has_ended(known[key]):
            known[key] = item
    return list(known.values())


def _has_ended(item: Mapping[str, Any]) -> bool:
    status = item.get("status", {})
    conditions = status.get("conditions") if item["kind"] == "Workload" else ()
    finished = any((one["type"], one["status"]) == ("Finished", "True") for one in conditions or ())
    return finished or status.get("phase") in ("Succeeded", "Failed")


def _cluster(nodes: Mapping[str, KubeNode], found: Recorded, stand_ins: Mapping[str, str] | None) -> Any:
    options, switches, machines = KubernetesOptions(), dict[str, str | None](), []
    for node in nodes.values():
        above = groups_above(node, options)
        switches |= dict(zip(above, [None, *above], strict=False))
        machines.append(Machine(node.name, node.product, node.gpus, above[-1] if above else None))
    if closed := sum(not node.ready for node in nodes.values()):
        found.notes.append(f"cordoned or not ready now, but in the cluster: {count(closed, 'node')}")
    return cluster_of(machines, "kubernetes", found.assumed, switches=switches, stand_ins=stand_ins)


def _of_pods(documents: Iterable[Any], nodes: Mapping[str, KubeNode]) -> Iterator[Run]:
    for document in documents:
        pod, status = read_pod(document), validated(_Status, document).status
        labels = pod.labels
        group = next((labels[name] for name in GROUPS if labels.get(name)), "")
        known = [one.finished_s for one in status.containers if one.finished_s is not None]
        start_s = inf if not pod.node or status.start_s is None else status.start_s
        state = pod.phase.lower()
        yield Run(
            group=f"{pod.namespace}/{group or pod.name}",
            namespace=pod.namespace,
            user=labels.get(QUEUE, ""),
            state=state,
            created_s=pod.created_s,
            start_s=start_s,
            end_s=(max(known) if known else start_s) if pod.ended else inf,
            gpus=pod.gpus,
            gpu_type=_product(pod.resources, nodes[pod.node]) if pod.node in nodes else "",
        )


def _product(resources: Collection[str], node: KubeNode) -> str:
    """Product that a node has as the one resource that is asked for; empty where that is not clear."""
    found = {node.resources.get(name, "") for name in resources}
    return found.pop() if len(found) == 1 else ""


def _of_workloads(documents: Iterable[Any], nodes: Mapping[str, KubeNode]) -> Iterator[Run]:
    for document in documents:
        row = validated(_Workload, document)
        asked = {name for pod in _pods_of(row) for name in pod.resources}
        products = {node.resources[name] for node in nodes.values() for name in asked & node.resources.keys()}
        held = {one.type: one for one in row.conditions if one.status == "True"}
        admitted, finished = held.get("Admitted"), held.get("Finished")
        start_s = inf if admitted is None or admitted.moment_s is None else admitted.moment_s
        flavors = {one.flavors[name] for one in row.assigned for name in asked & one.flavors.keys()}
        named = {common_name(flavor) for flavor in flavors}
        kinds = {kind for kind in products if named == {common_name(kind)}} or products
        ended = (finished.reason or "finished").lower() if finished is not None else "running"
        yield Run(
            group=f"{row.metadata.namespace}/{row.metadata.name}",
            namespace=row.metadata.namespace,
            user=row.queue or "",
            state=ended,
            created_s=row.metadata.creation_s or 0.0,
            start_s=start_s,
            end_s=inf if finished is None or finished.moment_s is None else finished.moment_s,
            gpus=_gpus_of(row),
            gpu_type=next(iter(kinds)) if len(kinds) == 1 else "",
        )


def _gpus_of(row: _Workload) -> int:
    """GPUs of all pods of a workload."""
    return sum(one.count * pod.gpus for one, pod in zip(row.sets, _pods_of(row), strict=True))


def _pods_of(row: _Workload) -> list[KubePod]:
    """A pod of each set of a workload."""
    return [read_pod({"metadata": {"name": row.metadata.name}, "spec": one.spec}) for one in row.sets]


def _take(found: Recorded, runs: Iterable[Run], now_s: float) -> None:
    """Put runs into the trace, those of a group that ran at the same time as one job."""
    used: list[Run] = []
    for run in runs:
        if reason := _why_not(run):
            found.leave_out(reason, run.gpus, run.end_s - run.start_s)
            continue
        if run.end_s == inf and now_s <= run.start_s:
            found.leave_out("begun after the objects were asked for")
            continue
        used.append(run if run.end_s < inf else replace(run, end_s=now_s, state="running"))
    for job in _together(used):
        found.add(
            TraceJob(
                name=job.group,
                submitted_s=min(job.created_s, job.start_s),
                duration_s=job.end_s - job.start_s,
                gpus=job.gpus,
                gpu_type=job.gpu_type or None,
                user=job.user,
                account=job.namespace,
            ),
            job.state,
            job.start_s - job.created_s,
        )
    if not found.jobs:
        raise InputError([f"nothing has used a GPU: {counted(found.left_out) or 'there are no pods'}"])
    found.note_gaps(["running"])
    if len(used) > len(found.jobs):
        found.notes.append(f"of {count(len(used), 'pod')}, those of a group at the same time are one job")
    found.notes.append("Kubernetes measures no energy; jobs have no watts")


def _why_not(run: Run) -> str:
    """Return why a run is not in the trace; empty where it is."""
    if not run.gpus:
        return "without GPUs"
    if run.start_s == inf:
        return "ended without a start" if run.end_s < inf else "still waiting"
    return "" if run.end_s > run.start_s else "ended at once, or nobody knows when"


def _together(runs: list[Run]) -> list[Run]:
    """Runs of a group that overlap, as one with all their GPUs."""
    found: list[Run] = []
    for run in sorted(runs, key=lambda run: (run.group, run.start_s)):
        last = found[-1] if found else None
        if last is None or last.group != run.group or run.start_s >= last.end_s:
            found.append(run)
            continue
        states = {last.state, run.state}
        state = next((one for one in ("running", "failed") if one in states), last.state)
        found[-1] = replace(
            last,
            state=state,
            created_s=min(last.created_s, run.created_s),
            end_s=max(last.end_s, run.end_s),
            gpus=last.gpus + run.gpus,
            gpu_type=last.gpu_type if last.gpu_type == run.gpu_type else "",
        )
    return sorted(found, key=lambda run: (run.created_s, run.group))


def moment_of(document: Any) -> float | None:
    """Seconds since 1970 that a saved snapshot tells; None for what kubectl prints."""
    time_s = document.get("time") if isinstance(document, dict) else None
    if time_s is None:
        return None
    if isinstance(time_s, bool) or not isinstance(time_s, int | float) or not 0 <= time_s < 1e12:
        raise InputError([f"time: must be seconds since 1970, got {shown(time_s)}"])
    return float(time_s)
