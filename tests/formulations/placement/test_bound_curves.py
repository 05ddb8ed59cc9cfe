"""Bounds along the arrivals against single bounds, and arrivals as they are replayed."""

from __future__ import annotations

import numpy as np
import pytest

from wattsched.formulations.placement.configuration_lp import GAP, ConfigurationLp
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.replay.placement.bounds import Distances, distances, mean_arrived
from wattsched.replay.placement.curves import Curves
from wattsched.replay.placement.stream import Experiment


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


TASKS = task_table([(3152, 5, 1, 810)])


def curves_of(hosted: np.ndarray, arrived: np.ndarray) -> Curves:
    """Curves on a grid, one task of 810 for six GPUs more at each point, with so many of them hosted."""
    nothing = np.zeros(len(arrived))
    return Curves(0.135 * arrived, 13.5 * hosted, nothing, nothing, nothing, nothing, arrived - hosted)


@pytest.fixture(scope="module")
def bounds() -> Distances:
    """Up to nine tasks of 810 for six GPUs, all of them hosted, or up to four or five."""
    arrived = np.arange(10.0)
    most = {"all": 9, "four": 4, "five": 5, "four too": 4}
    curves = {name: curves_of(np.minimum(arrived, count), arrived) for name, count in most.items()}
    return distances(Experiment(cluster(3), TASKS, 1.3), curves, [1], GAP, every=3)


def test_curves_follow_the_single_bounds(bounds: Distances) -> None:
    lp = ConfigurationLp(cluster(3), TASKS.profiles[0])
    single = np.array([lp.least_power([count]).bound_w for count in range(10)])
    assert np.all(bounds.eopc_w <= single + 1e-6)
    np.testing.assert_allclose(bounds.eopc_w[[0, 3, 6, 9]], single[[0, 3, 6, 9]])
    assert bounds.eopc_w[9] == np.inf
    np.testing.assert_allclose(bounds.allocated_pct, 13.5 * np.arange(10).clip(0, 6), rtol=1e-6)


def test_a_floor_is_for_what_a_policy_hosts(bounds: Distances) -> None:
    np.testing.assert_allclose(bounds.floor_w["four"][4:], 3 * 35 + 4 * 60 + 2 * 105, rtol=1e-6)
    np.testing.assert_allclose(bounds.floor_w["four"][:4], bounds.eopc_w[:4])
    assert np.all(bounds.floor_w["all"] >= bounds.eopc_w)


def test_floors_do_not_contradict_each_other(bounds: Distances) -> None:
    """Who hosts more draws as much at least, and whoever hosts all, most."""
    floors = bounds.floor_w
    assert np.array_equal(floors["four"], floors["four too"])
    assert np.all(floors["four"] <= floors["five"])
    assert np.all(floors["five"] <= bounds.eopc_w)
