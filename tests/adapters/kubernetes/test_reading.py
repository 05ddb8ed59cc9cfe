"""What the API says is read as it is; anything else is refused in words."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adapters.trust import ODD
from tests.strategies.effort import examples
from wattsched.adapters.kubernetes.load import Load, load_of
from wattsched.adapters.kubernetes.loop import Policy
from wattsched.adapters.kubernetes.objects import quantity
from wattsched.adapters.kubernetes.options import KubernetesOptions, hosts_of
from wattsched.adapters.kubernetes.plan import round_of
from wattsched.adapters.kubernetes.reading import read, read_node, read_pod
from wattsched.adapters.kubernetes.snapshot import load, save
from wattsched.instances.errors import InputError

RECORDED = Path(__file__).resolve().parents[3] / "examples" / "kubernetes.json"
SNAPSHOT = load(RECORDED)


def test_the_recorded_cluster() -> None:
    site = read(SNAPSHOT)
    nodes = {name: (node.product, node.gpus, node.ready) for name, node in site.nodes.items()}
    assert nodes == {f"gpu-{i}": ("A100-SXM4-40GB", 8, i != 3) for i in range(1, 5)}
    pods = {pod.name: pod for pod in site.pods.values()}
    assert (pods["old"].node, pods["old"].gpus, pods["old"].present) == ("gpu-1", 8, True)
    assert (pods["resnet-0"].gang, pods["resnet-0"].gang_size, pods["resnet-0"].waiting) == (
        "resnet",
        3,
        True,
    )
    assert (pods["theirs"].scheduler, pods["plain"].scheduler) == ("default-scheduler", "wattsched")
    assert pods["plain"].limit_s == pods["plain"].deletion_s == inf


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), (8, 8), ("500m", 0.5), ("512Gi", 512 * 2**30), ("1k", 1e3), ("1.5M", 1.5e6), ("2e3", 2e3)],
)
def test_quantities(text: object, value: float) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "1 Gi", "many", True, None, "1e", "1..2"])
def test_what_is_no_quantity(text: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        quantity(text)


PHASE = st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans())


def with_resources(gpus: int, cpu: int, sidecar: bool = False) -> dict[str, Any]:
    asked = {"requests": {"cpu": str(cpu)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    return {"resources": asked} | ({"restartPolicy": "Always"} if sidecar else {})


@given(st.lists(PHASE, max_size=5), st.lists(PHASE, max_size=3), st.integers(0, 3))
def test_a_pod_needs_the_most_that_runs_at_once_of_each_resource(
    first: list[tuple[int, int, bool]], containers: list[tuple[int, int, bool]], overhead: int
) -> None:
    """One init container after the other beside the sidecars that have started; then all others."""
    moments, sidecars = list[list[tuple[int, int, bool]]](), list[tuple[int, int, bool]]()
    for one in first:
        moments.append([*sidecars, one])
        sidecars += [one] if one[2] else []
    moments.append([*sidecars, *containers])
    spec = {
        "containers": [with_resources(gpus, cpu) for gpus, cpu, _ in containers],
        "initContainers": [with_resources(*one) for one in first],
        "overhead": {"cpu": str(overhead)},
    }
    pod = read_pod({"metadata": {"name": "a"}, "spec": spec})
    most = [max(sum(one[what] for one in running) for running in moments) for what in (0, 1)]
    assert (pod.gpus, pod.needs.get("cpu", 0)) == (most[0], most[1] + overhead)


def test_what_a_pod_states_for_all_of_its_containers_counts_instead() -> None:
    whole = {"requests": {"cpu": "7"}, "limits": {"cpu": "9", "memory": "4Gi"}}
    spec = {"containers": [with_resources(1, 2)], "resources": whole, "overhead": {"cpu": "250m"}}
    pod = read_pod({"metadata": {"name": "a"}, "spec": spec})
    assert (pod.gpus, pod.needs["cpu"], pod.needs["memory"]) == (1, 7.25, 4 * 2**30)


def test_nodes_of_several_vendors_count_and_each_pod_has_gpus_of_its_own() -> None:
    def node(name: str, resource: str, **labels: str) -> dict[str, Any]:
        has = {resource: "8"}
        told = {"capacity": has, "allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]}
        named = {label.replace("_", "/"): text for label, text in labels.items()}
        return {"metadata": {"name": name, "labels": named}, "status": told}

    def pod(name: str, resource: str, **spec: str) -> dict[str, Any]:
        asked = {"resources": {"limits": {resource: "8"}}}
        return {"metadata": {"name": name}, "spec": {"containers": [asked], **spec}, "status": {}}

    nodes = [
        node("n", "nvidia.com/gpu", **{"nvidia.com_gpu.product": "NVIDIA-H100-80GB-HBM3"}),
        node("a", "amd.com/gpu", **{"amd.com_gpu.product-name": "AMD_Instinct_MI300X_OAM"}),
        node("i", "cpu"),
    ]
    pods = [pod("on-a", "amd.com/gpu", nodeName="a"), pod("waits", "nvidia.com/gpu")]
    site = read({"time": 1e9, "nodes": nodes, "pods": pods})
    assert {name: one.gpus for name, one in site.nodes.items()} == {"n": 8, "a": 8}
    load = load_of(
        site, KubernetesOptions(), lambda pod: pod.scheduler == "default-scheduler" and not pod.node
    )
    assert dict(load.used) == {"a": 8}
    assert {load.pools.kind[pool] for pool in load.pools.of_node.values()} == {"H100", "MI300X"}
    both = node("b", "nvidia.com/gpu", **nodes[0]["metadata"]["labels"], **nodes[1]["metadata"]["labels"])
    both["status"]["capacity"] = {"nvidia.com/gpu": "2", "amd.com/gpu": "4"}
    named = {"nvidia.com/gpu": "NVIDIA-H100-80GB-HBM3", "amd.com/gpu": "AMD_Instinct_MI300X_OAM"}
    assert read_node(both).resources == named
    assert read_node(nodes[1], "nvidia.com/gpu.product").product == named["amd.com/gpu"]
    (waiting,) = load.waiting.values()
    assert hosts_of(waiting, load.site.nodes.values()) == {"n"}


def test_a_pod_with_several_kinds_of_a_node_has_some_of_each_and_one_that_is_odd_all_that_is_left() -> None:
    has = {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.5gb": "7"}
    told = {"capacity": has, "allocatable": {**has, "nvidia.com/mig-1g.5gb": "6"}}
    node = {"metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "A100"}}, "status": told}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    both = {"resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "2", "cpu": "3"}}}
    pods = [
        {"metadata": {"name": "both"}, "spec": {"nodeName": "n", "containers": [both]}},
        {"metadata": {"name": "none"}, "spec": {"nodeName": "n", "containers": [{}]}},
        {"metadata": {"name": "waits"}, "spec": {"containers": [both]}},
    ]

    def used(*more: Any) -> tuple[Load, dict[str, int]]:
        snapshot = {"time": 1e9, "nodes": [{**node, "status": told | ready}], "pods": [*pods, *more]}
        load = load_of(read(snapshot), KubernetesOptions(), lambda pod: not pod.node)
        return load, {name: load.free(one) for name, one in load.site.nodes.items()}

    load, free = used()
    assert free == {"n/A100": 1, "n/A100-mig-1g.5gb": 4}
    # Two whole boards and a cut one; one of two, and two slices, at the most.
    assert load.power_w == pytest.approx(200 + 3 * 50 + 350 + 2 * 350 / 7)
    assert load.emptied()._left("n/A100", "cpu") - load._left("n/A100-mig-1g.5gb", "cpu") == 3
    assert "several kinds" in load.waiting["default/waits"].pods[0].odd
    odd = {"metadata": {"name": "odd"}, "spec": {"nodeName": "n", "containers": 1}}
    load, free = used(odd)
    assert free == dict.fromkeys(free, 0)
    assert "default/odd cannot be read" in " ".join(load.site.notes)


def test_saved_snapshots_are_read_again_and_have_no_secrets(tmp_path: Path) -> None:
    snapshot = copy.deepcopy(SNAPSHOT)
    snapshot["pods"][0]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "secret"}]
    snapshot["pods"][0]["metadata"]["annotations"] = {"other": "secret"}
    save(tmp_path / "again.json", snapshot)
    assert "secret" not in (tmp_path / "again.json").read_text()
    again = read(load(tmp_path / "again.json"))
    assert (again.nodes, again.pods.keys()) == (read(SNAPSHOT).nodes, read(SNAPSHOT).pods.keys())


@pytest.mark.parametrize(
    "text", ["[]", "{}", "null", '{"items": 1}', "no JSON", '{"items": [], "time": "1"}']
)
def test_what_is_no_snapshot_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(InputError):
        load(tmp_path / "file.json")


KEYS = st.sampled_from(["key", "operator", "wattsched.io/gang"])
KUBE_ODD = ODD | st.one_of(
    st.sampled_from(["8", "-1", "1e400", '{"gpus": []}', "2026-11-25T12:00:00Z", "1e6"]),
    st.dictionaries(KEYS, st.text(max_size=3), max_size=2),
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """The recorded objects with other values at a few places."""
    snapshot = copy.deepcopy(SNAPSHOT)
    for _ in range(draw(st.integers(1, 3))):
        at: Any = draw(st.sampled_from(snapshot[draw(st.sampled_from(["nodes", "pods"]))]))
        while True:
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not isinstance(at[key], dict | list) or not at[key] or draw(st.integers(0, 3)) == 0:
                break
            at = at[key]
        at[key] = draw(KUBE_ODD)
    return snapshot


@given(mutated())
@settings(max_examples=examples(300), deadline=None)
def test_mutated_objects_are_read_or_refused_in_words(snapshot: Any) -> None:
    policy = Policy(KubernetesOptions())
    with suppress(InputError):
        json.dumps(round_of(load_of(read(snapshot), policy.options, policy.ours)).cluster)
