"""Reports of replays: figures, watts and GPUs of jobs over time; curves of arriving tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

import numpy as np

from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.placement.curves import Curves
from wattsched.report.html.page import Lines, Page, Part, Picture, text_table
from wattsched.report.html.pictures import Series, blank_axes, chart, picture_of
from wattsched.report.replays import Summaries, tables_of
from wattsched.report.terminal import Told
from wattsched.report.wording import duration, energy
from wattsched.topology.arrays import FloatArray

ARRIVED = "GPU asked for so far, % of the capacity"


def jobs_page(
    title: str,
    about: str,
    found: Summaries,
    drawn: Sequence[Outcome],
    assumed: Sequence[str] = (),
    more: Sequence[Told] = (),
) -> Page:
    """Report of replays.

    Parameters
    ----------
    found : mapping of str to sequence of Summary
        By policy, seed by seed.
    drawn : sequence of Outcome
        Of one seed, a policy each.
    assumed : sequence of str
        What was filled in that the trace does not tell.
    more : sequence of Told
        Tables behind the first.
    """
    best = min(found, key=lambda policy: _mean(found, policy, "jct_mean_s"))
    soonest = f"{best}: mean completion {duration(_mean(found, best, 'jct_mean_s'))}"
    parts: list[Part] = [text_table(*some) for some in tables_of(found)]
    parts[1:1] = [*(text_table(*some) for some in more), *_pictures(drawn)]
    parts += [Lines("Assumed", assumed)] if assumed else []
    return Page(
        title=title,
        about=about,
        verdict=f"Soonest under {soonest}, {energy(_mean(found, best, 'energy_j'))}",
        parts=parts,
    )


def _mean(found: Summaries, policy: str, figure: str) -> float:
    return float(np.mean([getattr(run, figure) for run in found[policy]]))


def _pictures(drawn: Sequence[Outcome]) -> list[Part]:
    if not drawn:
        return []
    plots, names = import_module("wattsched.plot.replays"), [one.policy for one in drawn]
    parts = {"Watts": plots.power, "GPUs in use": plots.occupancy}
    return [
        Picture(title, picture_of(draw(drawn, ax=blank_axes()), names), "on the first seed")
        for title, draw in parts.items()
    ]


def placement_page(
    about: str,
    curves: Mapping[str, Curves],
    measures: Sequence[tuple[str, str, Callable[[Curves], FloatArray], str]],
    bound: FloatArray | None = None,
) -> Page:
    """Report of curves of placement policies.

    Parameters
    ----------
    measures : sequence of tuple
        Title, unit, from curves to an array, and a form of its numbers.
    bound : float array, optional
        Most of the capacity that any placement can allocate, in percent, of the first measure.
    """
    arrived = [100.0 * value for value in next(iter(curves.values())).arrived.tolist()]
    parts: list[Part] = []
    for k, (title, unit, measure, _) in enumerate(measures):
        series = [Series(policy, arrived, measure(of).tolist()) for policy, of in curves.items()]
        if k == 0 and bound is not None:
            series.append(Series("most of any placement", arrived, bound.tolist()))
        parts.append(Picture(title, chart(series, ARRIVED, unit)))
    most = {policy: float(of.allocated_pct[-1]) for policy, of in curves.items()}
    best = max(most, key=lambda policy: most[policy])
    return Page(
        title="Placement",
        about=about,
        verdict=f"Most allocated at the end by {best}: {most[best]:.2f} % of the capacity",
        parts=parts,
    )
