"""``wattsched slurm``: decide what a Slurm cluster runs, round after round, and do it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

import click

from wattsched.cli.completion import named
from wattsched.cli.failures import NO_SOLUTION, BadInput
from wattsched.cli.following import (
    Jobs,
    follow,
    measured,
    metrics_at,
    require_sense,
    stopping,
    tell_given_back,
)
from wattsched.cli.outputs import Command, Output
from wattsched.cli.parameters import FileName, Number, filling, journal_quota, refuse_given
from wattsched.inputs import printable

if TYPE_CHECKING:
    from wattsched.adapters.slurm.loop import Report

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
    recount : float, optional
        Have Slurm count its GPUs anew (scontrol reconfigure) where it has counted some as used for S seconds
        that no job has. It reads slurm.conf again, too.
    change_cost : float
        Price of a running job that stops, moves or changes, in the unit of the objective.
    """

    power_w: float | None = None
    budget: str | None = None
    options: str | None = None
    objective: str = "work-value"
    every: float = 30.0
    deadline: float = 5.0
    start_within: float = 60.0
    recount: float | None = None
    change_cost: float = 0.0


SECONDS = Number(above=0, most=MOST_S)


@click.command("slurm", cls=Command)
@click.option("--shadow", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option("--apply", "do_apply", is_flag=True, help="Release, pin and requeue jobs.")
@click.option("--give-back", is_flag=True, help="Leave our jobs to Slurm: release what waits, and end.")
@click.option("--once", is_flag=True, help="One round, and no more.")
@filling(
    "asked",
    Asked,
    power_w={"type": Number(above=0), "metavar": "W"},
    budget={"type": FileName(), "metavar": "FILE"},
    options={"type": FileName(), "metavar": "FILE"},
    **named("objective"),
    every={"type": SECONDS, "metavar": "S"},
    deadline={"type": SECONDS, "metavar": "S"},
    start_within={"type": SECONDS, "metavar": "S"},
    recount={"type": SECONDS, "metavar": "S"},
    change_cost={"type": Number(0), "metavar": "C"},
)
@click.option("--account", "accounts", multiple=True, metavar="NAME", help="Its jobs are ours.")
@click.option("--qos", multiple=True, metavar="NAME", help="Its jobs are ours.")
@click.option("--partition", "partitions", multiple=True, metavar="NAME", help="Its jobs are ours.")
@click.option("--settings", type=Output(), metavar="DIR", help="Files with clocks and limits for the prolog.")
@click.option("--journal", metavar="FILE", help="Write what was decided and done (SQLite).")
@journal_quota
@metrics_at
@click.option(
    "--snapshot", type=FileName(), metavar="FILE", help="Decide of a saved snapshot, without Slurm."
)
@click.option("--record", type=Output((".json",)), metavar="FILE", help="Save what Slurm says (.json).")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each round on standard output.")
def command(
    shadow: bool,
    do_apply: bool,
    give_back: bool,
    once: bool,
    asked: Asked,
    accounts: tuple[str, ...],
    qos: tuple[str, ...],
    partitions: tuple[str, ...],
    settings: str | None,
    journal: str | None,
    journal_quota: float,
    metrics: str | None,
    snapshot: str | None,
    record: str | None,
    as_json: bool,
) -> int:
    """Decide what a Slurm cluster runs, round after round.

    Ours are jobs that were submitted held with a comment such as '{"wattsched": {}}', or are of one of the
    accounts, QOS or partitions. All others are left alone and count as load.
    """
    from wattsched.adapters.budget import Budget
    from wattsched.adapters.names import require_names
    from wattsched.adapters.options import stated_in
    from wattsched.adapters.rounds import require_work
    from wattsched.adapters.slurm.actions import Actions
    from wattsched.adapters.slurm.lease import Lease, identity_of
    from wattsched.adapters.slurm.loop import Policy, Rounds
    from wattsched.adapters.slurm.options import Ours, SiteOptions
    from wattsched.adapters.slurm.reading import read
    from wattsched.adapters.slurm.site import stated_names
    from wattsched.adapters.slurm.snapshot import SlurmError, Snapshot, accounting, load, save, take
    from wattsched.serve.journal import Journal
    from wattsched.serve.permissions import published_folder

    if give_back and (shadow or do_apply):
        raise BadInput("--give-back: cannot be combined with --shadow or --apply")
    do_apply = do_apply or give_back
    _require_sense(shadow, do_apply, asked, journal, snapshot)
    require_work(asked.objective)
    once = once or snapshot is not None
    policy = Policy(
        ours=Ours(accounts, qos, partitions),
        options=stated_in(asked.options, SiteOptions),
        objective=asked.objective,
        every_s=asked.every,
        deadline_s=asked.deadline,
        start_s=asked.start_within,
        recount_s=asked.recount,
        change_cost=asked.change_cost,
        apply=do_apply,
    )
    budget = Budget(
        asked.power_w,
        asked.budget,
        ahead_s=asked.every + asked.deadline + 30.0,
        fail_safe_w=policy.options.fail_safe_w,
    )
    if snapshot is not None:
        budget.stand_at(read(load(snapshot)).time_s)
    budget.cap()  # a file that cannot be read is refused before anything is done

    def look(time_s: float) -> Snapshot:
        found = take(time_s) if snapshot is None else load(snapshot)
        if record is not None:
            save(record, found)
        return found

    try:
        if do_apply or once:
            site = read(take(time.time()) if snapshot is None else load(snapshot))
            known = accounting() if snapshot is None else None
            names = stated_names(site, policy.options, policy.ours, known)
            require_names(names, partial(click.echo, err=True), apply=do_apply and not give_back)
    except SlurmError as error:
        click.echo(f"no round: {error}", err=True)
        return NO_SOLUTION
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="wattsched-"))
        path = Path(folder) / "journal" if journal is None else Path(journal)
        kept = stack.enter_context(Journal(path, quota_mb=journal_quota))
        stop = Event()
        stack.enter_context(stopping(stop, kept))
        actions = partial(Actions, settings=None if settings is None else published_folder(settings))
        if do_apply and journal is not None:
            try:
                lease = Lease(identity_of(journal), partial(click.echo, err=True))
                actions = partial(actions, require=stack.enter_context(lease).require)
            except SlurmError as error:
                click.echo(f"no round: {printable(str(error))}", err=True)
                return NO_SOLUTION
        rounds = Rounds(policy, budget, kept, actions, look)
        rounds.stop = stop
        if give_back:
            return tell_given_back(rounds.give_back(), "job ")
        note = stack.enter_context(measured(metrics, kept))
        return follow(rounds, jobs_of, once=once, as_json=as_json, do_apply=do_apply, note=note)


def _require_sense(
    shadow: bool, do_apply: bool, asked: Asked, journal: str | None, snapshot: str | None
) -> None:
    """Refuse options that do not go together."""
    require_sense(shadow, do_apply, journal, snapshot)
    if asked.budget is not None and asked.power_w is not None:
        raise BadInput("--power-w: cannot be combined with --budget, which states the watts")
    if not do_apply:
        refuse_given(("settings",), "needs --apply: in shadow mode nothing is written for the prolog")
        refuse_given(("recount",), "needs --apply: in shadow mode Slurm is asked for nothing")


def jobs_of(report: Report) -> Jobs:
    """Jobs of a round, by what is done to them."""
    return {
        "start": report.started,
        "stop": report.stopped,
        "hold again": report.held_again,
        "postpone": report.postponed,
        "wait": report.waiting,
    }
