"""Clairvoyant bounds: what no schedule of a trace can beat, even one that knows all jobs to come."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from wattsched.instances.clairvoyant import (
    ClairvoyantBound,
    PeriodBudget,
    RunOptions,
    SlotPrices,
    TraceJobs,
)
from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.accounts import Nodes, Sleep
from wattsched.replay.jobs.bound.ascent import Bounded, Progress, bounded
from wattsched.replay.jobs.bound.relaxation import Relaxation, Workload
from wattsched.replay.jobs.budget import Budget
from wattsched.replay.jobs.trace import Trace
from wattsched.verification.clairvoyant import Prover

FINEST = 512
"""Largest number of values of a unit of work in the file, for each kind of jobs."""
FIRST_PRICE = 0.1
"""First price of a joule, relative to that at which the fastest schedules' energy costs as much as time."""
FACTOR, NEAR, TRIES = 4.0, 1.5, 8
"""Factor between prices of a joule, factor at which the search ends, and most prices that are tried."""

MOST_PERIODS = 256
"""Largest number of periods of a budget while jobs arrive; more are merged into longer ones."""

Parts = dict[str, Any]
"""``pools``, ``options``, ``jobs``, ``standing_w`` and ``budget`` of a `ClairvoyantBound`."""


def bound_of(
    parts: Parts,
    completion_s: Sequence[float] = (),
    *,
    until: float = np.inf,
    progress: Progress = lambda value, slots: None,
) -> ClairvoyantBound:
    """Bound the mean completion time of every schedule of a trace, and the energy at given ones.

    The schedules may preempt, move and resize jobs at any time and at no cost, and know all jobs to come. No
    two jobs share GPUs, each runs in configurations whose rates count the same progress (`Trace.comparable`).

    Parameters
    ----------
    parts : dict
        Instance of the bound, from `parts_of`.
    completion_s : sequence of float
        Mean completion times at which the energy of the jobs is bounded.
    until : float
        Time, of `time.monotonic`, at which it returns the best bound so far.
    """
    workload = Workload.of(**parts)
    bounds = [bounded(workload, until=until, progress=progress)]
    for mean_s in completion_s:
        bounds += _bounds_at_prices(workload, mean_s * len(workload.work), bounds, until, progress)
    edges = bounds[0].relaxation.edge_s.tolist()
    stated = [_proof(workload, one) for one in bounds]
    claimed = ClairvoyantBound(**parts, slot_edges_s=edges, proofs=stated)
    bounds_s = map(Prover(claimed), stated)
    proven = [one.model_copy(update={"bound_s": s}) for one, s in zip(stated, bounds_s, strict=True)]
    return claimed.model_copy(update={"proofs": proven})


def _bounds_at_prices(
    workload: Workload, total_s: float, bounds: Sequence[Bounded], until: float, progress: Progress
) -> list[Bounded]:
    """Bound at prices of a joule near the one at which all jobs' completion times sum to `total_s`.

    At a higher price schedules take less energy, and longer; at that price the bound on energy is largest.
    """
    first = bounds[0]
    by_price, new = {one.prices.joule: one for one in bounds if one.prices.joule > 0}, list[Bounded]()
    while len(new) < TRIES and time.monotonic() < until:
        low = max((q for q, one in by_price.items() if one.found.completion_s < total_s), default=None)
        high = min((q for q, one in by_price.items() if one.found.completion_s >= total_s), default=None)
        if low is not None and high is not None:
            if high <= NEAR * low:
                break
            price = math.sqrt(low * high)
        elif low is not None:
            price = low * FACTOR
        elif high is not None:
            price = high / FACTOR
        else:
            free = Relaxation(workload.efficient(watts=True), first.relaxation.edge_s).evaluate(first.prices)
            price = FIRST_PRICE * free.value / max(float(free.used.joules.sum()), 1e-30)
        start = min(by_price.values(), key=lambda one: abs(math.log(one.prices.joule / price)), default=first)
        new.append(bounded(workload, price, start, until=until, progress=progress))
        by_price[price] = new[-1]
    return new


