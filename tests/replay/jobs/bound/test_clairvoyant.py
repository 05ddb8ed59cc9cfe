"""Bounds on every schedule: below the optima of tiny traces, which linear programs find, and all replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.strategies.effort import examples
from tests.strategies.replay import (
    BASE_W,
    BUSY_W,
    IDLE_W,
    clairvoyant,
    cluster_of,
    job_of,
    linear,
    trace_by_hand,
    traces,
)
from wattsched.instances.clairvoyant import PeriodBudget, RunOptions, TraceJobs
from wattsched.replay.jobs.accounts import Carbon, Nodes, Sleep
from wattsched.replay.jobs.bound.clairvoyant import Parts, bound_of
from wattsched.replay.jobs.budget import Budget
from wattsched.replay.jobs.policies import SHARERS, names, policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of
from wattsched.verification.clairvoyant import faults_of

PERIODS = 4
"""Periods of a budget after which the brute force lets no job run."""
LAST_DIGITS = 1e-7


@dataclass(frozen=True)
class Step:
    """Time between two events, in which these jobs are there; it ends with an event."""

    here: tuple[int, ...]
    ends: float | int
    """A time that is known, or the number of the job that completes."""


def orders(jobs: TraceJobs, times: Sequence[float]) -> Iterator[list[Step]]:
    """All orders of known times and completions, each job's after its arrival."""

    def go(known: list[float], left: frozenset[int], now: float, steps: list[Step]) -> Iterator[list[Step]]:
        here = tuple(sorted(job for job in left if jobs.arrival_s[job] <= now))
        if not left:
            yield steps
            return
        if known:
            yield from go(known[1:], left, known[0], [*steps, Step(here, known[0])])
        for job in here:
            yield from go(known, left - {job}, now, [*steps, Step(here, job)])

    begin = min(jobs.arrival_s)
    yield from go(sorted({t for t in times if t > begin}), frozenset(range(len(jobs.name))), begin, [])


