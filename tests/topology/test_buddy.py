"""The buddy rows admit exactly the sets of sizes that can be placed."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.topology.buddy import Occupancy, block_size, fits
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import pools_of

ClusterMaker = Callable[[random.Random, int], Cluster]
Gpus = frozenset[tuple[str, int]]
CHUNKS, CLUSTERS_PER_CHUNK, SETS_PER_CLUSTER = 10, 150, 25


def aligned_blocks(cluster: Cluster) -> set[Gpus]:
    """All aligned blocks, straight from the definition on the tree: aligned runs of equal whole children."""
    blocks: set[Gpus] = set()

    def runs(children: list[Gpus]) -> Gpus:
        """Add the aligned runs of children; return all GPUs below the vertex."""
        everything = frozenset().union(*children)
        whole = [child for child in children if child in blocks]
        for size in {len(child) for child in whole}:
            alike = [child for child in whole if len(child) == size]
            for run in (2**m for m in range(len(alike).bit_length())):
                for first in range(0, len(alike) - run + 1, run):
                    blocks.add(frozenset().union(*alike[first : first + run]))
        return everything

    def vertex(name: str | None) -> Gpus:
        children = [vertex(group.name) for group in cluster.groups if group.parent == name]
        children = [child for child in children if child]
        for node in cluster.nodes:
            if node.parent == name:
                gpus = [frozenset({(node.name, gpu)}) for gpu in range(node.gpus)]
                blocks.update(gpus)
                children.append(runs(gpus))
        return runs(children) if children else frozenset()

    vertex(None)
    return blocks


def packer(blocks: set[Gpus], free: Gpus) -> Callable[[tuple[int, ...]], bool]:
    """Backtracking over all ways to put sizes on disjoint free blocks, largest first."""
    bit = {gpu: 1 << i for i, gpu in enumerate(sorted(free))}
    masks: dict[int, list[int]] = {}
    for block in blocks:
        if block <= free:
            masks.setdefault(len(block), []).append(sum(bit[gpu] for gpu in block))

    @cache
    def packs(sizes: tuple[int, ...], left: int) -> bool:
        if not sizes:
            return True
        if sum(sizes) > left.bit_count():
            return False
        return any(mask & left == mask and packs(sizes[1:], left & ~mask) for mask in masks.get(sizes[0], ()))

    everything = sum(bit.values())
    return lambda sizes: packs(tuple(sorted(sizes, reverse=True)), everything)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_rows_admit_exactly_what_can_be_packed(random_cluster: ClusterMaker, chunk: int) -> None:
    rng = random.Random(f"theorem {chunk}")
    admitted = 0
    for _ in range(CLUSTERS_PER_CHUNK):
        cluster = random_cluster(rng, 32)
        (pool,) = pools_of(cluster)
        occupied = rng.choice([0.0, 0.1, 0.3])
        free = pool.available & (np.array([rng.random() for _ in range(pool.n_gpus)]) >= occupied)
        places = [(pool.nodes[n], int(g)) for n, g in zip(pool.node_index, pool.gpu_index, strict=True)]
        blocks = aligned_blocks(cluster)
        packs = packer(blocks, frozenset(p for p, f in zip(places, free, strict=True) if f))
        rows = Occupancy(pool.blocks, free).free_gpus
        assert max(len(block) for block in blocks) == pool.largest_block
        for _ in range(SETS_PER_CLUSTER):
            sizes = random_sizes(rng, int(free.sum()))
            assert fits(sizes, rows) == packs(sizes), (cluster, free, sizes)
            admitted += fits(sizes, rows)
    share = admitted / (CLUSTERS_PER_CHUNK * SETS_PER_CLUSTER)
    assert 0.1 < share < 0.9, "both answers occur"


def random_sizes(rng: random.Random, free: int) -> tuple[int, ...]:
    """A set of sizes that nearly fills the free GPUs."""
    sizes: list[int] = []
    target = rng.randint(free // 2, free + 1)
    while sum(sizes) < target:
        room = max(1, target - sum(sizes))
        sizes.append(1 << rng.randrange(room.bit_length()))
    return tuple(sizes)


@given(st.lists(st.integers(1, 2**40), min_size=1))
def test_block_size_is_the_next_power_of_two(counts: list[int]) -> None:
    sizes = block_size(np.array(counts, dtype=np.int64))
    assert sizes.tolist() == [block_size(g) for g in counts]
    for gpus, size in zip(counts, sizes.tolist(), strict=True):
        assert size.bit_count() == 1
        assert size // 2 < gpus <= size


def test_the_edges() -> None:
    blocks = np.array([[0, 4], [4, 2]])
    rows = Occupancy(blocks, np.array([True, True, True, True, False, True])).free_gpus
    assert rows.tolist() == [5, 4, 4]
    assert fits([], rows)
    assert fits([4, 1], rows)
    assert not fits([4, 2], rows)
    assert not fits([8], rows)
    with pytest.raises(ValueError, match="powers of two, not 3"):
        fits([1, 3], rows)
    with pytest.raises(ValueError, match="at least 1 GPU, not 0"):
        block_size(0)
    with pytest.raises(ValueError, match="at least 1 GPU, not -1"):
        block_size(np.array([2, -1]))
