"""``wattsched replay``: a trace of jobs on a cluster under scheduling policies, with energy and carbon."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.executors import dask_option, spread
from wattsched.cli.failures import BadInput, noticed, refusing
from wattsched.cli.files import content_of, counting, save_plot, write
from wattsched.cli.importing import ClusterOptions, cluster_options
from wattsched.cli.outputs import (
    folder_option,
    json_option,
    plot_option,
    report_option,
    require_extra,
    write_page,
)
from wattsched.cli.parameters import Described, FileName, Number, filling, refuse_given, seeds_option
from wattsched.cli.replay_options import (
    DRAWS,
    MOST_GPUS_PER_NODE,
    MOST_NODES,
    MOST_PRICE_S,
    SECONDS,
    TIMES,
    Amount,
    PerKwh,
    checkpoint_options,
    only_budget,
    policies_known,
    policy_option,
    require_learner,
    site_of,
    source_options,
)
from wattsched.environment.extras import late
from wattsched.reading.inputs import notice
from wattsched.replay.jobs.budget import PACINGS
from wattsched.replay.jobs.policies import PRICED, base_of, shares
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import SUMMARY, Journal, replay_jobs
from wattsched.report.replays import GIVES_WAY, about, bound_tables, tables_of
from wattsched.report.terminal import console, heading, line, table
from wattsched.report.wording import count, duration, listed, printable

if TYPE_CHECKING:
    from wattsched.instances.clairvoyant import ClairvoyantBound
    from wattsched.replay.jobs.outcome import Outcome, Summary
    from wattsched.replay.jobs.simulation import Replay
    from wattsched.replay.jobs.trace import Trace


BOUND = "bound-{}.json"
"""File of the bound of a seed."""


@click.command("replay", cls=Described, sections=policies_known)
@click.argument("file", metavar="TRACE", type=FileName())
@source_options()
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
    tariff={"type": PerKwh(negative=True), "metavar": "M|FILE"},
    least_price={"type": Number(0, most=MOST_PRICE_S), "metavar": "S"},
    gpu_limit_w={"name": "--gpu-limit", "type": Number(above=0), "metavar": "W"},
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
    type=FileName(),
    metavar="DIR",
    help="Take the bounds that an earlier replay of the same left in DIR.",
)
@dask_option("the replays")
@folder_option("Write jobs, rounds, power and segments (.csv), and with --bound its proof (.json).")
@plot_option("Draw the first seed: .png, .svg or .pdf.")
@report_option("the figures, and the watts and GPUs of the first seed over time,")
@json_option("the figures")
@click.option("--parquet", is_flag=True, help="Write them as Parquet (.parquet).")
@checkpoint_options
def command(
    source: JobSource,
    cluster: ClusterOptions,
    policies: list[str],
    settings: ReplaySettings,
    seeds: list[int],
    bound: bool,
    energy_bound: bool,
    bound_limit: float | None,
    bounds_from: str | None,
    dask: str | None,
    output: str | None,
    plot: str | None,
    report: str | None,
    as_json: bool,
    parquet: bool,
    checkpoint_s: float,
    resume: bool,
) -> None:
    """Replay a trace of jobs on a cluster under policies.

    Every watt is accounted for: GPUs that jobs hold, idle ones and nodes. Times of a trace count from its
    first job.
    """
    from wattsched.replay.jobs.outcome import summary
    from wattsched.replaying.replay_bounds import require_boundable

    proves, folder = bound or energy_bound, None if output is None else Path(output)
    _require_sense(settings, policies, folder, proves=proves)
    if parquet:
        require_extra("--parquet", "parquet")
    with refusing(), noticed() as assumed:
        site, settings = site_of(cluster, settings)
        traces = source.traces(site, seeds)
        trace_file = _said_of(source) if proves else ""
    bounds: dict[int, ClairvoyantBound] = {}
    if bounds_from is not None:
        bounds = _bounds_from(Path(bounds_from), traces, settings)
    elif proves:
        with refusing():
            for trace in traces.values():
                require_boundable(trace, settings, energy=energy_bound)
    journal = None
    if folder is not None:
        journal = Journal(folder, checkpoint_s, resume, {**vars(source), **vars(cluster)})
    found: dict[str, list[Summary]] = {policy: [] for policy in policies}
    drawn: list[Outcome] = []
    latest: Outcome | None = None
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
            latest = outcome if latest is None or outcome.end_s > latest.end_s else latest
            if folder is not None:
                written += _record(outcome, folder, seed, as_parquet=parquet)
            if seed == seeds[0] and (plot is not None or report is not None):
                drawn.append(outcome)
    for stale in [] if latest is None else latest.meter.stale(latest.begin_s):
        notice(stale)
    if proves:
        bounds = _bounds_of(traces, found, settings, bound_limit, energy=energy_bound, source=trace_file)
    if folder is not None:
        for seed, proof in bounds.items():
            written.append(BOUND.format(seed))
            write(str(folder / written[-1]), content_of(proof, None))
    against = bound_tables(found, list(bounds.values()), shares) if bounds else []
    assumed += cluster.tell()
    if plot is not None:
        from wattsched.plot.replays import replay_figure

        save_plot(replay_figure(drawn), plot)
    page_of, title = late("replay.page:jobs_page"), Path(str(source.file)).name
    told = about(traces[seeds[0]], found, settings.round_s)
    write_page(report, page_of, title, told, found, drawn, assumed=assumed, more=against)
    figures = {policy: [run.as_dict() for run in runs] for policy, runs in found.items()}
    proven = {"bounds": [_stated(one, found, n) for n, one in enumerate(bounds.values())]} if bounds else {}
    document = json.dumps({"seeds": seeds, "policies": figures, **proven}) + "\n"
    if folder is not None:
        write(str(folder / SUMMARY), document)
        _tell_older(folder, written)
    if as_json:
        return write(None, document)
    out = console()
    line(out, told)
    for title, note, columns, rows in [*tables_of(found), *against]:
        heading(out, title, note)
        table(out, columns, rows, gives_way=GIVES_WAY)
    return None


def _require_sense(
    settings: ReplaySettings, policies: Sequence[str], folder: Path | None, *, proves: bool
) -> None:
    """Refuse options that do not go together."""
    if folder is None:
        refuse_given(("parquet", "checkpoint_s", "resume"), "needs -o, the folder of the results")
    elif not Path(os.path.realpath(folder)).parent.is_dir():
        raise BadInput(f"the folder '{folder.parent}' does not exist")
    if proves:
        refuse_given(("bounds_from",), "takes the place of --bound and --energy-bound")
    else:
        refuse_given(("bound_limit",), "needs --bound or --energy-bound, which it belongs to")
    if settings.sleep_after_s is None:
        refuse_given(("sleep_power_w", "wake_s"), "needs --sleep-after, without which no node sleeps")
    if settings.budget is None:
        refuse_given(("period_s", "pacing"), "needs --budget, which it belongs to")
    if not any(base_of(policy) in PRICED for policy in policies):
        refuse_given(("least_price",), f"needs the policy {' or '.join(PRICED)}, which alone knows it")
    require_learner(settings.pacing, policies)


def _said_of(source: JobSource) -> str:
    """Name and digest of the file that jobs are read from, for the proof; it may be a copy of a pipe."""
    with open(source.file, "rb") as read:
        digest = hashlib.file_digest(read, "sha256").hexdigest()
    return f"{printable(Path(str(source.file)).name)}, SHA-256 {digest}"


def _record(outcome: Outcome, folder: Path, seed: int, *, as_parquet: bool) -> list[str]:
    """Write the tables of a replay into a folder, and return the names of their files."""
    from wattsched.replay.jobs.outcome import RECORDS, csv_text, parquet

    folder.mkdir(exist_ok=True)
    form, text_of = ("parquet", parquet) if as_parquet else ("csv", csv_text)
    names = [f"{outcome.policy}-{seed}-{name}.{form}" for name in RECORDS]
    for name, columns_of in zip(names, RECORDS.values(), strict=True):
        write(str(folder / name), text_of(columns_of(outcome)))
    return names


def _tell_older(folder: Path, written: Sequence[str]) -> None:
    """Say which tables and proofs in the folder are of earlier commands, not among those just written."""
    from wattsched.replay.jobs.outcome import RECORDS

    patterns = [f"*-{name}.{form}" for name in RECORDS for form in ("csv", "parquet")]
    there = {file.name for pattern in [*patterns, "bound-*.json"] for file in folder.glob(pattern)}
    if older := sorted(there.difference(written)):
        notice(f"{folder} still has {count(len(older), 'file')} of earlier replays: {listed(older)}")


def _bounds_of(
    traces: Mapping[int, Trace],
    found: Mapping[str, Sequence[Summary]],
    settings: ReplaySettings,
    limit_s: float | None,
    *,
    energy: bool,
    source: str,
) -> dict[int, ClairvoyantBound]:
    """By seed, bounds on the mean completion time, and with `energy` on energy at each policy's mean.

    `limit_s` is for each seed; `source` is the file of the jobs in words.
    """
    from wattsched.replaying.replay_bounds import replay_bound

    bounds = {}
    with counting() as show, refusing():
        for number, (seed, trace) in enumerate(traces.items()):
            means_s = [runs[number].jct_mean_s for name, runs in found.items() if not shares(name)]

            def told(mean_s: float, slots: int, seed: int = seed, done: int = number) -> None:
                show(f"bound, seed {seed}: {duration(mean_s)} in {slots:,} slots", done, len(traces))

            completion_s = means_s if energy else []
            given: dict[str, Any] = {"completion_s": completion_s, "time_limit": limit_s, "progress": told}
            proven = replay_bound(trace, settings=settings, **given)
            bounds[seed] = proven.model_copy(update={"source": f"{source}, seed {seed}"})
            if completion_s and len(proven.proofs) == 1:  # the first is on completion times alone
                notice(f"seed {seed}: --bound-limit left no time for bounds on energy")
    return bounds


def _bounds_from(
    folder: Path, traces: Mapping[int, Trace], settings: ReplaySettings
) -> dict[int, ClairvoyantBound]:
    """Bounds by seed that an earlier replay left in a folder; they are proven again."""
    from wattsched.replaying.replay_bounds import read_replay_bound

    bounds = {}
    with counting() as show, refusing():
        for number, (seed, trace) in enumerate(traces.items()):
            show(f"proving the bound of seed {seed}", number, len(traces))
            bounds[seed] = read_replay_bound(folder / BOUND.format(seed), trace, settings)
    return bounds


def _stated(
    bound: ClairvoyantBound, found: Mapping[str, Sequence[Summary]], number: int
) -> dict[str, float | dict[str, float]]:
    """Bounds in s and J that a seed's proof states, the seed being the `number`-th of each policy's runs."""
    own = {name: runs[number].jct_mean_s for name, runs in found.items() if not shares(name)}
    energy = {name: bound.energy_j(mean_s) for name, mean_s in own.items()} if len(bound.proofs) > 1 else {}
    return {"mean_completion_s": bound.mean_completion_s, "energy_j": energy}
