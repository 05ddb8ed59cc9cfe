"""``wattsched defragment``: the fewest moves of running jobs after which others fit."""

from __future__ import annotations

import click

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import answer_text, progress, read_instance, shown, stray_output_to_stderr, write
from wattsched.cli.outputs import Command, json_option
from wattsched.cli.parameters import Number, Whole, given
from wattsched.cli.solve import EXIT_CODES
from wattsched.report.terminal import console


@click.command("defragment", cls=Command)
@click.argument("file", metavar="ROUND")
@click.option(
    "--job", "jobs", multiple=True, metavar="NAME", help="A waiting job that is to fit, at its smallest size."
)
@click.option(
    "--size", type=Whole(1, 10_000_000), metavar="GPUS", help="Number of GPUs of a job that is to fit."
)
@click.option("--count", type=Whole(1, 1_000_000), default=1, help="How many jobs of that size.")
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="NAME",
    help="Pool or GPU type for jobs of that size (default: any).",
)
@click.option(
    "--time-limit", type=Number(above=0), metavar="S", help="Seconds for the solver (default: no limit)."
)
@json_option("all moves, with the bound and its prices,")
def command(
    file: str,
    jobs: tuple[str, ...],
    size: int | None,
    count: int,
    pools: tuple[str, ...],
    time_limit: float | None,
    as_json: bool,
) -> int:
    """Find the fewest moves of running jobs after which others fit, in an order that has room for each.

    ROUND is an instance of sizing ('-' is standard input). Jobs that move keep their pool and number of GPUs.
    """
    from wattsched.instances.errors import sourced
    from wattsched.report.rearrangement import print_rearrangement
    from wattsched.solving.defragment import defragment

    if size is None and (not jobs or given("count") or given("pools")):
        raise BadInput("give --size, or --job without --count and --pool")
    instance = read_instance(file)
    options = {"jobs": "--job", "size": "--size", "pools": "--pool"}
    with (
        sourced(shown(file)),
        refusing(options=options),
        progress(f"moving jobs of {file}"),
        stray_output_to_stderr(),
    ):
        found = defragment(instance, jobs=jobs, size=size, count=count, pools=pools, time_limit=time_limit)
    if as_json:
        write(None, answer_text(found))
    else:
        print_rearrangement(console(), found)
    return EXIT_CODES[found.reason]
