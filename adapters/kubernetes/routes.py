"""The extender over HTTP, as routes of the service."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from wattsched.adapters.kubernetes.extender import Extender, filtered, preempted, prioritised, read_args
from wattsched.serve.app import Answer, document_of
from wattsched.serve.metrics import Metrics

ASKING = ("/kubernetes/filter", "/kubernetes/prioritize", "/kubernetes/preempt")
"""Paths of the routes; none of them changes anything."""

_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}


def router_of(extender: Extender) -> APIRouter:
    """Routes that the scheduler calls, for `wattsched.serve.app.create`."""
    router = APIRouter(prefix="/kubernetes", tags=["kubernetes"])

    @router.post("/filter", summary="ExtenderArgs: nodes that a pod may be placed on", openapi_extra=_BODY)
    async def filter(request: Request) -> Response:
        asked = read_args(await document_of(request))
        return Answer(filtered(asked, extender.asked_for(asked.pod)))

    @router.post("/prioritize", summary="ExtenderArgs: scores of nodes, 0 to 10", openapi_extra=_BODY)
    async def prioritize(request: Request) -> Response:
        asked = read_args(await document_of(request))
        return Answer(prioritised(asked, extender.opinion(asked.pod)))

    @router.post("/preempt", summary="ExtenderPreemptionArgs: whom to evict", openapi_extra=_BODY)
    async def preempt(request: Request) -> Response:
        return Answer(preempted(await document_of(request), extender.opinion))

    return router


def watch(extender: Extender, metrics: Metrics) -> None:
    """Tell of an extender what Prometheus asks for."""
    name, about = (
        "wattsched_extender_decision_age_seconds",
        "Age of the decision that questions are answered by",
    )
    metrics.watch(name, about, lambda: extender.age_s)
    for kind, told in (
        ("node", "sent to their node"),
        ("waits", "refused"),
        ("none", "left to the scheduler"),
    ):
        metrics.watch(
            f"wattsched_extender_{kind}", f"Pods {told}", partial(extender.counts.__getitem__, kind)
        )
