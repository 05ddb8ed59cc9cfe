"""``wattsched import slurm`` and ``kubernetes``, a scheduler's records; ``solution``, a solver's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from wattsched.cli.outputs import Command, folder_option, json_option, output_option
from wattsched.cli.parameters import Number, pairs_given, refuse_given, time_zone_option
from wattsched.reading.inputs import require_once
from wattsched.report.wording import printable

if TYPE_CHECKING:
    from datetime import tzinfo

    from wattsched.adapters.recorded import Recorded
    from wattsched.adapters.slurm.trace import EnergyOf

TRACE, CLUSTER = "jobs.csv", "cluster.json"


@dataclass(frozen=True)
class Source:
    """Command for records of a scheduler or solutions of a solver, and in words what it reads and yields."""

    description: str
    command: click.Command
    yields: str = "trace and cluster"


def _finish(recorded: Recorded, output: str, source: str) -> None:
    """Write the trace and cluster into a folder, and say what was read, assumed, converted and left out."""
    from wattsched.instances.sizing.instance import Instance
    from wattsched.instances.traces.job_lists import csv_of
    from wattsched.report.imports import table_of
    from wattsched.report.terminal import console, table

    size, *more = recorded.lines()
    entries = recorded.table()
    comments = [f"imported from {source}: {size}", *(entry.sentence() for entry in entries)]
    trace, cluster = Path(output) / TRACE, Path(output) / CLUSTER
    contents: dict[Path, str | bytes] = {trace: csv_of(recorded.jobs, comments)}
    if recorded.cluster is not None:
        empty = Instance(name=recorded.cluster.name, cluster=recorded.cluster, jobs=[])
        contents[cluster] = content_of(empty, str(cluster))
    elif cluster.exists():
        told = "is there already, and no nodes are told from which to make it anew"
        raise BadInput(f"{cluster} {told}: name their file, too, or another folder")
    Path(output).mkdir(exist_ok=True)
    for target, content in contents.items():
        before = target.read_bytes() if target.is_file() else None
        write(str(target), content)
        if before not in (None, target.read_bytes()):
            told = "held something else before, which is replaced"
            click.echo(f"note: {printable(str(target))} {told}", err=True)
    for line in (size, *more):
        click.echo(line)
    table(console(), *table_of(entries))


stand_in_option = click.option(
    "--stand-in",
    "stand_ins",
    multiple=True,
    metavar="TYPE=KNOWN",
    callback=pairs_given,
    help="Known GPU type that counts for one of the cluster's: gpu=A100. May be repeated.",
)
SINCE = "Without files: ask for jobs from then on, as sacct takes it, such as 2026-11-01."
UNTIL = "Without files: ask for jobs up to then."


@click.command("slurm", cls=Command)
@click.argument("files", nargs=-1)
@folder_option(f"Folder for {TRACE} and {CLUSTER}.", required=True)
@click.option("--since", default="now-7days", metavar="T", help=SINCE)
@click.option("--until", default="now", metavar="T", help=UNTIL)
@time_zone_option("this machine's")
@click.option(
    "--energy-of",
    type=click.Choice(["nodes", "gpus"]),
    default="nodes",
    help="What Slurm's plugin measures: whole nodes, servers included, or GPUs alone.",
)
@stand_in_option
def slurm(
    files: tuple[str, ...],
    output: str,
    since: str,
    until: str,
    time_zone: tzinfo | None,
    energy_of: EnergyOf,
    stand_ins: dict[str, str],
) -> None:
    """Import jobs that Slurm has accounted for, and its nodes.

    FILES, in any order, hold what sacct --parsable2 or --json, sinfo --json, scontrol show node and
    scontrol show topology print, or a topology.conf. Without files, Slurm is asked.
    """
    from wattsched.adapters.slurm.snapshot import SlurmError
    from wattsched.adapters.slurm.trace import Said, ask_slurm, recorded
    from wattsched.reading.inputs import read_text

    if files:
        refuse_given(("since", "until"), "does not go with files, of which all jobs are taken")
    else:
        refuse_given(("time_zone",), "needs files; live, Slurm is asked for times in UTC")
    said = Said()
    with refusing():
        require_once(list(map(shown, files)))
    for file in files:
        with named_input(file) as path, refusing(str(path)):
            said.add(read_text(path), str(path))
    try:
        said = said if files else ask_slurm(since, until)
    except SlurmError as error:
        raise BadInput(f"{error}; without Slurm's commands, name files that they printed") from None
    with refusing():
        found = recorded(said, time_zone, stand_ins, energy_of)
    _finish(found, output, "Slurm")


@click.command("kubernetes", cls=Command)
@click.argument("files", nargs=-1, required=True)
@folder_option(f"Folder for {TRACE} and {CLUSTER}.", required=True)
@stand_in_option
def kubernetes(files: tuple[str, ...], output: str, stand_ins: dict[str, str]) -> None:
    """Import pods that used GPUs, or Kueue's workloads, and the nodes of a Kubernetes cluster.

    FILES, in any order, hold what kubectl get nodes,pods,jobs -A -o json prints, and with Kueue kubectl get
    workloads -A -o json. Workloads and pods of no workload are the jobs.
    """
    from wattsched.adapters.kubernetes.trace import items_of, missing_of, moment_of, recorded
    from wattsched.instances.errors import sourced
    from wattsched.instances.io import read_json

    documents, items, moments = list[Any](), list[dict[str, Any]](), list[float]()
    with refusing():
        require_once(list(map(shown, files)))
    for file in files:
        with named_input(file) as path, refusing(str(path)), sourced(str(path)):
            documents.append(document := read_json(path))
            found_items = items_of(document)
            items += found_items
            moments += [moment_of(document)] * len(found_items)
    with refusing():
        found = recorded(items, moments, stand_ins)
    for told in missing_of(documents):
        found.tell("doubtful", told)
    _finish(found, output, "Kubernetes")


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

    FILE is a solution as HiGHS, SCIP, CBC, GLPK (of -w or -o), Gurobi or CPLEX (XML) write it. Its decision
    is placed and checked, and proven as far as row prices do. Exit code 1 if it breaks rows, which are named
    as in the exported file, or the check fails.
    """
    from wattsched.files.solutions import RefusedSolutionError, import_solution
    from wattsched.report.summary import print_result
    from wattsched.report.terminal import console
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


SOURCES: Mapping[str, Source] = {
    "slurm": Source("jobs and nodes of a Slurm cluster, live or of files", slurm),
    "kubernetes": Source("pods or workloads and nodes of a Kubernetes cluster", kubernetes),
    "solution": Source(
        "an instance, and what a solver has found for its exported program", solution, "result"
    ),
}
