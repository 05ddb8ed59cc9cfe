r"""Blocks of GPUs that the jobs of a replay hold in every pool, alone or with others, and the free GPUs.

How fragmented the free GPUs are is told by FGD's measure (Weng et al., USENIX ATC 2023, section 3.1). FGD
counts, for a task drawn from the workload, the free GPUs that it could not use where they are:

.. math:: F(M) = \sum_{m \in M} p_m F(m).

Here M are the block sizes of the GPU counts that the trace's jobs ask for, :math:`p_m` is their share of the
jobs, and a free GPU is a fragment for jobs of a size when it lies in no free aligned block of that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wattsched.replay.jobs.accounts import Nodes, Sleep
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.allocation import NOWHERE as NO_BLOCK
from wattsched.topology.allocation import Requests, allocate, place_largest_first
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.buddy import Occupancy, fits
from wattsched.topology.pools import Pool

NOWHERE = -1
"""Host of a job that holds no GPUs."""


class Block(NamedTuple):
    """An aligned block of the pool's line, of which a job uses the first `gpus`."""

    start: int
    size: int
    gpus: int


class PoolState:
    """The GPUs of a pool: which running job holds which block."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.blocks: dict[int, Block] = {}
        self.occupancy = Occupancy(pool.blocks, pool.available)

    def release(self, job: int) -> None:
        """Take a job off its GPUs."""
        block = self.blocks.pop(job)
        self.occupancy.release(block.start, block.size)

    def place(self, arriving: Sequence[tuple[int, int, int]]) -> list[int]:
        """Give blocks to arriving jobs, moving running jobs only when there is no other way; who had to move.

        These are triples of job, GPUs and block size; a ValueError if they do not fit beside those that run.
        """
        if not fits([size for _, _, size in arriving], self.occupancy.free_gpus):
            return self._rearrange(arriving)
        arriving = sorted(arriving)
        starts = place_largest_first(self.occupancy, np.array([size for _, _, size in arriving]))
        for (job, gpus, size), start in zip(arriving, starts.tolist(), strict=True):
            self._take(job, Block(start, size, gpus))
        return []

    def _rearrange(self, arriving: Sequence[tuple[int, int, int]]) -> list[int]:
        """Place all by the buddy allocator, which moves few running jobs."""
        blocks = {job: Block(NO_BLOCK, size, gpus) for job, gpus, size in arriving} | self.blocks
        jobs = sorted(blocks)
        held = [range(b.start, b.start + b.gpus) if (b := self.blocks.get(job)) else () for job in jobs]
        _, sizes, gpus = zip(*map(blocks.__getitem__, jobs), strict=True)
        empty = Occupancy(self.pool.blocks, self.pool.available)
        allocation = allocate(self.pool, empty, Requests.of(sizes, gpus, held))
        before, self.blocks, self.occupancy = self.blocks, {}, empty
        for job, start in zip(jobs, allocation.start.tolist(), strict=True):
            self._take(job, blocks[job]._replace(start=start))
        return sorted(job for job, block in before.items() if self.blocks[job] != block)

    def _take(self, job: int, block: Block) -> None:
        self.blocks[job] = block
        self.occupancy.take(block.start, block.size)


class Placement:
    """Blocks of the running jobs, and the nodes awake for them.

    Jobs that share a block hold it in the name of one of them, their host. When it leaves, the next one is.

    Attributes
    ----------
    pools : list of PoolState
        Blocks of each pool, by host.
    host : int array, shape (n_jobs,)
        -1 for a job that holds no GPUs, itself for one that is alone.
    """

    def __init__(self, trace: Trace, sleep: Sleep | None, time_s: float) -> None:
        self._configurations = trace.configurations
        self.pools = [PoolState(pool) for pool in trace.pools]
        self.nodes = Nodes(trace.cluster, trace.pools, sleep, time_s)
        self.host: IntArray = np.full(len(trace), NOWHERE, dtype=np.int64)
        self._guests: dict[int, list[int]] = {}

    @property
    def shared(self) -> bool:
        """True if any block has several jobs."""
        return bool(self._guests)

    def shares(self, jobs: IntArray) -> BoolArray:
        """Mask of the jobs that are not alone on their GPUs."""
        return np.asarray(np.isin(self.host[jobs], list(self._guests)))

    def first(self, jobs: IntArray, rows: IntArray) -> IntArray:
        """Place of the first GPU of each of these running jobs on the line of its pool."""
        held = zip(self.host[jobs].tolist(), self._configurations.pool[rows].tolist(), strict=True)
        return np.array([self.pools[p].blocks[host].start for host, p in held], dtype=np.int64)

    def hosts(self, jobs: IntArray) -> IntArray | None:
        """Index among jobs, ascending, of the host of each, -1 for hosts; None when none shares its GPUs."""
        if not self.shared:
            return None
        hosts = self.host[jobs]
        return np.where((hosts == jobs) | (hosts == NOWHERE), -1, np.searchsorted(jobs, hosts))

    def company(self, jobs: IntArray) -> IntArray:
        """Other jobs on the GPUs of these."""
        hosts = {host for host in self.host[jobs].tolist() if host in self._guests}
        everyone = {job for host in hosts for job in (host, *self._guests[host])}
        return np.array(sorted(everyone.difference(jobs.tolist())), dtype=np.int64)

    def arrange(
        self, jobs: IntArray, sets: IntArray, keeps: BoolArray
    ) -> tuple[BoolArray, BoolArray, list[tuple[int, int]]]:
        """Find out who has to go where when jobs share GPUs.

        A set keeps the block of the first of its members that may stay; of two sets with a claim to the same
        block, the one whose first member holds it keeps it.

        Parameters
        ----------
        jobs : int array, shape (n,)
            All members, old and new ones, of every set that there is or is to be among them.
        sets : int array, shape (n,)
            Number of the set that each is to belong to, -1 for those that are to wait.
        keeps : bool array, shape (n,)
            Which may stay where they are: their pool, GPU count and batch size are the same.

        Returns
        -------
        stays, alone : bool arrays, shape (n,)
            Who stays, and who needs a block.
        joins : list of (job, job)
            Who then goes to the GPUs of whom.
        """
        members: dict[int, list[int]] = {}
        for i in np.flatnonzero(sets != NOWHERE).tolist():
            members.setdefault(int(sets[i]), []).append(i)
        hosts = self.host[jobs]
        holds = keeps & (hosts == jobs)
        stays, alone = np.zeros((2, len(jobs)), dtype=bool)
        joins: list[tuple[int, int]] = []
        claimed: set[int] = set()
        for group in sorted(members.values(), key=lambda group: not holds[group[0]]):
            first = next((i for i in group if keeps[i] and hosts[i] not in claimed), None)
            if first is None:
                first = group[0]
                alone[first] = True
            else:
                claimed.add(int(hosts[first]))
                stays[group] = keeps[group] & (hosts[group] == hosts[first])
            joins += [(int(jobs[i]), int(jobs[first])) for i in group if i != first and not stays[i]]
        return stays, alone, joins

    def vacate(self, jobs: IntArray, rows: IntArray, time_s: float) -> None:
        """Free the GPUs of jobs; those that shared with them keep the block."""
        for job, p in zip(jobs.tolist(), self._configurations.pool[rows].tolist(), strict=True):
            pool, host = self.pools[p], int(self.host[job])
            self.host[job] = NOWHERE
            guests = self._guests.pop(host, [])
            if not guests:
                block = pool.blocks[job]
                self.nodes.leave(p, block.start, block.gpus, time_s)
                pool.release(job)
            elif job == host:
                host, *guests = guests
                pool.blocks[host] = pool.blocks.pop(job)
                self.host[[host, *guests]] = host
            else:
                guests.remove(job)
            if guests:
                self._guests[host] = guests

    def join(self, job: int, other: int) -> None:
        """Let a job use the GPUs of another."""
        host = int(self.host[other])
        self._guests.setdefault(host, []).append(job)
        self.host[job] = host

    def settle(self, jobs: IntArray, rows: IntArray, time_s: float) -> tuple[IntArray, FloatArray]:
        """Give jobs GPUs of their own; other jobs that moved, and each job's seconds until its nodes wake."""
        of = self._configurations
        everyone_moved: list[int] = []
        wake_s = np.zeros(len(self.host))
        self.host[jobs] = jobs
        for p, pool in enumerate(self.pools):
            inside = of.pool[rows] == p
            if not inside.any():
                continue
            mine, held = jobs[inside], rows[inside]
            items = zip(mine.tolist(), of.gpus[held].tolist(), of.block[held].tolist(), strict=True)
            before = dict(pool.blocks)
            moved = pool.place(list(items))
            for job in moved:
                self.nodes.leave(p, before[job].start, before[job].gpus, time_s)
            for job in [*mine.tolist(), *moved]:
                block = pool.blocks[job]
                wake_s[job] = self.nodes.enter(p, block.start, block.gpus)
                for guest in self._guests.get(job, ()):
                    wake_s[guest] = wake_s[job]
                    everyone_moved.append(guest)
            everyone_moved += moved
        return np.array(everyone_moved, dtype=np.int64), wake_s


def fragments(trace: Trace, pools: Sequence[PoolState]) -> tuple[int, float]:
    """Free GPUs, and F(M) of them (see the head of this file)."""
    free = usable = 0
    for pool in pools:
        by_level = pool.occupancy.free_gpus
        free += int(by_level[0])
        # Larger jobs than the pool's blocks use none of them.
        reach = trace.jobs_by_level[: len(by_level)]
        usable += int(reach @ by_level[: len(reach)])
    return free, free - usable / max(1, len(trace))
