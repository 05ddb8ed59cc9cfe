"""Where the jobs of a replay run: GPUs in every pool, alone or with others, and the nodes awake for them."""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.accounts import Nodes, Sleep
from wattsched.replay.jobs.ground import Ground
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

NOWHERE = -1
"""Host of a job that holds no GPUs."""


class Places:
    """Blocks of the running jobs.

    Jobs that share a block hold it in the name of one of them, their host. When it leaves, the next one is.

    Attributes
    ----------
    grounds : list of Ground
        Blocks of each pool, by host.
    nodes : Nodes
    host : int array, shape (n_jobs,)
        -1 for a job that holds no GPUs, itself for one that is alone.
    """

    def __init__(self, trace: Trace, sleep: Sleep | None, time_s: float) -> None:
        self._menus = trace.menus
        self.grounds = [Ground(pool) for pool in trace.pools]
        self.nodes = Nodes(trace.cluster, trace.pools, sleep, time_s)
        self.host: IntArray = np.full(len(trace), NOWHERE, dtype=np.int64)
        self._guests: dict[int, list[int]] = {}

    @property
    def shared(self) -> bool:
        """Whether any block has several jobs."""
        return bool(self._guests)

    def shares(self, jobs: IntArray) -> BoolArray:
        """Which jobs are not alone on their GPUs."""
        return np.asarray(np.isin(self.host[jobs], list(self._guests)))

    def hosts(self, jobs: IntArray) -> IntArray | None:
        """Index of the host of each of these jobs, -1 for hosts themselves; None when none shares its GPUs.

        Parameters
        ----------
        jobs : int array, shape (n,)
            Ascending; all that run are among them.
        """
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
        stays : bool array, shape (n,)
        alone : bool array, shape (n,)
            Which need a block.
        joins : list of (job, job)
            Those that then go to the GPUs of another.
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
        """Take jobs off their GPUs; those that shared with them keep the block."""
        for job, p in zip(jobs.tolist(), self._menus.pool[rows].tolist(), strict=True):
            ground, host = self.grounds[p], int(self.host[job])
            self.host[job] = NOWHERE
            if host in self._guests:
                self._part(ground, host, job)
                continue
            block = ground.blocks[job]
            ground.release(job)
            self.nodes.leave(self.nodes.of(p, block.start, block.gpus), time_s)

    def _part(self, ground: Ground, host: int, job: int) -> None:
        """Take a job out of a set."""
        guests = self._guests.pop(host)
        if job == host:
            host, *guests = guests
            ground.blocks[host] = ground.blocks.pop(job)
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
        """Give jobs GPUs of their own.

        Returns
        -------
        moved : int array
            Other jobs that had to move for them.
        wake_s : float array, shape (n_jobs,)
            Seconds that each job waits for its nodes to wake.
        """
        menus = self._menus
        everyone_moved: list[int] = []
        wake_s = np.zeros(len(self.host))
        self.host[jobs] = jobs
        for p, ground in enumerate(self.grounds):
            inside = menus.pool[rows] == p
            if not inside.any():
                continue
            mine, held = jobs[inside], rows[inside]
            items = zip(mine.tolist(), menus.gpus[held].tolist(), menus.block[held].tolist(), strict=True)
            before = dict(ground.blocks)
            moved = ground.place(list(items))
            for job in moved:
                self.nodes.leave(self.nodes.of(p, before[job].start, before[job].gpus), time_s)
            for job in [*mine.tolist(), *moved]:
                block = ground.blocks[job]
                wake_s[job] = self.nodes.enter(self.nodes.of(p, block.start, block.gpus))
                for guest in self._guests.get(job, ()):
                    wake_s[guest] = wake_s[job]
                    everyone_moved.append(guest)
            everyone_moved += moved
        return np.array(everyone_moved, dtype=np.int64), wake_s
