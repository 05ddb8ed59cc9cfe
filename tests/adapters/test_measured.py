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
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from wattsched.adapters.measured import RoundMetrics, notify
from wattsched.adapters.rounds import Reason, Report, UnansweredError
from wattsched.serve.journal import Journal
from wattsched.serve.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]


def figures(text: str) -> dict[str, float]:
    found = re.findall(r"^(wattsched_\w+(?:\{[^}]*\})?) (\S+)$", text, re.M)
    return {name: float(value) for name, value in found}


def test_the_figures_of_a_round() -> None:
    metrics = Metrics()
    rounds = RoundMetrics(metrics)
    assert not any("domain" in name for name in figures(metrics.text().decode())), "nothing is known yet"
    feed = {"power_w": 300.0, "margin_w": 9.0, "next_cap_s": 1.8e9, "next_cap_w": 250.0}
    site = {"power_w": 900.0, "cap_w": 1000.0, "margin_w": 50.0, "measured_w": 880.0}
    rounds.note(Report(3, running=2, queued=5, domains={"": site, "feed": feed}, notes=["x was not stopped"]))
    rounds.note(UnansweredError("no answer"))
    found = figures(metrics.text().decode())
    for name in ("power", "cap", "margin", "measured"):
        assert found[f'wattsched_{name}_watts{{domain=""}}'] == site[f"{name}_w"]
    assert found['wattsched_power_watts{domain="feed"}'] == 300.0
    assert found['wattsched_cap_watts{domain="feed"}'] == math.inf
    assert math.isnan(found['wattsched_measured_watts{domain="feed"}'])
    assert math.isnan(found['wattsched_next_cap_timestamp_seconds{domain=""}'])
    assert found['wattsched_next_cap_timestamp_seconds{domain="feed"}'] == 1.8e9
    assert found['wattsched_next_cap_watts{domain="feed"}'] == 250.0
    assert (found["wattsched_jobs_running"], found["wattsched_jobs_queued"]) == (2, 5)
    assert (found["wattsched_rounds_failed"], found["wattsched_round_notes"]) == (1, 1)
    assert 0 <= found["wattsched_round_age_seconds"] < 60
    assert math.isnan(found["wattsched_readings_age_seconds"])
    rounds.note(Report(4, unread_s=100.0, cap_unknown=True, decided_s=0.5))
    found = figures(metrics.text().decode())
    assert 100 <= found["wattsched_readings_age_seconds"] < 160
    assert (found["wattsched_cap_unknown"], found["wattsched_decision_seconds"]) == (1, 0.5)


def test_jobs_are_counted_by_the_kind_of_reason_and_actions_where_something_is_done() -> None:
    """What users wrote is in texts and never in a label; a reason is what it was in a copy of a report."""
    metrics = Metrics()
    rounds = RoundMetrics(metrics)
    first = Reason("job 7 goes first", "order")
    waiting = {1: first, 2: "x y: is no field", 3: first}
    done = Report(waiting=waiting, started={4: ""}, stopped={5: "", 6: ""}, postponed={7: "no room yet"})
    rounds.note(done)
    rounds.note(done)
    rounds.note(Report(waiting=deepcopy(waiting), started={4: ""}, planned_w=1.0))  # of the shadow mode
    found = figures(metrics.text().decode())
    by_label = {
        name: {key.split('"')[1]: value for key, value in found.items() if f"_{name}{{" in key}
        for name in ("actions_total", "jobs_waiting")
    }
    others = dict.fromkeys(("change", "pause", "resume", "signal"), 0)
    assert by_label["actions_total"] == {"start": 2, "stop": 4} | others
    kinds = ("room", "power", "quota", "order", "cut", "paused", "undecided", "excluded", "postponed")
    assert by_label["jobs_waiting"] == dict.fromkeys(kinds, 0) | {"order": 2, "excluded": 1}
    sources = "".join(path.read_text() for path in (ROOT / "adapters").rglob("*.py"))
    assert {"cut", "room", "undecided"} < {*re.findall(r'Reason\(.*, "(\w+)"\)', sources)} <= {*kinds}


def test_the_dashboard_has_what_grafana_asks_for() -> None:
    board = json.loads((ROOT / "deploy" / "dashboard.json").read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    assert "id" not in board, "Grafana gives one"
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    assert "label_values(" in variables["instance"]["query"]["query"]
    cells = set[tuple[int, int]]()
    for number, panel in enumerate(board["panels"], start=1):
        assert (panel["id"], panel["datasource"]["uid"]) == (number, "${datasource}")
        assert panel["type"] in ("timeseries", "stat")
        assert panel["title"]
        assert panel["description"]
        place = panel["gridPos"]
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & cells, f"{panel['title']} lies on another"
        cells |= own
        assert max(x for x, _ in own) < 24
        for target in panel["targets"]:
            labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
            assert {*labels} <= {"domain", "reason", "action"}
            assert target["expr"].count("(") == target["expr"].count(")")
            selected = re.findall(r"wattsched_\w+{([^}]*)}", target["expr"])
            assert selected
            assert all('instance="$instance"' in one for one in selected)
    assert {name for name in re.findall(r"\$\{?([a-z]+)", json.dumps(board))} == variables.keys()


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
    """No command of Slurm answers; alerts and the dashboard ask for figures that one of us has."""
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
        text = answer.read().decode()
    found = figures(text)
    assert found["wattsched_rounds_failed"] >= 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/sessions", timeout=20)
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"wattsched_\w+", rule["expr"])}
    served = {*re.findall(r"^# TYPE (\w+)", text, re.M)}
    assert named - served == {"wattsched_extender_decision_age_seconds"}
    board = json.loads((ROOT / "deploy" / "dashboard.json").read_text())
    asked = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    asked += board["templating"]["list"][1]["query"]["query"]
    assert {*re.findall(r"wattsched_\w+", asked)} <= served
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
