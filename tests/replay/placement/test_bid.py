"""The policy that pays for capacity, against its formula in scalars over every place."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from strategies.placement import node_tables, task_tables
from strategies.placement_cases import context_of, nodes_of, share, state_with, tasks_of, whole

from wattsched.formulations.placement.capacity import CapacityPrices, UsableCapacity, WholeNodes
from wattsched.formulations.placement.state import ClusterState, Placement, PolicyContext, Request
from wattsched.instances.placement.tables import NodeTable, TaskTable, target_workload
from wattsched.replay.placement.policies import BESIDE_W, HORIZON, LOOK_AHEAD, SPARE_W, Bid
from wattsched.replay.placement.stream import requests_of


class Reference:
    """Enumerates every place and evaluates the cluster before and after."""

    def __init__(self, context: PolicyContext, reserving: bool):
        self.context, self.reserving = context, reserving
        self.capacity = UsableCapacity(context.target)
        self.prices = CapacityPrices(context.nodes, context.power, context.target)
        self.whole_nodes = WholeNodes(context.nodes, context.power)

    def costs(self, request: Request, state: ClusterState, past: list[Request]) -> dict[Placement, float]:
        arrived_milli = sum(task.demand_milli for task in past)
        gpus = int(state.nodes.gpus.sum())
        soon = 100 * arrived_milli // (1000 * gpus) / 100 + LOOK_AHEAD
        prices = self.prices.at(soon * gpus)
        reserve_w = (
            self.prices.at(max(soon, HORIZON) * gpus).reserve_w if self.reserving else prices.reserve_w
        )
        most = int(state.nodes.gpus.max())
        needing = sum(task.gpus == most for task in past)
        expected = needing * LOOK_AHEAD * gpus * 1000 / max(1, arrived_milli)
        breaking_w = self.whole_nodes.rent_w(state.free_gpus() == most, expected)
        found = {}
        for node in np.flatnonzero(state.fits(request)).tolist():
            room = np.flatnonzero(state.gpu_free_milli[node] >= request.gpu_milli).tolist()
            ways = [(gpu,) for gpu in room] if request.shared else [tuple(room[: request.gpus])]
            for way in ways:
                cpu, free = int(state.cpu_free_milli[node]), state.gpu_free_milli[node].copy()
                before = self.worth(node, cpu, free)
                for gpu in way:
                    free[gpu] -= request.gpu_milli
                after = self.worth(node, cpu - request.cpu_milli, free)
                cost = after[0] - before[0] + prices.capacity_w * (before[1] - after[1])
                cost += reserve_w[node] * request.demand_milli / 1000
                cost += SPARE_W * spare_vcpus(state, node, request.cpu_milli)
                if not request.gpus:
                    value = float(self.capacity.gpu_value(state.gpu_free_milli[node]))
                    cost += BESIDE_W * min(1.0, value) * request.cpu_milli / 1000
                cost += breaking_w[node] if way and state.gpu_free_milli[node, way[0]] == 1000 else 0
                found[Placement(node, way)] = round(cost, 6)
        return found

    def worth(self, node: int, cpu: int, free: np.ndarray) -> tuple[float, float]:
        """Watts and usable GPUs of a node."""
        here, power = np.array([node]), self.context.power
        idle = int((free == 1000).sum())
        watts = power.gpu_w(np.array([idle]), here)[0] + power.cpu_w(np.array([cpu]), here)[0]
        value = self.capacity.gpu_value(free)
        return float(watts), float(self.capacity.usable(value, np.array(cpu)))


def spare_vcpus(state: ClusterState, node: int, cpu_milli: int) -> int:
    """Of packages of 16 cores, each of two vCPUs, as many as the busy cores need."""
    free = (int(state.cpu_free_milli[node]) - cpu_milli) // 2000
    busy = -(-int(state.nodes.cpu_milli[node]) // 2000) - free
    return 2 * (16 * -(-busy // 16) - busy)


@pytest.mark.parametrize("reserving", [False, True])
@settings(max_examples=40)
@given(nodes=node_tables(most=5), tasks=task_tables(most=12))
def test_it_takes_the_cheapest_of_all_places(nodes: NodeTable, tasks: TaskTable, reserving: bool) -> None:
    context = context_of(nodes, target_workload(tasks))
    policy, reference = Bid(context, reserving), Reference(context, reserving)
    state, past = ClusterState(nodes), list[Request]()
    for request in requests_of(tasks) * 2:
        costs = reference.costs(request, state, past)
        placement = policy.decide(request, state)
        if not costs:
            assert placement is None
        else:
            assert placement is not None
            assert costs[placement] <= min(costs.values()) + 2e-6
            state.place(request, placement)
        policy.on_decision(request, placement, state)
        past.append(request)


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


def test_reserving_keeps_a_type_for_the_tasks_that_depend_on_it() -> None:
    nodes = nodes_of((64, 2, "T4"), (64, 8, "G2"))
    only = frozenset({"T4"})
    target = target_workload(tasks_of(whole(1), whole(1, models=only)))
    decide = partial(Bid, context_of(nodes, target))
    state = ClusterState(nodes)
    assert decide(reserving=False).decide(whole(1), state) == Placement(0, (0,))
    assert decide(reserving=True).decide(whole(1), state) == Placement(1, (0,))
    assert decide(reserving=True).decide(whole(1, models=only), state) == Placement(0, (0,))
