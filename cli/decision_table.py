"""A decision as a table: what every job does, in the order of the instance."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from wattsched.cli.terminal import Justify, heading, line, table
from wattsched.cli.wording import count, duration, listed

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.instances.sizing.decision import Assignment, Decision
    from wattsched.instances.sizing.instance import Instance, Job

MOST_ROWS = 20
MOST_NODES = 3

COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("job", "left"),
    ("GPUs", "right"),
    ("pool", "left"),
    ("in set", "left"),
    ("set to", "right"),
    ("batch", "right"),
    ("done in", "right"),
    ("now", "left"),
    ("nodes", "left"),
)


def print_decision(out: Console, decision: Decision, instance: Instance | None = None) -> None:
    """Print the first jobs that run and the names of those that wait."""
    heading(out, "Decision", f"{len(decision.jobs):,} run, {len(decision.waiting):,} wait")
    shown = decision.jobs[:MOST_ROWS]
    jobs = {} if instance is None else {job.name: job for job in instance.jobs}
    finish_s = {} if instance is None else completion_times_s(instance, shown)
    table(out, COLUMNS, [_row(a, jobs.get(a.job), finish_s.get(a.job)) for a in shown])
    if len(decision.jobs) > MOST_ROWS:
        line(out, (f"... {len(decision.jobs) - MOST_ROWS:,} more, use --json or -o", "dim"), indent=2)
    if decision.waiting:
        stopped = [name for name in decision.waiting if name in jobs and jobs[name].current is not None]
        line(out, f"waiting: {listed(decision.waiting)}", indent=2)
        if len(stopped) == len(decision.waiting) > 1:
            line(out, "all of them ran before", indent=2)
        elif stopped:
            line(out, f"of these stopped: {listed(stopped)}", indent=2)


def completion_times_s(instance: Instance, running: list[Assignment]) -> dict[str, float]:
    """Seconds to completion of some jobs that run, restart included."""
    from wattsched.formulations.sizing.data import expand
    from wattsched.instances.sizing.decision import Decision

    names = {assignment.job for assignment in running}
    formed = {assignment.set for assignment in running}
    sets = [declared for declared in instance.sets if declared.name in formed]
    members = {name for declared in sets for name in declared.rates}
    jobs = [job for job in instance.jobs if job.name in names | members]
    options = expand(instance.model_copy(update={"jobs": jobs, "sets": sets}))
    chosen = options.matching(Decision(jobs=running, waiting=[]))
    return {job.name: float(options.completion_s[c]) for job, c in zip(jobs, chosen, strict=True) if c >= 0}


def _row(assignment: Assignment, job: Job | None, finish_s: float | None) -> tuple[str, ...]:
    return (
        assignment.job,
        str(assignment.gpus),
        assignment.pool,
        assignment.set or "",
        _setting(assignment),
        "" if assignment.batch_size is None else str(assignment.batch_size),
        "" if finish_s is None else duration(finish_s),
        _change(assignment, job),
        places(assignment.nodes),
    )


def _setting(assignment: Assignment) -> str:
    """Clock or power limit; a profile has at most one of the two."""
    clock, limit = assignment.frequency_mhz, assignment.power_limit_w
    settings = [f"{clock} MHz" if clock is not None else "", f"{limit:g} W" if limit is not None else ""]
    return ", ".join(filter(None, settings))


def _change(assignment: Assignment, job: Job | None) -> str:
    """What becomes of a job that runs already."""
    if job is None or job.current is None:
        return ""
    held = job.current
    same = (held.gpus, held.pool, held.batch_size) == (
        assignment.gpus,
        assignment.pool,
        assignment.batch_size,
    )
    if not same:
        return "restarts"
    if held.nodes and _sorted(held.nodes) != _sorted(assignment.nodes):
        return "migrates"
    return "stays"


def _sorted(nodes: dict[str, list[int]]) -> dict[str, list[int]]:
    return {name: sorted(gpus) for name, gpus in nodes.items()}


def places(nodes: dict[str, list[int]]) -> str:
    """GPUs by node: ``n3:0-7 n4:0-3``."""
    named = [f"{name}:{ranges(gpus)}" for name, gpus in list(nodes.items())[:MOST_NODES]]
    if len(nodes) > MOST_NODES:
        named.append(f"+{count(len(nodes) - MOST_NODES, 'node')}")
    return " ".join(named)


def ranges(numbers: Iterable[int]) -> str:
    """Numbers with runs joined: ``0-3,6``."""
    ordered = sorted(numbers)
    if not ordered:
        return ""
    cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(ordered)) if b != a + 1), len(ordered)]
    runs = [(ordered[a], ordered[b - 1]) for a, b in pairwise(cuts)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
