"""Replays of policies within budgets against replays of a baseline, seed by seed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wattsched.instances.errors import NoticeWarning
from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.accounts import Nodes
from wattsched.replay.jobs.budget import Pacing
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.trace import Trace
from wattsched.replaying.accounting import By, groups_of, months_of_arrival
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import Journal, Progress, replay_jobs
from wattsched.report.saved import (
    IDLE,
    LATE,
    NOBODY,
    EventCost,
    GpuLimit,
    Interval,
    Point,
    PolicySavings,
    best_within,
    group_name,
)
from wattsched.running.executors import Executor
from wattsched.topology.arrays import FloatArray

HEAVY = 0.05
"""Part of the jobs that ask for most GPU time."""

SEVERAL = 5
"""Users of fewer jobs are not told of: with so few it is chance who waits."""


@dataclass(frozen=True)
class Base:
    """A replay of the baseline on one seed."""

    outcome: Outcome

    @cached_property
    def idle_w(self) -> float:
        """Draw of the cluster without jobs."""
        return Nodes(self.outcome.trace.cluster, self.outcome.trace.pools, None, 0.0).idle_cluster_w

    @property
    def seconds(self) -> float:
        """From the first arrival to the last completion."""
        return self.outcome.end_s - self.outcome.begin_s

    @property
    def energy_j(self) -> float:
        """Energy of the whole cluster in this time."""
        return self.outcome.meter.energy_j

    def saved_j(self, outcome: Outcome) -> float:
        """Joules that another replay of the trace saves, both counted to the same end, whichever that is."""
        later_s = outcome.end_s - self.outcome.end_s
        return float(self.energy_j - outcome.meter.energy_j + self.idle_w * later_s)


@dataclass(frozen=True)
class Study:
    """Study that replays policies against the baseline; the first of the levels is infinite: no budget."""

    traces: Mapping[int, Trace]
    baseline: str
    levels: Sequence[float]
    settings: ReplaySettings
    pacing: Pacing
    by: Sequence[By]
    clock_s: float
    executor: Executor | None
    progress: Progress
    finished: Callable[[str, int], None]
    journal: Journal | None = None

    @cached_property
    def base(self) -> dict[int, Base]:
        """Replays of the baseline by seed."""
        return {seed: Base(outcome) for seed, outcome in self.runs(self.baseline)}

    def frontier(self, policy: str, start: int = 1) -> tuple[list[Outcome], list[list[Point]]]:
        """Outcomes of a policy without a budget, and its points by budget, the largest first.

        Budgets are tried from a level on: smaller ones until completion is later than the baseline's on all
        seeds, larger ones until it is later on none. Those that are not tried have no points.
        """
        free = [run for _, run in self.runs(policy)]
        points: list[list[Point]] = [[] for _ in self.levels]
        points[0] = [self.point(*pair) for pair in zip(self.base.values(), free, strict=True)]
        k, later = start, all(point.completion > 1.0 for point in points[0])
        while k < len(points) and not later:
            points[k] = self.points(policy, self.levels[k])
            later, k = all(point.completion > 1.0 for point in points[k]), k + 1
        k = start
        while k > 1 and any(point.completion > 1.0 for point in points[k]):
            k -= 1
            points[k] = self.points(policy, self.levels[k])
        return free, points

    def power_w(self, level: float) -> float:
        """Watts of a level: the same budget for all seeds."""
        above = [known.energy_j / known.seconds - known.idle_w for known in self.base.values()]
        idle_w = float(np.mean([known.idle_w for known in self.base.values()]))
        return idle_w + level * float(np.mean(above))

    def part(self, policy: str, near: int) -> float | None:
        """Part of the energy that a policy saves on one seed; None where no budget keeps the mean.

        Budgets are tried from one on until two enclose the baseline's mean completion time.
        """
        found: dict[int, Point] = {}
        while 0 <= near < len(self.levels) and near not in found:
            (found[near],) = self.points(policy, self.levels[near])
            near += 1 if found[near].completion <= 1.0 else -1
        best = best_within([*found.values()], "completion", 1.0)
        return None if best is None else best.saved

    def points(self, policy: str, level: float) -> list[Point]:
        """Points of a policy within a budget, by seed."""
        joules = self.power_w(level) * self.settings.period_s if math.isfinite(level) else None
        return [self.point(self.base[seed], run) for seed, run in self.runs(policy, joules, level)]

    def limit(self, as_set: Mapping[int, Trace], limit_w: float, last: PolicySavings) -> GpuLimit:
        """Replay the baseline with a power limit of GPUs, and say what the last policy saves as late."""
        kept = self.journal and self.journal.within(f"limit{limit_w:g}")
        settings = replace(self.settings, gpu_limit_w=limit_w)
        one = replace(self, traces=as_set, settings=settings, journal=kept)
        points = [self.point(self.base[seed], run) for seed, run in one.runs(self.baseline)]
        by_seed = zip(*filter(None, last.points), strict=True)
        pairs = zip(by_seed, points, strict=True)
        instead = [best_within(seed, "completion", point.completion) for seed, point in pairs]
        saved = [point.saved for point in instead if point is not None]
        return GpuLimit(limit_w, points, Interval.of(saved) if len(saved) == len(points) else None)

    def events(self, policy: str, held: Sequence[Outcome]) -> Iterator[EventCost]:
        """Replay a policy without the signal, if there is one, or without its wishes; yield costs."""
        if self.settings.signal is None:
            return
        others = list[list[Outcome]]()
        with warnings.catch_warnings(category=NoticeWarning, action="ignore"):  # told of the replays under it
            for folder, settings in self.settings.without_signal.items():
                one = replace(self, settings=settings, journal=self.journal and self.journal.within(folder))
                others.append([run for _, run in one.runs(policy)])
        rows = [
            _event_row(runs[0], runs[-1], under, self.settings.events(under.trace))
            for *runs, under in zip(*others, held, strict=True)
        ]
        yield EventCost(policy, *np.mean(rows, axis=0).tolist())

    def runs(
        self, policy: str, joules: float | None = None, level: float = math.inf
    ) -> Iterator[tuple[int, Outcome]]:
        """Replay a policy, within a budget of so many joules in every period; yield outcomes by seed."""
        settings = self.settings
        if joules is not None:
            settings = replace(settings, budget=("energy_j", joules), pacing=self.pacing)
        outcomes = replay_jobs(
            self.traces,
            [policy],
            settings=settings,
            journal=self.journal and self.journal.within(f"{policy}/{level:g}"),
            executor=self.executor,
            progress=self.progress,
        )
        for seed, outcome in outcomes:
            self.finished(policy, seed)
            yield seed, outcome

    def point(self, base: Base, outcome: Outcome) -> Point:
        """Figures of a replay relative to the baseline's."""
        then_s, now_s = outcome.jct_s, base.outcome.jct_s
        trace = base.outcome.trace
        heavy = np.argsort(trace.requested_gpu_s, kind="stable")[-max(1, round(HEAVY * len(trace))) :]
        of_groups_j, of_groups_s = self.split(base, outcome) if self.by else ({}, {})
        return Point(
            energy=round(1.0 - base.saved_j(outcome) / base.energy_j, 12),  # What is beyond is no saving.
            completion=float(then_s.mean() / now_s.mean()),
            p99=float(np.percentile(then_s, 99) / np.percentile(now_s, 99)),
            heavy=float(then_s[heavy].mean() / now_s[heavy].mean()),
            late=float(np.mean(then_s > LATE * now_s)),
            users=_by_name(trace.users, then_s, now_s, SEVERAL),
            group_energy=of_groups_j,
            group_completion=of_groups_s,
        )

    def split(self, base: Base, outcome: Outcome) -> tuple[dict[str, float], dict[str, float]]:
        """Energy and mean completion of each group over the baseline's, both counted to the same end.

        Energy counts in the month in which it is drawn, that after the baseline's last month in this; jobs
        count in the month in which they arrive.
        """
        before, after = (groups_of([run], self.by, self.clock_s) for run in (base.outcome, outcome))
        known = {(one.month, one.account): one.energy_j for one in before}
        last, now = max(month for month, _ in known), dict.fromkeys(known, 0.0)
        for one in after:
            now[min(one.month, last), one.account] += one.energy_j
        now[last, IDLE if "account" in self.by else ""] -= base.idle_w * (outcome.end_s - base.outcome.end_s)
        trace = outcome.trace
        months = months_of_arrival(trace, self.clock_s) if "month" in self.by else [""] * len(trace)
        accounts = (
            [one.account or NOBODY for one in trace.records] if "account" in self.by else [""] * len(trace)
        )
        energy = {group_name(*key): now[key] / energy_j for key, energy_j in known.items() if energy_j > 0}
        return energy, _by_name([*map(group_name, months, accounts)], outcome.jct_s, base.outcome.jct_s)


