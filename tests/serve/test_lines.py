"""JSON lines: the same verbs, for a program that starts us as a child."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wattsched.serve.journal import Journal

from .victim import DOCUMENT


def answers(path: Path, *lines: Any) -> dict[Any, dict[str, Any]]:
    """Answers of a real child to some lines, by their numbers."""
    told = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    child = subprocess.run(
        [sys.executable, "-m", "wattsched", "serve", str(path), "--stdio", "--body-mb", "0.01"],
        input=told, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (child.returncode, child.stderr) == (0, b"")
    found = [json.loads(line) for line in child.stdout.splitlines()]
    return {answer.get("id"): answer for answer in found}


def started(journal: Path) -> subprocess.Popen[str]:
    """A child that waits for lines."""
    return subprocess.Popen(
        [sys.executable, "-m", "wattsched", "serve", str(journal), "--stdio"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_one_after_the_other(tmp_path: Path) -> None:
    """A child that is asked and answers, one line at a time, and ends with its input."""
    child = started(tmp_path / "j.db")
    assert child.stdin is not None
    assert child.stdout is not None

    def ask(verb: str, body: Any = None) -> Any:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps({"id": verb, "verb": verb, "session": "s", "body": body}) + "\n")
        child.stdin.flush()
        answer = json.loads(child.stdout.readline())
        assert answer["id"] == verb
        return answer["ok"]

    ask("create", DOCUMENT)
    ask("upsert", {"jobs": [{"name": "a", "options": "t"}]})
    made = ask("solve", {"deadline_s": 10.0})
    assert set(made["jobs"]) == {"a"}
    assert ask("apply", {"number": made["round"]}) == {"applied": 1}
    assert ask("jobs")["jobs"][0]["current"]["nodes"] == made["jobs"]["a"]["nodes"]
    assert ask("instance", {"number": 1})["format"] == "wattsched-instance/1"
    assert ask("update", {"power_w": 9e3})["budgets"]["power_w"] == 9e3
    assert [line["number"] for line in ask("rounds")["rounds"]] == [1]
    _, errors = child.communicate(timeout=20)
    assert (child.returncode, errors) == (0, "")
    with Journal(tmp_path / "j.db") as journal:
        assert len(journal.open("s").session) == 1


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_waits_for_a_line(tmp_path: Path, ending: int) -> None:
    child = started(tmp_path / "j.db")
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write('{"id": 1, "verb": "sessions"}\n')
    child.stdin.flush()
    assert json.loads(child.stdout.readline())["id"] == 1
    child.send_signal(ending)
    assert child.wait(20) == 0
    assert (child.stdout.read(), child.stderr and child.stderr.read()) == ("", "")


def test_requests_of_a_session_are_done_in_their_order(tmp_path: Path) -> None:
    """All are sent at once, and none has to wait for an answer."""
    steps: list[tuple[str, Any]] = [("create", DOCUMENT)]
    for k in range(5):
        steps += [("upsert", {"jobs": [{"name": f"j{k}", "options": "t"}]}), ("solve", {"apply": True})]
    lines = [{"id": i, "verb": verb, "session": "s", "body": body} for i, (verb, body) in enumerate(steps)]
    found = answers(tmp_path / "j.db", *lines)
    assert [found[i]["ok"]["jobs"] for i in range(1, 11, 2)] == [1, 2, 3, 4, 5]
    assert [found[i]["ok"]["round"] for i in range(2, 11, 2)] == [1, 2, 3, 4, 5]


def test_who_watches_waits_for_what_was_asked_before(tmp_path: Path) -> None:
    lines = [
        {"id": verb, "verb": verb, "session": "s", "body": body}
        for verb, body in (("create", DOCUMENT), ("watch", None), ("solve", {"deadline_s": 10.0}))
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "wattsched", "serve", str(tmp_path / "j.db"), "--stdio"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
    child.stdin.flush()
    found = [json.loads(child.stdout.readline()) for _ in range(3)]
    child.communicate(timeout=20)
    (watched,) = [answer for answer in found if answer["id"] == "watch"]
    assert watched["decision"]["round"] == 1


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    found = answers(
        tmp_path / "j.db",
        {"id": 1, "verb": "describe", "session": "none"},
        {"id": 2, "verb": "nix"},
        {"id": 3, "verb": "solve", "session": 5},
        {"id": 4, "verb": "create", "session": "a/b", "body": DOCUMENT},
        {"id": 5, "verb": "sessions", "odd": 1},
        {"id": 6, "verb": "round", "session": "s", "body": {"number": -1}},
        b'{"id": 7, "verb": "sessions"' + b" " * 20_000 + b"}\n",
        {"id": 8, "verb": "watch", "session": "none"},
        b"\n",
        {"id": 9, "verb": "sessions"},
    )
    assert found[9] == {"id": 9, "ok": {"sessions": []}}
    assert {number: answer["status"] for number, answer in found.items() if number != 9} == {
        1: 404, 2: 422, 3: 422, 4: 422, 5: 422, 6: 422, None: 422, 8: 404,
    }  # fmt: skip
    assert found[None]["error"] == "the line is longer than 0.01 MB"
    assert "choose one of sessions, create" in found[2]["error"]


def test_lines_that_are_no_requests(tmp_path: Path) -> None:
    found = answers(tmp_path / "j.db", b"\xff\n", b"[]\n", b"NaN\n", b"{\n", b"[" * 5000 + b"\n")
    assert set(found) == {None}


def test_an_id_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    told = ("7", "1.5", '"a"', "null")
    lines = [b'{"id": %s, "verb": "sessions"}\n' % one.encode() for one in told]
    assert set(answers(tmp_path / "j.db", *lines)) == {7, 1.5, "a", None}
    for odd in (b"1e400", b"-1e400", b"true", b"[1]", b"{}"):
        found = answers(tmp_path / "j.db", b'{"id": %s, "verb": "sessions"}\n' % odd)
        assert found[None]["status"] == 422
        assert found[None]["faults"][0].startswith("id: must be text or a finite number, got ")
