"""What is refused before it is a request: by its token, its size, its form, and how many there are."""

from __future__ import annotations

import http.client
import json
import socket
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from wattsched import InputError
from wattsched.serve.limits import Limits
from wattsched.serve.tokens import Tokens, add_token

from .conftest import Client, Serve
from .victim import DOCUMENT, body_of


def test_tokens(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    writer, reader = add_token(file, "slurm", "write"), add_token(file, "grafana", "read")
    assert file.stat().st_mode & 0o077 == 0
    assert writer not in file.read_text()
    with pytest.raises(InputError, match="there is a token of 'slurm'"):
        add_token(file, "slurm", "read")
    with pytest.raises(InputError, match="name: must be"):
        add_token(file, "a b", "read")
    with serve(tmp_path / "j.db", tokens=Tokens(file)) as ask:
        status, headers, _ = ask.whole("GET", "/v1/sessions")
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        for wrong in ("Bearer", "Bearer x", f"Basic {writer}", f"Bearer {writer}x", "Bearer é"):
            ask.headers = {"Authorization": wrong.encode().decode("latin-1")}
            assert ask("GET", "/v1/sessions")[0] == 401
        assert ask("GET", "/healthz")[0] == 200
        read, wrote = Client(ask.port, reader), Client(ask.port, writer)
        assert wrote("PUT", "/v1/sessions/s", DOCUMENT)[0] == 200
        assert read("GET", "/v1/sessions/s")[0] == 200
        status, told = read("POST", "/v1/sessions/s/solve")
        assert (status, told) == (403, {"error": "the token of 'grafana' is for reading only"})
    (tmp_path / "bad").write_text("slurm write nodigest\n")
    with pytest.raises(InputError, match="line 1: must be NAME"):
        add_token(tmp_path / "bad", "other", "read")
    assert (tmp_path / "bad").read_text() == "slurm write nodigest\n"
    with pytest.raises(InputError, match="line 1: must be NAME"):
        Tokens(tmp_path / "bad")


def refused(
    shared: Client, body: Any, headers: Any = MappingProxyType({}), **options: Any
) -> tuple[int, Any]:
    """What is answered to a body that is not read to its end: its sender may be cut off before that."""
    for _ in range(50):
        connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=10)
        try:
            kind = {"Content-Type": "application/json", **headers}
            connection.request("PUT", "/v1/sessions/x/jobs", body(), kind, **options)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except ConnectionError:
            continue
        finally:
            connection.close()
    raise AssertionError("nothing was answered")


def test_requests_that_are_too_large(shared: Client) -> None:
    told = (413, {"error": "the body is larger than 0.2 MB"})
    assert refused(shared, lambda: b" " * 300_000) == told
    chunked = {"encode_chunked": True, "headers": {"Transfer-Encoding": "chunked"}}
    # Without a stated length.
    assert refused(shared, lambda: iter([b" " * 100_000] * 4), **chunked) == told


def test_a_head_without_end(shared: Client) -> None:
    """It is not taken in, however much more comes."""
    with socket.create_connection(("127.0.0.1", shared.port), timeout=20) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ")
        with pytest.raises(ConnectionError):
            connection.sendall(b"x" * 100_000_000)


def test_a_half_written_request_changes_nothing(shared: Client) -> None:
    shared("PUT", "/v1/sessions/half", DOCUMENT)
    body = json.dumps(body_of("a")).encode()
    asked = "PUT /v1/sessions/half/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    head = f"{asked}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for sent in (head + body[:-1], head, head[:-2], b"\x00\xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", shared.port)) as connection:
            connection.sendall(sent)
    time.sleep(0.05)
    assert shared("GET", "/v1/sessions/half")[1]["jobs"] == 0


def test_rate(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db", Limits(rate=5.0)) as ask:
        answers = [ask.whole("GET", "/v1/sessions") for _ in range(100)]
        assert [status for status, *_ in answers[:10]] == [200] * 10
        refused = [headers for status, headers, _ in answers if status == 429]
        assert refused
        assert all(headers["retry-after"] == "1" for headers in refused)
        assert ask("GET", "/healthz")[0] == 200
