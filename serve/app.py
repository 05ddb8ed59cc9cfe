"""The service over HTTP, with its OpenAPI description."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from wattsched.environment.version import __version__
from wattsched.instances.errors import InputError, sentences_of, shown, validated
from wattsched.instances.io import document_text, parse_json
from wattsched.serve import description as schemas
from wattsched.serve.changes import require_values
from wattsched.serve.database import JournalError
from wattsched.serve.description import REFUSALS, describe, described, telling
from wattsched.serve.documents import decision_document, jobs_document, json_bytes, report_document
from wattsched.serve.guard import Guard
from wattsched.serve.journal import Journal
from wattsched.serve.limits import Limits
from wattsched.serve.recorded import ChangedError
from wattsched.serve.rounds import MissingRoundError
from wattsched.serve.service import ConflictError, MissingError, Service
from wattsched.serve.tokens import Tokens
from wattsched.serve.workers import BusyError, LateError

Name = Annotated[str, Path(description="Name of a session")]
Number = Annotated[int, Path(ge=1, lt=2**63, description="Number of a round")]
IfMatch = Annotated[str | None, Header(description="Versions, as `ETag` has them, of which it must be one")]
Most = Annotated[int, Query(ge=1, le=10_000)]
First = Annotated[int, Query(ge=0, lt=2**63)]

STATUSES: dict[type[Exception], int] = {
    MissingRoundError: 404,
    InputError: 422,
    MissingError: 404,
    ConflictError: 409,
    ChangedError: 412,
    BusyError: 503,
    LateError: 503,
    JournalError: 503,
}
"""Under which status each failure is told."""

_LARGE = 50_000
"""Bytes of a body that take a millisecond to read."""


class Answer(JSONResponse):
    """JSON."""

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return json_bytes(content)


class Application(FastAPI):
    """An application whose description says what requests and answers have, which are its own affair."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description."""
        if self.openapi_schema is None:
            describe(super().openapi(), tokens=self.state.tokens)
        return super().openapi()


def create(
    journal: Journal,
    limits: Limits | None = None,
    tokens: Tokens | None = None,
    routers: Iterable[APIRouter] = (),
    *,
    shadow: bool = False,
    fixed: bool = False,
    asking: Collection[str] = (),
    hosts: Collection[str] = (),
    sessions: bool = True,
) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    journal : Journal
        Stays open; whoever made it closes it when the application has stopped.
    limits : Limits, optional
    tokens : Tokens, optional
        Who may ask; None lets everybody in who reaches it.
    routers : iterable of fastapi.APIRouter
        More to answer, as adapters have it.
    shadow : bool
        Decide and record, and let nobody apply a decision.
    fixed : bool
        Let nobody change a session: the program that serves them does.
    asking : collection of str
        Paths of `routers` where POST changes nothing.
    hosts : collection of str
        Names that the service is asked by, besides ``localhost``, its machine's name and its addresses.
    sessions : bool
        Answer also for sessions; else for the health and the figures of the process alone.

    Returns
    -------
    FastAPI
        Its `state.service` is the `Service`.
    """
    service = Service(journal, limits, shadow=shadow)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = Application(
        title="wattsched",
        version=__version__,
        summary="Scheduling decisions for GPU clusters, with a bound and the price of every budget.",
        lifespan=lifespan,
        default_response_class=Answer,
        responses=REFUSALS,
        separate_input_output_schemas=False,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # what generated clients call a request
    )
    app.state.service, app.state.tokens = service, tokens is not None
    app.add_middleware(Guard, service=service, tokens=tokens, fixed=fixed, asking=asking, hosts=hosts)
    _tell_failures(app)
    app.include_router(_of_the_service(service))
    if sessions:
        app.include_router(_of_sessions(service), prefix="/v1")
    for router in routers:
        app.include_router(router)
    return app


def _tell_failures(app: FastAPI) -> None:
    """Let failures be answered by a sentence, under the status that says whose fault they are."""

    async def answer(_: Request, error: Exception) -> Response:
        status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
        faults = {"faults": error.faults} if isinstance(error, InputError) else {}
        headers = {"Retry-After": "1"} if status == 503 else None
        return Answer({"error": str(error), **faults}, status, headers=headers)

    async def unknown(request: Request, error: Any) -> Response:
        text = f"there is no {request.method} {request.url.path!r:.200}"
        text = text if error.status_code in (404, 405) else str(error.detail)
        return Answer({"error": text}, error.status_code, headers=error.headers)

    async def invalid(_: Request, error: Any) -> Response:
        lines = [(fault["loc"][-1], line) for fault in error.errors() for line in sentences_of(fault)]
        faults = [f"{name}: {line}"[:200] for name, line in lines]
        return Answer({"error": "; ".join(faults), "faults": faults}, 422)

    for kind in STATUSES:
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(RequestValidationError, invalid)


def _of_the_service(service: Service) -> APIRouter:
    """Routes on the process: its health and its figures."""
    router, open_to_all = APIRouter(tags=["service"]), {"security": list[Any]()}

    @router.get(
        "/healthz", openapi_extra=open_to_all, **described("Whether the process lives", schemas.HealthAnswer)
    )
    async def healthz() -> Response:
        return Answer({"alive": True})

    ready = described("Whether it takes requests on", schemas.ReadyAnswer)
    ready["responses"][503] = ready["responses"][200]

    @router.get("/readyz", openapi_extra=open_to_all, **ready)
    async def readyz() -> Response:
        if service.journal.fault:
            with suppress(JournalError):
                await asyncio.to_thread(service.journal.retry)
        if error := service.journal.fault:
            return Answer({"ready": False, "error": error}, 503)
        return Answer({"ready": service.ready()}, 200 if service.ready() else 503)

    @router.get(
        "/metrics",
        summary="What it counts, for Prometheus",
        response_class=Response,
        responses=telling("Figures", "text/plain"),
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    return router


async def document_of(request: Request) -> Any:
    """The body; a large one is read in a thread, while others are answered."""
    body = await request.body()
    return parse_json(body) if len(body) < _LARGE else await asyncio.to_thread(parse_json, body)


async def _document_if_any(request: Request) -> Any:
    return await document_of(request) if await request.body() else None


Document = Annotated[Any, Depends(document_of)]


async def _require_known(request: Request) -> None:
    """Refuse parameters of an address (``?NAME=VALUE``) that its route does not know, or has twice."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    given = [name for name, _ in request.query_params.multi_items()]
    faults = [f"{name!s:.60}: is not a known parameter" for name in dict.fromkeys(given) if name not in known]
    faults += [f"{name}: is there {given.count(name)} times" for name in known if given.count(name) > 1]
    if faults:
        raise InputError(faults)


