"""Plots of replays, with matplotlib (``pip install 'wattsched[plot]'``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wattsched.instances.units import S_PER_DAY, S_PER_H
from wattsched.replay.jobs.accounts import Steps
from wattsched.replay.plots import Look, tidy
from wattsched.topology.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from wattsched.replay.jobs.accounts import StepLog
    from wattsched.replay.jobs.outcome import Outcome

SIZE_IN = (9.0, 9.0)
MOST_STEPS = 300
"""Changes that a line can show; beyond, means are drawn."""
WIDTHS = {
    "minute": 60.0, "5 minutes": 300.0, "15 minutes": 900.0, "hour": 3600.0, "3 hours": 10_800.0,
    "6 hours": 21_600.0, "12 hours": 43_200.0, "day": 86_400.0, "week": 604_800.0, "30 days": 2_592_000.0,
}  # fmt: skip
"""Lengths of time over which means are taken."""


@dataclass(frozen=True)
class Scale:
    """How time is drawn: its unit, and over what means are taken."""

    unit: str
    unit_s: float
    over: str
    width_s: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Scale:
        """Days for long traces, and means where lines would be too dense to read."""
        lasts_s = max(outcome.end_s - outcome.begin_s for outcome in outcomes)
        unit, unit_s = ("days", S_PER_DAY) if lasts_s > 3 * S_PER_DAY else unit_of(lasts_s)
        if max(len(outcome.meter.power.time_s) for outcome in outcomes) <= MOST_STEPS:
            return cls(unit, unit_s, "", 0.0)
        few = (item for item in WIDTHS.items() if lasts_s <= MOST_STEPS * item[1])
        return cls(unit, unit_s, *next(few, list(WIDTHS.items())[-1]))


def unit_of(longest_s: float) -> tuple[str, float]:
    """Hours, or minutes and seconds where hours would be small fractions."""
    if longest_s > 2 * S_PER_H:
        return "hours", S_PER_H
    return ("minutes", 60.0) if longest_s > 120.0 else ("seconds", 1.0)


def plot_outcomes(outcomes: Sequence[Outcome]) -> Figure:
    """Draw completion times, power and occupancy of replays of one trace."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_IN, layout="constrained")
    completion, power, occupancy = figure.subplots(3, 1)
    scale = Scale.of(outcomes)
    longest_s = max(outcome.jct_s.max() for outcome in outcomes)
    unit, unit_s = unit_of(longest_s)
    for number, outcome in enumerate(outcomes):
        look = Look.of(number)
        _draw_completion(completion, outcome, unit_s, look)
        _draw_course(power, outcome, scale, outcome.meter.power, 1000, look)
        gpus = int(outcome.trace.available.sum())
        _draw_course(occupancy, outcome, scale, outcome.meter.busy, gpus / 100, look)
    _draw_budget(power, outcomes, scale)
    note = f"\nmean of each {scale.over}" if scale.over else ""
    completion.set(xlabel=f"completion time, {unit}", ylabel="jobs, %", ylim=(0, 103))
    power.set(ylabel=f"power of the cluster, kW{note}")
    power.set_ylim(bottom=0)
    power.sharex(occupancy)
    power.tick_params(labelbottom=False)
    occupancy.set(
        xlabel=f"time from the first arrival, {scale.unit}", ylabel=f"GPUs in use, %{note}", ylim=(0, 103)
    )
    tidy((completion, power, occupancy))
    handles = [*completion.get_legend_handles_labels()[0], *power.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    return figure


def means_over(
    time_s: FloatArray, values: FloatArray, begin_s: float, end_s: float, width_s: float
) -> tuple[FloatArray, FloatArray]:
    """Means over equal lengths of time of a quantity that stays the same from each time to the next.

    Parameters
    ----------
    time_s, values : float arrays, shape (n,)
        Times ascend; before the first one the quantity is 0.
    width_s : float
        0 for the quantity as it is.

    Returns
    -------
    edges : float array, shape (m + 1,)
        From begin to end; the last length may be shorter.
    means : float array, shape (m,)
    """
    if not width_s:
        edges = np.append(time_s, max(end_s, time_s[-1]))
        return edges, values
    edges = np.append(np.arange(begin_s, end_s, width_s), end_s)
    if len(edges) == 1:
        return np.array([begin_s, end_s]), values[-1:]
    until = Steps(time_s, values).integral(np.maximum(edges, time_s[0]))
    return edges, np.diff(until) / np.diff(edges)


def _draw_completion(axes: Axes, outcome: Outcome, unit_s: float, look: Look) -> None:
    """Draw the share of the jobs that are complete within a time after their arrival."""
    from matplotlib.ticker import LogFormatter, StrMethodFormatter

    jct = np.sort(outcome.jct_s) / unit_s
    shares = 100 * np.arange(len(jct) + 1) / len(jct)
    since = np.insert(jct, 0, jct[0])
    axes.step(since, shares, where="post", label=outcome.policy, **look._asdict())
    axes.set_xscale("log")
    if 0 < jct[-1] <= jct[0] * (1 + 1e-9):
        # All the same but for rounding. Without a width, matplotlib would make one up, with a warning.
        axes.update_datalim([(jct[0] / 2, 0.0), (jct[0] * 2, 0.0)])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))


def _draw_course(axes: Axes, outcome: Outcome, scale: Scale, log: StepLog, per: float, look: Look) -> None:
    """Draw what stays the same from each time to the next, or its means."""
    edges, means = means_over(
        np.array(log.time_s), np.array(log.values) / per, outcome.begin_s, outcome.end_s, scale.width_s
    )
    since = (edges - outcome.begin_s) / scale.unit_s
    axes.stairs(means, since, baseline=None, linewidth=1.3, **look._asdict())


def _draw_budget(axes: Axes, outcomes: Sequence[Outcome], scale: Scale) -> None:
    """Draw the constant power of each period that would spend its budget."""
    if outcomes[0].ledger is None:
        return
    budget = outcomes[0].ledger.budget
    begin_s, end_s = outcomes[0].begin_s, max(outcome.end_s for outcome in outcomes)
    begins = np.arange(begin_s, end_s, budget.period_s)
    price = budget.per_kwh.per_watt(begins, begins + budget.period_s)
    even_kw = np.divide(budget.amount / 1000, price, out=np.full(len(begins), np.nan), where=price > 0)
    since = (np.append(begins, end_s) - begin_s) / scale.unit_s
    axes.stairs(even_kw, since, baseline=None, color="0.4", linewidth=2.5, label="budget, spent evenly")
