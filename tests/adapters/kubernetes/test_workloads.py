"""Workloads of Kueue become jobs of the pods that were admitted, and their pods count once."""

from __future__ import annotations

from typing import Any

import pytest

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
from wattsched.adapters.kubernetes.trace import items_of, recorded
from wattsched.report.imports import Entry, gpu_hours


def test_workloads_of_kubernetes_itself_are_none_of_kueue() -> None:
    other = {"kind": "Workload", "apiVersion": "scheduling.k8s.io/v1alpha1", "metadata": {"name": "w"}}
    found = recorded(items_of({"items": [other, pod("p", 4, 10, 50)]}), NOW_S)
    assert [job.name for job in found.jobs] == ["team/p"]


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
    mine = owned(pod("p", 4, 100, 400), "Job", "done")
    found = recorded(
        [*nodes, *(owned(one, "Job", one["metadata"]["name"]) for one in workloads), mine], NOW_S
    )
    (job,) = found.jobs
    assert (job.name, job.gpus, job.submitted_s, job.duration_s) == ("team/done", 16, BEGIN_S, 300)
    assert (job.gpu_type, job.user, job.account) == ("NVIDIA-H100-80GB-HBM3", "lq", "team")
    assert found.ended == {"succeeded": 1}
    assert found.left_out == {"still waiting": 1, "pods of workloads, which are counted instead": 1}
    assert found.cluster is not None
    assert found.cluster.gpu_types["NVIDIA-H100-80GB-HBM3"].profile == "H100"
    assert found.cluster.gpu_types["NVIDIA-H100-80GB-HBM3"].max_power_w == 700


def test_of_a_workload_count_the_pods_that_were_admitted() -> None:
    done = [condition("Admitted", 100), condition("Finished", 400)]
    assigned = [{"name": "workers", "count": 3, "resourceUsage": {"nvidia.com/gpu": "6"}}, {"name": "head"}]
    partial = workload("partial", [("head", 1, 1), ("workers", 8, 2)], done)
    partial["status"]["admission"] = {"podSetAssignments": assigned}
    none = workload("none", [("main", 4, 2)], done, admission={"podSetAssignments": [{"count": 0}]})
    running = workload("running", [("main", 4, 2)], done[:1], reclaimablePods=[{"name": "main", "count": 1}])
    found = recorded([partial, none, running], BEGIN_S + 500)
    assert {job.name: job.gpus for job in found.jobs} == {"team/partial": 7, "team/running": 8}
    assert found.left_out == {"without GPUs": 1}
    told = "of 1 workload, pods that have ended count as long as the others"
    assert Entry("assumed", told) in found.entries


@pytest.mark.parametrize("spelt", ["Exexcution", "Execution"])
def test_what_a_workload_ran_before_it_was_evicted_is_left_out_and_told(spelt: str) -> None:
    """Kueue keeps the sum of the earlier admissions, at first under a misspelt name."""
    past = {f"accumulatedPast{spelt}TimeSeconds": 300}
    off = {**condition("Evicted", 450), "status": "False"}
    back = [condition("Admitted", 500), off, condition("Finished", 900)]
    waits = [{**condition("Admitted", 450), "status": "False"}, condition("Evicted", 440, "Preempted")]
    old = [condition("Admitted", 500), condition("Evicted", 440), condition("Finished", 900)]
    items = [
        workload("back", [("main", 2, 4)], back, **past),
        workload("waits", [("main", 2, 4)], waits, **past),
        workload("old", [("main", 2, 4)], old),
        workload("never admitted", [("main", 2, 4)], [condition("Evicted", 440, "Deactivated")]),
    ]
    found = recorded([node("n1", "A100"), *items], NOW_S)
    assert {job.name: job.duration_s for job in found.jobs} == {"team/back": 400, "team/old": 400}
    assert found.left_out == {"still waiting": 2, "before an eviction": 3}
    assert found.gpu_h["before an eviction"] == 2 * 8 * 300 / 3600
    assert {job.name: job.waited_s for job in found.jobs} == {"team/back": 200, "team/old": 500}
    told = "waits of 1 evicted workload have the earlier runs in them"
    assert Entry("assumed", told) in found.entries


def test_nodes_that_came_later_are_told_to_count_all_of_the_time() -> None:
    nodes = [node("n1", "A100"), node("n2", "A100")]
    for one, made_s in zip(nodes, (-1000, 5000), strict=True):
        one["metadata"]["creationTimestamp"] = time_of(made_s)
    told = "1 node made after the first job came: in the cluster all of the time, as replays know no others"
    assert Entry("assumed", told) in recorded([*nodes, pod("a", 1, 100, 3700)], NOW_S).entries


