"""Plots of placement policies over the arrived demand, with matplotlib (``pip install 'wattsched[plot]'``).

The plots of the papers: allocation and fragmentation (FGD), power saved and GRAR (PWR).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wattsched.replay.placement.curves import Curves, saving_pct
from wattsched.replay.plots import Look, tidy
from wattsched.topology.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_IN = (10.0, 7.2)
REFERENCE = "fgd"


def plot_curves(curves: Mapping[str, Curves], reference: str = REFERENCE) -> Figure:
    """Draw allocation, power, GRAR and fragmentation of policies over the arrived demand.

    Parameters
    ----------
    curves : mapping
        Policy to its curves.
    reference : str
        Policy to which power is compared; without its curves, power is drawn as it is.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_IN, layout="constrained")
    allocation, power, grar, fragmentation = figure.subplots(2, 2, sharex=True).flat
    for number, (name, of) in enumerate(curves.items()):
        _draw(allocation, of, of.allocated_pct, name, number)
        _draw(grar, of, of.grar, name, number)
        _draw(fragmentation, of, of.frag_pct, name, number)
        saved = saving_pct(of, curves[reference]) if reference in curves else of.eopc_w / 1000
        _draw(power, of, saved, name, number)
    allocation.set_ylabel("allocated GPU, % of the capacity")
    power.set_ylabel(f"power saved, % of {reference}" if reference in curves else "power, kW")
    grar.set_ylabel("GRAR")
    fragmentation.set_ylabel("fragmentation, % of the capacity")
    tidy((allocation, power, grar, fragmentation))
    for axes in (grar, fragmentation):
        axes.set_xlabel("GPU asked for, % of the capacity")
    figure.legend(*allocation.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def _draw(axes: Axes, of: Curves, values: FloatArray, name: str, number: int) -> None:
    axes.plot(100 * of.arrived, values, label=name, linewidth=1.2, **Look.of(number)._asdict())
