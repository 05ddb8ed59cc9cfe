"""Savings: points of policies against a baseline, the frontiers between them, and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.stats import t as student

CONFIDENCE = 0.95

LATE = 1.1
"""A job or user whose completion takes so many times as long is one that loses."""

IDLE, NOBODY = "idle GPUs and nodes", "(no account)"
"""Whose the draw is that is no job's, and that of jobs without an account."""


@dataclass(frozen=True)
class Recorded:
    """Energy, completion and use of a cluster, by the records of its jobs.

    Attributes
    ----------
    energy_j : Interval
        Of the whole cluster, from the first arrival to the last end.
    waits : float
        Part of the jobs of which the trace tells how long they waited.
    completion_s, p99_s : float, optional
        Mean, and 99th percentile, from arrival to end of these jobs; None where there are none.
    baseline_s, baseline_p99_s : float, optional
        The same of the same jobs under the baseline.
    utilisation : float
        Part of the cluster's GPU time that jobs had.
    measured : float
        Part of that for which watts were measured; for the rest those of the models count.
    strange : int
        Jobs of which the watts are less than their GPUs draw when idle, or more than these can draw.
    """

    energy_j: Interval
    waits: float
    completion_s: float | None
    p99_s: float | None
    baseline_s: float | None
    baseline_p99_s: float | None
    utilisation: float
    measured: float
    strange: int = 0


def group_name(month: str, account: str) -> str:
    """Name of a group in the splits of a `Point`: ``2026-11, vision``."""
    return ", ".join(filter(None, [month, account]))


@dataclass(frozen=True)
class Group:
    """Energy, carbon and money that the baseline takes for an account, in a month, or both.

    Attributes
    ----------
    month, account : str
        Empty where it is not split by one of them.
    energy_j, carbon_g : float
    money : float, optional
        None without a price.
    """

    month: str
    account: str
    energy_j: float
    carbon_g: float
    money: float | None


