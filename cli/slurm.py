"""``wattsched slurm``: decide what a Slurm cluster runs, round after round, and do it."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import NO_SOLUTION, BadInput
from wattsched.cli.outputs import Command, Output
from wattsched.cli.parameters import FileName, Number, filling, refuse_given

if TYPE_CHECKING:
    from wattsched.adapters.slurm.loop import Report, Rounds

MOST_S = 86_400


@dataclass(frozen=True)
class Asked:
    """How rounds are decided.

    Parameters
    ----------
    power_w : float, optional
        Watts that the site may draw.
    budget : str, optional
        File with the watts and announced changes (.json), read anew in every round.
    options : str, optional
        File of the site: watts of GPU types, options of jobs (.json).
    objective : str
        What is optimised.
    every : float
        Seconds from round to round.
    deadline : float
        Seconds for a decision.
    start_within : float
        Seconds after which a released job that has not started is held again.
    change_cost : float
        Price of a running job that stops or changes, in the unit of the objective.
    """

    power_w: float | None = None
    budget: str | None = None
    options: str | None = None
    objective: str = "work-value"
    every: float = 30.0
    deadline: float = 5.0
    start_within: float = 60.0
    change_cost: float = 0.0


SECONDS = Number(above=0, most=MOST_S)


@click.command("slurm", cls=Command)
@click.option("--shadow", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option("--apply", "do_apply", is_flag=True, help="Release, pin and requeue jobs.")
@click.option("--once", is_flag=True, help="One round, and no more.")
@filling(
    "asked",
    Asked,
    power_w={"type": Number(above=0), "metavar": "W"},
    budget={"type": FileName(), "metavar": "FILE"},
    options={"type": FileName(), "metavar": "FILE"},
    objective={"metavar": "NAME"},
    every={"type": SECONDS, "metavar": "S"},
    deadline={"type": SECONDS, "metavar": "S"},
    start_within={"type": SECONDS, "metavar": "S"},
    change_cost={"type": Number(0), "metavar": "C"},
)
@click.option("--account", "accounts", multiple=True, metavar="NAME", help="Its jobs are ours.")
@click.option("--qos", multiple=True, metavar="NAME", help="Its jobs are ours.")
@click.option("--partition", "partitions", multiple=True, metavar="NAME", help="Its jobs are ours.")
@click.option("--settings", type=Output(), metavar="DIR", help="Files with clocks and limits for the prolog.")
@click.option("--journal", metavar="FILE", help="What was decided and done (SQLite).")
@click.option("--snapshot", type=FileName(), metavar="FILE", help="Use a saved snapshot, no Slurm.")
@click.option("--record", type=Output((".json",)), metavar="FILE", help="Save what Slurm says (.json).")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each round on standard output.")
def command(
    shadow: bool,
    do_apply: bool,
    once: bool,
    asked: Asked,
    accounts: tuple[str, ...],
    qos: tuple[str, ...],
    partitions: tuple[str, ...],
    settings: str | None,
    journal: str | None,
    snapshot: str | None,
    record: str | None,
    as_json: bool,
) -> int:
    """Decide what a Slurm cluster runs, round after round.

    Ours are jobs that were submitted held with a comment such as '{"wattsched": {}}', or are of one of the
    accounts, QOS or partitions. All others are left alone and count as load.
    """
    from wattsched.adapters.budget import Budget
    from wattsched.adapters.options import stated_in
    from wattsched.adapters.slurm.actions import Actions
    from wattsched.adapters.slurm.loop import Policy, Rounds
    from wattsched.adapters.slurm.options import Ours, SiteOptions
    from wattsched.adapters.slurm.snapshot import Snapshot, load, save, take
    from wattsched.serve.journal import Journal

    _require_sense(shadow, do_apply, asked, journal, snapshot)
    once = once or snapshot is not None
    policy = Policy(
        ours=Ours(accounts, qos, partitions),
        options=stated_in(asked.options, SiteOptions),
        objective=asked.objective,
        every_s=asked.every,
        deadline_s=asked.deadline,
        start_s=asked.start_within,
        change_cost=asked.change_cost,
        apply=do_apply,
    )
    budget = Budget(asked.power_w, asked.budget, ahead_s=asked.every + asked.deadline + 30.0)
    budget.cap_w(time.time())  # a file that cannot be read is refused before anything is done

    def look(time_s: float) -> Snapshot:
        found = take(time_s) if snapshot is None else load(snapshot)
        if record is not None:
            save(record, found)
        return found

    with TemporaryDirectory(prefix="wattsched-") as folder:
        file = Path(folder) / "journal" if journal is None else Path(journal)
        with Journal(file) as kept:
            folder_of_settings = None if settings is None else Path(settings)
            rounds = Rounds(policy, budget, kept, lambda of: Actions(of, folder_of_settings), look)
            with _stopping(rounds):
                return _follow(rounds, once=once, as_json=as_json, do_apply=do_apply)


def _require_sense(
    shadow: bool, do_apply: bool, asked: Asked, journal: str | None, snapshot: str | None
) -> None:
    """Refuse options that do not go together."""
    if shadow == do_apply:
        raise BadInput("give one of --shadow, which changes nothing, and --apply")
    if do_apply and snapshot is not None:
        raise BadInput("--snapshot: a saved snapshot can only be looked at, with --shadow")
    if do_apply and journal is None:
        raise BadInput("--apply needs --journal FILE, which keeps what was done")
    if asked.budget is not None and asked.power_w is not None:
        raise BadInput("--power-w: cannot be combined with --budget, which states the watts")
    if not do_apply:
        refuse_given(("settings",), "needs --apply: in shadow mode nothing is written for the prolog")


@contextmanager
def _stopping(rounds: Rounds) -> Iterator[None]:
    """End after the action in progress on SIGINT and SIGTERM."""

    def end(*_: object) -> None:
        rounds.stop.set()

    before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _follow(rounds: Rounds, *, once: bool, as_json: bool, do_apply: bool) -> int:
    """Tell of each round; the exit code."""
    from wattsched.adapters.slurm.loop import Report
    from wattsched.adapters.slurm.snapshot import SlurmError

    code = 0
    for told in rounds:
        if isinstance(told, Report):
            code = 0
            _tell(told, do_apply=do_apply, details=not as_json and once)
            document: dict[str, Any] = told.document()
        else:
            if once and not isinstance(told, SlurmError):
                raise told
            code = NO_SOLUTION
            click.echo(f"no round: {told}", err=True)
            document = {"error": str(told)}
        if as_json:
            click.echo(json.dumps(document))
            sys.stdout.flush()
        if once:
            break
    return code


def _tell(report: Report, *, do_apply: bool, details: bool) -> None:
    """A line on standard error, and what is to be known besides."""
    from wattsched.report.terminal import console, line
    from wattsched.report.wording import count, gap_text

    out, would = console(stderr=True), "" if do_apply else "would be "
    gap = "" if report.gap is None else f", {gap_text(report.gap)}"
    cap = "no cap" if report.cap_w is None else f"of {report.cap_w / 1000:,.2f} kW"
    over = report.cap_w is not None and report.power_w > report.cap_w
    line(
        out,
        (f"round {report.number}", "bold"),
        f": {count(report.running, 'job')} on GPUs, {report.queued} queued; {would}started "
        f"{len(report.started)}, stopped {len(report.stopped)}, held again {len(report.held_again)}; ",
        (f"{report.power_w / 1000:,.2f} kW {cap}", "bold red" if over else "bold"),
        f"; {report.reason}{gap}, {report.took_s:.2f} s",
    )
    if details:
        for verb, jobs in (
            ("start", report.started),
            ("stop", report.stopped),
            ("hold again", report.held_again),
            ("wait", report.waiting),
        ):
            for number, how in jobs.items():
                line(out, f"{verb} {number}: {how}", indent=2)
    for note in report.notes:
        line(out, ("note", "yellow"), f": {note}", indent=2)
