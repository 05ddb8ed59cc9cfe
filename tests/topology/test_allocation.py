"""The allocator answers every feasible round, keeps its promises, and moves about as few jobs as possible."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from wattsched.topology.allocation import Allocation, Requests, allocate, place_largest_first
from wattsched.topology.buddy import Occupancy, block_size, fits
from wattsched.topology.cluster import Cluster, GpuType, Node
from wattsched.topology.pools import Pool, pools_of

ClusterMaker = Callable[[random.Random, int], Cluster]


class Asked(NamedTuple):
    """One job of the requests."""

    size: int
    gpus: int
    held: tuple[int, ...] = ()


def requests_of(jobs: Sequence[Asked]) -> Requests:
    return Requests.of([j.size for j in jobs], [j.gpus for j in jobs], [j.held for j in jobs])


def positions_of(jobs: Sequence[Asked], result: Allocation) -> list[list[int]]:
    ends = np.cumsum([job.gpus for job in jobs], dtype=np.int64)
    assert len(result.position) == sum(job.gpus for job in jobs)
    return [part.tolist() for part in np.split(result.position, ends)[:-1]]


def aligned_blocks(pool: Pool, size: int) -> list[int]:
    return [
        s for start, length in pool.blocks.tolist() for s in range(start, start + length - size + 1, size)
    ]


def one_rack(nodes: int, gpus: int, unavailable: Sequence[int] = ()) -> Cluster:
    """Nodes under one root; the same GPUs are broken on each."""
    return Cluster(
        gpu_types={"A100": GpuType(idle_power_w=50.0)},
        nodes=[
            Node(name=f"n{i}", gpu_type="A100", gpus=gpus, unavailable=list(unavailable))
            for i in range(nodes)
        ],
    )


def random_round(rng: random.Random, pool: Pool, growth: float, full: bool) -> tuple[np.ndarray, list[Asked]]:
    """A fragmented state and the next round: jobs end, go on, grow or shrink, others come."""
    usable = pool.available & (np.array([rng.random() for _ in range(pool.n_gpus)]) > 0.05)
    free = usable.copy()
    requests = []
    for _ in range(12 if full else 8):
        gpus = min(pool.largest_block, rng.choice([1, 1, 2, 2, 3, 4, 4, 6, 8]))
        size = block_size(gpus)
        places = [s for s in aligned_blocks(pool, size) if free[s : s + size].all()]
        if not places:
            continue
        start = rng.choice(places)
        free[start : start + size] = False
        if full or rng.random() < 0.7:
            wanted = gpus
            if rng.random() < growth:
                wanted = min(pool.largest_block, rng.choice([max(1, gpus // 2), gpus + 1, gpus * 2]))
            requests.append(Asked(block_size(wanted), wanted, tuple(range(start, start + gpus))))
    room = Occupancy(pool.blocks, usable).free_gpus
    while not fits([r.size for r in requests], room):
        requests.pop()
    for _ in range(12 if full else 3):
        gpus = rng.choice([1, 2, 3, 4, 8, 16, 32])
        if fits([*(r.size for r in requests), block_size(gpus)], room):
            requests.append(Asked(block_size(gpus), gpus))
    rng.shuffle(requests)
    return usable, requests


def assert_valid(pool: Pool, usable: np.ndarray, requests: list[Asked], result: Allocation) -> None:
    assert len(result.start) == len(requests)
    taken = ~usable
    jobs = zip(requests, result.start.tolist(), positions_of(requests, result), strict=True)
    for j, (r, start, positions) in enumerate(jobs):
        assert start in aligned_blocks(pool, r.size)
        assert not taken[start : start + r.size].any(), "blocks are free and disjoint"
        taken[start : start + r.size] = True
        assert sorted(set(positions)) == positions
        assert len(positions) == r.gpus
        assert start <= positions[0] <= positions[-1] < start + r.size
        stayed = set(r.held) <= set(positions) or set(positions) <= set(r.held)
        assert (j in result.migrated) == (bool(r.held) and not stayed)
        if not r.held:
            assert positions == list(range(start, start + r.gpus))


def places_to_stay(pool: Pool, usable: np.ndarray, r: Asked) -> list[int]:
    def suits(start: int) -> bool:
        inside = sum(start <= p < start + r.size for p in r.held)
        return bool(usable[start : start + r.size].all()) and (inside == len(r.held) or inside >= r.gpus)

    return [s for s in aligned_blocks(pool, r.size) if r.held and suits(s)]


def least_migrations(pool: Pool, usable: np.ndarray, requests: list[Asked]) -> int:
    """Brute force over which running jobs stay, and where."""
    running = [r for r in requests if r.held]
    options = [places_to_stay(pool, usable, r) for r in running]
    best = len(running) + 1

    def search(i: int, free: np.ndarray, moved: list[Asked]) -> None:
        nonlocal best
        if len(moved) >= best:
            return
        if i == len(running):
            rest = [r.size for r in moved] + [r.size for r in requests if not r.held]
            if fits(rest, Occupancy(pool.blocks, free).free_gpus):
                best = len(moved)
            return
        r = running[i]
        for start in options[i]:
            if free[start : start + r.size].all():
                left = free.copy()
                left[start : start + r.size] = False
                search(i + 1, left, moved)
        search(i + 1, free, [*moved, r])

    search(0, usable, [])
    return best


@pytest.mark.slow
@pytest.mark.parametrize(
    ("growth", "full", "share"), [(0.0, False, 1.0), (0.4, False, 0.99), (0.0, True, 0.97), (0.5, True, 0.93)]
)
def test_migrations_are_close_to_the_least(
    random_cluster: ClusterMaker, growth: float, full: bool, share: float
) -> None:
    rng = random.Random(f"allocation {growth} {full}")
    rounds = optimal = 0
    while rounds < 200:
        (pool,) = pools_of(random_cluster(rng, 64 if full else 40))
        if full and pool.n_gpus < 12:
            continue
        usable, requests = random_round(rng, pool, growth, full)
        result = allocate(pool, Occupancy(pool.blocks, usable), requests_of(requests))
        assert_valid(pool, usable, requests, result)
        least = least_migrations(pool, usable, requests)
        ours = len(result.migrated)
        assert ours >= least
        hopeless = sum(bool(r.held) and not places_to_stay(pool, usable, r) for r in requests)
        if least == hopeless:
            assert ours == least, "all jobs that can stay do stay"
        rounds += 1
        optimal += ours == least
    assert optimal >= share * rounds


def test_growing_and_shrinking_jobs_keep_their_gpus() -> None:
    (pool,) = pools_of(one_rack(nodes=2, gpus=8))
    requests = [Asked(4, 4, (2, 3)), Asked(2, 2, (8, 9, 10, 11)), Asked(4, 3, (5,))]
    result = allocate(pool, Occupancy(pool.blocks, pool.available), requests_of(requests))
    assert result.migrated.tolist() == []
    assert positions_of(requests, result) == [[0, 1, 2, 3], [8, 9], [4, 5, 6]]


def test_jobs_that_start_are_placed_if_and_only_if_they_fit(random_cluster: ClusterMaker) -> None:
    """One by one, the smallest free block for each, as the proof of the theorem does it."""
    rng = random.Random("start")
    fitting = 0
    for _ in range(600):
        (pool,) = pools_of(random_cluster(rng, 64))
        usable = pool.available & (np.array([rng.random() for _ in range(pool.n_gpus)]) > 0.1)
        gpus, left = [], int(usable.sum()) + rng.randint(-6, 2)
        while left > 0:
            gpus.append(min(left, pool.largest_block, rng.choice([1, 1, 2, 3, 4, 5, 8, 16])))
            left -= block_size(gpus[-1])
        requests = [Asked(block_size(g), g) for g in gpus]
        sizes = [r.size for r in requests]
        if not fits(sizes, Occupancy(pool.blocks, usable).free_gpus):
            with pytest.raises(ValueError, match="are free in such blocks"):
                allocate(pool, Occupancy(pool.blocks, usable), requests_of(requests))
            continue
        fitting += 1
        result = allocate(pool, Occupancy(pool.blocks, usable), requests_of(requests))
        assert_valid(pool, usable, requests, result)
        assert result.start.tolist() == one_by_one(pool, usable, sizes)
        before = Occupancy(pool.blocks, usable)
        assert place_largest_first(before, np.array(sizes, dtype=np.int64)).tolist() == result.start.tolist()
    assert 60 < fitting < 540, "both answers occur"


def one_by_one(pool: Pool, usable: np.ndarray, sizes: list[int]) -> list[int]:
    occupancy, starts = Occupancy(pool.blocks, usable), [0] * len(sizes)
    for j in sorted(range(len(sizes)), key=lambda j: -sizes[j]):
        fitting = occupancy.maximal()[sizes[j].bit_length() - 1 :]
        starts[j] = int(next(blocks for blocks in fitting if len(blocks))[0])
        occupancy.take(starts[j], sizes[j])
    return starts


def test_faulty_requests_are_told() -> None:
    (pool,) = pools_of(one_rack(nodes=2, gpus=8, unavailable=[0]))
    for requests, message in (
        ([Asked(4, 5)], "cannot use 5 GPUs of a block of 4"),
        ([Asked(3, 3)], "cannot use 3 GPUs of a block of 3"),
        ([Asked(4, 0)], "at least 1 GPU"),
        ([Asked(1, 1, (4,)), Asked(1, 1, (4,))], "jobs 0 and 1 both hold position 4"),
        ([Asked(1, 1, (16,))], "outside pool"),
        ([Asked(32, 32)], "no block of 32, the largest is 16"),
        ([Asked(8, 8), Asked(8, 5)], "blocks of 8 GPUs or more ask for 16 GPUs, 0 are"),
    ):
        with pytest.raises(ValueError, match=message):
            allocate(pool, Occupancy(pool.blocks, pool.available), requests_of(requests))


def test_a_hundred_thousand_gpus_take_seconds() -> None:
    (pool,) = pools_of(one_rack(nodes=12_500, gpus=8))
    rng = random.Random("large")
    requests: list[Asked] = []
    start = 0
    while start < pool.n_gpus and len(requests) < 18_000:
        held = rng.choice([1, 2, 4, 8, 16])
        start = -(-start // held) * held
        if start + held > pool.n_gpus:
            break
        size = rng.choice([held, held, max(1, held // 2), held * 2])
        requests.append(Asked(size, size, tuple(range(start, start + held))))
        start += held
    room = Occupancy(pool.blocks, pool.available).free_gpus
    while not fits([r.size for r in requests] + [16_384], room):
        requests.pop(rng.randrange(len(requests)))
    requests.append(Asked(16_384, 16_384))
    starts = allocate(pool, Occupancy(pool.blocks, pool.available), requests_of(requests)).start
    sizes, order = np.array([r.size for r in requests]), np.argsort(starts)
    assert (starts % sizes == 0).all()
    assert (starts[order][1:] >= (starts + sizes)[order][:-1]).all()
