"""Bounds on what any schedule of a trace could reach, of whoever knows the future: `bound_of`."""

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
"""Worths of a unit of work in the file, for each kind of jobs."""
FIRST_PRICE = 0.1
"""First price of a joule, of that at which the energy of the fastest schedules counts as much as time."""
FACTOR, NEAR, TRIES = 4.0, 1.5, 8
"""Factor between prices of a joule, factor at which the search ends, and most prices that are tried."""

MOST_PERIODS = 256
"""Largest number of periods of a budget while jobs arrive; of more, several are joined."""

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
        Of the trace (`parts_of`).
    completion_s : sequence of float
        Mean completion times at which the energy of the jobs is bounded.
    until : float
        Of `time.monotonic`: when it ends with the bound that it has.
    """
    workload = Workload.of(**parts)
    found = [bounded(workload, until=until, progress=progress)]
    for mean_s in completion_s:
        found += _priced(workload, mean_s * len(workload.work), found, until, progress)
    edges = found[0].relaxation.edge_s.tolist()
    stated = [_stated(workload, one) for one in found]
    claimed = ClairvoyantBound(**parts, slot_edges_s=edges, proofs=stated)
    bounds_s = map(Prover(claimed), stated)
    proven = [one.model_copy(update={"bound_s": s}) for one, s in zip(stated, bounds_s, strict=True)]
    return claimed.model_copy(update={"proofs": proven})


def _priced(
    workload: Workload, total_s: float, found: Sequence[Bounded], until: float, progress: Progress
) -> list[Bounded]:
    """Bounds at prices of a joule near that at which the schedules take so long, all jobs together.

    At a higher price they take less energy, and longer; there the bound on the energy is the highest.
    """
    first = found[0]
    known, new = {one.prices.joule: one for one in found if one.prices.joule > 0}, list[Bounded]()
    while len(new) < TRIES and time.monotonic() < until:
        low = max((q for q, one in known.items() if one.found.completion_s < total_s), default=None)
        high = min((q for q, one in known.items() if one.found.completion_s >= total_s), default=None)
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
        start = min(known.values(), key=lambda one: abs(math.log(one.prices.joule / price)), default=first)
        new.append(bounded(workload, price, start, until=until, progress=progress))
        known[price] = new[-1]
    return new


def parts_of(
    trace: Trace, budget: Budget | None = None, sleep: Sleep | None = None, *, energy: bool = False
) -> Parts:
    """Return the fields of `ClairvoyantBound` that state what is bounded; a budget counts energy, too.

    Raises
    ------
    ValueError
        For a row that draws less than its GPUs when idle, where energy counts.
    """
    rows, pools = trace.configurations, [pool.name for pool in trace.pools]
    below = np.flatnonzero(trace.comparable & (trace.busy_w < 0))
    if (energy or budget is not None) and len(below):
        job = trace.names[int(np.flatnonzero(rows.of_job == rows.kind[below[0]])[0])]
        told = "power_w is below that of its GPUs when idle: there is no bound on its energy"
        raise ValueError(f"job '{job}': {told}")
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
    standing_w, together = _standing_w(trace, sleep), 1
    dearest = 0.0 if budget is None else float(budget.per_kwh.values.max()) / J_PER_KWH
    if budget is not None and budget.amount >= standing_w * budget.period_s * dearest:
        # Periods are taken together where they are many, which leaves schedules more freedom; not those that
        # the idle cluster overspends, of which the others would have to pay for nothing.
        together = max(1, math.ceil(float(np.ptp(trace.arrival_s)) / budget.period_s / MOST_PERIODS))
    periods = budget and PeriodBudget(
        quantity=budget.quantity,
        amount=together * budget.amount,
        begin_s=float(trace.arrival_s[0]),
        period_s=together * budget.period_s,
        time_s=budget.per_kwh.time_s.tolist(),
        per_kwh=budget.per_kwh.values.tolist(),
    )
    return {"pools": gpus, "options": options, "jobs": jobs, "standing_w": standing_w, "budget": periods}


def _standing_w(trace: Trace, sleep: Sleep | None) -> float:
    """Least draw of the cluster besides its jobs: all nodes idle, or asleep where they may be."""
    nodes = Nodes(trace.cluster, trace.pools, sleep, 0.0)
    if sleep is None:
        return nodes.idle_cluster_w
    nodes.asleep[:] = True
    return sum(nodes.draw())


def _stated(workload: Workload, one: Bounded) -> SlotPrices:
    """Prices of a document, and what the relaxation comes to at them."""
    worths = one.relaxation.worths(one.prices, FINEST)
    return SlotPrices(
        joule_price=one.prices.joule,
        gpus=dict(zip(workload.pools, one.prices.gpus.tolist(), strict=True)),
        budget=one.prices.budget.tolist(),
        worth={name: worth.tolist() for name, worth in worths.items()},
        bound_s=one.found.value,
    )
