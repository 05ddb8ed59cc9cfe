"""``wattsched replay``: a trace of jobs on a cluster under scheduling policies, with energy and carbon."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.executors import dask_option, spread
from wattsched.cli.failures import notice, noticed, refusing
from wattsched.cli.files import content_of, counting, named_input, save_plot, shown, write
from wattsched.cli.importing import ClusterOptions, cluster_options
from wattsched.cli.outputs import (
    folder_option,
    plot_option,
    report_option,
    require_extra,
    write_page,
)
from wattsched.cli.parameters import (
    Described,
    FileName,
    Number,
    filling,
    refuse_given,
    seeds_option,
)
from wattsched.cli.replay_bounds import bounds_from, bounds_of, name_of, stated
from wattsched.cli.replay_options import (
    DRAWS,
    MOST_GPUS_PER_NODE,
    MOST_NODES,
    MOST_PRICE_S,
    SECONDS,
    TIMES,
    Amount,
    PerKwh,
    only_budget,
    policies_known,
    policy_option,
    require_learner,
    source_options,
)
from wattsched.extras import late
from wattsched.job_sources import JobSource
from wattsched.replay.jobs.budget import PACINGS
from wattsched.replay.jobs.policies import PRICED, base_of, shares
from wattsched.replay_settings import ReplaySettings
from wattsched.replays import SUMMARY, Journal, replay_jobs
from wattsched.report.replays import GIVES_WAY, about, bound_tables, tables_of
from wattsched.report.terminal import Told, console, heading, line, table
from wattsched.report.wording import count, listed, printable

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.instances.clairvoyant import ClairvoyantBound
    from wattsched.replay.jobs.outcome import Outcome, Summary
    from wattsched.replay.jobs.simulation import Replay
    from wattsched.replay.jobs.trace import Trace


@dataclass(frozen=True)
class Output:
    """Files and forms that the outcomes are written in.

    Parameters
    ----------
    as_json : bool
        Print the figures as JSON, alone, on standard output.
    parquet : bool
        Write them as Parquet (.parquet).
    checkpoint_s : float
        Wall-clock seconds between checkpoints, with -o.
    resume : bool
        Go on with the replays of -o that are not complete.
    """

    output: str | None
    plot: str | None
    as_json: bool = False
    parquet: bool = False
    checkpoint_s: float = 30.0
    resume: bool = False

    def __post_init__(self) -> None:
        if self.output is None:
            refuse_given(("parquet", "checkpoint_s", "resume"), "needs -o, the folder of the results")
        elif not Path(os.path.realpath(self.output)).parent.is_dir():
            raise ValueError(f"the folder '{Path(self.output).parent}' does not exist")
        if self.parquet:
            require_extra("--parquet", "parquet")

    def journal(self, *common: Any) -> Journal | None:
        """Return the journal in which replays of a source on a cluster are kept; None without an output."""
        if self.output is None:
            return None
        options = {name: value for one in common for name, value in asdict(one).items()}
        return Journal(self.output, self.checkpoint_s, self.resume, options)


@click.command("replay", cls=Described, sections=policies_known)
@click.argument("file", metavar="TRACE", type=FileName())
@source_options
@cluster_options(most_nodes=MOST_NODES, most_gpus_per_node=MOST_GPUS_PER_NODE)
@policy_option("sizing", "Who decides; named below.")
@filling(
    "settings",
    ReplaySettings,
    **TIMES,
    budget={
        "type": Amount(),
        "metavar": "NAME=AMOUNT",
        "multiple": True,
        "default": (),
        "callback": only_budget,
    },
    pacing={"type": click.Choice(PACINGS)},
    tariff={"type": PerKwh(), "metavar": "M|FILE"},
    least_price={"type": Number(0, most=MOST_PRICE_S), "metavar": "S"},
    sleep_after_s={"name": "--sleep-after", "type": SECONDS, "metavar": "S"},
    sleep_power_w={"name": "--sleep-power", "type": Number(0), "metavar": "W", "show_default": False},
    wake_s={"name": "--wake", "type": SECONDS, "metavar": "S", "show_default": False},
    gap={"type": Number(0)},
)
@seeds_option("0", f"{DRAWS}.")
@click.option("--bound", is_flag=True, help="Prove which mean completion no schedule is below; see bound.md.")
@click.option("--energy-bound", is_flag=True, help="Prove that, and least energies at the policies' means.")
@click.option(
    "--bound-limit", type=Number(above=0), metavar="S", help="Seconds that the bound of a seed may take."
)
@click.option(
    "--bounds-from",
    "bounds_from_dir",
    type=FileName(),
    metavar="DIR",
    help="Take the bounds that an earlier replay of the same left in DIR.",
)
@dask_option("the replays")
@folder_option("Write jobs, rounds, power and segments (.csv), and with --bound its proof (.json).")
@plot_option("Draw the first seed: .png, .svg or .pdf.")
@report_option("the figures, and the watts and GPUs of the first seed over time,")
@filling(
    "output",
    Output,
    as_json={"name": "--json"},
    checkpoint_s={"name": "--checkpoint", "type": Number(0), "metavar": "S"},
)
def command(
    source: JobSource,
    cluster: ClusterOptions,
    policies: list[str],
    settings: ReplaySettings,
    seeds: list[int],
    bound: bool,
    energy_bound: bool,
    bound_limit: float | None,
    bounds_from_dir: str | None,
    dask: str | None,
    report: str | None,
    output: Output,
) -> None:
    """Replay a trace of jobs on a cluster under policies.

    Every watt is accounted for: GPUs that jobs hold, idle ones and nodes. Times of a trace count from its
    first job.
    """
    from wattsched.replay.jobs.outcome import summary
    from wattsched.replay_bounds import require_boundable

    if not (bound or energy_bound):
        refuse_given(("bound_limit",), "needs --bound or --energy-bound, which it belongs to")
    else:
        refuse_given(("bounds_from_dir",), "takes the place of --bound and --energy-bound")
    if settings.sleep_after_s is None:
        refuse_given(("sleep_power_w", "wake_s"), "needs --sleep-after, without which no node sleeps")
    if settings.budget is None:
        refuse_given(("period_s", "pacing"), "needs --budget, which it belongs to")
    if not any(base_of(policy) in PRICED for policy in policies):
        refuse_given(("least_price",), f"needs the policy {' or '.join(PRICED)}, which alone knows it")
    require_learner(settings.pacing, policies)
    with refusing(), noticed() as assumed, named_input(str(source.file)) as path:
        traces = replace(source, file=path).traces(cluster.read(), seeds)
        trace_file = _said_of(source, path) if bound or energy_bound else ""
    bounds: dict[int, ClairvoyantBound] = {}
    if bounds_from_dir is not None:
        bounds = bounds_from(Path(bounds_from_dir), traces, settings)
    elif bound or energy_bound:
        with refusing():
            for trace in traces.values():
                require_boundable(trace, settings, energy=energy_bound)
    journal = output.journal(source, cluster)
    found: dict[str, list[Summary]] = {policy: [] for policy in policies}
    drawn: list[Outcome] = []
    written: list[str] = []
    with counting() as show, spread(dask) as executor, refusing(options={"sleep": "--sleep-power"}):

        def progress(replay: Replay, seed: int, resumed: bool) -> None:
            what, done, jobs = f"{replay.name}, seed {seed}", replay.complete, len(replay.trace)
            if resumed:
                click.echo(f"{what}: going on with {done:,} of {jobs:,} jobs complete", err=True)
            show(what, done, jobs)

        outcomes = replay_jobs(
            traces, policies, settings=settings, journal=journal, executor=executor, progress=progress
        )
        for done, (seed, outcome) in enumerate(outcomes, start=1):
            if executor is not None:
                show(f"{outcome.policy}, seed {seed}", done, len(policies) * len(seeds))
            found[outcome.policy].append(summary(outcome))
            if output.output is not None:
                written += _record(outcome, Path(output.output), seed, as_parquet=output.parquet)
            if seed == seeds[0] and (output.plot is not None or report is not None):
                drawn.append(outcome)
    if bound or energy_bound:
        bounds = bounds_of(traces, found, settings, bound_limit, energy=energy_bound, source=trace_file)
    if output.output is not None:
        for seed, proof in bounds.items():
            written.append(name_of(seed))
            write(str(Path(output.output) / written[-1]), content_of(proof, None))
    against = bound_tables(found, list(bounds.values()), shares) if bounds else []
    assumed += cluster.tell()
    if output.plot is not None:
        from wattsched.plot.replays import replay_figure

        save_plot(replay_figure(drawn), output.plot)
    page_of, title = late("replay.page:jobs_page"), shown(Path(source.file).name)
    told = about(traces[seeds[0]], found, settings.round_s)
    write_page(report, page_of, title, told, found, drawn, assumed=assumed, more=against)
    figures = {policy: [run.as_dict() for run in runs] for policy, runs in found.items()}
    proven = {"bounds": [stated(one, found, n) for n, one in enumerate(bounds.values())]} if bounds else {}
    document = json.dumps({"seeds": seeds, "policies": figures, **proven}) + "\n"
    if output.output is not None:
        write(str(Path(output.output) / SUMMARY), document)
        _tell_older(Path(output.output), written)
    if output.as_json:
        write(None, document)
        return
    print_replays(console(), traces[seeds[0]], found, settings.round_s, against)


def _said_of(source: JobSource, path: str | Path) -> str:
    """Name and digest of the file that jobs are read from, which may be a copy of standard input."""
    with open(path, "rb") as read:
        digest = hashlib.file_digest(read, "sha256").hexdigest()
    return f"{printable(shown(Path(source.file).name))}, SHA-256 {digest}"


def _record(outcome: Outcome, folder: Path, seed: int, *, as_parquet: bool) -> list[str]:
    """Write the tables of a replay; their names."""
    from wattsched.replay.jobs.outcome import RECORDS, csv_text, parquet

    folder.mkdir(exist_ok=True)
    form, text_of = ("parquet", parquet) if as_parquet else ("csv", csv_text)
    names = [f"{outcome.policy}-{seed}-{name}.{form}" for name in RECORDS]
    for name, columns_of in zip(names, RECORDS.values(), strict=True):
        write(str(folder / name), text_of(columns_of(outcome)))
    return names


def _tell_older(folder: Path, written: Sequence[str]) -> None:
    """Say which tables and proofs in the folder are of earlier commands, and not in its summary."""
    from wattsched.replay.jobs.outcome import RECORDS

    patterns = [f"*-{name}.{form}" for name in RECORDS for form in ("csv", "parquet")]
    there = {file.name for pattern in [*patterns, "bound-*.json"] for file in folder.glob(pattern)}
    if older := sorted(there.difference(written)):
        notice(f"{folder} still has {count(len(older), 'file')} of earlier replays: {listed(older)}")


def print_replays(
    out: Console,
    trace: Trace,
    found: Mapping[str, Sequence[Summary]],
    round_s: float,
    more: Sequence[Told] = (),
) -> None:
    """Print the tables of completion times, of the cluster and of the decisions, and more."""
    line(out, about(trace, found, round_s))
    for title, note, columns, rows in [*tables_of(found), *more]:
        heading(out, title, note)
        table(out, columns, rows, gives_way=GIVES_WAY)
