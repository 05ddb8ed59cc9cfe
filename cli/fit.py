"""``wattsched fit``: a performance profile from measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import noticed, refusing
from wattsched.cli.files import progress, write
from wattsched.cli.outputs import Command, output_option
from wattsched.cli.parameters import FileName, Number, Whole, pairs_given, time_zone_option
from wattsched.instances.gpu_names import recognised_gpu_type
from wattsched.instances.units import S_PER_H
from wattsched.reading.inputs import echo
from wattsched.report.imports import BEYOND, Entry, table_of
from wattsched.report.wording import count, listed, number, percent

if TYPE_CHECKING:
    from wattsched.perfmodels.fit import FitReport
    from wattsched.perfmodels.logs.jobs import LoggedRun


MODEL_COLUMNS = ("network", "model", "model_name")


@click.command("fit", cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FileName())
@click.option("--jobs", metavar="FILE", type=FileName(), help="Of logs: the table of their jobs (.csv).")
@click.option(
    "--model",
    help="Name of the model (default: the network or model that --where chooses, or the file's name).",
)
@click.option("--gpu-type", default="GPU", help="Name of the GPU type.")
@click.option(
    "--gpus-per-node",
    type=Whole(1),
    default=8,
    help="GPUs of a node, which tell on how many nodes a step ran where the file does not.",
)
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", callback=pairs_given, help="Only these rows.")
@time_zone_option("times with and without a zone are not compared")
@click.option("--samples-per-epoch", type=Number(above=0), help="For files that give the time of an epoch.")
@click.option(
    "--watts",
    nargs=3,
    type=Number(0),
    metavar="STATIC DYNAMIC WAITING",
    help="Watts of one GPU, for a file without power_w.",
)
@output_option(".json", help="Write the profile, ready for an instance's 'profiles'.")
def command(
    files: tuple[str, ...],
    jobs: str | None,
    model: str | None,
    where: dict[str, str],
    watts: tuple[float, float, float] | None,
    output: str | None,
    **options: Any,
) -> None:
    """Fit throughput and watts to measured training steps, and say how well they fit.

    Columns of the file: gpus; local_batch or batch_size; step_time_s, iterations_per_s, throughput (samples
    per second) or time_per_epoch_s; and where measured nodes, sync_time_s, frequency_mhz or power_limit_w,
    power_w (of one GPU).

    Or, with --jobs, logs of nvidia-smi, DCGM, Prometheus or Zeus, which tell watts, GPUs and settings. The
    table of their jobs then has the other columns, and job: what the logs call it, or a log's name.
    """
    from wattsched.perfmodels.fit import fit_profile
    from wattsched.perfmodels.power import PowerModel

    chosen = [value for column, value in where.items() if column in MODEL_COLUMNS]
    model = model or next(iter(chosen), Path(str(jobs or files[0])).stem)
    power = None
    if watts is not None:
        # WAITING: in synchronisation with other GPUs.
        named = dict(zip(("static_w", "dynamic_w", "sync_w"), watts, strict=True))
        with refusing(options=dict.fromkeys(named, "--watts")):
            power = PowerModel(**named)
    # With several files, messages name theirs.
    source = str(files[0]) if jobs is None and len(files) == 1 else ""
    given = {"power": "--watts", "jobs": "--jobs"}
    with progress(f"fitting {model}"), refusing(source, given), noticed() as told:
        report = fit_profile(files, model, jobs=jobs, where=where, power=power, **options)
    _print(report, [*told, *report.notes, *_beyond_board(report)])
    if output is not None:
        write(output, report.profile.model_dump_json(indent=1, exclude_none=True) + "\n")


def _print(report: FitReport, notes: Sequence[str]) -> None:
    """Print what was read, the parameters of the profile, its watts by power limit, and its errors."""
    from wattsched.report.terminal import console, heading, line, table

    out, profile, error = console(), report.profile, report.profile.fit_error
    measurements = count(len(report.measurements), "measurement")
    line(out, (f"{profile.model} on {profile.gpu_type}", "bold"), f": {measurements}")
    if report.runs or notes:
        table(out, *table_of([_read(report), *map(Entry.told, notes)], "measurement"))
    if report.runs:
        heading(
            out, "Logs", "means over time of each GPU, from the first to the last busy sample, less a tenth"
        )
        table(out, *_runs(report.runs))
    power, limits = profile.power, profile.power_limits
    meant = {"sync_w"} if limits is not None else set(type(power).model_fields)
    parts = {"Throughput": profile.throughput, "Power": power, "Clock": profile.frequency}
    for title, part in parts.items():
        if part is not None:
            heading(out, title)
            # Beside a table of limits the other watts mean nothing.
            told = [(name, value) for name, value in part if part is not power or name in meant]
            table(out, ["", ">"], [(name, _amount(value)) for name, value in told], header=False)
    if limits is not None:
        heading(
            out, "Power limits", "slowdown against the highest, and watts; least and largest over the batches"
        )
        by_limit = (zip(*of_batches, strict=True) for of_batches in (limits.slowdown, limits.power_w))
        rows = [
            (f"{limit:g} W", _ends(slowdowns), _ends(watts))
            for limit, slowdowns, watts in zip(limits.limit_w, *by_limit, strict=True)
        ]
        table(out, [">limit", ">slowdown", ">W"], rows)
    assert error is not None
    heading(out, "Relative error", "mean and largest, of the measurements that were fitted")
    errors = {
        "step time": (error.time_mean, error.time_max),
        "power": (error.power_mean, error.power_max),
        "step time, unseen": (report.held_out_mean, report.held_out_max),
    }
    # Less than a millionth is rounding.
    known = [
        (name, *(percent(round(part, 6)) for part in (mean, largest)))
        for name, (mean, largest) in errors.items()
        if mean is not None and largest is not None
    ]
    table(out, ["", ">", ">"], known, header=False)
    if report.held_out_note:
        line(out, report.held_out_note, indent=2)
    if profile.power_uncertainty is not None:
        within = f"±{percent(profile.power_uncertainty)}"
        line(out, f"watts of other configurations count as known to {within} (assumed)", indent=2)


def _beyond_board(report: FitReport) -> list[str]:
    """Point at watts that no board of the GPU type draws, as those of several GPUs together."""
    kind, m = recognised_gpu_type(report.profile.gpu_type), report.measurements
    if kind is None or kind.max_power_w is None or m.power_w is None:
        return []
    most = int(m.power_w.argmax())
    if m.power_w[most] <= BEYOND * kind.max_power_w:
        return []
    told = f"{m.power_w[most]:,.0f} W were measured of one GPU, as in a step on {int(m.gpus[most]):,}"
    return [f"doubtful: {told}; {echo(report.profile.gpu_type)} draws {kind.max_power_w:,.0f} W at most"]


def _read(report: FitReport) -> Entry:
    """Entry on what was read: the measurements, and of logs the samples that count and their GPU hours."""
    counted, read = (sum(getattr(run, name) for run in report.runs) for name in ("samples", "read"))
    gpu_s = sum(run.gpu_s for run in report.runs) if report.runs else math.nan
    what = f"{count(counted, 'sample')} of {read:,}" if report.runs else "rows of the table"
    return Entry("read", what, len(report.measurements), None if math.isnan(gpu_s) else gpu_s / S_PER_H)


def _runs(runs: Sequence[LoggedRun]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of the table of runs in logs, without columns that no log tells."""

    def told(value: float, unit: str) -> str:
        return "" if math.isnan(value) else f"{value:.0f} {unit}"

    columns = {
        "job": [run.job for run in runs],
        ">GPUs": [f"{run.gpus:,}" for run in runs],
        ">samples": [f"{run.samples:,}" for run in runs],
        ">of": [f"{run.read:,}" for run in runs],
        ">limit": [told(run.power_limit_w, "W") for run in runs],
        ">clock": [told(run.frequency_mhz, "MHz") for run in runs],
        ">utilisation": [told(100.0 * run.utilisation, "%") for run in runs],
        ">W": [number(run.power_w) for run in runs],
    }
    kept = {title: cells for title, cells in columns.items() if any(cells)}
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def _amount(value: float | Sequence[float]) -> str:
    return number(value) if isinstance(value, int | float) else listed(map(number, value))


def _ends(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(number(end, 3) for end in (min(values), max(values))))
