"""``wattsched check``: a result against its instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import CHECK_FAILED, BadInput
from wattsched.cli.files import STANDARD, answer_of, read_document, read_instance, shown

if TYPE_CHECKING:
    from wattsched.instances.checker import Report
    from wattsched.instances.instance import Instance


@click.command("check")
@click.argument("instance_file", metavar="INSTANCE")
@click.argument("result_file", metavar="RESULT")
def command(instance_file: str, result_file: str) -> int:
    """Check RESULT, a result file or a bare decision, against INSTANCE.

    Recomputes GPUs, blocks, budgets and the objective from the two files alone, without any code of the
    formulations and solvers. Exit code 0 when the decision and every claim about it hold, 1 when not.
    """
    if instance_file == result_file == STANDARD:
        raise BadInput("only one of INSTANCE and RESULT can be standard input")
    from wattsched.cli.terminal import progress
    from wattsched.instances.checker import check, check_result
    from wattsched.instances.decision import Decision

    instance = read_instance(instance_file)
    document = read_document(result_file)
    answer = answer_of(document, shown(result_file))
    with progress(f"checking {shown(result_file)}"):
        if isinstance(answer, Decision):
            report = check(instance, answer)
        else:
            report = check_result(instance, document)
            instance = instance.model_copy(update={"objective": answer.objective_name})
    _print(report, instance)
    return CHECK_FAILED if report.faults else 0


def _print(report: Report, instance: Instance) -> None:
    from wattsched.cli.terminal import console, line
    from wattsched.cli.wording import count, energy, goal_of, quantity

    out = console()
    if report.faults:
        line(out, ("not valid", "bold red"), f": {count(len(report.faults), 'fault')}")
        for fault in report.faults:
            line(out, f"{fault}", indent=2)
        return
    line(out, ("valid", "bold green"))
    goal = goal_of(instance.objective, "min")
    used = [
        f"{count(report.gpus_used, 'GPU')} in use",
        quantity(report.power_w, "W"),
        energy(report.energy_j),
    ]
    if report.carbon_g is not None:
        used.append(f"{quantity(report.carbon_g, 'g')} of CO2")
    if report.objective is not None:
        line(out, f"{goal.noun} {goal.amount(report.objective)}", indent=2)
    line(out, f"{', '.join(used)}", indent=2)
