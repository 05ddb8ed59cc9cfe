"""Pods and workloads become jobs: each is in the trace or counted, and gangs hold their GPUs together."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.adapters.kubernetes.trace import GROUPS, items_of, moment_of, recorded
from wattsched.instances.errors import InputError
from wattsched.report.imports import Entry

RECORDED = json.loads((Path(__file__).resolve().parents[3] / "examples" / "kubernetes.json").read_text())
BEGIN_S, NOW_S = 1_800_000_000, 1_800_010_000
KEYS = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
LABELS = {"nvidia": "nvidia.com/gpu.product", "amd": "amd.com/gpu.product-name"}


def time_of(offset_s: int) -> str:
    return datetime.fromtimestamp(BEGIN_S + offset_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str, product: str, gpus: int = 8, vendor: str = "nvidia") -> dict[str, Any]:
    status = {"capacity": {KEYS[vendor]: str(gpus)}, "allocatable": {KEYS[vendor]: str(gpus)}}
    status |= {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {LABELS[vendor]: product, "topology.kubernetes.io/rack": f"r{name[-1]}"}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def container(gpus: int, vendor: str = "nvidia") -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": {KEYS[vendor]: str(gpus)} if gpus else {}}}


def pod(
    name: str, gpus: int, start_s: int | None, end_s: int | None, group: str = "", vendor: str = "nvidia"
) -> dict[str, Any]:
    labels = {GROUPS[-1]: group} if group else {}
    status: dict[str, Any] = {"phase": "Pending"}
    if start_s is not None:
        status = {"phase": "Running", "startTime": time_of(start_s), "containerStatuses": [{"state": {}}]}
    if end_s is not None:
        ended = {"terminated": {"finishedAt": time_of(end_s)}}
        status |= {"phase": "Succeeded", "containerStatuses": [{"state": ended}]}
    spec = {"containers": [container(gpus, vendor)]} | ({} if start_s is None else {"nodeName": "n1"})
    metadata = {"name": name, "namespace": "team", "labels": labels, "creationTimestamp": time_of(0)}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def condition(kind: str, offset_s: int, reason: str = "") -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": time_of(offset_s)}


TIMES = st.none() | st.tuples(st.integers(0, 50), st.none() | st.integers(0, 60))
PODS = st.lists(st.tuples(st.integers(0, 4), TIMES, st.sampled_from(["", "a", "b"])), max_size=8)


@given(PODS, st.sampled_from(["nvidia", "amd"]))
def test_every_pod_is_in_a_job_or_counted(pods: Any, vendor: str) -> None:
    documents = [node("n1", "NVIDIA-A100-SXM4-80GB", vendor=vendor)]
    runs = dict[str, tuple[int, int, int, str]]()
    for number, (gpus, times, group) in enumerate(pods):
        start_s, end_s = times or (None, None)
        documents.append(pod(f"p{number}", gpus, start_s, end_s, group, vendor))
        if gpus and start_s is not None and (end_s is None or end_s > start_s):
            end_s = 100 if end_s is None else end_s
            runs[f"p{number}"] = (gpus, start_s, end_s, f"team/{group or f'p{number}'}")
    items = items_of({"items": documents})
    if not runs:
        with pytest.raises(InputError, match="nothing has used a GPU"):
            recorded(items, BEGIN_S + 100)
        return
    found = recorded(items, BEGIN_S + 100)
    assert found.left_out.total() == len(pods) - len(runs)
    assert {job.gpu_type for job in found.jobs} == {"NVIDIA-A100-SXM4-80GB"}
    assert {(job.submitted_s, job.account) for job in found.jobs} == {(BEGIN_S, "team")}
    for name in {run[3] for run in runs.values()}:
        mine = [run for run in runs.values() if run[3] == name]
        jobs = [job for job in found.jobs if job.name.partition("#")[0] == name]
        assert sum(job.gpus for job in jobs) == sum(gpus for gpus, _, _, _ in mine)
        # Second by second: as long as somebody of the group holds GPUs.
        busy = {second for _, start_s, end_s, _ in mine for second in range(start_s, end_s)}
        assert sum(job.duration_s for job in jobs) == len(busy)


def test_pods_of_a_group_at_the_same_time_are_one_job_and_retries_are_others() -> None:
    pods = [pod("w0", 8, 10, 50, "train"), pod("w1", 8, 12, 60, "train"), pod("retry", 8, 70, 90, "train")]
    found = recorded([node("n1", "A100"), *pods], NOW_S)
    assert [(job.name, job.gpus, job.duration_s) for job in found.jobs] == [
        ("team/train", 16, 50),
        ("team/train#2", 8, 20),
    ]
    assert found.waited_s == [10, 70]
    assert "mean wait 40 s, mean completion 1.25 min" in found.lines()
    assert found.cluster is not None
    assert found.cluster.nodes[0].parent == "r1"


def test_an_object_that_several_lists_have_counts_once_as_it_ended() -> None:
    running, ended = pod("p0", 4, 10, None), pod("p0", 4, 10, 50)
    for both in ([running, ended], [ended, running]):
        found = recorded([node("n1", "A100"), node("n1", "A100"), *both], NOW_S)
        assert [(job.gpus, job.duration_s) for job in found.jobs] == [(4, 40)]
    # Another pod of the same name is another one.
    for number, one in enumerate(again := [pod("p0", 4, 10, 50), pod("p0", 4, 60, 90)]):
        one["metadata"]["uid"] = f"u{number}"
    assert len(recorded([node("n1", "A100"), *again, again[0]], NOW_S).jobs) == 2


def test_workloads_of_kueue_are_the_jobs() -> None:
    spec = {"template": {"spec": {"containers": [container(4)]}}}
    admitted = {
        "conditions": [condition("Admitted", 100), condition("Finished", 400, "Succeeded")],
        "admission": {"podSetAssignments": [{"flavors": {"nvidia.com/gpu": "h100-spot"}}]},
    }
    sets = [{"count": 1, **spec}, {"count": 3, **spec}]
    workloads = [
        {
            "kind": "Workload",
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": time_of(0)},
            "spec": {"queueName": "lq", "podSets": sets},
            "status": status,
        }
        for name, status in (("done", admitted), ("waits", {}))
    ]
    nodes = [node("n1", "NVIDIA-H100-80GB-HBM3"), node("n2", "NVIDIA-A100-SXM4-80GB")]
    found = recorded([*nodes, *workloads, pod("p", 4, 100, 400)], NOW_S)
    (job,) = found.jobs
    assert (job.name, job.gpus, job.submitted_s, job.duration_s) == ("team/done", 16, BEGIN_S, 300)
    assert (job.gpu_type, job.user, job.account) == ("NVIDIA-H100-80GB-HBM3", "lq", "team")
    assert found.ended == {"succeeded": 1}
    assert found.left_out == {"still waiting": 1}
    assert found.cluster is not None
    assert found.cluster.gpu_types["NVIDIA-H100-80GB-HBM3"].profile == "H100"
    assert found.cluster.gpu_types["NVIDIA-H100-80GB-HBM3"].max_power_w == 700


def test_the_recorded_cluster() -> None:
    found = recorded(items_of(RECORDED), moment_of(RECORDED) or 0.0)
    assert {job.name: job.gpus for job in found.jobs} == {"default/old": 8, "default/theirs": 3}
    assert found.left_out == {"still waiting": 7}


@pytest.mark.parametrize("document", [None, [], {}, {"items": 3}, {"items": [3]}, {"kind": "Pod"}])
def test_what_is_no_list_is_refused(document: Any) -> None:
    with pytest.raises(InputError, match="is no list such as 'kubectl get nodes,pods"):
        items_of(document)


ODD = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
ODD |= st.sampled_from([{}, "2026-13-01T00:00:00Z", "0001-01-01T00:00:00", 1e308, -1, {"a": None}])


@given(st.data())
def test_mutated_objects_are_read_or_refused_in_words(data: st.DataObject) -> None:
    spec = {"podSets": [{"count": 2, "template": {"spec": {"containers": [container(2)]}}}]}
    status = {"conditions": [condition("Admitted", 5)], "admission": {"podSetAssignments": [{"flavors": {}}]}}
    workload = {"kind": "Workload", "metadata": {"name": "w"}, "spec": spec, "status": status}
    items = copy.deepcopy([node("n1", "A100"), pod("p", 2, 1, 9, "g"), pod("q", 2, 2, None, "g")])
    items += [workload] * data.draw(st.integers(0, 1))
    for _ in range(data.draw(st.integers(1, 3))):
        here: Any = data.draw(st.sampled_from(items))
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if key != "kind" and (not isinstance(here[key], dict | list) or data.draw(st.booleans())):
                here[key] = copy.deepcopy(data.draw(ODD))
                break
            if key == "kind":
                break
            here = here[key]
    with suppress(InputError):
        recorded(items_of({"items": items}), NOW_S)


def test_every_object_that_cannot_be_read_is_told_by_place_and_name() -> None:
    good, bad = pod("p", 2, 1, 5), pod("q", 2, 1, 5)
    bad["spec"]["containers"] = 7
    set_of = {"spec": {"podSets": [{"count": -1}]}, "kind": "Workload", "metadata": {"name": "w"}}
    items = [
        good,
        {"kind": "Event"},
        bad,
        node("n1", "A100"),
        {"kind": "Node", "metadata": {"name": 5}},
        set_of,
    ]
    with pytest.raises(InputError) as refused:
        items_of({"items": items})
    assert [line.partition(": ")[0] for line in refused.value.faults] == [
        "items[2], Pod 'q'",
        "items[4], a Node",
        "items[5], Workload 'w'",
    ]


def test_names_are_as_long_as_what_reads_them_takes() -> None:
    """Kubernetes' own have up to 253 characters, and a namespace before them."""
    long = "p" * 5_000
    pods = [pod(long, 1, 1, 5), pod(long + "q", 1, 1, 5)]
    for one in pods:
        one["metadata"]["namespace"] = long
    nodes = [node(f"n1{long}", "A100"), node("n2", long)]
    found = recorded(items_of({"items": [*nodes, *pods]}), NOW_S)
    assert len({job.name for job in found.jobs}) == 2
    assert all(len(name) == 200 for job in found.jobs for name in (job.name, job.account))
    assert Entry("converted", "names cut to 200 characters, or escaped", 2) in found.table()
    assert found.cluster is not None
    assert sorted(len(one.name) for one in found.cluster.nodes) == [2, 200]
