"""What policies would save against backfilling on three public traces, and who would be served later.

    python benchmarks/savings.py --write [--seeds 3]

A day of ITP's cluster 04, 18 hours of Philly's virtual cluster 6214e9 and two days of PAI's week, each on a
cluster that its jobs nearly fill, once with jobs that may use a quarter to four times the GPUs asked for and
once with jobs that keep their count. Budgets hold for every six hours. ``--quick`` is a few hours of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tables import asked_over_seeds, machine, table, write

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.job_sources import JobSource
from wattsched.replay_settings import ReplaySettings
from wattsched.saved import Interval, Point, PolicySavings, Savings
from wattsched.savings import savings

DATA = Path(os.environ.get("WATTSCHED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
POLICIES = ("powerflow", "sizing")
PROCESSES = 2
SETTINGS = ReplaySettings(gap=1e-2, period_s=6 * 3600.0)
SAVED = ("trace, GPU counts", "policy", "energy saved, %", "95 %", "sooner at equal energy, %", "95 %")
LOSES = ("trace, GPU counts", "policy", "mean", "p99", "heaviest 5 %", "jobs a tenth later, %")


@dataclass(frozen=True)
class Ground:
    """A trace on equal nodes of eight GPUs."""

    name: str
    source: dict[str, Any]
    nodes: int
    gpu_type: str

    def found(self, elasticity: int, seeds: Sequence[int]) -> Savings:
        """What would be saved there."""
        file = DATA / self.source["file"]
        source = JobSource(**{**self.source, "file": file, "elasticity": elasticity})
        cluster = homogeneous_cluster(self.nodes, 8, self.gpu_type)
        return savings(source, cluster, policies=POLICIES, seeds=seeds, settings=SETTINGS, inputs=())


ITP = {"file": "itp-elasticflow-2021/raw/cluster04.csv", "form": "itp"}
PHILLY = {"file": "philly-2017/philly_jobs.csv.gz", "form": "philly", "virtual_cluster": "6214e9"}
PAI = {"file": "alibaba-pai-2020/pai_1k_week.csv", "form": "pai"}
GROUNDS = (
    Ground("ITP 04, day 2", {**ITP, "from_day": 2.0, "to_day": 3.0}, 12, "A100"),
    Ground("Philly 6214e9, day 31", {**PHILLY, "from_day": 31.0, "to_day": 31.75}, 12, "V100"),
    Ground("PAI, days 2 and 3", {**PAI, "from_day": 2.0, "to_day": 4.0}, 2, "V100"),
)
QUICK = (Ground("ITP 04, 6 hours", {**ITP, "from_day": 2.0, "to_day": 2.25}, 12, "A100"),)


def between(some: Interval | None) -> tuple[str, str]:
    """Percent, and its interval."""
    if some is None:
        return "none", ""
    ends = "" if some.low is None or some.high is None else f"{100 * some.low:.1f} to {100 * some.high:.1f}"
    return f"{100 * some.mean:.1f}", ends


def lost(one: PolicySavings) -> list[str]:
    """Completion over the baseline's, within the least budget that keeps the mean."""
    point: Point | None = one.losers
    if point is None:
        return ["none", "", "", ""]
    return [
        *(f"{value:.2f}" for value in (point.completion, point.p99, point.heavy)),
        f"{100 * point.late:.0f}",
    ]


def rows(ground: Ground, elasticity: int, found: Savings) -> Iterator[tuple[list[str], list[str]]]:
    """Rows of both tables."""
    counts = "kept" if elasticity == 1 else f"1/{elasticity} to {elasticity}"
    for one in found.policies:
        name = [f"{ground.name} ({found.jobs} jobs, {found.gpus} GPUs), {counts}", one.policy]
        yield [*name, *between(one.energy), *between(one.completion)], [*name, *lost(one)]


def _found(case: tuple[Ground, int], seeds: Sequence[int]) -> Savings:
    ground, elasticity = case
    return ground.found(elasticity, seeds)


def main() -> None:
    """Command line."""
    asked = asked_over_seeds(__doc__, seeds=3)
    cases = [(ground, most) for ground in (QUICK if asked.quick else GROUNDS) for most in (4, 1)]
    seeds = range(1 if asked.quick else asked.seeds)
    saved, loses = [], []
    with ProcessPoolExecutor(PROCESSES) as pool:
        for (ground, most), found in zip(cases, pool.map(partial(_found, seeds=seeds), cases), strict=True):
            for one, other in rows(ground, most, found):
                saved.append(one)
                loses.append(other)
    parts = [table([c.removeprefix("") for c in SAVED], saved), "## Who is served later"]
    parts += [table([c.removeprefix("") for c in LOSES], loses)]
    parts.append(f"Means over {len(seeds)} seeds with Student's intervals, on {machine()}.")
    content = "\n\n".join(parts)
    print(content)
    if asked.write:
        write("savings", content)


if __name__ == "__main__":
    main()
