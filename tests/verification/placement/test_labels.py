"""Labels find what listing finds: the least cost of what a node can host, and all that costs little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.windows import random_window
from wattsched.instances.generators import generate
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.verification.placement.bound import hostable, listed
from wattsched.verification.placement.checker import NodeState, worth
from wattsched.verification.placement.labels import Hosts

SMALL = st.integers(0, 2**31).map(lambda seed: random_window(seed, most_tasks=6)) | st.builds(
    generate, st.just("placement"), jobs=st.integers(2, 9), seed=st.integers(0, 99)
)


@settings(max_examples=examples(60))
@given(instance=SMALL, seed=st.integers(0, 2**31))
def test_labels_agree_with_listing(instance: PlacementInstance, seed: int) -> None:
    rng, usual = np.random.default_rng(seed), instance.usual_tasks()
    alike: dict[str, list[float]] = {}
    tasks = {}
    for task in instance.tasks:
        key = str(task.model_dump(exclude={"name"}))
        tasks[key] = task
        alike.setdefault(key, []).append(float(rng.normal(200.0, 400.0)))
    wanted = [(tasks[key], np.sort(prices)[::-1]) for key, prices in alike.items()]
    paid = [(instance, 1.0)]
    per_w, per_gpu = worth(instance, 1.0, 0.0, 0.0), worth(instance, 0.0, 1.0, 0.0)
    for node in instance.nodes:
        state = NodeState.of(instance, node, usual)
        sets = hostable(state, [(task, len(prices)) for task, prices in wanted], 100_000)
        cost = sets.cost(paid)
        for column, (_, prices) in enumerate(wanted):
            cost = cost - np.append(0.0, np.cumsum(prices))[sets.tasks[:, column]]
        hosts = Hosts(state, wanted, per_w, per_gpu)
        least = min(0.0, float(cost.min()))
        assert hosts.least(state) == pytest.approx(least, rel=1e-9, abs=1e-6)
        assert hosts.least(state, width=2) <= least + 1e-6
        room = float(rng.normal(100.0, 300.0))
        found = hosts.within(state, room, 100_000)
        assert found is not None
        near = listed(state, *found)
        clear = np.abs(cost - room) > 1e-6
        expected = {tuple(row) for row in sets.tasks[(cost < room) & clear].tolist()}
        assert expected <= {tuple(row) for row in near.tasks.tolist()}
        assert len(near.tasks) <= np.count_nonzero((cost < room) | ~clear)
        costs = dict(zip(map(tuple, sets.tasks.tolist()), sets.cost(paid).tolist(), strict=True))
        for row, value in zip(near.tasks.tolist(), near.cost(paid).tolist(), strict=True):
            assert value == pytest.approx(costs[tuple(row)], rel=1e-9, abs=1e-6)
