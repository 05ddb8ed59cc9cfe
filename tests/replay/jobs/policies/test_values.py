"""Values of jobs: the weights of the optimal total completion time, GPU seconds, ages and learned prices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.replay import cluster_of, options_of, poisson_jobs, trace_by_hand
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.replay.jobs.budget import Allowance, Budget
from wattsched.replay.jobs.policies import elastic, sizing
from wattsched.replay.jobs.policies.elastic import rank_weights
from wattsched.replay.jobs.policies.rounds import RoundOptions
from wattsched.replay.jobs.policies.sizing import LearnedPrice
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import trace_of_durations

STEPS = 60
SHARE = np.arange(1, STEPS) / STEPS
ONE = {1: 1.0}


def least_of_two(larger: np.ndarray, smaller: np.ndarray, p: float) -> np.ndarray:
    """Least total completion time of two jobs on one cluster, over a grid of shares, elementwise.

    Shares change only when a job ends, as the speed-up is concave; the last job has the whole cluster.
    """
    sizes = np.stack(np.broadcast_arrays(larger, smaller))[..., None]
    rates = np.stack([SHARE**p, (1 - SHARE) ** p])[(slice(None), *(None,) * (sizes.ndim - 2))]
    time = (sizes / rates).min(axis=0)
    return np.asarray((2 * time + (sizes - time * rates).sum(axis=0)).min(axis=-1))


def least_of_three(sizes: np.ndarray, p: float) -> float:
    one, two = (grid.ravel() for grid in np.meshgrid(SHARE, SHARE))
    inside = one + two < 1 - 0.5 / STEPS
    rates = np.stack([one[inside], two[inside], 1 - one[inside] - two[inside]]) ** p
    time = (sizes[:, None] / rates).min(axis=0)
    left = np.sort(np.maximum(sizes[:, None] - time * rates, 0.0), axis=0)
    return float((3 * time + least_of_two(left[2], left[1], p)).min())


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=3).map(sorted))
def test_weights_are_those_of_the_optimum(p: float, ascending: list[float]) -> None:
    """By trying all allocations."""
    sizes = np.array(ascending[::-1])
    total = float(rank_weights(sizes, p) @ sizes)
    brute = least_of_three(sizes, p) if len(sizes) == 3 else float(least_of_two(sizes[0], sizes[1], p))
    assert total * (1 - 1e-9) <= brute <= total * 1.02


@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=8), st.floats(0.05, 0.9))
def test_the_shares_of_hesrpt_attain_it(sizes: list[float], p: float) -> None:
    left = np.sort(sizes)[::-1]
    total, weighted = 0.0, float(rank_weights(left, p) @ left)
    for m in range(len(left), 0, -1):
        bounds = (np.arange(m + 1) / m) ** (1 / (1 - p))
        rates = np.diff(bounds) ** p
        time = (left[:m] / rates).min()
        total += m * time
        left[:m] = np.maximum(left[:m] - time * rates, 0.0)
        assert left[m - 1] <= 1e-9
    assert total == pytest.approx(weighted, rel=1e-6)


@given(st.lists(st.integers(1, 10**5), min_size=1, max_size=6, unique=True))
def test_that_a_job_may_also_be_slow_changes_no_value(sizes: list[int]) -> None:
    """Every other job may run on one GPU, far slower than on two; last digits would rank equal jobs."""
    kinds = {1: 0.1, 2: 4.0, 4: 6.0}, {1: 2.0, 4: 6.0}
    jobs = [(0.0, float(size), 2, kinds[number % 2]) for number, size in enumerate(sizes)]
    options = options_of(trace_by_hand(cluster_of(4), *jobs), 0.0, np.array(sizes, float))
    values = elastic.values(options)
    assert values == pytest.approx(elastic.values(options.only(options.rate != 0.1)))
    assert values == pytest.approx(rank_weights(np.array(sizes) / 2.0) / 2.0)


@given(st.lists(st.floats(1.0, 1e5), min_size=1, max_size=6), st.sampled_from([2, 4, 8]))
def test_a_second_of_more_gpus_is_worth_as_much_more(seconds: list[float], gpus: int) -> None:
    """Where all jobs need so many GPUs, each is worth so many times what it is where all need one."""
    narrow, wide = (
        trace_by_hand(cluster_of(8), *[(0.0, size, g, {g: 1.0}) for size in seconds]) for g in (1, gpus)
    )
    one, many = (sizing.values(options_of(trace, 0.0, np.array(seconds))) for trace in (narrow, wide))
    assert many == pytest.approx(gpus * one)


@given(st.floats(1.0, 1e5), st.floats(1.0, 1e6))
def test_of_equal_jobs_the_older_is_worth_more(size_s: float, age_s: float) -> None:
    trace = trace_by_hand(cluster_of(1), (0.0, size_s, 1, ONE), (age_s, size_s, 1, ONE))
    older, younger = sizing.values(options_of(trace, age_s, np.full(2, size_s)))
    assert older > younger
    twins = replace(trace, arrival_s=np.zeros(2))
    first, second = sizing.values(options_of(twins, age_s, np.full(2, size_s)))
    assert first == pytest.approx(second)


def allowance(ahead: float) -> Allowance:
    return Allowance(
        left=1e9, left_s=1e5, even_w=900.0, in_proportion_w=900.0, ahead=ahead, standing_w=500.0,
        spare=4e7, per_joule=1.0, exhausted=False,
    )  # fmt: skip


@given(st.lists(st.tuples(st.floats(1.0, 3e5), st.floats(0.0, 10.0)), min_size=1, max_size=20))
def test_a_learned_price_is_a_mean_of_those_seen(seen: list[tuple[float, float]]) -> None:
    """It lies between the least and the most of them; more is charged after haste, less after thrift."""
    trace = trace_by_hand(cluster_of(1), (0.0, 1.0, 1, ONE))
    price = LearnedPrice(PolicyContext(trace, budget=Budget.of_energy(1e9, 1e6, "price")))
    time_s, prices = 0.0, [limit for _, limit in seen]
    for step_s, limit in seen:
        time_s += step_s
        price.see(time_s, allowance(1.0), limit)
    assert min(prices) * (1 - 1e-9) <= price.later <= max(prices) * (1 + 1e-9)
    assert price.now(allowance(1.0)) == pytest.approx(price.later)
    assert price.now(allowance(0.5)) >= price.later >= price.now(allowance(2.0))


def test_at_the_even_price_a_round_without_a_limit_draws_evenly() -> None:
    """Just above it the draw is below the even one, just below it above; at 0 it is below at any price."""
    trace = trace_of_durations(homogeneous_cluster(2, 8, "A100"), poisson_jobs(30, 3), seed=1)
    seen = []

    class Watched(sizing.Sizing):
        def _even_price(self, options: RoundOptions, allowance: Allowance) -> float:
            price, even_w = super()._even_price(options, allowance), allowance.in_proportion_w

            def draw_w(price: float) -> float:
                rows = self._solver.decide(options, options.program(self._cost(options, price, 0.0))).row
                return allowance.standing_w + float(trace.busy_w[rows[rows >= 0]].sum())

            seen.append((draw_w(0.9 * price) / even_w, price, draw_w(1.1 * price) / even_w))
            return price

    budget = Budget.of_energy(16 * 150.0 * 86400, 86400.0, "price")
    policy = Watched(PolicyContext(trace, round_s=60.0, gap=1e-3, budget=budget))
    outcome = simulate(trace, policy, name="sizing", round_s=60.0, budget=budget)
    more, prices, less = np.array(seen).T
    assert outcome.budget_used()[0].max() <= 1 + 1e-9
    assert np.mean(prices > 0) > 0.3
    # Where few jobs are left, a single one is more than the gap between two prices.
    assert np.quantile(less, 0.9) <= 1.0
    assert np.quantile(more[prices > 0], 0.1) >= 1.0
