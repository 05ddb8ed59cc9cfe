"""Explanation of why an instance has no decision: what no job can keep to, and what prices prove short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from wattsched.formulations.infeasibility import InfeasibilityProof
from wattsched.formulations.shifting.data import BUDGET_FIELDS, Horizon
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FEASIBILITY, ROUNDING
from wattsched.topology.arrays import BoolArray, FloatArray
from wattsched.verification.shifting.bound import LEVELS, PricedInstance, Prover
from wattsched.verification.shifting.checker import BUDGETS

SCALES, ALONE_SCALES = (1e6, 1e3), (1e6, 1e11)
"""Factors of prices in the search for what is short, and those for one budget alone.

The dearer what is short, the less the objective blurs by how much. Of one budget alone nothing is known but
that it is to be dearer than any objective.
"""


def diagnose(horizon: Horizon) -> list[str]:
    """Explain why an instance has no decision, one sentence each; empty where this look is too short.

    Every job is taken to have all GPUs to itself, in its best slot: who is late or above a budget even then
    is so in every decision.
    """
    earliest_s = horizon.begin_s[horizon.first_slot] + horizon.fastest_s
    found = [*_too_low(horizon), *_late(horizon, earliest_s), *_over_budget(horizon, earliest_s)]
    return found or [*_unable(horizon)]


def _too_low(horizon: Horizon) -> Iterator[str]:
    for resource, left_w in zip(horizon.resources, horizon.capacity + horizon.slack, strict=True):
        slot = int(np.argmin(left_w))
        if left_w[slot] < 0:
            yield f"{resource} is short by {-left_w[slot]:.6g} W in slot {slot}, though all GPUs are idle"


def _unable(horizon: Horizon) -> Iterator[str]:
    """Jobs that could not do their least progress even alone under the caps."""
    rate = np.where(horizon.fits, horizon.rate[:, None], 0.0)
    alone = PricedInstance(horizon.instance, {})
    due = horizon.must_finish | np.isfinite(horizon.most_left) | np.isfinite(horizon.deadline_s)
    for number in np.flatnonzero(due).tolist():
        job, options = horizon.instance.jobs[number], horizon.options_of(number)
        first, work = int(horizon.first_slot[number]), float(horizon.work[number])
        able = float(rate[options, first:].max(axis=0) @ horizon.slot_s[first:])
        needed = work - max(0.0, float(horizon.most_left[number])) if job.least_progress else 0.0
        if not job.must_finish and able * (1 + ROUNDING) < needed - ROUNDING * work:
            yield f"job '{job.name}' can do {able:.10g} of its work in the horizon, and must do {needed:.10g}"
            continue
        # Pauses cost a restart each, for which some slots have no time.
        capped, short = not horizon.fits[options].all(), job.restart_s >= horizon.slot_s.min()
        if (capped or short) and alone.least_cost(job).bound(LEVELS[0]) == np.inf:
            told = "under the caps" if capped else "with restarts in slots that are long enough"
            yield f"job '{job.name}' cannot do its work in time {told}, even alone"


def _late(horizon: Horizon, earliest_s: FloatArray) -> Iterator[str]:
    """Yield a sentence for each job that ends too late even at its earliest."""
    within_s = np.where(horizon.must_finish, horizon.begin_s[-1], np.inf)
    latest_s = np.minimum(within_s, horizon.deadline_s)
    hopeless: BoolArray = earliest_s * (1 - ROUNDING) > latest_s * (1 + ROUNDING)
    for job in np.flatnonzero(hopeless).tolist():
        due = "its deadline is" if horizon.deadline_s[job] <= latest_s[job] else "it must finish by"
        name = horizon.instance.jobs[job].name
        yield f"job '{name}' cannot end before {earliest_s[job]:.10g} s, {due} {latest_s[job]:.10g} s"


def _over_budget(horizon: Horizon, earliest_s: FloatArray) -> Iterator[str]:
    """Yield a sentence for each budget that is too small even for the least that all jobs need of it."""
    criteria = zip(BUDGET_FIELDS, horizon.budget, horizon.idle_use, _least(horizon, earliest_s), strict=True)
    for field, limit, idle_use, least in criteria:
        needed = idle_use + least
        if needed - ROUNDING * abs(needed) > limit + FEASIBILITY * abs(limit):
            idle = f"idle GPUs take {idle_use:.6g} and " if idle_use > 0 else ""
            yield (
                f"{field} is short by at least {needed - limit:.6g}: {idle}the jobs need {least:.6g} "
                f"or more, the budget is {limit:.6g}"
            )


def _least(horizon: Horizon, earliest_s: FloatArray) -> FloatArray:
    """Least that jobs add to each criterion, shape (4,): each as soon as it can, each in its best slot."""
    completion_s = float(horizon.share @ (earliest_s - horizon.arrival_s))
    if horizon.n_jobs == 0:
        return np.zeros(len(BUDGET_FIELDS))
    joules = np.minimum.reduceat(horizon.extra_w / horizon.rate, horizon.option_start[:-1])
    # What is left after the horizon counts at the forecast's average, in the last column.
    best = np.minimum.accumulate(horizon.per_joule[:, ::-1], axis=1)[:, ::-1][:, horizon.first_slot]
    least = best @ (joules[horizon.table] * horizon.work)
    # Where a joule is paid for, a job may draw its most in all slots in which it is, and all its work later.
    drawn_w = np.maximum.reduceat(horizon.extra_w, horizon.option_start[:-1])[horizon.table]
    paid = np.minimum(horizon.per_joule, 0.0)
    in_slots = paid[:, :-1] * horizon.slot_s
    since = np.cumsum(in_slots[:, ::-1], axis=1)[:, ::-1][:, horizon.first_slot]
    after_j = horizon.power_w[horizon.fastest[horizon.table]] * horizon.fastest_s
    most_paid = since @ drawn_w + paid[:, -1] * after_j.sum()
    return np.concatenate([[completion_s], np.where(paid.any(axis=1), most_paid, least)])


def refute(
    horizon: Horizon, prices: Mapping[str, float], timer: Timer | None = None
) -> InfeasibilityProof | None:
    """Proof that an instance has no decision, if prices give one in time.

    Parameters
    ----------
    prices : mapping of str to float
        As `wattsched.verification.shifting.bound.prove` takes them; without any each budget is tried alone.
    """
    prover, over = Prover(horizon.instance), (timer or Timer()).over
    alone = [{row: -1.0} for row in BUDGETS if np.isfinite(_limit(horizon, row))]
    for scale, some in product(SCALES, [prices]) if prices else product(ALONE_SCALES, alone):
        charged = {name: scale * price for name, price in some.items() if price}
        proof = prover.in_time(charged, over)
        if proof.bound is not None and proof.excess > 0:
            return InfeasibilityProof(charged, proof.bound, proof.short)
    return None


def _limit(horizon: Horizon, row: str) -> float:
    return float(horizon.budget[BUDGET_FIELDS.index(BUDGETS[row])])
