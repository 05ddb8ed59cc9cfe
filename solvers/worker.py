"""Runs a solver in a process of its own, which can be killed at any moment: both sides of its pipes.

The process starts before it is needed, so that its imports overlap with the caller's work. The program goes
in through its standard input, solutions come out of a pipe of their own, which nothing that a library prints
can reach. Better points, bounds and prices come as they are found, so that a killed solver is not lost.
"""

from __future__ import annotations

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
from dataclasses import replace
from typing import IO, NamedTuple, Self

import numpy as np

from wattsched.formulations.program import Block, Program
from wattsched.formulations.timer import Timer
from wattsched.solvers import registry
from wattsched.solvers.solution import (
    Limit,
    Limits,
    Solution,
    Start,
    Termination,
    combined,
    conclude,
    listening,
    unsupported,
)
from wattsched.topology.arrays import FloatArray, IntArray

# The process runs this function; as a module's main part its classes would be others than the caller's.
_COMMAND = "from wattsched.solvers.worker import serve; serve()"
# What most solvers need; loaded while the caller still builds the program.
_PRELOADED = ("scipy.sparse", "highspy", "wattsched.solvers.highs")
_REMOVAL_S = 1.0


def search_path() -> str:
    """Where this process finds modules: the other one must load the same package."""
    return os.pathsep.join(folder or os.getcwd() for folder in sys.path)


class Worker:
    """A solver process, good for one program after another until it dies or is closed.

    Parameters
    ----------
    grace_s : float
        Seconds that a solver may take beyond its limit before it is killed.

    Attributes
    ----------
    pid : int
    """

    def __init__(self, grace_s: float = 0.5) -> None:
        self._grace_s = grace_s
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        # Ours: a killed solver, or a program that it started, cannot clear up.
        self._folder = tempfile.mkdtemp(prefix="wattsched-")
        out, into = os.pipe()
        # -P: the current folder may hold folders named like this package's parts. A session of its
        # own, so that solvers that it starts can be killed with it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _COMMAND, str(into), self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": search_path(), "TMPDIR": self._folder},
            pass_fds=(into,),
            start_new_session=True,
        )
        os.close(into)
        self.pid = self._process.pid
        self._messages: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        stream = os.fdopen(out, "rb")
        self._reader = threading.Thread(target=_pass_on, args=(stream, self._messages), daemon=True)
        self._reader.start()

    def solve(self, name: str, program: Program, limits: Limits, start: Start | None = None) -> Solution:
        """Solve there; the process is killed when it overruns its time or this call is interrupted.

        Parameters
        ----------
        name : str
            Solver of the registry.

        Returns
        -------
        Solution
            The solver's, or the best that it had announced when it was killed or died.
        """
        timer = Timer(None if limits.time_s is None else limits.time_s + self._grace_s)
        job = (name, _without_labels(program), limits, start, time.monotonic())
        # A pipe holds little: writing waits for a process that may never read.
        threading.Thread(target=_write, args=(self._process.stdin, job), daemon=True).start()
        known = Solution(Termination("no_solution"))
        limit: Limit | None = None
        try:
            while (message := self._messages.get(timeout=timer.remaining_s())) is not None:
                solution = _unpacked(message, program.n_columns)
                if message.final:
                    return solution
                known = combined(program, [known, solution])
            self._messages.put(None)  # for the next call
            detail = f"the solver process died: {self._cause_of_death()}"
        except queue.Empty:
            self._kill()
            limit, detail = "time", "the solver did not stop in time and was killed"
        except BaseException:
            self._kill()
            raise
        x, bound, prices, starts = known.x, known.bound, known.prices, known.starts
        return conclude(program, limits, x, bound, prices, limit, detail, starts)

    def close(self) -> None:
        """Kill the process with everything it started, wait for its end, and remove its temporary files."""
        self._kill()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._reader.join(timeout=1.0)
        self._errors.close()
        # Programs that have just been killed may add a last file meanwhile.
        timer = Timer(_REMOVAL_S)
        while os.path.exists(self._folder) and not timer.over():
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

    def _cause_of_death(self) -> str:
        # The pipe is closed: the process is dead or about to be.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        self._kill()
        code = self._process.returncode
        if code < 0:
            return f"signal {-code}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f": {lines[-1]}" if lines else "")


_Job = tuple[str, Program, Limits, Start | None, float]
"""What is asked of the process, and when (the monotonic clock is common to all processes)."""


class _Message(NamedTuple):
    """A solution, final or not, with its point as the places and values that are not zero."""

    final: bool
    solution: Solution
    places: IntArray
    values: FloatArray


def _packed(solution: Solution, *, final: bool) -> _Message:
    x = np.zeros(0) if solution.x is None else solution.x
    places = np.flatnonzero(x)
    return _Message(final, replace(solution, x=None), places, x[places])


def _unpacked(message: _Message, n_columns: int) -> Solution:
    if message.solution.objective is None:
        return message.solution
    x = np.zeros(n_columns)
    x[message.places] = message.values
    return replace(message.solution, x=x)


def _without_labels(program: Program) -> Program:
    """The program without its names: they may be functions, which cannot be sent, and solvers need none."""
    return replace(
        program, rows=(Block("row", program.n_rows),), columns=(Block("column", program.n_columns),)
    )


def _write(stream: IO[bytes], job: _Job) -> None:
    with contextlib.suppress(OSError, ValueError):  # a dead process is noticed by its silence
        pickle.dump(job, stream, protocol=5)
        stream.flush()


def _pass_on(stream: IO[bytes], messages: queue.SimpleQueue[_Message | None]) -> None:
    """Pass on messages until the process closes its end, which is told by None."""
    try:
        with stream:
            while True:
                messages.put(pickle.load(stream))
    except Exception:  # a message cut short fails in many ways, and all mean the same
        messages.put(None)


def serve() -> None:
    """Be the process: solve jobs from standard input until it ends, then die with everything started here.

    The arguments are the number of the file that answers go to, and the folder of temporary files.
    """
    # Before the reading thread starts: unpickling imports, and two threads importing may deadlock.
    for module in _PRELOADED:
        importlib.import_module(module)
    jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
    threading.Thread(target=_take_in, args=(sys.stdin.buffer, jobs, sys.argv[2]), daemon=True).start()
    lock = threading.Lock()
    with os.fdopen(int(sys.argv[1]), "wb") as out:

        def send(solution: Solution, *, final: bool = False) -> None:
            with lock:  # solvers announce from threads of their own
                pickle.dump(_packed(solution, final=final), out, protocol=5)
                out.flush()

        while True:
            name, program, limits, start, asked_at = jobs.get()
            if limits.time_s is not None:
                waited_s = time.monotonic() - asked_at
                limits = replace(limits, time_s=max(0.01, limits.time_s - waited_s))
            try:
                with listening(send):
                    solution = registry.get(name)(program, limits, start)
            except Exception as error:  # whatever a solver raises is an answer to the caller
                solution = unsupported(f"{type(error).__name__}: {error}")
            send(solution, final=True)


def _take_in(stream: IO[bytes], jobs: queue.SimpleQueue[_Job], folder: str) -> None:
    """Read jobs; the end of the stream means that the caller is gone, so nobody needs an answer.

    Nor does anybody else remove our temporary files then.
    """
    try:
        while True:
            jobs.put(pickle.load(stream))
    except (EOFError, OSError, pickle.UnpicklingError):
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)
