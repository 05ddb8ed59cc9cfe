"""Replay public traces under budgets of energy and carbon: PowerFlow's and GreenFlow's rules, others, ours.

    python benchmarks/budgets.py [--write] [--part powerflow|greenflow] [--seeds 5]

``--write`` puts the tables into docs/tables. `WATTSCHED_DATA` says where the traces are.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from tables import interval, table, write

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.traces import TraceJob
from wattsched.instances.traces.carbon import read_carbon
from wattsched.instances.traces.job_lists import read_itp, read_philly
from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.accounts import Carbon
from wattsched.replay.jobs.budget import Budget
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of_durations
from wattsched.topology.cluster import Cluster

DATA = Path(os.environ.get("WATTSCHED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
DAY_S = 86_400.0
ROUND_S, GAP = 60.0, 0.01
OURS = "sizing"
EQUAL = "sizing, as much as the rule"
FREE = "sizing, no budget"
PRICES = (1e-5, 20.0)
"""Seconds of completion time for a joule: as good as nothing, and more than any policy here gives for it."""
ENOUGH = 0.997
"""Part of what the rule takes at which ours is said to take as much."""
BASELINES = ("fifo", "tiresias-2dlas+zeus", "elasticflow+zeus")


@dataclass(frozen=True)
class PoolState:
    """Jobs of a trace on equal nodes of eight GPUs.

    Attributes
    ----------
    file : str
        In the folder of the data.
    read : callable
    days : tuple of float
        Jobs that arrive between these days from the first one on.
    """

    name: str
    file: str
    read: Callable[[Path], list[TraceJob]]
    days: tuple[float, float]
    gpu_type: str
    nodes: int

    def trace(self, seed: int, cluster: Cluster | None = None) -> Trace:
        """Draw the model that each job trains; the jobs run on equal nodes if no cluster is given."""
        jobs = [replace(job, model=None, batch_size=None) for job in self.read(DATA / self.file)]
        first = min(job.submitted_s for job in jobs)
        begin_s, end_s = (first + day * DAY_S for day in self.days)
        within = [job for job in jobs if begin_s <= job.submitted_s < end_s]
        cluster = cluster or homogeneous_cluster(self.nodes, 8, self.gpu_type)
        return trace_of_durations(cluster, within, seed=seed)


ITP = "itp-elasticflow-2021"
GROUNDS = (
    PoolState("195job", f"{ITP}/elasticflow/195job.csv.gz", read_itp, (0, 100), "A100", 16),
    PoolState("ITP 04, day 2", f"{ITP}/raw/cluster04.csv", read_itp, (2, 3), "A100", 12),
    PoolState(
        "Philly 6214e9, day 31",
        "philly-2017/philly_jobs.csv.gz",
        partial(read_philly, virtual_cluster="6214e9"),
        (31, 31.75),
        "V100",
        12,
    ),
)
WATTS_PER_GPU = {"A100": (220.0, 160.0), "V100": (130.0, 100.0)}
"""Budgets of a day, as the mean draw for each GPU, nodes included: two that bind under PowerFlow's rule. Idle
GPUs draw 75 and 55 W with their nodes, busy ones at their highest clock 365 W (mean of the models) and up to
275 W."""
ZONES = {
    "CISO": "carbon-eia-us-2022/CISO_2022_hourly.csv.gz",
    "ES": "carbon-electricitymaps/ES_2021_2023_hourly.csv.gz",
}


@dataclass(frozen=True)
class Case:
    """A budget on a pool: of energy, or of the carbon of a zone."""

    pool: PoolState
    watts_per_gpu: float
    zone: str | None = None

    def budget(self, trace: Trace) -> Budget:
        """Budget of every day; of carbon, what the watts emit at the mean intensity of the zone's January."""
        amount_j = self.watts_per_gpu * 8 * self.pool.nodes * DAY_S
        if self.zone is None:
            return Budget.of_energy(amount_j, DAY_S)
        carbon = self.carbon(trace)
        return Budget("carbon_g", amount_j / J_PER_KWH * january(carbon), DAY_S, carbon)

    def boundless(self, trace: Trace) -> Budget:
        """Budget that never binds, so that all there is is its price; looked at again every hour."""
        return replace(self.budget(trace), amount=1e30, period_s=12 * DAY_S)

    def idle(self, trace: Trace) -> Callable[[float, float], float]:
        """What the idle cluster takes from a time to another."""
        gpus_w = 8 * self.pool.nodes * trace.cluster.gpu_types[self.pool.gpu_type].idle_power_w
        idle_w = gpus_w + sum(node.base_power_w for node in trace.cluster.nodes)
        per_watt = self.carbon(trace).per_watt
        return lambda begin_s, end_s: idle_w * float(per_watt(begin_s, end_s))

    def carbon(self, trace: Trace) -> Carbon:
        """Intensities from the first arrival on."""
        if self.zone is None:
            return Carbon.constant(J_PER_KWH)
        return Carbon.of(read_carbon(DATA / ZONES[self.zone]), float(trace.arrival_s[0]))


def january(carbon: Carbon) -> float:
    """Mean intensity of the first 31 days."""
    return float(np.mean(carbon.values[: 31 * 24]))


