"""The server: listens, and stops cleanly when it is asked to."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn
from fastapi import FastAPI

from wattsched.interrupts import ending_soon
from wattsched.serve.connections import Connection, affordable
from wattsched.serve.permissions import FILE
from wattsched.serve.service import Service

_PATIENCE_S = 5.0
"""Beyond the deadline of what is in flight."""


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
        """Look every second for connections whose time is over."""
        if counter % 10 == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.expire()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let streams end first, or they would be waited for; and decisions, with what they have."""
        self._service.end_streams()
        self._service.cancel_all()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals that ask for the end stop the server; they do not end the process before it is done."""

        def end() -> None:
            self.should_exit = True
            self._service.cancel_all()

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
