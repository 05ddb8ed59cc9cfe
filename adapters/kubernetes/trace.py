"""A trace of the jobs that Kubernetes still knows, of pods or of Kueue's workloads, and its cluster."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise, starmap
from math import inf
from typing import Annotated, Any

from wattsched.adapters.kubernetes.objects import Metadata, Moment, Several, part_of, with_kinds
from wattsched.adapters.kubernetes.options import KubernetesOptions, groups_above
from wattsched.adapters.kubernetes.reading import GPU, KubeNode, KubePod, gpus_per_board, read_node, read_pod
from wattsched.adapters.kubernetes.runs import (
    FINISHED,
    GROUPS,
    LEADER_WORKER_SET,
    TOGETHER_S,
    Name,
    Owned,
    Run,
    Seconds,
    TimedCondition,
    Workload,
    pods_of,
    runs_of_workloads,
    split_by_type,
    together,
    unread_devices,
)
from wattsched.adapters.parts import Part, at
from wattsched.adapters.recorded import Machine, Recorded, cluster_of, counted
from wattsched.instances.errors import MOST_FAULTS, InputError, shown, validated
from wattsched.instances.gpu_parts import part_named
from wattsched.instances.traces import TraceJob
from wattsched.instances.traces.job_lists import LONGEST_S
from wattsched.reading.inputs import echo
from wattsched.report.wording import count

KUEUE, QUEUE = "kueue.x-k8s.io/", "kueue.x-k8s.io/queue-name"
JOBS, ENDED = GROUPS[-2:], ("Complete", "Failed")
NOT_KUEUE = "scheduling.k8s.io/"
"""Workloads of this other API are none of Kueue."""
_PAST = re.compile(r'"(?!deletion)(?:\w*[tT]ime|\w+stamp|\w+edAt)": "(\d{4}-\d\d-\d\dT[\d:.]{8,18}Z)"')
"""Times of objects, of their events and of who wrote them, that are never in the future."""

PARTS = ("nvidia.com/gpumem", "nvidia.com/gpucores")
"""Beginnings of resources by which pods share GPUs that HAMi divides; their sizes are not read."""
Seen = tuple[Mapping[str, Any], float]
_BOUND = ("PodScheduled", "True")
_ENDS = {("Ready", "False"), ("DisruptionTarget", "True")}
"""Conditions that a pod has from its end on, where it has no times of its containers."""


class _Container(Part):
    finished_s: Annotated[Moment, at("state", "terminated", "finishedAt")] = None
    waiting: Annotated[Any, at("state", "waiting")] = None


class _Status(Part):
    metadata: Owned
    start_s: Annotated[Moment, at("status", "startTime")] = None
    first: Annotated[Several[_Container], at("status", "initContainerStatuses")] = []
    containers: Annotated[Several[_Container], at("status", "containerStatuses")] = []
    conditions: Annotated[Several[TimedCondition], at("status", "conditions")] = []


class _Job(Part):
    metadata: Metadata
    limit_s: Annotated[Seconds | None, at("spec", "activeDeadlineSeconds")] = None
    pod: Annotated[dict[str, Any], at("spec", "template", "spec")] = {}
    parallelism: Annotated[int | None, at("spec", "parallelism")] = 1
    start_s: Annotated[Moment, at("status", "startTime")] = None
    active: Annotated[int | None, at("status", "active")] = 0
    succeeded: Annotated[int | None, at("status", "succeeded")] = 0
    failed: Annotated[int | None, at("status", "failed")] = 0
    conditions: Annotated[Several[TimedCondition], at("status", "conditions")] = []

    @property
    def pods(self) -> int:
        """Pods that it has, and that have ended."""
        return sum(number or 0 for number in (self.active, self.succeeded, self.failed))

    @property
    def gpus(self) -> int:
        return read_pod({"metadata": {"name": self.metadata.name}, "spec": self.pod}).gpus * (
            self.parallelism or 0
        )

    @property
    def lasted_s(self) -> float:
        """Seconds from its start to its end; 0 where they are not told."""
        ends_s = [one.moment_s for one in self.conditions if one.status == "True" and one.type in ENDED]
        return max((end_s - self.start_s for end_s in ends_s if end_s and self.start_s), default=0.0)


_READERS: dict[str, list[Callable[[Any], Any]]] = {
    "Node": [read_node],
    "Pod": [read_pod, partial(validated, _Status)],
    "Job": [partial(validated, _Job)],
    "Workload": [lambda item: pods_of(validated(Workload, item))],
}
"""Objects that are read, by kind, and what reads them."""


def items_of(document: Any) -> list[dict[str, Any]]:
    """Nodes, pods, Jobs and workloads of what ``kubectl get ... -o json`` printed."""
    found, faults = list[dict[str, Any]](), list[str]()
    for number, item in enumerate(with_kinds(document)):
        if item["kind"] not in _READERS or NOT_KUEUE in str(item.get("apiVersion")):
            continue
        found.append(item)
        try:
            for read in _READERS[item["kind"]]:
                read(item)
        except (InputError, ValueError) as error:
            lines = error.faults if isinstance(error, InputError) else [str(error)]
            faults += [f"items[{number}], {_called(item)}: {line}" for line in lines]
        if len(faults) >= MOST_FAULTS:
            break
    if faults:
        raise InputError(faults)
    return found


def missing_of(documents: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Say which lists, of those that `items_of` reads, break off without a later page, by their kind."""
    pages = defaultdict[tuple[str, str], list[tuple[int, int, bool]]](list)
    for document in documents:
        about = part_of(document, "metadata")
        left = max(0, told) if isinstance(told := about.get("remainingItemCount"), int) else 0
        own = pages[str(document.get("kind")), str(about.get("resourceVersion"))]
        own.append((len(document["items"]), left, bool(about.get("continue") or left)))
    for (kind, _), own in pages.items():
        missing = max(items + left for items, left, _ in own) - sum(items for items, *_ in own)
        if missing > 0 or all(breaks_off for *_, breaks_off in own):
            told = count(missing, "item") if missing > 0 else "an unknown number of items"
            yield f"a {echo(kind, '')} breaks off before its last page: {told} missing"


