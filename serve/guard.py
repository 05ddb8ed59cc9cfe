"""Guard before the application: it checks token, origin, rate and size, and lets no traceback out."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import socket
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wattsched.reading.inputs import printable
from wattsched.serve.limits import Rate
from wattsched.serve.service import Service
from wattsched.serve.tokens import Tokens

_OPEN = ("/healthz", "/readyz")
_PUBLIC = ("/docs", "/openapi.json")
"""Described for everybody: no token is needed."""
_READING = ("GET", "HEAD", "OPTIONS")
_BODY_S = 20.0
"""Seconds in which a request has to be sent."""

_log = logging.getLogger("wattsched.serve")


class Guard:
    """An ASGI application before another one; `wattsched.serve.app.create` says what its arguments are.

    A page whose own name was made to lead here is asked for by that name, which is not ours; an address is
    no name.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        tokens: Tokens | None,
        *,
        fixed: bool = False,
        asking: Collection[str] = (),
        hosts: Collection[str] = (),
    ) -> None:
        self._app, self._limits, self._tokens, self._metrics = app, service.limits, tokens, service.metrics
        self._fixed, self._asking = fixed, frozenset(asking)
        self._hosts = {"localhost", *(name.lower() for name in (socket.gethostname(), *hosts))}
        self._rate = Rate(service.limits.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun_s, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            """Send a part of the answer, and note its status."""
            nonlocal status
            status = message["status"] if message["type"] == "http.response.start" else status
            await send(message)

        try:
            self._admit(scope)
            await self._app(scope, _repeating(await self._body(scope, receive), receive), noting)
        except HTTPException as error:
            answer = JSONResponse({"error": error.detail}, error.status_code, error.headers)
            await answer(scope, receive, noting)
        except Exception as error:
            _log.exception("%s %s failed", _method(scope), printable(scope["path"]))
            if status:  # the answer has begun, and is cut short
                raise
            answer = JSONResponse({"error": f"internal error: {type(error).__name__}"}, 500)
            await answer(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests.labels(_method(scope), route, str(status)).inc()
            self._metrics.request_s.labels(route).observe(time.monotonic() - begun_s)

    def _admit(self, scope: Scope) -> None:
        """Refuse a request by its head: its connection, its page, its token, or how many there are."""
        if scope["path"] in _OPEN:
            return
        if scope.get("state", {}).get("crowded"):
            text = "too many connections are open (--connections, --per-address)"
            raise HTTPException(503, text, {"Retry-After": "1", "Connection": "close"})
        headers = Headers(scope=scope)
        if (scope.get("server") or ("", 0))[1] is not None:  # no page reaches a Unix socket
            self._require_own_page(headers)
        reads = scope["method"] in _READING or (scope["method"] == "POST" and scope["path"] in self._asking)
        client = (scope.get("client") or ("unknown", 0))[0]
        if self._tokens is not None and scope["path"] not in _PUBLIC:
            known = self._tokens.client(headers.get("authorization"))
            if known is None:
                text = "a bearer token is needed: 'Authorization: Bearer TOKEN'"
                raise HTTPException(401, text, {"WWW-Authenticate": "Bearer"})
            if known.access == "read" and not reads:
                raise HTTPException(403, f"the token of '{known.name}' is for reading only")
            client = known.name
        if self._fixed and not reads:
            raise HTTPException(403, "what is here can be read only: rounds alone change it")
        if wait_s := self._rate.wait_s(client):
            text = f"more than {self._limits.rate:g} requests per second"
            raise HTTPException(429, text, {"Retry-After": str(math.ceil(wait_s))})

    def _require_own_page(self, headers: Headers) -> None:
        """Refuse what a page of somebody else sends from a browser that reaches this service."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(host):
            text = f"the host {host!r:.120} is not known here; --allow-host names those of a proxy"
            raise HTTPException(403, text)
        page = "" if origin is None else origin.partition("://")[2].lower()
        # Another port of this machine is another page, too.
        if origin is not None and page != host.lower() and _name_in(page) not in self._hosts - {"localhost"}:
            raise HTTPException(403, f"a page of the origin {origin!r:.120} may not ask here")

    def _is_ours(self, host: str) -> bool:
        """True for an address, and for the names of the service."""
        name = _name_in(host)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._hosts
        return True

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, which is never larger than it may be."""
        most = int(self._limits.body_mb * 1e6)
        text = f"the body is larger than {self._limits.body_mb:g} MB"
        headers = Headers(scope=scope)
        stated = headers.get("content-length", "")
        if stated.isdecimal() and (len(stated) > 15 or int(stated) > most):
            raise HTTPException(413, text, {"Connection": "close"})
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if (stated.strip("0") or headers.get("transfer-encoding")) and kind != "application/json":
            # What a page of another origin may send without being asked about is of other kinds.
            text = f"the body must be 'Content-Type: application/json', got {kind!r:.120}"
            raise HTTPException(415, text, {"Connection": "close"})
        parts, size = [], 0
        try:
            async with asyncio.timeout(_BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise HTTPException(400, "the body is not complete")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise HTTPException(413, text, {"Connection": "close"})
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            text = f"the body was not complete after {_BODY_S:g} s"
            raise HTTPException(408, text, {"Connection": "close"}) from None


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in (*_READING, "PUT", "POST", "PATCH", "DELETE") else "other"


def _name_in(host: str) -> str:
    """Name or address of a host, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _repeating(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, which has been read, and then what else comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received
