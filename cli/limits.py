"""Options that the commands which solve have in common: gap, time limit, threads and seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from wattsched.cli.parameters import Number, Whole

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")

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