@dataclass(frozen=True)
class Run:
    """What came of a replay.

    Attributes
    ----------
    jct_h, end_s : float
    used : float
        Joules or grams of the whole cluster to its end.
    most : float
        Largest part of the budget that a day used.
    """

    jct_h: float
    end_s: float
    used: float
    most: float


def replayed(case: Case, trace: Trace, policy: str, price: float | None = None) -> Outcome:
    """Replay a case, within its budget or at a price."""
    budget = case.budget(trace) if price is None else case.boundless(trace)
    context = PolicyContext(trace, round_s=ROUND_S, gap=GAP, budget=budget, least_price=price or 0.0)
    made = policy_of(policy, context)
    return simulate(trace, made, name=policy, round_s=ROUND_S, carbon=case.carbon(trace), budget=budget)


def run(case: Case, trace: Trace, policy: str, price: float | None = None) -> Run:
    """Replay a case, and sum it up."""
    outcome = replayed(case, trace, policy, price)
    return Run(
        jct_h=float((outcome.jobs.end_s - trace.arrival_s).mean()) / 3600,
        end_s=outcome.end_s,
        used=outcome.meter.carbon_g,
        most=float(outcome.budget_used()[0].max()),
    )


Found = dict[str, tuple[Run, float]]
"""Policy to its run, and to what it takes over what the rule takes until the later of both ends."""


def compare(case: Case, rule: str, baselines: Sequence[str], seed: int) -> Found:
    """Replay a seed of a case under all policies.

    Ours is replayed within the budget, at a constant price at which it takes no more than the rule (`EQUAL`),
    and as if power were free (`FREE`).
    """
    trace = case.pool.trace(seed)
    print(f"{case.pool.name}, {case.watts_per_gpu:g} W, {case.zone}, seed {seed}", file=sys.stderr)
    base, idle = run(case, trace, rule), case.idle(trace)

    def against(found: Run) -> tuple[Run, float]:
        end_s = max(found.end_s, base.end_s)
        return found, (found.used + idle(found.end_s, end_s)) / (base.used + idle(base.end_s, end_s))

    def priced(price: float) -> tuple[Run, float]:
        return against(run(case, trace, OURS, price))

    runs = {rule: (base, 1.0)} | {name: against(run(case, trace, name)) for name in (*baselines, OURS)}
    return runs | {EQUAL: equal(priced, case), FREE: priced(0.0)}


def equal(replay: Callable[[float], tuple[Run, float]], case: Case) -> tuple[Run, float]:
    """Find a price at which ours takes as much as the rule, and no more."""
    tried: list[tuple[Run, float]] = []

    @cache
    def excess(log_price: float) -> float:
        tried.append(replay(math.exp(log_price)))
        return 0.0 if ENOUGH <= tried[-1][1] <= 1.0 else tried[-1][1] - 1.0

    prices = PRICES if case.zone is None else tuple(1e4 * price for price in PRICES)
    if excess(math.log(prices[0])) > 0.0:
        brentq(excess, math.log(prices[0]), math.log(prices[1]), xtol=0.02)
    return min((found for found in tried if found[1] <= 1.0), key=lambda found: found[0].jct_h)


def rows_of(case: Case, rule: str, found: Sequence[Found]) -> Iterable[Sequence[object]]:
    """Lines of a case: every policy against the rule, and ours."""
    where = f"{case.pool.name}, {case.zone or 'energy'}, {case.watts_per_gpu:g} W"
    for policy in found[0]:
        runs = [seed[policy] for seed in found]
        rules = np.array([seed[rule][0].jct_h for seed in found])
        ratio = np.array([one.jct_h for one, _ in runs]) / rules
        yield (
            f"{where}: {policy}",
            f"{np.mean([one.jct_h for one, _ in runs]):.2f}",
            "1" if policy == rule else interval(ratio),
            "" if policy == rule else f"{ratio.max():.2f}",
            "1" if policy == rule else interval(np.array([part for _, part in runs])),
            "" if policy in (EQUAL, FREE) else f"{100 * max(one.most for one, _ in runs):.2f}",
        )


def part(name: str, seeds: int, jobs: int) -> Iterator[str]:
    """Table of a system, with one more case each time."""
    if name == "powerflow":
        cases = [Case(pool, watts) for pool in GROUNDS for watts in WATTS_PER_GPU[pool.gpu_type]]
    else:
        cases = [Case(g, WATTS_PER_GPU[g.gpu_type][1], zone) for g in GROUNDS for zone in ZONES]
    baselines = BASELINES if name == "powerflow" else BASELINES[1:2]
    header = [
        "trace, budget, policy", "mean JCT, h", "over the rule's", "worst seed", "used, over the rule's",
        "budget of a day used, at most %",
    ]  # fmt: skip
    lines: list[Sequence[object]] = []
    with ProcessPoolExecutor(jobs) as pool:
        for case in cases:
            found = list(pool.map(partial(compare, case, name, baselines), range(seeds)))
            lines += rows_of(case, name, found)
            yield table(header, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    parser.add_argument("--part", choices=["powerflow", "greenflow"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args(arguments)
    for name in [asked.part] if asked.part else ["powerflow", "greenflow"]:
        for content in part(name, asked.seeds, asked.jobs):
            if asked.write:
                write(name, content)
        print(f"\n{content}\n")


if __name__ == "__main__":
    main()
