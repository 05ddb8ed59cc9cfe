"""Many runs: several policies by several seeds, in parallel processes if wanted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import product
from multiprocessing import get_context, parent_process, resource_tracker

from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment, run


def run_all(
    experiment: Experiment, policies: Sequence[str], seeds: Sequence[int], processes: int = 1
) -> Iterator[tuple[str, int, Curves]]:
    """Run every policy by every seed, policy by policy.

    A run depends on its seed alone, so the number of processes changes nothing but the time. With several, a
    script must call this under ``if __name__ == "__main__":``, as `multiprocessing` asks.

    Raises
    ------
    ValueError
        As of `stream.run`.
    RuntimeError
        If a process dies.
    """
    pairs = list(product(policies, seeds))
    if processes == 1:
        for pair in pairs:
            yield *pair, run(experiment, *pair)
        return
    # Not forked: the threads of a solver would be missing in the copy.
    fresh = get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(pairs)), fresh, initializer=_begin) as pool:
        with _later_interrupts():
            runs = [pool.submit(run, experiment, *pair) for pair in pairs]
        try:
            for pair, made in zip(pairs, runs, strict=True):
                yield *pair, made.result()
        except BrokenProcessPool:
            raise RuntimeError(f"a process died before policy {pair[0]}, seed {pair[1]} was done") from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _later_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back while processes start: they inherit that, and ignore it later."""
    if os.name != "posix":
        yield
        return
    # Started now, or it would let Ctrl-C through when the first process is.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Leave Ctrl-C to the first process, which then begins no more runs, and end when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = parent_process()
    assert first is not None

    def end() -> None:
        first.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
