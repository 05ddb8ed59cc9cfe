"""Policies that do not know how long jobs take, and how well durations are foretold.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.knowledge --write [--seeds 3]

Replays are of the six grounds of benchmarks/grounds.py, on which nothing was chosen. What ran before are all
days of the trace before that of the ground. No public trace tells time limits: they are drawn here, 3 to 10
times the duration. Durations are foretold hour by hour, on all days of the same traces.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np
from scipy.stats import gmean

from benchmarks.harness import Asked, data, in_processes, run, say, table
from benchmarks.replays import HELD_OUT, OURS, RULE, Case, Figures, cases_of
from wattsched.instances.traces import TraceJob
from wattsched.instances.units import S_PER_DAY, S_PER_H
from wattsched.perfmodels.durations import Coverage, Durations
from wattsched.replay.jobs.bound.clairvoyant import bound_of, parts_of
from wattsched.replay.jobs.knowledge import Knows
from wattsched.replay.jobs.trace import Trace

LIMITS = (3.0, 10.0)
"""Least and most that a limit is drawn above a duration."""

# -- replays ---------------------------------------------------------------------------------------------

HEADER = (
    "ground, budget", "durations", "no schedule below, h", "rule, h", "ours, h", "ours over rule",
    "worst seed", "ours above bound, %", "p99 over rule's", "preemptions of a job",
)  # fmt: skip


@dataclass(frozen=True)
class Seed:
    """A seed of a case: what no schedule is below, and the rule's and our figures by what they know."""

    least_h: float
    rule: dict[Knows, Figures]
    ours: dict[Knows, Figures]


def with_limits(trace: Trace, seed: int) -> Trace:
    """A trace whose users state limits, drawn evenly on a logarithmic scale."""
    factor = np.exp(np.random.default_rng(seed).uniform(math.log(LIMITS[0]), math.log(LIMITS[1]), len(trace)))
    limited = zip(trace.records, factor.tolist(), strict=True)
    return replace(
        trace, records=tuple(replace(job, time_limit_s=job.duration_s * times) for job, times in limited)
    )


def seed_of(seed: int, case: Case) -> Seed:
    """Replay a seed of a case with all kinds of knowledge, and bound every schedule."""
    trace = case.ground.trace(seed)
    rule, ours = dict[Knows, Figures](), dict[Knows, Figures]()
    for knows in get_args(Knows):
        # A limit tells more than what is learned of jobs without one: only `limit` has them.
        seen = with_limits(trace, seed) if knows == "limit" else trace
        for policy, found in ((RULE, rule), (OURS, ours)):
            found[knows] = Figures.of(case.replayed(seen, policy, knows=knows))
    bound = bound_of(parts_of(trace, case.budget(trace), energy=False), [])
    say(f"{case.name}, seed {seed}")
    return Seed(bound.mean_completion_s / S_PER_H, rule, ours)


def line(where: str, knows: Knows, found: Sequence[Seed]) -> list[str]:
    """A line of the table: geometric means over seeds."""
    rule, ours, least = (
        np.array(values)
        for values in zip(
            *((s.rule[knows].mean_h, s.ours[knows].mean_h, s.least_h) for s in found), strict=True
        )
    )
    p99 = gmean([seed.ours[knows].p99_h / seed.rule[knows].p99_h for seed in found])
    stops = np.mean([seed.ours[knows].preemptions for seed in found])
    hours = [f"{gmean(values):.2f}" for values in (least, rule, ours)]
    over = [f"{gmean(ours / rule):.3f}", f"{np.max(ours / rule):.3f}"]
    return [
        where,
        knows,
        *hours,
        *over,
        f"{100 * (gmean(ours / least) - 1):.1f}",
        f"{p99:.2f}",
        f"{stops:.2f}",
    ]


def replays(asked: Asked) -> str:
    """The table of replays."""
    rows, everything = list[list[str]](), list[Seed]()
    chosen = (HELD_OUT[0].shortened(0.1, 2),) if asked.quick else HELD_OUT
    for case in cases_of(chosen):
        found = list(in_processes(partial(seed_of, case=case), range(asked.seeds), asked.processes))
        rows += [line(case.name, knows, found) for knows in get_args(Knows)]
        everything += found
    rows += [line("all", knows, everything) for knows in get_args(Knows)]
    return table(HEADER, rows)


# -- durations -------------------------------------------------------------------------------------------

SHARES = (0.5, 0.9)
AGES_S = (0.0, S_PER_H)
WARM_S = 7 * S_PER_DAY
"""A week of which is only learned."""


def foretold(jobs: Sequence[TraceJob]) -> dict[tuple[float, float], list[bool]]:
    """By age and share: whether each job that reaches the age ends within the quantile told then.

    What is known at a moment are the jobs that have ended by then, and how long others have run.
    """
    jobs = sorted((job for job in jobs if job.gpus and job.duration_s), key=lambda job: job.submitted_s)
    begin_s, ran_s = (np.array([getattr(job, f) for job in jobs]) for f in ("submitted_s", "duration_s"))
    begin_s -= begin_s[0]
    group = np.unique([job.gpus for job in jobs], return_inverse=True)[1]
    asks = sorted(
        (start_s + age_s, k, age_s)
        for k, (start_s, lasts_s) in enumerate(zip(begin_s.tolist(), ran_s.tolist(), strict=True))
        for age_s in AGES_S
        if lasts_s > age_s and start_s >= WARM_S / 2
    )
    covers = {(age_s, share): Coverage(share) for age_s in AGES_S for share in SHARES}
    told = {key: list[bool]() for key in covers}
    due: list[tuple[float, tuple[float, float], bool]] = []
    looked_h, model = -1.0, Durations.unknown()
    for now_s, job, age_s in asks:
        while due and due[0][0] <= now_s:
            _, key, covered = heapq.heappop(due)
            covers[key].saw(covered=covered)
        if now_s // S_PER_H > looked_h:
            looked_h = now_s // S_PER_H
            since_s = looked_h * S_PER_H - begin_s
            model = Durations.fit(
                ran_s.clip(0.0, np.maximum(since_s, 0.0)), since_s >= ran_s, since_s, [group]
            )
        for share in SHARES:
            key = age_s, share
            level = covers[key].level
            until_s = float(model.quantile_s(group[[job]], np.array([age_s]), level)[0])
            covered = bool(ran_s[job] <= until_s)
            heapq.heappush(due, (float(begin_s[job]) + min(float(ran_s[job]), until_s), key, covered))
            if now_s >= WARM_S:
                told[key].append(covered)
    return told


def durations(asked: Asked) -> str:
    """The table of quantiles."""

    def rows() -> Iterator[list[str]]:
        for ground in HELD_OUT[: 1 if asked.quick else None]:
            told = foretold(ground.read(data(ground.file))[: 2_000 if asked.quick else None])
            say(ground.name)
            yield [
                ground.name.partition(",")[0],
                *(f"{len(told[age_s, SHARES[0]]):,}" for age_s in AGES_S),
                *(f"{100 * np.mean(told[age_s, share]):.1f}" for age_s in AGES_S for share in SHARES),
            ]

    return table(
        ("trace", "jobs told of", "of them after an hour", "within the median, %", "within the 90 %",
         "an hour in: median, %", "90 %"),
        list(rows()),
    )  # fmt: skip


TABLES = {"knowledge": replays, "durations": durations}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=3, processes=2)
