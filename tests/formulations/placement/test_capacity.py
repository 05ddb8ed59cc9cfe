"""Worth of free capacity: prices of GPU types, usable GPUs, and rents of whole nodes, by hand and counted."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.strategies.placement import task_tables
from tests.strategies.placement_cases import context_of, nodes_of, share, tasks_of, whole
from wattsched.formulations.placement.capacity import (
    REFUSAL,
    SPREAD,
    CapacityPrices,
    UsableCapacity,
    WholeNodes,
    share_values,
)
from wattsched.formulations.placement.state import Request
from wattsched.instances.placement.tables import TaskTable, target_workload

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


LARGE = nodes_of((96, 8, "G2"), (96, 8, "G2"), (64, 8, "P100"), (64, 2, "P100"))


def rents(arriving: float, broken: tuple[int, ...] = ()) -> list[float]:
    """Rents when so many tasks that need a whole node are expected."""
    nodes = WholeNodes(LARGE, context_of(LARGE).power)
    assert nodes.size == 8
    free = nodes.largest.copy()
    free[list(broken)] = False
    return [float(w) for w in nodes.rent_w(free, arriving)]


def expected(arriving: float, whole_w: list[int], own_w: int) -> float:
    """The sum over the number of arrivals."""
    order = [*sorted(whole_w), *[REFUSAL * P100_W] * 200]
    total = 0.0
    for n in range(150):
        chance = math.exp(-arriving) * arriving**n / math.factorial(n)
        total += chance * 8 * max(0.0, order[n] - own_w)
    return total


@pytest.mark.parametrize("arriving", [0.01, 0.5, 2.0, 6.0])
def test_the_expected_watts_of_what_is_taken_instead(arriving: float) -> None:
    whole_w = [G2_W, G2_W, P100_W]
    g2, p100 = (expected(arriving, whole_w, own) for own in (G2_W, P100_W))
    assert rents(arriving) == pytest.approx([g2, g2, p100, 0])
    p100 = expected(arriving, [P100_W], P100_W)
    assert rents(arriving, broken=(0, 1)) == pytest.approx([0, 0, p100, 0])


def test_nobody_needs_a_whole_node() -> None:
    nodes = WholeNodes(LARGE, context_of(LARGE).power)
    assert not np.any(nodes.rent_w(nodes.largest, 0.0))
