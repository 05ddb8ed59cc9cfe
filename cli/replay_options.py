"""Options of every command that replays a trace: its jobs, times and budgets, and who decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.completion import replay_policies
from wattsched.cli.failures import BadInput
from wattsched.cli.files import is_piped
from wattsched.cli.outputs import FC, ParamType
from wattsched.cli.parameters import FileName, Number, Whole, filling, listed_policies
from wattsched.instances.units import S_PER_DAY, S_PER_H
from wattsched.reading.inputs import notice
from wattsched.reading.units import Numbers
from wattsched.replay.jobs.budget import UNITS, require_quantity
from wattsched.replay.jobs.knowledge import KNOWLEDGE
from wattsched.replay.jobs.policies import base_of, names, require_policy
from wattsched.replaying.job_sources import JobSource, forms
from wattsched.replaying.replay_settings import ReplaySettings

if TYPE_CHECKING:
    from wattsched.cli.importing import ClusterOptions
    from wattsched.topology.cluster import Cluster

MOST_NODES, MOST_GPUS_PER_NODE = 100_000, 64
MOST_S = 31_536_000
"""A year: of what takes longer, nothing in a replay would make sense."""
MOST_PRICE_S = 1e12
LEARNER = "sizing"
"""The policy that learns the price of a budget."""
PERIODS_S = {"hour": S_PER_H, "day": S_PER_DAY, "week": 7 * S_PER_DAY}


class PerKwh(FileName):
    """Grams or money per kWh, below 0 where that is `negative`, or the name of a file of them."""

    name = "amount"

    def __init__(self, *, negative: bool = False) -> None:
        self.negative = negative

    def read(self, value: Any) -> float | str:
        """Read the amount, or leave the name."""
        if isinstance(value, float):
            return value
        if value.endswith((".csv", ".csv.gz", ".json")) or is_piped(value):
            return str(value)
        if not value:
            raise ValueError("is empty; give an amount per kWh or a file (.csv)")
        from wattsched.instances.traces.carbon import MOST_PER_KWH
        from wattsched.reading.inputs import echo

        try:
            float(value)
        except ValueError:
            raise ValueError(f"{echo(value)} is neither a number nor a file (.csv, .csv.gz, .json)") from None
        return float(Number(-MOST_PER_KWH if self.negative else 0, most=MOST_PER_KWH).read(value))


class Amount(ParamType):
    """``QUANTITY=AMOUNT`` of a budget."""

    name = "amount"

    def read(self, value: Any) -> tuple[str, float]:
        """Read the quantity, and the amount in its unit: joules also as kWh and the like."""
        quantity, equals, amount = value.partition("=")
        require_quantity(quantity)
        if not equals:
            raise ValueError(f"{quantity} has no amount, in {UNITS[quantity]}, such as {quantity}=5e7")
        if quantity == "energy_j":
            amount = Numbers("", "energy")(amount)
        return quantity, Number(above=0).read(amount)


def only_budget(
    ctx: click.Context, param: click.Parameter, given: Sequence[tuple[str, float]]
) -> tuple[str, float] | None:
    """Refuse a second budget; click gives a list of them, and a replay has one."""
    if len(given) > 1:
        told = " and ".join(f"{quantity}={amount:g}" for quantity, amount in given)
        raise click.BadParameter(f"{told} are given, and a replay has one", ctx, param)
    return given[0] if given else None


class Period(Number):
    """A period by name, or in seconds."""

    def read(self, value: Any) -> float:
        """Return the seconds."""
        if value in PERIODS_S:
            return PERIODS_S[value]
        try:
            float(value)
        except ValueError:
            known = ", ".join(PERIODS_S)
            raise ValueError(f"'{value}' is neither {known} nor a number of seconds") from None
        return float(super().read(value))


policy_option = partial(listed_policies, replay_policies, require_policy)


def require_learner(pacing: str, policies: Sequence[str]) -> None:
    """Refuse a price that no policy would learn, and a plan that none would make."""
    if pacing in ("price", "plan") and LEARNER not in map(base_of, policies):
        makes = "learns it" if pacing == "price" else "makes it"
        raise BadInput(f"--pacing {pacing} needs the policy {LEARNER}, which {makes}; others spend evenly")


def checkpoint_options(command: FC) -> FC:
    """``--checkpoint`` and ``--resume`` of a command that keeps its replays in a folder."""
    command = click.option(
        "--resume", is_flag=True, help="Go on with the replays of -o that are not complete."
    )(command)
    return click.option(
        "--checkpoint",
        "checkpoint_s",
        type=Number(0),
        default=30.0,
        metavar="S",
        help="Wall-clock seconds between checkpoints, with -o.",
    )(command)


def policies_known() -> dict[str, str]:
    """Return the section of a command's help on policies."""
    told = "with +zeus behind a name, its jobs are tuned; with +exact, it knows how long they take"
    return {"Policies": f"{', '.join(names())}; {told}."}


def site_of(cluster: ClusterOptions, settings: ReplaySettings) -> tuple[Cluster, ReplaySettings]:
    """Cluster, and settings with the lower of their power cap and that of the cluster's file."""
    site, file_w = cluster.site()
    if file_w is None:
        return site, settings
    notice(f"{cluster.cluster_file}: read: the site may draw {file_w:,.0f} W at any moment (budgets.power_w)")
    own_w = file_w if settings.power_w is None else settings.power_w
    return site, replace(settings, power_w=min(own_w, file_w))


SECONDS = Number(0, most=MOST_S)
DRAWS = "One replay for each, which draws the models of jobs where the trace does not tell"

source_options = partial(
    filling,
    "source",
    JobSource,
    form={"name": "--format", "type": click.Choice(forms())},
    tables={"metavar": "FILE"},
    virtual_cluster={"metavar": "NAME"},
    throughputs={"metavar": "FILE"},
    profiles={"metavar": "FILE"},
    from_day={"name": "--from", "type": Number(0), "metavar": "DAY", "show_default": False},
    to_day={"name": "--to", "type": Number(above=0), "metavar": "DAY"},
    elasticity={"type": Whole(1), "metavar": "N"},
)
"""Makes the options that select the jobs of a trace, for every command that replays one."""

TIMES: dict[str, dict[str, Any]] = {
    "round_s": {"name": "--round", "type": SECONDS},
    "process_restart_s": {"name": "--process-restart", "type": SECONDS},
    "pod_restart_s": {"name": "--pod-restart", "type": SECONDS},
    "period_s": {"name": "--period", "type": Period(1, most=MOST_S), "default": "day", "metavar": "P"},
    "carbon": {"type": PerKwh(), "metavar": "G|FILE", "show_default": False},
    "start": {"metavar": "TIME"},
    "power_w": {"type": Number(above=0), "metavar": "W"},
    "signal": {"type": FileName(), "metavar": "FILE"},
    "knows": {"type": click.Choice(KNOWLEDGE)},
}
"""Options of every command that replays a trace."""
