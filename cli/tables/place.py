"""Curves of placement policies on a page: a table per measure, a policy per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from wattsched.replay.placement.curves import saving_pct
from wattsched.report.terminal import heading, line, table
from wattsched.report.wording import count
from wattsched.topology.arrays import FloatArray

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.replay.placement.bounds import Distances
    from wattsched.replay.placement.curves import Curves
    from wattsched.replay.placement.stream import Experiment

POINTS = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.3)
REFERENCE = "fgd"


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
    _section(out, "Allocated GPU", "% of the capacity", curves, lambda of: of.allocated_pct, "{:.2f}")
    _section(out, "GRAR", "allocated GPU per GPU asked for", curves, lambda of: of.grar, "{:.3f}")
    _section(out, "Power", "kW", curves, lambda of: of.eopc_w / 1000, "{:,.1f}")
    _section(out, "Power of the CPUs", "kW of it", curves, lambda of: of.eopc_cpu_w / 1000, "{:,.1f}")
    if (reference := curves.get(REFERENCE)) is not None:
        others = {name: of for name, of in curves.items() if of is not reference}
        note = f"% of that of {REFERENCE}"
        _section(out, "Power saved", note, others, lambda of: saving_pct(of, reference), "{:.1f}")
    _section(out, "Fragmentation", "% of the capacity", curves, lambda of: of.frag_pct, "{:.2f}")
    if beyond is not None:
        _print_distances(out, curves, beyond)


def _print_distances(out: Console, curves: Mapping[str, Curves], beyond: Distances) -> None:
    """How far the policies are from any placement's best."""
    any_of = {"most of any placement": next(iter(curves.values()))}
    note = "% of the capacity that any placement can allocate"
    _section(out, "Bound on the allocation", note, any_of, lambda of: beyond.allocated_pct, "{:.2f}")
    note = "% above the least power of any placement that hosts as much"
    points = _points(next(iter(curves.values())))
    heading(out, "Power above the bound", note)
    rows = []
    for name, of in curves.items():
        above = beyond.above_pct(name, of)
        rows.append([name, *(f"{above[of.at(percent / 100)]:.1f}" for percent in points)])
    table(out, ["policy", *(f">{percent} %" for percent in points)], rows)


def _section(
    out: Console,
    title: str,
    note: str,
    curves: Mapping[str, Curves],
    measure: Callable[[Curves], FloatArray],
    form: str,
) -> None:
    if not curves:
        return
    points = _points(next(iter(curves.values())))
    rows = []
    for name, of in curves.items():
        values = measure(of)
        rows.append([name, *(form.format(values[of.at(percent / 100)]) for percent in points)])
    heading(out, title, note)
    table(out, ["policy", *(f">{percent} %" for percent in points)], rows)


def _points(curves: Curves) -> list[int]:
    """Points of the grid to print, the last one included, in percent."""
    last = round(100 * float(curves.arrived[-1]))
    return sorted({*(round(100 * point) for point in POINTS if round(100 * point) < last), last})
