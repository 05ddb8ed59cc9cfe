"""``wattsched replay``: a trace of jobs on a cluster under scheduling policies, with energy and carbon."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from wattsched.cli.failures import BadInput, reason, refusing
from wattsched.cli.files import STANDARD, write
from wattsched.cli.files import written as say_written
from wattsched.cli.parameters import Number, Whole, option_name
from wattsched.cli.place import Seeds, plot_file

if TYPE_CHECKING:
    from wattsched.replay.jobs.accounts import Carbon, Sleep
    from wattsched.replay.jobs.metrics import Summary
    from wattsched.replay.jobs.outcome import Outcome
    from wattsched.replay.jobs.policy import Policy, Restarts
    from wattsched.replay.jobs.trace import Trace
    from wattsched.topology.cluster import Cluster

DAY_S = 86_400.0
MOST_NODES = 100_000
MOST_G_PER_KWH = 1_000_000
Progress = Callable[[float, int], None]


class Policies(click.Command):
    """A command whose help ends with the names of the policies."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the names, from the registry."""
        from wattsched.replay.jobs.policies import names

        with formatter.section("Policies"):
            formatter.write_text(", ".join(names()))


def _policies(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    from wattsched.replay.jobs.policies import names

    known, asked = names(), [name.strip() for name in text.split(",")]
    for number, name in enumerate(asked):
        if name not in known:
            raise click.BadParameter(f"there is no policy '{name}'; there are {', '.join(known)}", ctx, param)
        if name in asked[:number]:
            raise click.BadParameter(f"the policy '{name}' is named twice", ctx, param)
    return asked


def _folder(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name in ("", STANDARD):
        raise click.BadParameter(f"'{name}' is not a folder: there are several files to write", ctx, param)
    if name is not None and Path(name).exists() and not Path(name).is_dir():
        raise click.BadParameter(f"'{name}' is not a folder", ctx, param)
    if name is not None and not Path(name).resolve().parent.is_dir():
        raise click.BadParameter(f"the folder '{Path(name).parent}' does not exist", ctx, param)
    return name


def _carbon_option(ctx: click.Context, param: click.Parameter, text: str) -> float | str:
    if text.endswith((".csv", ".csv.gz")):
        return text
    g_per_kwh = Number(0).convert(text, param, ctx)
    if g_per_kwh > MOST_G_PER_KWH:
        raise click.BadParameter(f"must be at most {MOST_G_PER_KWH:,}, got {text}", ctx, param)
    return g_per_kwh


@click.command("replay", cls=Policies)
@click.argument("trace")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "itp", "philly"]),
    default="csv",
    show_default=True,
    help="csv: job, arrival_s, work, requested_gpus, and model or table.",
)
@click.option("--tables", metavar="FILE", help="Option tables by name (.json), for the csv format.")
@click.option(
    "--cluster", "cluster_file", metavar="FILE", help="Instance file whose cluster is taken (.json)."
)
@click.option("--nodes", type=Whole(1, MOST_NODES), default=2, show_default=True, help="Without --cluster.")
@click.option("--gpus-per-node", type=Whole(1, 64), default=8, show_default=True, help="Without --cluster.")
@click.option("--gpu-type", default="A100", show_default=True, help="Without --cluster.")
@click.option(
    "--policy", "policies", default="elastic", show_default=True, metavar="P,P", callback=_policies,
    help="Who decides; named below.",
)  # fmt: skip
@click.option("--round", "round_s", type=Number(0), default=60.0, show_default=True,
              help="Seconds from one possible decision to the next; 0: any moment.")  # fmt: skip
@click.option("--process-restart", type=Number(0), default=10.0, show_default=True,
              help="Seconds to restart a process on other GPUs.")  # fmt: skip
@click.option("--pod-restart", type=Number(0), default=60.0, show_default=True,
              help="Seconds to terminate a pod and create another.")  # fmt: skip
@click.option("--from", "from_day", type=Number(0), default=0.0, metavar="DAY", help="Jobs from this day on.")
@click.option("--to", "to_day", type=Number(above=0), metavar="DAY", help="Jobs before this day.")
@click.option("--seeds", type=Seeds(), default="0", show_default=True, metavar="A-B",
              help="Of the models that jobs of itp and philly train.")  # fmt: skip
