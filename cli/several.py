"""Answers that are several results: the k best decisions, and frontiers of two objectives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wattsched.report.terminal import line, table
from wattsched.report.views import view
from wattsched.report.wording import count, gap_text

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.results.result import Result
    from wattsched.solving.frontiers import Frontier
    from wattsched.solving.k_best import KBest
    from wattsched.verification.verdict import Verdict


def several_of(document: Any, source: str) -> KBest | Frontier | None:
    """Read a parsed document as such an answer; None where it is something else."""
    from wattsched.solving.frontiers import frontier_of, is_frontier
    from wattsched.solving.k_best import is_k_best, k_best_of

    if is_k_best(document):
        return k_best_of(document, source)
    return frontier_of(document, source) if is_frontier(document) else None


def verdict_on(instance: Any, found: KBest | Frontier, require_gap: float | None) -> Verdict:
    """Check such an answer."""
    from wattsched.solving.frontiers import Frontier, verdict_on_frontier
    from wattsched.solving.k_best import verdict_on_k_best

    if isinstance(found, Frontier):
        return verdict_on_frontier(instance, found, require_gap)
    return verdict_on_k_best(instance, found, require_gap)


def results_of(found: KBest | Frontier) -> list[Result]:
    """Results of such an answer."""
    return [point.result for point in found.points] if hasattr(found, "points") else found.results


def lines_on(found: KBest | Frontier, verdict: Verdict) -> Iterator[str]:
    """Yield what a check says of such an answer."""
    results = results_of(found)
    proven = sum(result.proven_gap is not None for result in results if result.decision is not None)
    yield f"{count(len(results), 'result')}, {proven} with a decision and a proof of how good it is"
    if verdict.claimed:
        yield "what is claimed beyond the proofs is the solver's word: it is taken on trust"


def print_several(out: Console, found: KBest | Frontier) -> None:
    """Print the results, one for each line of a table."""
    from wattsched.solving.frontiers import Frontier

    if isinstance(found, Frontier):
        _print_frontier(out, found)
    else:
        _print_k_best(out, found)


def _gaps(result: Result) -> tuple[str, str]:
    gap, proven = (gap_text(one).removeprefix("gap ") for one in (result.gap, result.proven_gap))
    return gap, proven


def _print_k_best(out: Console, found: KBest) -> None:
    last = found.results[-1]
    differ = count(found.differ, "job")
    line(out, (found.instance, "bold"), f": the best decisions, which differ in {differ} at least")
    rows = []
    for number, result in enumerate(found.decided, start=1):
        goal = view(found.problem).goal(result.objective_name, result.sense)
        others = "" if number == 1 else differences(found.decided[0].decision, result.decision)
        rows.append((str(number), goal.amount(result.objective or 0.0), *_gaps(result), others))
    if rows:
        goal = view(found.problem).goal(last.objective_name, last.sense)
        table(out, [">", f">{goal.noun}", ">gap", ">proven", "other than the best"], rows)
    if last.decision is None:
        reason = last.termination.reason
        told = "there is no other decision" if reason == "infeasible" else reason.replace("_", " ")
        line(out, told)


def differences(one: Any, other: Any, most: int = 3) -> str:
    """Say what jobs do in another decision of sizing: ``job3 8 A100, job5 waits``."""
    from wattsched.solving.what_if import doing

    before, after = ({job.job: doing(job) for job in decision.jobs} for decision in (one, other))
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    told = [f"{name} {after.get(name, 'waits')}" for name in names[:most]]
    return ", ".join([*told, *([f"{len(names) - most} more"] if len(names) > most else [])])


def _print_frontier(out: Console, found: Frontier) -> None:
    line(out, (found.instance, "bold"), f": from the best {' to the best '.join(found.objectives)}")
    look, rows = view(found.problem), []
    for point in found.points:
        goals = [look.goal(name, "min") for name in found.objectives]
        amounts = [goal.amount(value) for goal, value in zip(goals, point.values, strict=True)]
        rows.append((*amounts, *_gaps(point.result)))
    if rows:
        table(out, [*(f">{name}" for name in found.objectives), ">gap", ">proven"], rows)
        if found.missing:
            line(out, f"{found.missing} more asked for, and not found in time")
    elif found.failed is not None:
        ended = found.failed.termination
        line(out, f"{ended.reason.replace('_', ' ')}: {ended.detail or 'no decision was found'}")
