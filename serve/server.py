"""The server: listens, and stops cleanly when it is asked to."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import BinaryIO

import uvicorn
from fastapi import FastAPI

from wattsched.interrupts import ending_soon
from wattsched.serve.connections import Connection, affordable
from wattsched.serve.lines import serve_lines
from wattsched.serve.service import Service
from wattsched.serve.standard_input import StandardInput

_PATIENCE_S = 5.0
"""Beyond the deadline of what is in flight."""


class Server(uvicorn.Server):
    """A server that finishes what is in flight, ends its streams, and returns.

    Parameters
    ----------
    app : FastAPI
        Made by `wattsched.serve.app.create`.
    """

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
    """A socket that is bound already, so that whoever asks is not refused.

    Raises
    ------
    OSError
        Where the address is not ours, or in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be of TCP, or asyncio would not send short answers at once.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(128)
    except BaseException:
        bound.close()
        raise
    return bound


def run_lines(service: Service, output: BinaryIO) -> None:
    """Answer lines of standard input until it ends, or a signal asks for the end."""
    with closing(StandardInput(int(service.limits.body_mb * 1e6))) as source:
        asyncio.run(_lines_to(service, output, source))


async def _lines_to(service: Service, output: BinaryIO, source: StandardInput) -> None:
    def write(line: bytes) -> None:
        output.write(line)
        output.flush()

    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def end() -> None:
        loop.call_soon_threadsafe(ended.set)
        service.cancel_all()

    with ending_soon(end):
        await serve_lines(service, source.lines(ended), write)
