"""``wattsched replay``: a trace of jobs on a cluster under scheduling policies, with energy and carbon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattsched.cli.files import write
from wattsched.cli.parameters import Number, Whole
from wattsched.cli.place import Seeds, plot_file
from wattsched.cli.replay_inputs import budget_of, carbon_of, cluster_of, trace_from
from wattsched.cli.replay_journal import SUMMARY, Journal, options_of
from wattsched.cli.replay_options import (
    FORMATS,
    MOST_PRICE_S,
    MOST_S,
    Policies,
    budget_amount,
    carbon_intensity,
    input_file,
    output_folder,
    parquet_wanted,
    period,
    policy_names,
    require_consistent,
)
from wattsched.cli.replay_outputs import draw, record
from wattsched.cli.replay_runs import Run

if TYPE_CHECKING:
    from wattsched.replay.jobs.outcome import Outcome, Summary

MOST_NODES = 100_000


@click.command("replay", cls=Policies)
@click.argument("trace", callback=input_file)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="csv",
    show_default=True,
    help="csv: job, arrival_s, work, requested_gpus, and model or table.",
)
@click.option(
    "--tables", metavar="FILE", callback=input_file, help="Option tables by name (.json), for the csv format."
)
@click.option("--virtual-cluster", metavar="NAME", help="Its jobs only: of philly, and gavel's with vc.")
@click.option("--unit", type=click.Choice(["s", "h"]), help="Of the times of pai, where it cannot be told.")
@click.option("--throughputs", metavar="FILE", callback=input_file,
              help="Of job types of gavel (default: beside the trace).")  # fmt: skip
@click.option(
    "--cluster",
    "cluster_file",
    metavar="FILE",
    callback=input_file,
    help="Instance file whose cluster is taken (.json).",
)
@click.option("--nodes", type=Whole(1, MOST_NODES), default=2, show_default=True, help="Without --cluster.")
@click.option("--gpus-per-node", type=Whole(1, 64), default=8, show_default=True, help="Without --cluster.")
@click.option("--gpu-type", default="A100", show_default=True, help="Without --cluster.")
@click.option(
    "--policy", "policies", default="sizing", show_default=True, metavar="P,P", callback=policy_names,
    help="Who decides; named below.",
)  # fmt: skip
@click.option("--round", "round_s", type=Number(0, most=MOST_S), default=60.0, show_default=True,
              help="Seconds from one possible decision to the next; 0: any moment.")  # fmt: skip
@click.option("--process-restart", type=Number(0, most=MOST_S), default=10.0, show_default=True,
              help="Seconds to restart a process on other GPUs.")  # fmt: skip
@click.option("--pod-restart", type=Number(0, most=MOST_S), default=60.0, show_default=True,
              help="Seconds to terminate a pod and create another.")  # fmt: skip
@click.option("--from", "from_day", type=Number(0), default=0.0, metavar="DAY", help="Jobs from this day on.")
@click.option("--to", "to_day", type=Number(above=0), metavar="DAY", help="Jobs before this day.")
@click.option("--seeds", type=Seeds(), default="0", show_default=True, metavar="A-B",
              help="Of the models that jobs train where the trace does not tell.")  # fmt: skip
@click.option("--carbon", default="0", metavar="G|FILE", callback=carbon_intensity,
              help="Grams of CO2 per kWh, or a file of them over time (.csv).")  # fmt: skip
@click.option("--budget", metavar="Q=AMOUNT", callback=budget_amount,
              help="Of every period, idle GPUs and nodes included: energy_j, carbon_g or money.")  # fmt: skip
@click.option("--period", "period_s", default="day", show_default=True, callback=period, metavar="P",
              help="Of the budget: hour, day, week or seconds.")  # fmt: skip
@click.option("--tariff", metavar="M|FILE", callback=carbon_intensity,
              help="Money per kWh, or a file of it over time (.csv).")  # fmt: skip
@click.option("--least-price", type=Number(0, most=MOST_PRICE_S), default=0.0, show_default=True, metavar="S",
              help="Seconds of completion time that a joule (of a budget: a unit) is worth to sizing.",
              )  # fmt: skip
@click.option(
    "--sleep-after",
    type=Number(0, most=MOST_S),
    metavar="S",
    help="Nodes without a job sleep after S seconds.",
)
@click.option("--sleep-power", type=Number(0), default=0.0, metavar="W", help="Draw of a sleeping node.")
@click.option(
    "--wake", type=Number(0, most=MOST_S), default=0.0, metavar="S", help="Seconds that a node takes to wake."
)
@click.option("--gap", type=Number(0), default=5e-3, show_default=True, help="Gap of each round's program.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, alone, on standard output.")
@click.option(
    "-o", "--output", metavar="DIR", callback=output_folder, help="Write jobs, rounds and power (.csv)."
)
@click.option("--parquet", is_flag=True, callback=parquet_wanted, help="Write them as Parquet (.parquet).")
@click.option("--checkpoint", "checkpoint_s", type=Number(0), default=30.0, show_default=True, metavar="S",
              help="Wall-clock seconds between checkpoints, with -o.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on with the replays of -o that are not complete.")
@click.option("--plot", metavar="FILE", callback=plot_file, help="Draw the first seed: .png, .svg or .pdf.")
def command(
    trace: str,
    form: str,
    tables: str | None,
    cluster_file: str | None,
    nodes: int,
    gpus_per_node: int,
    gpu_type: str,
    policies: list[str],
    round_s: float,
    process_restart: float,
    pod_restart: float,
    from_day: float,
    to_day: float | None,
    seeds: list[int],
    carbon: float | str,
    budget: tuple[str, float] | None,
    period_s: float,
    tariff: float | str | None,
    least_price: float,
    sleep_after: float | None,
    sleep_power: float,
    wake: float,
    gap: float,
    as_json: bool,
    output: str | None,
    parquet: bool,
    checkpoint_s: float,
    resume: bool,
    plot: str | None,
    **reading: str | None,
) -> None:
    """Replay a trace of jobs on a cluster under policies.

    Every watt is accounted for: GPUs that jobs hold, idle ones and nodes. Times of a trace count from its
    first job.
    """
    from wattsched.replay.jobs.accounts import Sleep
    from wattsched.replay.jobs.outcome import summary
    from wattsched.replay.jobs.policy import Restarts

    given = click.get_current_context().params
    require_consistent(given)
    cluster = cluster_of(cluster_file, nodes, gpus_per_node, gpu_type)
    restarts = Restarts(process_restart, pod_restart)
    sleep = None if sleep_after is None else Sleep(sleep_after, sleep_power, wake)
    told = {name: value for name, value in reading.items() if value is not None}
    runs = []
    for seed in seeds:
        jobs = trace_from(trace, form, tables, cluster, seed, (from_day, to_day), told)
        begin_s = float(jobs.arrival_s[0])
        intensity = carbon_of(carbon, begin_s)
        limit = budget_of(budget, period_s, intensity, tariff, begin_s)
        runs.append(Run(seed, jobs, intensity, restarts, round_s, gap, sleep, limit, least_price))
    for policy in policies:
        # Before anything is written: whether each of them takes the trace,
        runs[0].policy(policy)
    for run in runs:
        # and whether the cluster can keep to the budget and sleep as asked.
        run.replay(policies[0])
    journal = None
    if output is not None:
        journal = Journal(output, options_of(given), checkpoint_s, resume=resume)
    found: dict[str, list[Summary]] = {policy: [] for policy in policies}
    drawn: list[Outcome] = []
    for policy in policies:
        for run in runs:
            outcome = run.under(policy, journal)
            found[policy].append(summary(outcome))
            if output is not None:
                record(outcome, Path(output), run.seed, as_parquet=parquet)
            if run is runs[0] and plot is not None:
                drawn.append(outcome)
    if plot is not None:
        draw(drawn, plot)
    document = json.dumps(
        {"seeds": seeds, "policies": {p: [r.as_dict() for r in of_p] for p, of_p in found.items()}}
    )
    if output is not None:
        write(str(Path(output) / SUMMARY), document + "\n")
    if as_json:
        write(None, document + "\n")
        return
    from wattsched.cli.tables.replay import print_replays
    from wattsched.report.terminal import console

    print_replays(console(), runs[0].trace, found, round_s)
