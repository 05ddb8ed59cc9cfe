"""Many runs: several policies by several seeds, in parallel processes if wanted."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product

from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment, run
from wattsched.solvers.worker import search_path

Pair = tuple[str, int]
"""A policy and a seed."""


def run_all(
    experiment: Experiment, policies: Sequence[str], seeds: Sequence[int], processes: int = 1
) -> Iterator[tuple[str, int, Curves]]:
    """Run every policy by every seed, policy by policy.

    A run depends on its seed alone, so the number of processes changes nothing but the time.

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
    processes = min(processes, len(pairs))
    with ExitStack() as open_runners:
        runners = [open_runners.enter_context(_runner()) for _ in range(processes)]
        # Neighbours take about as long as each other: dealing them out in turn is fair.
        for number, runner in enumerate(runners):
            _send(runner, experiment, pairs[number::processes])
        for number, pair in enumerate(pairs):
            yield *pair, _receive(runners[number % processes], pair)


@contextlib.contextmanager
def _runner() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs its share (see `campaign_process`); it ends with the block.

    A pool of `concurrent.futures` can wait for ever for a process that was ended in the middle of a
    message, so each has pipes of its own, and a session: Ctrl-C is for this process, which ends the others.
    """
    process = subprocess.Popen(
        # -P: the current folder may hold folders named like this package's parts.
        [sys.executable, "-P", "-m", "wattsched.replay.placement.campaign_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": search_path()},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _send(runner: subprocess.Popen[bytes], experiment: Experiment, share: Sequence[Pair]) -> None:
    assert runner.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # a dead process is noticed by its silence
        pickle.dump((experiment, share), runner.stdin, protocol=5)
        runner.stdin.flush()


def _receive(runner: subprocess.Popen[bytes], pair: Pair) -> Curves:
    assert runner.stdout is not None
    try:
        answer: Curves | Exception = pickle.load(runner.stdout)
    except (EOFError, pickle.UnpicklingError):
        raise RuntimeError(f"the process with policy {pair[0]}, seed {pair[1]} died") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
