"""Models of answers, for the OpenAPI description; answers are made elsewhere, and not validated again."""

from __future__ import annotations

from typing import Any

from wattsched.instances.sizing.instance import Budgets
from wattsched.instances.sizing.job import Job, Placement
from wattsched.instances.sizing.tenants import Tenant
from wattsched.result import TerminationReport
from wattsched.serve.rounds import RoundLine
from wattsched.session_decision import Change
from wattsched.topology.fields import Strict

SCHEMAS = "#/components/schemas/"
"""Place of the models in an OpenAPI description."""


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
        required = {"required": body != "SolveRequest"}
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
