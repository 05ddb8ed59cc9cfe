"""Frontiers: how much of one criterion costs how much of another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from wattsched.instances.errors import require_known, require_range
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.plot.style import LIMIT, Axes, Look, Pattern, axes_for, finished, over_seeds, unit_of_time
from wattsched.reading.arguments import require_types
from wattsched.replay.jobs.outcome import Outcome
from wattsched.report.saved import Savings
from wattsched.report.wording import duration
from wattsched.solving.offers import Offer
from wattsched.solving.tradeoffs import ParetoResult
from wattsched.solving.what_if import Sweep
from wattsched.topology.arrays import FloatArray
from wattsched.verification.frontiers import FIRST

Points = tuple[FloatArray, FloatArray]

AMOUNTS = {"carbon": ("CO2, kg", 1e3), "energy": ("energy, kWh", J_PER_KWH), "money": ("money", 1.0)}
"""Label of a criterion, and how much of it is one of its unit."""
MARKERS = ("o", "s", "^", "D", "v")
_BEST = "no decision is better"


def frontier(
    found: ParetoResult | Mapping[str, ParetoResult] | Sequence[Outcome] | Savings | Offer | Sweep,
    *,
    against: Literal["energy", "carbon"] = "energy",
    ax: Axes | None = None,
) -> Axes:
    """Draw the trade-off between two objectives, such as mean completion time and carbon.

    Parameters
    ----------
    found : ParetoResult, mapping of str to ParetoResult, sequence of Outcome, Savings, Offer, or Sweep
        What `wattsched.pareto` gives, or several such results by name, of the same objectives; each is a
        line. Or replays: a marker for each policy, the mean over its seeds with bars from the least to the
        most, and a line through those than which no other is better in both. Or savings: each policy within
        smaller and smaller budgets, relative to the baseline, likewise. Or cuts of the draw: a line for each
        duration, and a dotted one of what no plan can beat, both as steps: plans keep smaller cuts, too. Or a
        sweep: the objective by value, and a dotted line of its bound.
    against : {"energy", "carbon"}
        Criterion of replays, of the whole cluster. Results of `pareto` have their own.
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Mean completion time (seconds, minutes, hours or days); CO2 in kg, energy in kWh, or money. Of savings
        mean completion time and energy in percent of the baseline's. Of cuts kW, and what is lost.

    Raises
    ------
    ValueError, TypeError
        For no points, results of several criteria, and arguments of another type.
    """
    require_types(frontier, locals())
    require_known("against", against, ("energy", "carbon"))
    axes, note = axes_for(ax), ""
    if isinstance(found, Savings):
        _draw_savings(axes, found)
        of, note = f"% of {found.baseline}", over_seeds(len(found.seeds))
        return finished(axes, f"mean completion time, {of}", f"energy, {of}", note, x=0.06, y=0.06)
    if isinstance(found, Offer):
        return finished(axes, "cut of the draw, kW", _draw_cuts(axes, found), y=0.06)
    if isinstance(found, Sweep):
        return finished(axes, found.field, _draw_sweep(axes, found), y=0.06)
    if isinstance(found, ParetoResult | Mapping):
        results = {"": found} if isinstance(found, ParetoResult) else dict(found)
        pairs = sorted({(result.first, result.tradeoff) for result in results.values()})
        told = ", ".join(tradeoff for _, tradeoff in pairs) or "none"
        require_range(len(pairs) == 1, "found", "of one criterion", told)
        for name, result in results.items():
            message = f"'{name}' without any" if name else "none"
            require_range(bool(result.points), "found", "with points", message)
        [(first, criterion)] = pairs
        if first != FIRST:
            _draw_results(axes, results, (first, criterion), (1.0, 1.0))
            return finished(axes, first, criterion, x=0.06, y=0.06)
        longest_s = max(point.value(first) for one in results.values() for point in one.points)
        unit, unit_s = unit_of_time(longest_s)
        _draw_results(axes, results, (first, criterion), (unit_s, AMOUNTS[criterion][1]))
    else:
        require_range(len(found) > 0, "found", "one replay at least", "none")
        criterion, unit = against, _draw_replays(axes, found, against)
        note = over_seeds(max(Counter(outcome.policy for outcome in found).values()))
    amount, _ = AMOUNTS[criterion]
    return finished(axes, f"mean completion time, {unit}", amount, note, x=0.06, y=0.06)


def _draw_results(
    axes: Axes, results: Mapping[str, ParetoResult], objectives: tuple[str, str], per: tuple[float, float]
) -> None:
    """Draw a line for each result, by its name, of values in some units."""
    for number, (name, result) in enumerate(results.items()):
        values = [[point.value(each) for point in result.points] for each in objectives]
        points = [np.array(each) / unit for each, unit in zip(values, per, strict=True)]
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(*points, marker=marker, label=name or None, **Look.of(number)._asdict())


def _draw_replays(axes: Axes, outcomes: Sequence[Outcome], criterion: str) -> str:
    """Draw a marker for each policy, and a line through those not dominated; return the unit of time."""
    points: dict[str, list[tuple[float, float]]] = {}
    for outcome in outcomes:
        total = outcome.meter.energy_j if criterion == "energy" else outcome.meter.carbon_g
        points.setdefault(outcome.policy, []).append((float(outcome.jct_s.mean()), total))
    unit, unit_s = unit_of_time(max(time_s for seeds in points.values() for time_s, _ in seeds))
    _, per = AMOUNTS[criterion]
    scale = np.array([unit_s, per])
    means = np.array([np.mean(seeds, axis=0) for seeds in points.values()]) / scale
    for number, (policy, seeds) in enumerate(points.items()):
        _draw_points(axes, number, policy, np.array([seeds]) / scale, "none")
    best = _not_dominated(means)
    if len(best) > 1:
        name = "none is better in both"
        axes.plot(*means[best].T, color=LIMIT, linewidth=1.0, linestyle=":", zorder=1, label=name)
    return unit


def _draw_savings(axes: Axes, found: Savings) -> None:
    """Draw a line for each policy, in percent of the baseline, which is a mark at 100, 100."""
    axes.plot(
        100.0, 100.0, "P", color=LIMIT, markersize=9, label=f"{found.baseline}, without a budget", zorder=1
    )
    for number, of in enumerate(found.policies):
        points = np.array([[(one.completion, one.energy) for one in seeds] for seeds in of.points if seeds])
        _draw_points(axes, number, of.policy, 100 * points, Look.of(number).linestyle)


def _draw_cuts(axes: Axes, found: Offer) -> str:
    """Draw a line for each duration, hollow where the gap was missed; return the name of what is lost."""
    lost, per = AMOUNTS.get(found.objective, ("lost job hours", S_PER_H / (found.weight or 1.0)))
    require_range(bool(found.cuts), "found", "with cuts", "none")
    for number, slots in enumerate(dict.fromkeys(cut.slots for cut in found.cuts)):
        cuts = [cut for cut in found.cuts if cut.slots == slots]
        look, name = Look.of(number), ", ".join(map(duration, cuts[0].lasts_s))
        kept = [cut for cut in cuts if cut.loss is not None]
        cut_kw, loss, least = np.array([[0.0] * 3, *([c.power_w, c.loss, c.least_loss] for c in kept)]).T
        style = {"marker": MARKERS[number % len(MARKERS)], "label": name, **look._asdict()}
        axes.step(cut_kw / 1e3, loss / per, where="pre", **style)
        axes.step(cut_kw / 1e3, least / per, where="post", color=look.color, linestyle=":")
        loose = np.array([False, *(cut.result.termination.reason != "optimal" for cut in kept)])
        hollow = style | {"markerfacecolor": "white", "linestyle": "", "label": "", "zorder": 3}
        axes.plot(cut_kw[loose] / 1e3, loss[loose] / per, **hollow)
    axes.plot([], [], color=LIMIT, linestyle=":", label="no plan loses less")
    return lost


def _draw_sweep(axes: Axes, found: Sweep) -> str:
    """Draw the objective and its bound by value; return the objective's name."""
    decided = [pair for pair in zip(found.values, found.results, strict=True) if pair[1].solved]
    require_range(bool(decided), "found", "with decisions", "none")
    values = [value for value, _ in decided]
    costs, bounds = ([getattr(one, name) for _, one in decided] for name in ("objective", "bound"))
    axes.plot(values, costs, marker=MARKERS[0], **Look.of(0)._asdict())
    axes.plot(values, [math.nan if b is None else b for b in bounds], color=LIMIT, ls=":", label=_BEST)
    return decided[0][1].objective_name


def _draw_points(axes: Axes, number: int, name: str, points: FloatArray, line: Pattern) -> None:
    """Draw means over seeds, with bars from the least to the most; the points have shape (n, n_seeds, 2)."""
    # Colours repeat as markers do: the next turn pairs them otherwise.
    marker = MARKERS[(number + number // len(MARKERS)) % len(MARKERS)]
    means = points.mean(axis=1)
    off = np.abs(np.stack([points.min(axis=1), points.max(axis=1)]) - means)
    several = points.shape[1] > 1
    axes.errorbar(
        means[:, 0],
        means[:, 1],
        xerr=off[:, :, 0] if several else None,
        yerr=off[:, :, 1] if several else None,
        color=Look.of(number).color,
        marker=marker,
        linestyle=line,
        label=name,
    )


def _not_dominated(points: FloatArray) -> list[int]:
    """Points than which no other is better in one way and as good in the other, by the first coordinate."""
    found: list[int] = []
    for i in np.lexsort((points[:, 1], points[:, 0])).tolist():
        if not found or points[i, 1] < points[found[-1], 1]:
            found.append(i)
    return found
