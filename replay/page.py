"""Reports of replays: figures, watts and GPUs of jobs over time; curves of arriving tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from wattsched.instances.units import S_PER_H
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.placement.curves import Curves
from wattsched.report.html.chart import Series, chart
from wattsched.report.html.page import Lines, Page, Part, Picture, text_table
from wattsched.report.replays import Summaries, tables_of
from wattsched.report.terminal import Told
from wattsched.report.wording import duration, energy
from wattsched.topology.arrays import FloatArray

ARRIVED = "GPU asked for so far, % of the capacity"
_POINTS = 400
"""Points of a line: more cannot be told apart."""


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
    watts = [_steps(o, o.meter.power.highest(o.begin_s, o.end_s, _POINTS), 1e-3) for o in drawn]
    if (cap_w := drawn[0].caps.site_w) is not None:
        last_h = max(one.end_s - one.begin_s for one in drawn) / S_PER_H
        watts.append(Series("the cap", [0.0, last_h], [1e-3 * cap_w] * 2))
    if (ledger := drawn[0].ledger) is not None:
        begin_s = drawn[0].begin_s
        edges, even_w = ledger.budget.even_power_w(begin_s, max(one.end_s for one in drawn))
        known = ~np.isnan(even_w)
        ends_h = (np.stack([edges[:-1], edges[1:]], axis=1)[known] - begin_s) / S_PER_H
        evenly_kw = np.repeat(1e-3 * even_w[known], 2)
        watts.append(Series("the budget, spent evenly", ends_h.ravel().tolist(), evenly_kw.tolist()))
    busy = [_steps(o, o.meter.busy.means(o.begin_s, o.end_s, _POINTS), 1.0) for o in drawn]
    hours, note = (
        "hours from the first arrival",
        "on the first seed; of long replays means of short times",
    )
    peaks = "from event to event, on the first seed; of long replays the highest of short times"
    return [
        Picture("Watts", chart(watts, hours, "kW of the whole cluster"), peaks),
        Picture("GPUs in use", chart(busy, hours, "GPUs that jobs hold"), note),
    ]


def _steps(outcome: Outcome, course: tuple[FloatArray, FloatArray], factor: float) -> Series:
    """Line of what stays the same from each time to the next."""
    edges, values = course
    ends_h = (np.stack([edges[:-1], edges[1:]], axis=1).ravel() - outcome.begin_s) / S_PER_H
    return Series(outcome.policy, ends_h.tolist(), np.repeat(factor * values, 2).tolist())


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
