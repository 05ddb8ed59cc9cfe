"""Curves of placement policies on a page: a table per measure, a policy per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from wattsched.replay.placement.curves import Curves, saving_pct
from wattsched.report.terminal import heading, line, table
from wattsched.report.wording import count
from wattsched.topology.arrays import FloatArray

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.replay.placement.bounds import Distances
    from wattsched.replay.placement.stream import Experiment

POINTS = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.3)
REFERENCE = "fgd"
ABOVE = "% above the least power of any placement that hosts as much"
MEASURES: tuple[tuple[str, str, Callable[[Curves], FloatArray], str], ...] = (
    ("Allocated GPU", "% of the capacity", lambda of: of.allocated_pct, "{:.2f}"),
    ("GRAR", "allocated GPU per GPU asked for", lambda of: of.grar, "{:.3f}"),
    ("Power", "kW", lambda of: of.eopc_w / 1000, "{:,.1f}"),
    ("Power of the CPUs", "kW of it", lambda of: of.eopc_cpu_w / 1000, "{:,.1f}"),
    ("Fragmentation", "% of the capacity", lambda of: of.frag_pct, "{:.2f}"),
)
"""Title, unit, curve and form of each table."""


def print_curves(
    out: Console,
    experiment: Experiment,
    curves: Mapping[str, Curves],
    seeds: int,
    beyond: Distances | None = None,
) -> None:
    """Print the mean curves at some points.

    Parameters
    ----------
    seeds : int
        How many runs they are the mean of.
    beyond : Distances, optional
        What no placement can beat.
    """
    nodes, tasks = experiment.nodes, experiment.tasks
    line(
        out,
        f"{count(len(nodes), 'node')} with {count(int(nodes.gpus.sum()), 'GPU')}, "
        f"{count(len(tasks), 'task')} in the list; means over {count(seeds, 'seed')}",
    )
    line(out, ("Columns: GPU asked for so far, percent of the capacity", "dim"))

    def section(title: str, note: str, values: Mapping[str, FloatArray], form: str) -> None:
        if values:
            heading(out, title, note)
            rows = [[name, *(form.format(of[at]) for at in points.values())] for name, of in values.items()]
            table(out, ["policy", *(f">{percent} %" for percent in points)], rows)

    points = _points(next(iter(curves.values())))
    for title, note, measure, form in MEASURES:
        if title == "Fragmentation" and (reference := curves.get(REFERENCE)) is not None:
            saved = {name: saving_pct(of, reference) for name, of in curves.items() if of is not reference}
            section("Power saved", f"% of that of {REFERENCE}", saved, "{:.1f}")
        section(title, note, {name: measure(of) for name, of in curves.items()}, form)
    if beyond is not None:
        note = "% of the capacity that any placement can allocate"
        section("Bound on the allocation", note, {"most of any placement": beyond.allocated_pct}, "{:.2f}")
        above = {name: beyond.above_pct(name, of) for name, of in curves.items()}
        section("Power above the bound", ABOVE, above, "{:.1f}")


def _points(curves: Curves) -> dict[int, int]:
    """Points to print, the last one included, in percent, and where they are on the grid."""
    last = round(100 * float(curves.arrived[-1]))
    points = sorted({*(round(100 * point) for point in POINTS if round(100 * point) < last), last})
    return {percent: curves.at(percent / 100) for percent in points}
