"""Campaigns in processes: the runs of one process, what a run raises, and what is left behind: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.strategies.placement_cases import nodes_of, share, tasks_of, whole
from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment, run_all

EXPERIMENT = Experiment(nodes_of((32, 2, "T4"), (64, 8, "G2")), tasks_of(whole(1), share(300)))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3, 9])
def test_processes_change_nothing(processes: int) -> None:
    policies, seeds = ["random", "pwr"], [1, 2, 3]
    alone, together = (list(run_all(EXPERIMENT, policies, seeds, n)) for n in (1, processes))
    assert [each[:2] for each in alone] == [each[:2] for each in together]
    for one, other in zip(alone, together, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(astuple(one[2]), astuple(other[2]), strict=True))


def test_what_a_run_raises_is_raised_here() -> None:
    with pytest.raises(ValueError, match="'nonsense'"):
        list(run_all(EXPERIMENT, ["fgd", "nonsense"], [1], processes=2))


def test_a_process_that_dies_is_told_and_the_others_end() -> None:
    runs = run_all(EXPERIMENT, ["fgd"], range(1000), processes=2)
    next(runs)
    first, second = children()
    first.kill()
    with pytest.raises(RuntimeError, match=r"a process died before policy fgd, seed [0-9]+ was done"):
        list(runs)
    assert not {first, second} & set(children())


@pytest.mark.slow
def test_runs_that_nobody_wants_any_more_end() -> None:
    runs = run_all(EXPERIMENT, ["fgd"], range(1000), processes=3)
    next(runs)
    begun = children()
    runs.close()
    assert len(begun) == 3
    assert not set(begun) & set(children())


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Future[Curves]]:
    """What is submitted to processes; at the 500th Ctrl-C comes."""
    known: list[Future[Curves]] = []
    begun = ProcessPoolExecutor.submit

    def submit(pool: ProcessPoolExecutor, *work: Any) -> Future[Curves]:
        known.append(begun(pool, *work))
        if len(known) == 500:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return known[-1]

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    return known


@pytest.mark.slow
def test_an_interrupt_while_processes_start_leaves_no_run_waiting(submitted: list[Future[Curves]]) -> None:
    with pytest.raises(KeyboardInterrupt):
        list(run_all(EXPERIMENT, ["fgd"], range(1000), processes=2))
    assert len(submitted) == 1000  # the interrupt was held back
    assert sum(map(is_lost, submitted)) > 900


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_the_runs_that_have_begun(submitted: list[Future[Curves]]) -> None:
    nodes = nodes_of(*[(64, 8, "G2")] * 2000)
    large, first = Experiment(nodes, tasks_of(whole(1), share(300)), arrivals=30.0), threading.get_ident()

    def interrupt() -> None:
        while not any(made.running() for made in submitted):
            time.sleep(0.1)
        signal.pthread_kill(first, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        list(run_all(large, ["fgd"], range(4), processes=2))
    assert all(map(is_lost, submitted))
    assert not children()


def is_lost(made: Future[Curves]) -> bool:
    """Whether a run was given up, and not with its process, which may leave half an answer behind."""
    return made.cancelled() or isinstance(made.exception(), InterruptedError)


SCRIPT = """
from tests.strategies.placement_cases import nodes_of, whole, tasks_of
from wattsched.replay.placement.stream import run_all
from wattsched.replay.placement.stream import Experiment

if __name__ == "__main__":
    experiment = Experiment(nodes_of((32, 2, "T4")), tasks_of(whole(1)))
    for _ in run_all(experiment, ["fgd"], range(10000), processes=2):
        print("one", flush=True)
"""


@pytest.mark.slow
def test_processes_end_when_the_first_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-P", str(tmp_path / "script.py")]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})
    assert first.stdout is not None
    assert first.stdout.readline() == b"one\n"
    begun = children(first.pid)
    assert len(begun) == 2
    first.kill()
    first.communicate()
    _, outlived = psutil.wait_procs(begun, timeout=20.0)
    assert not outlived


def children(first: int | None = None) -> list[psutil.Process]:
    """Processes of campaigns that this one, or another, has started and that have not ended."""
    found = []
    for process in psutil.Process(first).children():
        with suppress(psutil.Error):  # ended meanwhile
            if any("spawn_main" in word for word in process.cmdline()):
                found.append(process)
    return found
