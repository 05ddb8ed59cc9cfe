"""Pauses and checkpoint signals on a real Slurm."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.processes import wait_for
from wattsched.adapters.budget import Budget
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.loop import Policy, Report, Rounds
from wattsched.adapters.slurm.options import Ours, SiteOptions
from wattsched.adapters.slurm.snapshot import take
from wattsched.serve.journal import Journal

IDLE_W = 2 * 200 + 16 * 50.0
"""Two nodes without jobs; a GPU of a job draws 350 W more."""
TICKS = "cd {folder}; while true; do sleep 0.1; date +%s.%N > new && mv new ticks; done"
"""A reader, and a stop at any moment, find a whole time in the file."""


@pytest.fixture
def begin(folder: Path) -> Iterator[Callable[[dict[str, Any]], Rounds]]:
    """Begin rounds that act, by what the site says of all jobs."""
    with Journal(folder / "journal") as journal:

        def begin(said: dict[str, Any]) -> Rounds:
            policy = Policy(
                Ours(), SiteOptions.model_validate({"jobs": {"wrap": said}}), apply=True, every_s=1.0
            )
            return Rounds(policy, Budget(IDLE_W + 8 * 350), journal, take, Actions)

        yield begin


def submit(cluster: Any, script: str, gpus: int, *options: str) -> int:
    """Submit a job of ours; its number."""
    comment = json.dumps({"wattsched": {}})
    words = (*options, "--hold", "--requeue", f"--gres=gpu:{gpus}", "--time=5", "--comment", comment)
    number: int = cluster.submit(script, *words)
    return number


def running(cluster: Any, rounds: Rounds, script: str, folder: Path) -> int:
    """Start a job of 8 GPUs, which writes a file; its number."""
    job = submit(cluster, script, 8)
    assert list(rounds.round().started) == [job]
    wait_for((folder / "ticks").exists)
    return job


def test_a_paused_job_keeps_its_gpus_and_its_time(
    cluster: Any, begin: Callable[[dict[str, Any]], Rounds], folder: Path
) -> None:
    rounds = begin({"pausable": True, "paused_power_w": 60, "weight": 5})
    job = running(cluster, rounds, TICKS.format(folder=folder), folder)
    other = submit(cluster, "sleep 60", 8, "--job-name=other")
    before = rounds.look().ours[job]
    rounds.budget.power_w = IDLE_W + 1000
    report = rounds.round()
    assert (list(report.paused), report.stopped, report.power_w) == ([job], {}, IDLE_W + 8 * 10)
    time.sleep(1.0)
    ticks = (folder / "ticks").read_text()
    time.sleep(3.0)
    paused = rounds.look().ours[job]
    assert (paused.paused, paused.gpus, (folder / "ticks").read_text()) == (True, before.gpus, ticks)
    # Slurm itself starts nothing on its GPUs, and gives its CPUs to others.
    theirs = cluster.submit("sleep 60", f"--nodelist={next(iter(before.gpus))}", "--gres=gpu:1")
    time.sleep(2.0)
    assert rounds.look().site.jobs[theirs].pending
    assert rounds.look().site.nodes[next(iter(before.gpus))].free_cpus == 16
    cluster.run("scancel", str(theirs))
    # There are watts for the paused one alone, which waits for longer than those that wait to start.
    rounds.budget.power_w = IDLE_W + 8 * 350
    report = rounds.round()
    assert (list(report.resumed), report.started) == ([job], {})
    assert other in report.waiting
    wait_for(lambda: (folder / "ticks").read_text() != ticks)
    one = rounds.look().ours[job]
    assert one.job.running
    assert one.job.start_s >= before.job.start_s + 4
    assert one.job.ran_s(one.site.time_s) < one.site.time_s - before.job.start_s - 3
    assert "Restarts=0" in cluster.run("scontrol", "show", "job", str(job))
    rounds.round()
    assert rounds.look().ours[job].launch.paused_s is None


def test_a_paused_job_is_known_to_another_process_stopped_and_given_back(
    cluster: Any, begin: Callable[[dict[str, Any]], Rounds], folder: Path
) -> None:
    rounds = begin({"pausable": True})
    job = running(cluster, rounds, TICKS.format(folder=folder), folder)
    cluster.run("scontrol", "suspend", str(job))
    rounds.budget.power_w = IDLE_W + 1000
    assert rounds.round().paused == {}, "it is suspended by somebody else"
    rounds.budget.power_w = IDLE_W + 8 * 350
    assert rounds.round().resumed == {}
    cluster.run("scontrol", "resume", str(job))
    rounds.budget.power_w = IDLE_W + 1000
    assert list(rounds.round().paused) == [job]
    rounds = begin({"pausable": True})
    assert list(rounds.round().resumed) == [job]
    rounds.budget.power_w = IDLE_W + 1000
    assert list(rounds.round().paused) == [job]
    assert rounds.give_back()[job] == ""
    assert rounds.look().site.jobs[job].running


@pytest.mark.parametrize("signal", ["USR1", "B:USR1"])
def test_a_signal_comes_before_the_stop_for_an_announced_cut(
    cluster: Any, begin: Callable[[dict[str, Any]], Rounds], folder: Path, signal: str
) -> None:
    rounds = begin({"checkpoint_signal": signal, "grace_s": 3})
    step = f"trap 'date +%s.%N >> {folder}/signals' USR1; {TICKS.format(folder=folder)}"
    (folder / "step").write_text(step)
    job = running(cluster, rounds, step if "B:" in signal else f"srun bash {folder}/step", folder)
    cut_s = time.time() + 12
    at = datetime.fromtimestamp(cut_s, UTC).isoformat()
    caps = {"power_w": rounds.budget.power_w, "changes": [{"at": at, "power_w": IDLE_W + 1000}]}
    (folder / "caps.json").write_text(json.dumps(caps))
    rounds.budget.file, rounds.budget.ahead_s = str(folder / "caps.json"), 6.0
    reports = list[Report]()
    while not any(report.stopped for report in reports):
        reports.append(rounds.round())
        time.sleep(0.5)
    assert time.time() < cut_s
    assert [list(report.signalled) for report in reports if report.signalled] == [[job]]
    assert not any("cut short" in note for report in reports for note in report.notes)
    wait_for(lambda: rounds.look().site.jobs[job].pending)
    (signalled_s,) = map(float, (folder / "signals").read_text().split())
    assert float((folder / "ticks").read_text()) > signalled_s + 2
    assert rounds.look().site.jobs[job].restarts == 1


def test_without_notice_a_signal_and_the_stop_follow_at_once(
    cluster: Any, begin: Callable[[dict[str, Any]], Rounds], folder: Path
) -> None:
    rounds = begin({"checkpoint_signal": "B:USR1"})
    # The default of this signal would end the script.
    job = running(cluster, rounds, f"trap '' USR1; {TICKS.format(folder=folder)}", folder)
    rounds.budget.power_w = IDLE_W + 1000
    report = rounds.round()
    assert (list(report.signalled), list(report.stopped)) == ([job], [job])
    assert f"job {job} stops, and its grace is cut short by 60 of 60 s" in report.notes
    wait_for(lambda: rounds.look().site.jobs[job].pending)
    assert rounds.look().site.jobs[job].held
