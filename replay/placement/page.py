"""The report of placement policies: allocation, power and fragmentation while tasks arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wattsched.replay.placement.curves import Curves
from wattsched.report.html.chart import Series, chart
from wattsched.report.html.page import Page, Part, Picture
from wattsched.topology.arrays import FloatArray

ARRIVED = "GPU asked for so far, % of the capacity"


def page_of(
    about: str,
    curves: Mapping[str, Curves],
    measures: Sequence[tuple[str, str, Callable[[Curves], FloatArray], str]],
    bound: FloatArray | None = None,
) -> Page:
    """Report of curves of placement policies.

    Parameters
    ----------
    about : str
        Nodes, tasks and seeds in words.
    curves : mapping of str to Curves
        By policy.
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
