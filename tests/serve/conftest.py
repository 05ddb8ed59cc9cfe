"""A real server on a real socket, and a client of the standard library."""

from __future__ import annotations

import http.client
import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from wattsched.serve.app import create
from wattsched.serve.journal import Journal
from wattsched.serve.limits import Limits
from wattsched.serve.server import Server, listening
from wattsched.serve.service import Service


class Client:
    """Asks one server."""

    service: Service

    def __init__(self, port: int, token: str | None = None) -> None:
        self.port = port
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and document of an answer; the body is a document, or bytes as they are."""
        status, _, content = self.whole(method, path, body)
        return status, json.loads(content) if content[:1] in (b"{", b"[") else content

    def whole(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            kind = {} if content is None else {"Content-Type": "application/json"}
            connection.request(method, path, content, kind | self.headers)
            answer = connection.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()


@contextmanager
def served(path: Path, limits: Limits | None = None, **options: Any) -> Iterator[Client]:
    with Journal(path) as journal:
        app = create(journal, limits, **options)
        server, bound = Server(app), listening("127.0.0.1", 0)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            client = Client(bound.getsockname()[1])
            client.service = app.state.service
            yield client
        finally:
            server.should_exit = True
            thread.join()
            bound.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


Serve = Callable[..., AbstractContextManager[Client]]


@pytest.fixture
def serve() -> Serve:
    return served


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One server for many requests."""
    with served(tmp_path_factory.mktemp("shared") / "j.db", Limits(body_mb=0.2)) as client:
        yield client


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.db") as made:
        yield made
