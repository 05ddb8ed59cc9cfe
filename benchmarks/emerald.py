"""Plans for the three events of a field demonstration (Emerald AI, Phoenix, May 2025).

    python -m benchmarks.emerald --write

Six jobs have to draw less for some hours. Their rates and watts at six power limits are those that were
measured. All figures but the plan and its bound are computed here, from the limits and the states alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
from scipy.optimize import linprog

from benchmarks.emerald_events import (
    HALVED,
    HORIZON_S,
    IDLE_W,
    PAUSED,
    RAMP_S,
    RESTART_S,
    SHORTEST_S,
    SLOT_S,
    SLOTS,
    Event,
    Job,
    events,
    values,
)
from benchmarks.harness import Asked, machine, run, sections, table, timed
from wattsched import solve
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.instances.signals import Signal
from wattsched.topology.arrays import FloatArray, IntArray

# -- the plan --------------------------------------------------------------------------------------------


def instance(event: Event) -> ShiftingInstance:
    """The event as a problem: a job that is never slowed ends with the horizon."""
    start, pool = datetime.fromisoformat(event.start), "a100"
    signal = {
        "baseline_w": event.baseline_w,
        "limits": [
            {"from": start + timedelta(minutes=a), "to": start + timedelta(minutes=b), "share": share}
            | {"ramp_w_per_s": (1 - share) * event.baseline_w / RAMP_S}
            for a, b, share in event.limits
        ],
    }

    def fields(job: Job) -> dict[str, Any]:
        options = {"power_limit_w": job.limit_w, "power_w": job.watts[:6], "rate": job.rate[:6]}
        held = {"gpus": job.gpus[:6].tolist(), "pool": [pool] * 6}
        return {
            "name": job.name,
            "options": held | {name: column.tolist() for name, column in options.items()},
            "remaining_work": HORIZON_S,
            "weight": job.flexibility,
            "least_progress": job.flexibility,
            "restart_s": RESTART_S,
            "current": {"gpus": held["gpus"][0], "pool": pool},
        }

    gpus = sum(int(job.gpus[0]) for job in event.jobs)
    document = {
        "problem": "shifting",
        "name": event.name,
        "slots": SLOTS,
        "slot_s": SLOT_S,
        "pools": {pool: {"gpus": gpus, "idle_power_w": IDLE_W}},
        "jobs": [fields(job) for job in event.jobs],
    }
    return ShiftingInstance.model_validate(document).under(Signal.model_validate(signal), start, SHORTEST_S)


def states_of(event: Event, decision: ShiftingDecision, slots: int) -> IntArray:
    """State of each job in each slot of a decision."""
    runs = {schedule.job: schedule.runs for schedule in decision.jobs}
    states = np.full((len(event.jobs), slots), PAUSED)
    for row, job in zip(states, event.jobs, strict=True):
        for kept in runs.get(job.name, []):
            chosen = np.searchsorted(job.limit_w, kept.power_limit_w or 0.0)
            row[kept.first_slot : kept.first_slot + kept.slots] = chosen
    return states


# -- what the sweep allows, and what others would do -----------------------------------------------------


def slot_limits_w(event: Event, begin_s: FloatArray) -> FloatArray:
    """Least limit of each slot. The limit is straight or bent down within one: it is least at an end."""
    share = event.share(begin_s)
    return event.baseline_w * np.minimum(share[:-1], share[1:])


def allowed(event: Event, limits_w: FloatArray, begin_s: FloatArray) -> tuple[float, float]:
    """Best weighted performance of power limits mixed at will in a slot, and of one per job and slot.

    A linear program, and all combinations. What classes allow binds neither: no best choice is below it.
    """
    jobs, caps, slot = event.jobs, *np.unique(limits_w, return_inverse=True)
    part = np.diff(begin_s) / HORIZON_S
    watts, rate = (np.concatenate([getattr(job, field)[:6] for job in jobs]) for field in ("watts", "rate"))
    each, least = np.kron(np.eye(len(jobs)), np.ones(6)), [job.flexibility for job in jobs]
    mixes = [
        linprog(-(event.weights @ each) * rate, watts[None], cap, each, np.ones(len(jobs))).x for cap in caps
    ]
    grid = np.indices((6,) * len(jobs)).reshape(len(jobs), -1)
    draw, done = values(jobs, "watts", grid).sum(axis=0), values(jobs, "rate", grid)
    best = [np.where(draw <= cap * (1 + 1e-9), event.weights @ done, 0.0).argmax() for cap in caps]
    found = [part @ (np.array(mixes)[slot] * rate @ each.T), done[:, np.array(best)[slot]] @ part]
    assert all((performance >= least).all() for performance in found)
    return float(event.weights @ found[0]), float(event.weights @ found[1])


def first_fit(event: Event, limits_w: FloatArray, candidates: IntArray) -> IntArray:
    """First candidate, of shape (n, jobs), in each slot whose draw is within the limit."""
    watts = values(event.jobs, "watts", candidates.T).sum(axis=0)
    return np.asarray(candidates[[np.argmax(watts <= cap * (1 + 1e-9)) for cap in limits_w]].T)


def policies(event: Event, limits_w: FloatArray, begin_s: FloatArray) -> dict[str, IntArray]:
    """States under the four policies of the demonstration, as its page describes them.

    Fair shares slow all jobs down by the same part of their flexibility. Otherwise jobs of the most flexible
    class come first, of these those with the most watts; two of them pause for half of an event each.
    """
    jobs = event.jobs
    order = sorted(range(len(jobs)), key=lambda n: (jobs[n].flexibility, -jobs[n].watts[5]))
    least = [1 - part * (1 - event.flexibility) for part in np.linspace(0.0, 1.0, 201)]
    fair = np.array(
        [[np.argmax(j.rate[:6] >= r - 1e-12) for j, r in zip(jobs, at, strict=True)] for at in least]
    )
    within = np.flatnonzero(limits_w < event.baseline_w * (1 - 1e-9))
    staggered = first_fit(event, limits_w, fair)
    middle_s = begin_s[[within[0], within[-1] + 1]].mean()
    for n, half in zip(order, np.split(within, [np.sum(begin_s[within] < middle_s)]), strict=False):
        staggered[:, half] = first_fit(
            event, limits_w[half], np.where(np.arange(len(jobs)) == n, PAUSED, fair)
        )

    def stepwise(steps: list[tuple[int, int]]) -> IntArray:
        candidates = np.full((len(steps) + 1, len(jobs)), PAUSED - 1)
        for row, (n, state) in enumerate(steps, start=1):
            candidates[row:, n] = state
        return first_fit(event, limits_w, candidates)

    fewer = [(jobs[n].flexibility, state, n) for state in (HALVED, PAUSED) for n in order]
    fewer.sort(key=lambda step: (step[0], -step[1]))
    return {
        "caps by fair shares": first_fit(event, limits_w, fair),
        "caps and staggered pauses": staggered,
        "greedy pauses": stepwise([(n, PAUSED) for n in order]),
        "pauses and fewer GPUs": stepwise([(n, state) for _, state, n in fewer]),
    }


# -- figures of a plan -----------------------------------------------------------------------------------


def performances(event: Event, states: IntArray, begin_s: FloatArray) -> FloatArray:
    """Mean rate of each job over the horizon; a restart does no work for `RESTART_S`."""
    gpus = values(event.jobs, "gpus", states)
    restarts = np.diff(gpus, axis=1, prepend=gpus[:, :1]).astype(bool) & (gpus > 0)
    able_s = np.diff(begin_s) - restarts * RESTART_S
    return np.asarray((values(event.jobs, "rate", states) * able_s).sum(axis=1) / HORIZON_S)


def below_class(event: Event, performance: FloatArray) -> int:
    """Jobs whose performance is less than their class allows."""
    return int((performance < event.flexibility - 1e-9).sum())


def drawn(event: Event, states: IntArray, begin_s: FloatArray) -> FloatArray:
    """Draw at each second, as a part of the baseline."""
    draw = values(event.jobs, "watts", states).sum(axis=0) / event.baseline_w
    return np.repeat(draw, np.rint(np.diff(begin_s)).astype(int))


def beyond(event: Event, drawn: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Points of the baseline by which the draw is below the limit: seconds of constant limits, and ramps."""
    share = event.share(np.arange(len(drawn) + 1))
    over, full = 100 * (share[:-1] + share[1:] - 2 * drawn) / 2, np.diff(share) == 0
    return over[full & (share[1:] < 1)], over[~full]


