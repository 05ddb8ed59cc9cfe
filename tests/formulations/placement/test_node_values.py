"""Worth of what is left of nodes, against trying every set of tasks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.placement_cases import context_of, nodes_of, share, tasks_of, whole
from wattsched.formulations.placement.node_values import NodeValues, Worth
from wattsched.formulations.placement.state import Request, requests_of
from wattsched.instances.placement.tables import target_workload

NODES = nodes_of((64, 4, "G2"), (16, 2, "T4"))
REQUESTS = (share(300, 2), share(600, 3), whole(1, 6), whole(2, 20), whole(0, 5))
PACKAGE_W, VCPUS = 105, 32


def values(demand_gpus: float) -> tuple[NodeValues, Worth, dict[Request, float]]:
    """Tables, and the prices that they are of."""
    context = context_of(NODES, target_workload(tasks_of(*REQUESTS)))
    found = NodeValues(context.nodes, context.power, context.target, 450.0)
    worth = found.at(demand_gpus)
    prices = found.prices_w(demand_gpus)
    return found, worth, dict(zip(requests_of(context.target.classes), prices.tolist(), strict=True))


def best_w(prices: dict[Request, float], node: int, gpus: int, vcpus: float) -> float:
    """Most that tasks pay on whole GPUs and vCPUs above the watts that they add, one of each GPU's shares."""
    gpu_w, cores = (120, 64) if node == 0 else (60, 16)
    used = cores - vcpus
    best = 0.0
    for counts in product(*(range(4) for _ in REQUESTS)):
        cpu = sum(n * r.cpu_milli / 1000 for n, r in zip(counts, REQUESTS, strict=True))
        if cpu > vcpus:
            continue
        needed = counts[2] + 2 * counts[3] + shares_need(counts[0], counts[1])
        if needed > gpus or (counts[3] and node == 1 and gpus < 2):
            continue
        packages = -(-(used + cpu) // VCPUS) - -(-used // VCPUS)
        paid = sum(n * prices[r] for n, r in zip(counts, REQUESTS, strict=True))
        best = max(best, paid - gpu_w * needed - PACKAGE_W * packages)
    return best


def shares_need(small: int, large: int) -> int:
    """Whole GPUs that shares of .3 and .6 need: one of each, or three small ones, share a GPU."""
    return large + -(-max(0, small - large) // 3)


@settings(max_examples=examples(30), deadline=None)
@given(st.sampled_from([0.5, 2.0, 5.0, 8.0]), st.integers(0, 1), st.data())
def test_free_gpus_are_worth_the_best_set_of_tasks(demand: float, node: int, data: st.DataObject) -> None:
    found, worth, prices = values(demand)
    gpus = data.draw(st.integers(0, 2))
    vcpus = data.draw(st.integers(0, 16))
    # Few enough CPUs that more than three of a task never fit.
    vcpus = min(vcpus, 8) if node == 0 else vcpus
    free = np.array([[1000] * gpus + [0] * (4 - gpus)])
    left = found.left(np.array([node]), np.array([1000 * vcpus]), free)
    expected = best_w(prices, node, gpus, vcpus)
    assert worth.node_w(left)[0] == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("demand", [0.5, 2.0, 5.0, 8.0])
def test_worth_rises_with_what_is_left(demand: float) -> None:
    _found, worth, _prices = values(demand)
    for table in (worth.of_free, worth.of_rest):
        assert (np.diff(table, axis=1) >= -1e-6).all()
        assert (table >= 0).all()
    assert not worth.of_rest[:, :300].any()


def test_runs_of_one_cluster_share_prices() -> None:
    first, second = (values(2.0)[0] for _ in range(2))
    assert first.prices_w(2.0) is second.prices_w(2.0)
