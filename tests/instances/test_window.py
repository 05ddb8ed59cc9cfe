"""What a placement window accepts, and what rejecting a task costs by default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategies.windows import random_window

from wattsched.instances.placement.tables import REJECTED, Placements, TaskTable


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"alpha": 1.5}, "alpha must be from 0 to 1, got 1.5"),
        ({"alpha": float("nan")}, "alpha must be from 0 to 1"),
        ({"power_ref_w": 0.0}, "power_ref_w must be above 0"),
        ({"fragmentation_ref_milli": float("inf")}, "fragmentation_ref_milli must be above 0"),
        ({"reject_w_per_task": -1.0}, "reject_w_per_task must be 0 or more"),
        ({"cpu_free_milli": np.zeros(99, dtype=int)}, "cpu_free_milli must have one entry for each"),
        ({"gpu_free_milli": np.zeros((1, 0), dtype=int)}, "gpu_free_milli must have one row per node"),
    ],
)
def test_a_wrong_value_is_told(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(random_window(0), **values)


def test_free_room_is_within_the_node() -> None:
    window = random_window(0)
    with pytest.raises(ValueError, match="free cpu must be from 0"):
        replace(window, cpu_free_milli=window.nodes.cpu_milli + 1)
    with pytest.raises(ValueError, match="free memory must be from 0"):
        replace(window, memory_free_mib=-np.ones(len(window.nodes), dtype=int))
    with pytest.raises(ValueError, match="must be from 0 to 1000, and 0 for GPUs"):
        replace(window, gpu_free_milli=np.full_like(window.gpu_free_milli, 1001))


def test_tasks_are_some_and_share_one_gpu_at_most() -> None:
    window = random_window(0)
    with pytest.raises(ValueError, match="at least one task"):
        replace(window, tasks=window.tasks.take(np.arange(0)))
    one = np.ones(1, dtype=int)
    with pytest.raises(ValueError, match="gpu_milli must be 1000 for tasks of several GPUs"):
        replace(window, tasks=TaskTable(one, one, 2 * one, 500 * one, 0 * one))


def test_rejecting_costs_more_than_a_node_can_change_by_default() -> None:
    window = replace(random_window(3), alpha=1.0, reject_w_per_task=None, reject_w_per_gpu_milli=None)
    power, nodes = window.power, window.nodes
    nothing = np.zeros(len(nodes), dtype=int)
    most = (power.node_w(nothing, nothing) - power.node_w(nodes.cpu_milli, nodes.gpus)).max()
    assert window.rejection_w.min() > most
    slope = (window.rejection_w - (1.0 + most)) * 100.0
    assert slope == pytest.approx((1.0 + most) * window.tasks.demand_milli)


def test_given_costs_of_rejecting_are_kept() -> None:
    window = replace(random_window(3), reject_w_per_task=7.0, reject_w_per_gpu_milli=0.5)
    assert window.rejection_w.tolist() == (7.0 + 0.5 * window.tasks.demand_milli).tolist()


def test_a_decision_of_none_rejects_all() -> None:
    nothing = Placements.none(3, 2)
    assert nothing.node.tolist() == [REJECTED] * 3
    assert nothing.rejected.tolist() == [0, 1, 2]
    assert not nothing.gpus.any()
