"""The OpenAPI description: models of requests and answers, and how a token is sent.

Values of requests that are skipped here are checked in their use; answers are made elsewhere, and not
validated again.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SkipValidation, WithJsonSchema
from pydantic.json_schema import models_json_schema

from wattsched.instances.signals import Moment, Signal
from wattsched.instances.sizing.instance import Budgets
from wattsched.instances.sizing.job import Job, OptionTable, Placement
from wattsched.instances.sizing.tenants import Tenant
from wattsched.perfmodels.profile import Profile
from wattsched.results.result import TerminationReport
from wattsched.serve.rounds import RoundLine
from wattsched.sessions.session_decision import Change
from wattsched.topology.cluster import Cluster
from wattsched.topology.fields import NonNegative, Positive, Price, Strict

SCHEMAS = "#/components/schemas/"
"""Place of the models in an OpenAPI description."""

AnyJob = Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/Job"})]
"""A job record, which may leave out what is known."""


class SessionRequest(Strict):
    """Arguments of `wattsched.Session`, and how often to decide in the background."""

    cluster: Cluster
    objective: str = "work-value"
    capacity: str | dict[str, str] | None = None
    round_s: Positive = 300.0
    change_cost: NonNegative = 0.0
    carbon_g_per_kwh: NonNegative | None = None
    price_per_kwh: Price | None = None
    tables: dict[str, OptionTable] = {}
    profiles: list[Profile] = []
    tenants: dict[str, Tenant] = {}
    formulation: str | None = None
    solver: str = "auto"
    every_s: float | None = Field(None, ge=0.1, le=1e6)


class UpdateRequest(Strict):
    """Arguments of `wattsched.Session.update`; what is not given stays as it is, null takes a limit away."""

    objective: str = ""
    round_s: Positive = 300.0
    change_cost: NonNegative = 0.0
    power_w: Positive | None = None
    energy_j: Positive | None = None
    carbon_g: Positive | None = None
    scope: Literal["round", "completion"] = "round"
    least_goodput: Positive | None = None
    carbon_g_per_kwh: NonNegative | None = None
    price_per_kwh: Price | None = None
    tenants: dict[str, Tenant] = {}
    reserved_w: dict[str, NonNegative] = {}
    down: list[str] = []
    up: list[str] = []
    unavailable: dict[str, list[int]] = {}
    cluster: Cluster | None = None
    signal: Signal | None = None
    now: Moment | None = None


class JobsRequest(Strict):
    """Job records as instance files have them; of known jobs only the given fields change."""

    jobs: list[AnyJob]


class IdsRequest(Strict):
    """Names of jobs."""

    ids: list[SkipValidation[str]]


class SolveRequest(Strict):
    """Jobs that came, changed and went, how to decide, and whether that is what runs at once."""

    jobs: list[AnyJob] = []
    remove: list[SkipValidation[str]] = []
    deadline_s: SkipValidation[Positive | None] = None
    gap: SkipValidation[Annotated[float, Field(ge=0, lt=1)]] = 1e-4
    prove: SkipValidation[NonNegative | None] = 0.0
    apply: bool = False


REQUESTS = (SessionRequest, UpdateRequest, JobsRequest, IdsRequest, SolveRequest)


class Failure(Strict):
    """Fault of a request, in a sentence; a 422 has also one for every field, with its value."""

    error: str
    faults: list[str] = []


class HealthAnswer(Strict):
    """The process lives."""

    alive: bool


class ReadyAnswer(Strict):
    """Readiness to take requests on, and the reason why the journal cannot be written, if it cannot."""

    ready: bool
    error: str = ""


class SessionsAnswer(Strict):
    """Names of the sessions."""

    sessions: list[str]


class SessionAnswer(Strict):
    """A session as it is now, without its jobs one by one; `without_gpus` are nodes that have none to use."""

    name: str
    objective: str
    round_s: float
    change_cost: float
    every_s: float | None
    budgets: Budgets
    carbon_g_per_kwh: float | None
    price_per_kwh: float | None
    tenants: dict[str, Tenant]
    nodes: int
    gpus: int
    without_gpus: list[str]
    jobs: int
    running: int
    last_round: int | None
    prices: dict[str, float]
    signal: Signal | None = None
    now: Moment | None = None


class DroppedAnswer(Strict):
    """The session that is forgotten."""

    dropped: str


class UpsertedAnswer(Strict):
    """Number of jobs that were told, and of jobs that there are."""

    upserted: int
    jobs: int


class RemovedAnswer(Strict):
    """Number of jobs that were taken out, and of jobs that there are."""

    removed: int
    jobs: int


class JobsAnswer(Strict):
    """Some of the jobs as files have them, and how many there are in all."""

    count: int
    jobs: list[Job]


class DecisionAnswer(Strict):
    """A decision: what every job does, what that is worth, and what changes by it.

    `options` has the row of every job's table, -1 where it waits, -2 where it has none, -3 without decision;
    `time` is in seconds since 1970.
    """

    round: int
    time: float
    termination: TerminationReport
    objective_name: str
    objective: float | None
    bound: float | None
    gap: float | None
    proven_gap: float | None
    prices: dict[str, float]
    totals: dict[str, int | float]
    solve_s: float | None
    jobs: dict[str, Placement]
    waiting: list[str]
    options: dict[str, int]
    reasons: dict[str, str]
    changes: dict[str, Change]


class SolvedAnswer(DecisionAnswer):
    """A decision that was just made, and whether it is taken for what runs."""

    applied: bool


class CancelledAnswer(Strict):
    """The session whose decision ends with what it has."""

    cancelled: str


class RoundsAnswer(Strict):
    """The newest rounds, the oldest of them first."""

    rounds: list[RoundLine]


class AppliedAnswer(Strict):
    """The round whose decision is what runs now."""

    applied: int


class ReportLine(Strict):
    """Changes that one decision would have made to what ran, and the number of jobs by kind of change."""

    round: int
    time: float
    power_w: float | None
    changes: dict[str, Change]
    counts: dict[Change, int]


class ReportAnswer(Strict):
    """Changes that the newest rounds would have made to what ran."""

    shadow: bool
    rounds: list[ReportLine]
    counts: dict[Change, int]


Responses = dict[int | str, dict[str, Any]]
"""Answers of a route by status, as OpenAPI has them."""


def described(summary: str, answer: type[Strict] | str, body: str = "") -> dict[str, Any]:
    """Describe a request: in a sentence, by its answer, a model or the name of a file, and by its body.

    The body is the name of a model of requests, which we read ourselves.
    """
    found = {"model": answer} if isinstance(answer, type) else _content({"$ref": SCHEMAS + answer})
    more: dict[str, Any] = {}
    if body:
        required = {"required": body != "SolveRequest"}  # all of its fields have defaults
        more["openapi_extra"] = {"requestBody": required | _content({"$ref": SCHEMAS + body})}
    return {"summary": summary, "responses": {200: {"description": "What was asked for", **found}}, **more}


def telling(what: str, media_type: str) -> Responses:
    """Describe an answer that is a text."""
    return {200: {"description": what, **_content({"type": "string"}, media_type)}}


def _content(schema: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}


REFUSALS: Responses = {
    status: {"description": told, **_content({"$ref": SCHEMAS + "Failure"})}
    for status, told in {
        400: "The request is not complete",
        401: "No token, or an unknown one",
        403: "The token is for reading only, or a page of another origin asks",
        404: "There is no such session or round",
        405: "The address does not take this method",
        408: "The request did not come in time",
        409: "It contradicts what is there, or this is shadow mode",
        412: "The session is not as `If-Match` says: somebody has changed it",
        413: "The body is too large",
        415: "The body is not said to be JSON",
        422: "A field is wrong; `faults` names each, and the value",
        429: "Too many requests per second; `Retry-After` says when to ask again",
        503: "Too much to do, or no time left for it; `Retry-After` says when to ask again",
    }.items()
}
"""Answers that any request may get."""

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
    return _file("result") | _file("explanation") | _file("instance") | known


def _file(document: Literal["result", "explanation", "instance"]) -> dict[str, Any]:
    """Schema of a file, and of all that is in it, where those of a description are."""
    from wattsched.files.exchange import json_schema

    name, schema = document.capitalize(), json_schema(document)
    moved: dict[str, Any] = json.loads(json.dumps(schema).replace("#/$defs/", SCHEMAS))
    parts: dict[str, Any] = moved.pop("$defs")
    return {**parts, name: {key: value for key, value in moved.items() if key not in ("$schema", "$id")}}
