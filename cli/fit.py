"""``wattsched fit``: a performance profile from measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import refusing
from wattsched.cli.files import write
from wattsched.cli.outputs import Command, output_option
from wattsched.cli.parameters import Number, Whole, filling
from wattsched.report.wording import count, listed, number, percent

if TYPE_CHECKING:
    from wattsched.perfmodels.fit import FitReport


MODEL_COLUMNS = ("network", "model", "model_name")


def _where(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for value, (column, equals, _) in zip(values, pairs, strict=True):
        if not column or not equals:
            raise click.BadParameter(f"'{value}' is not COLUMN=VALUE", ctx, param)
    return {column: value for column, _, value in pairs}


@dataclass(frozen=True)
class Fit:
    """What is fitted.

    Parameters
    ----------
    model : str, optional
        Name of the model (default: the network or model that --where chooses, or the file's name).
    gpu_type : str
        Name of the GPU type.
    where : dict
        Use only these rows.
    samples_per_epoch : float, optional
        For files that give the time of an epoch.
    watts : tuple of float, optional
        Watts of one GPU, for a file without power_w.
    """

    csv_file: str
    model: str | None = None
    gpu_type: str = "GPU"
    gpus_per_node: int = 8
    where: dict[str, str] | None = None
    samples_per_epoch: float | None = None
    watts: tuple[float, float, float] | None = None

    def report(self) -> FitReport:
        """Fit the file."""
        from wattsched.perfmodels.fit import fit_profile
        from wattsched.perfmodels.power import PowerModel
        from wattsched.report.terminal import progress

        chosen = [value for column, value in (self.where or {}).items() if column in MODEL_COLUMNS]
        model, power = self.model or next(iter(chosen), Path(self.csv_file).stem), None
        if self.watts is not None:
            with refusing(options=dict.fromkeys(("static_w", "dynamic_w", "sync_w"), "--watts")):
                power = PowerModel(static_w=self.watts[0], dynamic_w=self.watts[1], sync_w=self.watts[2])
        with progress(f"fitting {model}"), refusing(self.csv_file, {"power": "--watts"}):
            return fit_profile(
                self.csv_file,
                model,
                self.gpu_type,
                gpus_per_node=self.gpus_per_node,
                where=self.where,
                samples_per_epoch=self.samples_per_epoch,
                power=power,
            )


@click.command("fit", cls=Command)
@click.argument("csv_file", metavar="PROFILE.csv")
@filling(
    "fit",
    Fit,
    gpus_per_node={"type": Whole(1)},
    where={"multiple": True, "metavar": "COLUMN=VALUE", "callback": _where},
    samples_per_epoch={"type": Number(above=0)},
    watts={"nargs": 3, "type": Number(0), "metavar": "STATIC DYNAMIC WAITING"},
)
@output_option(".json", help="Write the profile, ready for an instance's 'profiles'.")
def command(fit: Fit, output: str | None) -> None:
    """Fit throughput and watts to measured training steps, and say how well they fit.

    Columns of the file: gpus; local_batch or batch_size; step_time_s, iterations_per_s, throughput (samples
    per second) or time_per_epoch_s; and where measured nodes, sync_time_s, frequency_mhz or power_limit_w,
    power_w (of one GPU).
    """
    report = fit.report()
    _print(report)
    if output is not None:
        write(output, report.profile.model_dump_json(indent=1, exclude_none=True) + "\n")


def _print(report: FitReport) -> None:
    from wattsched.report.terminal import console, heading, line, table

    out, profile, error = console(), report.profile, report.profile.fit_error
    measurements = count(len(report.measurements), "measurement")
    line(out, (f"{profile.model} on {profile.gpu_type}", "bold"), f": {measurements}")
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
        rows = [
            (f"{limit:g} W", _ends(times), _ends(watts))
            for limit, times, watts in zip(
                limits.limit_w,
                zip(*limits.slowdown, strict=True),
                zip(*limits.power_w, strict=True),
                strict=True,
            )
        ]
        table(out, [">limit", ">slowdown", ">W"], rows)
    assert error is not None
    heading(out, "Relative error", "mean and largest")
    errors = {
        "step time": (error.time_mean, error.time_max),
        "power": (error.power_mean, error.power_max),
        "step time, unseen": (report.held_out_mean, report.held_out_max),
    }
    known = [(n, percent(a), percent(b)) for n, (a, b) in errors.items() if a is not None and b is not None]
    table(out, ["", ">", ">"], known, header=False)


def _amount(value: float | Sequence[float]) -> str:
    return number(value) if isinstance(value, int | float) else listed(map(number, value))


def _ends(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(number(end, 3) for end in (min(values), max(values))))
