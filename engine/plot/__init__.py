"""Plots for papers and pages, with matplotlib (``pip install 'wattsched[plot]'``).

Each function draws into `ax`, or into axes of a new figure, and returns the axes; `save` writes them. All
raise an ImportError without matplotlib.

>>> from wattsched import plot
>>> plot.save(plot.schedule("out/fifo-0-segments.csv"), "schedule.png")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wattsched.plot.clusters import cluster_map as cluster_map
    from wattsched.plot.frontiers import frontier as frontier
    from wattsched.plot.gantt import schedule as schedule
    from wattsched.plot.gaps import gap_over_time as gap_over_time
    from wattsched.plot.gaps import gap_profile as gap_profile
    from wattsched.plot.gaps import performance_profile as performance_profile
    from wattsched.plot.placements import placement_curves as placement_curves
    from wattsched.plot.prices import price_history as price_history
    from wattsched.plot.replays import completion_times as completion_times
    from wattsched.plot.replays import occupancy as occupancy
    from wattsched.plot.replays import power as power
    from wattsched.plot.style import save as save

# Loaded on first use: what a plot shows may be slow to import.
_NAMES = {
    "clusters": ("cluster_map",),
    "frontiers": ("frontier",),
    "gantt": ("schedule",),
    "gaps": ("gap_over_time", "gap_profile", "performance_profile"),
    "placements": ("placement_curves",),
    "prices": ("price_history",),
    "replays": ("completion_times", "occupancy", "power"),
    "style": ("save",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [*_HOMES]  # the names of the table


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wattsched.plot' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
