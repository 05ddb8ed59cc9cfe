"""Objectives in order of the other problems, against trying all decisions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force import placement, sharing
from tests.brute_force.shifting import WHICH, outcomes
from tests.strategies.sharing import sharing_instances
from tests.strategies.shifting import tiny
from tests.strategies.windows import random_window
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.results.documents import verdict_on

MANY = int(os.environ.get("WATTSCHED_ORDERS", "15"))
SLACK = 1e-6
Values = dict[str, float]


def require_order(instance: Any, names: list[str], tolerance: float, tried: Iterable[Values]) -> None:
    """Hold that each stage is the best that the stages before leave, and that all of it is proven right."""
    left = list(tried)
    result = wattsched.solve(instance, objective=names, tolerance=tolerance, gap=1e-9)
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []
    if not left:
        assert result.termination.reason == "infeasible"
        return
    assert len(result.stages) == len(names) - 1
    for stage in [*result.stages, result]:
        name, sign = stage.objective_name, 1.0 if stage.sense == "min" else -1.0
        best = min(sign * one[name] for one in left)
        assert sign * stage.objective == pytest.approx(best, rel=SLACK, abs=SLACK)
        limit = sign * result.limits.get(name, stage.objective)
        left = [one for one in left if sign * one[name] <= limit + 1e-9 * max(1.0, abs(limit))]


def sharings(instance: SharingInstance, names: list[str]) -> Iterator[Values]:
    """Yield the values of every decision of sharing."""
    types = [unit.name for unit in instance.unit_types]
    waits = {
        name: {job.name: sharing._wait_cost(instance, job, name) for job in instance.jobs} for name in names
    }
    fastest = {c.name: min(alone.epoch_s for alone in c.alone.values()) for c in instance.classes}
    for split in sharing.partitions(list(instance.jobs)):
        for places in product([*types, None], repeat=len(split)):
            costs = {n: sharing._cost(instance, n, split, places, waits[n], fastest) for n in names}
            if None not in costs.values():
                yield {
                    n: -cost if n == "throughput" else cost for n, cost in costs.items() if cost is not None
                }


def placements(instance: PlacementInstance, names: list[str]) -> Iterator[Values]:
    """Yield the values of every decision of placement."""
    asked = [placement.Request.of(task) for task in instance.tasks]
    usual = [(placement.Request.of(each), each.count) for each in instance.workload]
    nodes = placement.nodes_of(instance)
    fits = [any(True for node in nodes for _ in node.ways(task)) for task in asked]

    def changes(now: tuple[placement.Node, ...]) -> tuple[int, Fraction]:
        count = 1000 * sum(times for _, times in usual)
        milli = [sum(times * node.fragments(of) for of, times in usual) for node in now]
        return sum(node.power_w() for node in now), Fraction(sum(milli), count)

    def value(name: str, now: tuple[placement.Node, ...], waiting: list[int]) -> float:
        of = instance.model_copy(update={"objective": name})
        per_task, per_gpu = placement.waiting_rates_w(of)
        refused = [asked[t] for t in waiting if fits[t]]
        waits = sum((per_task + per_gpu * Fraction(r.gpus * r.milli, 1000) for r in refused), Fraction(0))
        (before_w, before), (after_w, after) = changes(nodes), changes(now)
        scale = Fraction(instance.fragmentation_w_per_gpu)
        if name == "fragmentation":
            return float(after - before + waits / scale)
        return float(after_w - before_w + waits + (0 if name == "power" else scale * (after - before)))

    def ways(task: int, now: tuple[placement.Node, ...], waiting: list[int]) -> Iterator[Values]:
        if task == len(asked):
            yield {name: value(name, now, waiting) for name in names}
            return
        yield from ways(task + 1, now, [*waiting, task])
        for i, node in enumerate(now):
            for way in {after for _, after in node.ways(asked[task])}:
                yield from ways(task + 1, (*now[:i], way, *now[i + 1 :]), waiting)

    yield from ways(0, nodes, [])


@settings(max_examples=MANY, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sharing_instances(most_jobs=4),
    st.permutations(["eaco", "energy", "power", "throughput"]),
    st.sampled_from([0.0, 0.02, 0.3]),
)
def test_of_sharing(instance: SharingInstance, order: list[str], tolerance: float) -> None:
    require_order(instance, order[:3], tolerance, sharings(instance, order[:3]))


@pytest.mark.parametrize("seed", range(MANY))
def test_of_placement(seed: int) -> None:
    rng, instance = np.random.default_rng(seed), random_window(seed, most_tasks=3)
    names = rng.permutation(["power", "fragmentation", "power-fragmentation"]).tolist()
    require_order(instance, names[:2], float(rng.choice([0.0, 0.02, 0.3])), placements(instance, names))


@pytest.mark.parametrize("seed", range(1, MANY // 3 + 1))
def test_of_shifting(seed: int) -> None:
    names = np.random.default_rng(seed).permutation(list(WHICH)).tolist()[:3]
    instance = tiny(seed)
    tried = [{name: sums[WHICH[name]] for name in names} for sums in outcomes(instance)]
    require_order(instance, names, 0.02, tried)
