"""Prices of CPU and GPU against the patterns that they must not undervalue."""

from __future__ import annotations

import numpy as np
import pytest
from brute_force.placement_packing import patterns
from hypothesis import given, settings
from hypothesis import strategies as st

from wattsched.formulations.placement.bid_prices import bid_prices
from wattsched.formulations.placement.bound import PlacementBounds
from wattsched.formulations.placement.node_types import node_types
from wattsched.instances.placement.tables import NodeTable, TaskTable

MODELS = ("T4", "P100", "G2")
SPECS = (frozenset(), frozenset({"T4"}))


def node_table(rows: list[tuple[int, ...]]) -> NodeTable:
    names = tuple(f"n{n}" for n in range(len(rows)))
    return NodeTable(names, *np.array(rows, dtype=np.int64).T.copy(), models=MODELS)


def task_table(rows: list[tuple[int, ...]]) -> TaskTable:
    return TaskTable(*np.array(rows, dtype=np.int64).T.copy(), specs=SPECS)


NODE = st.tuples(
    st.sampled_from([8000, 34000]), st.just(100), st.integers(1, 3), st.integers(0, len(MODELS) - 1)
)
TASK = st.one_of(
    st.tuples(
        st.sampled_from([2000, 4000, 15000]),
        st.just(1),
        st.just(1),
        st.sampled_from([300, 500, 810, 1000]),
        st.sampled_from([0, 1]),
    ),
    st.tuples(st.just(4000), st.just(1), st.just(2), st.just(1000), st.just(0)),
    st.tuples(st.sampled_from([3000, 12000]), st.just(1), st.just(0), st.just(0), st.just(0)),
)


@settings(max_examples=60)
@given(NODE, st.lists(TASK, min_size=1, max_size=3, unique=True), st.data())
def test_a_node_is_worth_what_any_pattern_earns(
    node: tuple[int, ...], rows: list[tuple[int, ...]], data: st.DataObject
) -> None:
    nodes, profiles = node_table([node]), task_table(rows)
    types = node_types(nodes)
    prices = st.lists(st.floats(0, 500), min_size=len(rows), max_size=len(rows))
    task_w = np.array(data.draw(prices))
    bids = bid_prices(types, profiles, task_w)
    idle_w = float(types.power.node_w(types.nodes.cpu_milli, types.nodes.gpus)[0])
    earned = [np.dot(task_w, hosts) - (watts - idle_w) for hosts, watts in patterns(nodes, 0, profiles)]
    assert max(earned) <= bids.node_worth(types)[0] + 1e-6
    assert np.all(np.diff(bids.share, axis=1) >= 0)
    assert np.all(bids.share[:, 0] == 0)


def test_worth_of_a_hand_worked_node() -> None:
    """CPU is plentiful, so it has no rent; a started GPU is worth a share's price less its CPU power."""
    nodes = node_table([(64000, 100, 2, 0)])
    types = node_types(nodes)
    bids = bid_prices(
        types, task_table([(4000, 1, 1, 300, 0), (4000, 1, 1, 1000, 0)]), np.array([50.0, 90.0])
    )
    net_w = 50 - 4 * 105 / 32
    assert bids.vcpu[0] == pytest.approx(0, abs=1e-4)
    assert bids.share[0, [299, 300, 599, 600, 1000]] == pytest.approx(
        net_w * np.array([0, 1, 1, 2, 3]), abs=1e-3
    )
    assert bids.gpu[0] == pytest.approx(3 * net_w - 60, abs=1e-3)


def test_cpu_has_a_rent_where_it_is_scarce() -> None:
    """Only two of the tasks find CPU: their price is the CPU's, not the GPU's."""
    types = node_types(node_table([(8000, 100, 3, 0)]))
    bids = bid_prices(types, task_table([(4000, 1, 1, 1000, 0)]), np.array([100.0]))
    assert bids.gpu[0] == pytest.approx(0, abs=1e-3)
    assert bids.vcpu[0] == pytest.approx((100 - 60) / 4 - 105 / 32, abs=1e-3)


def test_prices_of_the_lp_leave_no_profit_on_types_that_stay_empty() -> None:
    nodes = node_table([(32000, 100, 2, 0)] * 3 + [(32000, 100, 2, 1)] * 2)
    profiles = task_table([(4000, 1, 1, 500, 0), (8000, 1, 1, 1000, 0)])
    bounds = PlacementBounds(nodes, profiles)
    result = bounds.least_power([2, 2])
    bids = bid_prices(bounds.types, profiles, bounds.profile_prices_w(result))
    cheap = int(np.argmin(bounds.types.power.gpu_full_w))
    worth = bids.node_worth(bounds.types)
    assert worth[1 - cheap] == pytest.approx(0, abs=1.0)
    assert np.all(bids.task > 0)
