"""Rounds in the background, and decisions as a stream."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Any

import pytest

from wattsched.serve.limits import Limits
from wattsched.serve.recorded import RecordedSession
from wattsched.serve.workers import BusyError

from .conftest import Client, Serve
from .victim import DOCUMENT, body_of


def test_rounds_in_the_background_and_as_a_stream(serve: Serve, tmp_path: Path) -> None:
    with serve(tmp_path / "j.db") as ask:
        ask("PUT", "/v1/sessions/s", {**DOCUMENT, "every_s": 0.1})
        ask("PUT", "/v1/sessions/s/jobs", body_of("a"))
        connection = http.client.HTTPConnection("127.0.0.1", ask.port, timeout=20)
        connection.request("GET", "/v1/sessions/s/decisions?after=0")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        rounds = []
        while len(rounds) < 4:
            line = answer.readline()
            if line.startswith(b"data: "):
                rounds.append(json.loads(line[6:])["round"])
        connection.close()
        assert rounds == [1, 2, 3, 4]
    with serve(tmp_path / "j.db") as ask:  # goes on after a restart
        before = ask("GET", "/v1/sessions/s")[1]["last_round"]
        for _ in range(100):
            if ask("GET", "/v1/sessions/s")[1]["last_round"] > before:
                return
            time.sleep(0.05)
        pytest.fail("no round in the background after a restart")


def test_a_stream_of_a_session_that_was_made_again_begins_with_its_first_round(shared: Client) -> None:
    for rounds in (2, 1):
        shared("DELETE", "/v1/sessions/again")
        shared("PUT", "/v1/sessions/again", DOCUMENT)
        for _ in range(rounds):
            shared("POST", "/v1/sessions/again/solve")
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=20)
    connection.request("GET", "/v1/sessions/again/decisions", headers={"Last-Event-ID": "2"})
    answer = connection.getresponse()
    lines = [answer.readline() for _ in range(3)]
    connection.close()
    assert b"id: 1\n" in lines


def test_more_streams_than_may_be_open_are_refused_by_the_name_of_their_limit(
    serve: Serve, tmp_path: Path
) -> None:
    with serve(tmp_path / "j.db", Limits(streams=1)) as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        connection = http.client.HTTPConnection("127.0.0.1", ask.port, timeout=20)
        connection.request("GET", "/v1/sessions/s/decisions")
        assert connection.getresponse().status == 200
        refused = ask("GET", "/v1/sessions/s/decisions")
        connection.close()
    assert refused == (503, {"error": "at most 1 stream may be open (--streams)"})


@pytest.mark.parametrize("busy", [True, False])
def test_a_stream_ends_that_cannot_go_on(
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    busy: bool,
) -> None:
    """Its session is dropped while it reads what was decided before, or there is too much to do."""
    read = RecordedSession.round_after

    def after(session: RecordedSession, number: int) -> Any:
        if number == 1 and busy:
            raise BusyError
        if number == 1:
            assert ask("DELETE", "/v1/sessions/s")[0] == 200
        return read(session, number)

    with serve(tmp_path / "j.db", Limits(workers=4)) as ask:
        ask("PUT", "/v1/sessions/s", DOCUMENT)
        for _ in range(4):
            ask("POST", "/v1/sessions/s/solve")
        monkeypatch.setattr(RecordedSession, "round_after", after)
        status, _, content = ask.whole("GET", "/v1/sessions/s/decisions?after=0")
        assert (status, content.count(b"event: decision")) == (200, 1)
    assert not caplog.records