@click.option("--carbon", default="0", metavar="G|FILE", callback=_carbon_option,
              help="Grams of CO2 per kWh, or a file of them over time (.csv).")  # fmt: skip
@click.option("--sleep-after", type=Number(0), metavar="S", help="Nodes without a job sleep after S seconds.")
@click.option("--sleep-power", type=Number(0), default=0.0, metavar="W", help="Draw of a sleeping node.")
@click.option("--wake", type=Number(0), default=0.0, metavar="S", help="Seconds that a node takes to wake.")
@click.option("--gap", type=Number(0), default=1e-3, show_default=True, help="Gap of each round's program.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, alone, on standard output.")
@click.option("-o", "--output", metavar="DIR", callback=_folder, help="Write jobs, rounds and power (.csv).")
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
    sleep_after: float | None,
    sleep_power: float,
    wake: float,
    gap: float,
    as_json: bool,
    output: str | None,
    plot: str | None,
) -> None:
    """Replay a trace of jobs on a cluster under policies.

    Every watt is accounted for: GPUs that jobs hold, idle ones and nodes. Times of a trace count from its
    first job.
    """
    from wattsched.replay.jobs.accounts import Sleep
    from wattsched.replay.jobs.metrics import summary
    from wattsched.replay.jobs.policy import Restarts

    if form == "csv" and len(seeds) > 1:
        raise BadInput("--seeds: a csv list tells what every job runs, nothing is drawn; give one seed")
    if not gap < 1:
        raise BadInput(f"--gap: must be below 1, got {gap:g}")
    if to_day is not None and to_day <= from_day:
        raise BadInput(f"--to: must be above --from {from_day:g}, got {to_day:g}")
    if cluster_file is not None:
        _refuse_given(
            ("nodes", "gpus_per_node", "gpu_type"), "does not go with --cluster, which has its own nodes"
        )
    if sleep_after is None:
        _refuse_given(("sleep_power", "wake"), "needs --sleep-after, without which no node sleeps")
    cluster = _cluster(cluster_file, nodes, gpus_per_node, gpu_type)
    restarts = Restarts(process_restart, pod_restart)
    sleep = None if sleep_after is None else Sleep(sleep_after, sleep_power, wake)
    traces = {seed: _trace(trace, form, tables, cluster, seed, (from_day, to_day)) for seed in seeds}
    intensity = {seed: _carbon(carbon, float(jobs.arrival_s[0])) for seed, jobs in traces.items()}
    for policy in policies:
        # Before anything is written: whether each of them takes the trace.
        _made(policy, traces[seeds[0]], restarts, round_s, gap)
    found: dict[str, list[Summary]] = {policy: [] for policy in policies}
    drawn: list[Outcome] = []
    for policy in policies:
        for seed, jobs in traces.items():
            with _bar(f"{policy}, seed {seed}", len(jobs)) as progress:
                outcome = _replay(jobs, policy, restarts, round_s, gap, intensity[seed], sleep, progress)
            found[policy].append(summary(outcome))
            if output is not None:
                _record(outcome, Path(output), seed)
            if seed == seeds[0]:
                drawn.append(outcome)
    if plot is not None:
        _plot(drawn, plot)
    document = json.dumps(
        {"seeds": seeds, "policies": {p: [r.as_dict() for r in runs] for p, runs in found.items()}}
    )
    if output is not None:
        write(str(Path(output) / "summary.json"), document + "\n")
    if as_json:
        write(None, document + "\n")
        return
    from wattsched.cli.replay_table import print_replays
    from wattsched.cli.terminal import console

    print_replays(console(), traces[seeds[0]], found, round_s)


def _refuse_given(parameters: tuple[str, ...], why: str) -> None:
    """Refuse options that would change nothing."""
    given = click.get_current_context().get_parameter_source
    for name in parameters:
        if given(name) == ParameterSource.COMMANDLINE:
            raise BadInput(f"{option_name(name)} {why}")


