"""``wattsched import solution``: what another solver has found for an exported program."""

from __future__ import annotations

from collections.abc import Mapping

import click

from wattsched.cli.check import print_verdict
from wattsched.cli.completion import name_option
from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import (
    DOCUMENT_SUFFIXES,
    STANDARD,
    content_of,
    named_input,
    progress,
    read_instance,
    shown,
    write,
)
from wattsched.cli.importing_sites import Source
from wattsched.cli.outputs import Command, json_option, output_option
from wattsched.cli.parameters import Number

AS_EXPORTED = "As it was given to 'export'."


@click.command("solution", cls=Command)
@click.argument("instance_file", metavar="INSTANCE")
@click.argument("solution_file", metavar="FILE")
@name_option("formulation", AS_EXPORTED)
@name_option("objective", AS_EXPORTED)
@click.option(
    "--gap",
    type=Number(0, below=1),
    default=1e-4,
    help="Relative gap at which the decision counts as optimal.",
)
@click.option(
    "--prove", type=Number(0), metavar="S", help="Seconds to prove case by case what prices do not."
)
@output_option(*DOCUMENT_SUFFIXES, help="Write the result to a .json, .json.gz or .parquet file.")
@json_option("the result")
def solution(
    instance_file: str,
    solution_file: str,
    formulation: str | None,
    objective: str | None,
    gap: float,
    prove: float | None,
    output: str | None,
    as_json: bool,
) -> int:
    """Import what another solver has found for the program of INSTANCE that 'export' wrote.

    FILE is a solution as HiGHS (raw), SCIP, CBC, GLPK (of -w or -o) or Gurobi write it. Its decision is
    placed and checked, and proven as far as row prices do. Exit code 1 if it breaks rows, which are named
    as in the exported file, or the check fails.
    """
    from wattsched.report.summary import print_result
    from wattsched.report.terminal import console
    from wattsched.solutions import RefusedSolutionError, import_solution
    from wattsched.verification.verdict import Verdict

    if instance_file == solution_file == STANDARD:
        raise BadInput("only one of INSTANCE and FILE can be standard input")
    instance = read_instance(instance_file)
    try:
        with progress(f"reading {shown(solution_file)}"), refusing(), named_input(solution_file) as path:
            result = import_solution(
                instance, path, formulation=formulation, objective=objective, gap=gap, prove=prove
            )
    except RefusedSolutionError as error:
        return print_verdict(Verdict(error.faults), [], required=False, as_json=as_json)
    if output is not None:
        write(output, content_of(result, output))
    if as_json:
        write(None, content_of(result, None))
    else:
        print_result(console(), result, instance)
    return 0


SOLUTIONS: Mapping[str, Source] = {
    "solution": Source(
        "an instance, and what a solver has found for its exported program", solution, "result"
    )
}
