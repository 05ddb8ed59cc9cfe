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
from wattsched.adapters.kubernetes.load import load_of
from wattsched.adapters.kubernetes.loop import Policy
from wattsched.adapters.kubernetes.objects import quantity
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.plan import round_of
from wattsched.adapters.kubernetes.reading import read, read_pod
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


def test_what_a_pod_needs_is_that_of_its_containers_or_of_the_largest_before_them() -> None:
    def container(cpu: str, **other: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": "1"}}, **other}

    spec = {
        "containers": [container("1"), container("500m")],
        "initContainers": [container("4"), container("1", restartPolicy="Always")],
        "overhead": {"cpu": "250m"},
    }
    pod = read_pod({"metadata": {"name": "a"}, "spec": spec})
    assert (pod.needs["cpu"], pod.gpus) == (4.25, 3)


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
