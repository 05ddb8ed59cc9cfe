"""Savings of policies against backfilling on three public traces, and who loses by it.

    python -m benchmarks.savings --write [--seeds 3]

A day of ITP's cluster 04, 18 hours of Philly's virtual cluster 6214e9 and two days of PAI's week, each on a
cluster that its jobs nearly fill, once with jobs that may use a quarter to four times the GPUs asked for and
once with jobs that keep their count. Budgets hold for every six hours. Policies know of durations what the
days before tell, and the last one also all of them exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.harness import Asked, data, in_processes, machine, run, table
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.replay.jobs.knowledge import Knows, known_under
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.savings import savings as savings_of
from wattsched.report.saved import Interval, PolicySavings, Savings

POLICIES = ("powerflow", "sizing")
KNOWS: Knows = "history"
SETTINGS = ReplaySettings(gap=1e-2, period_s=6 * 3600.0, knows=KNOWS)
WHERE = ("trace, GPU counts", "policy", "durations")
SAVED = (*WHERE, "energy saved, %", "95 %", "sooner at equal energy, %", "95 %")
LOSES = (*WHERE, "mean", "p99", "heaviest 5 %", "jobs a tenth later, %")


@dataclass(frozen=True)
class Ground:
    """Days of a trace on equal nodes of eight GPUs."""

    name: str
    file: str
    days: tuple[float, float]
    nodes: int
    gpu_type: str
    source: dict[str, Any]


ITP = Ground(
    "ITP 04, day 2", "itp-elasticflow-2021/raw/cluster04.csv", (2.0, 3.0), 12, "A100", {"form": "itp"}
)
GROUNDS = (
    ITP,
    Ground("Philly 6214e9, day 31", "philly-2017/philly_jobs.csv.gz", (31.0, 31.75), 12, "V100",
           {"form": "philly", "virtual_cluster": "6214e9"}),
    Ground("PAI, days 2 and 3", "alibaba-pai-2020/pai_1k_week.csv", (2.0, 4.0), 2, "V100", {"form": "pai"}),
)  # fmt: skip


def found(case: tuple[Ground, int], seeds: int) -> Savings:
    """Compute the savings on a trace, with jobs of an elasticity."""
    ground, elasticity = case
    begin, end = ground.days
    source = JobSource(
        file=data(ground.file), from_day=begin, to_day=end, elasticity=elasticity, **ground.source
    )
    cluster = homogeneous_cluster(ground.nodes, 8, ground.gpu_type)
    return savings_of(source, cluster, policies=POLICIES, seeds=range(seeds), settings=SETTINGS, inputs=())


def between(some: Interval | None) -> tuple[str, str]:
    """Percent, and its interval."""
    if some is None:
        return "none", ""
    ends = "" if some.low is None or some.high is None else f"{100 * some.low:.1f} to {100 * some.high:.1f}"
    return f"{100 * some.mean:.1f}", ends


def lost(one: PolicySavings) -> list[str]:
    """Completion over the baseline's, within the least budget that keeps the mean."""
    if (point := one.losers) is None:
        return ["none", "", "", ""]
    over = (point.completion, point.p99, point.heavy)
    return [*(f"{value:.2f}" for value in over), f"{100 * point.late:.0f}"]


def rows(case: tuple[Ground, int], of: Savings) -> Iterator[tuple[list[str], list[str]]]:
    """Rows of both tables."""
    ground, elasticity = case
    counts = "kept" if elasticity == 1 else f"1/{elasticity} to {elasticity}"
    for one in of.policies:
        where = f"{ground.name} ({of.jobs} jobs, {of.gpus} GPUs), {counts}"
        name = [where, one.policy, known_under(one.policy, KNOWS)]
        yield [*name, *between(one.energy), *between(one.completion)], [*name, *lost(one)]


def savings(asked: Asked) -> str:
    """Both tables."""
    cases = [(ground, most) for ground in GROUNDS for most in (4, 1)]
    if asked.quick:
        cases = [(replace(ITP, days=(2.0, 2.1)), 4)]
    each = in_processes(partial(found, seeds=asked.seeds), cases, asked.processes)
    pairs = [pair for case, of in zip(cases, each, strict=True) for pair in rows(case, of)]
    saved, loses = zip(*pairs, strict=True)
    about = f"Means over {asked.seeds} seeds with Student's intervals, on {machine()}."
    return "\n\n".join([table(SAVED, saved), "## Who is served later", table(LOSES, loses), about])


TABLES = {"savings": savings}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=3, processes=2)
