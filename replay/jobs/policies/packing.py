"""`gandiva`, `eaco`: jobs that share GPUs, by the rules of `formulations.sharing.rules`.

``gandiva``
    While the jobs ask for more GPUs than there are, jobs that ask for as many GPUs are paired at random, and
    a pair stays together until one ends or the room is enough for all. Pairs and single jobs share the time
    equally, in Gavel's rounds. Where the paper is silent: pairs are drawn anew from the unpaired in every
    round, by a fixed seed; room that is left in a round is given to those left over, in the order of arrival.
``eaco``
    In the order of arrival, a job goes to the most utilised block of as many GPUs as it asked for that stays
    within the limits, be other GPUs idle or not; nodes without jobs may sleep. Only when there is no such
    block it gets free GPUs, where it takes the least energy, and else it waits and the next one is looked at.
    Where the paper is silent: utilisation adds up to that of full GPUs at most, with four jobs at most in
    place of the limit on memory; jobs have no deadlines; no set is undone, for what sharing does is known.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wattsched.formulations.sharing import rules
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.allocations import Sharing, slowdown
from wattsched.replay.jobs.policies.fixed_rounds import Turns
from wattsched.replay.jobs.policies.requests import FreeGpus
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.topology.arrays import FloatArray, IntArray

MOST_JOBS = 4
MOST_UTILISATION = 1.0
"""Limits of EaCO's sets."""


class Gandiva:
    """Random pairs, on the GPUs asked for."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s
        self._trace = context.trace
        self._turns = Turns(context.trace)
        self._used = Sharing(context.trace).utilisation
        self._pairs = rules.Gandiva()

    def decide(self, state: State) -> Decision:
        """Form pairs where needed, and give this round to those that have had least."""
        if (kept := self._turns.rounds.kept(state)) is not None:
            return kept
        crowded = bool(self._trace.requested_gpus[state.jobs].sum() > self._trace.available.sum())
        if not crowded:
            self._pairs.part()
        groups = self._pairs.groups(state.jobs.tolist(), crowded, self._propose)
        # A pair takes turns in the name of the first of the two.
        leaders = np.searchsorted(state.jobs, [group[0] for group in groups])
        row = self._turns.rows(state, leaders, self._equal_shares(state, leaders))
        host = np.full(len(state), -1)
        pairs = np.array([group for group in groups if len(group) > 1], dtype=np.int64).reshape(-1, 2)
        leader, mate = np.searchsorted(state.jobs, pairs).T
        led = row[leader] != WAIT
        host[mate[led]] = leader[led]
        row[mate[led]] = state.request[mate[led], state.configurations.pool[row[leader[led]]]]
        return Decision(row, again_s=self._turns.rounds.next_s, host=host)

    def _equal_shares(self, state: State, leaders: IntArray) -> FloatArray:
        request = state.request[leaders]
        block = np.where(request == WAIT, np.inf, state.configurations.block[request])
        share = self._trace.available / len(leaders) / block
        return np.asarray(share / np.maximum(share.sum(axis=1), 1.0)[:, None])

    def _propose(self, jobs: list[int]) -> Iterator[tuple[int, int]]:
        """Neighbours among jobs of equal GPU counts, shuffled."""
        request, gpus = self._trace.request, self._trace.configurations.gpus
        alike: dict[bytes, list[int]] = {}
        for job in jobs:
            counts = np.where(request[job] == WAIT, 0, gpus[request[job]])
            alike.setdefault(counts.tobytes(), []).append(job)
        for group in alike.values():
            self._pairs.draw.shuffle(group)
            yield from rules.neighbours(group, self._worth)

    def _worth(self, one: int, other: int) -> bool:
        request = self._trace.request[[one, other]]
        load = self._used[request[:, request[0] != WAIT]].sum(axis=0)
        return bool(np.all(2.0 / slowdown(2.0, load) >= rules.LEAST_THROUGHPUT - 1e-9))


class Eaco:
    """Co-location to save energy; running jobs stay where they are."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s
        self._used = Sharing(context.trace).utilisation

    def decide(self, state: State) -> Decision:
        """Place those that wait."""
        sets = _Sets(state, self._used)
        rules.eaco(np.flatnonzero(state.waits).tolist(), sets.join_fullest, sets.start)
        return Decision(sets.row, host=sets.host)


class _Sets:
    """Sets of jobs that share GPUs, by host; jobs that are alone are hosts, too."""

    def __init__(self, state: State, used: FloatArray) -> None:
        self._state, self._used, self._room = state, used, FreeGpus.now(state)
        self.row, self.host = state.row.copy(), state.hosts.copy()
        runs = np.flatnonzero(~state.waits)
        leader = np.where(self.host[runs] < 0, runs, self.host[runs])
        # Of no job at all, numpy counts in integers.
        self._load = np.bincount(leader, used[state.row[runs]], len(state)).astype(float)
        self._jobs = np.bincount(leader, minlength=len(state))
        self._full: set[bytes] = set()

    def start(self, job: int) -> bool:
        """Give a job GPUs of its own, where it takes the least energy."""
        of, request = self._state.configurations, self._state.request[job]
        known = request[request != WAIT]
        thriftiest = known[np.argsort(of.power_w[known] / of.rate[known], kind="stable")]
        full = self._is_full(request)
        self.row[job] = row = WAIT if full else self._room.take_row(of, thriftiest, in_order=True)
        if row == WAIT:
            self._full.add(request.tobytes())
            return False
        self._load[job], self._jobs[job] = self._used[row], 1
        return True

    def join_fullest(self, job: int) -> bool:
        """Let a job join the fullest set that takes it."""
        of, request = self._state.configurations, self._state.request[job]
        if self._is_full(request):
            return False
        hosts = np.where(self.host < 0, self.row, WAIT)
        mine = np.where(hosts == WAIT, WAIT, request[of.pool[hosts]])
        fits = (mine != WAIT) & (of.gpus[mine] == of.gpus[hosts]) & (self._jobs < MOST_JOBS)
        fits &= self._load + self._used[mine] <= MOST_UTILISATION * (1 + 1e-9)
        if not fits.any():
            return False
        best = int(np.argmax(np.where(fits, self._load, -1.0)))
        self.row[job], self.host[job] = mine[best], best
        self._load[best] += self._used[mine[best]]
        self._jobs[best] += 1
        return True

    def _is_full(self, request: IntArray) -> bool:
        """True if a job like this found no room before: it finds none later in this round."""
        return request.tobytes() in self._full