@dataclass(frozen=True)
class Point:
    """A policy within a budget, on one seed, relative to the baseline.

    Attributes
    ----------
    energy, completion : float
        Of the whole cluster, and mean from arrival to completion, both over the baseline's. A cluster whose
        jobs are through is counted as idle until those of the other run are.
    p99, heavy : float
        The same of the 99th percentile of completion, and of the mean of the heaviest jobs.
    late : float
        Part of the jobs that complete more than a tenth later than under the baseline.
    users : dict of str to float
        Mean completion of each user of several jobs, over the baseline's; empty where nobody is named.
    group_energy, group_completion : dict of str to float
        Energy and mean completion of each group of a split (`group_name`), over the baseline's.
    """

    energy: float
    completion: float
    p99: float
    heavy: float
    late: float
    users: dict[str, float] = field(default_factory=dict)
    group_energy: dict[str, float] = field(default_factory=dict)
    group_completion: dict[str, float] = field(default_factory=dict)

    @property
    def saved(self) -> float:
        """Part of the baseline's energy."""
        return 1.0 - self.energy

    @classmethod
    def mean(cls, points: Sequence[Point], weights: Sequence[float] | None = None) -> Point:
        """Mean of points, figure by figure, user by user, group by group."""

        def mean(values: Sequence[Any]) -> Any:
            if isinstance(values[0], dict):
                return {name: mean([value[name] for value in values]) for name in values[0]}
            return float(np.average(values, weights=weights))

        return cls(**{one.name: mean([getattr(point, one.name) for point in points]) for one in fields(cls)})


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, with the interval in which it lies with 95 % confidence; None of a single seed."""

    mean: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Mean with Student's interval."""
        mean, n = float(np.mean(values)), len(values)
        if n < 2:
            return cls(mean)
        half = float(student.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
        return cls(mean, mean - half, mean + half)


@dataclass(frozen=True)
class PolicySavings:
    """Savings of one policy.

    Attributes
    ----------
    energy : Interval, optional
        Part of the energy that is saved at the same mean completion time; None where no budget reaches that.
    bound_only : bool
        Whether completion is no later within the smallest budget still: more would be saved within a smaller.
    completion : Interval, optional
        Part of the mean completion time that is saved with the same energy.
    energy_j, carbon_g, money : Interval, optional
        Saved energy and what follows from it, of the whole trace.
    points : list of list of Point
        By budget, then by seed; empty lists for budgets that were not tried.
    losers : Point, optional
        Means over seeds of the points at which `energy` is saved.
    met : list of Point
        These points by seed; empty where there are none.
    """

    policy: str
    energy: Interval | None
    bound_only: bool
    completion: Interval | None
    energy_j: Interval | None
    carbon_g: Interval | None
    money: Interval | None
    points: list[list[Point]]
    losers: Point | None
    met: list[Point] = field(default_factory=list)


@dataclass(frozen=True)
class GpuLimit:
    """The baseline on GPUs with a fixed power limit.

    Attributes
    ----------
    limit_w : float
        Of every GPU.
    points : list of Point
        By seed.
    instead : Interval, optional
        Part of the energy that the last policy would save if jobs completed as late as under the limit.
    """

    limit_w: float
    points: list[Point]
    instead: Interval | None


@dataclass(frozen=True)
class EventCost:
    """Cost of a signal under a policy, against the same without the signal; means over seeds, no budget.

    Attributes
    ----------
    not_drawn_j : float
        Joules that the cluster draws less while limits of the signal hold.
    earns : float
        Money for those not drawn because of its wishes, beyond its firm limits; each at its best price.
    completion, p99 : float
        Mean and 99th percentile of completion time, over those without the signal.
    restarts, above_s : float
        Restarts more, and seconds above the limit.
    """

    policy: str
    not_drawn_j: float
    earns: float
    completion: float
    p99: float
    restarts: float
    above_s: float


@dataclass(frozen=True)
class Sensitivity:
    """Part of the energy that a policy saves with an input at its two ends; None where none is saved."""

    name: str
    low: str
    high: str
    at_low: float | None
    at_high: float | None


@dataclass(frozen=True)
class Savings:
    """Savings of a cluster under policies, against what it does now.

    Attributes
    ----------
    baseline : str
    jobs, gpus : int
    seeds : list of int
    days : float
        From the first arrival to the last completion under the baseline.
    energy_j, completion_s : Interval
        Of the baseline.
    period_s : float
        Of the budgets.
    levels : list of float or None
        Budgets, as `LEVELS`; None, the first, is without one.
    power_w : list of float or None
        The same as watts of the whole cluster.
    policies : list of PolicySavings
    currency : str
        Of their money; empty where none is told.
    as_it_is : float, optional
        Part of the energy that the last policy saves on the first seed; None where no inputs are varied, and
        where none is saved.
    inputs : list of Sensitivity
        The same with inputs changed.
    assumptions : list of str
    record : Recorded, optional
        Means over seeds; None where the trace records no durations.
    doubts : list of str
        Totals that can hardly be right.
    groups : list of Group
    limits : list of GpuLimit
        The highest first.
    events : list of EventCost
        Of the baseline and of every policy, where there is a signal.
    """

    baseline: str
    jobs: int
    gpus: int
    seeds: list[int]
    days: float
    energy_j: Interval
    completion_s: Interval
    period_s: float
    levels: list[float | None]
    power_w: list[float | None]
    policies: list[PolicySavings]
    currency: str = ""
    as_it_is: float | None = None
    inputs: list[Sensitivity] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    record: Recorded | None = None
    doubts: list[str] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    limits: list[GpuLimit] = field(default_factory=list)
    events: list[EventCost] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)


def best_within(points: Sequence[Point], figure: str, most: float) -> Point | None:
    """Return a frontier's point of least energy whose completion is within a limit, or the other way round.

    `figure` is the one that is limited. The frontier is the points, and the straight lines between one and
    the next; None where all are beyond the limit.
    """
    least = "energy" if figure == "completion" else "completion"
    ordered = sorted(points, key=lambda point: (getattr(point, figure), getattr(point, least)))
    found = [point for point in ordered if getattr(point, figure) <= most]
    for left, right in pairwise(ordered):
        low, high = getattr(left, figure), getattr(right, figure)
        if low <= most < high:
            share = (most - low) / (high - low)
            found.append(Point.mean([left, right], [1 - share, share]))
    return min(found, key=lambda point: float(getattr(point, least)), default=None)
