"""Savings of a cluster: energy at the same completion time, and completion time at the same energy.

Each policy is replayed without a budget and within several budgets of energy. Between the points that these
give its frontier is taken as straight. A run and the baseline are counted to the same end, the later of their
last completions: a cluster whose jobs are through goes on to draw what it draws when it is idle. What that
saves does not depend on the end, and is told as a part of what the baseline takes until its own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np

from wattsched.instances.errors import NoticeWarning, require_known, require_range
from wattsched.instances.units import J_PER_KWH, S_PER_DAY, S_PER_H
from wattsched.reading.arguments import require_types
from wattsched.replay.jobs.accounts import Nodes
from wattsched.replay.jobs.budget import PACINGS, Pacing
from wattsched.replay.jobs.caps import CapError
from wattsched.replay.jobs.knowledge import BLIND, Knows, known_of, known_under
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import base_of, require_policy
from wattsched.replay.jobs.trace import Trace
from wattsched.replaying.accounting import By, clock_of, doubts, groups_of, record_of
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import Journal, Progress, _untold, replay_jobs
from wattsched.report.replays import DURATIONS, EXACT
from wattsched.report.saved import (
    LATE,
    EventCost,
    Interval,
    Point,
    PolicySavings,
    Savings,
    Sensitivity,
    best_within,
)
from wattsched.running.executors import Executor
from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Cluster

LEVELS = (1.0, 0.8, 0.6, 0.45, 0.3)
"""Budgets, as parts of what the baseline draws on average beyond the idle cluster."""

SEEDS = (0, 1, 2)
"""Seeds by default, where models are drawn."""

PER_INPUT = 3
"""Replays at either end of an input, about: the baseline, and within budgets that enclose it."""

HEAVY = 0.05
"""Part of the jobs that ask for most GPU time."""

SEVERAL = 5
"""Users of fewer jobs are not told of: with so few it is chance who waits."""


@dataclass(frozen=True)
class Input:
    """Something that is not known for sure, and between which values it may lie.

    Attributes
    ----------
    name, low, high : str
        What it is, and its two ends in words.
    vary : callable
        Cluster, settings and -1 or 1 to the cluster and settings at that end.
    """

    name: str
    low: str
    high: str
    vary: Callable[[Cluster, ReplaySettings, int], tuple[Cluster, ReplaySettings]]


def _with_types(cluster: Cluster, **factors: float) -> Cluster:
    """A cluster in which fields of its GPU types are multiplied."""
    types = {
        name: kind.model_copy(update={f: getattr(kind, f) * factor for f, factor in factors.items()})
        for name, kind in cluster.gpu_types.items()
    }
    return cluster.model_copy(update={"gpu_types": types})


def _with_base(cluster: Cluster, factor: float) -> Cluster:
    nodes = [n.model_copy(update={"base_power_w": n.base_power_w * factor}) for n in cluster.nodes]
    return cluster.model_copy(update={"nodes": nodes})


INPUTS = (
    Input(
        "watts of busy GPUs",
        "-15 %",
        "+15 %",
        lambda cluster, settings, end: (_with_types(cluster, power_factor=1 + 0.15 * end), settings),
    ),
    Input(
        "watts of idle GPUs",
        "-30 %",
        "+30 %",
        lambda cluster, settings, end: (_with_types(cluster, idle_power_w=1 + 0.3 * end), settings),
    ),
    Input(
        "watts of nodes",
        "-50 %",
        "+50 %",
        lambda cluster, settings, end: (_with_base(cluster, 1 + 0.5 * end), settings),
    ),
    Input(
        "seconds of a restart",
        "half",
        "twice",
        lambda cluster, settings, end: (
            cluster,
            replace(
                settings,
                process_restart_s=settings.process_restart_s * 2.0**end,
                pod_restart_s=settings.pod_restart_s * 2.0**end,
            ),
        ),
    ),
)
"""Inputs that replays rest on. Watts of busy GPUs by as much as the share of the board's limit that a model
draws differs between boards (`power_uncertainty` of the catalogue); the ends of the others are ours, by what
differs between sites."""


def savings(
    source: JobSource,
    cluster: Cluster,
    *,
    baseline: str = "backfill",
    policies: Sequence[str] = ("backfill+zeus", "powerflow", "sizing"),
    levels: Sequence[float] = LEVELS,
    seeds: Sequence[int] | None = None,
    settings: ReplaySettings | None = None,
    pacing: Pacing = "even",
    inputs: Sequence[Input] | None = None,
    by: Sequence[By] = (),
    journal: Journal | None = None,
    executor: Executor | None = None,
    progress: Progress = _untold,
    planned: Callable[[int, int], None] = lambda replays, more: None,
) -> Savings:
    """Replay a trace under a baseline and under policies within budgets, and say what these save.

    Parameters
    ----------
    source : JobSource
    cluster : Cluster
    baseline : str
        The policy that stands for what the cluster does now, which has no budget.
    policies : sequence of str
    levels : sequence of float
        Budgets, as `LEVELS`; every period of the settings has its part.
    seeds : sequence of int, optional
        Of the models that jobs train where the trace does not tell; default: three, or one where nothing is
        drawn.
    settings : ReplaySettings, optional
        Without a budget, and without nodes that sleep; with a tariff money is told, too.
    pacing : {"even", "price", "none"}
        How the budgets are spent, as in `ReplaySettings`.
    inputs : sequence of Input, optional
        What is not known for sure; default: `INPUTS`. Each takes three replays at either end.
    by : sequence of {"account", "month"}
        Split energy, carbon and money by these.
    journal : Journal, optional
        Where replays are kept, each kind in a folder of its own, so that an interrupted study can go on.
    executor, progress
        As for `replay_jobs`.
    planned : callable
        Told before the first replay how many there will be, and about how many more for the inputs.

    Raises
    ------
    ValueError
        As `replay_jobs`, for levels that are not above 0, and for a pacing that there is not.
    """
    require_types(savings, locals())
    within = len(levels) > 1 and all(0.0 < level <= 2.0 for level in levels)
    require_range(within, "levels", "two at least, above 0 and at most 2", [*levels])
    require_known("pacing", pacing, PACINGS)
    settings = settings or ReplaySettings()
    if settings.budget is not None or settings.sleep_after_s is not None:
        raise ValueError("settings: budgets follow from the levels, and no node may sleep")
    for policy in (baseline, *policies):
        require_policy(policy)
    require_range(len(policies) > 0, "policies", "one at least", "none")
    ordered = [math.inf, *sorted(set(levels), reverse=True)]
    for name in by:
        require_known("by", name, get_args(By))
    if journal is not None:
        given = {"baseline": baseline, "levels": [*ordered], "spent": pacing}
        journal = replace(journal, options={**journal.options, **given})
        journal.open(settings)
    drawn = SEEDS if source.draws else SEEDS[:1]
    traces = source.traces(cluster, drawn if seeds is None else seeds)
    one_trace = next(iter(traces.values()))
    knows, last = settings.knows or known_of(one_trace), policies[-1]
    guesses = base_of(last) not in BLIND and known_under(last, knows) != "exact"
    if guesses and last + EXACT not in policies:
        policies = [*policies[:-1], last + EXACT, last]
    if "account" in by and not any(one.account for one in one_trace.records):
        raise ValueError("by: the trace names no account")
    clock_s = clock_of(one_trace, settings.start) if "month" in by else 0.0
    study = _Study(baseline, ordered, settings, pacing, executor, progress, journal)
    tested = INPUTS if inputs is None else inputs
    further = PER_INPUT * (1 + 2 * len(tested)) if tested else 0
    unlimited = len(settings.without_signal) * (1 + len(policies))
    planned(len(traces) * (1 + len(policies) * len(ordered) + unlimited), further)
    base = study.baseline_of(traces)
    events = [*study.events(traces, baseline, [known.outcome for known in base.values()])]
    found = list[PolicySavings]()
    for policy in policies:
        held = [run for _, run in study._runs(traces, policy)]
        points = [[_point(*pair) for pair in zip(base.values(), held, strict=True)]]
        points += [study.points(traces, base, policy, level) for level in ordered[1:]]
        found.append(_saved(policy, points, base))
        events += study.events(traces, policy, held)
    # The smallest budget within which completion is no later on average; else the largest.
    near = max([0, *(k for k, (point, *_) in enumerate(found[-1].points) if point.completion <= 1.0)])

    def part(changed: Cluster, changed_settings: ReplaySettings, folder: str = "input") -> float | None:
        """Return the part of the energy that the last policy saves on the first seed."""
        kept = journal and journal.within(folder)
        other = replace(study, settings=changed_settings, journal=kept)
        try:
            return other.part(source.traces(changed, [*traces][:1]), policies[-1], near)
        except CapError:  # With other watts the cluster may exceed its cap when idle.
            return None

    one = next(iter(base.values()))
    energy_j = Interval.of([known.energy_j for known in base.values()])
    record = record_of([known.outcome.trace for known in base.values()], one.idle_w)
    return Savings(
        baseline=baseline,
        jobs=len(one.outcome.trace),
        gpus=int(one.outcome.trace.available.sum()),
        seeds=list(traces),
        days=float(np.mean([known.seconds for known in base.values()])) / S_PER_DAY,
        energy_j=energy_j,
        completion_s=Interval.of([float(known.outcome.jct_s.mean()) for known in base.values()]),
        period_s=settings.period_s,
        levels=[None, *ordered[1:]],
        power_w=[None, *(study.power_w(base, level) for level in ordered[1:])],
        policies=found,
        currency="" if (tariff := one.outcome.meter.tariff) is None else tariff.currency,
        as_it_is=part(cluster, settings) if tested else None,
        inputs=[
            Sensitivity(
                one.name,
                one.low,
                one.high,
                *(part(*one.vary(cluster, settings, end), f"input{number}{end:+}") for end in (-1, 1)),
            )
            for number, one in enumerate(tested)
        ],
        assumptions=[*source.comments, *_assumptions(source, settings, pacing, knows)],
        record=record,
        doubts=[*doubts(baseline, energy_j.mean, record), *one.outcome.meter.stale(one.outcome.begin_s)],
        groups=groups_of([known.outcome for known in base.values()], by, clock_s),
        events=events,
    )


@dataclass(frozen=True)
class _Base:
    """A replay of the baseline on one seed."""

    outcome: Outcome

    @cached_property
    def idle_w(self) -> float:
        """Draw of the cluster without jobs."""
        return Nodes(self.outcome.trace.cluster, self.outcome.trace.pools, None, 0.0).idle_cluster_w

    @property
    def seconds(self) -> float:
        return self.outcome.end_s - self.outcome.begin_s

    @property
    def energy_j(self) -> float:
        return self.outcome.meter.energy_j

    def saved_j(self, outcome: Outcome) -> float:
        """Joules that another replay of the trace saves, both counted to the same end, whichever that is."""
        later_s = outcome.end_s - self.outcome.end_s
        return float(self.energy_j - outcome.meter.energy_j + self.idle_w * later_s)


@dataclass(frozen=True)
class _Study:
    """Study that replays policies against the baseline; the first of the levels is infinite: no budget."""

    baseline: str
    levels: Sequence[float]
    settings: ReplaySettings
    pacing: Pacing
    executor: Executor | None
    progress: Progress
    journal: Journal | None = None

    def baseline_of(self, traces: Mapping[int, Trace]) -> dict[int, _Base]:
        """Replays of the baseline by seed."""
        return {seed: _Base(outcome) for seed, outcome in self._runs(traces, self.baseline)}

    def power_w(self, base: Mapping[int, _Base], level: float) -> float:
        """Watts of a level: the same budget for all seeds."""
        above = [known.energy_j / known.seconds - known.idle_w for known in base.values()]
        idle_w = float(np.mean([known.idle_w for known in base.values()]))
        return idle_w + level * float(np.mean(above))

    def part(self, traces: Mapping[int, Trace], policy: str, near: int) -> float | None:
        """Part of the energy that a policy saves on one seed; None where no budget keeps the mean.

        Budgets are tried from one on until two enclose the baseline's mean completion time.
        """
        base = self.baseline_of(traces)
        found: dict[int, Point] = {}
        while 0 <= near < len(self.levels) and near not in found:
            (found[near],) = self.points(traces, base, policy, self.levels[near])
            near += 1 if found[near].completion <= 1.0 else -1
        best = best_within([*found.values()], "completion", 1.0)
        return None if best is None else 1.0 - best.energy

    def points(
        self, traces: Mapping[int, Trace], base: Mapping[int, _Base], policy: str, level: float
    ) -> list[Point]:
        """Points of a policy within a budget, by seed."""
        joules = self.power_w(base, level) * self.settings.period_s if math.isfinite(level) else None
        return [_point(base[seed], run) for seed, run in self._runs(traces, policy, joules, level)]

    def events(
        self, traces: Mapping[int, Trace], policy: str, held: Sequence[Outcome]
    ) -> Iterator[EventCost]:
        """Replay a policy without the signal, if there is one, or without its wishes; yield costs."""
        if self.settings.signal is None:
            return
        others = list[list[Outcome]]()
        with warnings.catch_warnings(category=NoticeWarning, action="ignore"):  # told of the replays under it
            for folder, settings in self.settings.without_signal.items():
                one = replace(self, settings=settings, journal=self.journal and self.journal.within(folder))
                others.append([run for _, run in one._runs(traces, policy)])
        rows = [
            _event_row(runs[0], runs[-1], under, self.settings.events(under.trace))
            for *runs, under in zip(*others, held, strict=True)
        ]
        yield EventCost(policy, *np.mean(rows, axis=0).tolist())

    def _runs(
        self, traces: Mapping[int, Trace], policy: str, joules: float | None = None, level: float = math.inf
    ) -> Iterator[tuple[int, Outcome]]:
        settings = self.settings
        if joules is not None:
            settings = replace(settings, budget=("energy_j", joules), pacing=self.pacing)
        return replay_jobs(
            traces,
            [policy],
            settings=settings,
            journal=self.journal and self.journal.within(f"{policy}/{level:g}"),
            executor=self.executor,
            progress=self.progress,
        )


def _point(base: _Base, outcome: Outcome) -> Point:
    then_s, now_s = outcome.jct_s, base.outcome.jct_s
    trace = outcome.trace
    gpu_s = trace.requested_gpus * trace.work / trace.requested_rate
    heavy = np.argsort(gpu_s, kind="stable")[-max(1, round(HEAVY * len(trace))) :]
    return Point(
        energy=1.0 - base.saved_j(outcome) / base.energy_j,
        completion=float(then_s.mean() / now_s.mean()),
        p99=float(np.percentile(then_s, 99) / np.percentile(now_s, 99)),
        heavy=float(then_s[heavy].mean() / now_s[heavy].mean()),
        late=float(np.mean(then_s > LATE * now_s)),
        users=_by_user(trace.users, then_s, now_s),
    )


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


def _by_user(users: Sequence[str], then_s: FloatArray, now_s: FloatArray) -> dict[str, float]:
    """Mean completion of each user of `SEVERAL` jobs, over what it was."""
    names, user = np.unique(np.array(users, dtype=object), return_inverse=True)
    known = np.flatnonzero((np.bincount(user, minlength=len(names)) >= SEVERAL) & (names != ""))
    if not len(known):
        return {}
    then, now = (np.bincount(user, values)[known].tolist() for values in (then_s, now_s))
    return {name: after / before for name, after, before in zip(names[known], then, now, strict=True)}


def _saved(
    policy: str,
    points: list[list[Point]],
    base: Mapping[int, _Base],
) -> PolicySavings:
    by_seed = [*zip(*points, strict=True)]
    met = [point for seed in by_seed if (point := best_within(seed, "completion", 1.0)) is not None]
    parts, reached = np.array([1.0 - point.energy for point in met]), len(met) == len(by_seed)
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
        bound_only=reached and all(min(s, key=lambda p: p.energy).completion <= 1.0 for s in by_seed),
        completion=Interval.of(sooner) if len(sooner) == len(by_seed) else None,
        energy_j=saved(energy_j),
        carbon_g=saved(carbon_g) if carbon_g.any() else None,
        money=None if meters[0].tariff is None else saved(money),
        points=points,
        losers=Point.mean(met) if reached else None,
    )


def _assumptions(source: JobSource, settings: ReplaySettings, pacing: Pacing, knows: Knows) -> list[str]:
    changes = f"{'GPU count, ' if source.elasticity > 1 else ''}batch size and clock"
    spent = {
        "even": "in proportion to the time left",
        "price": "ahead of time where that is worth it, by policies that learn a price, by others evenly",
        "plan": "by a plan for the jobs to come, by policies that make one, by others evenly",
        "none": "whenever policies like",
    }
    beside = ", as no scheduler does" if knows == "exact" else "; those with +exact with exact ones"
    models = "the models that jobs train are drawn by seed where the trace does not name them"
    return [
        "rates and watts are those of the performance models, not of this cluster",
        f"policies decide with {DURATIONS[knows]}{beside}",
        *([models] if source.draws else []),
        f"jobs may change {changes} from round to round, and lose the time of a restart",
        f"every {settings.period_s / S_PER_H:g} h have their own budget; what they leave is not for later",
        f"a budget is spent {spent[pacing]}",
        "what a run takes after the other's last completion counts beyond the draw of the idle cluster",
        "between the budgets that were tried the frontier is taken as straight",
    ]
