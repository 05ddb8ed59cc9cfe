"""Exact pricing against the list of all outcomes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.windows import random_window
from wattsched.formulations.placement.data import window_of
from wattsched.formulations.placement.outcomes import Outcomes, Prices, every_outcome
from wattsched.formulations.placement.pricing import Pricing
from wattsched.instances.generators import generate
from wattsched.instances.placement.instance import PlacementInstance

WINDOWS = st.integers(0, 2**31).map(lambda seed: random_window(seed, most_tasks=6)) | st.builds(
    generate, st.just("placement"), jobs=st.integers(2, 10), seed=st.integers(0, 99)
)


def sets_of(outcomes: Outcomes) -> set[tuple[int, ...]]:
    return {tuple(row) for row in np.column_stack([outcomes.cls, outcomes.hosted]).tolist()}


@settings(max_examples=examples(60))
@given(instance=WINDOWS, seed=st.integers(0, 2**31))
def test_pricing_finds_what_listing_finds(instance: PlacementInstance, seed: int) -> None:
    window, rng = window_of(instance), np.random.default_rng(seed)
    worth = rng.normal(200.0, 400.0, len(window.demand))
    prices = Prices(worth, rng.uniform(0.0, 100.0, len(window.classes.count)), np.zeros(0), 0.0)
    every = every_outcome(window)
    assert every is not None
    reduced = prices.reduced(every.cls, every.hosted, every.cost)
    least = np.zeros(len(window.classes.count))
    np.minimum.at(least, every.cls, reduced)
    pricing = Pricing(window)
    bounds, found = pricing(prices, 3, 100_000)
    assert bounds == pytest.approx(least, rel=1e-9, abs=1e-6)
    assert set(np.flatnonzero(least < -1e-6).tolist()) <= set(found.cls.tolist())
    assert (pricing(prices, 3, 2)[0] <= least + 1e-6).all()
    room = float(rng.uniform(1.0, 400.0))
    near = pricing.within(prices, room, 100_000)
    assert near is not None
    assert sets_of(every.take(reduced < room - 1e-6)) <= sets_of(near)
    assert sets_of(near) <= sets_of(every.take(reduced < room + 1e-6))
    rows = map(tuple, np.column_stack([every.cls, every.hosted]).tolist())
    cost = dict(zip(rows, every.cost.tolist(), strict=True))
    for row, value in zip(np.column_stack([near.cls, near.hosted]).tolist(), near.cost, strict=True):
        assert value == pytest.approx(cost[tuple(row)], rel=1e-7, abs=1e-6)
