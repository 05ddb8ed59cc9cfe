"""``wattsched export``: the mathematical program, or the topology, in other programs' formats."""

from __future__ import annotations

from typing import Any

import click

from wattsched.cli.completion import name_option
from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import STANDARD, problem, progress, read_instance, shown, write
from wattsched.cli.outputs import Command, output_option

PROGRAMS = (".mps", ".lp")
TOPOLOGIES = (".json", ".conf")


@click.command("export", cls=Command)
@click.argument("file")
@name_option(
    "formulation",
    "How to write the problem (default: its first formulation); FILE.py:NAME runs a file of yours.",
)
@name_option("objective", "Instead of the instance's objective.")
@click.option("--topology", is_flag=True, help="Write the cluster's tree instead of the program.")
@output_option(
    *PROGRAMS,
    *TOPOLOGIES,
    required=True,
    help="A program (.mps, .lp), or with --topology a node-link graph (.json) or Slurm's topology (.conf).",
)
def command(file: str, formulation: str | None, objective: str | None, topology: bool, output: str) -> None:
    """Write the program of FILE for other solvers, or its topology for other schedulers."""
    from wattsched.files.exchange import export_program, export_topology
    from wattsched.instances.errors import sourced
    from wattsched.solving.engine import require_names

    endings = TOPOLOGIES if topology else PROGRAMS
    if output == STANDARD or not output.endswith(endings):
        kind = "a topology" if topology else "a program"
        other = "; --topology writes a topology" if output.endswith(TOPOLOGIES) else ""
        raise BadInput(f"'{output}': the name of {kind} must end in {' or '.join(endings)}{other}")
    instance = read_instance(file)
    form: Any = output.rpartition(".")[2]
    if topology:
        with refusing(shown(file)):
            return write(output, export_topology(instance, form))
    with refusing():
        goal = instance.objective if objective is None else objective
        require_names(problem(instance.problem), formulation, "auto", goal)
    with progress(f"writing the program of {instance.name}"), refusing(shown(file)), sourced(shown(file)):
        text = export_program(instance, form, formulation=formulation, objective=objective)
    return write(output, text)