async def _require_nothing(asked: Annotated[Any, Depends(_document_if_any)]) -> None:
    """Refuse fields of a request that takes none."""
    if asked not in (None, {}):
        text = [f"{name!s:.60}: is not a known field" for name in asked] if isinstance(asked, dict) else []
        raise InputError(text or [f"the request takes nothing, got {shown(asked)}"])


def _file(text: str, headers: dict[str, str] | None = None) -> Response:
    """A document that is a text already."""
    return Response(text, media_type="application/json", headers=headers)


def _of_sessions(service: Service) -> APIRouter:
    """Routes on sessions, their jobs and their decisions."""
    router = APIRouter(tags=["sessions"], dependencies=[Depends(_require_known)])
    session = schemas.SessionAnswer

    def version(name: str) -> dict[str, str]:
        return {"ETag": service.session(name).version}

    @router.get("/sessions", **described("Names of the sessions", schemas.SessionsAnswer))
    async def sessions() -> Response:
        return Answer({"sessions": await service.do(service.journal.sessions)})

    @router.put("/sessions/{name}", **described("Make a session", session, "SessionRequest"))
    async def create(name: Name, document: Document) -> Response:
        return Answer(await service.create(name, document), headers=version(name))

    @router.get("/sessions/{name}", **described("A session as it is now", session))
    async def describe(name: Name) -> Response:
        before = version(name)
        return Answer(await service.describe(name), headers=before)

    @router.delete(
        "/sessions/{name}", **described("Forget a session and all that it decided", schemas.DroppedAnswer)
    )
    async def drop(name: Name, if_match: IfMatch = None) -> Response:
        return Answer(await service.drop(name, if_match))

    @router.patch("/sessions/{name}", **described("Change budgets, loads, nodes", session, "UpdateRequest"))
    async def update(name: Name, document: Document, if_match: IfMatch = None) -> Response:
        require_values(document)
        made = await service.do(partial(service.session(name).update, versions=if_match, **document))
        return Answer(await service.describe(name), headers={"ETag": made})

    @router.get("/sessions/{name}/instance", **described("The round as it is now, as a file", "Instance"))
    async def now(name: Name) -> Response:
        before = version(name)
        session = service.session(name).session
        return _file(await service.do(lambda: document_text(session.to_instance(name))), before)

    @router.get("/sessions/{name}/jobs", **described("Jobs as files have them", schemas.JobsAnswer))
    async def jobs(name: Name, first: First = 0, most: Most = 1000) -> Response:
        before = version(name)
        found = await service.do(partial(jobs_document, service.session(name), first, most))
        return Answer(found, headers=before)

    @router.put(
        "/sessions/{name}/jobs", **described("Add or change jobs", schemas.UpsertedAnswer, "JobsRequest")
    )
    async def upsert(name: Name, document: Document, if_match: IfMatch = None) -> Response:
        records = validated(schemas.JobsRequest, document).jobs
        session = service.session(name)
        made = await service.do(partial(session.upsert, records, versions=if_match))
        return Answer({"upserted": len(records), "jobs": len(session.session)}, headers={"ETag": made})

    @router.delete("/sessions/{name}/jobs", **described("Take jobs out", schemas.RemovedAnswer, "IdsRequest"))
    async def remove(name: Name, document: Document, if_match: IfMatch = None) -> Response:
        ids = validated(schemas.IdsRequest, document).ids
        session = service.session(name)
        made = await service.do(partial(session.remove, ids, versions=if_match))
        return Answer({"removed": len(ids), "jobs": len(session.session)}, headers={"ETag": made})

    router.include_router(_of_decisions(service))
    return router


