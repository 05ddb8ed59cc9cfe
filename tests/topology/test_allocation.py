"""The allocator answers every feasible round, keeps its promises, and moves about as few jobs as possible."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from wattsched.topology.allocation import Allocation, Request, allocate
from wattsched.topology.buddy import block_size, fits, free_by_level
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool, pools_of

ClusterMaker = Callable[[random.Random, int], Cluster]


def aligned_blocks(pool: Pool, size: int) -> list[int]:
    return [
        s for start, length in pool.blocks.tolist() for s in range(start, start + length - size + 1, size)
    ]


def random_round(rng: random.Random, pool: Pool, growth: float) -> tuple[np.ndarray, list[Request]]:
    """A fragmented state and the next round: jobs end, stay, grow or shrink, others come."""
    usable = pool.available & (np.array([rng.random() for _ in range(pool.n_gpus)]) > 0.05)
    free = usable.copy()
    requests = []
    for i in range(rng.randint(1, 9)):
        gpus = rng.randint(1, min(8, pool.largest_block))
        size = block_size(gpus)
        places = [s for s in aligned_blocks(pool, size) if free[s : s + size].all()]
        if not places:
            continue
        start = rng.choice(places)
        free[start : start + size] = False
        if rng.random() < 0.7:
            held = tuple(range(start, start + gpus))
            wanted = gpus
            if rng.random() < growth:
                wanted = min(pool.largest_block, rng.choice([max(1, gpus // 2), gpus + 1, gpus * 2]))
            requests.append(Request(f"run{i}", block_size(wanted), wanted, held))
    for i in range(rng.randint(0, 4)):
        gpus = rng.randint(1, min(16, pool.largest_block))
        requests.append(Request(f"new{i}", block_size(gpus), gpus))
    rng.shuffle(requests)
    room = free_by_level(pool.blocks, usable)
    while not fits([r.size for r in requests], room):
        requests.pop()
    return usable, requests


def assert_valid(pool: Pool, usable: np.ndarray, requests: list[Request], result: Allocation) -> None:
    assert set(result.positions) == set(result.starts) == {r.job for r in requests}
    taken = ~usable
    for r in requests:
        start, positions = result.starts[r.job], result.positions[r.job]
        assert start in aligned_blocks(pool, r.size)
        assert not taken[start : start + r.size].any(), "blocks are free and disjoint"
        taken[start : start + r.size] = True
        assert len(set(positions.tolist())) == len(positions) == r.gpus
        assert ((start <= positions) & (positions < start + r.size)).all()
        stayed = set(r.held) <= set(positions.tolist()) or set(positions.tolist()) <= set(r.held)
        assert (r.job in result.migrated) == (bool(r.held) and not stayed)
        if not r.held:
            assert positions.tolist() == list(range(start, start + r.gpus))


def places_to_stay(pool: Pool, usable: np.ndarray, r: Request) -> list[int]:
    def suits(start: int) -> bool:
        inside = sum(start <= p < start + r.size for p in r.held)
        return bool(usable[start : start + r.size].all()) and (inside == len(r.held) or inside >= r.gpus)

    return [s for s in aligned_blocks(pool, r.size) if r.held and suits(s)]


def least_migrations(pool: Pool, usable: np.ndarray, requests: list[Request]) -> int:
    """Brute force over which running jobs stay, and where."""
    running = [r for r in requests if r.held]
    options = {r.job: places_to_stay(pool, usable, r) for r in running}
    best = len(running) + 1

    def search(i: int, free: np.ndarray, moved: list[Request]) -> None:
        nonlocal best
        if len(moved) >= best:
            return
        if i == len(running):
            rest = [r.size for r in moved] + [r.size for r in requests if not r.held]
            if fits(rest, free_by_level(pool.blocks, free)):
                best = len(moved)
            return
        r = running[i]
        for start in options[r.job]:
            if free[start : start + r.size].all():
                left = free.copy()
                left[start : start + r.size] = False
                search(i + 1, left, moved)
        search(i + 1, free, [*moved, r])

    search(0, usable, [])
    return best


@pytest.mark.parametrize("growth", [0.0, 0.4])
def test_migrations_are_close_to_the_least(
    random_cluster: ClusterMaker, growth: float, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(f"allocation {growth}")
    rounds = optimal = ours_total = least_total = 0
    for _ in range(400):
        (pool,) = pools_of(random_cluster(rng, 40))
        usable, requests = random_round(rng, pool, growth)
        result = allocate(pool, usable, requests)
        assert_valid(pool, usable, requests, result)
        least = least_migrations(pool, usable, requests)
        ours = len(result.migrated)
        assert ours >= least
        hopeless = sum(bool(r.held) and not places_to_stay(pool, usable, r) for r in requests)
        if least == hopeless:
            assert ours == least, "all that can stay, stay"
        rounds += 1
        optimal += ours == least
        ours_total += ours
        least_total += least
    record_property("optimal_share", optimal / rounds)
    print(growth, rounds, optimal, ours_total, least_total)
    assert optimal >= 0.97 * rounds
    assert ours_total <= 1.1 * least_total + 3
