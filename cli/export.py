"""``wattsched export``: the mathematical program, or the topology, in other programs' formats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import (
    STANDARD,
    cluster_of,
    output_option,
    read_instance,
    refuse_overwriting,
    shown,
    write,
)

if TYPE_CHECKING:
    from wattsched.topology.cluster import Cluster

PROGRAMS = (".mps", ".lp")
TOPOLOGIES = (".json", ".conf")


@click.command("export")
@click.argument("file")
@click.option(
    "--formulation",
    metavar="NAME",
    help="How to write the problem (default: its first formulation); FILE.py:NAME runs a file of yours.",
)
@click.option("--objective", metavar="NAME", help="Instead of the instance's objective.")
@click.option("--topology", is_flag=True, help="Write the cluster's tree instead of the program.")
@output_option(
    *PROGRAMS,
    *TOPOLOGIES,
    required=True,
    help="A program (.mps, .lp), or with --topology a node-link graph (.json) or Slurm's topology (.conf).",
)
def command(file: str, formulation: str | None, objective: str | None, topology: bool, output: str) -> None:
    """Write the program of FILE for other solvers, or its topology for other schedulers."""
    endings = TOPOLOGIES if topology else PROGRAMS
    if output == STANDARD or not output.endswith(endings):
        kind = "a topology" if topology else "a program"
        raise BadInput(f"'{output}': the name of {kind} must end in {' or '.join(endings)}")
    refuse_overwriting(output, file)
    instance = read_instance(file)
    if topology:
        write(output, _topology(cluster_of(instance, shown(file)), output))
    else:
        write(output, _program(instance, formulation, objective, output))


def _topology(cluster: Cluster, output: str) -> str:
    from wattsched.topology.exchange import to_node_link, to_slurm

    if output.endswith(".json"):
        return to_node_link(cluster) + "\n"
    with refusing():
        return to_slurm(cluster)


def _program(instance: Any, formulation: str | None, objective: str | None, output: str) -> str:
    from wattsched.engine import model_of
    from wattsched.formulations.infeasibility import InfeasibleError
    from wattsched.report.terminal import progress
    from wattsched.solvers.export import to_lp, to_mps

    with progress(f"writing the program of {instance.name}"), refusing(output):
        try:
            model = model_of(instance, formulation=formulation, objective=objective)
        except InfeasibleError as error:
            raise BadInput(f"there is no program: {error.detail}") from None
        text = (to_mps if output.endswith(".mps") else to_lp)(model.program)
    if model.outside != math.inf:
        click.echo("The program holds generated columns only: others may have better decisions.", err=True)
    return text
