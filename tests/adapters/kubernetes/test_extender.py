"""The extender: answers by the last decision, and faults that name the field."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.conftest import Client, served
from tests.serve.test_faulty_requests import JSON, damaged, encoded
from wattsched import InputError
from wattsched.adapters.kubernetes.extender import (
    ASKING,
    UNSEEN,
    Extender,
    Opinion,
    filtered,
    preempted,
    prioritised,
    read_args,
    router_of,
    watch,
)
from wattsched.serve.tokens import Tokens, add_token

NAMES = st.lists(st.sampled_from([f"n{i}" for i in range(6)]), unique=True)
OPINIONS = st.sampled_from([None, Opinion(node="n1"), Opinion(node="gone"), Opinion(why="no room")])


def pod(uid: str = "u1", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "uid": uid, "labels": labels or None, "creationTimestamp": None}}


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"capacity": {"cpu": "64"}}}


def ours(found: Any) -> bool:
    return "theirs" not in (found["metadata"].get("labels") or {})


@given(names=NAMES, opinion=OPINIONS, whole=st.booleans())
def test_nodes_pass_or_are_refused_with_why(names: list[str], opinion: Opinion | None, whole: bool) -> None:
    sent = {"Nodes": {"items": [node(n) for n in names]}} if whole else {"nodenames": names, "Nodes": None}
    asked = read_args({"pod": pod(), **sent})
    answer, scores = filtered(asked, opinion), prioritised(asked, opinion)
    passing = [one["metadata"]["name"] for one in answer["Nodes"]["items"]] if whole else answer["NodeNames"]
    assert answer["Error"] == ""
    assert sorted([*passing, *answer["FailedNodes"]]) == sorted(names)
    assert passing == (names if opinion is None else [name for name in names if name == opinion.node])
    assert all("wattsched: " in why for why in answer["FailedNodes"].values())
    assert [one["Host"] for one in scores] == names
    best = opinion.node if opinion else None
    assert all(one["Score"] == (10 if one["Host"] == best else 0) for one in scores)
    if whole:
        assert answer["Nodes"]["items"] == [node(name) for name in passing]


def test_a_late_decision_is_none() -> None:
    now = [0.0]
    extender = Extender(ours, stale_s=10.0, clock=lambda: now[0])
    assert math.isinf(extender.age_s)
    assert extender.opinion(pod()) is None
    extender.publish({"u1": Opinion(node="n1")})
    now[0] = 10.0
    assert extender.opinion(pod()) == Opinion(node="n1")
    assert extender.opinion(pod("new")) is UNSEEN
    assert extender.opinion(pod(theirs="")) is None
    now[0] = 10.1
    assert extender.opinion(pod()) is None
    assert extender.opinion(pod("new")) is None


def test_nobody_is_evicted_for_a_pod_of_ours() -> None:
    extender = Extender(ours, stale_s=10.0)
    extender.publish({})
    meta = {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}
    whole = {"n1": {"Pods": [pod("v")], "NumPDBViolations": 1}}
    for sent in ({"NodeNameToMetaVictims": meta}, {"NodeNameToVictims": whole}):
        assert preempted({"Pod": pod(), **sent}, extender.opinion) == {"NodeNameToMetaVictims": {}}
        theirs = preempted({"Pod": pod(theirs=""), **sent}, extender.opinion)
        assert theirs == {"NodeNameToMetaVictims": meta}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([], "the request must be an object"),
        ({"NodeNames": []}, "Pod: is missing"),
        ({"Pod": {"metadata": {}}, "NodeNames": []}, "Pod.metadata.name: is missing"),
        ({"Pod": pod()}, "NodeNames: is missing, and so is Nodes"),
        ({"Pod": pod(), "NodeNames": [1]}, "NodeNames[0]: must be"),
        ({"Pod": pod(), "Nodes": {"items": [{}]}}, "Nodes.items[0].metadata: is missing"),
    ],
)
def test_a_fault_is_named(document: Any, told: str) -> None:
    with pytest.raises(InputError) as refused:
        read_args(document)
    assert told in str(refused.value)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with the routes, whose last decision has one pod."""
    folder = tmp_path_factory.mktemp("extender")
    extender = Extender(ours, stale_s=1e6)
    extender.publish({"u1": Opinion(node="n1")})
    token = add_token(folder / "tokens", "scheduler", "read")
    options = {"tokens": Tokens(folder / "tokens"), "routers": [router_of(extender)]}
    with served(folder / "j.db", **options, fixed=True, asking=ASKING) as client:
        watch(extender, client.service.metrics)
        client.headers = {"Authorization": "Basic " + b64encode(f"scheduler:{token}".encode()).decode()}
        yield client


def test_it_answers_in_the_service_and_changes_nothing(asked: Client) -> None:
    sent = {"Pod": pod(), "NodeNames": ["n0", "n1"]}
    answer = asked("POST", "/kubernetes/filter", sent)
    assert (answer[0], answer[1]["NodeNames"]) == (200, ["n1"])
    scores = asked("POST", "/kubernetes/prioritize", sent)
    assert scores == (200, [{"Host": "n0", "Score": 0}, {"Host": "n1", "Score": 10}])
    assert asked("PUT", "/v1/sessions/s", {})[0] == 403
    assert b"wattsched_extender_node " in asked("GET", "/metrics")[1]
    nobody = Client(asked.port)
    assert nobody("POST", "/kubernetes/filter", sent)[0] == 401
    nobody.headers = {"Authorization": "Basic no"}
    assert nobody("POST", "/kubernetes/filter", sent)[0] == 401


def test_fixed_sessions_refuse_who_may_write(tmp_path: Path) -> None:
    with served(tmp_path / "j.db", fixed=True) as client:
        assert client("PUT", "/v1/sessions/s", {})[0] == 403
        assert client("GET", "/v1/sessions") == (200, {"sessions": []})


DOCUMENTS = [
    {"Pod": pod(), "NodeNames": ["n0", "n1"], "Nodes": None},
    {"Pod": pod(), "Nodes": {"items": [node("n1")]}},
    {"Pod": pod(theirs=""), "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}}},
    {"Pod": pod(theirs=""), "NodeNameToVictims": {"n": {"Pods": [pod("v")]}}},
]


@given(data=st.data(), path=st.sampled_from(ASKING))
def test_no_question_is_our_fault(asked: Client, data: st.DataObject, path: str) -> None:
    document = data.draw(st.sampled_from(DOCUMENTS))
    body = encoded(data.draw(damaged(document) | JSON))
    status, _, content = asked.whole("POST", path, body)
    assert status in (200, 422), content
    assert b"Traceback" not in content
    if status == 422:
        assert json.loads(content)["error"]
