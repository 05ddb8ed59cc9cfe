"""The tables of fragmentation agree with its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.brute_force.placement import fragments
from tests.strategies.placement import MODELS, task_tables
from wattsched.formulations.placement.fragmentation import Fragmentation
from wattsched.instances.placement.tables import TargetWorkload, TaskTable, target_workload

MOST_GPUS = 8
free = st.lists(st.sampled_from([0, 1, 250, 499, 500, 750, 1000, 1000]), max_size=MOST_GPUS)
states = st.lists(
    st.tuples(st.integers(0, len(MODELS) - 1), st.sampled_from([0, 999, 1000, 3500, 9000]), free), min_size=1
)


@given(task_tables(), states)
def test_it_is_what_the_definition_says(tasks: TaskTable, nodes: list[tuple[int, int, list[int]]]) -> None:
    target = target_workload(tasks)
    measure = Fragmentation(target, MODELS, MOST_GPUS)
    gpu_free = np.array([row + [0] * (MOST_GPUS - len(row)) for _, _, row in nodes], dtype=np.int64)
    model, cpu_free = np.array([(model, cpu) for model, cpu, _ in nodes], dtype=np.int64).T
    scaled = measure.scaled(model, cpu_free, gpu_free)
    expected = [fragments(target, MODELS[model], cpu, row) for model, cpu, row in nodes]
    assert [int(value) for value in scaled] == [value * measure.scale for value in expected]
    assert measure.milli(model, cpu_free, gpu_free) == pytest.approx([float(value) for value in expected])


@given(task_tables(), states, st.integers(0, 9000), st.integers(1, 1000))
def test_drops_are_differences(
    tasks: TaskTable, nodes: list[tuple[int, int, list[int]]], cpu_milli: int, gpu_milli: int
) -> None:
    measure = Fragmentation(target_workload(tasks), MODELS, MOST_GPUS)
    for model, cpu_free, row in nodes:
        free = np.array([row + [0] * (MOST_GPUS - len(row))], dtype=np.int64)
        before = (np.array([model]), np.array([cpu_free]), free)
        then = (np.array([model]), np.array([cpu_free - cpu_milli]))
        now = measure.scaled(*before)[0]
        by_share = measure.drop_by_share(*before, cpu_milli, gpu_milli)
        for gpu in np.flatnonzero(free[0] >= gpu_milli):
            after = free.copy()
            after[0, gpu] -= gpu_milli
            assert by_share[0, gpu] == now - measure.scaled(*then, after)[0]
        for gpus in range(row.count(1000) + 1):
            after = free.copy()
            after[0, np.flatnonzero(free[0] == 1000)[:gpus]] = 0
            drop = measure.drop_by_whole(*before, cpu_milli, gpus)
            assert drop[0] == now - measure.scaled(*then, after)[0]


def test_an_example_by_hand() -> None:
    classes = TaskTable(
        cpu_milli=np.array([2000, 4000, 0, 1000]),
        memory_mib=np.zeros(4, dtype=np.int64),
        gpus=np.array([1, 1, 2, 0]),
        gpu_milli=np.array([500, 1000, 1000, 0]),
        spec=np.array([0, 1, 0, 0]),
        specs=(frozenset(), frozenset({"T4"})),
    )
    measure = Fragmentation(TargetWorkload(classes, np.array([4, 3, 2, 1])), ["T4", "G2"], 3)
    free = np.array([[400, 600, 1000]] * 4)
    model, cpu = np.array([0, 0, 0, 1]), np.array([4000, 3000, 1999, 4000])
    # Class by class: 400 is too small for the first, 400 and 600 for the second where it may run and has
    # CPU; the third lacks a GPU and the fourth needs none, so that everything is a fragment to them.
    assert list(measure.scaled(model, cpu, free)) == [
        4 * 400 + 3 * 1000 + 3 * 2000,
        4 * 400 + 3 * 2000 + 3 * 2000,
        10 * 2000,
        4 * 400 + 3 * 2000 + 3 * 2000,
    ]
