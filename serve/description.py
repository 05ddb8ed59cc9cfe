"""The OpenAPI description: schemas of requests and answers, and how a token is sent."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from wattsched.serve.answers import SCHEMAS, Failure
from wattsched.serve.requests import REQUESTS

_TOKENS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic", "description": "The token is the password, of any name."},
}


def describe(found: dict[str, Any], *, tokens: bool) -> None:
    """Add to a description what requests and answers have, and who may ask."""
    found.setdefault("components", {}).setdefault("schemas", {}).update(_schemas())
    found["components"]["securitySchemes"] = _TOKENS
    found["security"] = [{name: []} for name in _TOKENS] if tokens else []


def _schemas() -> dict[str, Any]:
    """JSON Schemas that no route names as a model: of requests, refusals, files, and all that is in them."""
    models: list[tuple[type[BaseModel], Literal["validation"]]]
    models = [(model, "validation") for model in (*REQUESTS, Failure)]
    _, found = models_json_schema(models, ref_template=SCHEMAS + "{model}")
    known: dict[str, Any] = found["$defs"]
    return _file("Result") | _file("Instance") | known


def _file(name: str) -> dict[str, Any]:
    """Schema of a file, and of all that is in it, where those of a description are."""
    from wattsched.exchange import json_schema

    schema = json_schema("instance" if name == "Instance" else "result")
    moved: dict[str, Any] = json.loads(json.dumps(schema).replace("#/$defs/", SCHEMAS))
    parts: dict[str, Any] = moved.pop("$defs")
    return {**parts, name: {key: value for key, value in moved.items() if key not in ("$schema", "$id")}}
