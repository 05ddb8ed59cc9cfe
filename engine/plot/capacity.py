"""Costs of the candidates of a capacity plan."""

from __future__ import annotations

import numpy as np

from wattsched.plot.style import LIMIT, Figure, Look, axes_for, finished
from wattsched.report.capacity import CapacityPlan, Option


def capacity_figure(plan: CapacityPlan) -> Figure:
    """Draw what a cluster costs in a year, by what varies most among the candidates.

    That is the pool of which most numbers were considered, or the cap. At each of them the least over all
    candidates counts: of what is expected, with a marker and the interval over the seeds where that was
    replayed, and, dotted, of what no schedule is below.
    """
    axes = axes_for(None)
    known = [one for one in plan.options if np.isfinite(one.estimate) and not one.why]
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
    figure = finished(axes, across, up, note, x=0.06, y=0.06).get_figure(root=True)
    assert figure is not None
    return figure
