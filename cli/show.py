"""``wattsched show``: an instance or a result in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.files import answer_text, problem, read_document, shown, write, write_json
from wattsched.cli.k_best import print_k_best
from wattsched.cli.outputs import json_option
from wattsched.report.terminal import console, line, table
from wattsched.report.wording import gap_text, spoken
from wattsched.verification.frontiers import FIRST
from wattsched.verification.shifting.checker import TOTALS

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.solving.tradeoffs import ParetoResult


@click.command("show")
@click.argument("file")
@json_option("the figures of an instance, or all of a result,")
def command(file: str, as_json: bool) -> None:
    """Describe FILE, an instance, a result, a frontier or a bare decision ('-' is standard input)."""
    from wattsched.instances.errors import sourced
    from wattsched.report.views import view
    from wattsched.results.documents import decision_of, instance_of, is_decision, is_result, result_of
    from wattsched.solving.k_best import is_k_best, k_best_of
    from wattsched.solving.tradeoffs import is_pareto, pareto_of

    document, out = read_document(file), console()
    if is_pareto(document) or is_k_best(document) or is_result(document):
        read = pareto_of if is_pareto(document) else k_best_of if is_k_best(document) else result_of
        answer: Any = read(document, shown(file))
        if as_json:
            write(None, answer_text(answer))
        else:
            print_answer(answer)
    elif is_decision(document):
        problem, decision = decision_of(document, shown(file))
        if as_json:
            write_json({"problem": problem, "decision": view(problem).rows(decision)}, indent=1)
        else:
            view(problem).print_decision(out, decision, None)
    else:
        instance = instance_of(document, source=shown(file))
        with sourced(shown(file)):
            if as_json:
                write_json(_about(instance), indent=1)
            else:
                view(instance.problem).print_instance(out, instance)


def _about(instance: Any) -> dict[str, Any]:
    """Return the figures that describe an instance."""
    from wattsched.instances.digest import digest_of
    from wattsched.report.views import view

    known, look = problem(instance.problem), view(instance.problem)
    return {
        "problem": instance.problem,
        "name": instance.name,
        "digest": digest_of(instance),
        "about": look.about(instance),
        "objective": instance.objective,
        "jobs": known.size(instance),
        "capacities": look.capacities(instance),
        "budgets": dict(getattr(instance, "budgets", ())),
    }


def print_answer(answer: Any, instance: Any = None, marginal: Any = None) -> None:
    """Print a result, with its instance and marginal prices where they are known, or several results."""
    from wattsched.report.summary import print_result
    from wattsched.solving.tradeoffs import ParetoResult

    if isinstance(answer, ParetoResult):
        print_pareto(console(), answer)
    elif hasattr(answer, "results"):
        print_k_best(console(), answer)
    else:
        print_result(console(), answer, instance, marginal)


def print_pareto(out: Console, found: ParetoResult) -> None:
    """Print the points, or why there are none."""
    names = (found.first, found.tradeoff)
    soonest = "the soonest completion" if found.first == FIRST else f"the best {found.first}"
    least = "least" if found.problem == "shifting" else "best"
    line(out, (found.instance, "bold"), f": from {soonest} to the {least} {found.tradeoff}")
    rows = []
    for point in found.points:
        gaps = (gap_text(gap).removeprefix("gap ") for gap in (point.gap, point.proven_gap))
        rows.append((*(_amount(found.problem, name, point.value(name)) for name in names), *gaps))
    if rows:
        heads = [f">{'average completion' if name == FIRST else name}" for name in names]
        table(out, [*heads, ">gap", ">proven"], rows)
        if found.missing:
            line(out, f"{found.missing} more asked for, and not found in time")
    elif found.termination is not None:
        reason = found.termination.reason.replace("_", " ")
        line(out, f"{reason}: {found.termination.detail or 'no decision was found'}")


def _amount(problem: str, objective: str, value: float) -> str:
    from wattsched.report.views import view

    if problem == "shifting":
        return spoken(TOTALS[objective], value)
    return view(problem).goal(objective, "min").amount(value)
