"""Frontiers are convex hulls; the greedy answers are close to the optimum and quick."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.solvers import greedy, powerflow
from wattsched.solvers.greedy import convex_frontiers
from wattsched.solvers.solution import Limits, listening

from .programs import knapsack, program_of

points = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=9)


def supported(points, weight):
    """Least value of cost + weight * use."""
    return min(cost + weight * use for use, cost in points)


@settings(max_examples=examples(100), deadline=None)
@given(groups=st.lists(points, min_size=1, max_size=4))
def test_frontier_supports_every_price_and_nothing_else(groups):
    use, cost = np.array([p for g in groups for p in g], dtype=float).T
    group = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    hull = convex_frontiers(use, cost, group, np.ones(len(use), dtype=bool))
    for k, members in enumerate(groups):
        kept = [(use[i], cost[i]) for i in hull if group[i] == k]
        assert kept == sorted(set(kept))
        assert kept[0] == min(members)
        assert kept[-1][1] == min(c for _, c in members)
        slopes = [(c0 - c1) / (u1 - u0) for (u0, c0), (u1, c1) in itertools.pairwise(kept)]
        assert all(a > b > 0 for a, b in zip(slopes, [*slopes[1:], 1e-12], strict=False))
        for weight in (1e-6, 0.1, 0.5, 1.0, 2.0, 7.5, 1e6):
            assert supported(kept, weight) == pytest.approx(supported(members, weight))


def test_large_rounds_are_nearly_optimal():
    program = knapsack(1000, 100, pools=2, seed=7)
    solution = greedy.solve(program, Limits())
    assert program.violation(solution.x) <= 1e-9
    assert solution.objective - solution.bound <= 5e-3 * solution.objective


def test_what_is_known_at_each_step_is_announced():
    program = knapsack(300, 30, pools=2, seed=3)
    heard = []
    with listening(heard.append):
        answer = greedy.solve(program, Limits())
    objectives = [one.objective for one in heard]
    assert len(heard) == 3
    assert all(program.violation(one.x) <= 1e-9 for one in heard)
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[0] > objectives[-1] == answer.objective
    assert {one.bound for one in heard} == {answer.bound}


def published_rule(time_s, energy_j, gpus, budget_j):
    """Algorithm 1 as ported, GPU counts only: times and energies per job for 1, 2, ... GPUs."""
    alloc = [0] * len(time_s)  # index of the option, GPUs less one
    while sum(a + 1 for a in alloc) < gpus:
        ratios = []
        for t, e, a in zip(time_s, energy_j, alloc, strict=True):
            if a + 1 == len(t):
                ratios.append(-np.inf)
                continue
            saved, spent = (t[a] - t[a + 1]) / t[a], (e[a + 1] - e[a]) / e[a]
            ratios.append(-np.inf if saved <= 0 else np.inf if spent <= 0 else saved / spent)
        best = int(np.argmax(ratios))
        if ratios[best] <= 0:
            break
        alloc[best] += 1
        if sum(e[a] for e, a in zip(energy_j, alloc, strict=True)) > budget_j:
            alloc[best] -= 1
            break
    return alloc


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10_000), tightness=st.floats(1.0, 2.0))
def test_powerflow_is_the_published_rule_on_gpu_counts(seed, tightness):
    rng = np.random.default_rng(seed)
    jobs, counts = 5, 4
    time_s = -np.sort(-rng.uniform(10, 100, (jobs, counts)), axis=1)
    energy_j = rng.uniform(1, 2, (jobs, counts)) * np.arange(2, counts + 2)
    gpus = int(rng.integers(jobs, 3 * jobs))
    budget_j = tightness * energy_j[:, 0].sum()
    count, start = np.tile(np.arange(1.0, counts + 1), jobs), np.arange(0, jobs * counts + 1, counts)
    attributes = {"gpus": count, "completion_s": time_s.ravel(), "energy_j": energy_j.ravel()}
    uses = [count, energy_j.ravel()]
    program = program_of(time_s.ravel(), uses, [gpus, budget_j], start, attributes=attributes)
    x = powerflow.solve(program, Limits()).x
    assert program.violation(x) <= 1e-9
    assert list(np.flatnonzero(x) % counts) == published_rule(time_s, energy_j, gpus, budget_j)


def test_powerflow_needs_its_attributes():
    program = knapsack(3, 3)
    bare = type(program)(**{**vars(program), "attributes": {}})
    solution = powerflow.solve(bare, Limits())
    assert solution.termination.reason == "error"
    assert "gpus" in solution.termination.detail