def _event_row(free: Outcome, firm: Outcome, held: Outcome, events: FloatArray) -> list[float]:
    """Figures of `EventCost` of a replay under a signal against one without, and one of its firm limits."""

    def saved_j(other: Outcome) -> FloatArray:
        """Joules less than in another replay in each event."""
        at_s = events[:, :2].clip(held.begin_s, max(other.end_s, held.end_s)).ravel()
        before_j, now_j = (np.diff(one.meter.power.steps.integral(at_s))[::2] for one in (other, held))
        return before_j - now_j

    restarts = held.jobs.restarts.sum() - free.jobs.restarts.sum()
    return [
        float(saved_j(free).sum()),
        float(events[:, 2] @ saved_j(firm)) / J_PER_KWH,
        float(held.jct_s.mean() / free.jct_s.mean()),
        float(np.percentile(held.jct_s, 99) / np.percentile(free.jct_s, 99)),
        float(restarts),
        max((seconds for _, seconds in held.cap_used()), default=0.0),
    ]


def _by_name(names: Sequence[str], then_s: FloatArray, now_s: FloatArray, least: int = 1) -> dict[str, float]:
    """Mean completion of the jobs of each name that so many have, over what it was."""
    known, of = np.unique(np.array(names, dtype=object), return_inverse=True)
    several = np.flatnonzero((np.bincount(of, minlength=len(known)) >= least) & (known != ""))
    if not len(several):
        return {}
    then, now = (np.bincount(of, values)[several].tolist() for values in (then_s, now_s))
    return {name: after / before for name, after, before in zip(known[several], then, now, strict=True)}


