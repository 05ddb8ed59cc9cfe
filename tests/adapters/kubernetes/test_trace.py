"""Pods and workloads become jobs that hold as many GPUs, as long and at the same time, as their pods did."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.kubernetes.recorded_objects import (
    BEGIN_S,
    NOW_S,
    condition,
    container,
    node,
    owned,
    pod,
    time_of,
    workload,
)
from wattsched.adapters.kubernetes.snapshot import save
from wattsched.adapters.kubernetes.trace import items_of, moment_of, recorded
from wattsched.adapters.recorded import Recorded
from wattsched.instances.errors import InputError
from wattsched.instances.traces.job_lists import csv_of
from wattsched.report.imports import Entry

RECORDED = json.loads((Path(__file__).resolve().parents[3] / "examples" / "kubernetes.json").read_text())


TIMES = st.none() | st.tuples(st.integers(0, 50), st.none() | st.integers(0, 60))


PODS = st.lists(st.tuples(st.integers(0, 4), TIMES, st.sampled_from(["", "a", "b"])), max_size=8)


def held(runs: Any) -> dict[float, int]:
    """GPUs from each moment on at which they change, by a sweep over starts and ends."""
    changes = Counter[float]()
    for gpus, start_s, end_s in runs:
        changes[start_s] += gpus
        changes[end_s] -= gpus
    return dict(
        zip(sorted(changes), accumulate(changes[moment_s] for moment_s in sorted(changes)), strict=True)
    )


def held_by(found: Recorded, name: str = "") -> list[tuple[int, float, float]]:
    """GPUs, start and end of jobs, of one name or of all."""
    return [
        (job.gpus, start_s, start_s + job.duration_s)
        for job in found.jobs
        if name in ("", job.name.partition("#")[0])
        for start_s in [job.submitted_s + job.waited_s - BEGIN_S]
    ]


def gpu_s(runs: Any) -> float:
    return sum(gpus * (end_s - start_s) for gpus, start_s, end_s in runs)


@given(PODS, st.sampled_from(["nvidia", "amd"]))
def test_every_pod_is_in_a_job_or_counted(pods: Any, vendor: str) -> None:
    documents = [node("n1", "NVIDIA-A100-SXM4-80GB", vendor=vendor)]
    runs = defaultdict[str, list[tuple[int, int, int]]](list)
    for number, (gpus, times, group) in enumerate(pods):
        start_s, end_s = times or (None, None)
        documents.append(pod(f"p{number}", gpus, start_s, end_s, group, vendor))
        if gpus and start_s is not None and (end_s is None or end_s > start_s):
            runs[f"team/{group or f'p{number}'}"].append((gpus, start_s, 100 if end_s is None else end_s))
    items = items_of({"items": documents})
    if not runs:
        with pytest.raises(InputError, match="nothing has used a GPU"):
            recorded(items, BEGIN_S + 100)
        return
    found = recorded(items, BEGIN_S + 100)
    assert found.left_out.total() == len(pods) - sum(map(len, runs.values()))
    assert {job.gpu_type for job in found.jobs} == {"NVIDIA-A100-SXM4-80GB"}
    assert {(job.submitted_s, job.account) for job in found.jobs} == {(BEGIN_S, "team")}
    for name, pods_of in runs.items():
        jobs = held_by(found, name)
        assert gpu_s(jobs) == pytest.approx(gpu_s(pods_of))
        assert max(held(jobs).values()) == max(held(pods_of).values())


STEPS = st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(1, 3), st.sampled_from(["", "a", "b"]))


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_at_every_moment_the_trace_has_as_many_gpus_as_the_pods(pods: Any) -> None:
    """So coarse are these times that the pods of a gang begin and end at the same moment."""
    runs = [(gpus, 10 * start, 10 * (start + steps)) for gpus, start, steps, _ in pods]
    documents = [
        pod(f"p{number}", *run, group)
        for number, (run, (*_, group)) in enumerate(zip(runs, pods, strict=True))
    ]
    jobs = held_by(recorded([node("n1", "A100"), *documents], NOW_S))
    of_jobs, of_pods = held(jobs), held(runs)
    moments = sorted({*of_jobs, *of_pods})
    counts = [(of_jobs.get(moment_s), of_pods.get(moment_s)) for moment_s in moments]
    last = [0, 0]
    for pair in counts:
        last = [old if new is None else new for old, new in zip(last, pair, strict=True)]
        assert last[0] == last[1]
    assert gpu_s(jobs) == gpu_s(runs)


def test_a_pod_holds_its_gpus_from_when_it_was_bound_to_its_end_whatever_ran_of_it() -> None:
    def ended(name: str, status: dict[str, Any], deleted_s: int | None = None) -> dict[str, Any]:
        made = pod(name, 8, 100, None)
        made["status"] |= {"phase": "Failed", "containerStatuses": []} | status
        if deleted_s is not None:
            made["metadata"]["deletionTimestamp"] = time_of(deleted_s)
        return made

    unstarted = {"state": {"waiting": {"reason": "PodInitializing"}}}
    lost = {"state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}
    of_init = {"state": {"terminated": {"finishedAt": time_of(7300)}}}
    disrupted = [condition("DisruptionTarget", 7300), {**condition("Ready", 200), "status": "False"}]
    pods = [
        ended("init", {"initContainerStatuses": [of_init], "containerStatuses": [unstarted]}),
        ended("lost", {"containerStatuses": [lost], "conditions": disrupted}),
        ended("one-lost", {"containerStatuses": [lost, of_init]}),
        ended("stale", {"containerStatuses": [{"state": {"running": {}}}], "conditions": disrupted}),
        ended("deleted", {}, 7300),
        ended("bound", {"conditions": [condition("PodScheduled", 40)], "containerStatuses": [of_init]}),
    ]
    found = recorded([node("n1", "A100"), *pods, ended("unknown", {})], NOW_S)
    assert {job.name: job.duration_s for job in found.jobs} == {
        f"team/{name}": 7200 for name in ("init", "lost", "one-lost", "stale", "deleted")
    } | {"team/bound": 7260}
    assert found.left_out == {"ended at once, or nobody knows when": 1}


def test_a_deleted_pod_on_a_node_that_does_not_answer_ended_when_it_was_no_longer_ready() -> None:
    def deleted(name: str, *conditions: dict[str, Any], host: str = "n1") -> dict[str, Any]:
        made = pod(name, 2, 100, None)
        made["metadata"]["deletionTimestamp"] = time_of(5000)
        made["spec"]["nodeName"] = host
        made["status"] |= {"containerStatuses": [{"state": {"running": {}}}], "conditions": list(conditions)}
        return made

    silent = node("n1", "A100")
    silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    unready = {**condition("Ready", 4600), "status": "False"}
    pods = [deleted("unready", unready), deleted("untold"), deleted("there", unready, host="n2")]
    found = recorded([silent, node("n2", "A100"), *pods], NOW_S)
    ends_s = {"team/unready": 4600, "team/untold": 5000, "team/there": NOW_S - BEGIN_S}
    assert {job.name: job.duration_s + 100 for job in found.jobs} == ends_s
    assert Entry("doubtful", "2 deleted pods on silent nodes: ended when no longer ready") in found.entries
    just = recorded([silent, *pods[:2]], BEGIN_S + 5010)
    assert {job.duration_s for job in just.jobs} == {4910}, "it may still end by itself"


@pytest.mark.parametrize("reverse", [False, True])
def test_the_later_record_of_an_object_wins_whatever_the_order(reverse: bool) -> None:
    def versions(first: dict[str, Any], second: dict[str, Any], *numbers: str) -> list[dict[str, Any]]:
        for one, number in zip((first, second), numbers, strict=True):
            one["metadata"]["resourceVersion"] = number
        return [first, second]

    early, late = pod("p", 4, 10, None), pod("p", 4, 10, None)
    late["status"]["conditions"] = [condition("PodScheduled", 5)]
    late["status"]["containerStatuses"] = [{"state": {"running": {"startedAt": time_of(30)}}}]
    records = [
        *versions(pod("v", 2, 10, 90), pod("v", 2, 10, 80), "999", "1000"),
        *versions(early, late, "5", "6"),
        *versions(node("n1", "A100", 4), node("n1", "H100", 8), "7", "12"),
    ]
    found = recorded(records[::-1] if reverse else records, BEGIN_S + 100)
    assert {job.name: job.duration_s for job in found.jobs} == {"team/v": 70, "team/p": 95}
    assert found.cluster is not None
    assert [(one.gpu_type, one.gpus) for one in found.cluster.nodes] == [("H100", 8)]


def test_a_pod_that_later_lists_do_not_have_ran_until_it_was_seen_last() -> None:
    pods = [pod("gone", 4, 10, None), pod("stays", 4, 10, None)]
    items = [node("n1", "A100"), *pods, pods[1]]
    found = recorded(items, [BEGIN_S + 50, BEGIN_S + 50, BEGIN_S + 50, BEGIN_S + 90])
    assert {job.name: job.duration_s for job in found.jobs} == {"team/gone": 40, "team/stays": 80}


def test_time_limits_of_pods_of_their_jobs_and_of_workloads_are_kept() -> None:
    job = {"kind": "Job", "metadata": {"name": "train", "namespace": "team"}}
    job |= {"spec": {"activeDeadlineSeconds": 600}}
    pods = [pod("a", 1, 10, 50), pod("b", 1, 60, 90, "train"), pod("c", 1, 60, 90)]
    pods[0]["spec"]["activeDeadlineSeconds"] = 300
    found = recorded(items_of({"items": [node("n1", "A100"), job, *pods]}), NOW_S)
    assert {one.name: one.time_limit_s for one in found.jobs} == {
        "team/a": 300,
        "team/train": 600,
        "team/c": None,
    }
    limited = workload("w", [("main", 1, 4)], [condition("Admitted", 0), condition("Finished", 9)])
    limited["spec"]["maximumExecutionTimeSeconds"] = 3600
    assert [one.time_limit_s for one in recorded([limited], NOW_S).jobs] == [3600]
    of_job = owned(limited, "Job", "train")
    assert [one.time_limit_s for one in recorded([of_job, job], NOW_S).jobs] == [600]
    assert [line.rpartition(",")[2] for line in csv_of(found.jobs).split()] == [
        "time_limit",
        "300",
        "",
        "600",
    ]


def test_each_node_has_its_own_vendor_labels_and_watts() -> None:
    product = "AMD_Instinct_MI300X_OAM"
    nodes = [node("n1", "Tesla-T4"), node("n2", product, 8, "amd")]
    pods = [pod("p1", 2, 0, 9), pod("p2", 8, 0, 9, vendor="amd")]
    for number, one in enumerate(pods, start=1):
        one["spec"]["nodeName"] = f"n{number}"
    found = recorded(items_of({"items": [*nodes, *pods]}), NOW_S)
    kinds = {"team/p1": ("Tesla-T4", 2), "team/p2": (product, 8)}
    assert {job.name: (job.gpu_type, job.gpus) for job in found.jobs} == kinds
    assert found.cluster is not None
    watts = {
        one.name: (one.gpus, one.base_power_w, found.cluster.gpu_types[one.gpu_type].max_power_w)
        for one in found.cluster.nodes
    }
    assert watts == {"n1": (8, 200, 70), "n2": (8, 1500, 750)}


def test_an_object_that_several_lists_have_counts_once_as_it_ended() -> None:
    running, ended = pod("p0", 4, 10, None), pod("p0", 4, 10, 50)
    for both in ([running, ended], [ended, running]):
        found = recorded([node("n1", "A100"), node("n1", "A100"), *both], NOW_S)
        assert [(job.gpus, job.duration_s) for job in found.jobs] == [(4, 40)]
    # Another pod of the same name is another one.
    for number, one in enumerate(again := [pod("p0", 4, 10, 50), pod("p0", 4, 60, 90)]):
        one["metadata"]["uid"] = f"u{number}"
    assert len(recorded([node("n1", "A100"), *again, again[0]], NOW_S).jobs) == 2


def test_pods_with_devices_that_are_not_read_are_told_by_these() -> None:
    gaudi, claims, rdma = pod("gaudi", 0, 10, 50), pod("claims", 0, 10, 50), pod("rdma", 2, 10, 50)
    for one, name in ((gaudi, "habana.ai/gaudi"), (rdma, "rdma/hca")):
        one["spec"]["containers"][0]["resources"] = {"limits": {name: "8", "cpu": "4"}}
    rdma["spec"]["containers"].append(container(2))
    claims["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    web = pod("web", 0, 10, 50)
    web["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    sets = workload("w", [("main", 1, 0)], [condition("Admitted", 0), condition("Finished", 9)])
    sets["spec"]["podSets"][0]["template"]["spec"] = gaudi["spec"]
    found = recorded([node("n1", "A100"), gaudi, claims, rdma, web, sets], NOW_S)
    assert [job.name for job in found.jobs] == ["team/rdma"]
    assert [one for one in found.table() if one.treatment == "left out"] == [
        Entry("left out", "without GPUs that are read, but with habana.ai/gaudi", 2),
        Entry("left out", "without GPUs that are read, but with resourceClaims", 1),
        Entry("left out", "without GPUs", 1, 0.0),
    ]


def test_what_runs_counts_until_the_newest_time_that_the_files_tell() -> None:
    busy = node("n1", "A100")
    busy["status"]["conditions"][0] |= {"lastHeartbeatTime": time_of(7210), "lastTransitionTime": time_of(0)}
    leaving = pod("p", 4, 10, None)
    leaving["metadata"] |= {"deletionTimestamp": time_of(90_000), "managedFields": [{"time": time_of(40)}]}
    lists = [{"items": [leaving]}, {"items": [busy]}]
    moments = [moment_of(one) for one in lists]
    assert moments == [BEGIN_S + 40, BEGIN_S + 7210]
    assert moment_of({"items": []}) == 0
    # What the last list of pods has runs until the newest time of all lists.
    found = recorded([leaving, busy], moments)
    told = (
        f"{datetime.fromtimestamp(BEGIN_S + 7210, UTC):%Y-%m-%d %H:%M:%S} UTC, the newest time in the files"
    )
    assert Entry("assumed", f"still running: counted until {told}", 1, 8.0) in found.table()
    gone = pod("gone", 4, 10, None)
    found = recorded([gone, leaving, busy], [BEGIN_S + 30, *moments])
    first = f"{datetime.fromtimestamp(BEGIN_S + 30, UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert f"still running: counted until {first} to {told}" in [one.what for one in found.table()]
    assert {job.name: job.duration_s for job in found.jobs} == {"team/gone": 20, "team/p": 7200}


def test_each_type_of_node_has_the_watts_of_its_server_told() -> None:
    nodes = [
        node("n1", "NVIDIA-H100-80GB-HBM3"),
        node("n2", "NVIDIA-H100-80GB-HBM3", 4),
        node("n3", "Tesla-T4"),
    ]
    found = recorded([*nodes, nodes[0], pod("p", 4, 10, 50)], NOW_S)
    assert [one.what for one in found.entries if one.what.startswith("a node")] == [
        "a node of 4 NVIDIA-H100-80GB-HBM3 without its GPUs draws 750 W",
        "a node of 8 NVIDIA-H100-80GB-HBM3 without its GPUs draws 1500 W",
        "a node of 8 Tesla-T4 without its GPUs draws 200 W",
    ]


def test_a_saved_snapshot_is_imported_like_what_kubectl_prints(tmp_path: Path) -> None:
    items = [node("n1", "A100"), pod("p", 4, 10, None), pod("ended", 4, 10, None)]
    items[2]["status"] |= {"phase": "Succeeded"}
    items[2]["status"]["conditions"] = [{**condition("Ready", 50), "status": "False"}]
    items += [owned(pod("member", 2, 10, 50), "Job", "train"), pod("claims", 0, 10, 50)]
    items[-1]["spec"]["resourceClaims"] = [{"name": "gpu"}]
    jobs = [
        workload("job-train-0a1b2", [("main", 1, 2)], [condition("Admitted", 9), condition("Finished", 50)])
    ]
    save(tmp_path / "s.json", {"time": BEGIN_S + 100.0, "nodes": items[:1], "pods": items[1:]})
    document = json.loads((tmp_path / "s.json").read_text())
    found = recorded([*items_of(document), *jobs], moment_of(document))
    assert found.jobs == recorded([*items, *jobs], BEGIN_S + 100).jobs
    assert {job.duration_s for job in found.jobs} == {90, 40, 41}
    assert found.left_out.total() == 2
    assert "without GPUs that are read, but with resourceClaims" in found.left_out


@pytest.mark.parametrize(
    ("name", "peak", "gpu_h"),
    [
        ("k1_job", {"sweep": 2}, {"sweep": 6}),
        ("k2_kueue", {"job-part": 6}, {"job-part": 12}),
        ("k5_side", {"p-side": 5, "p-init": 4}, {"p-side": 10, "p-init": 8}),
        ("k6_mixed", {"p1": 2, "p2": 4}, {"p1": 4, "p2": 4}),
        ("k8_init", {"stage": 8, "lost": 8, "ok": 4}, {"stage": 16, "lost": 24, "ok": 4}),
    ],
)
def test_reported_inputs(cases_dir: Path, name: str, peak: dict[str, int], gpu_h: dict[str, float]) -> None:
    text = (cases_dir / "kubernetes" / f"{name}.json").read_text()
    found = recorded(items_of(json.loads(text)), NOW_S)
    jobs = {of: held_by(found, f"ml/{of}") for of in peak}
    assert sum(map(len, jobs.values())) == len(found.jobs)
    assert {of: max(held(runs).values()) for of, runs in jobs.items()} == peak
    assert {of: gpu_s(runs) / 3600 for of, runs in jobs.items()} == gpu_h
    base_w = {one.name: one.base_power_w for one in found.cluster.nodes} if found.cluster else {}
    assert base_w == {"g1": 200} | ({"a1": 1500} if name == "k6_mixed" else {})


def test_the_recorded_cluster() -> None:
    found = recorded(items_of(RECORDED), moment_of(RECORDED))
    assert {job.name: job.gpus for job in found.jobs} == {"default/old": 8, "default/theirs": 3}
    assert found.left_out == {"still waiting": 7}


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


@pytest.mark.parametrize("part", ["gpumem", "gpumem-percentage", "gpucores"])
def test_parts_of_gpus_whose_sizes_are_not_read_are_pointed_at(part: str) -> None:
    shared = pod("shared", 1, 10, 50)
    shared["spec"]["containers"][0]["resources"]["limits"][f"nvidia.com/{part}"] = "30"
    told = "1 pod with parts of GPUs (nvidia.com/gpumem, nvidia.com/gpucores): each counts as a whole one"
    for items, there in (([shared], True), ([pod("whole", 1, 10, 50)], False)):
        found = recorded([node("n1", "A100"), *items], NOW_S)
        assert (Entry("doubtful", told) in found.entries) == there


def test_pods_on_nodes_that_no_list_has_are_pointed_at() -> None:
    elsewhere = pod("p", 1, 0, 3600)
    elsewhere["spec"]["nodeName"] = "n9"
    found = recorded([node("n1", "A100"), elsewhere, pod("q", 1, 0, 3600)], NOW_S)
    doubtful = [one.what for one in found.entries if one.treatment == "doubtful"]
    assert doubtful == ["on nodes that no file tells, and the cluster lacks: 'n9' of 1 pod"]
