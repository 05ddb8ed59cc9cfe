"""``wattsched kubernetes`` on the saved snapshot, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.markdown import blocks_of
from wattsched.adapters.kubernetes.api import Api
from wattsched.adapters.kubernetes.snapshot import Mirror, load
from wattsched.cli.kubernetes import command
from wattsched.serve.journal import Journal

from .conftest import COMMAND, Run, wattsched

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT, PAGE = ROOT / "examples" / "kubernetes.json", ROOT / "docs" / "kubernetes.md"
SITE = SNAPSHOT.with_name("kubernetes-site.json")


@pytest.mark.parametrize("power_w", [100, 3_000, 6_000, 6_240])
def test_a_cap_below_the_draw_is_told_in_shadow(run: Run, power_w: int) -> None:
    done = run("kubernetes", "--shadow", "--snapshot", SNAPSHOT, "--power-w", power_w, code=0)
    assert f"stop default/old: {6_250 - power_w:,} W too many are drawn" in done.stderr


class Server(ThreadingHTTPServer):
    """Answers lists of what it has, and lets watches wait until it ends."""

    nodes: list[Any] = []
    pods: list[Any] = []

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.kubeconfig, self.folder = folder / "kubeconfig", folder
        self.over, self.tokens = threading.Event(), set[str]()
        self.configure(token="secret")

    def configure(self, **user: str) -> None:
        """Write the configuration of a client."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_address[1]}"}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.kubeconfig.write_text(json.dumps(config))


class Answers(BaseHTTPRequestHandler):
    """Answers of that server."""

    server: Server

    def do_GET(self) -> None:
        """Answer a list, or a watch; there is nothing else."""
        self.server.tokens.add(self.headers["Authorization"])
        kinds = {"/api/v1/nodes": self.server.nodes, "/api/v1/pods": self.server.pods}
        items = kinds.get(self.path.partition("?")[0])
        if items is not None and "watch=" in self.path:
            self.send_response(200)
            self.end_headers()
            self.server.over.wait()
            return
        told = {} if items is None else {"items": items, "metadata": {"resourceVersion": "1"}}
        self._answer(404 if items is None else 200, json.dumps(told).encode())

    def do_POST(self) -> None:
        """Make whatever is to be made."""
        self._answer(201, self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of no nodes and pods."""
    with Server(tmp_path) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--extender", "80000"], ["--extender", "0.0.0.0:1"], []], ids=str)
def test_what_fails_beside_the_watches_ends_cleanly(server: Server, options: list[str]) -> None:
    journal = server.folder / "journal"
    command = ("kubernetes", "--apply", "--kubeconfig", server.kubeconfig, "--journal", journal, *options)
    with Journal(journal if not options else server.folder / "other"):
        done = wattsched(*command)
    assert (done.returncode, done.stderr.count("\n"), done.stderr[:7]) == (2, 1, "error: ")


def test_a_first_round_that_fails_beside_the_watches_ends_cleanly(server: Server) -> None:
    server.nodes = [{"metadata": {"name": 3, "uid": "a", "resourceVersion": "1"}, "spec": {}, "status": {}}]
    command = ("kubernetes", "--apply", "--once", "--kubeconfig", server.kubeconfig)
    done = wattsched(*command, "--journal", server.folder / "journal")
    assert (done.returncode, done.stderr[:7]) == (2, "error: "), done.stderr


def test_a_key_for_agents_that_is_none_is_named(server: Server, run: Run) -> None:
    key = server.folder / "node-key"
    command = ("kubernetes", "--apply", "--once", "--kubeconfig", server.kubeconfig, "--node-key", key)
    for told in ("no such file", "must have 32 bytes, has 6"):
        done = run(*command, "--journal", server.folder / "journal", code=2)
        assert f"{key}: {told}" in done.stderr
        key.write_text("short\n")
    done = run("kubernetes", "--shadow", "--snapshot", SNAPSHOT, "--node-key", key, code=2)
    assert "--node-key needs --apply" in done.stderr


def test_watches_have_ended_when_they_are_closed(server: Server) -> None:
    mirror = Mirror(Api(str(server.kubeconfig)))
    assert mirror.snapshot()["nodes"] == []
    assert len(following()) == 2
    mirror.close()
    assert following() == []


def following() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if "follow" in one.name]


def test_the_running_loop_tells_of_jobs(server: Server) -> None:
    saved = load(str(SNAPSHOT))
    server.nodes, server.pods = saved["nodes"], saved["pods"]
    command = ("kubernetes", "--shadow", "--every", "0.2", "--power-w", "9500", "--options", SITE)
    with subprocess.Popen(
        [*COMMAND, *command, "--kubeconfig", server.kubeconfig],
        stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stderr is not None
        lines = []
        while sum(line.startswith("round ") for line in lines) < 4:
            lines.append(child.stderr.readline())
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
    assert child.returncode == 0
    assert sum("wait default/typo: wattsched.io/wieght" in line for line in lines) == 1
    assert sum(line.startswith("  start default/bert: GPUs") for line in lines) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"), [("secret\n", ""), ("sec\nret\n", "one line"), ("s\u00e9cret", "one line")]
)
def test_a_token_is_taken_from_a_file_and_never_printed(server: Server, text: str, told: str) -> None:
    server.nodes = load(str(SNAPSHOT))["nodes"]
    (server.folder / "token").write_text(text)
    server.configure(tokenFile="token")
    done = wattsched("kubernetes", "--shadow", "--once", "--kubeconfig", server.kubeconfig)
    assert (done.returncode, told in done.stderr) == (4 if told else 0, True), done.stderr
    assert server.tokens == (set() if told else {"Bearer secret"})
    assert "ret" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "users: [{name: u, user: {token: secret}]\n",
        "token: 'secret",
        "\0secret",
        "- secret",
        "secret",
        "{users: [secret]}",
        "{users: [{nme: secret, token: secret}, {nme: secret}], contexts: []}",
        "{current-context: secret, contexts: {a: secret}}",
        '{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], '
        '"users": [{"name": "u", "usr": {"token": "secret"}}], "clusters": [{"name": "c", "cluster": {}}]}',
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named_and_not_quoted(server: Server, text: str) -> None:
    server.kubeconfig.write_text(text)
    done = wattsched("kubernetes", "--shadow", "--once", "--kubeconfig", server.kubeconfig)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"error: {server.kubeconfig}: is no ")
    assert "secret" not in done.stderr


def test_the_page_has_all_options_and_says_what_is_to_be_installed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    options = [name for one in command.params for name in one.opts]
    assert [name for name in options if f"`{name}" not in page] == []
    assert "pip install 'wattsched[kubernetes]'" in page
    assert "'wattsched[kubernetes,serve]'" in page


def test_the_files_of_the_page_are_of_its_example(run: Run, tmp_path: Path) -> None:
    files = [block.text for block in blocks_of(PAGE) if block.tag == "KubernetesOptions"]
    assert files
    for text in files:
        (tmp_path / "site.json").write_text(text)
        done = run("kubernetes", "--shadow", "--snapshot", SNAPSHOT, "--options", tmp_path / "site.json")
        assert (done.exit_code, "  note" in done.stderr) == (0, False), done.output
