"""Instances and decisions of `sharing` as tables: which jobs share a unit, and how that suits them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from wattsched.report.terminal import heading, line, rest_in, table
from wattsched.report.views import View, print_budgets
from wattsched.report.wording import Goal, count, listed, number

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.instances.sharing.decision import SharedSet, SharingDecision
    from wattsched.instances.sharing.instance import SharingInstance

MOST_ROWS = 20
MOST_JOBS = 4
"""Names in a row, or one set's."""

COLUMNS = ("unit", ">units", ">power", ">GPU use", ">slowdown", "classes", "jobs")

Row = tuple[str, ...]

CLASS_COLUMNS = ("class", ">jobs", ">epoch", ">GPU use", "fastest on")


def print_instance(out: Console, instance: SharingInstance) -> None:
    """Print the units, the classes with their jobs, what was measured, and the budgets."""
    sets = sum(measured.fits for measured in instance.sets)
    text = f"{count(len(instance.jobs), 'job')}, {count(sets, 'measured set')}"
    line(out, (instance.name, "bold"), f": {instance.problem}, {text}")
    limits = instance.limits
    others = "and others by law" if instance.unmeasured == "law" else "and no others"
    line(out, (f"up to {count(limits.jobs_per_set, 'job')} per unit, sets as measured {others}", "dim"))
    heading(out, "Units")
    units = [
        (u.name, f"{u.count:,}", f"{u.gpus}", f"{number(u.idle_power_w)} to {number(u.full_power_w)} W")
        for u in instance.unit_types
    ]
    table(out, ["unit", ">units", ">GPUs each", ">power"], units)
    heading(out, "Classes")
    jobs = Counter(job.job_class for job in instance.jobs)
    classes: list[Row] = []
    for known in instance.classes:
        fastest = min(known.alone, key=lambda name: (known.alone[name].epoch_s, name))
        alone = known.alone[fastest]
        at_best = f"{number(alone.epoch_s)} s", f"{number(alone.utilisation_pct, 3)} %", fastest
        classes.append((known.name, f"{jobs[known.name]:,}", *at_best))
    table(out, CLASS_COLUMNS, classes, most=MOST_ROWS)
    print_budgets(out, instance.budgets)


def print_decision(out: Console, decision: SharingDecision, instance: SharingInstance | None = None) -> None:
    """Print equal sets as one row, the most frequent first, and the names of the jobs that wait."""
    running = sum(len(formed.jobs) for formed in decision.sets)
    text = f"{count(running, 'job')} on {count(len(decision.sets), 'unit')}, {len(decision.waiting):,} wait"
    heading(out, "Decision", text)
    alone: list[Row] = [(s.unit_type, "1", "", "", "", "", "+".join(s.jobs)) for s in decision.sets]
    rows = alone if instance is None else _grouped(decision, instance)
    # Where all units are of one type, a narrow page need not say of which.
    alike = ("unit",) if len({row[0] for row in rows}) == 1 else ()
    table(out, COLUMNS, rows, most=MOST_ROWS, hint=rest_in(instance), gives_way=alike)
    if decision.waiting:
        line(out, f"waiting: {listed(decision.waiting)}", indent=2)


def _grouped(decision: SharingDecision, instance: SharingInstance) -> list[Row]:
    """Sets of the same classes on the same type of unit together."""
    from wattsched.verification.sharing.checker import Outcomes

    outcomes = Outcomes(instance)
    class_of = {job.name: job.job_class for job in instance.jobs}
    groups: dict[tuple[str, tuple[str, ...]], list[SharedSet]] = {}
    for formed in decision.sets:
        classes = tuple(sorted(class_of.get(name, "?") for name in formed.jobs))
        groups.setdefault((formed.unit_type, classes), []).append(formed)
    rows: list[Row] = []
    for (unit_type, classes), sets in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        measured = ("", "", "")
        if all(unit_type in outcomes.alone.get(name, {}) for name in classes):
            outcome = outcomes.of(unit_type, classes)
            slower = [
                epoch_s / outcomes.alone[name][unit_type].epoch_s
                for name, epoch_s in zip(classes, outcome.epoch_s, strict=True)
            ]
            factor = number(sum(slower) / len(slower), 3)
            measured = (
                f"{number(outcome.power_w)} W",
                f"{number(outcome.utilisation_pct, 3)} %",
                f"x {factor}",
            )
        counts = Counter(classes)
        mix = " + ".join(name if n == 1 else f"{n} {name}" for name, n in counts.items())
        who = listed(["+".join(formed.jobs) for formed in sets], most=max(1, MOST_JOBS // len(classes)))
        rows.append((unit_type, f"{len(sets):,}", *measured, mix, who))
    return rows


def about(instance: SharingInstance) -> str:
    """Jobs, and units of all types."""
    units = sum(unit.count for unit in instance.unit_types)
    return f"{count(len(instance.jobs), 'job')} on {count(units, 'unit')}"


def rows_of(decision: SharingDecision) -> list[dict[str, Any]]:
    """A row for every job, with the number of its set; waiting jobs have none."""
    rows: list[dict[str, Any]] = []
    for i, formed in enumerate(decision.sets):
        shared = {"waiting": False, "set": i, "unit_type": formed.unit_type}
        for job in formed.jobs:
            others = [other for other in formed.jobs if other != job]
            rows.append({"job": job, **shared, "shares_with": others})
    return rows + [{"job": job, "waiting": True} for job in decision.waiting]


VIEW = View(
    goals={
        "eaco": Goal("weighted energy and epoch time", "kWh and h"),
        "energy": Goal("energy until all running jobs are complete", "kWh"),
        "power": Goal("power", "W"),
        "throughput": Goal("normalised throughput", "", "gain"),
    },
    about=about,
    print_instance=print_instance,
    print_decision=print_decision,
    rows=rows_of,
)
