"""What a replay comes to: completion times, queueing, energy, restarts, fairness, decision times."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from wattsched.instances.units import S_PER_H
from wattsched.replay.jobs.outcome import Outcome
from wattsched.topology.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Summary:
    """Figures of one replay.

    Attributes
    ----------
    jct_mean_s, jct_median_s, jct_p95_s, jct_p99_s : float
        Completion time: from arrival to completion.
    queueing_mean_s : float
        Time without GPUs, pauses included.
    makespan_s : float
        From the first arrival to the last completion.
    energy_j, carbon_g : float
        Of the whole cluster over the makespan; `jobs_energy_j` is the part of the GPUs that jobs held.
    gpu_utilisation, gpu_h : float
        Share of the GPU time that jobs held, and hours of it.
    fragmentation : float
        Share of the free GPU time that a job of the trace could not have used (`Fragmentation`).
    restarts, migrations, preemptions, rounds : int
    decision_median_s, decision_p99_s : float
        Wall-clock seconds of a decision.
    gap_mean, gap_max : float, optional
        Certified gaps of the rounds; None for a rule without bounds.
    rho_mean, rho_max, unfair_fraction : float
        Finish-time fairness (`finish_time_fairness`), and the share of the jobs above 1.
    budget_used_max, budget_used_min : float, optional
        Largest part of the budget that a period used, and smallest of those periods in which it was short at
        every moment; None without a budget, and where there is no such period.
    """

    policy: str
    jobs: int
    jct_mean_s: float
    jct_median_s: float
    jct_p95_s: float
    jct_p99_s: float
    queueing_mean_s: float
    makespan_s: float
    energy_j: float
    jobs_energy_j: float
    carbon_g: float
    gpu_utilisation: float
    gpu_h: float
    fragmentation: float
    restarts: int
    migrations: int
    preemptions: int
    rounds: int
    decision_median_s: float
    decision_p99_s: float
    gap_mean: float | None
    gap_max: float | None
    rho_mean: float
    rho_max: float
    unfair_fraction: float
    budget_used_max: float | None
    budget_used_min: float | None

    def as_dict(self) -> dict[str, object]:
        """Plain values by name."""
        return asdict(self)


def summary(outcome: Outcome) -> Summary:
    """Sum a replay up."""
    trace, jobs, rounds, meter = outcome.trace, outcome.jobs, outcome.rounds, outcome.meter
    jct_s = jobs.end_s - trace.arrival_s
    gaps = np.array([gap for gap in rounds.gap if not np.isnan(gap)])
    rho = finish_time_fairness(outcome)
    makespan_s = outcome.end_s - outcome.begin_s
    gpus = sum(int(pool.available.sum()) for pool in trace.pools)
    used, short = budget_used(outcome)
    return Summary(
        policy=outcome.policy,
        jobs=len(trace),
        jct_mean_s=float(jct_s.mean()),
        jct_median_s=float(np.median(jct_s)),
        jct_p95_s=float(np.percentile(jct_s, 95)),
        jct_p99_s=float(np.percentile(jct_s, 99)),
        queueing_mean_s=float((jct_s - jobs.held_s).mean()),
        makespan_s=makespan_s,
        energy_j=meter.energy_j,
        jobs_energy_j=meter.jobs_j,
        carbon_g=meter.carbon_g,
        gpu_utilisation=meter.busy_gpu_s / (gpus * makespan_s) if makespan_s > 0 else 0.0,
        gpu_h=meter.busy_gpu_s / S_PER_H,
        fragmentation=outcome.fragmentation.mean,
        restarts=int(jobs.restarts.sum()),
        migrations=int(jobs.migrations.sum()),
        preemptions=int(jobs.preemptions.sum()),
        rounds=len(rounds.time_s),
        decision_median_s=float(np.median(rounds.decision_s)),
        decision_p99_s=float(np.percentile(rounds.decision_s, 99)),
        gap_mean=float(gaps.mean()) if len(gaps) else None,
        gap_max=float(gaps.max()) if len(gaps) else None,
        rho_mean=float(rho.mean()),
        rho_max=float(rho.max()),
        unfair_fraction=float((rho > 1.0 + 1e-9).mean()),
        budget_used_max=float(used.max()) if len(used) else None,
        budget_used_min=float(used[short].min()) if short.any() else None,
    )


def budget_used(outcome: Outcome) -> tuple[FloatArray, BoolArray]:
    """Part of the budget that each period used, and whether it is over and the budget was always short."""
    if outcome.budget is None or outcome.periods is None:
        return np.zeros(0), np.zeros(0, dtype=bool)
    periods = outcome.periods
    over = np.array(periods.begin_s) + outcome.budget.period_s <= outcome.end_s
    return np.array(periods.spent) / outcome.budget.amount, over & np.array(periods.short)


def finish_time_fairness(outcome: Outcome) -> FloatArray:
    """Completion time of each job over the one that it would have with a fair share, shape (n_jobs,).

    The fair completion time is its run time on the GPUs asked for times the contention: GPUs asked for by all
    jobs in the system over GPUs of the cluster, at least 1, averaged over the job's stay (Shockwave, NSDI
    2023; Themis, NSDI 2020).
    """
    trace, end_s = outcome.trace, outcome.jobs.end_s
    gpus = sum(int(pool.available.sum()) for pool in trace.pools)
    times = np.unique(np.concatenate([trace.arrival_s, end_s]))
    change = np.zeros(len(times))
    np.add.at(change, np.searchsorted(times, trace.arrival_s), trace.requested_gpus)
    np.add.at(change, np.searchsorted(times, end_s), -trace.requested_gpus)
    contention = np.maximum(np.cumsum(change) / gpus, 1.0)
    integral = np.concatenate([[0.0], np.cumsum(contention[:-1] * np.diff(times))])
    stay_s = end_s - trace.arrival_s
    total = integral[np.searchsorted(times, end_s)] - integral[np.searchsorted(times, trace.arrival_s)]
    alone_s = trace.work / trace.requested_rate
    # The fair time is alone_s * total / stay_s. Jobs that end as they arrive have their share.
    apart = alone_s * total > 0
    return np.asarray(np.divide(stay_s**2, alone_s * total, out=np.ones_like(total), where=apart))
