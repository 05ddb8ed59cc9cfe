"""Inflated arrivals: a permutation first, draws after it, cut at the demand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.placement import task_tables
from wattsched.instances.placement.tables import TaskTable
from wattsched.replay.placement.stream import arrival_order, node_order

SEEDS = st.integers(0, 2**32)


@given(task_tables(), st.floats(1, 50_000), SEEDS)
def test_a_permutation_comes_first_and_the_demand_is_just_reached(
    tasks: TaskTable, demand_milli: float, seed: int
) -> None:
    if not tasks.demand_milli.any():
        with pytest.raises(ValueError, match="no task asks for a GPU"):
            arrival_order(tasks, demand_milli, seed)
        return
    order = arrival_order(tasks, demand_milli, seed)
    permutation = order[: len(tasks)]
    assert len(set(permutation)) == len(permutation)
    asked = tasks.demand_milli[order].cumsum()
    assert asked[-1] >= demand_milli
    assert len(order) == 1 or asked[-2] < demand_milli
    assert np.array_equal(order, arrival_order(tasks, demand_milli, seed))


def test_draws_repeat_tasks_evenly() -> None:
    column = np.ones(4, dtype=np.int64)
    tasks = TaskTable(column, column, column, 1000 * column, 0 * column)
    order = arrival_order(tasks, 40_000_000, seed=3)
    assert len(order) == 40_000
    assert sorted(order[:4]) == [0, 1, 2, 3]
    assert np.bincount(order) == pytest.approx([10_000] * 4, rel=0.05)
    assert set(map(tuple, (arrival_order(tasks, 4000, seed) for seed in range(200)))) > {(0, 1, 2, 3)}


def test_an_endless_run_is_refused() -> None:
    column = np.ones(1, dtype=np.int64)
    with pytest.raises(ValueError, match=r"about 6,000,000 tasks are needed to ask for 6,000 GPUs"):
        arrival_order(TaskTable(column, column, column, column, 0 * column), 6e6, seed=1)


@given(st.integers(1, 40), SEEDS)
def test_nodes_are_permuted_by_the_seed(count: int, seed: int) -> None:
    assert sorted(node_order(count, seed)) == list(range(count))
    assert np.array_equal(node_order(count, seed), node_order(count, seed))


def test_nodes_and_tasks_are_shuffled_independently() -> None:
    column = np.ones(50, dtype=np.int64)
    tasks = TaskTable(column, column, column, 1000 * column, 0 * column)
    assert list(node_order(50, 42)) != list(arrival_order(tasks, 50_000, 42))
    assert list(node_order(50, 42)) != list(node_order(50, 43))
