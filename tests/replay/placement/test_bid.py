"""The policy that pays for capacity, against its formula in scalars over every place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.strategies.effort import examples
from tests.strategies.placement import node_tables, task_tables
from tests.strategies.placement_cases import context_of, nodes_of, share, state_with, tasks_of, whole
from wattsched.formulations.placement.capacity import CapacityPrices, UsableCapacity, WholeNodes
from wattsched.formulations.placement.node_values import NodeValues, Worth
from wattsched.formulations.placement.state import ClusterState, Placement, PolicyContext, Request, serve
from wattsched.instances.placement.tables import NodeTable, TaskTable, target_workload
from wattsched.replay.placement.policies import (
    AMPLE,
    HORIZON,
    HOSTS_ALL,
    LOOK_AHEAD,
    MARGIN,
    MOST_RESERVE_W,
    SETTLED,
    SPARE_W,
    TRUST,
    Bid,
    Shadow,
    policy_factory,
)
from wattsched.replay.placement.stream import requests_of


class Reference:
    """Enumerates every place and evaluates the cluster before and after."""

    def __init__(self, context: PolicyContext, within_pwr: bool):
        self.context = context
        self.capacity = UsableCapacity(context.target)
        self.prices = CapacityPrices(context.nodes, context.power, context.target)
        self.whole_nodes = WholeNodes(context.nodes, context.power)
        self.values = NodeValues(context.nodes, context.power, context.target, self.prices.refused_w)
        self.shadow = Shadow(context, ClusterState(context.nodes)) if within_pwr else None
        self.step = -1

    def learn(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        self.prices.count(request.models, request.gpus, request.demand_milli)
        if self.shadow is not None:
            self.shadow.follow(request, placement, state)

    def costs(self, request: Request, state: ClusterState, past: list[Request]) -> dict[Placement, float]:
        arrived_milli = sum(task.demand_milli for task in past)
        gpus = int(state.nodes.gpus.sum())
        arrived = arrived_milli / (1000 * gpus)
        step, level = int(100 * arrived), min(1.0, int(20 * arrived) / 20)
        if step != self.step:
            self.step = step
            usable = [
                self.usable(n, state.cpu_free_milli[n], state.gpu_free_milli[n]) for n in nodes_in(state)
            ]
            self.reserve_w = self.prices.reserve_w(np.array(usable), (HORIZON - arrived) * gpus)
        capacity_w = self.prices.capacity_w((step / 100 + LOOK_AHEAD) * gpus)
        worth = self.values.at((level + LOOK_AHEAD * (1 - level)) * gpus)
        reserve_w, ample = self.reserve_w, 1.0
        if self.shadow is not None and self.shadow.hosts_all:
            reserve_w = np.minimum(reserve_w, MOST_RESERVE_W) * self.shadow.leeway(MARGIN)
            ample = self.shadow.leeway(AMPLE)
        most = int(state.nodes.gpus.max())
        needing = sum(task.gpus == most for task in past)
        expected = needing * LOOK_AHEAD * gpus * 1000 / max(1, arrived_milli)
        breaking_w = self.whole_nodes.rent_w(state.free_gpus() == most, expected)
        settled = min(1.0, arrived / SETTLED)
        trust = TRUST[0] * (1 - settled) + TRUST[1] * settled * ample
        found = {}
        for node in np.flatnonzero(state.fits(request)).tolist():
            room = np.flatnonzero(state.gpu_free_milli[node] >= request.gpu_milli).tolist()
            ways = [(gpu,) for gpu in room] if request.shared else [tuple(room[: request.gpus])]
            for way in ways:
                cpu, free = int(state.cpu_free_milli[node]), state.gpu_free_milli[node].copy()
                watts, usable, worth_w = self.measures(worth, node, cpu, free)
                for gpu in way:
                    free[gpu] -= request.gpu_milli
                after_w, then_usable, then_w = self.measures(worth, node, cpu - request.cpu_milli, free)
                cost = after_w - watts + capacity_w * (usable - then_usable) + trust * (worth_w - then_w)
                cost += reserve_w[node] * request.demand_milli / 1000
                cost += SPARE_W * (1 - settled) * spare_vcpus(state, node, request.cpu_milli)
                cost += ample * breaking_w[node] if way and state.gpu_free_milli[node, way[0]] == 1000 else 0
                found[Placement(node, way)] = round(cost, 6)
        return found

    def measures(self, worth: Worth, node: int, cpu: int, free: np.ndarray) -> tuple[float, float, float]:
        """Watts and usable GPUs of a node, and what it is worth to the tasks to come."""
        here, power = np.array([node]), self.context.power
        idle = int((free == 1000).sum())
        watts = power.gpu_w(np.array([idle]), here)[0] + power.cpu_w(np.array([cpu]), here)[0]
        left = self.values.left(here, np.array([cpu]), free[None, :])
        return float(watts), self.usable(node, cpu, free), float(worth.node_w(left)[0])

    def usable(self, node: int, cpu: int, free: np.ndarray) -> float:
        return float(self.capacity.usable(self.capacity.gpu_value(free), np.array(cpu)))


def nodes_in(state: ClusterState) -> range:
    return range(len(state.nodes))


def spare_vcpus(state: ClusterState, node: int, cpu_milli: int) -> int:
    """Of packages of 16 cores, each of two vCPUs, as many as the busy cores need."""
    free = (int(state.cpu_free_milli[node]) - cpu_milli) // 2000
    busy = -(-int(state.nodes.cpu_milli[node]) // 2000) - free
    return 2 * (16 * -(-busy // 16) - busy)


@pytest.mark.parametrize("within_pwr", [False, True])
@settings(max_examples=examples(5), deadline=None)
@given(nodes=node_tables(most=3), tasks=task_tables(most=5))
def test_it_takes_the_cheapest_of_all_places(nodes: NodeTable, tasks: TaskTable, within_pwr: bool) -> None:
    context = context_of(nodes, target_workload(tasks))
    policy, reference = Bid(context, within_pwr), Reference(context, within_pwr)
    state, past = ClusterState(nodes), list[Request]()
    for request in requests_of(tasks) * 2:
        costs = reference.costs(request, state, past)
        placement = policy.decide(request, state)
        if not costs:
            assert placement is None
        else:
            assert placement is not None
            # Worth of rests is kept in single precision.
            assert costs[placement] <= min(costs.values()) + 1e-3
            state.place(request, placement)
        policy.on_decision(request, placement, state)
        reference.learn(request, placement, state)
        past.append(request)


@settings(max_examples=examples(5), deadline=None)
@given(nodes=node_tables(most=3), tasks=task_tables(most=5))
def test_the_shadow_draws_what_pwr_does(nodes: NodeTable, tasks: TaskTable) -> None:
    """Against PWR in a cluster of its own, and the power of both clusters."""
    context = context_of(nodes, target_workload(tasks))
    policy, pwr = Bid(context), policy_factory("pwr")(context)
    state, theirs = ClusterState(nodes), ClusterState(nodes)
    shadow, refused, arrived = Shadow(context, state), 0, 0
    for request in requests_of(tasks) * 3:
        placement = serve(policy, request, state)
        shadow.follow(request, placement, state)
        arrived += request.demand_milli
        refused += request.demand_milli * (serve(pwr, request, theirs) is None)
        if refused > (1 - HOSTS_ALL) * max(arrived, 10 * int(nodes.gpus.sum())):
            break
        assert shadow.hosts_all
        left_w = power_w(context, theirs) - power_w(context, state)
        assert (shadow.leeway(MARGIN) == 0) == (left_w <= 0)
        assert (shadow.leeway(MARGIN) == 1) == (left_w >= MARGIN * power_w(context, theirs))
    else:
        return
    assert not shadow.hosts_all


def power_w(context: PolicyContext, state: ClusterState) -> float:
    return float(context.power.node_w(state.cpu_free_milli, state.free_gpus()).sum())


def test_ties_go_to_the_first_node() -> None:
    nodes = nodes_of((8, 2, "T4"), (8, 2, "T4"))
    policy = Bid(context_of(nodes))
    assert policy.decide(whole(1), ClusterState(nodes)) == Placement(0, (0,))


def test_a_light_task_goes_where_cpu_is_short_and_a_heavy_one_where_it_is_plenty() -> None:
    nodes = nodes_of((64, 2, "T4"), (16, 2, "T4"))
    target = target_workload(tasks_of(*[whole(1, 12)] * 3, whole(1, 4)))
    state = state_with(nodes, {}, cpu_free={0: 60, 1: 12})

    def node_of(request: Request) -> int:
        placement = Bid(context_of(nodes, target)).decide(request, state)
        assert placement is not None
        return placement.node

    assert node_of(whole(1, 2)) == 1
    assert node_of(whole(1, 10)) == 0


def test_a_share_fills_the_rest_that_it_fits_best() -> None:
    nodes = nodes_of((64, 3, "T4"))
    target = target_workload(tasks_of(share(300), share(300), share(700), share(700)))
    state = state_with(nodes, {0: [1000, 300, 700]})
    policy = Bid(context_of(nodes, target))
    assert policy.decide(share(300), state) == Placement(0, (1,))


def test_a_type_is_kept_for_the_tasks_that_depend_on_it() -> None:
    nodes = nodes_of((64, 2, "T4"), (64, 2, "G2"))
    only = frozenset({"T4"})
    target = target_workload(tasks_of(whole(1), *[whole(1, models=only)] * 2))
    reserving, within = (Bid(context_of(nodes, target), within_pwr) for within_pwr in (False, True))
    state = ClusterState(nodes)
    assert reserving.decide(whole(1), state) == Placement(1, (0,))
    assert reserving.decide(whole(1, models=only), state) == Placement(0, (0,))
    # PWR would take the T4, and nothing has been saved yet that could pay for more.
    assert within.decide(whole(1), state) == Placement(0, (0,))
