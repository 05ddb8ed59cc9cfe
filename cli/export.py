"""``wattsched export``: the mathematical program, or the topology, in other programs' formats."""

from __future__ import annotations

from typing import Any

import click

from wattsched.cli.completion import name_option
from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import STANDARD, named_input, problem, progress, read_instance, shown, write
from wattsched.cli.outputs import Command, output_option
from wattsched.cli.parameters import refuse_given

PROGRAMS = (".mps", ".lp")
STYLES = ("highs", "scip", "cbc", "glpk", "gurobi", "cplex")
TOPOLOGIES = (".json", ".conf")
SOLUTIONS = (".sol", ".mst")


@click.command("export", cls=Command)
@click.argument("file")
@name_option(
    "formulation",
    "How to write the problem (default: its first formulation); FILE.py:NAME runs a file of yours.",
)
@name_option("objective", "Instead of the instance's objective.")
@click.option("--topology", is_flag=True, help="Write the cluster's tree instead of the program.")
@click.option(
    "--solution",
    metavar="RESULT",
    help="Write a result's decision as a solution of the program, to start from.",
)
@click.option("--style", type=click.Choice(STYLES), default=STYLES[0], help="Solver that reads the solution.")
@output_option(
    *PROGRAMS,
    *TOPOLOGIES,
    *SOLUTIONS,
    required=True,
    help="A program (.mps, .lp), with --solution a solution (.sol, .mst), or with --topology a node-link "
    "graph (.json) or Slurm's topology (.conf).",
)
def command(
    file: str,
    formulation: str | None,
    objective: str | None,
    topology: bool,
    solution: str | None,
    style: str,
    output: str,
) -> None:
    """Write the program of FILE for other solvers, or its topology for other schedulers."""
    from wattsched.files.exchange import export_program, export_topology
    from wattsched.files.solutions import export_solution
    from wattsched.instances.errors import sourced
    from wattsched.solving.engine import require_names

    if topology:
        refuse_given(("solution",), "does not go with --topology")
    if solution is None:
        refuse_given(("style",), "needs --solution")
    kind, endings = ("a topology", TOPOLOGIES) if topology else ("a program", PROGRAMS)
    kind, endings = (kind, endings) if solution is None else ("a solution", SOLUTIONS)
    if output == STANDARD or not output.endswith(endings):
        other = "; --topology writes a topology" if output.endswith(TOPOLOGIES) else ""
        other = "; --solution RESULT writes a solution" if output.endswith(SOLUTIONS) else other
        raise BadInput(f"'{output}': the name of {kind} must end in {' or '.join(endings)}{other}")
    instance = read_instance(file)
    form: Any = output.rpartition(".")[2]
    if topology:
        with refusing(shown(file)):
            return write(output, export_topology(instance, form))
    with refusing():
        goal = instance.objective if objective is None else objective
        require_names(problem(instance.problem), formulation, "auto", goal)
    names = {"formulation": formulation, "objective": objective}
    if solution is not None:
        with refusing(), named_input(solution) as path:
            return write(output, export_solution(instance, path, style, **names))
    with progress(f"writing the program of {instance.name}"), refusing(shown(file)), sourced(shown(file)):
        text = export_program(instance, form, **names)
    return write(output, text)
