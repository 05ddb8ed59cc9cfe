"""The service over HTTP, with its OpenAPI description."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from wattsched.instances.errors import InputError, sentences_of, shown
from wattsched.instances.io import parse_json
from wattsched.serve.answers import REFUSALS, answering, telling
from wattsched.serve.description import describe
from wattsched.serve.documents import json_bytes
from wattsched.serve.failures import STATUSES, failure_document
from wattsched.serve.guard import Guard
from wattsched.serve.journal import Journal
from wattsched.serve.limits import Limits
from wattsched.serve.service import Service
from wattsched.serve.tokens import Tokens
from wattsched.version import __version__

Name = Annotated[str, Path(description="Name of a session")]
Number = Annotated[int, Path(ge=1, lt=2**63, description="Number of a round")]
IfMatch = Annotated[str | None, Header(description="Versions, as `ETag` has them, of which it must be one")]
Most = Annotated[int, Query(ge=1, le=10_000)]
First = Annotated[int, Query(ge=0, lt=2**63)]


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
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # what generated clients call a request
    )
    app.state.service, app.state.tokens = service, tokens is not None
    app.add_middleware(
        Guard,
        limits=service.limits,
        tokens=tokens,
        metrics=service.metrics,
        fixed=fixed,
        asking=asking,
        hosts=hosts,
    )
    _tell_failures(app)
    app.include_router(_of_the_service(service))
    if sessions:
        app.include_router(_of_sessions(service), prefix="/v1")
    for router in routers:
        app.include_router(router)
    return app


def _tell_failures(app: FastAPI) -> None:
    """Say what is wrong in a sentence, under the status that says whose fault it is."""

    async def answer(_: Request, error: Exception) -> Response:
        found = failure_document(error)
        status = found.pop("status")
        return Answer(found, status, headers={"Retry-After": "1"} if status == 503 else None)

    async def unknown(request: Request, error: Any) -> Response:
        told = f"there is no {request.method} {request.url.path!r:.200}"
        told = told if error.status_code in (404, 405) else str(error.detail)
        return Answer({"error": told}, error.status_code, headers=error.headers)

    async def invalid(_: Request, error: Any) -> Response:
        told = [(fault["loc"][-1], line) for fault in error.errors() for line in sentences_of(fault)]
        faults = [f"{name}: {line}"[:200] for name, line in told]
        return Answer({"error": "; ".join(faults), "faults": faults}, 422)

    for kind, _ in STATUSES:
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(RequestValidationError, invalid)


def _of_the_service(service: Service) -> APIRouter:
    router = APIRouter(tags=["service"])

    open_to_all = {"security": list[Any]()}

    @router.get(
        "/healthz",
        summary="Whether the process lives",
        responses=answering("HealthAnswer"),
        openapi_extra=open_to_all,
    )
    async def healthz() -> Response:
        return Answer({"alive": True})

    ready = answering("ReadyAnswer")

    @router.get(
        "/readyz",
        summary="Whether it takes requests on",
        responses={**ready, 503: ready[200]},
        openapi_extra=open_to_all,
    )
    async def readyz() -> Response:
        if error := await service.journal_fault():
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


def _taking(model: str) -> dict[str, Any]:
    """Describe the body of a request, which is read by ourselves."""
    schema = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}
    return {"requestBody": {"required": model != "SolveRequest", "content": schema}}


async def document_of(request: Request) -> Any:
    """The body; a large one is read in a thread, while others are answered."""
    body = await request.body()
    return parse_json(body) if len(body) < _LARGE else await asyncio.to_thread(parse_json, body)


async def _require_known(request: Request) -> None:
    """Refuse what stands behind the question mark of an address where nothing of that name is asked for."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    given = [name for name, _ in request.query_params.multi_items()]
    faults = [f"{name!s:.60}: is not a known parameter" for name in dict.fromkeys(given) if name not in known]
    faults += [f"{name}: is there {given.count(name)} times" for name in known if given.count(name) > 1]
    if faults:
        raise InputError(faults)


def require_nothing(body: bytes) -> None:
    """Refuse fields of a request that takes none."""
    if body and (asked := parse_json(body)) not in (None, {}):
        told = [f"{name!s:.60}: is not a known field" for name in asked] if isinstance(asked, dict) else []
        raise InputError(told or [f"the request takes nothing, got {shown(asked)}"])