def saved_of(policy: str, points: list[list[Point]], base: Mapping[int, Base]) -> PolicySavings:
    """Read off the frontiers of all seeds what a policy saves."""
    by_seed = [*zip(*filter(None, points), strict=True)]
    met = [point for seed in by_seed if (point := best_within(seed, "completion", 1.0)) is not None]
    parts, reached = np.array([point.saved for point in met]), len(met) == len(by_seed)
    soonest = [best_within(seed, "energy", 1.0) for seed in by_seed]
    sooner = [1.0 - point.completion for point in soonest if point is not None]
    meters = [one.outcome.meter for one in base.values()]
    energy_j, carbon_g, money = (
        np.array([getattr(one, f) for one in meters]) for f in ("energy_j", "carbon_g", "money")
    )

    def saved(amount: FloatArray | float) -> Interval | None:
        """Return the saved part of what the baseline takes."""
        return Interval.of((parts * amount).tolist()) if reached else None

    return PolicySavings(
        policy=policy,
        energy=saved(1.0),
        bound_only=reached and all(seed[-1].completion <= 1.0 for seed in by_seed),
        completion=Interval.of(sooner) if len(sooner) == len(by_seed) else None,
        energy_j=saved(energy_j),
        carbon_g=saved(carbon_g) if carbon_g.any() else None,
        money=None if meters[0].tariff is None else saved(money),
        points=points,
        losers=Point.mean(met) if reached else None,
        met=met if reached else [],
    )
