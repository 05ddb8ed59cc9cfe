"""The worth of what is left of GPUs and nodes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.strategies.placement import task_tables
from tests.strategies.placement_cases import share, tasks_of, whole
from wattsched.formulations.placement.capacity import SPREAD, UsableCapacity, share_values
from wattsched.instances.placement.tables import TaskTable, target_workload

SIZES = (160, 230, 320, 470, 500, 650, 810)


def fewest_gpus(sizes: list[int], count: list[int]) -> float:
    """Configuration LP with every pattern written out."""
    ranges = [range(1000 // size + 1) for size in sizes]
    patterns = [p for p in product(*ranges) if np.dot(p, sizes) <= 1000]
    answer = linprog(np.ones(len(patterns)), A_ub=-np.array(patterns).T, b_ub=-np.array(count))
    return float(answer.fun)


@given(
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(1, 50), min_size=4, max_size=4),
)
def test_share_values_are_the_dual_of_packing_into_the_fewest_gpus(
    sizes: list[int], counts: list[int]
) -> None:
    count = counts[: len(sizes)]
    values = share_values(np.array(sizes), np.array(count))
    assert values[sizes] @ count == pytest.approx(fewest_gpus(sizes, count))
    # Feasible duals: no way to fill a GPU is worth more than the GPU.
    assert np.all(np.diff(values) >= 0)
    assert values[0] == 0
    assert values[1000] == 1
    rest = np.arange(1001)
    for size in sizes:
        assert np.all(values[rest[size:]] >= values[size] + values[rest[:-size]] - 1e-9)


def test_share_values_without_shares() -> None:
    values = share_values(np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    assert list(values.nonzero()[0]) == [1000]


def test_a_share_that_nothing_fits_beside_is_worth_a_gpu() -> None:
    values = share_values(np.array([810, 810, 470]), np.array([30, 20, 8]))
    assert values[[190, 470, 530, 810]] == pytest.approx([0, 0.5, 0.5, 1])


def test_usable_is_limited_by_gpu_or_by_cpu() -> None:
    capacity = UsableCapacity(target_workload(tasks_of(whole(1, 8), whole(2, 16), whole(0, 100))))
    assert capacity.cpu_milli_per_gpu == pytest.approx(8000 * np.array(SPREAD))
    value = capacity.gpu_value(np.array([[1000, 1000, 0], [1000, 999, 0]]))
    assert list(value) == [2, 1]
    # Of 8 vCPUs: one GPU at the mean, less or more than one at the ends of the spread, but not beyond two.
    part = np.mean([min(2, 1 / s) for s in SPREAD])
    assert capacity.usable(np.array([2.0, 2.0, 2.0]), np.array([0, 8000, 100_000])) == pytest.approx(
        [0, part, 2]
    )


@given(task_tables(), st.integers(0, 8000), st.integers(0, 8000), st.integers(0, 1000), st.integers(0, 1000))
def test_usable_rises_with_what_is_free(tasks: TaskTable, cpu: int, more: int, gpu: int, rest: int) -> None:
    capacity = UsableCapacity(target_workload(tasks))
    low, high = min(gpu, rest), max(gpu, rest)

    def usable(free: int, cpu_milli: int) -> float:
        return float(capacity.usable(capacity.gpu_value(np.array([free, 1000])), np.array(cpu_milli)))

    assert 0 <= usable(low, cpu) <= usable(high, cpu) + 1e-12
    assert usable(low, cpu) <= usable(low, cpu + more) + 1e-12 <= 2 + 1e-9


def test_a_workload_that_asks_for_no_gpu() -> None:
    capacity = UsableCapacity(target_workload(tasks_of(whole(0, 4), share(500, 0))))
    assert capacity.usable(np.array([2.0]), np.array([0])) == pytest.approx([0])
    assert capacity.usable(np.array([2.0]), np.array([1000])) == pytest.approx([2])