def cells(over: FloatArray, digits: int = 2) -> str:
    """Mean and most."""
    return f"{over.mean():.{digits}f} / {over.max():.{digits}f}"


def figures_of(event: Event, asked: Asked) -> tuple[dict[str, str], list[list[str]]]:
    """Figures of an event in the first table, and its rows in the second."""
    problem = instance(event)
    result, took_s = timed(lambda: solve(problem, gap=1e-4, time_limit=asked.limit))
    assert result.objective is not None
    plan, bound = (2 - seconds / HORIZON_S for seconds in (result.objective, result.bound or HORIZON_S))
    begin_s, states = problem.begin_s, states_of(event, result.decision, problem.slots)
    limits_w = slot_limits_w(event, begin_s)
    mixed, combined = allowed(event, limits_w, begin_s)
    performance = performances(event, states, begin_s)
    assert abs(event.weights @ performance - plan) < 1e-6
    full, ramps = beyond(event, draw := drawn(event, states, begin_s))
    then, _ = beyond(event, np.repeat(event.measured_w / np.median(event.measured_w[:60]), 60))
    limit = event.share(np.arange(len(draw)) + 0.5)
    column = {
        "cut asked": " and ".join(f"{100 * (1 - share):.0f} %" for *_, share in event.limits),
        "weighted performance of the plan": f"{plan:.4f}",
        "bound on all plans": f"{bound:.4f}",
        "bound less plan": f"{bound - plan:.4f}",
        "the same in % of the time lost": f"{100 * (bound - plan) / (1 - plan):.1f} %",
        "the sweep, mixed at will in every slot": f"{mixed:.4f}",
        "best combination of caps in every slot": f"{combined:.4f}",
        "published": event.published,
        "seconds above the limit": f"{int((draw > limit * (1 + 1e-9)).sum())}",
        "jobs below their class": f"{below_class(event, performance)}",
        "cut beyond the limit, mean / most, points": cells(full),
        "the same in the ramps": cells(ramps),
        "the same as measured in 2025": cells(then, 1),
        "seconds": f"{took_s:.0f}",
    }
    rows = []
    for name, chosen in policies(event, limits_w, begin_s).items():
        performance = performances(event, chosen, begin_s)
        share, cut = float(event.weights @ performance), beyond(event, drawn(event, chosen, begin_s))[0]
        figures = (f"{share:.4f}", f"{plan - share:+.4f}", cells(cut, 1))
        rows.append([name, event.name, *figures, str(below_class(event, performance))])
    return column, rows


def emerald(asked: Asked) -> str:
    """Both tables."""
    found = events()
    columns, rows = zip(*(figures_of(event, asked) for event in found), strict=True)
    lines = [[label, *(column[label] for column in columns)] for label in columns[0]]
    plans = table(["figure", *(event.name for event in found)], lines)
    header = ["policy", "event", "weighted performance", "plan better by", "cut beyond, mean / most, points"]
    others = table([*header, "jobs below class"], sorted(row for of in rows for row in of))
    return sections({"The plan": f"{plans}\n\n({machine()}.)", "The four policies": others})


TABLES = {"emerald": emerald}

if __name__ == "__main__":
    run(__doc__, TABLES, limit=55.0)
