"""A plan of a budget's draw: its queue against small steps of time, and that it knows the past alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import poisson_jobs
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.traces import TraceJob
from wattsched.instances.units import J_PER_KWH, S_PER_DAY
from wattsched.replay.jobs.accounts import Carbon
from wattsched.replay.jobs.budget import Budget, Pacing
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.horizon import PRICES, Arrival, Curve, Queued, lasting, spent
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of_durations

N = len(PRICES)
FALLING = np.linspace(1.0, 0.25, N)
CURVE = Curve(
    FALLING.tolist(),
    (200 * FALLING**2).tolist(),
    (2 * FALLING).tolist(),
    (500 * FALLING**2).tolist(),
    [3.0] * N,
)
GPUS, STEP_S = 8.0, 1 / 16
sizes = st.tuples(st.integers(1, 40).map(float), st.sampled_from([1.0, 2.0, 4.0]))


def by_steps(
    price: float, here: Sequence[Queued], coming: Sequence[Arrival], costs: Sequence[tuple[float, float]]
) -> float:
    """What a queue spends from time 0 on, simulated in small steps."""
    waiting, running, total, steps = list(here), list[list[float]](), 0.0, round(costs[-1][0] / STEP_S)
    for step in range(steps):
        time_s = step * STEP_S
        waiting += [job[1:] for job in coming if time_s - STEP_S < job[0] <= time_s]
        waiting.sort()
        while waiting and (not running or sum(g for _, g in running) + waiting[0][1] <= GPUS):
            running.append([*waiting.pop(0)])
        if not running:
            continue
        used = sum(gpus for _, gpus in running)
        cost = next(cost for end_s, cost in costs if time_s < end_s)
        speed, power_w = CURVE.at(cost * price * used / (len(running) + len(waiting)), GPUS / used)
        total += used * power_w * cost * STEP_S
        for job in running:
            job[0] -= speed * job[1] * STEP_S
        running = [job for job in running if job[0] > 1e-9]
    return total


@settings(max_examples=examples(30))
@given(
    price=st.sampled_from([0.0, 1e-4, 1e-3, 1e-2]),
    here=st.lists(sizes, max_size=5),
    coming=st.lists(st.tuples(st.integers(0, 45), sizes), max_size=4),
    cost=st.sampled_from([1.0, 2.0]),
)
def test_a_queue_spends_what_small_steps_of_time_do(
    price: float, here: list[Queued], coming: list[tuple[int, Queued]], cost: float
) -> None:
    arrivals = sorted((float(at_s), *size) for at_s, size in coming)
    costs = [(20.0, 1.0), (50.0, cost)]
    jobs = len(here) + len(arrivals)
    most_w = GPUS * 500.0 * cost
    found = spent(CURVE, GPUS, here, arrivals, costs, 0.0, price)
    assert found == pytest.approx(
        by_steps(price, here, arrivals, costs), abs=2 * jobs * STEP_S * most_w, rel=1e-6
    )
    halves = [(10.0, 1.0), (20.0, 1.0), (35.0, cost), (50.0, cost)]
    assert found == pytest.approx(spent(CURVE, GPUS, here, arrivals, halves, 0.0, price), rel=1e-9)


@given(near=st.floats(1e-9, 1e6), at=st.floats(-8.0, 5.0))
def test_the_price_is_the_least_that_lasts(near: float, at: float) -> None:
    found = lasting(lambda price: 1.0 / price, 10.0**-at, near, 1e-6, 1e3)
    wanted = min(max(10.0**at, 1e-6), 1e3)
    assert wanted * (1 - 1e-9) <= found <= min(1.16 * wanted, 1e3)


def a_day(begin_s: float, seed: int, prefix: str) -> list[TraceJob]:
    """Jobs of a quiet morning and a busy evening."""
    jobs = poisson_jobs(14, seed, median_s=900.0)
    return [
        replace(job, name=f"{prefix}{i}", submitted_s=begin_s + (0.0 if i < 3 else 50_000.0) + 30.0 * i)
        for i, job in enumerate(jobs)
    ]


def with_history(jobs: Sequence[TraceJob], days: int) -> Trace:
    before = [job for day in range(1, days + 1) for job in a_day(-day * S_PER_DAY, day, f"before {day} ")]
    cluster = homogeneous_cluster(1, 8, "A100")
    return trace_of_durations(cluster, jobs, seed=1, history=before)


def replayed(trace: Trace, pacing: Pacing) -> Outcome:
    amount_j = 8 * 150.0 * S_PER_DAY
    budget = Budget("carbon_g", amount_j / J_PER_KWH * 300.0, S_PER_DAY, Carbon.constant(300.0), pacing)
    policy = policy_of("sizing", PolicyContext(trace, round_s=60.0, gap=0.01, budget=budget))
    return simulate(trace, policy, name="sizing", round_s=60.0, budget=budget)


def test_without_a_day_before_the_pace_is_even() -> None:
    trace = with_history(a_day(0.0, 0, "job "), 0)
    even, planned = (replayed(trace, pacing) for pacing in ("even", "plan"))
    assert np.array_equal(even.jobs.end_s[:3], planned.jobs.end_s[:3])


def test_what_the_days_before_foretell_is_saved_for_and_nothing_is_known_of_what_comes() -> None:
    """The same morning is spent alike whatever the evening brings, for which more is left than evenly."""
    day = a_day(0.0, 0, "job ")
    twice = [replace(job, duration_s=3 * job.duration_s) if i >= 3 else job for i, job in enumerate(day)]
    outcomes = [replayed(with_history(jobs, 5), "plan") for jobs in (day, twice)]
    assert np.array_equal(outcomes[0].jobs.end_s[:3], outcomes[1].jobs.end_s[:3])
    even = replayed(with_history(day, 5), "even")
    assert outcomes[0].jct_s.mean() < even.jct_s.mean()
    assert all(outcome.budget_used()[0].max() <= 1 + 1e-9 for outcome in outcomes)
    assert math.isfinite(even.jct_s.mean())
