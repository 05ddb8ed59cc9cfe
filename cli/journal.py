"""``wattsched journal``: the rounds of a journal, as files, and decided again under another policy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattsched.cli.completion import named
from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import counting, write, write_json
from wattsched.cli.outputs import Command, folder_option
from wattsched.cli.parameters import Limits, Number, Whole, filling, limit_options, refuse_given
from wattsched.report.terminal import console, heading, line, table
from wattsched.report.wording import count, number
from wattsched.serve.replays import LIMITS, PER_KWH, Policy

if TYPE_CHECKING:
    from wattsched.serve.journal import Journal
    from wattsched.serve.replays import Replayed
    from wattsched.serve.rounds import Round, RoundLine


@click.command("journal", cls=Command)
@click.argument("file")
@click.option("--session", metavar="NAME", help="Its rounds alone; needed where there are several sessions.")
@click.option(
    "--round", "round_number", type=Whole(1, 2**63 - 1), metavar="N", help="This round, for -o and --replay."
)
@click.option("--last", type=Whole(1), default=20, help="So many of the newest rounds.")
@folder_option("Write a round's instance and result into this folder.")
@click.option("--replay", is_flag=True, help="Decide the rounds again, with these options:")
@filling(
    "policy",
    Policy,
    **named("objective", "formulation", "solver"),
    **{name: {"type": Number(above=0)} for name in LIMITS},
    carbon_g_per_kwh={"type": Number(least=0)},
    price_per_kwh={"type": Number()},
)
@limit_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, alone, on standard output.")
def command(
    file: str,
    session: str | None,
    round_number: int | None,
    last: int,
    output: str | None,
    replay: bool,
    policy: Policy,
    limits: Limits,
    as_json: bool,
) -> None:
    """List the sessions and rounds of the journal in FILE, which may be in use.

    With -o a round becomes files for 'wattsched check', 'show' and 'solve'. With --replay every round is
    decided again, with the jobs and what ran as they were then, to see what another policy would have done.
    """
    if not replay:
        names = ("objective", "formulation", "solver", *LIMITS, *PER_KWH)
        refuse_given(names, "says how to decide again, and needs --replay")
    from wattsched.serve.journal import Journal

    with Journal(file, read_only=True) as journal:
        if output is not None:
            if round_number is None:
                raise BadInput("-o: needs --round N, the round to write")
            _export(journal, _session(journal, session), round_number, Path(output))
        elif replay:
            name = _session(journal, session)
            lines = _chosen(journal, name, round_number)
            with refusing():
                found = _replay([journal.round(name, one.number) for one in lines[-last:]], policy, limits)
            _tell_replay(name, found, as_json)
        else:
            names_told = journal.sessions() if session is None else [_session(journal, session)]
            rounds = {name: _chosen(journal, name, round_number) for name in names_told}
            _tell(rounds, {name: len(journal.rounds(name)) for name in names_told}, last, as_json)


def _session(journal: Journal, session: str | None) -> str:
    """Name of the session that is meant: the one that is asked for, or the only one."""
    names = journal.sessions()
    if session is None and len(names) == 1:
        return names[0]
    if session is None:
        raise BadInput(f"--session: which of {', '.join(names)}?" if names else "there are no sessions")
    if session not in names:
        raise BadInput(f"--session: there is no '{session}', choose one of {', '.join(names) or 'none'}")
    return session


def _chosen(journal: Journal, name: str, round_number: int | None) -> list[RoundLine]:
    """Rounds of a session: all, or the one that is asked for."""
    lines = [one for one in journal.rounds(name) if round_number in (None, one.number)]
    if round_number is not None and not lines:
        raise BadInput(f"--round: '{name}' has no round {round_number}, or not any more")
    return lines


def _export(journal: Journal, name: str, round_number: int, folder: Path) -> None:
    """Write the instance and the result of a round of a session into a folder."""
    from wattsched.instances.io import document_text

    decision = journal.round(name, round_number).decision
    folder.mkdir(exist_ok=True)
    for what, model in (("instance", decision.instance), ("result", decision.result)):
        write(str(folder / f"{name}-{round_number}-{what}.json"), document_text(model))


def _tell(rounds: dict[str, list[RoundLine]], kept: dict[str, int], last: int, as_json: bool) -> None:
    """Print the last rounds of each session, and of how many that are kept."""
    chosen = {name: lines[-last:] for name, lines in rounds.items()}
    if as_json:
        return write_json({name: [asdict(one) for one in lines] for name, lines in chosen.items()})
    out = console()
    for name, lines in chosen.items():
        heading(out, name, f"{count(len(lines), 'round')} of {kept[name]:,}")
        titles = ["round", "decided", "applied", ">jobs", ">running"]
        titles += [">changes", ">objective", ">W", ">ms", "ended"]
        table(out, titles, [_cells(one) for one in lines])


def _cells(one: RoundLine) -> list[str]:
    """Row of a round in the table of a session."""
    return [
        str(one.number),
        _clock(one.time),
        "" if one.applied is None else _clock(one.applied),
        *map(_figure, (one.jobs, one.running, one.changes, one.objective, one.power_w)),
        f"{1e3 * one.solve_s:.1f}",
        one.termination,
    ]


def _clock(moment_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment_s))


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else number(value)


def _replay(rounds: Sequence[Round], policy: Policy, limits: Limits) -> list[Replayed]:
    from wattsched.serve.replays import replayed

    found = []
    with counting() as show:
        for done, made in enumerate(rounds, start=1):
            found.append(replayed(made, policy, **asdict(limits)))
            show(f"round {made.number}", done, len(rounds))
    return found


KINDS = ("objective", "power_w", "running", "changes")
FIGURES = [figure for kind in KINDS for figure in (kind, f"was_{kind}")]
"""Figures of a round that is decided again, each followed by what it was."""


def _tell_replay(name: str, found: Sequence[Replayed], as_json: bool) -> None:
    """Print the rounds of a session that were decided again, beside what was decided then, and the sums."""
    if as_json:
        return write_json({"session": name, "rounds": [asdict(one) for one in found]})
    out = console()
    heading(out, name, "decided again; the columns 'was' are of the recorded decisions")
    columns = [[getattr(one, name) for one in found] for name in FIGURES]
    rows = [[str(one.number), *(_figure(getattr(one, name)) for name in FIGURES)] for one in found]
    if len(found) > 1:
        # Of the objective and watts only where all rounds have them.
        rows.append(["sum", *("" if None in column else _figure(sum(column)) for column in columns)])
    titles = ["round", ">objective", ">was", ">W", ">was", ">running", ">was", ">changes", ">was"]
    table(out, titles, rows)
    undecided = sum(one.objective is None for one in found)
    if undecided:
        line(out, f"{count(undecided, 'round')} without a decision under this policy")
    return None