def test_pods_of_no_workload_are_jobs_beside_the_workloads() -> None:
    def labelled(name: str, **labels: str) -> dict[str, Any]:
        made = pod(name, 1, 100, 3700)
        made["metadata"]["labels"] = {
            f"kueue.x-k8s.io/{label.replace('_', '-')}": of for label, of in labels.items()
        }
        return made

    done = [condition("Admitted", 100), condition("Finished", 3700)]
    names = ("job-train-0a1b2", "jobset-sweep-1a2b3", "group", "pod-own-2a3b4")
    workloads = [workload(name, [("main", 2, 1)], done) for name in names]
    sweep = owned(pod("sweep-0", 1, 100, 3700), "Job", "sweep-workers-0")
    sweep["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "sweep"}
    own = pod("own", 1, 100, 3700)
    own["metadata"]["uid"] = "Pod-own"
    elsewhere = owned(pod("elsewhere", 3, 100, 3700), "Job", "train")
    elsewhere["metadata"]["namespace"] = "other"
    pods = [
        owned(pod("train-0", 1, 100, 3700), "Job", "train"),
        sweep,
        labelled("member", pod_group_name="group"),
        own,
        labelled("lost", queue_name="lq"),
        owned(pod("alone", 4, 100, 3700), "Job", "alone"),
        pod("train", 2, 100, 3700),
        elsewhere,
    ]
    workloads[1], workloads[3] = owned(workloads[1], "JobSet", "sweep"), owned(workloads[3], "Pod", "own")
    found = recorded([node("n1", "A100", 16), *workloads, *pods], NOW_S)
    counts = {job.name: job.gpus for job in found.jobs}
    assert counts == dict.fromkeys((f"team/{name}" for name in names), 2) | {
        "team/alone": 4,
        "team/train": 2,
        "other/elsewhere": 3,
    }
    assert Entry("left out", "pods of workloads, which are counted instead", 4, 4.0) in found.table()
    assert (
        Entry("left out", "pods with labels of Kueue, but of no workload that is given", 1, 1.0)
        in found.table()
    )


def job(name: str, made_s: float, gpus: int, **status: Any) -> dict[str, Any]:
    """A Job of one pod that was made so many seconds after the beginning."""
    metadata = {"name": name, "namespace": "team", "creationTimestamp": time_of(made_s)}
    template = {"spec": {"containers": [container(gpus)]}}
    return {"kind": "Job", "metadata": metadata, "spec": {"template": template}, "status": status}


def test_pods_of_a_job_wait_since_it_was_made_and_jobs_without_pods_are_told() -> None:
    first, again = pod("train-1", 1, 3600, 7200), pod("train-2", 1, 9000, 9600)
    for one, made_s in ((first, 3600), (again, 9000)):
        one["metadata"] |= {"labels": {"job-name": "train"}, "creationTimestamp": time_of(made_s)}
    failed = [{"type": "Failed", "status": "True", "lastTransitionTime": time_of(7300)}]
    gone = job("gone", 0, 8, startTime=time_of(100), conditions=failed)
    found = recorded([first, again, job("train", 0, 1), gone, job("waits", 0, 8)], NOW_S)
    waits = {one.name: one.waited_s for one in found.jobs}
    assert (max(waits.values()) >= 3600, min(waits.values()) < 60) == (True, True)
    assert (found.left_out, found.gpu_h["Jobs whose pods are gone"]) == ({"Jobs whose pods are gone": 1}, 16)


def test_slices_of_several_types_in_one_workload_count_by_their_shares() -> None:
    limits = {"nvidia.com/mig-3g.20gb": "1", "nvidia.com/mig-1g.5gb": "4"}
    n1 = node("n1", "NVIDIA-A100-SXM4-40GB")
    n1["status"] = {**n1["status"], "capacity": limits, "allocatable": limits}
    spec = {"template": {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}}
    ran = {
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team", "creationTimestamp": time_of(0)},
        "spec": {"queueName": "lq", "podSets": [{"count": 1, **spec}]},
        "status": {"conditions": [condition("Admitted", 0), condition("Finished", 7200, "Succeeded")]},
    }
    found = recorded([n1, ran], NOW_S)
    assert gpu_hours(found.jobs) == pytest.approx(2.0)
    assert sorted(job.gpus for job in found.jobs) == [1, 4]
    assert any("GPUs of several kinds at once: one job for each" in one.what for one in found.entries)
