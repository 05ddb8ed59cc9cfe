"""Savings of a cluster: energy at the same completion time, and completion time at the same energy.

Each policy is replayed without a budget and within several budgets of energy. Between the points that these
give its frontier is taken as straight. A run and the baseline are counted to the same end, the later of their
last completions: a cluster whose jobs are through goes on to draw what it draws when it is idle. What that
saves does not depend on the end, and is told as a part of what the baseline takes until its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar, get_args

import numpy as np

from wattsched.instances.errors import require_known, require_range
from wattsched.instances.units import S_PER_DAY, S_PER_H
from wattsched.reading.arguments import require_types
from wattsched.replay.jobs.budget import PACINGS, Pacing
from wattsched.replay.jobs.caps import CapError, distinct_limits
from wattsched.replay.jobs.knowledge import BLIND, Knows, known_of, known_under
from wattsched.replay.jobs.policies import base_of, require_policy
from wattsched.replaying.accounting import By, clock_of, doubts, groups_of, record_of
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import Journal, Progress, _untold
from wattsched.replaying.savings_study import Study, saved_of
from wattsched.report.replays import DURATIONS, EXACT
from wattsched.report.saved import Interval, Savings, Sensitivity, best_within
from wattsched.running.executors import Executor
from wattsched.topology.cluster import Cluster

T = TypeVar("T")
R = TypeVar("R")

LEVELS = (1.0, 0.8, 0.6, 0.45, 0.3)
"""Budgets, as parts of what the baseline draws on average beyond the idle cluster."""

SEEDS = (0, 1, 2)
"""Seeds by default, where models are drawn."""

PER_INPUT = 3
"""Replays at either end of an input, about: the baseline, and within budgets that enclose it."""

LIMITS_W = (100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 400.0)
"""Fixed power limits of GPUs that the baseline is replayed with."""


Vary = Callable[[Cluster, ReplaySettings, int], tuple[Cluster, ReplaySettings]]


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
    vary: Vary


def _gpus(field: str, part: float) -> Vary:
    """Make what varies a field of all GPU types by a part of it."""

    def vary(cluster: Cluster, settings: ReplaySettings, end: int) -> tuple[Cluster, ReplaySettings]:
        types = cluster.gpu_types.items()
        varied = {
            name: kind.model_copy(update={field: getattr(kind, field) * (1 + part * end)})
            for name, kind in types
        }
        return cluster.model_copy(update={"gpu_types": varied}), settings

    return vary


def _nodes(cluster: Cluster, settings: ReplaySettings, end: int) -> tuple[Cluster, ReplaySettings]:
    watts = [node.base_power_w * (1 + 0.5 * end) for node in cluster.nodes]
    nodes = [n.model_copy(update={"base_power_w": w}) for n, w in zip(cluster.nodes, watts, strict=True)]
    return cluster.model_copy(update={"nodes": nodes}), settings


def _restarts(cluster: Cluster, settings: ReplaySettings, end: int) -> tuple[Cluster, ReplaySettings]:
    process_s, pod_s = (2.0**end * s for s in (settings.process_restart_s, settings.pod_restart_s))
    return cluster, replace(settings, process_restart_s=process_s, pod_restart_s=pod_s)


INPUTS = (
    Input("watts of busy GPUs", "-15 %", "+15 %", _gpus("power_factor", 0.15)),
    Input("watts of idle GPUs", "-30 %", "+30 %", _gpus("idle_power_w", 0.3)),
    Input("watts of nodes", "-50 %", "+50 %", _nodes),
    Input("seconds of a restart", "half", "twice", _restarts),
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
    finished: Callable[[str, int], None] = lambda policy, seed: None,
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
        Budgets, as `LEVELS`; every period of the settings has its part. They are tried from the largest on
        until completion is later than the baseline's on every seed.
    seeds : sequence of int, optional
        Of the models that jobs train where the trace does not tell, and of the errors of these models where
        the source has `model_errors` and there are several; default: three, or one for a list of work.
    settings : ReplaySettings, optional
        Without a budget, and without nodes that sleep; with a tariff money is told, too.
    pacing : {"even", "price", "plan", "none"}
        How the budgets are spent, as in `ReplaySettings`.
    inputs : sequence of Input, optional
        What is not known for sure; default: `INPUTS`. Each takes three replays at either end.
    by : sequence of {"account", "month"}
        Split energy, carbon and money by these, and what policies save.
    journal : Journal, optional
        Where replays are kept, each kind in a folder of its own, so that an interrupted study can go on.
    executor, progress
        As for `replay_jobs`; an executor of several workers is given replays of several policies at once.
    finished : callable
        Told of the policy and the seed of each replay that has ended, also of those of an executor.
    planned : callable
        Told before the first replay how many there will be at most, and about how many more for the inputs.

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
    if (settings.budget, settings.sleep_after_s, settings.gpu_limit_w) != (None, None, None):
        raise ValueError("settings: budgets follow from the levels, limits are swept, and no node may sleep")
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
    seeds = (SEEDS if source.draws else SEEDS[:1]) if seeds is None else seeds
    if len(seeds) == 1:  # One draw would be a bias, and there is no interval for it to widen.
        source = replace(source, model_errors=False)
    traces = source.traces(cluster, seeds)
    one_trace = next(iter(traces.values()))
    knows, last = settings.knows or known_of(one_trace), policies[-1]
    upper = _upper(policies, knows)
    order = [*policies[:-1], *upper, last]
    if "account" in by and not any(one.account for one in one_trace.records):
        raise ValueError("by: the trace names no account")
    clock_s = clock_of(one_trace, settings.start) if "month" in by else 0.0
    fixed = (by, clock_s, executor, progress, finished, journal)
    study = Study(traces, baseline, ordered, settings, pacing, *fixed)
    tested = INPUTS if inputs is None else inputs
    as_set = source.as_set(cluster, traces)
    limits_w = distinct_limits(as_set.values(), LIMITS_W)
    unlimited = len(settings.without_signal) * (1 + len(order))
    replays = 1 + len(order) * len(ordered) + unlimited + len(limits_w)
    planned(len(traces) * replays, PER_INPUT * 2 * len(tested))
    base = study.base
    tried = dict(zip(policies, _at_once(executor, study.frontier, policies), strict=True))
    # The smallest budget within which completion is no later on the first seed; else without one.
    kept = [k for k, level in enumerate(tried[last][1]) if level and level[0].completion <= 1.0]
    near = max(kept, default=0)
    for policy in upper:
        tried[policy] = study.frontier(policy, max(1, near))
    found = [saved_of(policy, tried[policy][1], base) for policy in order]
    events = [*study.events(baseline, [known.outcome for known in base.values()])]
    for policy in order:
        events += study.events(policy, tried[policy][0])
    limits = _at_once(executor, lambda limit_w: study.limit(as_set, limit_w, found[-1]), limits_w)
    parts = _parts(study, source, cluster, tested, last, near)
    now = best_within([point for point, *_ in filter(None, found[-1].points)], "completion", 1.0)
    one = next(iter(base.values()))
    energy_j = Interval.of([known.energy_j for known in base.values()])
    record = record_of([known.outcome for known in base.values()], one.idle_w)
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
        power_w=[None, *(study.power_w(level) for level in ordered[1:])],
        policies=found,
        currency="" if (tariff := one.outcome.meter.tariff) is None else tariff.currency,
        as_it_is=None if now is None or not tested else 1.0 - now.energy,
        inputs=parts,
        assumptions=[*source.comments, *_assumptions(source, settings, pacing, knows)],
        record=record,
        doubts=[*doubts(baseline, energy_j.mean, record), *one.outcome.meter.stale(one.outcome.begin_s)],
        groups=groups_of([known.outcome for known in base.values()], by, clock_s),
        limits=limits,
        events=events,
    )


def _upper(policies: Sequence[str], knows: Knows) -> list[str]:
    """Return the last policy with exact durations, where it does not know them and is not there so, too."""
    last = policies[-1]
    guesses = base_of(last) not in BLIND and known_under(last, knows) != "exact"
    return [last + EXACT] if guesses and last + EXACT not in policies else []


def _parts(
    study: Study, source: JobSource, cluster: Cluster, inputs: Sequence[Input], policy: str, near: int
) -> list[Sensitivity]:
    """Return what a policy saves of the energy on the first seed with each input at either end."""

    def part(at: tuple[int, int]) -> float | None:
        number, end = at
        site, settings = inputs[number].vary(cluster, study.settings, end)
        kept = study.journal and study.journal.within(f"input{number}{end:+}")
        traces = source.traces(site, [*study.traces][:1])
        try:
            return replace(study, traces=traces, settings=settings, journal=kept).part(policy, near)
        except CapError:  # With other watts the cluster may exceed its cap when idle.
            return None

    ends = [(number, end) for number in range(len(inputs)) for end in (-1, 1)]
    parts = _at_once(study.executor, part, ends)
    both = zip(inputs, parts[::2], parts[1::2], strict=True)
    return [Sensitivity(of.name, of.low, of.high, *found) for of, *found in both]


def _at_once(executor: Executor | None, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call a function on all items, on as many at once as an executor has workers."""
    if executor is None:
        return [function(item) for item in items]
    with ThreadPoolExecutor(executor.workers()) as pool:
        return [*pool.map(function, items)]