def _of_sessions(service: Service) -> APIRouter:
    router = APIRouter(tags=["sessions"], dependencies=[Depends(_require_known)])

    @router.get("/sessions", summary="Names of the sessions", responses=answering("SessionsAnswer"))
    async def sessions() -> Response:
        return Answer(await service.sessions())

    @router.put(
        "/sessions/{name}",
        summary="Make a session",
        openapi_extra=_taking("SessionRequest"),
        responses=answering("SessionAnswer"),
    )
    async def create(name: Name, request: Request) -> Response:
        document = await service.create(name, await document_of(request))
        return Answer(document, headers={"ETag": service.version(name)})

    @router.get("/sessions/{name}", summary="A session as it is now", responses=answering("SessionAnswer"))
    async def describe(name: Name) -> Response:
        version = {"ETag": service.version(name)}
        return Answer(await service.describe(name), headers=version)

    @router.delete(
        "/sessions/{name}",
        summary="Forget a session and all that it decided",
        responses=answering("DroppedAnswer"),
    )
    async def drop(name: Name, if_match: IfMatch = None) -> Response:
        return Answer(await service.drop(name, if_match))

    @router.patch(
        "/sessions/{name}",
        summary="Change budgets, loads, nodes",
        openapi_extra=_taking("UpdateRequest"),
        responses=answering("SessionAnswer"),
    )
    async def update(name: Name, request: Request, if_match: IfMatch = None) -> Response:
        return Answer(await service.update(name, await document_of(request), if_match))

    @router.get(
        "/sessions/{name}/instance",
        summary="The round as it is now, as a file",
        responses=answering("Instance"),
    )
    async def now(name: Name) -> Response:
        version = {"ETag": service.version(name)}
        return Response(await service.now(name), media_type="application/json", headers=version)

    @router.get("/sessions/{name}/jobs", summary="Jobs as files have them", responses=answering("JobsAnswer"))
    async def jobs(name: Name, first: First = 0, most: Most = 1000) -> Response:
        version = {"ETag": service.version(name)}
        return Answer(await service.jobs(name, first, most), headers=version)

    @router.put(
        "/sessions/{name}/jobs",
        summary="Add or change jobs",
        openapi_extra=_taking("JobsRequest"),
        responses=answering("UpsertedAnswer"),
    )
    async def upsert(name: Name, request: Request, if_match: IfMatch = None) -> Response:
        return Answer(await service.upsert(name, await document_of(request), if_match))

    @router.delete(
        "/sessions/{name}/jobs",
        summary="Take jobs out",
        openapi_extra=_taking("IdsRequest"),
        responses=answering("RemovedAnswer"),
    )
    async def remove(name: Name, request: Request, if_match: IfMatch = None) -> Response:
        return Answer(await service.remove(name, await document_of(request), if_match))

    router.include_router(_of_decisions(service))
    return router


def _of_decisions(service: Service) -> APIRouter:
    router = APIRouter(prefix="/sessions/{name}", tags=["decisions"])

    @router.post(
        "/solve",
        summary="Decide what every job does next",
        openapi_extra=_taking("SolveRequest"),
        responses=answering("SolvedAnswer"),
    )
    async def solve(name: Name, request: Request, if_match: IfMatch = None) -> Response:
        body = await request.body()
        return Answer(await service.solve(name, parse_json(body) if body else None, if_match))

    @router.post(
        "/cancel",
        summary="End the decision that is being made with what it has",
        responses=answering("CancelledAnswer"),
    )
    async def cancel(name: Name, request: Request) -> Response:
        require_nothing(await request.body())
        return Answer(await service.cancel(name))

    @router.get("/rounds", summary="The newest rounds, each in a line", responses=answering("RoundsAnswer"))
    async def rounds(name: Name, most: Most = 1000) -> Response:
        return Answer(await service.rounds(name, most))

    @router.get("/rounds/{number}", summary="A decision", responses=answering("DecisionAnswer"))
    async def round(name: Name, number: Number) -> Response:
        return Answer(await service.round(name, number))

    @router.post(
        "/rounds/{number}/apply",
        summary="Take a decision for what runs now",
        responses=answering("AppliedAnswer"),
    )
    async def apply(name: Name, number: Number, request: Request, if_match: IfMatch = None) -> Response:
        require_nothing(await request.body())
        return Answer(await service.apply(name, number, if_match))

    @router.get(
        "/rounds/{number}/instance",
        summary="The instance of a round, as a file",
        responses=answering("Instance"),
    )
    async def instance(name: Name, number: Number) -> Response:
        return Response(await service.instance(name, number), media_type="application/json")

    @router.get(
        "/rounds/{number}/result", summary="The result of a round, as a file", responses=answering("Result")
    )
    async def result(name: Name, number: Number) -> Response:
        return Response(await service.result(name, number), media_type="application/json")

    @router.get(
        "/report",
        summary="What the newest rounds would have changed of what ran",
        responses=answering("ReportAnswer"),
    )
    async def report(name: Name, most: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        return Answer(await service.report(name, most))

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
            told = "must be the number of a round, as events have it"
            raise InputError([f"Last-Event-ID: {told}, got {shown(last_event_id)}"])
        last = int(last_event_id) if last_event_id else None
        found = service.decisions(name, last if after is None else after)
        first = await anext(found)  # what is refused is refused before the answer begins
        return StreamingResponse(_events(first, found), media_type="text/event-stream")

    return router


async def _events(first: Any, found: AsyncIterator[dict[str, Any] | None]) -> AsyncIterator[bytes]:
    yield _event(first)
    # The answer has begun, and cannot be another one: it ends, and whoever asks again is told why.
    with suppress(*(kind for kind, *_ in STATUSES)):
        async for decision in found:
            yield _event(decision)


def _event(decision: dict[str, Any] | None) -> bytes:
    """A decision as an event; without one, a comment that keeps the connection."""
    if decision is None:
        return b": waiting\n\n"
    head = f"id: {decision['round']}\nevent: decision\ndata: ".encode()
    return head + json_bytes(decision) + b"\n\n"
