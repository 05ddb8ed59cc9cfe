"""Replays over time: completion times, power against its budget, GPUs in use."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wattsched.instances.errors import require_range
from wattsched.plot.style import (
    LIMIT,
    Axes,
    Figure,
    Look,
    axes_for,
    finished,
    logarithmic,
    shared_legend,
    unit_of_time,
)
from wattsched.reading.arguments import require_types
from wattsched.replay.jobs.accounts import Steps
from wattsched.replay.jobs.outcome import Outcome
from wattsched.topology.arrays import FloatArray

FIGURE_IN = (8.0, 9.0)
MOST_STEPS, MOST_WATTS = 300, 1_000
"""Changes of the GPUs in use, and of watts, that a line can show; beyond, means and the highest are drawn."""


def _time_axis(outcomes: Sequence[Outcome]) -> tuple[str, float]:
    """Label of the time axis of a plot, in days for long traces, and the seconds of its unit."""
    unit, unit_s = unit_of_time(max(outcome.end_s - outcome.begin_s for outcome in outcomes))
    return f"time from the first arrival, {unit}", unit_s


def completion_times(outcomes: Sequence[Outcome], *, ax: Axes | None = None) -> Axes:
    """Share of the jobs that are complete within a time after their arrival.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Replays, as `wattsched.replay_jobs` gives them; each is a line, called by its policy.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Time on a logarithmic axis (seconds, minutes, hours or days), jobs in percent.

    Raises
    ------
    ValueError, TypeError
        For no outcomes, and arguments of another type.
    """
    require_types(completion_times, locals())
    _require_some(outcomes)
    axes = axes_for(ax)
    unit, unit_s = unit_of_time(max(float(outcome.jct_s.max()) for outcome in outcomes))
    for number, outcome in enumerate(outcomes):
        jct = np.sort(outcome.jct_s) / unit_s
        shares = 100 * np.arange(len(jct) + 1) / len(jct)
        look = Look.of(number)._asdict()
        axes.step(np.insert(jct, 0, jct[0]), shares, where="post", label=outcome.policy, **look)
        if 0 < jct[-1] <= jct[0] * (1 + 1e-9):
            # All the same but for rounding. Without a width, matplotlib would make one up, with a warning.
            axes.update_datalim([(jct[0] / 2, 0.0), (jct[0] * 2, 0.0)])
    axes.set_ylim(0, 103)
    logarithmic(axes)
    return finished(axes, f"completion time, {unit}", "jobs, %", x=0.01)


def power(outcomes: Sequence[Outcome], *, cap_w: float | None = None, ax: Axes | None = None) -> Axes:
    """Power of the cluster over time, against a cap or the budget of the replays.

    It is drawn from event to event, in long replays as the highest of short times.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Replays of one trace, idle GPUs and nodes included. Where they had a budget, the constant power of
        each period that would spend it ("even budget") is drawn, too.
    cap_w : float, optional
        Watts that the power is held against; default: those of the replays, where they had a cap.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Time from the first arrival (seconds, minutes, hours or days), power in W, kW or MW.

    Raises
    ------
    ValueError, TypeError
        For no outcomes, a cap that is not above 0 and finite, and arguments of another type.
    """
    require_types(power, locals())
    _require_some(outcomes)
    if cap_w is not None:
        require_range(0 < cap_w < math.inf, "cap_w", "above 0 and finite", cap_w)
    axes, (label, unit_s), are_highest = axes_for(ax), _time_axis(outcomes), False
    cap = outcomes[0].caps.site if cap_w is None else Steps(np.zeros(1), np.array([float(cap_w)]))
    caps_w = [] if cap is None else [watts for watts in cap.values.tolist() if watts < math.inf]
    most_w = max(0.0, *caps_w, *(max(outcome.meter.power.values) for outcome in outcomes))
    unit, per = ("MW", 1e6) if most_w >= 3e6 else ("kW", 1e3) if most_w >= 3e3 else ("W", 1.0)
    for number, outcome in enumerate(outcomes):
        course = outcome.meter.power.highest(outcome.begin_s, outcome.end_s, MOST_WATTS)
        are_highest |= len(course[1]) == MOST_WATTS
        _draw_course(axes, outcome, course, unit_s, per, Look.of(number))
    _draw_budget(axes, outcomes, unit_s, per)
    if cap is not None:
        begin_s, end_s = outcomes[0].begin_s, max(outcome.end_s for outcome in outcomes)
        edges = np.unique([begin_s, *cap.time_s.clip(begin_s, end_s), end_s])
        cap_label = f"cap, {caps_w[0] / per:g} {unit}" if len(caps_w) == len(cap.values) == 1 else "cap"
        watts = np.where(np.isfinite(cap.at(edges[:-1])), cap.at(edges[:-1]), np.nan) / per
        since = (edges - begin_s) / unit_s
        axes.stairs(watts, since, baseline=None, color=LIMIT, linewidth=1.5, linestyle="--", label=cap_label)
    axes.set_ylim(bottom=0)
    note = "highest of short times" if are_highest else ""
    return finished(axes, label, f"power of the cluster, {unit}", note, x=0.01)


def occupancy(outcomes: Sequence[Outcome], *, ax: Axes | None = None) -> Axes:
    """Share of the GPUs that jobs hold over time, restarts included.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Replays of one trace. Long ones are drawn in means, as the axis says.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Time from the first arrival (seconds, minutes, hours or days), GPUs in percent.

    Raises
    ------
    ValueError, TypeError
        For no outcomes, and arguments of another type.
    """
    require_types(occupancy, locals())
    _require_some(outcomes)
    axes, (label, unit_s), are_means = axes_for(ax), _time_axis(outcomes), False
    for number, outcome in enumerate(outcomes):
        gpus = int(outcome.trace.available.sum())
        edges, busy = outcome.meter.busy.means(outcome.begin_s, outcome.end_s, MOST_STEPS)
        are_means |= len(busy) == MOST_STEPS
        _draw_course(axes, outcome, (edges, busy), unit_s, gpus / 100, Look.of(number))
    axes.set_ylim(0, 103)
    note = "means of short times" if are_means else ""
    return finished(axes, label, "GPUs in use, %", note, x=0.01)


def replay_figure(outcomes: Sequence[Outcome]) -> Figure:
    """Completion times, power and occupancy of replays of one trace, one below the other."""
    axes_for(None)  # says what is missing
    from matplotlib.figure import Figure

    figure = Figure(figsize=FIGURE_IN, layout="constrained")
    parts = figure.subplots(3, 1)
    for draw, axes in zip((completion_times, power, occupancy), parts, strict=True):
        draw(outcomes, ax=axes)
    parts[1].sharex(parts[2])
    shared_legend(figure, parts)
    return figure


def _require_some(outcomes: Sequence[Outcome]) -> None:
    require_range(len(outcomes) > 0, "outcomes", "one replay at least", "none")
    for outcome in outcomes:
        require_range(len(outcome.trace) > 0, "outcomes", "of a job at least", f"'{outcome.policy}' of none")


def _draw_course(
    axes: Axes, outcome: Outcome, course: tuple[FloatArray, FloatArray], unit_s: float, per: float, look: Look
) -> None:
    """Draw values, in units of `per`, that hold from each edge in s to the next, in units of `unit_s`."""
    edges, values = course
    since = (edges - outcome.begin_s) / unit_s
    axes.stairs(values / per, since, baseline=None, linewidth=1.3, label=outcome.policy, **look._asdict())


def _draw_budget(axes: Axes, outcomes: Sequence[Outcome], unit_s: float, per: float) -> None:
    """Draw the constant power, in units of `per` W, of each period that would spend its budget."""
    if outcomes[0].ledger is None:
        return
    begin_s, end_s = outcomes[0].begin_s, max(outcome.end_s for outcome in outcomes)
    edges, even_w = outcomes[0].ledger.budget.even_power_w(begin_s, end_s)
    since = (edges - begin_s) / unit_s
    axes.stairs(even_w / per, since, baseline=None, color=LIMIT, linewidth=2.5, label="even budget", zorder=1)
