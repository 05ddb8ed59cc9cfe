"""The GPUs of a pool during a replay: which job holds which aligned block."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from wattsched.topology.allocation import Request, allocate
from wattsched.topology.buddy import Occupancy, fits
from wattsched.topology.pools import Pool


@dataclass(frozen=True)
class Block:
    """An aligned block of the pool's line, of which a job uses the first `gpus`."""

    start: int
    size: int
    gpus: int

    @property
    def held(self) -> tuple[int, ...]:
        """Positions that the job uses."""
        return tuple(range(self.start, self.start + self.gpus))


class Ground:
    """Blocks of a pool's running jobs."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.blocks: dict[int, Block] = {}
        self.occupancy = Occupancy(pool.blocks, pool.available)

    def release(self, job: int) -> None:
        """Take a job off its GPUs."""
        block = self.blocks.pop(job)
        self.occupancy.release(block.start, block.size)

    def place(self, arriving: Sequence[tuple[int, int, int]]) -> list[int]:
        """Give jobs blocks; those that run are moved only when there is no other way.

        Parameters
        ----------
        arriving : sequence of (job, GPUs, block size)
            They hold nothing in this pool.

        Returns
        -------
        list of int
            Jobs that had to move, ascending.

        Raises
        ------
        ValueError
            If the jobs do not fit beside those that run.
        """
        if fits([size for _, _, size in arriving], self.occupancy.free_gpus):
            self._fill(arriving)
            return []
        return self._rearrange(arriving)

    def _fill(self, arriving: Sequence[tuple[int, int, int]]) -> None:
        """Place into free blocks, the largest jobs first, each into the smallest block."""
        free = self.occupancy.maximal()
        for job, gpus, size in sorted(arriving, key=lambda item: (-item[2], item[0])):
            wanted = size.bit_length() - 1
            level = next(k for k in range(wanted, len(free)) if free[k])
            start = heapq.heappop(free[level])
            for half in range(wanted, level):
                heapq.heappush(free[half], start + (1 << half))
            self._take(job, Block(start, size, gpus))

    def _rearrange(self, arriving: Sequence[tuple[int, int, int]]) -> list[int]:
        """Place by the buddy allocator, which moves few running jobs."""
        # Names sort as the numbers do, so that ties are broken by number.
        requests = {job: Request(f"{job:09d}", size, gpus) for job, gpus, size in arriving}
        for job, block in self.blocks.items():
            requests[job] = Request(f"{job:09d}", block.size, block.gpus, block.held)
        allocation = allocate(self.pool, self.pool.available, list(requests.values()))
        before, self.blocks = self.blocks, {}
        self.occupancy = Occupancy(self.pool.blocks, self.pool.available)
        for job, request in requests.items():
            self._take(job, Block(allocation.starts[request.job], request.size, request.gpus))
        return sorted(job for job, block in before.items() if self.blocks[job] != block)

    def _take(self, job: int, block: Block) -> None:
        self.blocks[job] = block
        self.occupancy.take(block.start, block.size)
