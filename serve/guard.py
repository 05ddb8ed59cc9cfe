"""What stands before the application: who asks, for whom, how fast, how much; and no traceback leaves."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import math
import socket
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from wattsched.inputs import printable
from wattsched.serve.limits import Limits, Rate
from wattsched.serve.metrics import Metrics
from wattsched.serve.tokens import Tokens

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_OPEN = ("/healthz", "/readyz")
_PUBLIC = ("/docs", "/openapi.json")
"""Described for everybody: no token is needed."""
_READING = ("GET", "HEAD", "OPTIONS")
_BODY_S = 20.0
"""Seconds in which a request has to be sent."""

_log = logging.getLogger("wattsched.serve")


class RefusedError(Exception):
    """A request that is refused before it is looked at."""

    def __init__(self, status: int, told: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(told)
        self.status, self.headers = status, headers or {}


class Guard:
    """An ASGI application before another one.

    Parameters
    ----------
    app : callable
    limits : Limits
    tokens : Tokens, optional
        None lets everybody in.
    metrics : Metrics
    fixed : bool
        Refuse what would change anything.
    asking : collection of str
        Paths where POST changes nothing.
    hosts : collection of str
        Names that the service has, besides ``localhost``, its machine's name and its addresses. A page whose
        own name was made to lead here is asked for by that name, and an address is no name.
    """

    def __init__(
        self,
        app: Application,
        limits: Limits,
        tokens: Tokens | None,
        metrics: Metrics,
        *,
        fixed: bool = False,
        asking: Collection[str] = (),
        hosts: Collection[str] = (),
    ) -> None:
        self._app, self._limits, self._tokens, self._metrics = app, limits, tokens, metrics
        self._fixed, self._asking = fixed, frozenset(asking)
        self._hosts = {"localhost", *(name.lower() for name in (socket.gethostname(), *hosts))}
        self._rate = Rate(limits.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun_s, status = time.monotonic(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            status = message["status"] if message["type"] == "http.response.start" else status
            await send(message)

        try:
            self._admit(scope)
            await self._app(scope, _repeating(await self._body(scope, receive), receive), noting)
        except RefusedError as error:
            await _refuse(noting, error)
        except Exception as error:
            _log.exception("%s %s failed", _method(scope), printable(scope["path"]))
            if status:  # the answer has begun, and is cut short
                raise
            await _refuse(noting, RefusedError(500, f"internal error: {type(error).__name__}"))
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests.labels(_method(scope), route, str(status)).inc()
            self._metrics.request_s.labels(route).observe(time.monotonic() - begun_s)

    def _admit(self, scope: Scope) -> None:
        if scope["path"] in _OPEN:
            return
        if scope.get("state", {}).get("crowded"):
            told = "too many connections are open (--connections, --per-address)"
            raise RefusedError(503, told, {"Retry-After": "1", "Connection": "close"})
        self._require_own_page(scope)
        reads = scope["method"] in _READING or (scope["method"] == "POST" and scope["path"] in self._asking)
        client = (scope.get("client") or ("unknown", 0))[0]
        if self._tokens is not None and scope["path"] not in _PUBLIC:
            known = self._tokens.client(_header(scope, b"authorization"))
            if known is None:
                told = "a bearer token is needed: 'Authorization: Bearer TOKEN'"
                raise RefusedError(401, told, {"WWW-Authenticate": "Bearer"})
            if known.access == "read" and not reads:
                raise RefusedError(403, f"the token of '{known.name}' is for reading only")
            client = known.name
        if self._fixed and not reads:
            raise RefusedError(403, "what is here can be read only: rounds alone change it")
        if wait_s := self._rate.wait_s(client):
            told = f"more than {self._limits.rate:g} requests per second"
            raise RefusedError(429, told, {"Retry-After": str(math.ceil(wait_s))})

    def _require_own_page(self, scope: Scope) -> None:
        """Refuse what a page of somebody else sends from a browser that reaches this service."""
        host, origin = _header(scope, b"host") or "", _header(scope, b"origin")
        if not self._is_ours(host):
            told = f"the host {host!r:.120} is not known here; --allow-host names those of a proxy"
            raise RefusedError(403, told)
        page = "" if origin is None else origin.partition("://")[2].lower()
        # Another port of this machine is another page, too.
        if origin is not None and page != host.lower() and _name_in(page) not in self._hosts - {"localhost"}:
            raise RefusedError(403, f"a page of the origin {origin!r:.120} may not ask here")

    def _is_ours(self, host: str) -> bool:
        name = _name_in(host)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._hosts
        return True

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, which is never larger than it may be."""
        most = int(self._limits.body_mb * 1e6)
        told = f"the body is larger than {self._limits.body_mb:g} MB"
        stated = _header(scope, b"content-length") or ""
        if stated.isdecimal() and (len(stated) > 15 or int(stated) > most):
            raise RefusedError(413, told, {"Connection": "close"})
        kind = (_header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if (stated.strip("0") or _header(scope, b"transfer-encoding")) and kind != "application/json":
            # What a page of another origin may send without being asked about is of other kinds.
            told = f"the body must be 'Content-Type: application/json', got {kind!r:.120}"
            raise RefusedError(415, told, {"Connection": "close"})
        parts, size = [], 0
        try:
            async with asyncio.timeout(_BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the body is not complete")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise RefusedError(413, told, {"Connection": "close"})
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            told = f"the body was not complete after {_BODY_S:g} s"
            raise RefusedError(408, told, {"Connection": "close"}) from None


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in (*_READING, "PUT", "POST", "PATCH", "DELETE") else "other"


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


def _name_in(host: str) -> str:
    """Name or address of a host, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _repeating(body: bytes, receive: Receive) -> Receive:
    """Give the body once more, and then what comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received


async def _refuse(send: Send, error: RefusedError) -> None:
    body = json.dumps({"error": str(error)}).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
    listed = [(key.lower().encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
