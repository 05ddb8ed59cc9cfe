"""`gandiva`: packing of pairs while there is more work than room (Xiao et al., OSDI 2018, section 4).

As Gavel has it as a baseline: while the jobs ask for more GPUs than there are, jobs that ask for as many GPUs
are paired at random, and a pair stays together until one ends or the room is enough for all. Pairs that would
be slower than taking turns are not formed. Pairs and single jobs share the time equally, in Gavel's rounds.

Where the paper is silent: pairs are drawn anew from the unpaired in every round, by a fixed seed; room that
is left in a round is given to those left over, in the order of arrival.
"""

from __future__ import annotations

import random

import numpy as np

from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.policies.requests import Room
from wattsched.replay.jobs.policies.turns import ROUND_S, Received, Rounds, by_priority
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.replay.jobs.sharing import Sharing, slowdown
from wattsched.topology.arrays import FloatArray, IntArray

LEAST_THROUGHPUT = 1.0
"""Of a pair, over that of one of the jobs at a time."""

SEED = 0


class Gandiva:
    """Random pairs, on the GPUs asked for."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s
        trace = setting.trace
        self._draw = random.Random(SEED)
        self._rounds = Rounds(ROUND_S)
        self._received = Received(len(trace), len(trace.pools))
        self._gpus = np.array([int(pool.available.sum()) for pool in trace.pools], dtype=float)
        self._used = Sharing(trace).utilisation
        self._mates: dict[int, int] = {}

    def decide(self, view: View) -> Decision:
        """Form pairs where needed, and give this round to those that have had least."""
        if (kept := self._rounds.kept(view)) is not None:
            return kept
        received = self._received.share(view)
        mate = self._mates_of(view)
        # A pair takes turns in the name of the first of the two.
        leaders = np.flatnonzero((mate < 0) | (mate > np.arange(len(view))))
        turns = by_priority(self._equal_shares(view, leaders), received[leaders])
        room = Room.whole(view)
        row, host = np.full((2, len(view)), WAITS)
        for i, pool in turns:
            if row[j := leaders[i]] == WAITS:
                row[j] = room.take(view.request[j, pool : pool + 1])
        for j in leaders[row[leaders] == WAITS].tolist():
            row[j] = room.take(view.request[j])
        led = np.flatnonzero((row != WAITS) & (mate >= 0))
        host[mate[led]] = led
        row[mate[led]] = view.request[mate[led], view.menus.pool[row[led]]]
        return Decision(row, again_s=self._rounds.next_s, host=host)

    def _equal_shares(self, view: View, leaders: IntArray) -> FloatArray:
        """Share of time of each pair or single job in each pool, shape (n_leaders, n_pools)."""
        request = view.request[leaders]
        block = np.where(request == WAITS, np.inf, view.menus.block[request])
        share = self._gpus / len(leaders) / block
        return np.asarray(share / np.maximum(share.sum(axis=1), 1.0)[:, None])

    def _mates_of(self, view: View) -> IntArray:
        """Index of the job that each is paired with, -1 for none."""
        index = {job: i for i, job in enumerate(view.jobs.tolist())}
        crowded = view.trace.requested_gpus[view.jobs].sum() > self._gpus.sum()
        self._mates = {a: b for a, b in self._mates.items() if crowded and a in index and b in index}
        if crowded:
            self._pair(view, [job for job in index if job not in self._mates])
        mate = np.full(len(view), -1)
        for job, other in self._mates.items():
            mate[index[job]] = index[other]
        return mate

    def _pair(self, view: View, jobs: list[int]) -> None:
        """Pair jobs of equal GPU counts at random, as far as that is worth it."""
        menus, request = view.menus, view.trace.request
        alike: dict[bytes, list[int]] = {}
        for job in jobs:
            gpus = np.where(request[job] == WAITS, 0, menus.gpus[request[job]])
            alike.setdefault(gpus.tobytes(), []).append(job)
        for group in alike.values():
            self._draw.shuffle(group)
            for one, other in zip(group[::2], group[1::2], strict=False):
                rows = request[[one, other]][:, request[one] != WAITS]
                load = self._used[rows].sum(axis=0)
                if np.all(2.0 / slowdown(2.0, load) >= LEAST_THROUGHPUT - 1e-9):
                    self._mates[one], self._mates[other] = other, one
