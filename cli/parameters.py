"""Options of commands: numbers with plain messages, limits of solvers, and options made from a function."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    # Not generic yet in older versions of click.
    ParamType = click.ParamType

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")


class Number(ParamType):
    """A finite number in a range.

    Parameters
    ----------
    least, above : float, optional
        Lower end, that belongs to the range or does not.
    most : float, optional
        Upper end, that belongs to the range.
    infinite : bool
        Take any number, infinite ones too; the command looks at it itself.
    """

    name = "number"

    def __init__(
        self,
        least: float | None = None,
        *,
        above: float | None = None,
        most: float | None = None,
        infinite: bool = False,
    ):
        self.least = least
        self.above = above
        self.most = most
        self.infinite = infinite

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number."""
        try:
            read = float(value)
        except ValueError:
            self.fail(f"'{value}' is not a number", param, ctx)
        if not math.isfinite(read) and not self.infinite:
            self.fail(f"'{value}' is not a finite number", param, ctx)
        if self.least is not None and not read >= self.least:
            self.fail(f"must be at least {self.least:g}, got {value}", param, ctx)
        if self.above is not None and not read > self.above:
            self.fail(f"must be above {self.above:g}, got {value}", param, ctx)
        if self.most is not None and not read <= self.most:
            self.fail(f"must be at most {self.most:,.15g}, got {value}", param, ctx)
        return read


class Whole(ParamType):
    """A whole number from `least` to `most`."""

    name = "integer"

    def __init__(self, least: int | None = None, most: int | None = None):
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the number."""
        try:
            read = int(value)
        except ValueError:
            self.fail(f"'{value}' is not a whole number", param, ctx)
        if self.least is not None and read < self.least:
            self.fail(f"must be at least {self.least:,}, got {read:,}", param, ctx)
        if self.most is not None and read > self.most:
            self.fail(f"must be at most {self.most:,}, got {read:,}", param, ctx)
        return read


def parameter_option(parameter: inspect.Parameter, about: str | None) -> click.Option:
    """``--name VALUE`` of the kind that the parameter's annotation and default tell.

    Parameters
    ----------
    about : str, optional
        Its description.
    """
    default = parameter.default
    kind = str(parameter.annotation)
    read: Any = Whole() if "int" in kind else Number() if "float" in kind else str
    if kind.startswith("Literal"):
        read = click.Choice(re.findall(r"'(\w+)'", kind))
    return click.Option(
        [option_name(parameter.name)],
        type=read,
        default=default,
        show_default=default is not None,
        help=about,
    )


def option_name(parameter: str) -> str:
    """Name of a parameter on the command line."""
    return f"--{parameter.replace('_', '-')}"


def descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """What the docstring of a function says on each of its parameters."""
    _, _, section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")
    section = re.split(r"\n\n?\w+\n-+\n", section)[0]
    told: dict[str, str] = {}
    for match in re.finditer(r"^(\w[\w, ]*?)(?: :.*)?\n((?:    .*\n?)+)", section, flags=re.MULTILINE):
        text = " ".join(match[2].split()).replace("`", "")
        told |= dict.fromkeys(match[1].split(", "), text)
    return told


UNLIMITED_S = 1e8
"""Three years: with a limit the solver runs in a process of its own, which Ctrl-C can end at any moment."""


class Names(click.Command):
    """A command for all problems: its help ends with the names that its options take."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the names, from the registries."""
        from wattsched.problems import PROBLEMS, problem
        from wattsched.solvers.registry import names as solvers

        with formatter.section("Solvers"):
            formatter.write_text(f"{', '.join(solvers())}, pyomo:NAME, and the heuristics of the problem")
        for known in map(problem, PROBLEMS):
            with formatter.section(f"Names of {known.name}"):
                rows = [("formulations", known.formulation_names()), ("objectives", known.objectives)]
                rows += [("heuristics", known.heuristics)] if known.heuristics else []
                formatter.write_dl([(what, ", ".join(names)) for what, names in rows])


def limit_options(command: FC) -> FC:
    """``--gap``, ``--time-limit``, ``--threads`` and ``--seed``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _positive(ctx: click.Context, param: click.Parameter, seconds: float) -> float:
    if not seconds > 0:
        raise click.BadParameter(f"{seconds} is not a positive number of seconds, or 'inf'", ctx, param)
    return seconds


def _share(ctx: click.Context, param: click.Parameter, gap: float) -> float:
    if not 0 <= gap < 1:
        raise click.BadParameter(f"{gap} is not between 0 and 1", ctx, param)
    return gap


_OPTIONS = (
    click.option(
        "--gap",
        type=Number(infinite=True),
        callback=_share,
        default=1e-4,
        show_default=True,
        help="Relative gap that counts as optimal.",
    ),
    click.option(
        "--time-limit",
        type=Number(infinite=True),
        callback=_positive,
        default=60.0,
        show_default=True,
        help="Wall-clock seconds; 'inf' is no limit.",
    ),
    click.option("--threads", type=Whole(1), default=1, show_default=True, help="For the solver."),
    click.option("--seed", type=Whole(0, 2**31 - 1), default=0, show_default=True, help="For the solver."),
)
