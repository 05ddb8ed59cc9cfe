"""Cuts for clusters of all sizes: below every replay on each of them, under each cap."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import BUSY_W, IDLE_W, cluster_of, job_of
from wattsched.replay.jobs.bound.capacity import CapacityBound
from wattsched.replay.jobs.bound.clairvoyant import parts_of
from wattsched.replay.jobs.bound.relaxation import Workload
from wattsched.replay.jobs.caps import CapError, Caps
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of
from wattsched.replaying.capacity_costs import Run

SIZES = (1, 2, 3)
"""Nodes of four GPUs."""


def load(seed: int, nodes: int) -> Trace:
    """Up to eight jobs, the same on all clusters; the first and the last arrive when those of others do."""
    draw = np.random.default_rng(seed)
    jobs, requests = [], []
    arrival_s = [0.0, 900.0, *draw.uniform(0.0, 900.0, int(draw.integers(0, 7))).tolist()]
    for j in range(len(arrival_s)):
        exponent, speed = draw.uniform(0.3, 1.0), draw.uniform(0.5, 2.0)
        rates = {gpus: speed * gpus**exponent for gpus in (1, 2, 4)}
        jobs.append(job_of(f"j{j}", float(draw.uniform(50.0, 3e3)), rates, BUSY_W * draw.choice([0.3, 1.0])))
        requests.append(int(draw.choice([1, 2, 4])))
    return trace_of(cluster_of(*[4] * nodes), jobs, arrival_s, requests)


def reached(trace: Trace, policy: str, power_w: float) -> Run:
    """Completion times and energy beyond idle of a policy under a cap."""
    caps = Caps.of(trace, power_w if np.isfinite(power_w) else None)
    context = PolicyContext(trace, caps=caps, least_price=1e-3 if policy == "sizing" else 0.0)
    outcome = simulate(trace, policy_of(policy, context), name=policy, caps=caps)
    return Run.of(outcome, len(trace.cluster.nodes) * (50.0 + 4 * IDLE_W))


@settings(deadline=None, max_examples=examples(40))
@given(
    seeds=st.lists(st.integers(0, 10**6), min_size=2, max_size=2),
    at=st.lists(st.integers(0, 5), min_size=1, max_size=2),
    joule_s=st.sampled_from([0.0, 1e-3, 0.05]),
)
def test_no_replay_on_any_cluster_is_below_any_cut(seeds: list[int], at: list[int], joule_s: float) -> None:
    workloads = [Workload.of(**parts_of(load(seed, SIZES[-1]), energy=True)) for seed in seeds]
    bound = CapacityBound(workloads, joule_s, capped=True)
    candidates = [(n, spare_w) for n in SIZES for spare_w in (250.0, n * 4 * (BUSY_W - IDLE_W))]
    sizes = np.array([[4.0 * n, watts] for n, watts in candidates])
    for k in at:
        bound.add(sizes[k])
    floor = bound.at(sizes)
    for k, (n, watts) in enumerate(candidates):
        for s, seed in enumerate(seeds):
            trace = load(seed, n)
            for policy in ("fifo", "srtf", "sizing"):
                try:
                    run = reached(trace, policy, n * (50.0 + 4 * IDLE_W) + watts)
                except CapError:
                    continue
                assert run.completion_s + joule_s * run.joules >= floor[k, s] * (1 - 1e-9)
