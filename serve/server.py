"""The server: listens, bounds its connections, and stops cleanly when it is asked to."""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from wattsched.environment.interrupts import ending_soon
from wattsched.serve.permissions import FILE
from wattsched.serve.service import Service

HEAD_S = 10.0
"""Seconds from an answer, or the beginning of a connection, to the end of the next head."""
READ_S = 20.0
"""Seconds after which a reader is dropped that takes nothing of its answer."""
SPARE = 32
"""Connections beyond the limits that are still told so, and whether the process lives."""

_OTHER_FILES = 64
"""Files of the process besides its connections: journal, libraries, pipes."""

_PATIENCE_S = 5.0
"""Beyond the deadline of what is in flight."""


class Connection(H11Protocol):
    """A connection; where there are too many, one without a whole request gives way, the oldest first.

    Where all of them have one, the new one is answered by a 503, but for whether the process lives.
    """

    _since_s = 0.0  # when it began to wait for a request
    _read_s = 0.0  # when its reader last took something of the answer, or had all of it
    _unread = 0  # bytes of the answer at the last look

    def connection_made(self, transport: Any) -> None:
        """Make room, or be answered by a 503."""
        super().connection_made(transport)
        self._since_s = self._read_s = self.loop.time()
        application: Any = self.config.app
        limits, most = application.state.service.limits, application.state.connections  # `affordable` ones
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        others = [one for one in others if not one.transport.is_closing()]
        address = None if self.client is None else self.client[0]
        own = [one for one in others if one.client is not None and one.client[0] == address]
        if len(own) >= min(limits.per_address, most):
            self._make_room(own, len(own) - min(limits.per_address, most))
        elif len(others) >= most:
            self._make_room(others, len(others) - most)

    def _make_room(self, others: list[Connection], beyond: int) -> None:
        """Drop an idle one of the others; without any, be answered by a 503, or dropped too far beyond."""
        idle = [one for one in others if not one.working]
        if idle:
            min(idle, key=lambda one: one._since_s).transport.abort()
        elif beyond < SPARE:
            self.app_state = {**self.app_state, "crowded": True}
        else:
            self.transport.abort()

    @property
    def working(self) -> bool:
        """True if a whole request has come and is not answered."""
        return self.cycle is not None and not (self.cycle.response_complete or self.cycle.more_body)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since_s = self.loop.time()
        super().on_response_complete()

    def expire(self) -> None:
        """Drop a connection whose head does not come to its end, or whose answer nobody reads."""
        now_s, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._read_s = now_s
        self._unread = unread
        asking = self.cycle is None or self.cycle.response_complete
        late = asking and not unread and now_s > self._since_s + HEAD_S
        if late or now_s > self._read_s + READ_S:
            self.transport.abort()


def affordable(connections: int) -> int:
    """Return how many of these connections the limit on open files allows, raising it where needed."""
    if os.name != "posix":
        return connections
    import resource

    needed = connections + SPARE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < needed:
        soft = needed if hard < 0 else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if 0 <= soft < needed:
        connections = max(1, soft - SPARE - _OTHER_FILES)
        text = "'ulimit -n' allows %d open files, and so %d connections"
        logging.getLogger("wattsched.serve").warning(text, soft, connections)
    return connections


class Server(uvicorn.Server):
    """A server that finishes what is in flight, ends its streams, and returns."""

    def __init__(self, app: FastAPI) -> None:
        self._service: Service = app.state.service
        limits = self._service.limits
        app.state.connections = affordable(limits.connections)
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                proxy_headers=False,  # a client would choose the address that its rate is counted by
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(limits.deadline_s + _PATIENCE_S),
            )
        )

    async def on_tick(self, counter: int) -> bool:
        """Look every second, the tenth tick, for connections whose time is over."""
        if counter % 10 == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.expire()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let streams end first, or they would be waited for; and decisions, with what they have."""
        self._service.end_streams()
        self._service.journal.cancel()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals that ask for the end stop the server; they do not end the process before it is done."""

        def end() -> None:
            self.should_exit = True
            self._service.journal.cancel()

        with ending_soon(end):
            yield


@contextmanager
def served_beside(app: FastAPI, bound: socket.socket) -> Iterator[None]:
    """Serve in a thread of its own, while something else is done."""
    server = Server(app)
    thread = threading.Thread(target=server.run, args=([bound],), name="wattsched-http")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def listening(host: str, port: int) -> socket.socket:
    """A socket that is bound already, so that whoever asks is not refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be of TCP, or asyncio would not send short answers at once.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with _closed_on_error(bound):
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(128)
    return bound


def listening_in(path: str) -> socket.socket:
    """A Unix socket that its owner alone may use; whoever asks for it removes its file at the end."""
    with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as other:
        other.setblocking(False)
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "is there, and is no socket")
        if other.connect_ex(path) != errno.ECONNREFUSED:
            raise FileExistsError(errno.EEXIST, "another server listens on it")
        os.unlink(path)
    bound = socket.socket(socket.AF_UNIX)
    with _closed_on_error(bound):
        bound.bind(path)
        os.chmod(path, FILE)  # nobody can connect before it listens
        bound.listen(128)
    return bound


@contextmanager
def _closed_on_error(bound: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        bound.close()
        raise
