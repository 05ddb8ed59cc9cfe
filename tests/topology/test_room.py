"""Room on nodes: rows, ways to cut nodes up, and concrete GPUs against a brute force."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.brute_force.sizing_places import can_share
from tests.strategies.effort import examples
from wattsched.formulations.sizing.cutting import cutting_of
from wattsched.formulations.sizing.decisions import positions_of
from wattsched.topology.cluster import Cluster
from wattsched.topology.node_allocation import Held
from wattsched.topology.pools import pools_of
from wattsched.topology.room import Room, cuts, divides


def room_of(gpus: int, free: list[list[bool]], capacity: str = "nodes") -> Room:
    """Nodes with so many GPUs, of which some are free."""
    nodes = [
        {
            "name": f"n{i}",
            "gpu_type": "A",
            "gpus": gpus,
            "unavailable": np.flatnonzero(~np.array(own)).tolist(),
        }
        for i, own in enumerate(free)
    ]
    types = {"A": {"idle_power_w": 0.0}}
    (pool,) = pools_of(Cluster.model_validate({"gpu_types": types, "nodes": nodes, "capacity": capacity}))
    return Room(0, pool, pool.available)


@st.composite
def nodes_with_jobs(draw: st.DrawFn) -> tuple[Room, list[int], Held]:
    """Nodes with broken GPUs, GPU counts of jobs, and what some of them hold now."""
    gpus = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 8]))
    one = st.lists(st.sampled_from([True, True, True, False]), min_size=gpus, max_size=gpus)
    free = draw(st.lists(st.one_of(st.just([True] * gpus), one), min_size=1, max_size=4))
    room = room_of(gpus, free, draw(st.sampled_from(["nodes", "nodes", "count"])))
    counts = draw(st.lists(st.integers(1, gpus * 2 + 1), min_size=0, max_size=7))
    left, job, position = list(range(room.pool.n_gpus)), [], []
    for j in range(len(counts)):
        if draw(st.booleans()):
            own = draw(st.lists(st.sampled_from(left), unique=True, max_size=gpus)) if left else []
            left = [at for at in left if at not in own]
            job += [j] * len(own)
            position += sorted(own)
    return room, counts, Held(np.array(job, dtype=np.int64), np.array(position, dtype=np.int64))


@settings(max_examples=examples(2_000), deadline=None)
@given(case=nodes_with_jobs())
def test_jobs_are_placed_where_they_fit(case: tuple[Room, list[int], Held]) -> None:
    room, counts, held = case
    gpus, whole = np.array(counts, dtype=np.int64), room.pool.gpus_per_node
    if room.pool.capacity == "count":
        fit = sum(counts) <= room.free.sum()
    else:
        fit = can_share(room.on_nodes.tolist(), whole, sorted(counts, reverse=True))
    if not fit:
        with pytest.raises(ValueError, match="jobs ask for"):
            positions_of(room, gpus, gpus, held)
        return
    position = positions_of(room, gpus, gpus, held)
    assert room.free[position].all()
    assert len(np.unique(position)) == len(position) == sum(counts)
    if room.pool.capacity == "nodes":
        for own in np.split(position, np.cumsum(gpus)[:-1]):
            assert sum(n < whole for n in Counter(room.pool.node_index[own].tolist()).values()) <= 1
    sizes = room.pieces(gpus) if len(gpus) else gpus
    for size in room.sizes(gpus) if len(gpus) else []:
        assert room.use(gpus, size).sum() <= room.capacity(size)
    cutting = cutting_of(room, gpus) if len(gpus) else None
    assert (cutting is None) == (room.pool.capacity == "count" or divides(sizes))


@settings(max_examples=examples(500), deadline=None)
@given(case=nodes_with_jobs())
def test_rows_by_size_are_exact_where_sizes_divide_one_another(case: tuple[Room, list[int], Held]) -> None:
    room, counts, _ = case
    gpus = np.array(counts, dtype=np.int64)
    if not counts or room.pool.capacity == "count" or not divides(room.pieces(gpus)):
        return
    kept = all(room.use(gpus, size).sum() <= room.capacity(size) for size in room.sizes(gpus))
    assert kept == can_share(room.on_nodes.tolist(), room.pool.gpus_per_node, sorted(counts, reverse=True))


def test_who_can_stay_stays() -> None:
    room = room_of(4, [[True] * 4, [True] * 4])
    place, first, second = room.pool.positions(["n0", "n1"], np.array([0, 1, 1]), np.array([0, 2, 3]))
    held = Held(np.array([1, 1]), np.array(sorted([first, second])))
    stays = positions_of(room, np.array([3, 2]), np.array([3, 2]), held)
    assert stays[3:].tolist() == sorted([first, second])
    # A job of four needs a whole node: the cheapest one to clear is that of the job of one GPU.
    held = Held(np.array([0, 1, 1]), np.array([place, *sorted([first, second])]))
    moved = positions_of(room, np.array([1, 2, 4]), np.array([1, 2, 4]), held)
    assert moved[1:3].tolist() == sorted([first, second])


def test_ways_to_cut_a_node_up() -> None:
    assert cuts(8, [2, 3]) == [(4, 0), (2, 1), (1, 2)]
    assert len(cuts(8, range(1, 9)) or []) == 22
    assert cuts(1, []) == []
    assert cuts(72, range(1, 73)) is None
