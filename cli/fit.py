"""``wattsched fit``: a performance profile from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import refusing
from wattsched.cli.files import output_option, refuse_overwriting, write
from wattsched.cli.parameters import Number, Whole

if TYPE_CHECKING:
    from wattsched.perfmodels.fit import FitReport


def _where(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for value, (column, equals, _) in zip(values, pairs, strict=True):
        if not column or not equals:
            raise click.BadParameter(f"'{value}' is not COLUMN=VALUE", ctx, param)
    return {column: value for column, _, value in pairs}


@click.command("fit")
@click.argument("csv_file", metavar="PROFILE.csv")
@click.option("--model", help="Name of the model (default: the file's name).")
@click.option("--gpu-type", default="GPU", show_default=True, help="Name of the GPU type.")
@click.option("--gpus-per-node", type=Whole(1), default=8, show_default=True)
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", callback=_where, help="Use only these rows.")
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
    csv_file: str,
    model: str | None,
    gpu_type: str,
    gpus_per_node: int,
    where: dict[str, str],
    samples_per_epoch: float | None,
    watts: tuple[float, float, float] | None,
    output: str | None,
) -> None:
    """Fit throughput and watts to measured training steps, and say how well they fit.

    Columns of the file: gpus; local_batch or batch_size; step_time_s, iterations_per_s, throughput (samples
    per second) or time_per_epoch_s; and where measured nodes, sync_time_s, frequency_mhz or power_limit_w,
    power_w (of one GPU).
    """
    from wattsched.perfmodels.fit import fit_profile
    from wattsched.report.terminal import progress

    refuse_overwriting(output, csv_file)
    model = model or Path(csv_file).stem
    with refusing(options={"static_w": "--watts", "dynamic_w": "--watts", "sync_w": "--watts"}):
        power = _power(watts)
    with progress(f"fitting {model}"), refusing(csv_file):
        report = fit_profile(
            csv_file,
            model,
            gpu_type,
            gpus_per_node=gpus_per_node,
            where=where,
            samples_per_epoch=samples_per_epoch,
            power=power,
        )
    _print(report)
    if output is not None:
        write(output, report.profile.model_dump_json(indent=1, exclude_none=True) + "\n")


def _power(watts: tuple[float, float, float] | None) -> Any:
    if watts is None:
        return None
    from wattsched.perfmodels.power import PowerModel

    static_w, dynamic_w, sync_w = watts
    return PowerModel(static_w=static_w, dynamic_w=dynamic_w, sync_w=sync_w)


def _print(report: FitReport) -> None:
    from wattsched.report.terminal import console, heading, line, table
    from wattsched.report.wording import count, number, percent

    out, profile = console(), report.profile
    line(
        out,
        (f"{profile.model} on {profile.gpu_type}", "bold"),
        f": {count(len(report.measurements), 'measurement')}",
    )
    for title, part in (
        ("Throughput", profile.throughput),
        ("Power", profile.power),
        ("Clock", profile.frequency),
    ):
        if part is None:
            continue
        heading(out, title)
        rows = [(name, number(value)) for name, value in part if isinstance(value, (int, float))]
        table(out, ["", ">"], rows, header=False)
    heading(out, "Relative error", "mean and largest")
    error = profile.fit_error
    assert error is not None
    errors = [("step time", error.time_mean, error.time_max), ("power", error.power_mean, error.power_max)]
    errors.append(("step time, unseen", report.held_out_mean, report.held_out_max))
    rows3 = [
        (name, percent(mean), percent(most))
        for name, mean, most in errors
        if mean is not None and most is not None
    ]
    table(out, ["", ">", ">"], rows3, header=False)
