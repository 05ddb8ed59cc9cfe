"""Moves that make room for others, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattsched.report.sizing import places
from wattsched.report.terminal import heading, line, table
from wattsched.report.wording import count

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.instances.sizing.rearrangement import Rearrangement

MOST_ROWS = 40


def print_rearrangement(out: Console, found: Rearrangement) -> None:
    """Print how many jobs move and how few may do, the steps in their order, and what fits in the end."""
    if found.moves is None:
        line(out, (found.instance, "bold"), f": {found.reason.replace('_', ' ')}: {found.detail}")
        return
    line(out, (found.instance, "bold"), f": {_fewest(found)}")
    if found.steps:
        note = (
            f"{count(len(found.pauses), 'job')} stops for a while"
            if found.pauses
            else "each finds its GPUs free"
        )
        heading(out, "Moves", note)
    rows = [
        (f"{n}", step.job, places(step.before), places(step.after) or "stops for a while")
        for n, step in enumerate(found.steps, 1)
    ]
    table(out, [">", "job", "from", "to"], rows, most=MOST_ROWS, hint=", all with --json")
    heading(out, "Then fit")
    fits = [(one.name, one.pool, places(one.nodes)) for one in found.fitted]
    table(out, ["", "pool", "GPUs"], fits, header=False, most=MOST_ROWS, hint=", all with --json")


def _fewest(found: Rearrangement) -> str:
    """Return the number of moves, and what is known of fewer."""
    if found.moves == 0:
        return "fits without a move"
    told = f"{count(found.moves or 0, 'job')} {'moves' if found.moves == 1 else 'move'}"
    if found.proven_bound == found.moves:
        return f"{told}, proven to be the fewest"
    least = (
        "the fewest says the solver"
        if found.bound == found.moves
        else f"at least {found.bound} say the solver"
    )
    return f"{told}, {least}, at least {found.proven_bound} are proven"
