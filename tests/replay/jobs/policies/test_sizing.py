"""How `sizing` values jobs: by GPU seconds, more the longer they stay, and none is stopped for little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.replay import cluster_of, options_of, trace_by_hand
from wattsched.replay.jobs.budget import Allowance, Budget
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.sizing import LearnedPrice, values
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace

ONE, FOUR = {1: 1.0}, {4: 1.0}


def replay(trace: Trace) -> Outcome:
    return simulate(trace, policy_of("sizing", PolicyContext(trace, Restarts(5.0, 20.0))), name="sizing")


@given(st.lists(st.floats(1.0, 1e5), min_size=1, max_size=6), st.sampled_from([2, 4, 8]))
def test_a_second_of_more_gpus_is_worth_as_much_more(seconds: list[float], gpus: int) -> None:
    """Where all jobs need so many GPUs, each is worth so many times what it is where all need one."""
    narrow, wide = (
        trace_by_hand(cluster_of(8), *[(0.0, size, g, {g: 1.0}) for size in seconds]) for g in (1, gpus)
    )
    one, many = (values(options_of(trace, 0.0, np.array(seconds))) for trace in (narrow, wide))
    assert many == pytest.approx(gpus * one)


@given(st.floats(1.0, 1e5), st.floats(1.0, 1e6))
def test_of_equal_jobs_the_older_is_worth_more(size_s: float, age_s: float) -> None:
    trace = trace_by_hand(cluster_of(1), (0.0, size_s, 1, ONE), (age_s, size_s, 1, ONE))
    older, younger = values(options_of(trace, age_s, np.full(2, size_s)))
    assert older > younger
    twins = replace(trace, arrival_s=np.zeros(2))
    first, second = values(options_of(twins, age_s, np.full(2, size_s)))
    assert first == pytest.approx(second)


def test_a_short_job_that_needs_all_gpus_goes_first() -> None:
    """10 s of four GPUs are less work than 1000 s of one, though they serve one job, not four."""
    trace = trace_by_hand(cluster_of(4), (0, 10, 4, FOUR), *[(0, 1000, 1, ONE) for _ in range(4)])
    assert replay(trace).jobs.end_s == pytest.approx([10, *[1010] * 4])


def test_a_job_is_not_stopped_for_little() -> None:
    """90 s are left when one of 85 s arrives, and longer ones wait; of a long one alone many hours are."""
    waiting = [(0.0, size, 1, ONE) for size in (500, 600, 700)]
    kept = replay(trace_by_hand(cluster_of(1), (0, 100, 1, ONE), *waiting, (10, 85, 1, ONE)))
    assert kept.jobs.preemptions.sum() == 0
    assert kept.jobs.end_s[[0, -1]] == pytest.approx([100, 185])
    stopped = replay(trace_by_hand(cluster_of(1), (0, 50_000, 1, ONE), (10, 85, 1, ONE)))
    assert stopped.jobs.preemptions.tolist() == [1, 0]


def allowance(ahead: float) -> Allowance:
    return Allowance(
        left=1e9, left_s=1e5, even_w=900.0, in_proportion_w=900.0, ahead=ahead, standing_w=500.0,
        per_joule=1.0, exhausted=False,
    )  # fmt: skip


@given(st.lists(st.tuples(st.floats(1.0, 3e5), st.floats(0.0, 10.0)), min_size=1, max_size=20))
def test_a_learned_price_follows_the_limits(seen: list[tuple[float, float]]) -> None:
    """While all is spent evenly it rises, by no more than the limit costs; what was saved makes it less."""
    trace = trace_by_hand(cluster_of(1), (0.0, 1.0, 1, ONE))
    price = LearnedPrice(PolicyContext(trace, budget=Budget.of_energy(1e9, 1e6, "price")))
    time_s, later = 0.0, 0.0
    for step_s, limit in seen:
        time_s += step_s
        price.see(time_s, allowance(1.0), limit)
        assert later <= price.later <= later + limit
        assert price.now(allowance(1.0)) == pytest.approx(price.later)
        assert price.now(allowance(0.5)) >= price.later >= price.now(allowance(2.0))
        later = price.later
    price.see(time_s + 1e4, allowance(2.0), 0.0)
    assert price.later <= later
