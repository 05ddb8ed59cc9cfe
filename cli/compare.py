"""``wattsched compare``: every instance by every formulation and solver, in one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import click

from wattsched.cli.failures import BAD_INPUT, CHECK_FAILED, BadInput, refusing
from wattsched.cli.files import counting, stray_output_to_stderr
from wattsched.cli.outputs import folder_option
from wattsched.cli.parameters import (
    Described,
    Limits,
    Listed,
    filling,
    limit_options,
    names_of_problems,
)


@dataclass(frozen=True)
class Pairs:
    """Who solves the instances.

    Parameters
    ----------
    formulations : list of str, optional
        How to write the problem (default: its first one); FILE.py:NAME runs a file of yours.
    solvers : list of str
        Who solves it.
    objective : str, optional
        Instead of the instances' objectives.
    """

    formulations: list[str] | None = None
    solvers: Sequence[str] = ("auto",)
    objective: str | None = None


@click.command("compare", cls=Described, sections=names_of_problems)
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@filling(
    "pairs",
    Pairs,
    formulations={"metavar": "A,B", "type": Listed()},
    solvers={"metavar": "X,Y", "type": Listed(), "default": "auto"},
    objective={"metavar": "NAME"},
)
@limit_options
@folder_option("Folder for runs.csv, runs.json and the plots.")
def command(files: tuple[str, ...], pairs: Pairs, limits: Limits, output: str | None) -> int:
    """Solve every instance in FILES by every formulation and solver, and compare the answers.

    Runs that are finished in DIR are not run again, so an interrupted comparison goes on where it was. With
    a time limit large programs are solved in a process, whose start may count as solving; 'inf' is without.
    Exit code 1 if answers contradict each other.
    """
    from wattsched.cli.tables.comparison import print_comparison
    from wattsched.comparisons.compare import compare, write_report
    from wattsched.comparisons.run import Settings
    from wattsched.report.terminal import console

    limit_s = None if math.isinf(limits.time_limit) else limits.time_limit
    settings = Settings(pairs.objective, limits.gap, limit_s, limits.threads, limits.seed)
    with counting() as show, stray_output_to_stderr(), refusing():
        comparison = compare(
            files,
            formulations=pairs.formulations,
            solvers=pairs.solvers,
            settings=settings,
            folder=output,
            progress=lambda at: show(f"{at.case}: {at.pair}" if at.case else "", at.done, at.total),
        )
    written: list[str] = []
    if output is not None:
        try:
            written = write_report(comparison, output)
        except OSError as error:
            raise BadInput(f"cannot write into '{output}': {error.strerror}") from None
    print_comparison(console(), comparison, output, written)
    if all(run.status == "skipped" for run in comparison.runs):
        return BAD_INPUT
    return CHECK_FAILED if comparison.disagreements or comparison.failures else 0
