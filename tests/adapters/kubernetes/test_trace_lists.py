"""Lists of objects are read whatever printed them, or refused by place and name."""

from __future__ import annotations

import copy
from contextlib import suppress
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
from wattsched.adapters.kubernetes.trace import items_of, recorded
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


@pytest.mark.parametrize("kind", [["Node"], {"Node": 1}, None, 7])
def test_what_is_of_no_kind_that_is_read_is_not_looked_at(kind: Any) -> None:
    assert items_of({"items": [{**node("n1", "A100"), "kind": kind}]}) == []
