"""The OpenAPI description says what is really sent and answered, of every operation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from wattsched.serve.tokens import Tokens, add_token

from .conftest import Client, Serve
from .victim import CLUSTER as SMALL
from .victim import DOCUMENT, TABLE

S = "/v1/sessions/s"
CLUSTER = {
    "gpu_types": {**SMALL["gpu_types"], "A100": {"idle_power_w": 50.0}},
    "nodes": [*SMALL["nodes"], {"name": "n4", "gpu_type": "A100", "gpus": 4}],
}
HELD = {"gpus": 1, "pool": "A", "nodes": {"n0": [0]}}
JOBS = [
    {"name": "a", "options": {**TABLE, "frequency_mhz": [900, 1000, 1100]}, "weight": 2.0, "tenant": "x"},
    {"name": "b", "options": "t", "current": HELD, "deadline_s": 1e6},
    {"name": "c", "options": "t", "deadline_s": 1e-3},
    {"name": "d", "model": "resnet50", "remaining_work": 5e6},
]
ASKED: list[tuple[str, str, Any, int]] = [
    ("PUT", S, {**DOCUMENT, "cluster": CLUSTER, "tenants": {"x": {"gpus": 4}}}, 200),
    ("PUT", S, DOCUMENT, 409),
    ("GET", "/v1/sessions", None, 200),
    ("PUT", f"{S}/jobs", {"jobs": JOBS}, 200),
    ("PUT", f"{S}/jobs", {"jobs": [{"name": "a", "weight": -1.0}]}, 422),
    ("PATCH", S, {"power_w": 9e3, "down": ["n3"], "price_per_kwh": 0.2, "carbon_g_per_kwh": 300.0}, 200),
    ("POST", f"{S}/solve", {"deadline_s": 10.0}, 200),
    *(("GET", f"{S}/jobs/{job}/why", None, 200) for job in "abc"),
    ("GET", f"{S}/jobs/nobody/why", None, 404),
    ("POST", f"{S}/rounds/1/apply", None, 200),
    ("GET", f"{S}/jobs", None, 200),
    ("PATCH", S, {"signal": {"limits": [{"from": "2027-01-31T17:00Z", "power_w": 9e2}]}}, 422),
    ("PATCH", S, {"signal": {"until": "2027-01-31T17:00Z"}, "now": "2027-01-31T16:00Z"}, 200),
    ("PATCH", S, {"power_w": 1.0, "signal": None}, 200),
    ("POST", f"{S}/solve", {"remove": ["c"], "apply": True}, 200),
    ("POST", f"{S}/solve", {"deadline_s": 1e-9}, 503),
    ("POST", f"{S}/rounds/2/apply", None, 422),
    ("POST", f"{S}/cancel", None, 200),
    ("GET", S, None, 200),
    ("GET", f"{S}/rounds", None, 200),
    *(("GET", f"{S}/rounds/{round}", None, 200) for round in (1, 2, "1/instance", "1/result", "2/result")),
    ("GET", f"{S}/instance", None, 200),
    ("GET", f"{S}/rounds/9", None, 404),
    ("GET", f"{S}/rounds/x", None, 422),
    ("GET", f"{S}/report", None, 200),
    ("POST", S, None, 405),
    ("DELETE", f"{S}/jobs", {"ids": ["a"]}, 200),
    ("GET", "/healthz", None, 200),
    ("GET", "/readyz", None, 200),
    ("GET", "/metrics", None, 200),
    ("GET", f"{S}/decisions?after=x", None, 422),
    ("DELETE", S, None, 200),
    ("GET", S, None, 404),
]  # fmt: skip


def validator(described: Any, schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": described["components"]})


def test_every_answer_is_what_the_description_says(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db") as ask:
        described = ask("GET", "/openapi.json")[1]
        paths = {
            re.compile(re.sub("{[^}]*}", "[^/]+", path)): methods
            for path, methods in described["paths"].items()
        }
        answered = set[tuple[str, str]]()
        for method, address, body, expected in ASKED:
            path = next(known for known in paths if known.fullmatch(address.partition("?")[0]))
            status, headers, content = ask.whole(method, address, body)
            assert status == expected, (method, address, content)
            # Of a method that is not taken, any other one describes the refusal.
            operation = paths[path].get(method.lower(), next(iter(paths[path].values())))
            ((media_type, told),) = operation["responses"][str(status)]["content"].items()
            assert headers["content-type"].partition(";")[0] == media_type
            document = json.loads(content) if media_type == "application/json" else content.decode()
            assert told["schema"].keys() == {"$ref" if media_type == "application/json" else "type"}
            validator(described, told["schema"]).validate(document)
            if body is not None and status == 200:
                ((_, taken),) = operation["requestBody"]["content"].items()
                validator(described, taken["schema"]).validate(body)
            answered |= {(path.pattern, method.lower())} if status == 200 else set()
        every = {(path.pattern, method) for path, methods in paths.items() for method in methods}
        decisions = next(path for path in paths if path.pattern.endswith("/decisions"))
        assert every - answered == {(decisions.pattern, "get")}
        assert [*paths[decisions]["get"]["responses"]["200"]["content"]] == ["text/event-stream"]
        operations = [operation for methods in paths.values() for operation in methods.values()]
        assert all({"400", "405", "408"} <= operation["responses"].keys() for operation in operations)
        assert all(operation["summary"] for operation in operations)
        names = [operation["operationId"] for operation in operations]  # what generated clients call them
        assert len(set(names)) == len(names)
        assert {"sessions", "create", "upsert", "solve", "apply", "decisions"} <= set(names)


@pytest.mark.parametrize("with_tokens", [False, True])
def test_how_a_token_is_sent_is_described(serve: Serve, tmp_path: Path, with_tokens: bool) -> None:
    token = add_token(tmp_path / "tokens", "a", "read")
    with serve(tmp_path / "j.db", tokens=Tokens(tmp_path / "tokens") if with_tokens else None) as ask:
        described = Client(ask.port, token)("GET", "/openapi.json")[1]
        schemes = described["components"]["securitySchemes"]
        assert {scheme["scheme"] for scheme in schemes.values()} == {"bearer", "basic"}
        asked = [name for one in described["security"] for name in one]
        assert asked == (list(schemes) if with_tokens else [])
        health = described["paths"]["/healthz"]["get"]
        assert health["security"] == []
