"""The report of replays: their figures, and the watts and GPUs of one seed over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wattsched.instances.units import S_PER_H
from wattsched.report.html.chart import Series, chart
from wattsched.report.html.page import Lines, Page, Part, Picture, text_table
from wattsched.report.replays import Summaries, tables_of
from wattsched.report.wording import duration, energy
from wattsched.topology.arrays import FloatArray

_POINTS = 400
"""Points of a line: more cannot be told apart."""


def page_of(title: str, about: str, found: Summaries, drawn: Sequence[Any], command: str = "") -> Page:
    """Report of replays.

    Parameters
    ----------
    title, about : str
    found : mapping of str to sequence of Summary
        By policy, seed by seed.
    drawn : sequence of Outcome
        Of one seed, a policy each.
    command : str
        That makes it again.
    """
    best = min(found, key=lambda policy: _mean(found, policy, "jct_mean_s"))
    soonest = f"{best}: mean completion {duration(_mean(found, best, 'jct_mean_s'))}"
    parts: list[Part] = [text_table(*some) for some in tables_of(found)]
    parts[1:1] = _pictures(drawn)
    parts += [Lines("Make it again", [command], code=True)] if command else []
    return Page(
        title=title,
        about=about,
        verdict=f"Soonest under {soonest}, {energy(_mean(found, best, 'energy_j'))}",
        parts=parts,
    )


def _mean(found: Summaries, policy: str, figure: str) -> float:
    return float(np.mean([getattr(run, figure) for run in found[policy]]))


def _pictures(drawn: Sequence[Any]) -> list[Part]:
    """Watts of the cluster and GPUs in use over time."""
    if not drawn:
        return []
    watts = [_series(one, one.meter.power, 1e-3) for one in drawn]
    budget = drawn[0].ledger and drawn[0].ledger.budget
    note = "means of short times, on the first seed"
    if budget is not None and budget.quantity == "energy_j":
        evenly_kw = budget.amount / budget.period_s / 1e3
        end_h = max(max(one.x) for one in watts)
        watts.append(Series("the budget, spent evenly", [0.0, end_h], [evenly_kw, evenly_kw]))
    busy = [_series(one, one.meter.busy, 1.0) for one in drawn]
    hours = "hours from the first arrival"
    return [
        Picture("Watts", chart(watts, hours, "kW of the whole cluster"), note),
        Picture("GPUs in use", chart(busy, hours, "GPUs that jobs hold"), note),
    ]


def _series(outcome: Any, steps: Any, factor: float) -> Series:
    """Means of a quantity over equal times, from the first arrival to the last completion."""
    edges = np.linspace(outcome.begin_s, outcome.end_s, _POINTS + 1)
    means = _means(np.asarray(steps.time_s, float), np.asarray(steps.values, float), edges)
    middle_h = (edges[:-1] + edges[1:]) / 2 - outcome.begin_s
    return Series(outcome.policy, (middle_h / S_PER_H).tolist(), (factor * means).tolist())


def _means(time_s: FloatArray, values: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Means between edges of what stays the same from each time to the next."""
    whole = np.append(0.0, np.cumsum(values[:-1] * np.diff(time_s)))
    last = np.maximum(np.searchsorted(time_s, edges_s, side="right") - 1, 0)
    integral = whole[last] + (edges_s - time_s[last]) * values[last]
    return np.diff(integral) / np.maximum(np.diff(edges_s), 1e-12)
