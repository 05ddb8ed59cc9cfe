"""``wattsched journal``: what sessions decided, and what others would have decided in their place."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import content_of, shown, stray_output_to_stderr, write
from wattsched.cli.outputs import Command, folder_option
from wattsched.cli.parameters import Number, Whole
from wattsched.report.terminal import console, line, progress, table
from wattsched.report.wording import gap_text
from wattsched.solvers.solution import relative_gap

if TYPE_CHECKING:
    from wattsched.result import Result
    from wattsched.serve.journal import Journal
    from wattsched.serve.rounds import RoundLine
    from wattsched.session_decision import SessionDecision

ROUND_COLUMNS = (
    ">round", "made", "ended", ">objective", ">gap", ">run", ">wait", ">power", ">changed", ">took",
    "applied",
)  # fmt: skip
AGAIN_COLUMNS = (
    ">round", ">objective", ">instead", ">power", ">instead", ">run", ">instead", ">restarts", ">instead",
    "no decision",
)  # fmt: skip


@click.command("journal", cls=Command)
@click.argument("file")
@click.option("--session", metavar="NAME", help="The session (default: the only one).")
@click.option("--last", type=Whole(), default=20, show_default=True, help="How many rounds, the latest ones.")
@click.option("--round", "number", type=Whole(), help="One round.")
@folder_option("With --round: its instance.json and result.json in this folder.")
@click.option("--objective", help="Decide the rounds again: under another objective,")
@click.option("--formulation", help="by another formulation,")
@click.option("--solver", help="by another solver or heuristic,")
@click.option("--power-w", metavar="WATTS", type=Number(above=0), help="under another power budget.")
@click.option("--time-limit", metavar="SECONDS", type=Number(above=0), help="For each of them.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def command(
    file: str,
    session: str | None,
    last: int,
    number: int | None,
    output: str | None,
    objective: str | None,
    formulation: str | None,
    solver: str | None,
    power_w: float | None,
    time_limit: float | None,
    as_json: bool,
) -> None:
    """List the sessions and rounds of a journal FILE, export a round, or decide rounds again.

    FILE is only read, also while a service writes it. Rounds that are decided again stand for themselves:
    each begins with what really ran before it.
    """
    from wattsched.serve.journal import Journal

    if output is not None and number is None:
        raise BadInput("-o: goes with --round, of which it takes the instance and the result")
    other = {"objective": objective, "formulation": formulation, "solver": solver}
    asked = {name: value for name, value in other.items() if value is not None}
    with Journal(file, read_only=True) as journal:
        name = _session_of(journal, session, file)
        if name is None:
            _print_sessions(journal, as_json)
            return
        rounds = _rounds_of(journal, name, number, last)
        if output is not None and number is not None:
            _export(journal, name, number, output)
        elif asked or power_w is not None:
            _decide_again(journal, name, rounds, asked, power_w, time_limit, as_json)
        else:
            _print_rounds(name, rounds, as_json)


def _session_of(journal: Journal, session: str | None, file: str) -> str | None:
    """The session that is meant; None where all of them are."""
    names = journal.sessions()
    if session is None:
        return names[0] if len(names) == 1 else None
    if session not in names:
        known = ", ".join(map(shown, names)) or "none"
        raise BadInput(f"{shown(file)}: there is no session '{shown(session)}'; sessions: {known}")
    return session


def _rounds_of(journal: Journal, session: str, number: int | None, last: int) -> list[RoundLine]:
    rounds = journal.rounds(session)
    if number is None:
        return rounds[-last:]
    found = [one for one in rounds if one.number == number]
    if not found:
        kept = f"{rounds[0].number} to {rounds[-1].number}" if rounds else "none"
        raise BadInput(f"--round {number}: is not kept; rounds of session '{shown(session)}': {kept}")
    return found


def _print_sessions(journal: Journal, as_json: bool) -> None:
    rows = []
    for name in journal.sessions():
        rounds = journal.rounds(name)
        latest = _moment(rounds[-1].time) if rounds else ""
        rows.append({"session": name, "rounds": len(rounds), "latest": latest})
    if as_json:
        click.echo(json.dumps(rows))
        return
    if not rows:
        line(console(), "no session")
        return
    table(console(), ["session", ">rounds", "latest"], [[str(value) for value in r.values()] for r in rows])


def _print_rounds(session: str, rounds: list[RoundLine], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(one) for one in rounds]))
        return
    out = console()
    line(out, (session, "bold"), f": {len(rounds):,} rounds shown" if rounds else ": no round yet")
    rows = [
        [
            str(one.number), _moment(one.time), one.termination.replace("_", " "), _amount(one.objective),
            _gap(one), _count(one.running), _count(one.jobs - one.running), _watts(one.power_w),
            _count(one.changes), f"{1e3 * one.solve_s:,.0f} ms", "yes" if one.applied else "",
        ]
        for one in rounds
    ]  # fmt: skip
    if rows:
        table(out, ROUND_COLUMNS, rows)


def _gap(one: RoundLine) -> str:
    if one.objective is None or one.bound is None:
        return ""
    return gap_text(relative_gap(one.objective, one.bound)).removeprefix("gap ")


def _export(journal: Journal, session: str, number: int, folder: str) -> None:
    decision = journal.round(session, number).decision
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, model in (("instance.json", decision.instance), ("result.json", decision.result)):
        target = str(Path(folder) / name)
        write(target, content_of(model, target))


def _decide_again(
    journal: Journal,
    session: str,
    rounds: list[RoundLine],
    asked: dict[str, Any],
    power_w: float | None,
    time_limit: float | None,
    as_json: bool,
) -> None:
    """Rounds under another policy, beside what was decided."""
    from wattsched.engine import solve

    found: list[tuple[int, SessionDecision, Result]] = []
    with progress("deciding rounds again"), stray_output_to_stderr(), refusing():
        for one in rounds:
            before = journal.round(session, one.number).decision
            instance = before.instance
            if power_w is not None:
                budgets = instance.budgets.model_copy(update={"power_w": power_w})
                instance = instance.model_copy(update={"budgets": budgets})
            gap = before.result.gap_asked or 0.0
            found.append(
                (one.number, before, solve(instance, time_limit=time_limit, gap=gap, prove=0.0, **asked))
            )
    if as_json:
        told = [
            {"round": number, **{which: _told(one) for which, one in (("decided", a.result), ("instead", b))}}
            for number, a, b in found
        ]
        click.echo(json.dumps(told))
        return
    rows = []
    for number, before, after in found:
        pairs = [
            (_amount(one.objective), _watts(one.totals.get("power_w")), _runs(one), _restarts(one))
            for one in (before.result, after)
        ]
        lacking = "" if after.solved else after.termination.detail or after.termination.reason
        rows.append([str(number), *(cell for pair in zip(*pairs, strict=True) for cell in pair), lacking])
    table(console(), AGAIN_COLUMNS, rows)


def _told(result: Result) -> dict[str, Any]:
    """What a row of JSON says of a decision."""
    return {
        "reason": result.termination.reason,
        "objective_name": result.objective_name,
        "objective": result.objective,
        "bound": result.bound,
        "running": None if result.decision is None else len(result.decision.jobs),
        **result.totals,
    }


def _runs(result: Result) -> str:
    return "" if result.decision is None else f"{len(result.decision.jobs):,}"


def _restarts(result: Result) -> str:
    return _count(result.totals.get("restarts"))


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _amount(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _watts(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f} W"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
