"""Replay jobs that nothing was chosen on: `sizing` against PowerFlow's rule within the same daily budget.

    python benchmarks/grounds.py [--write] [--seeds 10]

Six grounds, days of clusters of ITP, of virtual clusters of Philly and of PAI, each under two budgets that
bind. Constants of policies are chosen on those of benchmarks/budgets.py and on `CHOSEN_ON`, on other seeds.
``--write`` puts the table into docs/tables. `WATTSCHED_DATA` says where the traces are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from budgets import ITP, OURS, WATTS_PER_GPU, Case, PoolState, replayed
from tables import asked_over_seeds, table, write

from wattsched.instances.traces.job_lists import read_itp, read_pai, read_philly
from wattsched.replay.jobs.outcome import Outcome

RULE = "powerflow"
HEAVY = 0.05


def itp(cluster: str, day: int, nodes: int, days: int = 1) -> PoolState:
    """Jobs of days of a cluster of ITP, on A100."""
    file = f"{ITP}/raw/cluster{cluster}.csv"
    return PoolState(f"ITP {cluster}, {called(day, days)}", file, read_itp, (day, day + days), "A100", nodes)


def philly(cluster: str, day: int, nodes: int, days: int = 1) -> PoolState:
    """Jobs of days of a virtual cluster of Philly, on V100."""
    read, file = partial(read_philly, virtual_cluster=cluster), "philly-2017/philly_jobs.csv.gz"
    name = f"Philly {cluster}, {called(day, days)}"
    return PoolState(name, file, read, (day, day + days), "V100", nodes)


def called(day: int, days: int) -> str:
    """Name of days in a row."""
    return f"day {day}" if days == 1 else f"days {day} to {day + days - 1}"


def pai(day: int, nodes: int) -> PoolState:
    """Jobs of a day of PAI's year, on V100."""
    read, file = partial(read_pai, unit="h"), "alibaba-pai-2020/pai_100k_year.csv.gz"
    return PoolState(f"PAI, day {day}", file, read, (day, day + 1), "V100", nodes)


GROUNDS = (
    itp("01", 15, 16), itp("05", 21, 8), itp("08", 9, 6),
    philly("6c71a0", 26, 3), philly("11cb48", 50, 2), pai(20, 8),
)  # fmt: skip
CHOSEN_ON = (itp("02", 21, 7), philly("b436b2", 38, 1), pai(38, 10))
"""Further grounds that constants of `sizing` were chosen on, on seed 100."""


@dataclass(frozen=True)
class Figures:
    """What came of a replay.

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
        by_gpu_h = np.argsort(alone_h * trace.requested_gpus, kind="stable")
        heavy = by_gpu_h[-max(1, round(HEAVY * len(trace))) :]
        return cls(
            mean_h=float(jct_h.mean()),
            p95_h=float(np.percentile(jct_h, 95)),
            p99_h=float(np.percentile(jct_h, 99)),
            heavy_h=float(jct_h[heavy].mean()),
            slowdown=float((jct_h / alone_h).max()),
            preemptions=float(outcome.jobs.preemptions.mean()),
        )


def energy_over(case: Case, one: Outcome, other: Outcome) -> float:
    """Joules of the cluster over those of another replay, until the later of both ends."""
    end_s, idle = max(one.end_s, other.end_s), case.idle(one.trace)
    one_j, other_j = (outcome.meter.energy_j + idle(outcome.end_s, end_s) for outcome in (one, other))
    return one_j / other_j


@dataclass(frozen=True)
class Pair:
    """The rule and ours on a seed, and the energy of ours over the rule's until the later of both ends."""

    rule: Figures
    ours: Figures
    energy: float


def pair(case: Case, seed: int) -> Pair:
    """Replay a seed of a case under both."""
    trace = case.pool.trace(seed)
    rule, ours = (replayed(case, trace, policy) for policy in (RULE, OURS))
    print(f"{case.pool.name}, {case.watts_per_gpu:g} W, seed {seed}", file=sys.stderr)
    return Pair(Figures.of(rule), Figures.of(ours), energy_over(case, ours, rule))


RATIOS = ("mean_h", "p95_h", "p99_h", "heavy_h", "slowdown")
HEADER = (
    "ground, budget", "jobs", "rule's mean JCT, h", "mean JCT", "worst seed", "p95", "p99", "heaviest 5 %",
    "largest slowdown", "energy", "preemptions of a job", "the rule's",
)  # fmt: skip


def row(name: str, jobs: str, found: Sequence[Pair]) -> tuple[str, ...]:
    """A line: geometric means over the seeds of ours over the rule's, and preemptions of both."""
    ratio = np.array([[getattr(p.ours, n) / getattr(p.rule, n) for n in RATIOS] + [p.energy] for p in found])
    mean, *others = np.exp(np.log(ratio).mean(axis=0)).tolist()
    rule_h, ours, rules = np.mean(
        [[p.rule.mean_h, p.ours.preemptions, p.rule.preemptions] for p in found], axis=0
    )
    shown = (f"{mean:.3f}", f"{ratio[:, 0].max():.3f}", *(f"{value:.2f}" for value in others))
    return name, jobs, f"{rule_h:.2f}", *shown, f"{ours:.2f}", f"{rules:.2f}"


def rows(seeds: int, grounds: Sequence[PoolState] = GROUNDS) -> Iterator[tuple[str, ...]]:
    """Lines of all cases, and one of all together."""
    cases = [Case(ground, watts) for ground in grounds for watts in WATTS_PER_GPU[ground.gpu_type]]
    everything: list[Pair] = []
    for case in cases:
        found = [pair(case, seed) for seed in range(seeds)]
        name = f"{case.pool.name}, {case.watts_per_gpu:g} W"
        yield row(name, str(len(case.pool.trace(0))), found)
        everything += found
    yield row("all", "", everything)


def main() -> None:
    """Command line."""
    asked = asked_over_seeds(__doc__, seeds=10)
    grounds = (replace(GROUNDS[0], days=(15, 15.1), nodes=4),) if asked.quick else GROUNDS
    content = table(HEADER, list(rows(1 if asked.quick else asked.seeds, grounds)))
    if asked.write:
        write("grounds", content)
    print(content)


if __name__ == "__main__":
    main()
