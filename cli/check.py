"""``wattsched check``: a result against its instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import CHECK_FAILED, BadInput, refusing
from wattsched.cli.files import STANDARD, read_document, read_instance, shown

if TYPE_CHECKING:
    from wattsched.report.wording import Goal
    from wattsched.verification.claims import Verdict


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
    from wattsched.documents import answer_of, is_decision, verdict_on
    from wattsched.problems import problem
    from wattsched.report.terminal import progress
    from wattsched.report.views import view
    from wattsched.tradeoffs import is_pareto
    from wattsched.verification.claims import Verdict

    instance, document = read_instance(instance_file), read_document(result_file)
    if is_pareto(document):
        return _check_pareto(instance, document, shown(result_file))
    answer = answer_of(document, instance.problem, shown(result_file))
    rules = problem(instance.problem)
    with progress(f"checking {shown(result_file)}"):
        if is_decision(document):
            report, document = rules.check(instance, answer), {}
            verdict = Verdict(report.faults, report)
        else:
            verdict = verdict_on(instance, document)
    objective = getattr(answer, "objective_name", instance.objective)
    sense = rules.objectives.get(objective, "min")
    goal = view(instance.problem).goal(objective, sense)
    told = [*_decided(verdict, document, goal), *_proved(verdict, document, goal, sense)]
    return print_verdict(verdict.faults, told)


def _check_pareto(instance: Any, document: Any, source: str) -> int:
    """Check every point of a Pareto result."""
    from wattsched.report.wording import count
    from wattsched.tradeoffs import faults_of_pareto, pareto_of

    found = pareto_of(document, source)
    if instance.problem != found.problem:
        of = f"is a frontier of '{found.problem}', the instance is of '{instance.problem}'"
        raise BadInput(f"{source}: {of}")
    with refusing(source):
        faults = faults_of_pareto(instance, found)
    points = count(len(found.points), "point")
    return print_verdict(faults, [f"{points}, each with its decision and its proof"])


def _decided(verdict: Verdict, document: dict[str, Any], goal: Goal) -> Iterator[str]:
    from wattsched.report.wording import spoken, total_label

    if verdict.infeasible:
        yield "no decision: prices prove that there is none"
        return
    if verdict.report is None:
        reason = str(document.get("termination", {}).get("reason")).replace("_", " ")
        yield f"no decision: the result says '{reason}', and nothing here proves that"
        return
    if verdict.report.objective is not None:
        yield f"{goal.noun} {goal.amount(verdict.report.objective)}"
    totals = verdict.report.totals.items()
    yield ", ".join(f"{total_label(name)} {spoken(name, value)}" for name, value in totals)


def _proved(verdict: Verdict, document: dict[str, Any], goal: Goal, sense: str) -> Iterator[str]:
    """What the certificate proves, and what of the bound it leaves to trust."""
    from wattsched.report.wording import gap_text

    proven = None if verdict.proof is None else verdict.proof.bound
    bound, ended = document.get("bound"), document.get("termination", {})
    trusted = ", and so is 'optimal'" if ended.get("reason") == "optimal" else ""
    if proven is None:
        if bound is not None:
            told = f"bound {goal.amount(bound)} claimed, no certificate proves it"
            yield f"{told}: it is taken on trust{trusted}"
        return
    if verdict.infeasible:
        return
    word = "less" if sense == "min" else "more"
    told = f"prices prove that no decision can have {word} than {goal.amount(proven)}"
    objective = None if verdict.report is None else verdict.report.objective
    if objective is not None:
        told += f" ({gap_text(abs(objective - proven) / max(1e-9, abs(objective)))})"
    yield told
    if bound is None:
        return
    beyond = bound - proven if sense == "min" else proven - bound
    if beyond > 1e-6 * max(1.0, abs(bound)):
        yield f"bound {goal.amount(bound)} claimed, prices prove {goal.amount(proven)}"
        yield f"the rest of the bound is the solver's word: it is taken on trust{trusted}"


def print_verdict(faults: Sequence[str], valid: Iterable[str]) -> int:
    """Print the faults, or what is to be said of a file without any, and return the exit code."""
    from wattsched.instances.errors import capped
    from wattsched.report.terminal import console, line
    from wattsched.report.wording import count

    out = console()
    if faults:
        line(out, ("not valid", "bold red"), f": {count(len(faults), 'fault')}")
    else:
        line(out, ("valid", "bold green"))
    for words in capped(list(faults)) or valid:
        line(out, f"{words}", indent=2)
    return CHECK_FAILED if faults else 0
