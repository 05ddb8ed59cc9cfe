"""Curves of arriving tasks under placement policies, with bands over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from wattsched.instances.errors import require_known, require_range
from wattsched.plot.style import Axes, Figure, Look, axes_for, finished, over_seeds, shared_legend
from wattsched.reading.arguments import require_types
from wattsched.replay.placement.curves import Curves, saving_pct
from wattsched.replaying.placements import PlacementTrial
from wattsched.topology.arrays import FloatArray

FIGURE_IN = (8.4, 7.0)
REFERENCE = "fgd"
BAND = 0.2
"""Opacity of bands."""


Shown = Literal["allocated", "power", "saving", "grar", "fragmentation"]


class Measure(NamedTuple):
    """Quantity of curves that is drawn, and the label of its axis."""

    label: str
    of: Callable[[Curves], FloatArray]


MEASURES = {
    "allocated": Measure("allocated GPU, % of the capacity", lambda of: of.allocated_pct),
    "power": Measure("power of GPUs and CPUs, kW", lambda of: of.eopc_w / 1000),
    "grar": Measure("allocated GPU per GPU asked for", lambda of: of.grar),
    "fragmentation": Measure("fragmentation, % of the capacity", lambda of: of.frag_pct),
}


def placement_curves(
    trial: PlacementTrial | Mapping[str, Curves | Sequence[Curves]],
    measure: Shown = "allocated",
    *,
    reference: str = REFERENCE,
    ax: Axes | None = None,
) -> Axes:
    """Draw a measure of a cluster that fills up, under each placement policy.

    Parameters
    ----------
    trial : PlacementTrial, or mapping of str to Curves or a sequence of them
        As `wattsched.place_tasks` gives it; or curves by policy, one for each seed. Lines are means over the
        seeds; bands, where there are several seeds, go from the least to the most.
    measure : {"allocated", "power", "saving", "grar", "fragmentation"}
        GPU that placed tasks asked for, percent of the capacity; power of GPUs and CPU packages, kW; power
        saved, percent of what a reference draws with the same seed; allocated GPU per GPU asked for;
        fragmentation (FGD), percent of the capacity.
    reference : str
        Policy of the trial to which `saving` compares.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        GPU asked for, failed tasks included, percent of the capacity; the measure.

    Raises
    ------
    ValueError, TypeError
        For no curves, unknown measures and references, and arguments of another type.
    """
    require_types(placement_curves, locals())
    runs = _runs(trial)
    require_known("measure", measure, [*MEASURES, "saving"])
    axes = axes_for(ax)
    if measure == "saving":
        require_known("reference", reference, runs)
        of = MEASURES["power"].of
        base = runs[reference]
        require_range(len({len(seeds) for seeds in runs.values()}) == 1, "trial", "of equal seeds", "others")
        values = {
            policy: [saving_pct(*pair) for pair in zip(curves, base, strict=True)]
            for policy, curves in runs.items()
        }
        name = f"power saved, % of {reference}"
    else:
        name, of = MEASURES[measure]
        values = {policy: [of(curves) for curves in seeds] for policy, seeds in runs.items()}
    for number, (policy, lines) in enumerate(values.items()):
        arrived, look = 100 * runs[policy][0].arrived, Look.of(number)
        axes.plot(arrived, np.mean(lines, axis=0), label=policy, linewidth=1.2, **look._asdict())
        if len(lines) > 1:
            band = np.min(lines, axis=0), np.max(lines, axis=0)
            axes.fill_between(arrived, *band, color=look.color, alpha=BAND, linewidth=0)
    most = max(len(seeds) for seeds in runs.values())
    return finished(axes, "GPU asked for, % of the capacity", name, over_seeds(most), x=0.01)


def placement_figure(trial: Any) -> Figure:
    """Draw the plots of the papers: allocation and fragmentation (FGD), power saved and GRAR (PWR).

    Without curves of the reference, power is drawn as it is.
    """
    axes_for(None)  # says what is missing
    from matplotlib.figure import Figure

    figure = Figure(figsize=FIGURE_IN, layout="constrained")
    parts = figure.subplots(2, 2, sharex=True)
    measures: list[Shown] = ["allocated", "power", "grar", "fragmentation"]
    if REFERENCE in _runs(trial):
        measures[1] = "saving"
    for measure, axes in zip(measures, parts.flat, strict=True):
        placement_curves(trial, measure, ax=axes)
    for axes in parts[0]:
        axes.set_xlabel("")
    shared_legend(figure, parts.flat)
    return figure


def _runs(trial: Any) -> dict[str, Sequence[Curves]]:
    """Curves of each policy, one for each seed, all on one grid."""
    found = trial.runs if isinstance(trial, PlacementTrial) else trial
    runs: dict[str, Sequence[Curves]]
    runs = {policy: [of] if isinstance(of, Curves) else list(of) for policy, of in found.items()}
    require_range(bool(runs) and all(runs.values()), "trial", "of one run of each policy at least", "none")
    grids = {curves.arrived.tobytes() for seeds in runs.values() for curves in seeds}
    require_range(len(grids) == 1, "trial", "on one grid of demands", f"{len(grids)} of them")
    return runs
