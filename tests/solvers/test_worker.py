"""A solver process that is killed, dies or prints costs its answer, never the caller."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from wattsched.formulations.program import Block
from wattsched.solvers import highs
from wattsched.solvers import worker as worker_module
from wattsched.solvers.solution import Limits
from wattsched.solvers.worker import Worker

from .programs import knapsack


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pid, within_s=5.0):
    end = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


@pytest.fixture
def hard():
    """Program that no exact solver finishes in the time of a test."""
    return knapsack(1500, 60, pools=3, seed=1)


def test_answers_are_those_of_the_solver_one_after_the_other():
    labelled = knapsack(8, 5, seed=3)
    labelled = dataclasses.replace(labelled, columns=(Block("x", 40, lambda i: f"column {i}"),))
    with Worker() as worker:
        for name in ("highs", "greedy"):
            there = worker.solve(name, labelled, Limits(time_s=10))
            assert np.array_equal(there.x, worker.solve(name, labelled, Limits(time_s=10)).x)
        here = highs.solve(labelled, Limits())
        assert worker.solve("highs", labelled, Limits()).objective == here.objective
        wrong = worker.solve("nope", labelled, Limits())
        assert wrong.termination.reason == "error"
        assert "unknown solver 'nope'" in wrong.termination.detail
    assert not alive(worker.pid)


def test_killed_in_the_middle_of_a_solve_keeps_what_was_announced(hard, monkeypatch):
    """Killed at its first announcement, the relaxation's bound: branch and cut has only begun."""
    with Worker() as worker:
        combined = worker_module.combined

        def kill(program, known):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            return combined(program, known)

        monkeypatch.setattr(worker_module, "combined", kill)
        solution = worker.solve("highs", hard, Limits(gap=0.0))
        assert solution.termination.detail == "the solver process died: signal 9"
        assert np.isfinite(solution.bound)
        if solution.x is not None:
            assert hard.violation(solution.x) <= 1e-9
            assert solution.termination.reason == "feasible"
        again = worker.solve("highs", hard, Limits(time_s=5))
        assert again.termination.reason == "no_solution"
        assert "died" in again.termination.detail


def test_a_process_that_ends_says_why(monkeypatch):
    monkeypatch.setattr(worker_module, "_COMMAND", "raise SystemExit('no licence')")
    with Worker() as worker:
        solution = worker.solve("highs", knapsack(8, 5, seed=3), Limits(time_s=10))
    assert solution.termination.detail == "the solver process died: exit code 1: no licence"


def test_overrun_is_killed(hard):
    with Worker() as worker:
        worker.solve("greedy", hard, Limits())  # the process is up
        before = time.monotonic()
        solution = worker.solve("highs", hard, Limits(gap=0.0, time_s=10.0), grace_s=-9.0)
        assert time.monotonic() - before < 60.0
        assert solution.termination.limit == "time"
        assert "killed" in solution.termination.detail
        assert gone(worker.pid)


def test_program_larger_than_any_pipe_and_a_process_that_never_reads():
    program = knapsack(2000, 100)
    with Worker() as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        before = time.monotonic()
        assert worker.solve("greedy", program, Limits(time_s=0.3), grace_s=0.0).termination.limit == "time"
        assert time.monotonic() - before < 60.0
    with Worker() as worker:
        assert worker.solve("greedy", program, Limits(time_s=20)).x is not None


def test_dies_with_its_caller_and_leaves_no_files(tmp_path):
    code = """
from tests.solvers.programs import knapsack
from wattsched.solvers.solution import Limits
from wattsched.solvers.worker import Worker
worker = Worker()
print(worker.pid, flush=True)
print(worker.solve("highs", knapsack(1500, 60, pools=3, seed=1), Limits(gap=0.0)), flush=True)
"""
    search_path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    caller = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": search_path},
    )
    pid = int(caller.stdout.readline())
    time.sleep(2.0)
    assert alive(pid)
    assert list(tmp_path.iterdir())
    caller.kill()
    caller.wait()
    assert caller.stdout.read() == b""
    caller.stdout.close()
    assert gone(pid)
    assert list(tmp_path.iterdir()) == []


def test_interrupt_kills_the_process(hard):
    with Worker() as worker:
        threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            worker.solve("highs", hard, Limits(gap=0.0))
        assert gone(worker.pid)


def test_a_process_stands_by_for_the_next_call_unless_it_was_killed(hard, monkeypatch):
    monkeypatch.setattr(worker_module, "_standing", [])
    with worker_module.borrowed() as first:
        first.solve("greedy", knapsack(8, 5), Limits())
    with worker_module.borrowed() as second, worker_module.borrowed() as third:
        assert second is first
        assert third is not first
        second.solve("highs", hard, Limits(gap=0.0, time_s=10.0), grace_s=-10.0)
    assert gone(first.pid)
    with worker_module.borrowed() as fourth:
        assert fourth is third
    monkeypatch.setattr(worker_module, "_IDLE_S", 0.0)
    with worker_module.borrowed() as fifth:
        assert fifth is not third
    assert gone(third.pid)
    assert gone(fifth.pid)
