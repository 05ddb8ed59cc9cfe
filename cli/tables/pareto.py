"""A Pareto frontier on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattsched.report.terminal import line, table
from wattsched.report.wording import duration, gap_text, spoken
from wattsched.verification.shifting.pareto import TOTALS

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.tradeoffs import ParetoResult


def print_pareto(out: Console, found: ParetoResult) -> None:
    """Print the points, or why there are none."""
    total = TOTALS[found.tradeoff]
    line(out, (found.instance, "bold"), f": from the soonest completion to the least {found.tradeoff}")
    rows = []
    for point in found.points:
        totals, told = point.result.totals, gap_text(point.result.gap).removeprefix("gap ")
        rows.append((duration(totals["average_completion_s"]), spoken(total, totals[total]), told))
    if rows:
        table(out, [">average completion", f">{found.tradeoff}", ">gap"], rows)
    elif found.termination is not None:
        reason = found.termination.reason.replace("_", " ")
        line(out, f"{reason}: {found.termination.detail or 'no decision was found'}")
