"""Every plot with any number of things in it, to be held against what all plots have to keep to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import wattsched
from tests.strategies.replay import cluster_of, linear, trace_by_hand
from wattsched import plot
from wattsched.replay.jobs.budget import Budget
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.placement.curves import Curves
from wattsched.report.saved import Interval, Point, PolicySavings, Savings


@cache
def outcome(policy: str = "srtf", budget: bool = True, jobs: int = 20) -> Outcome:
    """A replay of jobs, by default within a budget, of which some wait and some restart."""
    given = ((40.0 * i, 300.0 + 7.0 * i, 1 << i % 3, linear(4)) for i in range(jobs))
    trace = trace_by_hand(cluster_of(4, 4, unavailable=[3]), *given)
    limit = Budget.of_energy(4e5, 1000.0) if budget else None
    context = PolicyContext(trace, round_s=10.0, budget=limit)
    return simulate(trace, policy_of(policy, context), name=policy, round_s=10.0, budget=limit)


def named(n: int) -> list[Outcome]:
    """The same under so many names."""
    return [replace(outcome(), policy=f"policy-{i}") for i in range(n)]


@cache
def round_and_result() -> tuple[Any, Any]:
    """A scheduling round with an unavailable GPU, and a decision."""
    instance = wattsched.generate("uniform", jobs=30, seed=1, gpus=32)
    nodes = list(instance.cluster.nodes)
    nodes[0] = nodes[0].model_copy(update={"unavailable": [7]})
    cluster = instance.cluster.model_copy(update={"nodes": nodes})
    instance = instance.model_copy(update={"cluster": cluster})
    return instance, wattsched.solve(instance, time_limit=10)


@cache
def tradeoff() -> Any:
    """Between completion and carbon."""
    return wattsched.pareto(wattsched.generate("shifting", jobs=2, slots=8, seed=2), 4)


def saved(n: int, seeds: int = 3) -> Savings:
    """Policies within three budgets each."""

    def point(i: int, level: float, seed: int) -> Point:
        return Point(level + 0.02 * seed, 1.5 - level + 0.1 * i + 0.03 * seed, 1.0, 1.0, 0.0)

    def policy(i: int) -> PolicySavings:
        points = [[point(i, level, seed) for seed in range(seeds)] for level in (0.9, 0.7, 0.5)]
        return PolicySavings(f"policy-{i}", None, False, None, None, None, None, points, None)

    once = Interval(1.0)
    return Savings(
        *("fifo", 9, 16, [*range(seeds)], 1.0, once, once, 3600.0),
        *([0.9, 0.7, 0.5], [1.0] * 3, [*map(policy, range(n))], ""),
    )


def curves(level: float) -> Curves:
    """Curves of a cluster that fills up."""
    arrived = np.linspace(0, 1.3, 14)
    rising = np.minimum(100 * arrived, level)
    return Curves(
        arrived, rising, np.ones(14), 10 * rising + 500, 30 * rising + 900, 20 - rising / 9, 0 * arrived
    )


def measures(n: int) -> dict[str, dict[str, float]]:
    """Of so many solvers on seven instances."""
    return {f"solver-{i}": {f"p{j}": 0.1 + (i * j % 5) for j in range(7)} for i in range(n)}


def gap_courses(n: int) -> dict[str, tuple[list[float], list[float]]]:
    return {f"solver-{i}": ([0.5 + i, 4.0 + i, 60.0], [0.3, 10.0 ** -(1 + i % 6), 0.0]) for i in range(n)}


def prices(n: int) -> list[dict[str, float]]:
    return [{f"gpus:pool{i}": 300.0 * (i + 1) * (r % 4) for i in range(min(n, 8))} for r in range(12)]


def users(n: int) -> dict[str, str]:
    return {name: f"user-{i % n}" for i, name in enumerate(outcome().trace.names)}


CASES: dict[str, Callable[[int, Any], Any]] = {
    "schedule": lambda n, ax: plot.schedule(outcome(), ax=ax),
    "schedule of clocks, none of them stated": lambda n, ax: plot.schedule(
        outcome(), colour="frequency_mhz", ax=ax
    ),
    "schedule of jobs": lambda n, ax: plot.schedule(outcome(), rows="jobs", colour="job", ax=ax),
    "schedule of users": lambda n, ax: plot.schedule(outcome(), colour=users(n), ax=ax),
    "cluster map": lambda n, ax: plot.cluster_map(*round_and_result(), ax=ax),
    "cluster map of clocks": lambda n, ax: plot.cluster_map(
        *round_and_result(), colour="frequency_mhz", ax=ax
    ),
    "power": lambda n, ax: plot.power(named(n), cap_w=2000.0, ax=ax),
    "occupancy": lambda n, ax: plot.occupancy(named(n), ax=ax),
    "completion times": lambda n, ax: plot.completion_times(named(n), ax=ax),
    "price history": lambda n, ax: plot.price_history(prices(n), ax=ax),
    "frontier": lambda n, ax: plot.frontier({f"run-{i}": tradeoff() for i in range(n)}, ax=ax),
    "frontier of replays": lambda n, ax: plot.frontier(named(n), ax=ax),
    "frontier of savings": lambda n, ax: plot.frontier(saved(n), ax=ax),
    "gap over time": lambda n, ax: plot.gap_over_time(gap_courses(n), ax=ax),
    "gap profile": lambda n, ax: plot.gap_profile(measures(n), time_limit_s=60.0, gap=1e-4, ax=ax),
    "performance profile": lambda n, ax: plot.performance_profile(
        measures(n), time_limit_s=60.0, gap=1e-4, ax=ax
    ),
    "placement curves": lambda n, ax: plot.placement_curves(
        {f"policy-{i}": [curves(80.0 + i), curves(82.0 + i)] for i in range(n)}, ax=ax
    ),
}
