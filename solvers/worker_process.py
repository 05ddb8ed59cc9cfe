"""The other side of `worker`: ``python -m wattsched.solvers.worker_process FD FOLDER``."""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import shutil
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import IO

from wattsched.solvers import registry
from wattsched.solvers.solution import Solution, listening, unsupported
from wattsched.solvers.worker import Job, Message, pack

# What most solvers need; loaded while the caller still builds the program.
_PRELOADED = ("scipy.sparse", "highspy", "wattsched.solvers.highs")


def main() -> None:
    """Solve jobs from standard input until it ends, then die with everything started here."""
    # Before the reading thread starts: unpickling imports, and two threads importing may deadlock.
    for module in _PRELOADED:
        importlib.import_module(module)
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, jobs, sys.argv[2]), daemon=True).start()
    lock = threading.Lock()
    with os.fdopen(int(sys.argv[1]), "wb") as out:

        def send(message: Message) -> None:
            with lock:  # solvers announce from threads of their own
                pickle.dump(message, out, protocol=5)
                out.flush()

        while True:
            job = jobs.get()
            with listening(lambda news: send(pack(news, final=False))):
                solution = _answer(job)
            send(pack(solution, final=True))


def _answer(job: Job) -> Solution:
    limits = job.limits
    if limits.time_s is not None:
        waited_s = time.monotonic() - job.asked_at
        limits = replace(limits, time_s=max(0.01, limits.time_s - waited_s))
    try:
        return registry.get(job.solver)(job.program, limits, job.start)
    except Exception as error:  # whatever a solver raises is an answer to the caller
        return unsupported(f"{type(error).__name__}: {error}")


def _receive(stream: IO[bytes], jobs: queue.SimpleQueue[Job], folder: str) -> None:
    """Read jobs; the end of the stream means that the caller is gone, so nobody needs an answer.

    Nor does anybody else remove our temporary files then.
    """
    try:
        while True:
            jobs.put(pickle.load(stream))
    except (EOFError, OSError, pickle.UnpicklingError):
        shutil.rmtree(folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
