"""Jobs, clusters and daily budgets of the benchmarks that replay traces."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from benchmarks.harness import data
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.traces import TraceJob
from wattsched.instances.traces.carbon import read_carbon
from wattsched.instances.traces.job_lists import read_itp, read_pai, read_philly
from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.accounts import Carbon
from wattsched.replay.jobs.budget import Budget, Pacing
from wattsched.replay.jobs.knowledge import Knows
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of_durations

DAY_S = 86_400.0
ROUND_S, GAP = 60.0, 0.01
OURS, RULE, CARBON_RULE = "sizing", "powerflow", "greenflow"
WATTS_PER_GPU = {"A100": (220.0, 160.0), "V100": (130.0, 100.0)}
"""Budgets of a day, as the mean draw for each GPU, nodes included: two that bind under PowerFlow's rule. Idle
GPUs draw 75 and 55 W with their nodes, busy ones at their highest clock 365 W (mean of the models) and up to
275 W."""
ZONES = {
    "CISO": "carbon-eia-us-2022/CISO_2022_hourly.csv.gz",
    "ES": "carbon-electricitymaps/ES_2021_2023_hourly.csv.gz",
}
PRICES = (1e-5, 20.0)
"""Seconds of completion time for a joule: as good as nothing, and more than any policy here gives for it."""
STEP = 2.0
"""Between the logarithms of two prices that are tried one after the other."""
ENOUGH = 0.997
"""Part of what the rule takes at which ours is said to take as much."""

# -- jobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ground:
    """Jobs of a trace that arrive between two days from its first arrival on, on nodes of eight GPUs."""

    name: str
    file: str
    read: Callable[[Path], list[TraceJob]]
    days: tuple[float, float]
    gpu_type: str
    nodes: int

    def trace(self, seed: int) -> Trace:
        """Draw the model that each job trains; the jobs of the days before are its history."""
        jobs = [replace(job, model=None, batch_size=None) for job in self.read(data(self.file))]
        first = min(job.submitted_s for job in jobs)
        begin_s, end_s = (first + day * DAY_S for day in self.days)
        within = [job for job in jobs if begin_s <= job.submitted_s < end_s]
        before = [job for job in jobs if job.submitted_s < begin_s]
        cluster = homogeneous_cluster(self.nodes, 8, self.gpu_type)
        return trace_of_durations(cluster, within, seed=seed, history=before)

    def shortened(self, days: float, nodes: int) -> Ground:
        """The first part of the ground on fewer nodes, for a quick benchmark."""
        return replace(self, days=(self.days[0], self.days[0] + days), nodes=nodes)


def _days(first: int, days: float) -> str:
    return f"day {first}" if days <= 1 else f"days {first} to {first + days - 1:g}"


def itp(cluster: str, day: int, nodes: int, days: float = 1) -> Ground:
    """Jobs of days of a cluster of ITP, on A100."""
    file = f"itp-elasticflow-2021/raw/cluster{cluster}.csv"
    return Ground(f"ITP {cluster}, {_days(day, days)}", file, read_itp, (day, day + days), "A100", nodes)


def philly(cluster: str, day: int, nodes: int, days: float = 1) -> Ground:
    """Jobs of days of a virtual cluster of Philly, on V100."""
    read, file = partial(read_philly, virtual_cluster=cluster), "philly-2017/philly_jobs.csv.gz"
    return Ground(f"Philly {cluster}, {_days(day, days)}", file, read, (day, day + days), "V100", nodes)


def pai(day: int, nodes: int) -> Ground:
    """Jobs of a day of PAI's year, on V100."""
    read, file = partial(read_pai, unit="h"), "alibaba-pai-2020/pai_100k_year.csv.gz"
    return Ground(f"PAI, day {day}", file, read, (day, day + 1), "V100", nodes)


GROUNDS = (
    Ground("195job", "itp-elasticflow-2021/elasticflow/195job.csv.gz", read_itp, (0, 100), "A100", 16),
    itp("04", 2, 12),
    philly("6214e9", 31, 12, days=0.75),
)
HELD_OUT = (
    itp("01", 15, 16), itp("05", 21, 8), itp("08", 9, 6),
    philly("6c71a0", 26, 3), philly("11cb48", 50, 2), pai(20, 8),
)  # fmt: skip
"""Grounds that nothing was chosen on."""
CHOSEN_ON = (itp("02", 21, 7), philly("b436b2", 38, 1), pai(38, 10))
"""Grounds that constants of `sizing` were chosen on, besides `GROUNDS`, on seed 100."""

GPU_COUNTS = {1: 0.4, 2: 0.25, 4: 0.2, 8: 0.15}
"""Shares of the generated jobs that ask for so many GPUs."""


def poisson_jobs(n: int, seed: int, *, gap_s: float = 300.0, median_s: float = 1800.0) -> list[TraceJob]:
    """Jobs with exponential gaps of mean `gap_s` between them, and log-normal durations."""
    draw = np.random.default_rng(seed)
    submitted_s = np.cumsum(draw.exponential(gap_s, n))
    duration_s = draw.lognormal(np.log(median_s), 1.0, n)
    gpus = draw.choice(list(GPU_COUNTS), n, p=list(GPU_COUNTS.values()))
    rows = zip(submitted_s.tolist(), duration_s.tolist(), gpus.tolist(), strict=True)
    return [TraceJob(f"job{i}", *row) for i, row in enumerate(rows)]


def on_sixteen(gap_s: float, seed: int) -> Trace:
    """40 generated jobs, which may use from one GPU to all, on four nodes of four V100."""
    jobs = poisson_jobs(40, seed, gap_s=gap_s)
    return trace_of_durations(homogeneous_cluster(4, 4, "V100"), jobs, seed=seed, elasticity=16)


