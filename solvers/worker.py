"""Runs a solver in a process of its own, which can be killed at any moment: both sides of its pipe.

The process starts before it is needed, so that its imports overlap with the caller's work. Nothing that a
library prints there can reach the pipe, which programs go into and solutions come out of. Better points,
bounds and prices come as they are found, so that a killed solver is not lost.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from wattsched.formulations.program import Block, Program
from wattsched.formulations.threads import begin
from wattsched.formulations.timer import Timer, stop_event
from wattsched.solvers import registry
from wattsched.solvers.effort import Effort, measured, spend, used_s
from wattsched.solvers.solution import (
    Limit,
    Limits,
    Solution,
    Start,
    Termination,
    announce,
    combined,
    listening,
    log,
    read_by,
    unsupported,
    with_announced,
)
from wattsched.topology.arrays import FloatArray, IntArray

# The process runs this function; as a module's main part its classes would be others than the caller's.
_COMMAND = "from wattsched.solvers.worker import serve; serve()"
# What most solvers need; loaded while the caller still builds the program.
_PRELOADED = ("scipy.sparse", "highspy", "wattsched.solvers.highs")
_LONGEST_WAIT_S = 86_400.0
_GLANCE_S = 0.02
_REMOVAL_S = 1.0
# A process that nobody needs any more ends by itself.
_IDLE_S = 60.0
_MOST_STANDING = 2
# What the process says on standard error, in its folder.
_ERRORS = "stderr.txt"


class Worker:
    """A solver process, good for one program after another until it dies or is closed."""

    def __init__(self) -> None:
        # Ours: a killed solver, or a program that it started, cannot clear up.
        self._folder = Path(tempfile.mkdtemp(prefix="wattsched-"))
        self._pipe, theirs = Pipe()
        # Where this process finds modules: the other one must load the same package. -P: the current folder
        # may hold folders named like this package's parts. A session of its own, so that solvers that it
        # starts can be killed with it.
        search_path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        with (self._folder / _ERRORS).open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno()), str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": search_path, "TMPDIR": str(self._folder)},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        theirs.close()
        self.pid = self._process.pid
        self._caller = os.getpid()
        self._idle_since: float | None = time.monotonic()
        self._used_s = 0.0  # on the processor, for earlier programs

    @property
    def ready(self) -> bool:
        """True if it can take another program, and is not about to end by itself."""
        if self._idle_since is None or time.monotonic() - self._idle_since > 0.5 * _IDLE_S:
            return False
        return self._caller == os.getpid() and self._process.poll() is None

    def solve(
        self, name: str, program: Program, limits: Limits, start: Start | None = None, grace_s: float = 0.5
    ) -> Solution:
        """Solve there; the process is killed when it overruns its time or this call is interrupted.

        Parameters
        ----------
        name : str
            Solver of the registry.
        grace_s : float
            Seconds that it may take beyond its limit before it is killed.

        Returns
        -------
        Solution
            The solver's, or the best that it had announced when it was killed or died.
        """
        timer = Timer(None if limits.time_s is None else limits.time_s + grace_s)
        self._idle_since = None
        # Names may be functions, which cannot be sent, and solvers need none. The monotonic clock is common
        # to all processes.
        rows, columns = (Block("row", program.n_rows),), (Block("column", program.n_columns),)
        sent, take = replace(program, rows=rows, columns=columns), log()
        job = (name, sent, limits, start, time.monotonic(), take is not None)
        # A pipe holds little: writing waits for a process that may never read.
        begin(threading.Thread(target=self._hand_over, args=(job,), daemon=True))
        known = Solution(Termination("no_solution"))
        limit: Limit | None = None
        try:
            while self._wait_for_message(timer):
                message: float | str | tuple[Effort | None, Solution, IntArray, FloatArray] = (
                    self._pipe.recv()
                )
                if isinstance(message, float):
                    self._used_s = message
                    continue
                if isinstance(message, str):
                    if take is not None:
                        take(f"{message}\n")
                    continue
                effort, solution, places, values = message
                if solution.objective is not None:
                    point = np.zeros(program.n_columns)
                    point[places] = values
                    solution = replace(solution, x=point)
                if effort is not None:
                    self._idle_since = time.monotonic()
                    self._used_s += effort.cpu_s
                    spend(effort.nodes, effort.cpu_s)
                    return with_announced(program, limits, solution, [known])
                announce(
                    solution.bound,
                    solution.prices,
                    solution.x,
                    solution.objective,
                    solution.starts,
                    at_root=solution.at_root,
                )
                known = combined(program, [known, solution])
            self._kill()
            limit, detail = "time", "the solver did not stop in time and was killed"
        except (EOFError, OSError):
            detail = f"the solver process died: {self._cause_of_death()}"
        except BaseException:
            self._kill()
            raise
        return with_announced(program, limits, Solution(Termination("no_solution", limit, detail)), [known])

    def _hand_over(self, job: object) -> None:
        try:
            _send(self._pipe, job)
        except MemoryError:  # who waits for the answer hears that there will be none
            self._kill()

    def _wait_for_message(self, timer: Timer) -> bool:
        """Wait for a message until the timer is over; True if there is one."""
        # Pipes take no limit of years; and a stop event can only be noticed between two waits.
        most_s = _LONGEST_WAIT_S if stop_event() is None else _GLANCE_S
        while not timer.over():
            left_s = timer.remaining_s()
            if self._pipe.poll(most_s if left_s is None else min(left_s, most_s)):
                return True
        return self._pipe.poll()

    def close(self) -> None:
        """Kill the process with everything it started, wait for its end, and remove its temporary files."""
        if self._caller != os.getpid():  # a fork's copy: the process is its parent's
            return
        self._kill()
        # The pipe closes by itself when its last user is gone: other threads may still wait in it. Programs
        # that have just been killed may add a last file meanwhile.
        timer = Timer(_REMOVAL_S)
        while self._folder.exists() and not timer.over():
            shutil.rmtree(self._folder, ignore_errors=True)
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _kill(self) -> None:
        # Before the process is waited for, its number cannot belong to another one.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        # From now on all that it has used counts as that of a child that has ended.
        used_s, self._used_s = self._used_s, 0.0
        spend(cpu_s=-used_s)

    def _cause_of_death(self) -> str:
        """Signal that ended the process, or its exit code and last line of standard error, for a message."""
        # The pipe is closed: the process is dead or about to be.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        self._kill()
        code = self._process.returncode
        if code < 0:
            return f"signal {-code}"
        lines: list[str] = []
        with contextlib.suppress(OSError):  # a process that ends by itself removes the folder
            lines = (self._folder / _ERRORS).read_text(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f": {lines[-1]}" if lines else "")


_standing: list[Worker] = []
_lock = threading.Lock()


@contextlib.contextmanager
def borrowed() -> Iterator[Worker]:
    """A worker of an earlier call that stands by, or a new one; afterwards it stands by for the next call."""
    with _lock:
        ready = [worker for worker in _standing if worker.ready]
        tired = [worker for worker in _standing if worker not in ready]
        _standing[:] = ready[1:]
    for worker in tired:
        worker.close()
    worker = ready[0] if ready else Worker()
    try:
        yield worker
    finally:
        with _lock:
            stays = worker.ready and len(_standing) < _MOST_STANDING
            if stays:
                _standing.append(worker)
        if not stays:
            worker.close()


@atexit.register
def _dismiss() -> None:
    while _standing:
        _standing.pop().close()


def _send(pipe: Connection, message: Any) -> None:
    with contextlib.suppress(OSError):  # a dead process is noticed by its silence
        pipe.send_bytes(pickle.dumps(message, protocol=5))


def serve() -> None:
    """Be the process: solve what comes through the pipe until it ends, then die with everything started here.

    The arguments are the number of the pipe's file, and the folder of temporary files.
    """
    # Before the reading thread starts: unpickling imports, and two threads importing may deadlock.
    for module in _PRELOADED:
        importlib.import_module(module)
    pipe, jobs, lock = Connection(int(sys.argv[1])), queue.SimpleQueue[Any](), threading.Lock()
    threading.Thread(target=_take_in, args=(pipe, jobs, sys.argv[2]), daemon=True).start()

    def send(solution: Solution, effort: Effort | None = None) -> None:
        """Send a solution, its point as places and values that are not zero; the last has an effort."""
        x = np.zeros(0) if solution.x is None else solution.x
        places = np.flatnonzero(x)
        with lock:  # solvers announce from threads of their own
            _send(pipe, (effort, replace(solution, x=None), places, x[places]))

    def say(line: str) -> None:
        with lock:
            _send(pipe, line)

    while True:
        try:
            name, program, limits, start, asked_at, is_read = jobs.get(timeout=_IDLE_S)
        except queue.Empty:
            _end(sys.argv[2])
        if limits.time_s is not None:
            waited_s = time.monotonic() - asked_at
            limits = replace(limits, time_s=max(0.01, limits.time_s - waited_s))
        _send(pipe, used_s())
        with measured() as effort:
            try:
                with listening(send), read_by(say if is_read else None):
                    solution = registry.get(name)(program, limits, start)
            except MemoryError as error:
                solution = Solution(Termination("no_solution", detail=f"out of memory: {error}".rstrip(": ")))
            except Exception as error:  # whatever a solver raises is an answer to the caller
                solution = unsupported(f"{type(error).__name__}: {error}")
        send(solution, effort)
        del program, start, solution  # they may be large, and the next may be long in coming


def _take_in(pipe: Connection, jobs: queue.SimpleQueue[Any], folder: str) -> None:
    """Read jobs; at the end of the pipe the caller is gone: nobody needs an answer, or removes our files."""
    try:
        while True:
            jobs.put(pipe.recv())
    except (EOFError, OSError, MemoryError):
        _end(folder)


def _end(folder: str) -> NoReturn:
    """Die with everything that was started here; our temporary files go before."""
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
    raise SystemExit
