"""The state counts what is free and refuses what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.placement import node_tables, task_tables
from tests.strategies.placement_cases import nodes_of, share, state_with, whole
from wattsched.formulations.placement.state import MOST_TASKS, ClusterState, Placement, Request
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.replay.placement.stream import requests_of

T4 = frozenset({"T4"})


@given(node_tables(), task_tables(), st.data())
def test_it_is_the_cluster_less_what_was_placed(
    nodes: NodeTable, tasks: TaskTable, data: st.DataObject
) -> None:
    state = ClusterState(nodes)
    placed: list[tuple[Request, Placement]] = []
    for request in requests_of(tasks):
        fits = np.flatnonzero(state.fits(request))
        if not fits.size:
            continue
        node = data.draw(st.sampled_from(fits.tolist()))
        room = np.flatnonzero(state.gpu_free_milli[node] >= request.gpu_milli).tolist()
        gpus = data.draw(st.permutations(room))[: request.gpus]
        state.place(request, Placement(node, tuple(gpus)))
        placed.append((request, Placement(node, tuple(gpus))))
    cpu, memory, gpu = nodes.cpu_milli.copy(), nodes.memory_mib.copy(), ClusterState(nodes).gpu_free_milli
    for request, (node, gpus) in placed:
        cpu[node] -= request.cpu_milli
        memory[node] -= request.memory_mib
        gpu[node, list(gpus)] -= request.gpu_milli
        assert not request.gpus or not request.models or nodes.models[nodes.model[node]] in request.models
    assert np.array_equal(state.cpu_free_milli, cpu)
    assert np.array_equal(state.memory_free_mib, memory)
    assert np.array_equal(state.gpu_free_milli, gpu)
    assert min(cpu.min(), memory.min(), gpu.min()) >= 0
    assert state.tasks.sum() == state.placements == len(placed)


def test_where_a_task_fits() -> None:
    nodes = nodes_of((8, 2, "T4"), (8, 4, "G2"), (1, 8, "T4"))
    state = state_with(nodes, {0: [400, 300], 1: [1000, 500, 0, 1000]})

    def fits(request: Request) -> list[bool]:
        assert list(state.fits(request, np.array([2, 0]))) == list(state.fits(request)[[2, 0]])
        return list(state.fits(request))

    assert fits(share(300)) == [True, True, True]
    assert fits(share(401)) == [False, True, True]
    assert fits(share(300, models=T4)) == [True, False, True]
    assert fits(whole(1, models=frozenset({"H9"}))) == [False, False, False]
    assert fits(whole(2)) == [False, True, True]
    assert fits(whole(3)) == [False, False, True]
    assert fits(whole(2, vcpus=1.001)) == [False, True, False]
    assert fits(whole(0, vcpus=8)) == [True, True, False]
    assert fits(whole(0)._replace(memory_mib=1_000_001)) == [False, False, False]
    assert list(state.free_gpus()) == [0, 2, 8]
    assert state.first_free_gpus(1, 2) == (0, 3)


@pytest.mark.parametrize(
    ("request_", "node", "gpus"),
    [
        (share(401), 0, (0,)),
        (share(100), 0, (2,)),
        (share(100), 0, (-1,)),
        (share(100), 0, ()),
        (share(100, models=T4), 1, (0,)),
        (whole(2), 1, (0, 0)),
        (whole(2), 1, (0, 1)),
        (whole(0), 1, (0,)),
        (whole(0, vcpus=9), 1, ()),
        (whole(0), 2, ()),
        (whole(0), -1, ()),
        (whole(0)._replace(memory_mib=1_000_001), 1, ()),
    ],
)
def test_what_does_not_fit_is_refused(request_: Request, node: int, gpus: tuple[int, ...]) -> None:
    state = state_with(nodes_of((8, 2, "T4"), (8, 4, "G2")), {0: [400, 300], 1: [1000, 500, 0, 1000]})
    with pytest.raises(ValueError, match="a task does not fit on GPUs"):
        state.place(request_, Placement(node, gpus))
    assert state.placements == 0


def test_a_node_has_a_limit_of_tasks() -> None:
    state = ClusterState(nodes_of((8, 1, "T4")))
    nothing = Request(0, 0, 0, 0, frozenset())
    for _ in range(MOST_TASKS):
        assert state.fits(nothing)[0]
        state.place(nothing, Placement(0, ()))
    assert not state.fits(nothing)[0]


def test_changed_nodes_can_be_found() -> None:
    state = ClusterState(nodes_of((8, 1, "T4"), (8, 1, "T4"), (8, 1, "T4")))
    state.place(whole(0), Placement(2, ()))
    remembered = state.placements
    state.place(whole(0), Placement(0, ()))
    state.place(whole(0), Placement(0, ()))
    assert list(np.flatnonzero(state.changed > remembered)) == [0]
    assert list(np.flatnonzero(state.changed > 0)) == [0, 2]
