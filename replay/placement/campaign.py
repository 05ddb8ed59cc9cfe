"""Many runs: several policies by several seeds, in parallel processes if wanted."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import product
from multiprocessing import active_children, get_context

from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment, run


def run_all(
    experiment: Experiment, policies: Sequence[str], seeds: Sequence[int], processes: int = 1
) -> Iterator[tuple[str, int, Curves]]:
    """Run every policy by every seed, policy by policy.

    A run depends on its seed alone, so the number of processes changes nothing but the time.

    Raises
    ------
    ValueError
        As of `stream.run`.
    """
    pairs = list(product(policies, seeds))
    if processes == 1:
        for pair in pairs:
            yield *pair, run(experiment, *pair)
        return
    others = active_children()
    pool = ProcessPoolExecutor(min(processes, len(pairs)), get_context("spawn"))
    try:
        with _interrupts_held_back():
            runs = [pool.submit(run, experiment, *pair) for pair in pairs]
        for pair, curves in zip(pairs, runs, strict=True):
            yield *pair, curves.result()
    except BaseException:
        # The pool would wait for all runs that have begun.
        for process in active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let processes that start here inherit that Ctrl-C is not for them: the first one ends the others."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
