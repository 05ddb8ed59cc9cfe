"""Two writers of one session: who writes what was read before somebody else's change is told so."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from .conftest import Client
from .victim import DOCUMENT, body_of

S = "/v1/sessions/versions"


@pytest.fixture
def ask(shared: Client) -> Client:
    client = Client(shared.port)
    client("DELETE", S)
    assert client("PUT", S, DOCUMENT)[0] == 200
    assert client("PUT", f"{S}/jobs", body_of("a", "b"))[0] == 200
    assert client("POST", f"{S}/solve", {"apply": True})[0] == 200
    return client


def version(ask: Client, path: str = S) -> str:
    return ask.whole("GET", path)[1]["etag"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "", {"power_w": 4000.0}),
        ("PUT", "/jobs", body_of("c")),
        ("DELETE", "/jobs", {"ids": ["a"]}),
        ("POST", "/solve", {**body_of("c"), "apply": True}),
        ("POST", "/rounds/1/apply", None),
        ("DELETE", "", None),
    ],
)
def test_a_change_of_what_is_known_no_more_is_refused(ask: Client, method: str, path: str, body: Any) -> None:
    known = version(ask)
    assert ask("PATCH", S, {"power_w": 3000.0})[0] == 200
    before = ask("GET", S)[1]
    ask.headers = {"If-Match": known}
    status, told = ask(method, S + path, body)
    assert (status, told["error"][:30]) == (412, 'the session is of version "' + version(ask)[1:4])
    ask.headers = {}
    assert ask("GET", S)[1] == before
    ask.headers = {"If-Match": f"{known}, {version(ask)}"}
    assert ask(method, S + path, body)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("PATCH", "", {"power_w": 4000.0}), ("PUT", "/jobs", body_of("c")), ("DELETE", "/jobs", {"ids": ["a"]})],
)
def test_a_change_says_which_version_it_made(ask: Client, method: str, path: str, body: Any) -> None:
    before = version(ask)
    made = ask.whole(method, S + path, body)[1]["etag"]
    assert made != before
    assert made == version(ask)


def test_every_read_says_of_which_version_it_is(ask: Client) -> None:
    assert version(ask) == version(ask, f"{S}/jobs") == version(ask, f"{S}/instance")
    before = version(ask)
    assert ask("POST", f"{S}/solve")[0] == 200  # decides, and changes nothing
    assert version(ask) == before
    ask("DELETE", S)
    ask("PUT", S, DOCUMENT)
    assert version(ask).partition(".")[0] != before.partition(".")[0]
    ask.headers = {"If-Match": "*"}
    assert ask("PATCH", S, {"power_w": 3000.0})[0] == 200


def test_no_change_of_two_writers_is_lost(ask: Client) -> None:
    """Each adds a watt to what it has read, ten times, and begins again where it was refused."""

    def add() -> None:
        one, added = Client(ask.port), 0
        while added < 10:
            _, headers, _ = one.whole("GET", S)
            watts = one("GET", S)[1]["budgets"]["power_w"]
            one.headers = {"If-Match": headers["etag"]}
            added += one("PATCH", S, {"power_w": watts + 1.0})[0] == 200
            one.headers = {}

    ask("PATCH", S, {"power_w": 1000.0})
    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ask("GET", S)[1]["budgets"]["power_w"] == 1020.0
