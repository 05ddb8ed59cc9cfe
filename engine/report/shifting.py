"""A shifting instance and its decisions as text: what every job does over the slots of the horizon."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.report.terminal import heading, line, rest_in, table
from wattsched.report.views import View, print_budgets
from wattsched.report.wording import Goal, count, duration, listed, number, percent, setting

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.instances.shifting.decision import Plan, Run, Schedule, ShiftingDecision
    from wattsched.instances.shifting.instance import ShiftingInstance

MOST_ROWS = 20
MOST_SLOTS = 96
SHADES = "▁▂▃▄▅▆▇█"
COLUMNS = ("job", ">slots", ">ends in", ">pauses", "runs")


def print_instance(out: Console, instance: ShiftingInstance) -> None:
    """Print the horizon, its forecasts, the pools and the budgets."""
    line(out, (instance.name, "bold"), f": {instance.problem}, {about(instance)}")
    pools = [
        (name, count(pool.gpus, "GPU"), f"{pool.idle_power_w:g} W idle")
        for name, pool in instance.pools.items()
    ]
    heading(out, "Pools")
    table(out, ["", ">", ">"], pools, header=False)
    for title, values, unit in (
        ("Carbon intensity", instance.carbon_g_per_kwh, "g/kWh"),
        ("Price", instance.price_per_kwh, f"{instance.currency or ''} per kWh".strip()),
    ):
        if values is not None:
            heading(out, title, f"{number(min(values))} to {number(max(values))} {unit}")
            line(out, curve(values[: instance.slots]), indent=2)
    _print_scenarios(out, instance)
    print_budgets(out, instance.budgets, instance.currency)


def _print_scenarios(out: Console, instance: ShiftingInstance) -> None:
    """Print the probability of every scenario, and its own forecasts."""
    if instance.scenarios is None:
        return
    heading(out, "Scenarios", f"plans may differ after {count(instance.decided_slots or 0, 'slot')}")
    series = ("carbon_g_per_kwh", "carbon"), ("price_per_kwh", "price"), ("power_w", "cap")
    for name, one in instance.scenarios.items():
        own = [
            f"{words} {curve(values[: instance.slots])} {number(min(values))} to {number(max(values))}"
            for field, words in series
            if isinstance(values := getattr(one, field), list)
        ]
        line(out, f"{name}  {percent(one.probability)}  {'  '.join(own)}".rstrip(), indent=2)


def curve(values: list[float]) -> str:
    """Values as a line of bars, the first ones of a long list."""
    shown = values[:MOST_SLOTS]
    low, high = min(shown), max(shown)
    scale = (len(SHADES) - 1) / (high - low) if high > low else 0.0
    return "".join(SHADES[round((value - low) * scale)] for value in shown)


def print_decision(
    out: Console, decision: ShiftingDecision, instance: ShiftingInstance | None = None
) -> None:
    """Print the runs of the first jobs, and the names of those that do not run within the horizon.

    With scenarios, the plan of each.
    """
    if decision.scenarios is None:
        _print_plan(out, "Decision", decision, instance)
    for name, plan in (decision.scenarios or {}).items():
        known = instance if instance is None or instance.scenarios is None else instance.in_scenario(name)
        _print_plan(out, f"Decision in {name}", plan, known)


def _print_plan(out: Console, title: str, decision: Plan, instance: ShiftingInstance | None) -> None:
    running, waiting = len(decision.jobs), len(decision.waiting)
    heading(out, title, f"{running:,} run, {waiting:,} wait for the next horizon")
    shown = decision.jobs[:MOST_ROWS]
    rows = [_row(schedule, instance) for schedule in shown]
    table(out, COLUMNS, rows, beyond=len(decision.jobs) - MOST_ROWS, hint=rest_in(instance))
    if decision.waiting:
        line(out, f"waiting: {listed(decision.waiting)}", indent=2)


def end_s(instance: ShiftingInstance, schedule: Schedule) -> float:
    """Seconds from the beginning of the horizon to a job's end, as the checker finds them."""
    from wattsched.instances.shifting.decision import ShiftingDecision
    from wattsched.instances.shifting.instance import HorizonBudgets
    from wattsched.verification.shifting.checker import check

    jobs = [job for job in instance.jobs if job.name == schedule.job]
    alone = instance.model_copy(update={"jobs": jobs, "budgets": HorizonBudgets()})
    report = check(alone, ShiftingDecision(jobs=[schedule], waiting=[]))
    return report.totals["average_completion_s"] + sum(job.arrival_s for job in jobs)


def _row(schedule: Schedule, instance: ShiftingInstance | None) -> tuple[str, ...]:
    runs = schedule.runs
    pauses = sum(b.first_slot > a.first_slot + a.slots for a, b in pairwise(runs))
    return (
        schedule.job,
        str(sum(run.slots for run in runs)),
        "" if instance is None else duration(end_s(instance, schedule)),
        str(pauses) if pauses else "",
        ", ".join(_told(run, instance) for run in runs),
    )


def _told(run: Run, instance: ShiftingInstance | None) -> str:
    """Slots of a run, or its times where slots are of unequal length, and what it holds."""
    when = f"{run.first_slot}" + (f"-{run.first_slot + run.slots - 1}" if run.slots > 1 else "")
    if instance is not None and np.ptp(instance.lengths_s) > 0:
        edges_s = instance.begin_s[[run.first_slot, run.first_slot + run.slots]].tolist()
        when = " to ".join(map(duration, edges_s)) if edges_s[0] else f"to {duration(edges_s[1])}"
    batch = "" if run.batch_size is None else f"batch {run.batch_size}"
    settings = [f"{run.gpus} {run.pool}", setting(run.frequency_mhz, run.power_limit_w), batch]
    return f"{when}: {' '.join(filter(None, settings))}"


def about(instance: ShiftingInstance) -> str:
    """Jobs and slots of a horizon."""
    lengths_s = instance.lengths_s
    each = dict.fromkeys(duration(float(seconds)) for seconds in (lengths_s.min(), lengths_s.max()))
    slots = f"{count(instance.slots, 'slot')} of {' to '.join(each)}"
    of = "" if instance.scenarios is None else f", the mean of {count(len(instance.scenarios), 'scenario')}"
    return f"{count(len(instance.jobs), 'job')} over {slots}{of}"


def rows_of(decision: Plan) -> list[dict[str, Any]]:
    """A row for every run of every job; waiting jobs have one row. With scenarios, those of each."""
    if plans := getattr(decision, "scenarios", None):
        return [{**row, "scenario": name} for name, plan in plans.items() for row in rows_of(plan)]
    running = [
        {"job": schedule.job, "waiting": False, **run.model_dump()}
        for schedule in decision.jobs
        for run in schedule.runs
    ]
    return [*running, *({"job": job, "waiting": True} for job in decision.waiting)]


VIEW = View(
    goals={
        "mean-completion": Goal("average completion time", "s"),
        "carbon": Goal("carbon", "g"),
        "energy": Goal("energy", "J"),
        "money": Goal("cost", near_zero=True),
    },
    about=about,
    print_instance=print_instance,
    print_decision=print_decision,
    rows=rows_of,
)
