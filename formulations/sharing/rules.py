"""Published rules for jobs that may share GPUs: heuristics of this problem, and policies of replays.

A rule sees jobs by their numbers; what they may be given it is handed as functions, which give it and say
whether that was possible. So the same rule serves units, classes and blocks of GPUs.

``fifo``, ``fifo-packed``
    Jobs in their order, as Gavel's policies of these names (Narayanan et al., OSDI 2020;
    ``policies/fifo.py``).
``eaco``
    Each job joins the fullest set that takes it (EaCO, arXiv 2412.08294, algorithms 1 and 2).
``gandiva``
    Random pairs while there is more work than room (Xiao et al., OSDI 2018, section 4), as Gavel has it as a
    baseline (``policies/gandiva.py``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

PACKING_THRESHOLD = 1.5
"""Normalised throughput that a pair of `fifo-packed` must exceed (Gavel, ``policies/fifo.py``)."""

LEAST_THROUGHPUT = 1.0
"""Pairs of `gandiva` with less normalised throughput are dropped: they are slower than taking turns."""

SEED = 0
"""Seed of `gandiva`."""


Attempt = Callable[[int], bool]
"""Gives a job something, such as GPUs of its own (`start`); False when it cannot."""


def fifo(jobs: Iterable[int], start: Attempt) -> None:
    """First in, first out: the first job for which `start` finds no free GPUs stops those behind it."""
    for job in jobs:
        if not start(job):
            return


def fifo_packed(jobs: Iterable[int], start: Attempt, join_best_pair: Attempt) -> None:
    """Place jobs as `fifo`; one for which nothing is free joins the single job that makes the fastest pair.

    The normalised throughput of the pair must be above `PACKING_THRESHOLD`, or `join_best_pair` fails.
    """
    fifo(jobs, lambda job: start(job) or join_best_pair(job))


def eaco(jobs: Iterable[int], join_fullest: Attempt, start: Attempt) -> None:
    """Each job joins the fullest set that takes it, else gets free GPUs, else waits.

    What EaCO does afterwards, to measure for an epoch and perhaps undo, is not needed where it is known
    beforehand what sharing does.
    """
    for job in jobs:
        if not join_fullest(job):
            start(job)


class Gandiva:
    """Random pairs, each of which stays together until one of the two is complete."""

    def __init__(self, seed: int = SEED) -> None:
        self.draw = random.Random(seed)
        self._partner: dict[int, int] = {}

    def groups(
        self, jobs: Sequence[int], crowded: bool, propose: Callable[[list[int]], Iterable[tuple[int, int]]]
    ) -> list[list[int]]:
        """Pairs and single jobs, in the order of their first jobs.

        Parameters
        ----------
        jobs : sequence of int
            Those that are there, ascending.
        crowded : bool
            Whether there is more work than room; else all run alone.
        propose : callable
            Jobs without partners to the pairs that are formed of them.
        """
        here = set(jobs)
        self._partner = {j: k for j, k in self._partner.items() if j in here and k in here}
        if not crowded:
            return [[j] for j in jobs]
        for one, other in propose([j for j in jobs if j not in self._partner]):
            self._partner[one], self._partner[other] = other, one
        groups = [[j, self._partner[j]] if j in self._partner else [j] for j in jobs]
        # Each pair is there twice; the smaller number comes first in the one that counts.
        return [group for group in groups if group[0] <= group[-1]]

    def part(self) -> None:
        """Undo all pairs."""
        self._partner.clear()


def neighbours(jobs: Sequence[int], worth: Callable[[int, int], bool]) -> Iterator[tuple[int, int]]:
    """Pairs of neighbours, from the first on; one whose pair with the next is not worth it stays alone."""
    # Reversed, so that `pop` takes the first.
    rest = list(reversed(jobs))
    while len(rest) > 1:
        one = rest.pop()
        if worth(one, rest[-1]):
            yield one, rest.pop()
