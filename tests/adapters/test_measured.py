"""What Prometheus and systemd are told of rounds, and the rules and units that we ship for them."""

from __future__ import annotations

import json
import math
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from wattsched.adapters.measured import RoundMetrics, notify
from wattsched.adapters.rounds import Report, UnansweredError
from wattsched.serve.journal import Journal
from wattsched.serve.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]


def figures(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(wattsched_\w+) (\S+)$", text, re.M)}


def test_the_figures_of_a_round() -> None:
    metrics = Metrics()
    rounds = RoundMetrics(metrics)
    rounds.note(Report(3, 0.0, running=2, queued=5, power_w=900.0, cap_w=1000.0, notes=["x was not stopped"]))
    rounds.note(UnansweredError("no answer"))
    found = figures(metrics.text().decode())
    assert (found["wattsched_power_watts"], found["wattsched_cap_watts"]) == (900.0, 1000.0)
    assert (found["wattsched_jobs_running"], found["wattsched_jobs_queued"]) == (2, 5)
    assert (found["wattsched_rounds_failed"], found["wattsched_round_notes"]) == (1, 1)
    assert 0 <= found["wattsched_round_age_seconds"] < 60
    rounds.note(Report(4, 0.0))
    found = figures(metrics.text().decode())
    assert (found["wattsched_cap_watts"], found["wattsched_margin_watts"]) == (float("inf"), 0.0)
    assert math.isnan(found["wattsched_measured_watts"])
    rounds.note(Report(5, 0.0, margin_w=50.0, measured_w=880.0))
    found = figures(metrics.text().decode())
    assert (found["wattsched_margin_watts"], found["wattsched_measured_watts"]) == (50.0, 880.0)


@pytest.mark.parametrize("abstract", [True, False])
def test_systemd_is_told_of_each_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    name = f"wattsched-{tmp_path}" if abstract else str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}" if abstract else name)
        systemd.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        notify()
        assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
    notify()  # nobody listens any more
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify()


def test_a_daemon_answers_prometheus_and_ends_within_a_second(tmp_path: Path) -> None:
    """The commands of Slurm answer from a file; every alert asks for a figure that one of us has."""
    saved = json.loads((ROOT / "examples" / "slurm.json").read_text())
    for command in ("sinfo", "squeue", "scontrol", "sacctmgr"):
        (tmp_path / command).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / command).chmod(0o755)
    assert saved
    words = ["slurm", "--shadow", "--power-w", "9000", "--every", "1", "--metrics", "0"]
    words += ["--journal", str(tmp_path / "j.db")]
    environment = {"PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-m", "wattsched", *words], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert child.stderr is not None
    port = int(child.stderr.readline().rpartition(" ")[2])
    assert "no round" in child.stderr.readline()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        found = figures(answer.read().decode())
    assert found["wattsched_rounds_failed"] >= 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/sessions", timeout=20)
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"wattsched_\w+", rule["expr"])}
    assert named - found.keys() == {"wattsched_extender_decision_age_seconds", "wattsched_requests_total"}
    began = time.monotonic()
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) in (0, 4, 128 + signal.SIGTERM)
    assert time.monotonic() - began < 3.0
    child.stderr.close()


STUCK = """
import threading, time
from pathlib import Path
from sys import argv
from wattsched.cli.clusters import stopping
from wattsched.serve.journal import Journal
with Journal(argv[1]) as journal, stopping(threading.Event(), journal):
    print("ready", flush=True)
    while True:
        sum(range(1_000_000))
"""


def test_a_round_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """It looks for nobody who asks for the end; the journal is whole."""
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, str(tmp_path / "j.db")], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        began = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 128 + signal.SIGTERM
        assert time.monotonic() - began < 3.0
    with Journal(tmp_path / "j.db") as journal:
        assert journal.sessions() == []
