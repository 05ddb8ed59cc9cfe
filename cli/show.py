"""``wattsched show``: an instance or a result in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wattsched.cli.files import read_document, shown
from wattsched.report.terminal import console, line, table
from wattsched.report.wording import duration, gap_text, spoken
from wattsched.verification.shifting.pareto import TOTALS

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.tradeoffs import ParetoResult


@click.command("show")
@click.argument("file")
def command(file: str) -> None:
    """Describe FILE, an instance, a result, a frontier or a bare decision ('-' is standard input)."""
    from wattsched.documents import decision_of, instance_of, is_decision, is_result, result_of
    from wattsched.instances.errors import sourced
    from wattsched.report.summary import print_result
    from wattsched.report.views import view
    from wattsched.tradeoffs import is_pareto, pareto_of

    document, out = read_document(file), console()
    if is_pareto(document):
        print_pareto(out, pareto_of(document, shown(file)))
    elif is_result(document):
        print_result(out, result_of(document, shown(file)))
    elif is_decision(document):
        problem, decision = decision_of(document, shown(file))
        view(problem).print_decision(out, decision, None)
    else:
        instance = instance_of(document, source=shown(file))
        with sourced(shown(file)):
            view(instance.problem).print_instance(out, instance)


def print_pareto(out: Console, found: ParetoResult) -> None:
    """Print the points, or why there are none."""
    total = TOTALS[found.tradeoff]
    line(out, (found.instance, "bold"), f": from the soonest completion to the least {found.tradeoff}")
    rows = []
    for point in found.points:
        result, totals = point.result, point.result.totals
        gaps = (gap_text(gap).removeprefix("gap ") for gap in (result.gap, result.proven_gap))
        rows.append((duration(totals["average_completion_s"]), spoken(total, totals[total]), *gaps))
    if rows:
        table(out, [">average completion", f">{found.tradeoff}", ">gap", ">proven"], rows)
        if found.missing:
            line(out, f"{found.missing} more asked for, and not found in time")
    elif found.termination is not None:
        reason = found.termination.reason.replace("_", " ")
        line(out, f"{reason}: {found.termination.detail or 'no decision was found'}")
