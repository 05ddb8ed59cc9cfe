"""Campaigns in processes: the runs of one process, what a run raises, and what is left behind: nothing."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from strategies.placement_cases import nodes_of, share, tasks_of, whole

from wattsched.replay.placement.campaign import run_all
from wattsched.replay.placement.stream import Experiment
from wattsched.solvers.worker import search_path

EXPERIMENT = Experiment(nodes_of((32, 2, "T4"), (64, 8, "G2")), tasks_of(whole(1), share(300)))
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


@pytest.mark.parametrize("processes", [2, 3, 9])
def test_processes_change_nothing(processes: int) -> None:
    policies, seeds = ["random", "pwr"], [1, 2, 3]
    alone, together = (list(run_all(EXPERIMENT, policies, seeds, n)) for n in (1, processes))
    assert [each[:2] for each in alone] == [each[:2] for each in together]
    for one, other in zip(alone, together, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(astuple(one[2]), astuple(other[2]), strict=True))


def test_what_a_run_raises_is_raised_here() -> None:
    with pytest.raises(ValueError, match="'nonsense'") as raised:
        list(run_all(EXPERIMENT, ["fgd", "nonsense"], [1], processes=2))
    assert "in run" in raised.value.__notes__[0]


@needs_proc
def test_a_process_that_dies_is_told_and_the_others_end() -> None:
    runs = run_all(EXPERIMENT, ["fgd"], range(1000), processes=2)
    next(runs)
    first, second = children()
    os.kill(first, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"the process with policy fgd, seed [0-9]+ died"):
        list(runs)
    assert not {first, second} & set(children())


@needs_proc
def test_runs_that_nobody_wants_any_more_end() -> None:
    runs = run_all(EXPERIMENT, ["fgd"], range(1000), processes=3)
    next(runs)
    begun = children()
    runs.close()
    assert len(begun) == 3
    assert not set(begun) & set(children())


@pytest.mark.parametrize("length", [0, 100])
def test_a_process_whose_caller_is_gone_ends_quietly(length: int) -> None:
    sent = pickle.dumps((EXPERIMENT, [("fgd", 1)]))[:length]
    command = [sys.executable, "-P", "-m", "wattsched.replay.placement.campaign_process"]
    environment = {**os.environ, "PYTHONPATH": search_path()}
    done = subprocess.run(command, input=sent, capture_output=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def children() -> list[int]:
    """Processes of campaigns that this one has started and that have not ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            command = (process / "cmdline").read_text()
        except OSError:  # ended meanwhile
            continue
        if parent == os.getpid() and "campaign_process" in command:
            found.append(int(process.name))
    return found