def _called(item: Mapping[str, Any]) -> str:
    """Kind and name of an object, as far as it has one."""
    name = part_of(item, "metadata").get("name")
    return f"{item['kind']} {echo(name)}" if isinstance(name, str) else f"a {item['kind']}"


def recorded(
    items: Sequence[Mapping[str, Any]],
    now_s: float | Sequence[float],
    stand_ins: Mapping[str, str] | None = None,
) -> Recorded:
    """Trace and cluster of objects of the API.

    Workloads of Kueue are jobs, and so are pods that belong to none of them.

    Parameters
    ----------
    items : sequence of mapping
        Of `items_of`.
    now_s : float or sequence of float
        When the objects were asked for, all or each of them: what runs then counts until then. What the
        last list of its kind has counts until the last of these moments.
    stand_ins : mapping of str to str, optional
        GPU type to the known one that counts instead.
    """
    moments = [now_s] * len(items) if isinstance(now_s, int | float) else now_s
    _require_one_cluster(items, moments)
    by_kind: dict[str, list[Any]] = {kind: [] for kind in _READERS}
    last_s = dict(sorted(zip((one["kind"] for one in items), moments, strict=True)))
    lists = dict[str, list[tuple[float, KubeNode]]]()
    for own in _sightings(items, moments):
        (item, _), seen_s = own[-1], max(seen_s for _, seen_s in own)
        if item["kind"] == "Node":
            lists[item["metadata"]["name"]] = [(seen_s, read_node(one)) for one, seen_s in own]
        until_s = max(last_s.values()) if seen_s == last_s[item["kind"]] else seen_s
        by_kind[item["kind"]].append((item, until_s))
    nodes = {name: node for name, own in lists.items() if (node := own[-1][1]).gpus}
    found = Recorded()
    if nodes:
        found.cluster = _cluster(nodes, found, stand_ins)
    jobs = [validated(_Job, job) for job, _ in by_kind["Job"]]
    limits = {job.metadata.named: job.limit_s or inf for job in jobs}
    workloads = [(validated(Workload, one), seen_s) for one, seen_s in by_kind["Workload"]]
    pods = [(read_pod(one), validated(_Status, one), seen_s) for one, seen_s in by_kind["Pod"]]
    words = {word for row, _ in workloads for word in row.words}
    of_pods = list(_of_pods(pods, nodes, lists, limits, words, found))
    of_jobs = Counter(_job_of(pod) for pod, *_ in pods)
    read = {run.job for run in of_pods if run.gpus and not run.excluded}
    short = [job for job in jobs if job.metadata.named in read and job.pods > of_jobs[job.metadata.named]]
    if missing := sum(job.pods - of_jobs[job.metadata.named] for job in short):
        told = f"{count(missing, 'pod')} of {count(len(short), 'Job')}"
        found.tell("doubtful", f"earlier runs are missing, with their GPU hours: {told}")
    of_workloads = list(runs_of_workloads(workloads, nodes.values(), limits, found))
    _take(found, [*of_workloads, *_since_their_jobs(of_pods, jobs, short)])
    of_a_pod = {word for _, status, _ in pods for word in status.metadata.words}
    alone = {row.metadata.named for row, _ in workloads if of_a_pod.isdisjoint(row.words)}
    begun = {(pod.namespace, pod.start_s // TOGETHER_S) for pod in of_pods if pod.gpus and not pod.excluded}
    minutes = [(run.namespace, run.start_s // TOGETHER_S) for run in of_workloads if run.job in alone]
    if twice := sum(any((of, minute + k) in begun for k in (-1, 0, 1)) for of, minute in minutes):
        what = f"{count(twice, 'workload')} without pods, as pods of none began at their time"
        found.tell("doubtful", f"{what}: these may be its pods, and count twice")
    made_s = [validated(Metadata, item["metadata"]).creation_s or 0.0 for item, _ in by_kind["Node"]]
    first_s = min((job.submitted_s for job in found.jobs), default=inf)
    told = "in the cluster all of the time, as replays know no others"
    if later := sum(one_s > first_s for one_s in made_s):
        found.tell("assumed", f"{count(later, 'node')} made after the first job came: {told}")
    if gone := sum(max(seen_s for seen_s, _ in lists[name]) < last_s["Node"] for name in nodes):
        found.tell("assumed", f"{count(gone, 'node')} that later lists lack: {told}")
    if changed := sum(any(one.kinds != own[-1][1].kinds for _, one in own) for own in lists.values()):
        what = f"{count(changed, 'node')} with other GPUs in an earlier list"
        found.tell("assumed", f"{what}: in the cluster as the last has it")
    there = {run.job for run in of_pods} | words
    for job in jobs:
        if job.start_s is not None and job.metadata.named not in there and (gpus := job.gpus):
            found.leave_out("Jobs whose pods are gone", gpus, job.lasted_s)
    return found


def _require_one_cluster(items: Sequence[Mapping[str, Any]], moments: Sequence[float]) -> None:
    """Refuse objects of one name that were there at the same time, as in the lists of two clusters."""
    lives = defaultdict[tuple[str, str, str], list[tuple[float, str, float, Any]]](list)
    for item, seen_s in zip(items, moments, strict=True):
        named = validated(Metadata, item["metadata"])
        if named.uid and named.creation_s is not None:
            own = lives[item["kind"], *named.named]
            own.append((named.creation_s, named.uid, seen_s, item))
    for (kind, namespace, name), own in lives.items():
        for (_, uid, seen_s, item), (made_s, other, *_) in pairwise(sorted(own, key=lambda one: one[:3])):
            _, ended, _ = _version((item, seen_s))
            if uid != other and made_s + TOGETHER_S < (moment_of(item) if ended else seen_s):
                called = echo(name if kind == "Node" else f"{namespace}/{name}")
                told = f"there are two at the same time, with the uids {echo(uid)} and {echo(other)}"
                raise InputError([f"{kind} {called}: {told}; import each cluster on its own"])


def _since_their_jobs(runs: Sequence[Run], jobs: Iterable[_Job], short: Iterable[_Job]) -> Iterator[Run]:
    """Yield runs of pods; the first ones of a Job wait since this was made, as it may have been suspended.

    Of Jobs that are `short` of pods, the first ones are those that were made when the Job started.
    """
    made_s = {job.metadata.named: job.metadata.creation_s or inf for job in jobs}
    first_s = {job.metadata.named: job.start_s or inf for job in short}
    for run in runs:
        first_s[run.job] = min(run.created_s, first_s.get(run.job, inf))
    for run in runs:
        first = run.created_s <= first_s[run.job] + TOGETHER_S
        yield replace(run, created_s=min(run.created_s, made_s.get(run.job, inf))) if first else run


def _sightings(items: Sequence[Mapping[str, Any]], moments: Sequence[float]) -> Iterable[list[Seen]]:
    """All that lists have of each object, each with when it was so, and the newest last.

    The API server counts versions up; where they are not told, what has ended is newer than what has not.
    """
    known = defaultdict[object, list[Seen]](list)
    for seen in sorted(zip(items, moments, strict=True), key=_version):
        item, named = seen[0], seen[0]["metadata"]
        # Of nodes there is one of a name at a time.
        uid = named.get("uid") if item["kind"] != "Node" else ""
        known[item["kind"], uid or (named.get("namespace"), named["name"])].append(seen)
    return known.values()


def _version(seen: Seen) -> tuple[int, bool, float]:
    """Order of an object and when it was seen: by its version, whether it has ended, and that time."""
    item, seen_s = seen
    told, status = str(item["metadata"].get("resourceVersion")), item.get("status") or {}
    conditions = status.get("conditions") if item["kind"] in ("Workload", "Job") else ()
    ended = any(one["status"] == "True" and one["type"] in (*ENDED, FINISHED[0]) for one in conditions or ())
    ended |= status.get("phase") in ("Succeeded", "Failed")
    return int(told) if re.fullmatch("[0-9]{1,20}", told) else 0, ended, seen_s


def _cluster(nodes: Mapping[str, KubeNode], found: Recorded, stand_ins: Mapping[str, str] | None) -> Any:
    """Cluster of nodes, below switches for their zones and racks; `found` takes what is to be said of it."""
    options, switches, machines = KubernetesOptions(), dict[str, str | None](), found.machines
    for node in nodes.values():
        above = groups_above(node, options)
        switches |= dict(zip(above, [None, *above], strict=False))
        machines.append(Machine(node.name, node.kinds, above[-1] if above else None))
    gpus = ((node.kinds.get(node.resources.get(GPU, ""), 0), node.labels) for node in nodes.values())
    for each, n in Counter(one for one in starmap(gpus_per_board, gpus) if one > 1).items():
        how, told = ("assumed", "replicas") if each.is_integer() else ("doubtful", "each counts as a board")
        found.tell(how, f"{count(n, 'node')} with {each:.4g} times the GPUs of {GPU}.count: {told}")
    if closed := sum(not node.ready for node in nodes.values()):
        found.tell("noted", f"cordoned or not ready now, but in the cluster: {count(closed, 'node')}")
    return cluster_of(machines, "kubernetes", found.entries, switches=switches, stand_ins=stand_ins)


def _of_pods(
    pods: Iterable[tuple[KubePod, _Status, float]],
    nodes: Mapping[str, KubeNode],
    lists: Mapping[str, Sequence[tuple[float, KubeNode]]],
    limits: Mapping[Name, float],
    words: Set[Name],
    found: Recorded,
) -> Iterator[Run]:
    """Yield runs of pods by GPU type, of `pods` with when each was seen last, in seconds since 1970.

    `lists` are the nodes as each list had them; `limits` the longest times of Jobs, in s; `words` tell pods
    of workloads, see `Owned.words`.
    """
    parts, unfit, lost, foreign = 0, 0, 0, Counter[str]()
    for pod, status, seen_s in pods:
        labels = pod.labels
        if index := labels.get("leaderworkerset.sigs.k8s.io/group-index"):
            labels = labels | {LEADER_WORKER_SET: f"{labels.get(LEADER_WORKER_SET)}-{index}"}
        group = next((labels[name] for name in GROUPS if labels.get(name)), "")
        bound = [one.moment_s for one in status.conditions if (one.type, one.status) == _BOUND]
        start_s = next((one_s for one_s in (*bound, status.start_s) if pod.node and one_s is not None), inf)
        own = lists.get(pod.node, [])
        is_silent = bool(own) and not own[-1][1].ready  # its kubelet reports no end
        is_lost = is_silent and not pod.ended and pod.deletion_s + TOGETHER_S < seen_s
        lost += is_lost and pod.gpus > 0
        end_s = _end_s(pod, status, start_s) if pod.ended or is_lost else inf
        parts += bool(pod.gpus) and any(one.startswith(PARTS) for one in pod.others)
        until_s = min(end_s, seen_s)
        fits = [one for one in own if pod.gpus_on(one[1]) == pod.gpus <= one[1].gpus]
        # The last list while it ran counts, else the one nearest to its end.
        fits.sort(key=lambda one: (not start_s <= one[0] < until_s, abs(one[0] - until_s)))
        unfit += bool(own) and not fits and start_s < until_s
        if lists and pod.gpus and pod.node and not own:
            foreign[pod.node] += 1
        run = Run(
            group=f"{pod.namespace}/{group or pod.name}",
            namespace=pod.namespace,
            user=labels.get(QUEUE, ""),
            state="lost" if is_lost else pod.phase.lower(),
            created_s=pod.created_s or inf,
            start_s=start_s,
            end_s=end_s,
            limit_s=min(pod.limit_s, limits.get(job := _job_of(pod), inf)),
            seen_s=seen_s,
            job=job,
            gang=any(labels.get(name) for name in GROUPS[:-2]),
            excluded=_counted_as(status.metadata, words) if pod.gpus else unread_devices(pod.others),
        )
        yield from split_by_type(run, pod.resources, [node for _, node in fits[:1]], nodes.values(), found)
    found.tell_foreign(foreign, "pod")
    if unfit:
        of = f"{count(unfit, 'pod')} with other GPUs, or more, than any list of their nodes has"
        found.tell("doubtful", f"{of}: what they ask for counts")
    if lost:
        found.tell("doubtful", f"{count(lost, 'deleted pod')} on silent nodes: ended when no longer ready")
    if parts:
        of = f"{count(parts, 'pod')} with parts of GPUs ({', '.join(PARTS)})"
        found.tell("doubtful", f"{of}: each counts as a whole one")


def _job_of(pod: KubePod) -> Name:
    return pod.namespace, next((pod.labels[name] for name in JOBS if pod.labels.get(name)), "")


def _counted_as(metadata: Owned, workloads: Set[Name]) -> str:
    """Return why a pod is no job of its own: it is of a workload; empty where it is one."""
    if not workloads.isdisjoint(metadata.words):
        return "pods of workloads, which are counted instead"
    kueue = workloads and any(label.startswith(KUEUE) for label in metadata.labels)
    return "pods with labels of Kueue, but of no workload that is given" if kueue else ""


def _end_s(pod: KubePod, status: _Status, start_s: float) -> float:
    """Return when a pod gave its GPUs back: when its last container ended, or else what tells its end."""
    ran = [one for one in (*status.first, *status.containers) if one.waiting is None]
    known = [one.finished_s for one in ran if one.finished_s is not None]
    if len(known) < len(ran) or not known:
        known += [one.moment_s or 0.0 for one in status.conditions if (one.type, one.status) in _ENDS]
    end_s = max(known, default=start_s)
    return pod.deletion_s if end_s <= start_s and pod.leaving else end_s


def _take(found: Recorded, runs: Iterable[Run]) -> None:
    """Put runs into the trace, those of a gang as one job, or count why not."""
    used, there = list[Run](), {kind for machine in found.machines for kind in machine.kinds}
    for run in runs:
        if (reason := _why_not(run, there)) and run.excluded and not run.gpus:
            found.left_out[reason] += 1  # nothing tells its GPU hours
        elif reason:
            found.leave_out(reason, run.gpus, min(run.end_s, run.seen_s) - run.start_s, run.gpu_type)
        else:
            run = replace(run, gpu_type="") if there and run.gpu_type not in there else run
            used.append(run if run.end_s < inf else replace(run, end_s=run.seen_s, state="running"))
    for job in together(used, found):
        found.add(
            TraceJob(
                name=job.group,
                submitted_s=min(job.created_s, job.start_s),
                duration_s=job.end_s - job.start_s,
                gpus=job.gpus,
                gpu_type=job.gpu_type or None,
                user=job.user,
                account=job.namespace,
                time_limit_s=job.limit_s if job.limit_s <= LONGEST_S else None,
            ),
            job.state,
            job.start_s - job.created_s,
        )
    if not found.jobs:
        raise InputError([f"nothing has used a GPU: {counted(found.left_out) or 'there are no pods'}"])
    ends_s = sorted({run.end_s for run in used if run.state == "running"})
    ends = [f"{datetime.fromtimestamp(one, UTC):%Y-%m-%d %H:%M:%S} UTC" for one in ends_s]
    until = " to ".join(ends[:1] + ends[1:][-1:])
    found.note_gaps(["running"], f"counted until {until}, the newest time in the files")
    if len(used) > len(found.jobs):
        found.tell("noted", f"{count(len(used), 'run')} are {count(len(found.jobs), 'job')}: a gang is one")
    if several := len({run.alike for run in used}) - len({run.group for run in used}):
        found.tell("noted", f"GPUs of several kinds at once: one job for each, {several:,} more for it")
    if undated := sum(run.created_s == inf for run in used):
        found.tell("assumed", f"{count(undated, 'run')} without a time of creation: did not wait")
    found.tell("noted", "Kubernetes measures no energy; jobs have no watts")


def _why_not(run: Run, there: Set[str]) -> str:
    """Return why a run is not in the trace; empty where it is. `there` are the GPU types of nodes."""
    if run.excluded or not run.gpus:
        return run.excluded or "without GPUs"
    if run.start_s == inf:
        return "ended without a start" if run.end_s < inf else "still waiting"
    if run.end_s == inf and run.seen_s <= run.start_s:
        return "still running, but no later time is told"
    if there and run.gpu_type not in there and part_named(run.gpu_type).kind:
        return f"on slices {echo(run.gpu_type)}, which no node has"
    return "" if run.end_s > run.start_s else "ended at once, or nobody knows when"


def moment_of(document: Mapping[str, Any]) -> float:
    """Seconds since 1970 that a saved snapshot tells; of kubectl's lists, the newest time of the objects."""
    if (time_s := document.get("time")) is None:
        newest = max(_PAST.findall(json.dumps(document)), default="1970-01-01T00:00:00Z")
        return datetime.fromisoformat(newest).timestamp()
    if isinstance(time_s, bool) or not isinstance(time_s, int | float) or not 0 <= time_s < 1e12:
        raise InputError([f"time: must be seconds since 1970, got {shown(time_s)}"])
    return float(time_s)
