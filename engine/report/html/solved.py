"""The report of one answer: the verdict and what proves it, uses, prices, and who runs where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wattsched.instances.digest import digest_of
from wattsched.report.conflicts import rows_of
from wattsched.report.html.page import Cell, Figure, Figures, Lines, Page, Part, Row, Table, Tone
from wattsched.report.summary import capacities, price_rows, stages_of, uses, verdict_of
from wattsched.report.views import View, view
from wattsched.report.wording import Goal, duration, reasons

TONES: dict[str, Tone] = {"optimal": "good", "feasible": "fair"}
MOST_ROWS = 5_000
"""Rows of a decision on a page; of more the file would be too large for a browser."""


def page_of(result: Any, instance: Any, command: str = "") -> Page:
    """Report of a result and its instance.

    Parameters
    ----------
    result : Result
    instance : model of an instance
    command : str
        That makes the result again.
    """
    look = view(result.problem)
    goal = look.goal(result.objective_name, result.sense, instance)
    verdict, lead = _verdict(result, goal)
    return Page(
        title=result.instance,
        about=look.about(instance),
        verdict=verdict,
        tone=TONES.get(result.termination.reason, "bad"),
        lead=[*lead, *stages_of(result, look, instance)],
        parts=[*_parts(result, instance, look, goal), *_again(result, instance, command)],
    )


def _verdict(result: Any, goal: Goal) -> tuple[str, list[str]]:
    verdict = verdict_of(result, goal)
    if not verdict.amount:
        return ": ".join(filter(None, [verdict.reason, verdict.detail])), [
            verdict.bound
        ] if verdict.bound else []
    proven = "proven" if result.gap is not None and not result.claimed else ""
    lead = [", ".join(filter(None, [verdict.gap, proven, verdict.stopped])), verdict.bound, verdict.detail]
    if result.checked:
        lead.append("checked: every capacity, budget and total is recomputed from the instance alone")
    return f"{goal.noun[:1].upper()}{goal.noun[1:]} {verdict.amount}: {verdict.reason}", [*filter(None, lead)]


def _parts(result: Any, instance: Any, look: View, goal: Goal) -> Iterator[Part]:
    if result.conflict is not None:
        limits = [Row([Cell(text) for text in cells]) for cells in rows_of(result.conflict)]
        yield Table("Contradiction", ("limit", "is", "would do"), limits)
    if result.totals:
        yield Figures(
            "Uses",
            [
                Figure(used.label, used.amount, used.of and f"of {used.of}", used.share)
                for used in uses(result.totals, instance)
            ],
        )
    if result.decision is not None:
        rows = price_rows(result.prices, goal, capacities(look, instance))
        if rows:
            note = f"what a little more of each would {goal.verb} in {goal.noun}, in the linear relaxation"
            cells = [Row([Cell(row.label), Cell(row.price, row.value), Cell(row.worth)]) for row in rows]
            yield Table("Prices", ("budget", ">price", "in words"), cells, note)
        yield from (look.parts or _listed)(instance, result.decision)
    if left := [*reasons(result.dropped), *result.faults]:
        yield Lines("Left out and not used", left)
    if result.time_s:
        phases = [Figure(name, duration(seconds)) for name, seconds in result.time_s.items()]
        size = result.size
        size_text = "" if size is None else f"{size.columns:,} columns, {size.rows:,} rows"
        yield Figures("Time", phases, size_text)


def _listed(instance: Any, decision: Any) -> Iterator[Part]:
    """Decision of a problem that has no pictures of its own, one row for every job."""
    rows = view(instance.problem).rows(decision)
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if value is not None))
    numbers = {n for n in names if all(row.get(n) is None or _is_number(row[n]) for row in rows)}
    titles = [f"{'>' if n in numbers else ''}{n.replace('_', ' ').replace('gpus', 'GPUs')}" for n in names]
    cells = [Row([_cell(row.get(name)) for name in names]) for row in rows[:MOST_ROWS]]
    yield Table("Decision", titles, cells, cut_note(len(rows)))


def cut_note(rows: int) -> str:
    """Return the note on rows that are not on the page; empty where all are."""
    return f"the first {MOST_ROWS:,} of {rows:,} rows" if rows > MOST_ROWS else ""


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell("")
    return Cell(f"{value:,.6g}", float(value)) if _is_number(value) else Cell(_spelt(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_spelt(one)}" for name, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)


def _again(result: Any, instance: Any, command: str) -> Iterator[Part]:
    lines = [command] if command else []
    # Objectives in order end with an instance of their own, in which earlier ones are limits.
    if digest := digest_of(instance) if result.limits else result.digest:
        lines.append(f"# instance: SHA-256 {digest}")
    lines.append(f"# {result.problem}, formulation {result.formulation}, solver {result.solver}")
    yield Lines("Make it again", lines, code=True)
