"""``wattsched export``: the mathematical program, or the topology, in other programs' formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import STANDARD, output_option, read_instance, refuse_overwriting, write, written

if TYPE_CHECKING:
    from wattsched.instances.sizing.instance import Instance

PROGRAMS = (".mps", ".lp")
TOPOLOGIES = (".json", ".conf")


@click.command("export")
@click.argument("file")
@click.option(
    "--formulation",
    default="mckp",
    show_default=True,
    metavar="NAME",
    help="How to write the problem; FILE.py:NAME runs a file of yours.",
)
@click.option("--objective", metavar="NAME", help="Instead of the instance's objective.")
@click.option("--topology", is_flag=True, help="Write the cluster's tree instead of the program.")
@output_option(
    *PROGRAMS,
    *TOPOLOGIES,
    required=True,
    help="A program (.mps, .lp), or with --topology a node-link graph (.json) or Slurm's topology (.conf).",
)
def command(file: str, formulation: str, objective: str | None, topology: bool, output: str) -> None:
    """Write the program of FILE for other solvers, or its topology for other schedulers."""
    endings = TOPOLOGIES if topology else PROGRAMS
    if output == STANDARD or not output.endswith(endings):
        kind = "a topology" if topology else "a program"
        raise BadInput(f"'{output}': the name of {kind} must end in {' or '.join(endings)}")
    refuse_overwriting(output, file)
    instance = read_instance(file)
    if topology:
        write(output, _topology(instance, output))
    else:
        _write_program(instance, formulation, objective, output)


def _topology(instance: Instance, output: str) -> str:
    from wattsched.topology.exchange import to_node_link, to_slurm

    if output.endswith(".json"):
        return to_node_link(instance.cluster) + "\n"
    with refusing():
        return to_slurm(instance.cluster)


def _write_program(instance: Instance, formulation: str, objective: str | None, output: str) -> None:
    from wattsched.cli.terminal import progress
    from wattsched.formulations.registry import formulation as find_formulation
    from wattsched.formulations.sizing.data import expand
    from wattsched.formulations.sizing.objectives import objective as find_objective
    from wattsched.solvers.export import write_lp, write_mps

    with refusing():
        build = find_formulation(instance.problem, formulation)
        goal = find_objective(objective or instance.objective)
    with progress(f"writing {formulation} of {instance.name}"):
        options = expand(instance)
        if late := options.jobs_without_options():
            raise BadInput(f"job '{late[0]}' has no option, its deadline cannot be met: there is no program")
        program = build(options, goal.name).program
        with refusing(output):
            (write_mps if output.endswith(".mps") else write_lp)(program, output)
    written(output)