def _cluster(file: str | None, nodes: int, gpus_per_node: int, gpu_type: str) -> Cluster:
    from wattsched.instances.clusters import homogeneous_cluster

    if file is not None:
        from wattsched.cli.files import read_instance

        return read_instance(file).cluster
    with refusing(options={"gpu_type": "--gpu-type"}):
        return homogeneous_cluster(nodes, gpus_per_node, gpu_type)


def _carbon(asked: float | str, begin_s: float) -> Carbon:
    from wattsched.instances.traces.carbon import read_carbon
    from wattsched.replay.jobs.accounts import Carbon

    if isinstance(asked, float):
        return Carbon.constant(asked)
    with refusing(asked):
        return Carbon.of(read_carbon(asked), begin_s)


def _trace(
    file: str, form: str, tables: str | None, cluster: Cluster, seed: int, days: tuple[float, float | None]
) -> Trace:
    from wattsched.instances.traces import formats
    from wattsched.replay.jobs.listing import read_listing, read_tables
    from wattsched.replay.jobs.trace import trace_of_durations

    if form == "csv":
        if days != (0.0, None):
            raise BadInput("--from and --to do not go with the format csv; leave the lines out of the file")
        known = {} if tables is None else read_tables(tables)
        with refusing(file):
            return read_listing(file, cluster, known)
    if tables is not None:
        raise BadInput(
            f"--tables does not go with the format {form}, whose jobs train models of the catalogue"
        )
    with refusing(file):
        jobs = formats()[form].read(file)
        first = min((job.submitted_s for job in jobs), default=0.0)
        begin, end = first + days[0] * DAY_S, float("inf") if days[1] is None else first + days[1] * DAY_S
        within = [job for job in jobs if begin <= job.submitted_s < end]
        if jobs and not within:
            last = max(job.submitted_s for job in jobs) - first
            raise ValueError(
                f"no job between --from and --to; the last one arrives on day {last / DAY_S:.4g}"
            )
        return trace_of_durations(cluster, within, seed=seed)


def _replay(
    trace: Trace,
    policy: str,
    restarts: Restarts,
    round_s: float,
    gap: float,
    carbon: Carbon,
    sleep: Sleep | None,
    progress: Progress,
) -> Outcome:
    from wattsched.replay.jobs.simulation import simulate

    made = _made(policy, trace, restarts, round_s, gap)
    try:
        return simulate(
            trace, made, name=policy, round_s=round_s, carbon=carbon, sleep=sleep, progress=progress
        )
    except ValueError as error:
        raise BadInput(str(error)) from None


def _made(policy: str, trace: Trace, restarts: Restarts, round_s: float, gap: float) -> Policy:
    from wattsched.replay.jobs.policies import policy_of
    from wattsched.replay.jobs.policy import Setting

    with refusing():
        return policy_of(policy, Setting(trace, restarts, round_s, gap))


@contextmanager
def _bar(what: str, jobs: int) -> Iterator[Progress]:
    """Progress bar over complete jobs on standard error, on a terminal only."""
    from wattsched.cli.terminal import counted_progress

    with counted_progress() as bar:
        if bar is None:
            yield lambda time_s, complete: None
            return
        task = bar.add_task(what, total=jobs)
        yield lambda time_s, complete: bar.update(task, completed=complete)


def _record(outcome: Outcome, folder: Path, seed: int) -> None:
    from wattsched.replay.jobs.records import jobs_csv, power_csv, rounds_csv

    folder.mkdir(exist_ok=True)
    for name, text in (("jobs", jobs_csv), ("rounds", rounds_csv), ("power", power_csv)):
        write(str(folder / f"{outcome.policy}-{seed}-{name}.csv"), text(outcome))


def _plot(outcomes: list[Outcome], file: str) -> None:
    from wattsched.replay.jobs.plots import plot_outcomes
    from wattsched.replay.placement.plots import save

    try:
        save(plot_outcomes(outcomes), file)
    except OSError as error:
        raise BadInput(f"cannot write '{file}': {reason(error)}") from None
    say_written(file)
