"""Costs of the candidates of a capacity plan."""

from __future__ import annotations

import numpy as np

from wattsched.plot.style import LIMIT, Axes, Look, axes_for, finished
from wattsched.reading.arguments import require_types
from wattsched.report.capacity import CapacityPlan, Option


def capacity_costs(plan: CapacityPlan, *, ax: Axes | None = None) -> Axes:
    """Draw what a cluster costs in a year, by what varies most among the candidates.

    Parameters
    ----------
    plan : CapacityPlan
    ax : matplotlib axes, optional
        Default: those of a new figure.

    Returns
    -------
    matplotlib axes
        Cost, against nodes of the pool of which most numbers were considered, or the cap in kW. At each of
        them the least over all candidates counts: of what is expected, which is a line with a marker and the
        interval over the seeds where all were replayed, and, dotted, of what no schedule is below.
    """
    require_types(capacity_costs, locals())
    axes, known = axes_for(ax), [one for one in plan.options if np.isfinite(one.estimate)]
    values = {f"nodes of {pool}": [float(one.nodes[pool]) for one in known] for pool in plan.today.nodes}
    values |= {"power cap, kW": [(one.power_w or 0.0) / 1e3 for one in known]}
    across = max(values, key=lambda name: len(set(values[name])))
    least = dict[float, Option]()
    bound = dict[float, float]()
    for at, one in sorted(zip(values[across], known, strict=True), key=lambda pair: pair[0]):
        least[at] = min(least.get(at, one), one, key=lambda option: option.estimate)
        bound[at] = min(bound.get(at, np.inf), one.bound)
    axes.plot([*least], [one.estimate for one in least.values()], label="expected", **Look.of(0)._asdict())
    axes.plot([*bound], [*bound.values()], color=LIMIT, linestyle=":", label="no schedule below")
    for at, one in least.items():
        if one.cost is not None:
            half = 0.0 if one.cost.high is None else one.cost.high - one.cost.mean
            label = "" if axes.containers else "replayed"
            axes.errorbar(at, one.cost.mean, yerr=half, fmt="o", color=Look.of(1).color, label=label)
    n = len(plan.seeds)
    note = f"means and 95 % intervals of {n} seeds" if n > 1 else ""
    up = f"cost a year{f', {plan.currency}' if plan.currency else ''}"
    return finished(axes, across, up, note, x=0.06, y=0.06)
