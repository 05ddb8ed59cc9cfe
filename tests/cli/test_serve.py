"""`wattsched serve` as a process."""

from __future__ import annotations

import http.client
import json
import random
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from wattsched.serve.journal import Journal

from .conftest import COMMAND, Run

TABLE = {"gpus": [1, 2, 4], "pool": ["A"] * 3, "rate": [1.0, 1.9, 3.5], "power_w": [200.0, 390.0, 750.0]}
NODES = [{"name": f"n{i}", "gpu_type": "A", "gpus": 4} for i in range(2)]
DOCUMENT = {
    "cluster": {"gpu_types": {"A": {"idle_power_w": 50.0}}, "nodes": NODES},
    "tables": {"t": TABLE},
    "objective": "goodput",
}


BUSY_S = 2.0
"""For a machine that has other work: an idle one needs none of it."""


def serving(path: Path) -> tuple[subprocess.Popen[str], Callable[..., http.client.HTTPResponse]]:
    """A server as a process, and how to ask it."""
    child = subprocess.Popen(
        [*COMMAND, "serve", str(path), "--port", "0"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stderr is not None
    port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", child.stderr.readline())[0])
    assert child.stderr.readline().startswith(f"Token: {path}-token")
    token = Path(f"{path}-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(method: str, where: str, body: Any = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, where, None if body is None else json.dumps(body), headers)
        return connection.getresponse()

    return child, ask


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_stops_cleanly(tmp_path: Path, ending: int) -> None:
    """What is in flight is finished; streams end; the journal is one file again."""
    path = tmp_path / "j.db"
    child, ask = serving(path)
    assert ask("PUT", "/v1/sessions/s", DOCUMENT).status == 200
    assert ask("PUT", "/v1/sessions/s/jobs", {"jobs": [{"name": "a", "options": "t"}]}).status == 200
    stream = ask("GET", "/v1/sessions/s/decisions")
    child.send_signal(ending)
    assert child.wait(20) == 0
    assert b"waiting" in stream.read()
    assert child.communicate() == ("", "Stopped\n")
    assert not path.with_name("j.db-wal").exists()
    with Journal(path) as journal:
        assert len(journal.open("s").session) == 1


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_decision_that_is_made(tmp_path: Path, ending: int) -> None:
    """Within a second, long before those that were given to prove it; the journal is whole."""
    rng = random.Random(1)
    gpus = [1, 2, 3, 4]
    tables = [
        {
            "gpus": gpus,
            "pool": ["A"] * 4,
            "rate": [g**0.8 * rng.uniform(0.5, 2.0) for g in gpus],
            "power_w": [g * rng.uniform(90.0, 200.0) for g in gpus],
        }
        for _ in range(2000)
    ]
    nodes = [{"name": f"n{i}", "gpu_type": "A", "gpus": 4} for i in range(250)]
    cluster = {"gpu_types": {"A": {"idle_power_w": 50.0}}, "nodes": nodes}
    child, ask = serving(tmp_path / "j.db")
    assert ask("PUT", "/v1/sessions/s", {**DOCUMENT, "cluster": cluster, "solver": "highs"}).status == 200
    assert ask("PATCH", "/v1/sessions/s", {"power_w": 90_000.0}).status == 200
    jobs = [{"name": f"j{k}", "options": table} for k, table in enumerate(tables)]
    asked = {"jobs": jobs, "deadline_s": 30.0, "gap": 0.0, "prove": 30.0}
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(ask, "POST", "/v1/sessions/s/solve", asked)
        time.sleep(2.0)
        began = time.monotonic()
        child.send_signal(ending)
        # Where the decision has no answer by then, the process is ended in it.
        assert child.wait(15) in (0, 128 + ending)
        assert time.monotonic() - began < 1.0 + BUSY_S
        if child.returncode == 0:
            assert answer.result().status == 200
        else:
            answer.exception()
    with Journal(tmp_path / "j.db") as journal:
        assert len(journal.rounds("s")) <= 1
        assert journal.open("s").session.to_instance().budgets.power_w == 90_000.0


def test_a_unix_socket(run: Run, tmp_path: Path) -> None:
    """Its owner alone asks, without a token and by any name of a host; one that is dead is replaced."""
    path, file = tmp_path / "j.db", tmp_path / "socket"
    for ending, replaced in ((signal.SIGKILL, False), (signal.SIGTERM, False), (signal.SIGTERM, True)):
        child = subprocess.Popen(
            [*COMMAND, "serve", str(path), "--socket", str(file)],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stderr is not None
        assert child.stderr.readline() == f"Listening on unix:{file}\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(str(file))
            connection = http.client.HTTPConnection("any.name")
            connection.sock = connected
            kind = {"Content-Type": "application/json"}
            connection.request("PUT", "/v1/sessions/s", json.dumps(DOCUMENT), kind)
            assert json.load(connection.getresponse())["gpus"] == 8
        assert "another server listens on it" in run("serve", tmp_path / "other", "--socket", file).stderr
        if replaced:
            file.unlink()
            file.write_text("another's")
        child.send_signal(ending)
        code, said = child.wait(20), child.communicate()[1]
        if ending == signal.SIGTERM:
            assert (code, said) == (0, "Stopped\n")
            assert file.exists() == replaced
    assert not path.with_name("j.db-token").exists()


def test_tokens_are_added(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    command = ("serve", tmp_path / "j.db", "--tokens", file, "--add-token")
    added = run(*command, "slurm", code=0)
    assert len(added.stdout.strip()) == 43
    assert "Added 'slurm' (write)" in added.stderr
    run(*command, "eye", "--read-only", code=0)
    assert [line.split()[:2] for line in file.read_text().splitlines()] == [
        ["slurm", "write"],
        ["eye", "read"],
    ]
    assert not (tmp_path / "j.db").exists()
