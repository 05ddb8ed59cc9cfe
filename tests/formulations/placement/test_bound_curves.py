"""Bounds along the arrivals against single bounds, and arrivals as they are replayed."""

from __future__ import annotations

import numpy as np
import pytest

from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.replay.placement.bounds import BoundCurves, mean_arrived


def task_table(rows: list[tuple[int, ...]]) -> TaskTable:
    """CPU, memory, GPUs, thousandths of each."""
    columns = np.array(rows, dtype=np.int64).T.copy()
    return TaskTable(*columns, spec=np.zeros(len(rows), dtype=np.int64))


def cluster(count: int) -> NodeTable:
    """Nodes of 32 vCPUs and two T4: 35 W idle, 60 W for each GPU in use, 105 W with the first vCPU."""
    each = np.ones(count, dtype=np.int64)
    return NodeTable(
        tuple(f"n{n}" for n in range(count)), 32000 * each, 64 * each, 2 * each, 0 * each, ("T4",)
    )


def test_arrivals_are_counted_as_they_are_replayed() -> None:
    """None at 0; at a point, all that ask for no more than it, and tasks without GPU right behind them."""
    tasks = task_table([(1, 1, 1, 500), (1, 1, 0, 0), (1, 1, 1, 1000)])
    orders = [np.array([1, 0, 1, 2]), np.array([2, 0, 0, 1])]
    counts = mean_arrived(tasks, orders, [0.0, 0.25, 0.5, 1.0], 2000)
    share, none, whole = tasks.profiles[1]
    assert counts[:, none].tolist() == [0, 1, 1, 1.5]
    assert counts[:, share].tolist() == [0, 0.5, 0.5, 1.5]
    assert counts[:, whole].tolist() == [0, 0, 0.5, 1]


@pytest.fixture(scope="module")
def curves() -> BoundCurves:
    """Up to nine tasks of 810 for six GPUs."""
    tasks = task_table([(3152, 5, 1, 810)])
    return BoundCurves(cluster(3), tasks, [np.zeros(12, dtype=np.int64)], np.arange(10) * 0.135, every=3)


def test_curves_follow_the_single_bounds(curves: BoundCurves) -> None:
    assert curves.arrived[:, 0].tolist() == list(range(10))
    single = np.array([curves.bounds.least_power(count).bound_w for count in curves.arrived])
    assert np.all(curves.power_w <= single + 1e-6)
    np.testing.assert_allclose(curves.power_w[[0, 3, 6, 9]], single[[0, 3, 6, 9]])
    assert curves.power_w[9] == np.inf
    np.testing.assert_allclose(curves.allocated_gpus, 0.81 * np.arange(10).clip(0, 6), rtol=1e-6)


def test_a_floor_is_for_what_a_policy_hosts(curves: BoundCurves) -> None:
    hosted = np.minimum(np.arange(10.0), 4)
    floor_w = curves.floor_w(0.81 * hosted, np.arange(10) - hosted)
    np.testing.assert_allclose(floor_w[4:], 3 * 35 + 4 * 60 + 2 * 105, rtol=1e-6)
    np.testing.assert_allclose(floor_w[:4], curves.power_w[:4])


def test_progress_ends_with_all() -> None:
    parts: list[float] = []
    tasks = task_table([(1000, 1, 1, 1000)])
    BoundCurves(cluster(1), tasks, [np.zeros(2, dtype=np.int64)], [0, 0.5, 1], every=1, progress=parts.append)
    assert parts == sorted(parts)
    assert parts[-1] == 1.0
