"""Every score worked by hand, and the choice that follows from scores."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.placement import node_tables, task_tables
from tests.strategies.placement_cases import context_of, nodes_of, share, state_with, tasks_of, whole
from wattsched.formulations.placement.heuristics import RULES, Fgd, GpuClustering, Rule, stretched
from wattsched.formulations.placement.state import ClusterState, Placement, Policy, Request
from wattsched.instances.placement.tables import NodeTable, TaskTable, target_workload
from wattsched.replay.placement.policies import policy_factory
from wattsched.replay.placement.stream import requests_of

POLICIES = (
    *("fgd", "pwr", "best-fit", "dot-product", "gpu-packing", "gpu-clustering", "random"),
    *("pwr+fgd:500/500", "pwr+fgd:50/950", "best-fit+gpu-clustering:900/100"),
)


T4, G2 = "T4", "G2"
# Half of the target workload asks for 500 thousandths, half for a GPU, all of them for a vCPU.
HALVES = nodes_of((8, 2, T4), (8, 2, T4), (2, 1, T4)), {1: [500, 1000]}, {2: 1.5}
FRAGMENTS = nodes_of((8, 4, T4)), {0: [400, 300, 300, 1000]}
AWAKE = nodes_of(*[(32, 2, T4)] * 2, *[(32, 2, G2)] * 2), {1: [900, 1000], 3: [50, 1000]}, {1: 31, 3: 30}
EMPTY = nodes_of((64, 4, T4), (128, 8, T4), (96, 6, T4)), {}
PACKED = nodes_of(*[(8, 2, T4)] * 3, (8, 20, T4), (8, 2, T4)), {0: [350, 1000], 1: [200, 1000], 4: [999, 350]}


def scores(rule: Rule, request: Request, state: ClusterState) -> list[int]:
    nodes = np.flatnonzero(state.fits(request))
    assert len(nodes) == len(state.nodes)
    return [int(score) for score in rule.score(request, state, nodes)]


@pytest.mark.parametrize(
    ("name", "cluster", "target", "request_", "points"),
    [
        # Fragments: 0 -> 250; 250 -> 0 on the first GPU, -> 500 on the second; 0 -> 500 for lack of CPU.
        ("fgd", HALVES, (), share(500), [int(100 / (1 + math.exp(-gpus))) for gpus in (-0.25, 0.25, -0.5)]),
        # A GPU: no fragments are left of the first; 250 -> 250; 0 -> 0. Without CPU that is left: 0 -> 1.
        ("fgd", HALVES, (), whole(1), [50, 50, 50]),
        ("fgd", HALVES, (), whole(0), [50, 50, 26]),
        # 300 is a fragment, so it costs nothing.
        ("fgd", FRAGMENTS, [share(400)], share(300), [int(100 / (1 + math.exp(-0.3)))]),
        # The T4 is a fragment as a whole, so using it is a gain of one GPU.
        (
            "fgd",
            (nodes_of((8, 1, T4), (8, 1, G2)), {}),
            [whole(1, models=frozenset({G2}))],
            whole(1),
            [73, 50],
        ),
        # A package and a GPU wake, nothing does, both do, a GPU does.
        ("pwr", AWAKE, (), share(100), [-(105 + 60), 0, -(105 + 120), -120]),
        ("pwr", AWAKE, (), whole(1), [-165, -60, -225, -120]),
        ("pwr", AWAKE, (), whole(0), [-105, 0, -105, 0]),
        # Left over: a quarter and 3 of 8 GPUs, three quarters and 7, a half and 5.
        ("best-fit", EMPTY, (), whole(1, vcpus=32), [68, 18, 43]),
        # (1/2 * 1/4 + 1/2 * 1/4) / 2 and (1 * 1/4 + 1 * 1/4) / 2.
        ("dot-product", (nodes_of((64, 4, T4), (128, 8, T4)), {}), (), whole(2, vcpus=32), [87, 75]),
        ("gpu-packing", PACKED, (), share(300), [97, 49, 31, 20, 97]),
        ("gpu-packing", PACKED, (), whole(0), [0] * 5),
        ("gpu-packing", (nodes_of((8, 8, T4), (8, 32, T4)), {0: [0], 1: [1]}), (), whole(7), [43, 43]),
        ("gpu-packing", (nodes_of((8, 32, T4)), {0: [0]}), (), whole(20), [33]),
    ],
)
def test_scores(name: str, cluster: Any, target: Any, request_: Request, points: list[int]) -> None:
    nodes, *used = cluster
    context = context_of(nodes, target_workload(tasks_of(*target)) if target else None)
    assert scores(RULES[name](context), request_, state_with(nodes, *used)) == points


@pytest.mark.parametrize(
    ("name", "cluster", "gpu_of"),
    [
        ("fgd", HALVES, {500: 0}),
        # 400 is no fragment; of equal ones it is the first.
        ("fgd", FRAGMENTS, {300: 1}),
        # The first busy one with room.
        ("pwr", (nodes_of((32, 4, T4)), {0: [1000, 300, 1000, 500]}), {300: 1, 500: 3, 501: 0}),
        # The fullest one with room.
        ("best-fit", (nodes_of((8, 4, T4)), {0: [300, 1000, 500, 500]}), {300: 0, 301: 2, 501: 1}),
    ],
)
def test_gpus_of_shares(name: str, cluster: Any, gpu_of: dict[int, int]) -> None:
    nodes, *used = cluster
    target = target_workload(tasks_of(share(400))) if cluster is FRAGMENTS else None
    rule, state = RULES[name](context_of(nodes, target)), state_with(nodes, *used)
    assert {milli: rule.gpu(share(milli), state, 0) for milli in gpu_of} == gpu_of


@pytest.mark.parametrize(
    ("name", "points", "normalised"),
    [
        ("pwr", [-165, 0, -225, -120], [26, 100, 0, 46]),
        ("pwr", [-5, -5], [100, 100]),
        ("best-fit", [68, 18, 43], [100, 0, 50]),
        ("best-fit", [7, 7], [0, 0]),
    ],
)
def test_normalised_scores(name: str, points: list[int], normalised: list[int]) -> None:
    rule = RULES[name](context_of(nodes_of((32, 2, T4))))
    assert list(rule.normalise(np.array(points))) == normalised


def test_gpu_clustering() -> None:
    nodes = nodes_of(*[(32, 8, "T4")] * 4)
    rule, state = GpuClustering(context_of(nodes)), ClusterState(nodes)

    def place(request: Request, node: int, *gpus: int) -> None:
        placement = Placement(node, gpus)
        state.place(request, placement)
        rule.on_decision(request, placement, state)

    place(whole(4), 0, 0, 1, 2, 3)
    place(whole(2), 1, 0, 1)
    place(share(500), 1, 2)
    place(whole(0), 2)
    # 25 * 4 / 8 and 25 * 2.5 / 8, rounded down, on top of how alike the tasks are.
    assert scores(rule, whole(4), state) == [75 + 12, 7, 25, 25]
    assert scores(rule, whole(2), state) == [12, 50 + 7, 25, 25]
    assert scores(rule, share(1), state) == [12, 50 + 7, 25, 25]
    assert scores(rule, whole(1), state) == [12, 7, 25, 25]
    assert scores(rule, whole(0), state) == [0] * 4


def test_random_draws_evenly() -> None:
    nodes = nodes_of((8, 2, "T4"), (8, 1, "T4"), (8, 2, "T4"))
    state = state_with(nodes, {1: [100]})
    policy = policy_factory("random")(context_of(nodes))
    drawn = Counter(policy.decide(share(500), state) for _ in range(4000))
    assert set(drawn) == {Placement(node, (gpu,)) for node in (0, 2) for gpu in (0, 1)}
    assert list(drawn.values()) == pytest.approx([1000] * 4, abs=150)
    assert policy.decide(whole(3), state) is None
    assert policy.decide(whole(2), state) in {Placement(0, (0, 1)), Placement(2, (0, 1))}


@pytest.mark.parametrize("name", ["fgd", "pwr", "best-fit", "dot-product", "gpu-packing", "pwr+fgd:200/800"])
def test_the_first_of_the_best_wins(name: str) -> None:
    nodes = nodes_of((8, 1, "G3"), (32, 2, "T4"), (32, 2, "T4"))
    state = state_with(nodes, {0: [0]})
    policy = policy_factory(name)(context_of(nodes))
    assert policy.decide(share(400), state) == Placement(1, (0,))
    assert policy.decide(whole(2), state) == Placement(1, (0, 1))
    assert policy.decide(whole(3), state) is None


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("pwr+fgd:501/499", 0), ("pwr+fgd:500/500", 1), ("pwr+fgd:0/1000", 1), ("fgd+pwr:500/500", 0)],
)
def test_the_heavier_rule_chooses_the_gpu(name: str, gpu: int) -> None:
    nodes = nodes_of((8, 2, "T4"))
    state = state_with(nodes, {0: [400, 300]})
    context = context_of(nodes, target_workload(tasks_of(share(400))))
    assert policy_factory(name)(context).decide(share(300), state) == Placement(0, (gpu,))


def test_weights_add_scores_up() -> None:
    nodes = nodes_of((32, 1, "T4"), (32, 1, "T4"))
    state = state_with(nodes, {1: [900]}, cpu_free={1: 31})
    context = context_of(nodes, target_workload(tasks_of(share(900))))
    # Fragments: none -> none, none -> 8/10 of a GPU. PWR: 0 and 100, for the second node is awake.
    assert scores(Fgd(context), share(100), state) == [50, 31]
    # 100 w > (50 - 31) (1000 - w) from w = 160 on.
    for weight, node in ((159, 0), (160, 1)):
        name = f"pwr+fgd:{weight}/{1000 - weight}"
        assert policy_factory(name)(context).decide(share(100), state) == Placement(node, (0,))


@given(st.lists(st.integers(-1000, 100), min_size=1))
def test_stretching_is_exact_division_rounded_down(values: list[int]) -> None:
    low, high = min(values), max(values)
    expected = [100 * (v - low) // (high - low) if high > low else 7 for v in values]
    assert list(stretched(np.array(values), 7)) == expected


@given(node_tables(), task_tables(least=5), st.sampled_from(POLICIES), st.data())
def test_kept_scores_are_fresh_and_capacity_holds(
    nodes: NodeTable, tasks: TaskTable, name: str, data: st.DataObject
) -> None:
    context = context_of(nodes, target_workload(tasks))
    requests = data.draw(st.lists(st.sampled_from(requests_of(tasks)), max_size=40))
    factory = policy_factory(name)
    policy, history, state = factory(context), [], ClusterState(nodes)
    for request in requests:
        placement = policy.decide(request, state)
        if name != "random":
            assert placement == _afresh(factory(context), history, state).decide(request, state)
        assert (placement is None) == (not state.fits(request).any())
        if placement is not None:
            state.place(request, placement)
        policy.on_decision(request, placement, state)
        history.append((request, placement))
    assert min(state.cpu_free_milli.min(), state.memory_free_mib.min(), state.gpu_free_milli.min()) >= 0


def _afresh(policy: Policy, history: list[tuple[Request, Placement | None]], state: ClusterState) -> Policy:
    for request, placement in history:
        policy.on_decision(request, placement, state)
    return policy


def test_forgotten_scores_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = nodes_of((8, 2, "T4"), (8, 2, "G2"))
    monkeypatch.setattr("wattsched.formulations.placement.heuristics.MOST_KEPT", 2)
    policy, state = policy_factory("fgd")(context_of(nodes)), ClusterState(nodes)
    for request in [share(100), whole(1), share(100), whole(2), share(100)]:
        placement = policy.decide(request, state)
        assert placement == policy_factory("fgd")(context_of(nodes)).decide(request, state)
        assert placement is not None
        state.place(request, placement)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fdg", r"there is no policy 'fdg' .did you mean 'fgd'.*\)$"),
        ("pwr+fgd", "there is no policy"),
        ("pwr+fgd:100/901", r"the weights of 'pwr\+fgd:100/901' must sum to 1000, got 1001"),
        ("pwr+random:500/500", r"'random' in 'pwr\+random:500/500' does not score; those that do are fgd"),
        ("", "there is no policy ''"),
    ],
)
def test_an_unknown_policy_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy_factory(name)