def parts_of(
    trace: Trace, budget: Budget | None = None, sleep: Sleep | None = None, *, energy: bool = False
) -> Parts:
    """Build the instance of a bound: the fields of `ClairvoyantBound` besides its proofs.

    Raises
    ------
    ValueError
        Where energy counts (`energy`, or a budget), for a row that draws less than its idle GPUs, and for a
        budget at negative prices.
    """
    if budget is not None and budget.per_kwh.values.min() < 0:
        raise ValueError("budget: the price is negative at times, for which there is no bound on schedules")
    rows, pools = trace.configurations, [pool.name for pool in trace.pools]
    below = np.flatnonzero(trace.comparable & (trace.busy_w < 0))
    if (energy or budget is not None) and len(below):
        job = trace.names[int(np.flatnonzero(rows.of_job == rows.kind[below[0]])[0])]
        reason = "power_w is below that of its GPUs when idle: there is no bound on its energy"
        raise ValueError(f"job '{job}': {reason}")
    kinds = [np.flatnonzero(trace.comparable & (rows.kind == kind)) for kind in range(len(rows.start) - 1)]
    options = {
        f"kind {number}": RunOptions(
            pool=[pools[p] for p in rows.pool[own].tolist()],
            gpus=rows.block[own].tolist(),
            rate=rows.rate[own].tolist(),
            power_w=np.maximum(trace.busy_w[own], 0.0).tolist(),
        )
        for number, own in enumerate(kinds)
    }
    jobs = TraceJobs(
        name=list(trace.names),
        arrival_s=trace.arrival_s.tolist(),
        work=trace.work.tolist(),
        options=[f"kind {kind}" for kind in rows.of_job.tolist()],
    )
    gpus = {name: n for name, n in zip(pools, trace.available.tolist(), strict=True) if n > 0}
    standing_w, n_merged = _standing_w(trace, sleep), 1
    largest_per_j = 0.0 if budget is None else float(budget.per_kwh.values.max()) / J_PER_KWH
    if budget is not None and budget.amount >= standing_w * budget.period_s * largest_per_j:
        # Many periods are merged into longer ones, which relaxes the budget. Not where the idle cluster alone
        # may exceed one: a merged period would charge that excess to its other periods.
        n_merged = max(1, math.ceil(float(np.ptp(trace.arrival_s)) / budget.period_s / MOST_PERIODS))
    periods = budget and PeriodBudget(
        quantity=budget.quantity,
        amount=n_merged * budget.amount,
        begin_s=float(trace.arrival_s[0]),
        period_s=n_merged * budget.period_s,
        time_s=budget.per_kwh.time_s.tolist(),
        per_kwh=budget.per_kwh.values.tolist(),
    )
    return {"pools": gpus, "options": options, "jobs": jobs, "standing_w": standing_w, "budget": periods}


def _standing_w(trace: Trace, sleep: Sleep | None) -> float:
    """Return the least draw of the cluster without jobs: all nodes idle, or asleep where they may be."""
    nodes = Nodes(trace.cluster, trace.pools, sleep, 0.0)
    if sleep is None:
        return nodes.idle_cluster_w
    nodes.asleep[:] = True
    return sum(nodes.draw())


def _proof(workload: Workload, one: Bounded) -> SlotPrices:
    """Return the prices of a bound as the document states them, and the relaxation's value there."""
    worths = one.relaxation.worths(one.prices, FINEST)
    return SlotPrices(
        joule_price=one.prices.joule,
        gpus=dict(zip(workload.pools, one.prices.gpus.tolist(), strict=True)),
        budget=one.prices.budget.tolist(),
        worth={name: worth.tolist() for name, worth in worths.items()},
        bound_s=one.found.value,
    )
