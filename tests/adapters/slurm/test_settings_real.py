"""Clocks of running jobs on a real Slurm, with the shipped agent on each node and a tool that only notes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.emulated_slurm import AGENT
from tests.adapters.processes import wait_for
from tests.adapters.slurm.conftest import CLOCKED
from tests.adapters.trust import trusting
from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.loop import Policy, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.snapshot import take
from wattsched.serve.journal import Journal

IDLE_W = 2 * 200 + 16 * 50.0
"""Two nodes without jobs."""
TOOL = """#!/bin/sh
case "$*" in *--query-gpu*) printf 'index, power.draw [W]\\n0, 300\\n1, 300\\n2, 300\\n3, 300\\n'; exit;; esac
echo "$NODE $@" >> {folder}/calls
"""


class Agents:
    """The shipped agent of each node, as processes."""

    def __init__(self, folder: Path, nodes: list[str]) -> None:
        self.folder, self.nodes = folder, nodes
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start them, and wait for their reports."""
        (self.folder / "settings").mkdir(mode=0o755, exist_ok=True)
        for node in self.nodes:
            words = [sys.executable, str(AGENT), "--settings", str(self.folder / "settings"), "--node", node]
            environment = {"PATH": f"{self.folder}/tools:/usr/bin:/bin", "NODE": node}
            self.processes.append(subprocess.Popen([*words, "--every", "0.2"], env=environment))
        reports = self.folder / "settings/nodes"
        wait_for(lambda: len(list(reports.glob("*.json"))) == len(self.nodes))

    def end(self) -> None:
        """End them."""
        for process in self.processes:
            process.terminate()
            process.wait(timeout=10)
        self.processes.clear()


@pytest.fixture
def agents(cluster: Any, folder: Path) -> Iterator[Agents]:
    """Agents with a tool of their own; they end with the test."""
    (folder / "tools").mkdir()
    (folder / "tools/nvidia-smi").write_text(TOOL.format(folder=folder))
    (folder / "tools/nvidia-smi").chmod(0o755)
    found = Agents(folder, cluster.names)
    yield found
    found.end()


@pytest.fixture
def start_rounds(cluster: Any, folder: Path) -> Iterator[Callable[[], Rounds]]:
    """Begin a process of ours by a call, after the one before has ended."""
    policy = Policy(Ours(), SiteOptions.model_validate(trusting()), apply=True, start_s=5.0)
    look = partial(take, timeout_s=3.0, settings=folder / "settings")
    with ExitStack() as stack:

        def start() -> Rounds:
            stack.close()
            journal = stack.enter_context(Journal(folder / "journal"))
            return Rounds(policy, Budget(4_000.0), journal, look, lambda of: Actions(of, folder / "settings"))

        yield start


def jobs_that_run(cluster: Any, rounds: Rounds, count: int) -> list[int]:
    """Jobs of two GPUs that run with the higher clock, each known to the agent of its node."""
    comment = json.dumps({"wattsched": {"options": CLOCKED}})
    words = ("sleep 90", "--hold", "--requeue", "--gres=gpu:1", "--comment", comment)
    numbers = [cluster.submit(*words) for _ in range(count)]
    assert sorted(rounds.round().started) == numbers
    wait_for(lambda: all(rounds.look().site.jobs[number].running for number in numbers))
    rounds.round()
    wait_for(lambda: all(one.settled for one in rounds.look().ours.values()))
    return numbers


def calls(folder: Path) -> list[str]:
    """Return the calls by which agents set something."""
    return (folder / "calls").read_text().splitlines()


def test_a_cut_without_notice_lowers_clocks_and_nobody_is_stopped(
    cluster: Any, agents: Agents, start_rounds: Callable[[], Rounds], folder: Path
) -> None:
    agents.start()
    rounds = start_rounds()
    jobs = jobs_that_run(cluster, rounds, 3)
    assert all(call.endswith("-lgc 1410,1410") for call in calls(folder))
    rounds.budget.power_w = IDLE_W + 3 * 300
    begun = time.monotonic()
    report = rounds.round()
    assert (report.stopped, sorted(report.changed), report.power_w) == ({}, jobs, IDLE_W + 3 * 300)
    assert time.monotonic() < begun + 10
    assert sum(call.endswith("-lgc 1005,1005") for call in calls(folder)) == 3
    # Another process of ours knows it, and gives the watts back when it can.
    rounds = start_rounds()
    rounds.budget.power_w = IDLE_W + 3 * 300
    report = rounds.round()
    assert (report.changed, report.stopped, report.started) == ({}, {}, {})
    rounds.budget.power_w = IDLE_W + 600 + 2 * 300
    report = rounds.round()
    assert len(report.changed) == 1
    wait_for(lambda: calls(folder)[-1].endswith("-lgc 1410,1410"))
    assert "Restarts=0" in cluster.run("scontrol", "show", "job", str(jobs[0]))


def test_a_process_that_ends_in_the_midst_of_a_cut_is_followed_by_another(
    cluster: Any,
    agents: Agents,
    start_rounds: Callable[[], Rounds],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents.start()
    rounds = start_rounds()
    jobs = jobs_that_run(cluster, rounds, 2)
    rounds.budget.power_w = IDLE_W + 2 * 300

    def killed(*_: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Actions, "_write_settings", killed)
        with pytest.raises(KeyboardInterrupt):
            rounds.round()
    # Slurm knows what was asked for, and the agents do not: the old watts count.
    assert rounds.look().power_w == IDLE_W + 2 * 600
    rounds = start_rounds()
    rounds.budget.power_w = IDLE_W + 2 * 300
    report = rounds.round()
    assert (report.stopped, report.power_w) == ({}, IDLE_W + 2 * 300)
    assert sum(call.endswith("-lgc 1005,1005") for call in calls(folder)) == len(jobs)


def test_jobs_stop_where_agents_do_not_answer(
    cluster: Any, agents: Agents, start_rounds: Callable[[], Rounds], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattsched.adapters.slurm.loop._CONFIRM_S", 2.0)
    agents.start()
    rounds = start_rounds()
    jobs = jobs_that_run(cluster, rounds, 2)
    agents.end()
    rounds.budget.power_w = IDLE_W + 2 * 300
    report = rounds.round()
    assert len(report.stopped) == 1
    assert report.power_w <= IDLE_W + 2 * 300
    # Agents that are back lower what still runs, and let it be raised again.
    agents.start()
    (kept,) = {*jobs} - {*report.stopped}
    wait_for(lambda: rounds.round() and rounds.look().ours[kept].settled)
