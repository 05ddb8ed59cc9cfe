"""Whatever is sent, the answer names what is wrong, and it is never our fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples

from .conftest import Client
from .victim import CLUSTER, DOCUMENT, TABLE

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just(10**400),
    st.sampled_from([-1, 0, 1e308, "\ud800", "\x00", "a/b", "é" * 300, [], {}, [[]], {"a": {"a": []}}]),
)  # fmt: skip
JSON = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """A document with some part of it replaced, left out or added."""
    if isinstance(document, dict) and document and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(document)))
        match draw(st.integers(0, 3)):
            case 0:
                return {name: value for name, value in document.items() if name != key}
            case 1:
                return {**document, draw(st.text(max_size=5)): draw(JSON)}
        return {**document, key: draw(damaged(document[key]))}
    if isinstance(document, list) and document and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(document) - 1))
        return [*document[:place], draw(damaged(document[place])), *document[place + 1 :]]
    return draw(JSON)


JOBS = {
    "jobs": [
        {"name": "a", "options": TABLE, "weight": 2.0, "restart_s": 1.0, "preemptible": True},
        {"name": "b", "options": "t", "current": {"gpus": 1, "pool": "A", "nodes": {"n0": [0]}}},
        {"name": "c", "model": "resnet50", "remaining_work": 5.0},
    ]
}
UPDATE = {
    "power_w": 5e3, "round_s": 60.0, "objective": "goodput", "down": ["n0"], "up": ["n1"], "scope": "round",
    "reserved_w": {"n2": 5.0}, "unavailable": {"n3": [0]}, "cluster": CLUSTER, "carbon_g": 1.0,
    "tenants": {"x": {"gpus": 2, "energy_j": 1e6, "carbon_g": 5.0}},
    "signal": {"limits": [{"from": "2027-01-31T17:00Z", "power_w": 3e3}]}, "now": "2027-01-31T17:00Z",
}  # fmt: skip
SOLVE = {
    "jobs": [{"name": "d", "options": "t"}], "remove": ["a"],
    "deadline_s": 0.2, "gap": 1e-3, "prove": 0, "apply": True,
}  # fmt: skip
BODIES = {
    ("PUT", ""): {
        **{**DOCUMENT, "every_s": 1e5, "capacity": "nodes", "change_cost": 1.0, "solver": "auto"},
        "tenants": {"x": {"gpus": 2, "energy_j": 1e6}},
    },
    ("PUT", "/jobs"): JOBS,
    ("DELETE", "/jobs"): {"ids": ["a", "b"]},
    ("PATCH", ""): UPDATE,
    ("POST", "/solve"): SOLVE,
}
PATHS = [
    *("", "/jobs", "/solve", "/rounds", "/rounds/1", "/rounds/1/apply", "/cancel", "/report", "/a%2Fb"),
    *("/%00", "/rounds/x/result", "/rounds/1/instance", "/rounds/99999999999999999999999", "/jobs?most=-1"),
    *("/jobs?first=1e9", "/jobs?first=9999999999", "/report?most=%C3"),
]


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None]:
    name = draw(st.sampled_from(["s", "s", "s", "none", "%ff", "a%20b", "..", "%0a", "x" * 300]))
    if draw(st.booleans()):
        method, path = draw(st.sampled_from(sorted(BODIES)))
        if path == "" and method == "PUT":
            name = draw(st.sampled_from(["s", "u", "%F0%9F%98%80"]))
        body = encoded(draw(damaged(BODIES[method, path])))
    else:
        method = draw(st.sampled_from(["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "NIX"]))
        path = draw(st.sampled_from(PATHS))
        body = draw(st.none() | st.binary(max_size=20) | JSON.map(encoded))
    if body and draw(st.integers(0, 5)) == 0:
        place = draw(st.integers(0, len(body) - 1))
        body = body[:place] + draw(st.binary(max_size=3)) + body[place + 1 :]
    return method, f"/v1/sessions/{name}{path}".encode().decode("ascii", "ignore"), body


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=requests())
def test_no_request_is_our_fault(shared: Client, request: tuple[str, str, bytes | None]) -> None:
    if request[1] != "/v1/sessions/s":
        shared("PUT", "/v1/sessions/s", DOCUMENT)
    status, _, content = shared.whole(*request)
    assert status < 500 or (status == 503 and b" time" in content), content
    assert b"Traceback" not in content
    if status == 422:
        assert json.loads(content)["error"]


BROKEN_JOBS = [
    (b"\xff\xfe{", "UTF-16"),
    (b'{"jobs": [\xff]}', "not UTF-8"),
    (b'{"jobs": [{"name": "a", "weight": NaN}]}', "NaN is no number"),
    (b'{"jobs": [], "jobs": []}', "the key 'jobs' more than once"),
    (b"[" * 100_000, "nested too deeply"),
    (b"", "is empty"),
    (b'{"jobs": [{"name": "a", "weight": 1e999, "options": "t"}]}', "jobs[0].weight: must be"),
    (b'{"jobs": [{"name": "a", "weight": 1' + b"0" * 5000 + b', "options": "t"}]}', "jobs[0].weight"),
    (b'{"jobs": [{"name": "\\ud800", "options": "t"}]}', "jobs[0].name: holds a character that is not valid"),
    (b'{"jobs": [{"name": "a", "wieght": 1}]}', "jobs[0].wieght: is not a known field"),
    (b'{"jobs": {"name": "a"}}', "jobs: must be a list"),
    (b'{"jobs": [{"name": "a", "options": "t", "current": {"gpus": 1}}]}', "current.pool: is missing"),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        *(("PUT", "/jobs", body, told) for body, told in BROKEN_JOBS),
        *(("POST", "/solve", {"deadline_s": odd}, "deadline_s: must be a positive number of")
          for odd in (0, -1, "x", True, [])),
        ("GET", "/jobs?firts=2&most=5", None, "firts: is not a known parameter"),
        ("GET", "/jobs?most=5&most=6", None, "most: is there 2 times"),
        ("GET", "/jobs?most=0", None, "most: must be greater than or equal to 1, got '0'"),
        ("POST", "/solve?apply=true", {}, "apply: is not a known parameter"),
        ("PATCH", "", {"power_w": None, "objective": None}, "objective: must not be null"),
        ("PATCH", "", {"cluster": None}, "cluster: must not be null"),
        ("PATCH", "", None, "is empty"),
        ("PATCH", "", {"signal": {"power_w": 5e3}}, "now: is needed with a signal"),
        ("PATCH", "", {"signal": "/etc/hostname", "now": "2027-01-31T17:00Z"},
         "signal: must be an object, got '/etc/hostname'"),
        ("PATCH", "", {"signal": {"limits": [{"power_w": 1}]}, "now": "2027-01-31T17:00Z"},
         "signal.limits[0].from: is missing"),
        ("PATCH", "", {"now": None}, "now: must not be null"),
    ],
)  # fmt: skip
def test_a_fault_is_named(shared: Client, method: str, path: str, body: Any, told: str) -> None:
    shared("PUT", "/v1/sessions/s", DOCUMENT)
    before = shared("GET", "/v1/sessions/s/jobs")
    status, found = shared(method, f"/v1/sessions/s{path}", body)
    assert status == 422
    assert told in found["error"]
    assert shared("GET", "/v1/sessions/s/jobs") == before


def test_null_takes_a_limit_away(shared: Client) -> None:
    shared("PUT", "/v1/sessions/s", DOCUMENT)
    limits = {"power_w": 5e3, "energy_j": 1e9, "carbon_g": 1e3, "carbon_g_per_kwh": 300.0}
    assert shared("PATCH", "/v1/sessions/s", limits)[1]["budgets"]["power_w"] == 5e3
    assert shared("PATCH", "/v1/sessions/s", dict.fromkeys(limits))[1]["budgets"]["power_w"] is None
    assert shared("POST", "/v1/sessions/s/solve", {"deadline_s": 1e300})[0] == 200


def test_where_a_stream_goes_on_is_a_number(shared: Client) -> None:
    shared("PUT", "/v1/sessions/s", DOCUMENT)
    client = Client(shared.port)
    client.headers["Last-Event-ID"] = "zz"
    status, found = client("GET", "/v1/sessions/s/decisions")
    assert status == 422
    assert found["faults"] == ["Last-Event-ID: must be the number of a round, as events have it, got 'zz'"]
