"""Clients that mean harm: pages in a browser, heads without end, readers that do not read, and crowds."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from wattsched import InputError
from wattsched.serve import guard, server
from wattsched.serve.limits import Limits
from wattsched.serve.tokens import Tokens

from .conftest import Client, Serve
from .test_service import occupying
from .victim import DOCUMENT, jobs

SOLVE = "/v1/sessions/s/solve"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8765"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "wattsched.lab", "Origin": "https://evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://wattsched.lab"}, 200),
        ({"Host": "Wattsched.Lab", "Origin": "https://wattsched.lab:8443"}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "10.0.0.7:8765", "Origin": "http://10.0.0.7:8765"}, 200),
        ({"Host": "[::1]:8765"}, 200),
        ({}, 200),
    ],
)
def test_a_page_of_somebody_else_changes_nothing(
    serve: Serve, tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """Whether its name was made to lead here, or it sends what browsers send without being asked about."""
    with serve(tmp_path / "j.db", hosts=["wattsched.lab"]) as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        ask.headers = headers
        assert ask("POST", SOLVE)[0] == status
        assert ask("GET", "/healthz") == (200, {"alive": True})
        ask.headers = {}
        assert ask("GET", "/v1/sessions/s")[1]["last_round"] == (1 if status == 200 else None)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_a_body_is_said_to_be_json(shared: Client, kind: str) -> None:
    shared("PUT", "/v1/sessions/s", DOCUMENT)
    ask = Client(shared.port)
    ask.headers = {"Content-Type": kind}
    assert ask("PATCH", "/v1/sessions/s", {"power_w": 1.0})[0] == 415
    assert ask("POST", SOLVE, b"{}")[0] == 415
    assert ask("POST", SOLVE)[0] == 200
    ask.headers = {"Content-Type": "application/json; charset=utf-8"}
    assert ask("PATCH", "/v1/sessions/s", {"power_w": 5e3})[0] == 200


def test_the_token_of_a_journal(tmp_path: Path) -> None:
    """It is made once, and again where others could read it."""
    path, tokens = Tokens.own(tmp_path / "j.db")
    token = path.read_text().strip()
    assert (path.name, path.stat().st_mode & 0o777) == ("j.db-token", 0o600)
    client = tokens.client(f"Bearer {token}")
    assert client is not None
    assert client.access == "write"
    assert tokens.client("Bearer x") is None
    assert Tokens.own(tmp_path / "j.db")[1].client(f"Bearer {token}") is not None
    path.chmod(0o644)
    assert Tokens.own(tmp_path / "j.db")[1].client(f"Bearer {token}") is None
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("x\n")
    with pytest.raises(InputError, match="is no token; remove it"):
        Tokens.own(tmp_path / "j.db")


def test_the_description_needs_no_token(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db", tokens=Tokens.own(tmp_path / "j.db")[1]) as ask:
        assert [ask("GET", path)[0] for path in ("/docs", "/openapi.json")] == [200, 200]
        assert [ask("GET", path)[0] for path in ("/metrics", "/v1/sessions")] == [401, 401]
        ask.headers = {"Host": "evil.example"}
        assert ask("GET", "/openapi.json")[0] == 403


@contextmanager
def heads(
    port: int, count: int, text: bytes = b"GET /v1/sessions HTTP/1.1\r\nHost:"
) -> Iterator[list[socket.socket]]:
    """Connections whose heads do not come to their end."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            opened.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)))
            opened[-1].sendall(text)
        yield opened


def test_unfinished_heads_keep_nobody_out(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(tmp_path / "j.db") as ask:
        began = time.monotonic()
        with heads(ask.port, 600) as opened:
            assert ask("GET", "/healthz") == (200, {"alive": True})
            assert ask("PUT", "/v1/sessions/s", DOCUMENT)[0] == 200
            assert ask("POST", SOLVE)[0] == 200
            assert time.monotonic() - began < server.HEAD_S
            monkeypatch.setattr(server, "HEAD_S", 0.2)
            with suppress(ConnectionError):
                for _ in range(200):  # one byte after the other
                    opened[-1].sendall(b"x")
                    time.sleep(0.05)
                pytest.fail("a head without end goes on")


def test_bodies_that_do_not_come_keep_nobody_out(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"PUT /v1/sessions/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    text += b"Content-Type: application/json\r\n\r\n{"
    monkeypatch.setattr(guard, "_BODY_S", 0.5)
    with serve(tmp_path / "j.db", Limits(connections=20)) as ask, heads(ask.port, 30, text) as opened:
        assert ask("PUT", "/v1/sessions/s", DOCUMENT)[0] == 200
        assert b" 408 " in opened[-1].recv(1000)


@pytest.mark.slow
def test_whether_it_lives_is_answered_in_a_crowd(serve: Serve, tmp_path: Path) -> None:
    """Where every connection has work, others are told so at once."""
    limits = Limits(workers=4, connections=8, per_address=4)
    with serve(tmp_path / "j.db", limits, routers=[occupying()]) as ask:
        threads = [threading.Thread(target=ask, args=("GET", "/occupy")) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        status, headers, content = ask.whole("GET", "/v1/sessions")
        assert (status, headers["retry-after"]) == (503, "1")
        assert b"too many connections are open" in content
        assert ask("GET", "/healthz")[0] == 200
        assert ask("GET", "/readyz")[0] == 200
        for thread in threads:
            thread.join()
        assert ask("GET", "/healthz")[0] == 200


def test_a_stream_that_nobody_reads_is_dropped(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READ_S", 1.0)
    with serve(tmp_path / "j.db", Limits(streams=1)) as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", ask.port))
            reader.sendall(b"GET /v1/sessions/s/decisions?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while b"wattsched_streams 1.0" not in ask("GET", "/metrics")[1]:
                time.sleep(0.01)
            ask("POST", SOLVE, {"jobs": jobs(*(f"j{k}" * 20 for k in range(2000))), "deadline_s": 5.0})
            until = time.monotonic() + 20.0
            while b"wattsched_streams 1.0" in ask("GET", "/metrics")[1]:
                assert time.monotonic() < until
                assert ask("POST", SOLVE, {"deadline_s": 0.5})[0] in (200, 503)  # 503: not in time


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))
from wattsched.__main__ import main
sys.argv = ["wattsched", "serve", sys.argv[1], "--port", "0", "--no-token"]
main()
"""


def test_no_files_are_left(tmp_path: Path) -> None:
    """More connections than the process may have files: what is done goes on, and nothing is lost."""
    child = subprocess.Popen(
        [sys.executable, "-c", LIMITED, str(tmp_path / "j.db")], stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    try:
        lines = [child.stderr.readline() for _ in range(3)]
        port = int(next(line for line in lines if "Listening" in line).rpartition(":")[2])
        assert any("'ulimit -n' allows 120 open files, and so 24 connections" in line for line in lines)
        assert any("WARNING: --no-token" in line for line in lines)
        ask = Client(port)
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        with heads(port, 300):
            for number in range(1, 6):
                assert ask("GET", "/healthz")[0] == 200
                assert ask("POST", SOLVE)[1]["round"] == number
        assert ask("GET", "/v1/sessions/s")[1]["last_round"] == 5
    finally:
        child.terminate()
        assert child.wait(30) == 0
