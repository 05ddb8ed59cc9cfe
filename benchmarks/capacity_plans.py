"""Capacity plans against replays of all candidates: what is lost, and what part of the time it takes.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.capacity_plans --write [--seeds 3]

The first hours of a day of six grounds, with 20 % more jobs, on each of two price sheets: one on which the
time of jobs is dear, and one on which energy and caps are. Candidates are numbers of nodes of two types and
caps. Each one is replayed on all seeds, and costed here again. Seeds begin at 701, on which nothing was
chosen. Seconds are those of the processor.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.harness import Asked, machine, run, say, table
from benchmarks.replays import HELD_OUT, Ground, data
from wattsched.instances.clusters import homogeneous_cluster, idle_power_w
from wattsched.replay.jobs.caps import CapError
from wattsched.replaying.candidates import Site
from wattsched.replaying.capacity import capacity
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.price_sheet import PriceSheet
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import replay_jobs
from wattsched.report.capacity import CapacityPlan

FIRST, GROWTH = 701, 0.2
DAYS = dict(zip((ground.name for ground in HELD_OUT), (0.5, 0.25, 0.25, 0.125, 0.375, 0.25), strict=True))
"""Parts of the day, in eighths, in which 40 jobs or more arrive, so that all candidates can be replayed."""
OTHER = {"A100": "V100", "V100": "A40"}
"""The type that can be bought beside that of the ground."""
WATTS = {"A100": 350.0, "V100": 250.0}
"""Draw for each GPU, nodes included, of which caps are parts."""
PARTS = (0.4, 0.55, 0.7, 0.85, 1.0)
SHEETS: dict[str, dict[str, float]] = {
    "time dear": {"kwh": 0.15, "cap_kw_year": 100.0, "job_h": 2.0},
    "energy dear": {"kwh": 0.45, "cap_kw_year": 400.0, "job_h": 0.5},
}
NODE = {"owned_year": 6_000.0, "bought_year": 14_000.0}
OTHER_NODE = {"owned_year": 0.0, "bought_year": 7_000.0}
HEADER = ("ground", "prices", "jobs", "candidates", "replays made", "proven out", "lost", "time, of all",
          "s, of all", "today's over the best")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A ground and a price sheet."""

    ground: Ground
    sheet: str
    counts: int = 6
    seeds: tuple[int, ...] = (FIRST,)

    def source(self) -> JobSource:
        """Jobs of the first hours of the ground."""
        ground = self.ground
        form = ground.file.partition("-")[0].replace("alibaba", "pai")
        known: dict[str, Any] = dict(ground.read.keywords) if isinstance(ground.read, partial) else {}
        day = ground.days[0]
        return JobSource(
            data(ground.file), form, from_day=float(day), to_day=day + DAYS.get(ground.name, 0.25), **known
        )

    def options(self) -> tuple[dict[str, list[int]], list[float], float]:
        """Numbers of nodes, caps and today's cap."""
        kind, n = self.ground.gpu_type, self.ground.nodes
        least = max(1, n - self.counts // 2)
        nodes = {kind: [*range(least, least + self.counts)], OTHER[kind]: [0, 2]}
        full_w = 8 * (n + 1) * WATTS[kind]
        return nodes, [part * full_w for part in PARTS], PARTS[-2] * full_w

    def prices(self) -> PriceSheet:
        """Price sheet of the case."""
        kind = self.ground.gpu_type
        return PriceSheet.model_validate(
            {"nodes": {kind: NODE, OTHER[kind]: OTHER_NODE}, **SHEETS[self.sheet]}
        )

    def settings(self, power_w: float) -> ReplaySettings:
        """Settings of every replay: exact durations, and the price of a joule."""
        return ReplaySettings(gap=1e-2, knows="exact", power_w=power_w)


Tried = dict[tuple[tuple[int, ...], float], float]


def tried(case: Case, prices: PriceSheet) -> tuple[Tried, int]:
    """Return the mean cost of every candidate over the seeds, by nodes and cap, and the number of jobs."""
    nodes, caps_w, today_w = case.options()
    cluster = homogeneous_cluster(case.ground.nodes, 8, case.ground.gpu_type)
    site, trace_on = Site(cluster, prices), case.source().elsewhere(cluster, GROWTH)
    arrival_s = trace_on(cluster, case.seeds[0]).arrival_s
    seconds, jobs = float(np.ptp(arrival_s)), len(arrival_s)
    found: Tried = {}
    assert prices.job_h is not None
    for counts in dict.fromkeys([*product(*nodes.values()), site.today]):
        there = site.with_nodes(counts)
        traces = {seed: trace_on(there, seed) for seed in case.seeds}
        idle_w = idle_power_w(there, there.nodes)
        for cap_w in caps_w if counts in [*product(*nodes.values())] else [today_w]:
            settings = ReplaySettings(gap=1e-2, knows="exact", power_w=cap_w, least_price=prices.joule_s)
            costs = []
            try:
                for _, outcome in replay_jobs(traces, ["sizing"], settings=settings):
                    kwh = (outcome.meter.energy_j - idle_w * (outcome.end_s - outcome.begin_s)) / 3.6e6
                    jobs_h = float(outcome.jct_s.sum()) / 3600.0
                    costs.append(8766 * 3600 / seconds * (prices.kwh * kwh + prices.job_h * jobs_h))
            except CapError:
                costs.append(np.inf)
            fixed = site.hardware_year(counts) + prices.kwh * idle_w / 1e3 * 8766
            found[counts, cap_w] = fixed + prices.cap_kw_year * cap_w / 1e3 + float(np.mean(costs))
    return found, jobs


def planned(case: Case) -> CapacityPlan:
    """Plan of a case."""
    nodes, caps_w, today_w = case.options()
    cluster = homogeneous_cluster(case.ground.nodes, 8, case.ground.gpu_type)
    return capacity(
        case.source(), cluster, case.prices(), nodes=nodes, caps_w=caps_w, growth=GROWTH,
        seeds=list(case.seeds), settings=case.settings(today_w),
    )  # fmt: skip


def compared(case: Case) -> list[str]:
    """Row of the table for a case."""
    begin = time.process_time()
    plan = planned(case)
    between = time.process_time()
    costs, jobs = tried(case, case.prices())
    end = time.process_time()
    assert plan.best is not None
    cost = {name: costs[tuple(one.nodes.values()), one.power_w] for name, one in
            (("best", plan.best), ("today", plan.today)) if one.power_w is not None}  # fmt: skip
    least, replays = min(costs.values()), sum(one.seeds for one in plan.options)
    out = sum(one.status == "cannot win" for one in plan.options)
    row = [
        case.ground.name, case.sheet, f"{jobs}", f"{len(costs)}",
        f"{replays} of {len(costs) * len(case.seeds)}", f"{out}", f"{cost['best'] / least - 1:.2%}",
        f"{(between - begin) / (end - between):.3f}", f"{end - between:.0f}",
        f"{cost['today'] / least - 1:.1%}",
    ]  # fmt: skip
    say(f"{row}  {plan.best.words()}; bound {plan.best.bound / least:.3f}")
    return row


def plans(asked: Asked) -> str:
    """Table of all cases."""
    grounds = HELD_OUT[2:3] if asked.quick else HELD_OUT
    seeds = tuple(range(FIRST, FIRST + asked.seeds))
    counts = 2 if asked.quick else 6
    cases = [Case(ground, sheet, counts, seeds) for ground in grounds for sheet in SHEETS]
    rows = [compared(case) for case in cases[: 1 if asked.quick else None]]
    return f"{table(HEADER, rows)}\n\nMeasured on {machine()}, {len(seeds)} seeds from {FIRST}."


TABLES = {"capacity-plans": plans}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=3)
