"""Prices of capacities and budgets over rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from wattsched.instances.errors import require_known, require_range
from wattsched.plot.style import Axes, Look, axes_for, label, legend, tidy, unit_of_time
from wattsched.reading.arguments import require_types
from wattsched.report.views import view
from wattsched.report.wording import Goal, scarce, unit_price
from wattsched.results.result import Result
from wattsched.sessions.session_decision import SessionDecision

MOST_ROWS = 8
"""Lines that are drawn where nobody says which: those whose prices are above 0 most often."""


def price_history(
    rounds: Sequence[Result | SessionDecision | Mapping[str, float]],
    *,
    time_s: Sequence[float] | None = None,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what one more unit of each capacity and budget was worth in round after round.

    Parameters
    ----------
    rounds : sequence of Result, SessionDecision, or mapping of str to float
        Rounds of one objective in the order of time; or their prices alone.
    time_s : sequence of float, optional
        When each round was decided, in seconds. Default: rounds are counted.
    names : sequence of str, optional
        Prices to draw, such as ``gpus:A100`` or ``power_w``. Default: those that are above 0 most often,
        at most eight.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Rounds, or time from the first one (seconds, minutes, hours or days). One price alone is in the unit
        of the objective for a unit of the row, such as seconds per GPU; of several, whose units differ, each
        is in percent of its largest, which the legend tells.

    Raises
    ------
    ValueError, TypeError
        For no rounds, rounds of several objectives, times that are not one for each and ascending, names
        without a price, and arguments of another type.
    """
    require_types(price_history, locals())
    require_range(len(rounds) > 0, "rounds", "one at least", "none")
    goal = _goal(rounds)
    prices = [dict(one) if isinstance(one, Mapping) else one.prices for one in rounds]
    known = dict.fromkeys(name for of in prices for name in of)
    values = {name: np.array([of.get(name, 0.0) for of in prices]) for name in known}
    for name, of in values.items():
        require_range(bool(np.isfinite(of).all()), f"rounds: the price of '{name}'", "finite", of)
    require_range(bool(values), "rounds", "with a price at least", "none")
    if names is None:
        often = sorted(values, key=lambda name: -int((values[name] > 0).sum()))[:MOST_ROWS]
        names = [name for name in values if name in often]
    require_range(len(names) > 0, "names", "one price at least", "none")
    for name in names:
        require_known("names", name, values)
    axes = axes_for(ax)
    when, across = _times(time_s, len(rounds))
    for number, name in enumerate(names):
        largest = float(values[name][np.abs(values[name]).argmax()])
        shown = f"{scarce(name).label}: 100 % = {unit_price(name, largest, goal)}"
        shares = 100 * values[name] / abs(largest) if len(names) > 1 and largest else values[name]
        marker = "o" if len(rounds) <= 30 else None
        axes.plot(when, shares, label=shown, marker=marker, markersize=3, **Look.of(number)._asdict())
    lowest, _ = axes.get_ylim()
    axes.set_ylim(bottom=min(0.0, lowest))
    if time_s is None:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes)
    if len(names) > 1:
        label(axes, across, "price, % of its largest")
        legend(axes)
    else:
        only = scarce(names[0])
        per = f" per {only.unit}" if only.unit else ""
        label(axes, across, f"price of {only.label}, {goal.unit or goal.noun}{per}")
    return axes


def _goal(rounds: Sequence[Result | SessionDecision | Mapping[str, float]]) -> Goal:
    """Return the words for the objective that the prices are in, which all rounds have."""
    results = [one.result if isinstance(one, SessionDecision) else one for one in rounds]
    goals = {(r.problem, r.objective_name, r.sense) for r in results if isinstance(r, Result)}
    message = ", ".join(sorted(name for _, name, _ in goals))
    require_range(len(goals) <= 1, "rounds", "of one objective", message)
    for problem, objective, sense in goals:
        return view(problem).goal(objective, sense)
    return Goal("objective")


def _times(time_s: Sequence[float] | None, rounds: int) -> tuple[Sequence[float], str]:
    """Places of rounds on the axis, and its label."""
    if time_s is None:
        return list(range(1, rounds + 1)), "round"
    found = len(time_s)
    require_range(found == rounds, "time_s", f"a time for each of {rounds} rounds", f"{found} of them")
    require_range(all(map(math.isfinite, time_s)), "time_s", "finite", list(time_s))
    require_range(all(a < b for a, b in pairwise(time_s)), "time_s", "ascending", list(time_s))
    unit, unit_s = unit_of_time(time_s[-1] - time_s[0])
    return [(moment - time_s[0]) / unit_s for moment in time_s], f"time from the first round, {unit}"
