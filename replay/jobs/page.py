"""The report of replays: their figures, and the watts and GPUs of one seed over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattsched.instances.units import S_PER_H
from wattsched.replay.jobs.accounts import StepLog
from wattsched.replay.jobs.outcome import Outcome
from wattsched.report.html.chart import Series, chart
from wattsched.report.html.page import Lines, Page, Part, Picture, text_table
from wattsched.report.replays import Summaries, tables_of
from wattsched.report.terminal import Told
from wattsched.report.wording import duration, energy

_POINTS = 400
"""Points of a line: more cannot be told apart."""


def page_of(
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
    title, about : str
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
    """Watts of the cluster and GPUs in use over time."""
    if not drawn:
        return []
    watts = [_series(one, one.meter.power, 1e-3) for one in drawn]
    if (ledger := drawn[0].ledger) is not None:
        begin_s = drawn[0].begin_s
        edges, even_w = ledger.budget.even_power_w(begin_s, max(one.end_s for one in drawn))
        known = ~np.isnan(even_w)
        ends_h = (np.stack([edges[:-1], edges[1:]], axis=1)[known] - begin_s) / S_PER_H
        evenly_kw = np.repeat(1e-3 * even_w[known], 2)
        watts.append(Series("the budget, spent evenly", ends_h.ravel().tolist(), evenly_kw.tolist()))
    busy = [_series(one, one.meter.busy, 1.0) for one in drawn]
    hours, note = "hours from the first arrival", "means of short times, on the first seed"
    return [
        Picture("Watts", chart(watts, hours, "kW of the whole cluster"), note),
        Picture("GPUs in use", chart(busy, hours, "GPUs that jobs hold"), note),
    ]


def _series(outcome: Outcome, log: StepLog, factor: float) -> Series:
    """Means of a quantity over short times, from the first arrival to the last completion."""
    width_s = (outcome.end_s - outcome.begin_s) / _POINTS
    edges, means = log.means(outcome.begin_s, outcome.end_s, width_s)
    middle_h = ((edges[:-1] + edges[1:]) / 2 - outcome.begin_s) / S_PER_H
    return Series(outcome.policy, middle_h.tolist(), (factor * means).tolist())
