"""Labels find what listing finds: the least cost of what a node can host, and all that costs little."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.windows import random_window
from wattsched.instances.placement.instance import Task
from wattsched.verification.placement.checker import NodeState, worth
from wattsched.verification.placement.labels import Hosts


def hosted(state: NodeState, tasks: list[Task], kinds: list[int]) -> dict[tuple[int, ...], float]:
    """Least cost of every set of tasks, by how many there are of each kind, on a node: all ways are tried."""
    none, before = tuple(0 for _ in set(kinds)), state
    ways = {(none, state.cpu_milli, state.memory_mib, state.gpus): state}
    for task, kind in zip(tasks, kinds, strict=True):
        for (counts, *_), at in list(ways.items()):
            for gpus in combinations(range(len(at.gpus)), task.gpus):
                if at.has_room(task) and all(at.gpus[gpu] >= task.gpu_milli for gpu in gpus):
                    after = at.with_task(task, list(gpus))
                    more = tuple(n + (k == kind) for k, n in enumerate(counts))
                    ways[more, after.cpu_milli, after.memory_mib, after.gpus] = after
    costs: dict[tuple[int, ...], float] = {}
    for (counts, *_), after in ways.items():
        power_w = after.power_w() - before.power_w()
        fragments = after.fragmentation_gpus() - before.fragmentation_gpus()
        cost = worth(state.instance, power_w, fragments, 0.0)
        costs[counts] = min(cost, costs.get(counts, cost))
    return costs


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**31))
def test_labels_find_what_trying_all_ways_finds(seed: int) -> None:
    instance, rng = random_window(seed, most_tasks=5), np.random.default_rng(seed)
    named = [str(task.model_dump(exclude={"name"})) for task in instance.tasks]
    order = list(dict.fromkeys(named))
    kinds = [order.index(name) for name in named]
    prices = [np.sort(rng.normal(200.0, 400.0, kinds.count(kind)))[::-1] for kind in range(len(order))]
    wanted = [(instance.tasks[kinds.index(kind)], prices[kind]) for kind in range(len(order))]
    per_w, per_gpu = worth(instance, 1.0, 0.0, 0.0), worth(instance, 0.0, 1.0, 0.0)
    for node in instance.nodes:
        state = NodeState.of(instance, node, instance.usual_tasks())
        hosts, paid = Hosts(state, wanted, per_w, per_gpu), {}
        for counts, cost in hosted(state, instance.tasks, kinds).items():
            paid[counts] = cost - sum(p[:n].sum() for p, n in zip(prices, counts, strict=True))
        least = min(paid.values())
        assert hosts.least(state) == pytest.approx(least, rel=1e-9, abs=1e-6)
        assert hosts.least(state, width=2) <= least + 1e-6
        room = float(rng.normal(100.0, 300.0))
        found = hosts.within(state, room, 100_000)
        assert found is not None
        near = {tuple(row) for row in found[0].tolist()}
        assert {counts for counts, cost in paid.items() if cost < room - 1e-6} <= near
        assert near <= {counts for counts, cost in paid.items() if cost < room + 1e-6}
