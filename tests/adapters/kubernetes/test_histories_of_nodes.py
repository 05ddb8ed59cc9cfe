"""Slices, nodes that change between two exports, and exports of two clusters: read rightly, or told."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from tests.adapters.kubernetes.recorded_objects import (
    BEGIN_S,
    NOW_S,
    condition,
    cut,
    made,
    node,
    owned,
    pod,
    workload,
)
from tests.strategies.effort import examples
from wattsched.adapters.kubernetes.trace import items_of, recorded
from wattsched.adapters.recorded import Recorded
from wattsched.instances.errors import InputError
from wattsched.report.imports import gpu_hours

A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"
SHARES = {"gpu": 1, "s1g_10gb": Fraction(1, 7), "s2g_20gb": Fraction(2, 7), "s3g_40gb": Fraction(3, 7)}
HOUR_S = 3600


def imported(*lists: tuple[int, list[Any]]) -> Recorded:
    """Record of lists, each with the second when it was made."""
    items = [(BEGIN_S + at_s, one) for at_s, own in lists for one in items_of({"items": own})]
    return recorded([one for _, one in items], [at_s for at_s, _ in items])


def told(found: Recorded, treatment: str) -> str:
    return "; ".join(one.what for one in found.table() if one.treatment == treatment)


@pytest.mark.parametrize("seed", range(examples(50)))
def test_gpu_hours_are_those_of_the_shares_whatever_slices_are_of(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [cut(node(f"n{k}", rng.choice([A100, H100])), **dict.fromkeys(SHARES, 14)) for k in (1, 2)]
    pods, hours, slices, mixed = [], Fraction(0), Fraction(0), False
    for number in range(6):
        asked = {name: rng.randint(1, 7) for name in rng.sample(list(SHARES), rng.randint(1, 2))}
        group = rng.choice(["", "gang"])
        mixed |= len(asked) > 1
        pods.append(cut(pod(f"p{number}", 1, 0, HOUR_S, group), **asked))
        pods[-1]["spec"]["nodeName"] = rng.choice(["n1", "n2", "gone"])
        hours += sum(SHARES[name] * gpus for name, gpus in asked.items())
        slices += sum(gpus for name, gpus in asked.items() if name != "gpu")
    found = recorded(items_of({"items": [*nodes, *pods]}), NOW_S)
    assert gpu_hours(found.jobs) == pytest.approx(float(hours))
    assert sum(job.gpus for job in found.jobs if "mig" in (job.gpu_type or "")) == slices
    assert ("GPUs of several kinds at once: one job for each" in told(found, "noted")) >= mixed


@pytest.mark.parametrize("boards", [[A100], [A100, H100]])
def test_a_workload_of_slices_counts_by_their_share(boards: list[str]) -> None:
    nodes = [cut(node(f"n{k}", board), s1g_10gb=7) for k, board in enumerate(boards)]
    one = workload("w", [("main", 7, 1)], [condition("Admitted", 0), condition("Finished", 2 * HOUR_S)])
    (own,) = one["spec"]["podSets"]
    own["template"]["spec"] = cut(pod("p", 1, None, None), s1g_10gb=1)["spec"]
    found = recorded([*nodes, one], NOW_S)
    assert gpu_hours(found.jobs) == pytest.approx(2)
    assert ("several boards" in told(found, "assumed")) == (len(boards) > 1)


def test_slices_that_no_node_has_are_left_out_with_their_hours() -> None:
    pods = [cut(pod("p0", 1, 0, HOUR_S), s1g_10gb=7), pod("p1", 2, 0, HOUR_S)]
    found = recorded([node("n1", A100), *pods], NOW_S)
    assert [job.name for job in found.jobs] == ["team/p1"]
    assert found.gpu_h["on slices '1g.10gb', which no node has"] == pytest.approx(1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_pods_have_what_their_node_had_when_they_ran(single: bool, reverse: bool) -> None:
    before = made(node("n1", A100), "n", 0, 100)
    after = made(node("n1", f"{A100}-MIG-1g.10gb", 56), "n", 0, 200)
    after = after if single else cut(made(node("n1", A100), "n", 0, 200), gpu=0, s1g_10gb=56)
    whole = made(pod("whole", 8, 0, 2 * HOUR_S), "w", 0, 90)
    part = pod("part", 7, 3 * HOUR_S, 5 * HOUR_S)
    part = made(part if single else cut(part, s1g_10gb=7), "p", 3 * HOUR_S, 190)
    lists = [(2 * HOUR_S, [before, whole]), (5 * HOUR_S, [after, whole, part])]
    found = imported(*(reversed(lists) if reverse else lists))
    assert {job.name: job.gpus for job in found.jobs} == {"team/whole": 8, "team/part": 7}
    assert gpu_hours(found.jobs) == pytest.approx(18)
    assert "1 node with other GPUs in an earlier list" in told(found, "assumed")
    assert "GPU type not clear" in told(found, "doubtful")


def test_a_pod_that_runs_when_a_list_is_made_has_what_that_list_says() -> None:
    single = made(node("n1", f"{A100}-MIG-1g.10gb", 56), "n", 0, 100)
    whole = made(node("n1", A100), "n", 0, 200)
    pods = [pod("p", 7, 0, 4 * HOUR_S), pod("q", 8, 4 * HOUR_S, 5 * HOUR_S)]
    found = imported((HOUR_S, [single]), (5 * HOUR_S, [whole, *pods]))
    assert [job.name for job in found.jobs] == ["team/q"]
    assert found.gpu_h["on slices 'NVIDIA-A100-SXM4-80GB-MIG-1g.10gb', which no node has"] == 4


def test_more_gpus_than_any_list_of_a_node_has_are_counted_and_pointed_at() -> None:
    found = recorded([cut(node("n1", A100), s1g_10gb=56), pod("whole", 8, 0, 2 * HOUR_S)], NOW_S)
    assert gpu_hours(found.jobs) == 16
    assert "without GPUs" not in told(found, "left out")
    assert "1 pod with other GPUs, or more" in told(found, "doubtful")


def test_nodes_that_later_lists_lack_are_told() -> None:
    first, second = (made(node(name, H100), name) for name in ("spot-1", "spot-2"))
    jobs = made(pod("a", 8, 0, 60), "a"), made(pod("b", 8, 300, 600), "b")
    for one, of in zip(jobs, ("spot-1", "spot-2"), strict=True):
        one["spec"]["nodeName"] = of
    found = imported((100, [first, jobs[0]]), (900, [second, jobs[1]]))
    assert "1 node that later lists lack: in the cluster all of the time" in told(found, "assumed")
    assert "lack" not in told(imported((100, [first, jobs[0]]), (900, [first, second])), "assumed")


@pytest.mark.parametrize(
    "labels",
    [
        {"ray.io/cluster": "rj-x9k2l", "ray.io/originated-from-cr-name": "rj"},
        {"ray.io/cluster": "rj-x9k2l"},
        {"ray.io/cluster": "rj-raycluster-x9k2l"},
    ],
)
def test_pods_of_a_ray_cluster_are_of_the_workload_of_its_ray_job(labels: dict[str, str]) -> None:
    ended = [condition("Admitted", 0), condition("Finished", HOUR_S)]
    row = owned(workload("rayjob-rj-1a2b3", [("w", 1, 2)], ended), "RayJob", "rj")
    worker = owned(pod("rj-x9k2l-worker-0", 2, 0, HOUR_S), "RayCluster", labels["ray.io/cluster"])
    worker["metadata"]["labels"] = labels
    found = recorded([node("n1", A100), row, worker], NOW_S)
    assert [(job.name, job.gpus) for job in found.jobs] == [("team/rayjob-rj-1a2b3", 2)]
    assert "twice" not in told(found, "doubtful")


@pytest.mark.parametrize(("begin_s", "doubtful"), [(20, True), (900, False)])
def test_pods_of_no_workload_beside_a_workload_without_pods_are_pointed_at(
    begin_s: int, doubtful: bool
) -> None:
    ended = [condition("Admitted", 0), condition("Finished", HOUR_S)]
    row = owned(workload("own-1", [("w", 1, 2)], ended), "Own", "one")
    found = recorded([node("n1", A100), row, pod("other-0", 2, begin_s, HOUR_S)], NOW_S)
    assert len(found.jobs) == 2
    assert ("count twice" in told(found, "doubtful")) == doubtful


@pytest.mark.parametrize("kind", ["Node", "Pod", "Job", "Workload"])
def test_two_of_a_name_at_the_same_time_are_of_two_clusters(kind: str) -> None:
    job = {"kind": "Job", "metadata": {"name": "j", "namespace": "team"}, "spec": {}, "status": {}}
    one = {
        "Node": node("n1", A100),
        "Pod": pod("p", 2, 0, HOUR_S),
        "Job": job,
        "Workload": workload("w", [("main", 1, 2)], [condition("Admitted", 0)]),
    }[kind]
    used = (NOW_S - BEGIN_S, [pod("other", 2, 0, HOUR_S)])
    east, west = made(one, "east", 0), made(one, "west", 120)
    for lists in ([(HOUR_S, [east]), (60, [east])], [(60, [east]), (HOUR_S, [east])]):
        with pytest.raises(InputError, match=f"{kind} '.*': there are two at the same time, with the uids"):
            imported(*lists, (HOUR_S, [west]), used)
    # One that was made after the other was gone is another of the same cluster.
    imported((HOUR_S, [made(one, "old", 0)]), (3 * HOUR_S, [made(one, "new", 2 * HOUR_S)]), used)


def test_without_a_time_of_creation_nothing_waited() -> None:
    missing, known = pod("p0", 2, 60, HOUR_S), pod("p1", 2, 60, HOUR_S)
    missing["metadata"]["creationTimestamp"] = None
    row = workload("w", [("main", 1, 2)], [condition("Admitted", 60), condition("Finished", HOUR_S)])
    row["metadata"]["creationTimestamp"] = None
    found = recorded([node("n1", A100), missing, known, row], NOW_S)
    waits = {job.name: (job.submitted_s - BEGIN_S, job.waited_s) for job in found.jobs}
    assert waits == {"team/p0": (60, 0), "team/p1": (0, 60), "team/w": (60, 0)}
    assert "2 runs without a time of creation" in told(found, "assumed")


@pytest.mark.parametrize(
    "label", ["k8s.amazonaws.com/accelerator", "kubernetes.azure.com/accelerator", "accelerator"]
)
@pytest.mark.parametrize(("text", "kind"), [("nvidia-tesla-v100", "V100"), ("nvidia", None)])
def test_labels_of_providers_name_gpus_if_they_name_a_model(label: str, text: str, kind: str | None) -> None:
    bare = node("n1", "")
    bare["metadata"]["labels"] = {label: text}
    found = recorded([bare, pod("p", 2, 0, HOUR_S)], NOW_S)
    assert found.cluster is not None
    (known,) = found.cluster.gpu_types.values()
    assert known.profile == (kind or "A100")
    assert ("'gpu' is not known" in told(found, "assumed")) == (kind is None)
