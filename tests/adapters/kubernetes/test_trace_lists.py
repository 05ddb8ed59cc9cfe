"""Lists of objects are read whatever printed them, or refused by place and name."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.kubernetes.recorded_objects import (
    NOW_S,
    condition,
    container,
    node,
    pod,
    workload,
)
from wattsched.adapters.kubernetes.snapshot import load
from wattsched.adapters.kubernetes.trace import items_of, missing_of, recorded
from wattsched.instances.errors import InputError


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


def test_times_without_a_zone_are_refused() -> None:
    one = pod("p", 2, 1, 5)
    one["status"]["startTime"] = "2027-01-15T08:00:01"
    with pytest.raises(
        InputError, match=r"startTime: must be a time with its zone, got '2027-01-15T08:00:01'"
    ):
        items_of({"items": [one]})


def test_lists_that_name_their_kind_once_are_read() -> None:
    """The API itself, as ``kubectl get --raw /api/v1/pods`` prints it, has no kind in its items."""
    items = [
        node("n1", "A100"),
        pod("a", 2, 10, 50),
        workload("w", [("main", 1, 4)], [condition("Admitted", 9)]),
    ]
    lists = [{"kind": f"{item.pop('kind')}List", "apiVersion": "v1", "items": [item]} for item in items]
    assert [item["kind"] for one in lists for item in items_of(one)] == ["Node", "Pod", "Workload"]
    other = {**lists[2], "apiVersion": "scheduling.k8s.io/v1alpha1"}
    assert items_of(other) == [], "these workloads are none of Kueue"


@pytest.mark.parametrize("kind", [["Node"], {"Node": 1}, 7])
def test_an_item_whose_kind_is_no_text_is_refused_by_its_number(kind: Any) -> None:
    with pytest.raises(InputError, match=r"items\[1\]: has no kind"):
        items_of({"items": [node("n1", "A100"), {**node("n2", "A100"), "kind": kind}]})


@pytest.mark.parametrize("own", [{}, {"kind": "List"}, {"kind": None}])
def test_pods_and_nodes_without_a_kind_are_recognised_and_others_refused(own: Any) -> None:
    items = [node("n1", "A100"), pod("a", 2, 10, 50), {**pod("b", 2, 10, 50), "kind": None}]
    bare = [{key: part for key, part in one.items() if key != "kind"} for one in items]
    assert [one["kind"] for one in items_of({**own, "items": bare})] == ["Node", "Pod", "Pod"]
    claim = {"metadata": {"name": "c", "namespace": "team"}, "status": {"capacity": {"storage": "1Gi"}}}
    with pytest.raises(InputError, match=r"items\[3\]: has no kind, and is neither a pod nor a node"):
        items_of({**own, "items": [*bare, claim]})


def test_lists_that_no_later_page_completes_are_pointed_at() -> None:
    def missing(pages: list[Any]) -> list[str]:
        return list(missing_of(pages))

    def page(items: int, left: int | None, kind: str = "Pod", version: str = "9") -> dict[str, Any]:
        about = (
            {} if left is None else {"continue": "eyJ2Ijoi", **({"remainingItemCount": left} if left else {})}
        )
        return {
            "kind": f"{kind}List",
            "metadata": {"resourceVersion": version} | about,
            "items": [{}] * items,
        }

    assert missing([page(2, 3)]) == ["a PodList breaks off before its last page: 3 items missing"]
    assert missing([page(2, 0)]) == [
        "a PodList breaks off before its last page: an unknown number of items missing"
    ]
    assert missing([page(2, 3), page(2, 1)]) == ["a PodList breaks off before its last page: 1 item missing"]
    assert missing([page(2, 3), page(1, None)]) == [
        "a PodList breaks off before its last page: 2 items missing"
    ]
    for whole in ([page(1, None), page(2, 1)], [page(2, 0), page(1, None)], [page(5, None)]):
        assert missing(whole) == []
    other = [page(2, 3), page(3, None, version="10"), page(3, None, kind="Node")]
    assert len(missing(other)) == 1, "pages of other lists complete none"


def test_keys_in_snake_case_are_refused() -> None:
    """The Python client's ``to_dict()`` renames the API's keys, and pods would be without nodes and ends."""
    one = pod("a", 2, 10, 50)
    one["metadata"]["creation_timestamp"] = one["metadata"].pop("creationTimestamp")
    for items in ([one], [{**one, "kind": None}], [{"api_version": None, **pod("a", 2, 10, 50)}]):
        with pytest.raises(InputError, match=r"items\[0\]: has keys in snake_case.* camelCase"):
            items_of({"kind": "PodList", "items": items})


def test_a_snapshot_has_the_pods_and_nodes_that_name_no_kind(tmp_path: Path) -> None:
    items = [{**one, "kind": None} for one in (node("n1", "A100"), pod("a", 2, 10, 50))]
    (tmp_path / "s.json").write_text(json.dumps({"items": items}))
    found = load(tmp_path / "s.json")
    assert [len(found[of]) for of in ("nodes", "pods")] == [1, 1]
