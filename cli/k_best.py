"""The k best decisions in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wattsched.report.terminal import line, table
from wattsched.report.views import view
from wattsched.report.wording import count, gap_text

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.solving.k_best import KBest

MOST_JOBS = 3
"""Jobs of a decision that are told to do something else."""


def print_k_best(out: Console, found: KBest) -> None:
    """Print the decisions, one for each line of a table, and what jobs do there other than in the best."""
    differ = count(found.differ, "job")
    line(out, (found.instance, "bold"), f": the best decisions, which differ in {differ} at least")
    last, decided = found.results[-1], found.decided
    goal = view(found.problem).goal(last.objective_name, last.sense)
    rows = [
        (
            str(number),
            goal.amount(result.objective or 0.0),
            *(gap_text(gap).removeprefix("gap ") for gap in (result.gap, result.proven_gap)),
            _differences(decided[0].decision, result.decision),
        )
        for number, result in enumerate(decided, start=1)
    ]
    if rows:
        table(out, [">", f">{goal.noun}", ">gap", ">proven", "other than the best"], rows)
    if last.decision is None:
        reason = last.termination.reason
        line(out, "there is no other decision" if reason == "infeasible" else reason.replace("_", " "))


def _differences(best: Any, other: Any) -> str:
    """Say what jobs do in another decision: ``job3 8 A100, job5 waits``."""
    from wattsched.solving.what_if import doing

    before, after = ({job.job: doing(job) for job in decision.jobs} for decision in (best, other))
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    told = [f"{name} {after.get(name, 'waits')}" for name in names[:MOST_JOBS]]
    return ", ".join([*told, *([f"{len(names) - MOST_JOBS} more"] if len(names) > MOST_JOBS else [])])
