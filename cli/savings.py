"""``wattsched savings``: what a cluster would save under policies, against what it does now."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, get_args

import click

from wattsched.cli.completion import completing, replay_policies
from wattsched.cli.executors import dask_option, spread
from wattsched.cli.failures import refusing
from wattsched.cli.files import counting, write_json
from wattsched.cli.importing import ClusterOptions, cluster_options
from wattsched.cli.outputs import folder_option, json_option, report_option, write_page
from wattsched.cli.parameters import Described, FileName, Listed, Number, filling, refuse_given, seeds_option
from wattsched.cli.replay_options import (
    DRAWS,
    MOST_GPUS_PER_NODE,
    MOST_NODES,
    TIMES,
    PerKwh,
    checkpoint_options,
    policies_known,
    policy_option,
    require_learner,
    site_of,
    source_options,
)
from wattsched.environment.extras import late
from wattsched.instances.errors import require_known
from wattsched.replay.jobs.budget import PACINGS
from wattsched.replay.jobs.policies import base_of, require_policy
from wattsched.replaying.accounting import By
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import Journal
from wattsched.report.replays import EXACT
from wattsched.report.savings import tables_of, verdict
from wattsched.report.terminal import console, heading, line, table
from wattsched.report.wording import count

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.replay.jobs.budget import Pacing
    from wattsched.replay.jobs.simulation import Replay
    from wattsched.report.saved import Savings


BUDGETS = ("budget", "pacing", "least_price")
SLEEP = ("sleep_after_s", "sleep_power_w", "wake_s", "gpu_limit_w")
"""Settings that are none of the command's: budgets follow, no node sleeps, and limits of GPUs are swept."""


@click.command("savings", cls=Described, sections=policies_known)
@click.argument("file", metavar="TRACE", type=FileName())
@source_options(model_errors={"name": "--model-errors/--no-model-errors", "default": True})
@cluster_options(most_nodes=MOST_NODES, most_gpus_per_node=MOST_GPUS_PER_NODE)
@click.option(
    "--baseline",
    default="backfill",
    metavar="P",
    shell_complete=completing(replay_policies),
    help="The policy that stands for what the cluster does now.",
)
@policy_option("powerflow,sizing", "Policies that might take its place; named below.")
@filling(
    "settings",
    ReplaySettings,
    (*BUDGETS, *SLEEP),
    **TIMES,
    tariff={"name": "--price", "type": PerKwh(negative=True), "metavar": "M|FILE"},
    gap={"type": Number(0), "default": 1e-2},
)
@click.option(
    "--pacing",
    type=click.Choice(PACINGS),
    default="even",
    help="How a budget is spent: evenly, at a price that is learned, by a plan for the jobs to come, or at "
    "will.",
)
@click.option(
    "--by",
    type=Listed("part", partial(require_known, "by", known=get_args(By))),
    default=(),
    metavar="PART,...",
    help="Split energy, CO2 and money by account, by month, or by both.",
)
@seeds_option(None, f"{DRAWS} (default: 0-2).")
@click.option(
    "--inputs/--no-inputs", default=True, help="Say how much hangs on inputs that nobody knows for sure."
)
@dask_option("the replays")
@folder_option("Keep the replays there, so that an interrupted study can go on.")
@checkpoint_options
@report_option("what is saved, the frontiers and who loses")
@json_option("all figures")
def command(
    source: JobSource,
    cluster: ClusterOptions,
    baseline: str,
    policies: list[str],
    settings: ReplaySettings,
    pacing: Pacing,
    by: list[By],
    seeds: list[int] | None,
    inputs: bool,
    dask: str | None,
    output: str | None,
    checkpoint_s: float,
    resume: bool,
    report: str | None,
    as_json: bool,
) -> None:
    """Say what a cluster would save: energy at the same completion time, completion time at the same energy.

    TRACE is replayed under the baseline, and under each policy within several budgets. What is saved is told
    with its interval over the seeds, with who would be served later, and with what it hangs on.
    """
    from wattsched.replaying.savings import savings

    require_learner(pacing, policies)
    if output is None:
        refuse_given(("checkpoint_s", "resume"), "needs -o, the folder of the replays")
    with refusing():
        require_policy(baseline)
        # The baseline's schedule, with tuned power limits.
        limits_alone = f"{base_of(baseline)}+zeus{EXACT if EXACT in baseline else ''}"
        policies = [limits_alone] * (limits_alone not in (baseline, *policies)) + policies
        options = {**vars(source), **vars(cluster)}
        journal = None if output is None else Journal(output, checkpoint_s, resume, options)
        site, settings = site_of(cluster, settings)
    with counting() as show, spread(dask) as executor, refusing():
        last: Replay | None = None
        begun = total = 0

        def progress(replay: Replay, seed: int, resumed: bool) -> None:
            """Show how many jobs of a replay are complete; another replay than the last is the next."""
            nonlocal last, begun
            if replay is not last:
                last, begun = replay, begun + 1
            what = f"replay {begun} of about {total}: {replay.name}, seed {seed}"
            if resumed:
                click.echo(f"{what}: going on with {replay.complete:,} jobs complete", err=True)
            show(what, replay.complete, len(replay.trace))

        def planned(replays: int, more: int) -> None:
            """Say how many replays are to come, and how many more with other inputs."""
            nonlocal total
            total = replays + more
            further = (
                f", and about {more} more for what the answer hangs on (--no-inputs: none)" if more else ""
            )
            click.echo(f"at most {count(replays, 'replay')} to come{further}", err=True)

        def finished(policy: str, seed: int) -> None:
            """Show which replay of an executor has ended."""
            nonlocal begun
            if executor is not None:
                begun += 1
                show(f"replay {begun} of about {total}: {policy}, seed {seed}", begun, total)

        found = savings(
            source,
            site,
            baseline=baseline,
            policies=policies,
            seeds=seeds,
            settings=settings,
            pacing=pacing,
            inputs=None if inputs else (),
            by=by,
            journal=journal,
            executor=executor,
            progress=progress,
            finished=finished,
            planned=planned,
        )
    cluster.tell()
    write_page(report, late("report.savings:page_of"), found)
    if as_json:
        write_json(found.as_dict())
    else:
        print_savings(console(), found)


def print_savings(out: Console, found: Savings) -> None:
    """Print what is saved, the frontiers, who loses, what it hangs on, and what is assumed."""
    told, losses = verdict(found)
    line(out, told)
    if losses:
        line(out, losses)
    for doubt in found.doubts:
        line(out, f"doubtful: {doubt}")
    for title, note, columns, rows in tables_of(found):
        if rows:
            heading(out, title, note)
            table(out, columns, rows)
    heading(out, "Assumed")
    for sentence in found.assumptions:
        line(out, sentence, indent=2)
