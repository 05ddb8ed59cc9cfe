"""Pods that run together are one job, and others, of one Job or group, stay what they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.kubernetes.recorded_objects import (
    NOW_S,
    node,
    pod,
    time_of,
)
from tests.adapters.kubernetes.test_trace import held, held_by
from wattsched.adapters.kubernetes.trace import items_of, recorded
from wattsched.adapters.recorded import Recorded
from wattsched.report.imports import Entry, gpu_hours


def test_pods_of_a_gang_are_one_job_and_retries_are_others() -> None:
    pods = [pod("w0", 8, 10, 3000, "train"), pod("w1", 8, 12, 3004, "train")]
    found = recorded([node("n1", "A100"), *pods, pod("retry", 8, 3100, 3200, "train")], NOW_S)
    assert [(job.name, job.gpus, job.duration_s) for job in found.jobs] == [
        ("team/train", 16, 2991),
        ("team/train#2", 8, 100),
    ]
    assert [job.waited_s for job in found.jobs] == [12, 3100]
    assert Entry("noted", "3 runs are 2 jobs: a gang is one") in found.entries
    assert found.cluster is not None
    assert found.cluster.nodes[0].parent == "r1"


def test_pods_of_a_job_that_run_one_after_the_other_are_jobs_of_their_own() -> None:
    """Two at a time, and a third starts whenever one has ended."""
    pods = [pod(f"p{n}", 1, 900 * n, 900 * (n + 2), "sweep") for n in range(6)]
    found = recorded([node("n1", "A100"), *pods], NOW_S)
    assert {(job.gpus, job.duration_s) for job in found.jobs} == {(1, 1800)}
    assert max(held(held_by(found)).values()) == 2
    # Waves of two, each at the same time, are gangs.
    waves = [pod(f"p{n}", 1, 900 * (n // 2), 900 * (n // 2 + 1), "sweep") for n in range(6)]
    found = recorded([node("n1", "A100"), *waves], NOW_S)
    assert [(job.gpus, job.duration_s) for job in found.jobs] == [(2, 900)] * 3


def of_a_gang(*pods: dict[str, Any]) -> list[dict[str, Any]]:
    for one in pods:
        one["metadata"]["labels"] = {"training.kubeflow.org/job-name": "llm"}
    return [node("n1", "A100"), *pods]


def test_pods_of_a_group_of_a_leader_worker_set_are_one_job() -> None:
    pods = [pod(f"lws-{group}-{n}", 4, 0, 3600) for group in range(2) for n in range(3)]
    for place, one in enumerate(pods):
        about = {"name": "lws", "group-index": str(place // 3), "worker-index": str(place % 3)}
        one["metadata"]["labels"] = {
            f"leaderworkerset.sigs.k8s.io/{key}": text for key, text in about.items()
        }
    found = recorded([node("n1", "A100"), *pods], NOW_S)
    assert [(job.name, job.gpus) for job in found.jobs] == [("team/lws-0", 12), ("team/lws-1", 12)]


def noted(found: Recorded) -> list[str]:
    return [one.what for one in found.entries if "gang" in one.what]


def test_a_gang_is_one_job_from_when_its_last_pod_began() -> None:
    found = recorded(of_a_gang(pod("w0", 8, 0, 7200), pod("w1", 8, 600, 7200)), NOW_S)
    ((job),) = found.jobs
    assert (job.gpus, job.waited_s, gpu_hours(found.jobs)) == (16, 600, pytest.approx(8 * 13_800 / 3600))
    assert noted(found)[0].startswith("1 gang whose pods began apart: one job from when the last pod began")
    # A pod that takes the place of a lost one is no job of its own, though it never ran beside that.
    workers = [pod("w0", 8, 0, 9000), pod("w1", 8, 0, 4000), pod("w1-again", 8, 4300, 9000)]
    found = recorded(of_a_gang(*workers), NOW_S)
    assert [(job.gpus, job.waited_s) for job in found.jobs] == [(16, 0)]
    assert gpu_hours(found.jobs) == pytest.approx(8 * 17_700 / 3600)
    assert noted(found) == ["3 runs are 1 job: a gang is one"]


@pytest.mark.parametrize("group", ["gang", "job"])
def test_pods_that_overlap_and_are_no_job_together_are_told(group: str) -> None:
    pods = [pod("w0", 8, 0, 7000, "sweep"), pod("w1", 8, 6000, 9000, "sweep")]
    found = recorded(of_a_gang(*pods) if group == "gang" else [node("n1", "A100"), *pods], NOW_S)
    assert held_by(found) == [(8, 0, 7000), (8, 6000, 9000)]
    assert noted(found) == ["1 gang whose pods did not run at the same time count as separate jobs"]
    after = [pod("w0", 8, 0, 7000, "sweep"), pod("w1", 8, 7000, 9000, "sweep")]
    assert noted(recorded([node("n1", "A100"), *after], NOW_S)) == []


def test_a_pod_of_a_job_whose_earlier_pods_are_gone_waits_since_it_was_made() -> None:
    def job(**status: Any) -> dict[str, Any]:
        metadata = {"name": "retry", "namespace": "team", "creationTimestamp": time_of(0)}
        return {"kind": "Job", "metadata": metadata, "status": {"startTime": time_of(0), **status}}

    def of_job(
        status: dict[str, Any], *pods: tuple[str, int, int, int]
    ) -> tuple[list[float | None], list[str]]:
        made = [pod(name, 4, start_s, end_s, "retry") for name, _, start_s, end_s in pods]
        for one, (_, created_s, *_) in zip(made, pods, strict=True):
            one["metadata"]["creationTimestamp"] = time_of(created_s)
        items = items_of({"items": [node("n1", "A100"), job(**status), *made]})
        found = recorded(items, NOW_S)
        told = [one.what for one in found.entries if one.treatment == "doubtful"]
        return [one.waited_s for one in found.jobs], told

    last, first = ("z", 5000, 5010, 9000), ("a", 5, 300, 4000)
    gone = "earlier runs are missing, with their GPU hours: {} of 1 Job"
    assert of_job({"failed": 2, "succeeded": 1}, last) == ([10], [gone.format("2 pods")])
    assert of_job({"failed": 2, "active": 1}, last) == ([10], [gone.format("2 pods")])
    assert of_job({"succeeded": 3}, last) == ([10], [gone.format("2 pods")])
    assert of_job({"failed": 1, "succeeded": 1}, first, last) == ([300, 10], [])
    assert of_job({"failed": 2, "succeeded": 1}, first, last) == ([300, 10], [gone.format("1 pod")])
    # Without missing pods it was the Job that waited, such as for a quota of pods.
    assert of_job({"succeeded": 1, "failed": None}, last) == ([5010], [])