# -- budgets ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A daily budget on a ground: of energy, or of the carbon of a zone."""

    ground: Ground
    watts_per_gpu: float
    zone: str | None = None

    @property
    def name(self) -> str:
        """Ground and budget."""
        return f"{self.ground.name}, {self.watts_per_gpu:g} W"

    def budget(self, trace: Trace) -> Budget:
        """Budget of every day; of carbon, what the watts emit at the mean intensity of the zone's January."""
        amount_j = self.watts_per_gpu * 8 * self.ground.nodes * DAY_S
        if self.zone is None:
            return Budget.of_energy(amount_j, DAY_S)
        carbon = self.carbon(trace)
        january = float(np.mean(carbon.values[: 31 * 24]))
        return Budget("carbon_g", amount_j / J_PER_KWH * january, DAY_S, carbon)

    def carbon(self, trace: Trace) -> Carbon:
        """Intensities from the first arrival on; without a zone, at which a gram is a joule."""
        if self.zone is None:
            return Carbon.constant(J_PER_KWH)
        return Carbon.of(read_carbon(data(ZONES[self.zone])), float(trace.arrival_s[0]))

    def idle(self, trace: Trace, begin_s: float, end_s: float) -> float:
        """Joules or grams of the idle cluster from a time to another."""
        gpus_w = 8 * self.ground.nodes * trace.cluster.gpu_types[self.ground.gpu_type].idle_power_w
        idle_w = gpus_w + sum(node.base_power_w for node in trace.cluster.nodes)
        return idle_w * float(self.carbon(trace).per_watt(begin_s, end_s))

    def replayed(
        self,
        trace: Trace,
        policy: str,
        price: float | None = None,
        knows: Knows = "exact",
        pacing: Pacing = "even",
    ) -> Outcome:
        """Replay a policy within the budget; or at a price, under a budget that never binds."""
        budget = replace(self.budget(trace), pacing=pacing)
        if price is not None:
            budget = replace(budget, amount=1e30, period_s=12 * DAY_S)
        context = PolicyContext(trace, round_s=ROUND_S, gap=GAP, budget=budget, least_price=price or 0.0)
        made = policy_of(policy, context)
        given: dict[str, Any] = {"round_s": ROUND_S, "carbon": self.carbon(trace), "budget": budget}
        return simulate(trace, made, name=policy, knows=knows, **given)

    def used_over(self, one: Outcome, other: Outcome) -> float:
        """Joules or grams of the cluster over those of another replay, until the later of both ends."""
        end_s = max(one.end_s, other.end_s)
        ours, theirs = (
            (outcome.meter.energy_j if self.zone is None else outcome.meter.carbon_g)
            + self.idle(outcome.trace, outcome.end_s, end_s)
            for outcome in (one, other)
        )
        return float(ours / theirs)

    def at_equal_use(self, replay: Callable[[float], tuple[Outcome, float]]) -> tuple[Outcome, float]:
        """Outcome at a price at which ours takes as much as another replay, and no more.

        `replay` gives the outcome at a price, and what it takes over the other.
        """
        tried: list[tuple[Outcome, float]] = []

        @cache
        def excess(log_price: float) -> float:
            tried.append(replay(math.exp(log_price)))
            return 0.0 if ENOUGH <= tried[-1][1] <= 1.0 else tried[-1][1] - 1.0

        least, most = (math.log(price if self.zone is None else 1e4 * price) for price in PRICES)
        low = high = (least + most) / 2
        while high < most and excess(high) > 0.0:
            low, high = high, min(high + STEP, most)
        while low > least and excess(low) < 0.0:
            low, high = max(low - STEP, least), low
        if excess(low) > 0.0:
            brentq(excess, low, high, xtol=0.02)
        return min((found for found in tried if found[1] <= 1.0), key=lambda found: found[0].jct_s.mean())


def cases_of(grounds: tuple[Ground, ...]) -> list[Case]:
    """Both budgets of energy on each ground."""
    return [Case(ground, watts) for ground in grounds for watts in WATTS_PER_GPU[ground.gpu_type]]


def carbon_cases(*, quick: bool = False) -> list[Case]:
    """Budgets of carbon of each zone, at the smaller one of energy; for a quick benchmark a single one."""
    grounds = (GROUNDS[1].shortened(0.1, 2),) if quick else GROUNDS
    cases = [Case(ground, WATTS_PER_GPU[ground.gpu_type][1], zone) for ground in grounds for zone in ZONES]
    return cases[:1] if quick else cases


HEAVY = 0.05


@dataclass(frozen=True)
class Figures:
    """Outcome of a replay.

    Attributes
    ----------
    mean_h, p95_h, p99_h, heavy_h : float
        Completion time: of all jobs, and of the 5 % that asked for most GPU seconds.
    slowdown : float
        Largest completion time over the time alone on the GPUs asked for.
    preemptions : float
        Of a job.
    """

    mean_h: float
    p95_h: float
    p99_h: float
    heavy_h: float
    slowdown: float
    preemptions: float

    @classmethod
    def of(cls, outcome: Outcome) -> Figures:
        """Sum an outcome up."""
        trace, jct_h = outcome.trace, outcome.jct_s / 3600
        alone_h = trace.work / trace.requested_rate / 3600
        by_gpu_h = np.argsort(trace.requested_gpu_s, kind="stable")
        heavy = by_gpu_h[-max(1, round(HEAVY * len(trace))) :]
        return cls(
            mean_h=float(jct_h.mean()),
            p95_h=float(np.percentile(jct_h, 95)),
            p99_h=float(np.percentile(jct_h, 99)),
            heavy_h=float(jct_h[heavy].mean()),
            slowdown=float((jct_h / alone_h).max()),
            preemptions=float(outcome.jobs.preemptions.mean()),
        )