def together(parts: Parts, here: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Rows in which jobs can run at once, -1 for one that waits."""
    tables = [parts["options"][parts["jobs"].options[job]] for job in here]
    fits = []
    for rows in product(*([-1, *range(len(table.rate))] for table in tables)):
        used = dict.fromkeys(parts["pools"], 0)
        for table, row in zip(tables, rows, strict=True):
            if row >= 0:
                used[table.pool[row]] += table.gpus[row]
        if all(used[pool] <= gpus for pool, gpus in parts["pools"].items()):
            fits.append(rows)
    return fits


def least(parts: Parts, order: list[Step], joule: float) -> float:
    """Least sum of completion times, and energy at its price, over the schedules with an order of events.

    A variable for each step and each way to run jobs at once: how long that goes on in the step. Jobs may
    change at any time, so what happens in a step in which order does not matter.
    """
    jobs, budget = parts["jobs"], parts["budget"]
    begin = min(jobs.arrival_s)
    columns = [(s, step.here, rows) for s, step in enumerate(order) for rows in together(parts, step.here)]
    known = [s for s, step in enumerate(order) if isinstance(step.ends, float)]
    completes = {step.ends: s for s, step in enumerate(order) if isinstance(step.ends, int)}
    cost, until = np.zeros(len(columns)), np.zeros((len(known), len(columns)))
    work = np.zeros((len(jobs.name), len(columns)))
    spent = np.zeros((PERIODS if budget else 0, len(columns)))
    for c, (s, here, rows) in enumerate(columns):
        cost[c] = sum(s <= at for at in completes.values())
        until[:, c] = [s <= at for at in known]
        began = max((order[at].ends for at in known if at < s), default=begin)
        for job, row in zip(here, rows, strict=True):
            if row >= 0:
                table = parts["options"][jobs.options[job]]
                work[job, c] = table.rate[row]
                cost[c] += joule * table.power_w[row]
                if budget:
                    period = int((began - budget.begin_s) // budget.period_s)
                    if period >= PERIODS:
                        cost[c] = 1e9
                    else:
                        spent[period, c] += table.power_w[row]
    spare = np.zeros(0)
    if budget:
        spare = np.full(PERIODS, budget.amount - parts["standing_w"] * budget.period_s)
    times = [order[at].ends - begin for at in known]
    found = linprog(
        cost,
        A_ub=spent if budget else None,
        b_ub=spare if budget else None,
        A_eq=np.vstack([until, work]),
        b_eq=[*times, *jobs.work],
        method="highs",
    )
    return found.fun + len(jobs.name) * begin - sum(jobs.arrival_s) if found.status == 0 else np.inf


def optimum(parts: Parts, joule: float = 0.0) -> float:
    """Least sum of completion times, and energy at its price, over all schedules."""
    budget, times = parts["budget"], list(parts["jobs"].arrival_s)
    if budget:
        times += [budget.begin_s + n * budget.period_s for n in range(1, PERIODS + 1)]
    return min(least(parts, order, joule) for order in orders(parts["jobs"], times))


def tiny(seed: int, *, budget: bool = False) -> Parts:
    """Two or three jobs on two to five GPUs of one or two pools."""
    rng = np.random.default_rng(seed)
    pools = {"A": int(rng.integers(1, 5))} | ({"B": int(rng.integers(1, 3))} if rng.random() < 0.3 else {})
    options = {}
    for kind in range(2):
        counts = [g for g in (1, 2, 4) if g <= pools["A"]]
        rows = [("A", g, s) for g in counts for s in ([1.0, 0.6] if rng.random() < 0.5 else [1.0])]
        rows += [("B", g, 1.0) for g in (1, 2) if g <= pools.get("B", 0)]
        speed = [f * rng.uniform(0.5, 2.0) * g ** rng.uniform(0.3, 1.0) for _, g, f in rows]
        watts = [g * 100.0 * f**2 for _, g, f in rows]
        options[f"kind {kind}"] = RunOptions(
            pool=[p for p, _, _ in rows], gpus=[g for _, g, _ in rows], rate=speed, power_w=watts
        )
    n = 2 if budget else int(rng.integers(1, 4))
    jobs = TraceJobs(
        name=[f"j{j}" for j in range(n)],
        arrival_s=np.sort(np.where(rng.random(n) < 0.5, 0.0, rng.uniform(0.0, 900.0, n))).tolist(),
        work=rng.uniform(50.0, 2_000.0, n).tolist(),
        options=[f"kind {rng.integers(2)}" for _ in range(n)],
    )
    limit = None
    if budget:
        limit = PeriodBudget(
            quantity="energy_j",
            amount=float(rng.uniform(1e5, 4e5)),
            begin_s=min(jobs.arrival_s),
            period_s=float(rng.uniform(600.0, 3_000.0)),
            time_s=[0.0],
            per_kwh=[3.6e6],
        )
    standing_w = float(rng.uniform(0.0, 20.0))
    return {"pools": pools, "options": options, "jobs": jobs, "standing_w": standing_w, "budget": limit}


def alone_s(parts: Parts) -> float:
    """What all jobs take together if each has the cluster for itself."""
    jobs = parts["jobs"]
    return sum(w / max(parts["options"][o].rate) for w, o in zip(jobs.work, jobs.options, strict=True))


@pytest.mark.slow
def test_no_schedule_of_a_tiny_trace_is_below() -> None:
    """Nor is the bound below what jobs take that have the cluster for themselves."""
    above = []
    for seed in range(50):
        parts = tiny(seed)
        best = optimum(parts)
        mean_s = 1.2 * best / len(parts["jobs"].name)
        bound = bound_of(parts, [mean_s])
        found = bound.proofs[0].bound_s
        assert found <= best * (1 + LAST_DIGITS), seed
        assert found >= alone_s(parts) * (1 - 1e-3), seed
        assert faults_of(bound) == []
        above.append(best / found)
        for proof in bound.proofs[1::3]:
            assert proof.bound_s <= optimum(parts, proof.joule_price) * (1 + LAST_DIGITS), seed
    assert np.exp(np.mean(np.log(above))) < 1.15


@pytest.mark.slow
def test_no_schedule_of_a_tiny_trace_within_a_budget_is_below() -> None:
    """The brute force knows two periods only, after which nothing runs: it may lie above the true optimum."""
    higher = 0
    for seed in range(50):
        parts = tiny(seed, budget=True)
        best, bound = optimum(parts), bound_of(parts)
        assert bound.proofs[0].bound_s <= best * (1 + LAST_DIGITS), seed
        assert faults_of(bound) == []
        higher += bound.proofs[0].bound_s > bound_of(parts | {"budget": None}).proofs[0].bound_s * 1.01
    assert higher >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name not in SHARERS])
@given(trace=traces(), watts=st.sampled_from([None, 120.0, 400.0]), sleeps=st.booleans())
@settings(max_examples=examples(5))
def test_no_replay_is_below(name: str, trace: Trace, watts: float | None, sleeps: bool) -> None:
    """Neither its mean completion, nor its energy at that."""
    nap = Sleep(60.0, 5.0, 1.0) if sleeps else None
    idle_w = Nodes(trace.cluster, trace.pools, nap, 0.0).idle_cluster_w
    budget = None if watts is None else Budget.of_energy((idle_w + watts) * 600.0, 600.0)
    policy = policy_of(name, PolicyContext(trace, budget=budget))
    run = simulate(trace, policy, name=name, budget=budget, sleep=nap)
    mean_s = float((run.jobs.end_s - trace.arrival_s).mean())
    bound = clairvoyant(trace, budget, nap, [mean_s])
    assert bound.mean_completion_s <= mean_s * (1 + LAST_DIGITS)
    assert bound.energy_j(mean_s) <= run.meter.energy_j * (1 + LAST_DIGITS)
    assert faults_of(bound) == []


@pytest.mark.parametrize("work", [1e-6, 1.0, 90.0])
def test_times_of_a_clock_count_from_the_first_arrival(work: float) -> None:
    jobs = [(0.0, work, 1, linear(2)), (60.0, 2.0 * work, 2, linear(2))]
    now_s = 1.7e9
    trace = trace_by_hand(cluster_of(2), *jobs)
    later = trace_by_hand(cluster_of(2), *((at_s + now_s, *job) for at_s, *job in jobs))
    bounds = [clairvoyant(one, completion_s=[2.0 * work]) for one in (trace, later)]
    here, there = (bound.mean_completion_s for bound in bounds)
    assert there == pytest.approx(here, rel=1e-4, abs=1e-6)
    assert [faults_of(bound) for bound in bounds] == [[], []]


@pytest.mark.slow
def test_many_short_periods_are_taken_together() -> None:
    trace = trace_by_hand(cluster_of(2), *((300.0 * n, 100.0, 1, {1: 1.0}) for n in range(20)))
    idle_w = Nodes(trace.cluster, trace.pools, None, 0.0).idle_cluster_w
    bound = clairvoyant(trace, Budget.of_energy((idle_w + 40.0) * 5.0, 5.0))
    assert bound.budget is not None
    assert bound.budget.period_s == pytest.approx(25.0)
    assert bound.budget.amount == pytest.approx((idle_w + 40.0) * 25.0)
    assert bound.mean_completion_s > 150.0


def test_carbon_is_counted_when_it_is_emitted() -> None:
    """A job that the budget of each hour pays for in its clean second half waits for it."""
    trace = trace_by_hand(cluster_of(2), (0.0, 1_200.0, 1, {1: 1.0}))
    dirty = Carbon(np.array([0.0, 1_800.0]), np.array([1_000.0, 1.0]))
    idle_g = Nodes(trace.cluster, trace.pools, None, 0.0).idle_cluster_w * float(dirty.per_watt(0.0, 3_600.0))
    budget = Budget("carbon_g", idle_g + 0.1, 3_600.0, dirty)
    assert clairvoyant(trace).mean_completion_s == pytest.approx(1_200.0)
    assert clairvoyant(trace, budget).mean_completion_s > 2_500.0


def test_periods_after_the_jobs_that_the_idle_cluster_overspends_do_not_matter() -> None:
    trace = trace_by_hand(cluster_of(2), (0.0, 900.0, 1, {1: 1.0}), (60.0, 300.0, 1, {1: 1.0}))
    grid = Carbon(np.array([0.0, 3_600.0]), np.array([100.0, 9_000.0]))
    idle_g = Nodes(trace.cluster, trace.pools, None, 0.0).idle_cluster_w * float(grid.per_watt(0.0, 1_800.0))
    bound = clairvoyant(trace, Budget("carbon_g", 10.0 * idle_g, 1_800.0, grid))
    assert bound.mean_completion_s == pytest.approx(clairvoyant(trace).mean_completion_s)
    assert faults_of(bound) == []


def test_slower_with_fewer_watts() -> None:
    """A single job alone on the cluster: both bounds are what it takes."""
    trace = trace_by_hand(cluster_of(2), (100.0, 1_000.0, 2, linear(2)))
    bound = clairvoyant(trace, completion_s=[500.0, 1_000.0])
    assert bound.mean_completion_s == pytest.approx(500.0)
    standing_j = 500.0 * (2 * IDLE_W + BASE_W)
    assert bound.energy_j(500.0) == pytest.approx(standing_j + 1_000.0 * (BUSY_W - IDLE_W))


def test_watts_below_those_of_idle_gpus_are_refused() -> None:
    row = job_of("a", 10.0, {1: 1.0}, busy_w=0.5 * IDLE_W)
    trace = trace_of(cluster_of(2), [row], [0.0], [1])
    assert clairvoyant(trace).mean_completion_s == pytest.approx(10.0)
    with pytest.raises(ValueError, match="job 'a': power_w is below that of its GPUs when idle"):
        clairvoyant(trace, completion_s=[20.0])
