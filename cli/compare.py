"""``wattsched compare``: every instance by every formulation and solver, in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import BAD_INPUT, CHECK_FAILED, BadInput, refusing
from wattsched.cli.files import stray_output_to_stderr
from wattsched.cli.parameters import Names, limit_options
from wattsched.report.wording import printable

if TYPE_CHECKING:
    from wattsched.comparisons.compare import Progress


def _listed(ctx: click.Context, param: click.Parameter, text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise click.BadParameter(f"'{text}' has an empty name between its commas", ctx, param)
    return names


def _folder(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name is not None and Path(name).exists() and not Path(name).is_dir():
        raise click.BadParameter(f"'{name}' is not a folder", ctx, param)
    return name


@click.command("compare", cls=Names)
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option(
    "--formulations",
    metavar="A,B",
    callback=_listed,
    help="How to write the problem (default: its first one); FILE.py:NAME runs a file of yours.",
)
@click.option(
    "--solvers", default="auto", show_default=True, metavar="X,Y", callback=_listed, help="Who solves it."
)
@click.option("--objective", metavar="NAME", help="Instead of the instances' objectives.")
@limit_options
@click.option(
    "-o", "--output", metavar="DIR", callback=_folder, help="Folder for runs.csv, runs.json and the plots."
)
def command(
    files: tuple[str, ...],
    formulations: list[str] | None,
    solvers: list[str],
    objective: str | None,
    gap: float,
    time_limit: float,
    threads: int,
    seed: int,
    output: str | None,
) -> int:
    """Solve every instance in FILES by every formulation and solver, and compare the answers.

    Runs that are finished in DIR are not run again, so an interrupted comparison goes on where it was. With
    a time limit a solver runs in a process of its own, whose start counts as solving; 'inf' is without.
    Exit code 1 if answers contradict each other.
    """
    from wattsched.cli.tables.comparison import print_comparison
    from wattsched.comparisons.compare import compare, write_report
    from wattsched.comparisons.run import Settings
    from wattsched.report.terminal import console

    limit_s = None if math.isinf(time_limit) else time_limit
    settings = Settings(objective, gap, limit_s, threads, seed)
    with _bar() as progress, stray_output_to_stderr(), refusing():
        comparison = compare(
            files,
            formulations=formulations,
            solvers=solvers,
            settings=settings,
            folder=output,
            progress=progress,
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


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """Progress bar on standard error, on a terminal only."""
    from wattsched.report.terminal import counted_progress

    with counted_progress() as bar:
        if bar is None:
            yield lambda progress: None
            return
        task = bar.add_task("reading", total=None)

        def show(progress: Progress) -> None:
            described = printable(f"{progress.case}: {progress.pair}" if progress.case else "")
            bar.update(task, total=progress.total, completed=progress.done, description=described)

        yield show
