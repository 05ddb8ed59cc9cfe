"""``wattsched explain``: why a job waits, and what would make it run."""

from __future__ import annotations

from typing import Any

import click

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import (
    JSON_SUFFIXES,
    STANDARD,
    answer_text,
    progress,
    read_document,
    read_instance,
    shown,
    stray_output_to_stderr,
    write,
)
from wattsched.cli.outputs import Command, json_option, output_option
from wattsched.cli.parameters import Number


@click.command("explain", cls=Command)
@click.argument("instance_file", metavar="ROUND")
@click.argument("result_file", metavar="RESULT")
@click.argument("job")
@click.option("--time-limit", type=Number(above=0.0), default=5.0, metavar="S", help="Seconds to look.")
@click.option(
    "--durations",
    nargs=2,
    type=Number(above=0.0),
    default=(1.0, 1.0),
    metavar="LOW HIGH",
    help="Shortest and longest time that jobs take, as factors of what ROUND states, for the expected start.",
)
@output_option(*JSON_SUFFIXES, help="Write the explanation with its proofs to a .json or .json.gz file.")
@json_option("the explanation with its proofs")
def command(
    instance_file: str,
    result_file: str,
    job: str,
    time_limit: float,
    durations: tuple[float, float],
    output: str | None,
    as_json: bool,
) -> int:
    """Explain why JOB waits by RESULT, a decision of ROUND, and what would make it run at once.

    Prints a sentence; the least changes with which the job runs and no other is later, and whether nothing
    less would do; who would be later without any change; and when JOB is expected to start, if ROUND states
    how much work jobs have left. ``wattsched check ROUND RESULT EXPLANATION``
    verifies all of it but the expected start. Exit code 0.
    """
    from wattsched.explaining.explain import explain
    from wattsched.report.explanation import print_explanation
    from wattsched.report.terminal import console
    from wattsched.results.documents import answer_of

    if instance_file == result_file == STANDARD:
        raise BadInput("only one of ROUND and RESULT can be standard input")
    instance = read_instance(instance_file)
    answer: Any = answer_of(read_document(result_file), instance.problem, shown(result_file))
    with refusing(), progress(f"explaining {job}"), stray_output_to_stderr():
        found = explain(instance, answer, job, time_limit=time_limit, durations=durations)
    if output is not None:
        write(output, answer_text(found))
    if as_json and output != STANDARD:
        write(None, answer_text(found))
    elif output != STANDARD:
        print_explanation(console(), found)
    return 0
