"""``wattsched check``: a result against its instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from wattsched.cli.failures import BadInput
from wattsched.cli.files import STANDARD, answer_of, read_any_instance, read_document, shown
from wattsched.cli.frontier import check_frontier, is_frontier

if TYPE_CHECKING:
    from wattsched.instances.sizing.instance import Instance
    from wattsched.result import Result
    from wattsched.verification.sizing.checker import Report


@click.command("check")
@click.argument("instance_file", metavar="INSTANCE")
@click.argument("result_file", metavar="RESULT")
def command(instance_file: str, result_file: str) -> int:
    """Check RESULT, a result file, a frontier or a bare decision, against INSTANCE.

    Recomputes GPUs, blocks, budgets and the objective from the two files alone, and proves the bound again
    from the prices of the certificate, without any code of the formulations and solvers. Exit code 0 when
    the decision and every claim about it hold, 1 when not.
    """
    if instance_file == result_file == STANDARD:
        raise BadInput("only one of INSTANCE and RESULT can be standard input")
    from wattsched.cli.terminal import progress
    from wattsched.instances.sizing.decision import Decision
    from wattsched.verification.sizing.checker import check, check_result

    instance = read_any_instance(instance_file)
    document = read_document(result_file)
    if is_frontier(document):
        return check_frontier(instance, document, shown(result_file))
    if instance.problem != "sizing":
        from wattsched.cli.plans import check_plan

        return check_plan(instance, document, shown(result_file))
    answer = answer_of(document, shown(result_file))
    claimed = None
    with progress(f"checking {shown(result_file)}"):
        if isinstance(answer, Decision):
            report = check(instance, answer)
        else:
            report, claimed = check_result(instance, document), answer
            instance = instance.model_copy(update={"objective": answer.objective_name})
    from wattsched.cli.verdict import print_verdict

    return print_verdict(report.faults, _told(report, instance, claimed))


def _told(report: Report, instance: Instance, claimed: Result | None) -> Iterator[str]:
    if claimed is not None and claimed.decision is None:
        yield _nothing_decided(claimed)
    else:
        yield from _uses(report, instance)
    yield from _proof(report, instance, claimed)


def _nothing_decided(claimed: Result) -> str:
    reason = claimed.termination.reason.replace("_", " ")
    return f"no decision: the result says '{reason}', and nothing here proves that"


def _uses(report: Report, instance: Instance) -> Iterator[str]:
    from wattsched.cli.wording import count, energy, goal_of, quantity

    goal = goal_of(instance.objective, "min")
    if report.objective is not None:
        yield f"{goal.noun} {goal.amount(report.objective)}"
    used = [
        f"{count(report.gpus_used, 'GPU')} in use",
        quantity(report.power_w, "W"),
        energy(report.energy_j),
    ]
    if report.carbon_g is not None:
        used.append(f"{quantity(report.carbon_g, 'g')} of CO2")
    yield ", ".join(used)


def _proof(report: Report, instance: Instance, claimed: Result | None) -> Iterator[str]:
    """What the certificate proves, and what of the bound it leaves to trust."""
    from wattsched.cli.wording import goal_of, percent

    if claimed is None:
        return
    goal = goal_of(instance.objective, claimed.sense)
    proven, bound = report.proven_bound, claimed.bound
    trusted = ", and so is 'optimal'" if claimed.termination.reason == "optimal" else ""
    if proven is None:
        if bound is not None:
            told = f"bound {goal.amount(bound)} claimed, no certificate proves it"
            yield f"{told}: it is taken on trust{trusted}"
        return
    word = "less" if claimed.sense == "min" else "more"
    told = f"prices prove that no decision can have {word} than {goal.amount(proven)}"
    if report.objective is not None:
        told += f" (gap {percent(abs(report.objective - proven) / max(1e-9, abs(report.objective)))})"
    yield told
    if bound is None:
        return
    beyond = bound - proven if claimed.sense == "min" else proven - bound
    if beyond > 1e-6 * max(1.0, abs(bound)):
        yield f"bound {goal.amount(bound)} claimed, prices prove {goal.amount(proven)}"
        yield f"the rest of the bound is the solver's word: it is taken on trust{trusted}"
