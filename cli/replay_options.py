"""Options of ``wattsched replay`` that are checked before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from wattsched.cli.failures import BadInput
from wattsched.cli.files import STANDARD
from wattsched.cli.parameters import Number
from wattsched.instances.units import S_PER_DAY, S_PER_H

LIST = "csv"
"""The format of lists of one's own; the others are those of `instances.traces`."""
FORMATS = (LIST, "itp", "philly", "pai", "gavel")
MOST_S = 31_536_000
"""A year: of what takes longer, nothing in a replay would make sense."""
LEAST_ROUND_S = 1e-3
MOST_PRICE_S = 1e12
QUANTITIES = ("energy_j", "carbon_g", "money")
PERIODS_S = {"hour": S_PER_H, "day": S_PER_DAY, "week": 7 * S_PER_DAY}


class Policies(click.Command):
    """A command whose help ends with the names of the policies."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the names, from the registry."""
        from wattsched.replay.jobs.policies import names

        with formatter.section("Policies"):
            formatter.write_text(f"{', '.join(names())}; with +zeus behind a name, its jobs are tuned.")


def policy_names(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    """Read names between commas."""
    from wattsched.replay.jobs.policies import is_policy, names

    asked = [name.strip() for name in text.split(",")]
    for number, name in enumerate(asked):
        if not is_policy(name):
            known = ", ".join(names())
            raise click.BadParameter(f"there is no policy '{name}'; there are {known}", ctx, param)
        if name in asked[:number]:
            raise click.BadParameter(f"the policy '{name}' is named twice", ctx, param)
    return asked


def input_file(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Refuse the empty name, which stands for the folder that one is in."""
    if name == "":
        raise click.BadParameter("the file name is empty", ctx, param)
    return name


def output_folder(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Check the name of a folder that is there or can be made."""
    if name in ("", STANDARD):
        raise click.BadParameter(f"'{name}' is not a folder: there are several files to write", ctx, param)
    if name is not None and Path(name).exists() and not Path(name).is_dir():
        raise click.BadParameter(f"'{name}' is not a folder", ctx, param)
    if name is not None and not Path(name).resolve().parent.is_dir():
        raise click.BadParameter(f"the folder '{Path(name).parent}' does not exist", ctx, param)
    return name


def parquet_wanted(ctx: click.Context, param: click.Parameter, asked: bool) -> bool:
    """Refuse what cannot be written before any work is done."""
    from wattsched.replay.jobs.outcome import missing_for_parquet

    if asked and (missing := missing_for_parquet()):
        needed = f"{' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise BadInput(f"--parquet needs {needed} (pip install 'wattsched[parquet]')")
    return asked


def carbon_intensity(ctx: click.Context, param: click.Parameter, text: str | None) -> float | str | None:
    """Read grams per kWh, or leave the name of a file."""
    if text is None or text.endswith((".csv", ".csv.gz")):
        return text
    if not text:
        raise click.BadParameter("is empty; give grams per kWh or a file (.csv)", ctx, param)
    from wattsched.instances.traces.carbon import MOST_G_PER_KWH

    return Number(0, most=MOST_G_PER_KWH).convert(text, param, ctx)


def budget_amount(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, float] | None:
    """Read ``QUANTITY=AMOUNT``."""
    if text is None:
        return None
    quantity, equals, amount = text.partition("=")
    if not equals or quantity not in QUANTITIES:
        raise click.BadParameter(f"must be one of {', '.join(QUANTITIES)}, = and an amount", ctx, param)
    return quantity, Number(above=0).convert(amount, param, ctx)


def period(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """Read a period by name, or in seconds."""
    known = PERIODS_S.get(text)
    return Number(1, most=MOST_S).convert(text, param, ctx) if known is None else known


def require_consistent(given: Mapping[str, Any]) -> None:
    """Refuse options that contradict one another, by the names of the command's parameters."""
    if given["form"] == LIST and len(given["seeds"]) > 1:
        raise BadInput("--seeds: a csv list tells what every job runs, nothing is drawn; give one seed")
    if not given["gap"] < 1:
        raise BadInput(f"--gap: must be below 1, got {given['gap']:g}")
    if 0 < given["round_s"] < LEAST_ROUND_S:
        raise BadInput(f"--round: must be 0 or at least {LEAST_ROUND_S:g}, got {given['round_s']:g}")
    if given["to_day"] is not None and given["to_day"] <= given["from_day"]:
        raise BadInput(f"--to: must be above --from {given['from_day']:g}, got {given['to_day']:g}")
    if given["cluster_file"] is not None:
        told = ("nodes", "gpus_per_node", "gpu_type")
        refuse_given(told, "does not go with --cluster, which has its own nodes")
    if given["sleep_after"] is None:
        refuse_given(("sleep_power", "wake"), "needs --sleep-after, without which no node sleeps")
    _require_budget(given)
    if given["output"] is None:
        refuse_given(("parquet", "checkpoint_s", "resume"), "needs -o, the folder of the results")


def _require_budget(given: Mapping[str, Any]) -> None:
    if given["budget"] is None:
        return refuse_given(("period_s", "tariff"), "needs --budget, which it belongs to")
    quantity = given["budget"][0]
    if quantity == "carbon_g" and given["carbon"] == 0.0:
        raise BadInput("--budget: carbon_g needs --carbon, without which nothing is emitted")
    if quantity == "money" and given["tariff"] is None:
        raise BadInput("--budget: money needs --tariff, what a kWh costs")
    if quantity != "money":
        refuse_given(("tariff",), f"does not go with a budget of {quantity}")
    return None


def refuse_given(parameters: tuple[str, ...], why: str) -> None:
    """Refuse options that would change nothing."""
    given = click.get_current_context().get_parameter_source
    for name in parameters:
        if given(name) == ParameterSource.COMMANDLINE:
            raise BadInput(f"{shown(name)} {why}")


def shown(parameter: str) -> str:
    """Name of a parameter of the command on the command line."""
    for known in click.get_current_context().command.params:
        if known.name == parameter:
            return known.opts[0] if isinstance(known, click.Option) else known.human_readable_name
    return parameter
