"""Prices of capacity: by hand, and as differences of the cheapest way to serve a demand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.placement_cases import context_of, nodes_of, tasks_of, whole
from wattsched.formulations.placement.capacity import REFUSAL, CapacityPrices
from wattsched.formulations.placement.state import Request
from wattsched.instances.placement.tables import target_workload

T4_W, G2_W, P100_W = 60, 120, 225
NODES = nodes_of((64, 4, "P100"), (64, 8, "G2"), (64, 2, "T4"), (64, 2, "T4"))
T4 = frozenset({"T4"})
GPUS = NODES.gpus.astype(float)


def prices_of(*requests: Request) -> CapacityPrices:
    context = context_of(NODES, target_workload(tasks_of(*requests)))
    return CapacityPrices(context.nodes, context.power, context.target)


@pytest.mark.parametrize(
    ("demand", "watts"), [(1, T4_W), (5, G2_W), (11, G2_W), (13, P100_W), (20, REFUSAL * P100_W)]
)
def test_without_constraints_capacity_costs_what_the_next_gpu_draws(demand: float, watts: float) -> None:
    prices = prices_of(whole(1))
    assert prices.capacity_w(demand) == pytest.approx(watts)
    assert not prices.reserve_w(GPUS, demand).any()


def test_types_that_some_tasks_depend_on_cost_more_when_those_could_be_refused() -> None:
    # A third of the demand can only use T4.
    prices = prices_of(whole(1), whole(1), whole(1, models=T4))
    assert not prices.reserve_w(GPUS, 9).any()
    # Of 15 GPUs, 5 would have to be of the 4 T4: they are worth a refusal, not only the watts of a P100.
    refused_w = REFUSAL * P100_W
    kept_w = refused_w - P100_W
    assert list(prices.reserve_w(GPUS, 15)) == pytest.approx([0, 0, kept_w, kept_w])


def test_types_are_kept_for_what_is_still_to_come_on_what_is_left() -> None:
    # Half of 6 GPUs can only use T4, of which 4 are left, then 2, and then the next to come would be refused.
    prices = prices_of(whole(1), whole(1, models=T4))
    assert not prices.reserve_w(GPUS, 6).any()
    assert prices.reserve_w(np.array([4.0, 8.0, 1.0, 1.0]), 6)[2:] == pytest.approx(REFUSAL * P100_W - G2_W)


def test_the_past_counts_beside_the_target() -> None:
    prices = prices_of(whole(1))
    assert not prices.reserve_w(GPUS, 12).any()
    for _task in range(9):
        prices.count(T4, 1, 1000.0)
    assert prices.reserve_w(GPUS, 12)[2:].all()


def cheapest_w(demand: int, only_t4: int) -> float:
    """Least watts for unit tasks, filling T4 first with those that need it."""
    refused = max(0, only_t4 - 4)
    rest, free_t4 = demand - only_t4, max(0, 4 - only_t4)
    used = []
    for count, watts in ((free_t4, T4_W), (8, G2_W), (4, P100_W), (10**6, REFUSAL * P100_W)):
        used.append((min(rest, count), watts))
        rest -= used[-1][0]
    total = sum(count * watts for count, watts in used)
    return total + min(only_t4, 4) * T4_W + refused * REFUSAL * P100_W


@given(st.integers(0, 14), st.integers(0, 6))
def test_prices_lie_between_differences(anywhere: int, only_t4: int) -> None:
    if anywhere + only_t4 == 0:
        return
    context = context_of(
        NODES, target_workload(tasks_of(*[whole(1)] * anywhere, *[whole(1, models=T4)] * only_t4))
    )
    if len(context.target) < (anywhere > 0) + (only_t4 > 0):
        return  # the rarer kind is not in the target
    demand = anywhere + only_t4
    price_w = CapacityPrices(context.nodes, context.power, context.target).capacity_w(demand)
    below = cheapest_w(demand, 0) - cheapest_w(demand - 1, 0)
    above = cheapest_w(demand + 1, 0) - cheapest_w(demand, 0)
    assert below - 1e-6 <= price_w <= above + 1e-6


def test_more_gpus_than_any_node_has_count_for_nothing() -> None:
    prices = prices_of(whole(1), whole(16))
    assert np.isfinite(prices.capacity_w(4))
    assert not prices.reserve_w(GPUS, 4).any()
