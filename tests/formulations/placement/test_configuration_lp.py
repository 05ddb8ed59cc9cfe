"""The configuration LP against all packings of small clusters, against the whole LP, and on the real list."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.brute_force.placement_packing import packings, patterns
from tests.strategies.effort import examples
from wattsched.formulations.placement.configuration_lp import ConfigurationLp, Hosted
from wattsched.formulations.placement.node_types import node_types, profile_classes
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.instances.traces.openb import read_nodes, read_tasks
from wattsched.replay.placement.bounds import mean_arrived
from wattsched.replay.placement.stream import arrival_order

MODELS = ("T4", "P100", "G2")
CPUS = (0, 100, 1000, 1752, 4000, 15000, 32000)
SPECS = (frozenset(), frozenset({"T4"}), frozenset({"P100", "G2"}))


def table(rows: list[tuple[int, ...]]) -> TaskTable:
    """CPU, memory, GPUs, thousandths, and the position in `SPECS` where it is not the first."""
    columns = np.array([(*row, 0)[:5] for row in rows], dtype=np.int64).T.copy()
    return TaskTable(*columns, specs=SPECS)


def node_table(rows: list[tuple[int, ...]]) -> NodeTable:
    names = tuple(f"n{n}" for n in range(len(rows)))
    return NodeTable(names, *np.array(rows, dtype=np.int64).T.copy(), models=MODELS)


@st.composite
def clusters(draw: st.DrawFn, most_nodes: int = 3) -> NodeTable:
    """CPU, memory, GPUs, model; some nodes alike."""
    kinds = st.tuples(
        st.sampled_from([4000, 8000, 33000, 64000]),
        st.sampled_from([8, 16, 1000]),
        st.integers(1, 3),
        st.integers(0, 2),
    )
    few = draw(st.lists(kinds, min_size=1, max_size=2))
    return node_table(draw(st.lists(st.sampled_from(few), min_size=1, max_size=most_nodes)))


@st.composite
def requests(draw: st.DrawFn, size: int, cpus: tuple[int, ...] = CPUS) -> TaskTable:
    rows = []
    for _task in range(draw(st.integers(1, size))):
        gpus = draw(st.sampled_from([0, 1, 1, 1, 1, 2]))
        milli = draw(st.sampled_from([50, 250, 340, 500, 810, 1000])) if gpus == 1 else 1000 * (gpus > 0)
        spec = draw(st.sampled_from([0, 0, 0, 1, 2])) if gpus else 0
        rows.append((draw(st.sampled_from(cpus)), draw(st.sampled_from([0, 1, 5, 9])), gpus, milli, spec))
    return table(rows + draw(st.lists(st.sampled_from(rows), max_size=2)))


def arrived(tasks: TaskTable) -> np.ndarray:
    profiles, profile_of = tasks.profiles
    return np.bincount(profile_of, minlength=len(profiles)).astype(float)


def hosted(tasks: TaskTable, accepted: tuple[bool, ...]) -> Hosted:
    mask = np.array(accepted, dtype=bool)
    return Hosted(
        float(tasks.demand_milli[mask].sum()) / 1000,
        float(tasks.cpu_milli[mask].sum()) / 1000,
        int(mask.sum()),
    )


@settings(max_examples=examples(250))
@given(clusters(), requests(4), st.sampled_from([2560, 40, 7]), st.sampled_from([1, 2, 4, 1000]), st.data())
def test_no_packing_beats_the_bounds(
    nodes: NodeTable, tasks: TaskTable, units: int, rounds: int, data: st.DataObject
) -> None:
    """Whatever the units of CPU, and even if column generation stops after few rounds."""
    ways = packings(nodes, tasks)
    bounds = ConfigurationLp(nodes, tasks.profiles[0], most_units=units)
    count = arrived(tasks)
    fits = np.array([any(way.accepted[t] for way in ways) for t in range(len(tasks))])
    best = min((way.power_w for way in ways if np.all(np.array(way.accepted) >= fits)), default=np.inf)
    assert bounds.least_power(count, rounds=rounds).bound_w <= best

    most = max(hosted(tasks, way.accepted).gpus for way in ways)
    assert bounds.most_allocated_gpus(count, rounds=rounds) >= most

    some = data.draw(st.sampled_from(sorted({way.accepted for way in ways})))
    amount = hosted(tasks, some)
    least = min(way.power_w for way in ways if covers(hosted(tasks, way.accepted), amount))
    assert bounds.least_power(count, amount, rounds=rounds).bound_w <= least
    gpus_only = Hosted(gpus=amount.gpus)
    least = min(way.power_w for way in ways if covers(hosted(tasks, way.accepted), gpus_only))
    assert bounds.least_power(count, gpus_only, rounds=rounds).bound_w <= least

    for way in ways:
        assert bounds.known_power_w(count, hosted(tasks, way.accepted)) <= way.power_w


def covers(one: Hosted, other: Hosted) -> bool:
    return one.gpus >= other.gpus and one.vcpus >= other.vcpus and one.tasks >= other.tasks


def whole_lp(nodes: NodeTable, profiles: TaskTable, count: np.ndarray) -> tuple[float | None, float]:
    """Optimum over all patterns: least power if everything is accepted (None: impossible), most GPUs."""
    columns, cost, kind = [], [], []
    kinds = sorted({tuple(row) for row in node_rows(nodes)})
    for k, row in enumerate(kinds):
        for hosts, watts in patterns(nodes, node_rows(nodes).index(row), profiles):
            columns.append(hosts)
            cost.append(watts)
            kind.append(k)
    hosts, kind_of = np.array(columns, dtype=float).T, np.array(kind)
    member = (np.arange(len(kinds))[:, None] == kind_of).astype(float)
    number = np.array([node_rows(nodes).count(row) for row in kinds], dtype=float)
    memory = member * (profiles.memory_mib @ hosts)
    room = number * np.array([row[1] for row in kinds])
    power = linprog(
        cost, A_ub=np.vstack([-hosts, memory]), b_ub=np.concatenate([-count, room]), A_eq=member, b_eq=number
    )
    # Accepted counts come behind the patterns.
    gpus = profiles.demand_milli / 1000
    rows = np.vstack(
        [np.hstack([-hosts, np.eye(len(count))]), np.hstack([memory, np.zeros((len(kinds), len(count)))])]
    )
    allocation = linprog(
        np.concatenate([np.zeros(len(cost)), -gpus]),
        A_ub=rows,
        b_ub=np.concatenate([0 * count, room]),
        A_eq=np.hstack([member, np.zeros((len(kinds), len(count)))]),
        b_eq=number,
        bounds=[(0, None)] * len(cost) + [(0, c) for c in count],
    )
    return (float(power.fun) if power.status == 0 else None), -float(allocation.fun)


def node_rows(nodes: NodeTable) -> list[tuple[int, ...]]:
    columns = (nodes.cpu_milli, nodes.memory_mib, nodes.gpus, nodes.model)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=examples(60))
@given(clusters(most_nodes=6), requests(3, cpus=(2000, 4000, 15000, 32000)), st.data())
def test_column_generation_finds_the_optimum_over_all_patterns(
    nodes: NodeTable, tasks: TaskTable, data: st.DataObject
) -> None:
    profiles = tasks.profiles[0]
    # Requests that differ in memory alone are one to it, with the least memory.
    assume(len(profile_classes(node_types(nodes), profiles)[0]) == len(profiles))
    fits = node_types(nodes).admits(profiles).any(axis=0)
    counts = st.lists(st.floats(0.01, 4), min_size=len(profiles), max_size=len(profiles))
    count = np.where(fits, data.draw(counts), 0.0)
    bounds = ConfigurationLp(nodes, profiles)
    optimum_w, most_gpus = whole_lp(nodes, profiles, count)
    result = bounds.least_power(count, gap=1e-7)
    if optimum_w is not None:
        assert result.bound_w == pytest.approx(optimum_w, rel=1e-6)
        assert result.cost_w == pytest.approx(optimum_w, rel=1e-6)
    assert bounds.most_allocated_gpus(count, gap=1e-7) == pytest.approx(most_gpus, abs=1e-5)


def test_shares_waste_what_no_other_share_fits_into() -> None:
    """Two tasks of 810 need a GPU each, and a package of 16 cores wakes up with its first vCPU."""
    nodes = node_table([(32000, 64, 2, 0)] * 3)
    bounds = ConfigurationLp(nodes, table([(3152, 5, 1, 810)]))
    idle_w = 3 * (15 + 2 * 10)
    assert bounds.least_power([4]).bound_w == pytest.approx(idle_w + 4 * 60 + 2 * 105)
    assert bounds.least_power([4], Hosted(gpus=1.62)).bound_w == pytest.approx(idle_w + 2 * 60 + 105)
    assert bounds.most_allocated_gpus([9]) == pytest.approx(6 * 0.81)
    assert bounds.least_power([0]).bound_w == pytest.approx(idle_w)
    assert bounds.least_power([7]).bound_w == np.inf
    assert bounds.least_power([9], Hosted(tasks=6.5)).bound_w == np.inf


def test_what_fits_nowhere_is_not_asked_for() -> None:
    nodes = node_table([(8000, 8, 2, 0)])
    bounds = ConfigurationLp(nodes, table([(1000, 9, 1, 500), (1000, 1, 1, 500), (1000, 1, 3, 1000)]))
    assert bounds.hostable([1, 4, 3]) == Hosted(gpus=2.0, vcpus=4.0, tasks=4.0)
    assert bounds.least_power([1, 4, 3]).bound_w == pytest.approx(15 + 2 * 70 + 105)
    assert bounds.most_allocated_gpus([1, 4, 3]) == pytest.approx(2.0)


FLUID_PCT = {0.2: 19.1, 0.8: 16.7, 0.9: 14.0}
"""Saving over FGD that a fluid bound allows on the default list."""
FGD_W = {0.2: 479.2e3, 0.8: 1214.7e3, 0.9: 1339.0e3}
BEST_POLICY_PCT = {0.2: 15.0, 0.8: 13.1, 0.9: 5.2}
"""Highest saving of the published policies there."""


@pytest.mark.slow
def test_the_real_list(data_dir: Path) -> None:
    folder = data_dir / "alibaba-gpu-2023"
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    tasks = read_tasks(folder / "openb_pod_list_default.csv")
    capacity_milli = nodes.gpu_capacity_milli
    orders = [arrival_order(tasks, capacity_milli, seed) for seed in (42, 43)]
    grid = list(FLUID_PCT)
    counts = mean_arrived(tasks, orders, grid, capacity_milli)
    bounds = ConfigurationLp(nodes, tasks.profiles[0], most_units=640)
    for point, count in zip(grid, counts, strict=True):
        saving_pct = 100 * (1 - bounds.least_power(count, gap=1e-3).bound_w / FGD_W[point])
        assert BEST_POLICY_PCT[point] < saving_pct < FLUID_PCT[point] - 1
    whole = mean_arrived(tasks, orders, [1.0], capacity_milli)[0]
    assert 0.953 < bounds.most_allocated_gpus(whole, gap=1e-3) * 1000 / capacity_milli < 0.98
