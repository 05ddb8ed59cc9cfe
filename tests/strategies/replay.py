"""Small traces of jobs for replays, by hand and at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from benchmarks.replays import poisson_jobs as poisson_jobs
from wattsched.instances.clairvoyant import ClairvoyantBound
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.replay.jobs.accounts import Sleep
from wattsched.replay.jobs.bound.clairvoyant import bound_of, parts_of
from wattsched.replay.jobs.budget import Budget
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import names, policy_of
from wattsched.replay.jobs.policies.rounds import RoundOptions
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, Restarts, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of
from wattsched.topology.cluster import Cluster, GpuType, Node

IDLE_W, BUSY_W, BASE_W = 10.0, 100.0, 50.0
LONG = ("clairvoyant", "elastic-completion", "elastic-makespan", "sia")
"""Policies whose replays take longest."""


def every_policy(*without: str) -> list[Any]:
    """Return all policies but these as parameters of a test; those that take longest are slow."""
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in LONG if name not in without]
    return [*(name for name in names() if name not in (*LONG, *without)), *slow]


def cluster_of(*gpus: int, unavailable: Sequence[int] = ()) -> Cluster:
    """Nodes with so many GPUs each; `unavailable` GPUs are on the first."""
    nodes = [Node(name=f"n{i}", gpu_type="G", gpus=n, base_power_w=BASE_W) for i, n in enumerate(gpus)]
    nodes[0] = nodes[0].model_copy(update={"unavailable": list(unavailable)})
    return Cluster(gpu_types={"G": GpuType(idle_power_w=IDLE_W)}, nodes=nodes)


def job_of(name: str, work: float, rates: dict[int, float], busy_w: float = BUSY_W) -> Job:
    """Job with a rate for each GPU count, every GPU drawing `busy_w`."""
    table = OptionTable(
        gpus=list(rates),
        pool=["G"] * len(rates),
        rate=list(rates.values()),
        power_w=[busy_w * gpus for gpus in rates],
    )
    return Job(name=name, remaining_work=work, options=table)


def linear(most: int) -> dict[int, float]:
    """Rates that are as high as the number of GPUs, powers of two up to `most`."""
    return {1 << k: float(1 << k) for k in range(most.bit_length())}


def trace_by_hand(cluster: Cluster, *jobs: tuple[float, float, int, dict[int, float]]) -> Trace:
    """Trace of jobs ``a``, ``b``, ...: arrival, work, GPUs asked for and rates of each."""
    names = [chr(ord("a") + i) if i < 26 else f"job{i}" for i in range(len(jobs))]
    rows = [job_of(name, work, rates) for name, (_, work, _, rates) in zip(names, jobs, strict=True)]
    return trace_of(cluster, rows, [job[0] for job in jobs], [job[2] for job in jobs])


def clairvoyant(
    trace: Trace,
    budget: Budget | None = None,
    sleep: Sleep | None = None,
    completion_s: Sequence[float] = (),
) -> ClairvoyantBound:
    """Bound of a trace."""
    return bound_of(parts_of(trace, budget, sleep, energy=len(completion_s) > 0), completion_s)


def replayed(trace: Trace, name: str, round_s: float = 0.0, **more: Any) -> Outcome:
    """Outcome of a policy whose restarts take 5 s in a pod, and 20 s of a pod."""
    policy = policy_of(name, PolicyContext(trace, Restarts(5.0, 20.0), round_s))
    return simulate(trace, policy, name=name, round_s=round_s, **more)


class Scripted:
    """A function of states as a policy."""

    def __init__(self, decide: Callable[[State], Decision], restart_s: float = 0.0) -> None:
        self.decide, self.restart_s = decide, restart_s


class Watched:
    """A policy whose states and decisions are kept."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.restart_s = policy.restart_s
        self.seen: list[tuple[State, Decision]] = []

    def decide(self, state: State) -> Decision:
        decision = self._policy.decide(state)
        self.seen.append((state, decision))
        return decision


def watched(trace: Trace, name: str) -> tuple[Outcome, list[tuple[State, Decision]]]:
    """Outcome as `replayed`, with all states and decisions."""
    policy = Watched(policy_of(name, PolicyContext(trace, Restarts(5.0, 20.0))))
    return simulate(trace, policy, name=name), policy.seen


def options_of(trace: Trace, time_s: float, remaining: np.ndarray) -> RoundOptions:
    """All that jobs may do of which none runs."""
    n = len(trace)
    state = State(
        time_s=time_s, trace=trace, jobs=np.arange(n), remaining=remaining, row=np.full(n, -1),
        ran=np.zeros(n, dtype=bool), restarting_s=np.zeros(n), served_gpu_s=np.zeros(n), restart_s=5.0,
        pools=(),
    )  # fmt: skip
    return RoundOptions.of(state, np.arange(len(trace.configurations)), 60.0)


@st.composite
def traces(
    draw: st.DrawFn,
    nodes: Sequence[tuple[int, ...]] = ((2,), (4,), (4, 4), (8, 8), (3, 3)),
    cluster: Callable[..., Cluster] = cluster_of,
) -> Trace:
    """Trace of up to seven jobs with concave rates on one of these clusters."""
    sizes = draw(st.sampled_from(nodes))
    broken = draw(st.sampled_from([(), (0,)]))
    jobs, arrivals, requests = [], [], []
    for i in range(draw(st.integers(1, 7))):
        largest = draw(st.sampled_from([1, 2, 4] if sizes[0] >= 4 else [1, 2]))
        exponent = draw(st.floats(0.2, 1.0))
        speed = draw(st.floats(0.5, 2.0))
        rates = {gpus: speed * gpus**exponent for gpus in range(1, largest + 1)}
        busy_w = draw(st.sampled_from([BUSY_W, 0.5 * BUSY_W, 0.2 * BUSY_W]))
        jobs.append(job_of(f"job{i}", draw(st.floats(1.0, 2000.0)), rates, busy_w))
        arrivals.append(draw(st.one_of(st.just(0.0), st.floats(0.0, 1000.0))))
        requests.append(draw(st.integers(1, max(rates))))
    return trace_of(cluster(*sizes, unavailable=broken), jobs, arrivals, requests)