def _of_decisions(service: Service) -> APIRouter:
    """Routes on the decisions of a session."""
    router = APIRouter(prefix="/sessions/{name}", tags=["decisions"])
    takes_nothing = [Depends(_require_nothing)]

    @router.post(
        "/solve", **described("Decide what every job does next", schemas.SolvedAnswer, "SolveRequest")
    )
    async def solve(
        name: Name, document: Annotated[Any, Depends(_document_if_any)], if_match: IfMatch = None
    ) -> Response:
        return Answer(await service.solve(name, document, if_match))

    ending = described("End the decision that is being made with what it has", schemas.CancelledAnswer)

    @router.post("/cancel", dependencies=takes_nothing, **ending)
    async def cancel(name: Name) -> Response:
        service.session(name).cancel()
        return Answer({"cancelled": name})

    @router.get("/rounds", **described("The newest rounds, each in a line", schemas.RoundsAnswer))
    async def rounds(name: Name, most: Most = 1000) -> Response:
        lines = await service.do(service.session(name).rounds)
        return Answer({"rounds": [asdict(line) for line in lines[-most:]]})

    @router.get("/rounds/{number}", **described("A decision", schemas.DecisionAnswer))
    async def round(name: Name, number: Number) -> Response:
        session = service.session(name)
        return Answer(await service.do(lambda: decision_document(session.round(number))))

    @router.get(
        "/jobs/{job:path}/why", **described("Why a job waits, and what would make it run", "Explanation")
    )
    async def why(name: Name, job: Annotated[str, Path(description="Name of a job")]) -> Response:
        last = service.session(name).last
        if last is None or not last.decision.solved or job not in last.decision.instance.by_column().place:
            raise MissingError(f"no decision of session {name!r:.120} has a job {job!r:.120}")
        explain = partial(last.decision.explain, job, time_limit=service.limits.deadline_s / 2)
        return _file(await service.do(lambda: document_text(explain())))

    applying = described("Take a decision for what runs now", schemas.AppliedAnswer)

    @router.post("/rounds/{number}/apply", dependencies=takes_nothing, **applying)
    async def apply(name: Name, number: Number, if_match: IfMatch = None) -> Response:
        service.require_no_shadow()
        await service.do(partial(service.session(name).apply, number, versions=if_match))
        return Answer({"applied": number})

    @router.get("/rounds/{number}/instance", **described("The instance of a round, as a file", "Instance"))
    async def instance(name: Name, number: Number) -> Response:
        session = service.session(name)
        return _file(await service.do(lambda: document_text(session.round(number).decision.instance)))

    @router.get("/rounds/{number}/result", **described("The result of a round, as a file", "Result"))
    async def result(name: Name, number: Number) -> Response:
        session = service.session(name)
        return _file(await service.do(lambda: document_text(session.round(number).decision.result)))

    @router.get(
        "/report", **described("What the newest rounds would have changed of what ran", schemas.ReportAnswer)
    )
    async def report(name: Name, most: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        session = service.session(name)
        lines = (await service.do(session.rounds))[-most:]
        made = [await service.do(partial(session.round, line.number)) for line in lines]
        return Answer({"shadow": service.shadow, **await service.do(partial(report_document, made))})

    @router.get(
        "/decisions",
        summary="Decisions as they are made, as server-sent events",
        response_class=Response,
        responses=telling(
            "Events; the data of each is a DecisionAnswer, its id the round", "text/event-stream"
        ),
    )
    async def decisions(
        name: Name, after: First | None = None, last_event_id: Annotated[str | None, Header()] = None
    ) -> Response:
        if last_event_id and not re.fullmatch("[0-9]{1,15}", last_event_id):
            text = "must be the number of a round, as events have it"
            raise InputError([f"Last-Event-ID: {text}, got {shown(last_event_id)}"])
        last = int(last_event_id) if last_event_id else None
        found = service.decisions(name, last if after is None else after)
        first = await anext(found)  # what is refused is refused before the answer begins
        return StreamingResponse(_events(first, found), media_type="text/event-stream")

    return router


async def _events(first: Any, found: AsyncIterator[dict[str, Any] | None]) -> AsyncIterator[bytes]:
    """Events of a first decision and the next ones."""
    yield _event(first)
    # The answer has begun, and cannot be another one: it ends, and whoever asks again is told why.
    with suppress(*STATUSES):
        async for decision in found:
            yield _event(decision)


def _event(decision: dict[str, Any] | None) -> bytes:
    """A decision as an event; without one, a comment that keeps the connection."""
    if decision is None:
        return b": waiting\n\n"
    head = f"id: {decision['round']}\nevent: decision\ndata: ".encode()
    return head + json_bytes(decision) + b"\n\n"
