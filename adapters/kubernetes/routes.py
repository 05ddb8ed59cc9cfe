"""The extender over HTTP, as routes of the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from wattsched.adapters.kubernetes.extender import (
    Extender,
    ExtenderArgs,
    ExtenderPreemptionArgs,
    Opinion,
    filtered,
    preempted,
    prioritised,
    read_args,
)
from wattsched.serve.app import Answer, document_of
from wattsched.serve.metrics import Metrics

ASKING = ("/kubernetes/filter", "/kubernetes/prioritize", "/kubernetes/preempt")
"""Paths of the routes; none of them changes anything."""


def router_of(extender: Extender) -> APIRouter:
    """Routes that the scheduler calls, for `wattsched.serve.app.create`."""
    router = APIRouter(prefix="/kubernetes", tags=["kubernetes"])

    def opinion(request: Request, pod: Mapping[str, Any]) -> Opinion | None:
        found = extender.opinion(pod)
        kind = "none" if found is None else "node" if found.node else "waits"
        _metrics(request).opinions.labels(kind).inc()
        return found

    @router.post(
        "/filter", summary="Nodes that a pod may be placed on", openapi_extra=_taking(ExtenderArgs)
    )
    async def filter(request: Request) -> Response:
        asked = read_args(await document_of(request))
        return Answer(filtered(asked, opinion(request, asked.pod)))

    @router.post("/prioritize", summary="Scores of nodes, 0 to 10", openapi_extra=_taking(ExtenderArgs))
    async def prioritize(request: Request) -> Response:
        asked = read_args(await document_of(request))
        return Answer(prioritised(asked, extender.opinion(asked.pod)))

    @router.post(
        "/preempt",
        summary="Whom the scheduler may evict for a pod",
        openapi_extra=_taking(ExtenderPreemptionArgs),
    )
    async def preempt(request: Request) -> Response:
        return Answer(preempted(await document_of(request), extender.opinion))

    return router