def _assumptions(source: JobSource, settings: ReplaySettings, pacing: Pacing, knows: Knows) -> list[str]:
    changes = f"jobs may change {'GPU count, ' if source.elasticity > 1 else ''}batch size and clock"
    if source.as_deployed:
        changes = "jobs change only what the list says, as deployed; limits of GPUs hold for all alike"
    spent = {
        "even": "in proportion to the time left",
        "price": "ahead of time where that is worth it, by policies that learn a price, by others evenly",
        "plan": "by a plan for the jobs to come, by policies that make one, by others evenly",
        "none": "whenever policies like",
    }
    beside = ", as no scheduler does" if knows == "exact" else "; those with +exact with exact ones"
    models = "the models that jobs train are drawn by seed where the trace does not name them"
    errors = "are drawn by seed: intervals cover them" if source.model_errors else "are in no interval"
    return [
        "rates and watts are those of the performance models, not of this cluster",
        f"policies decide with {DURATIONS[knows]}{beside}",
        *[models] * source.draws,
        f"errors of the models' watts, synchronisation, slowdowns and batches {errors}",
        f"{changes}; a change takes the time of a restart",
        f"every {settings.period_s / S_PER_H:g} h have their own budget; what they leave is not for later",
        f"a budget is spent {spent[pacing]}",
        "what a run takes after the other's last completion counts beyond the draw of the idle cluster",
        "between the budgets that were tried the frontier is taken as straight",
    ]
