"""Replay generated jobs on 16 GPUs under SideCar's rule, its baselines and ours, and compare the gains.

    python benchmarks/elastic.py [--write] [--headline]

``--write`` puts the tables into docs/tables. Nothing but the package is needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache

import numpy as np
from random_jobs import poisson_jobs
from tables import interval, table, write

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.replay.jobs.outcome import Summary, summary
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of_durations

SEEDS = range(10)
JOBS = 40
GAPS_S = (300.0, 120.0)
RESTARTS_S = ((5.0, 30.0), (10.0, 60.0), (30.0, 300.0))
"""Process restart and pod termination."""
HEADLINE_S = (*RESTARTS_S[1:], (30.0, 600.0))
"""And pods slow enough for what was published against termination."""
COMPARED = ("termination", "sidecar", "elastic", "elastic-makespan")
OTHERS = ("srtf", "tiresias-2dlas", "optimus", "elasticflow", "powerflow", "elastic-progress", "sizing")
ELASTICITY = 16
"""A job may use from one GPU to all."""

Floats = np.ndarray


@cache
def trace(gap_s: float, seed: int) -> Trace:
    """Jobs that arrive with these gaps on four nodes of four V100."""
    cluster = homogeneous_cluster(4, 4, "V100")
    return trace_of_durations(
        cluster, poisson_jobs(JOBS, seed, gap_s=gap_s), seed=seed, elasticity=ELASTICITY
    )


@cache
def runs(policy: str, gap_s: float, restarts: Restarts) -> tuple[Summary, ...]:
    """Replay every seed; decisions at every arrival and completion."""
    found = []
    for seed in SEEDS:
        made = policy_of(policy, PolicyContext(trace(gap_s, seed), restarts))
        found.append(summary(simulate(trace(gap_s, seed), made, name=policy)))
    print(f"{policy}, gaps of {gap_s:g} s, {restarts}", file=sys.stderr)
    return tuple(found)


def values(policy: str, gap_s: float, restarts: Restarts, field: str) -> Floats:
    """Figures of all seeds."""
    return np.array([getattr(run, field) for run in runs(policy, gap_s, restarts)], dtype=float)


def change(policy: str, base: str, gap_s: float, restarts: Restarts, field: str) -> str:
    """Mean change against another policy over the seeds, and the best."""
    ratio = values(policy, gap_s, restarts, field) / values(base, gap_s, restarts, field) - 1
    if policy == base:
        return ""
    return f"{100 * ratio.mean():+.0f} % ({100 * ratio.min():+.0f} %)"


def gains() -> str:
    """Makespan and mean completion time against the two baselines of the publication."""
    header = [
        "gaps, restart, policy", "makespan, h", "vs `fifo`", "vs `termination`", "mean JCT, min", "vs `fifo`",
        "vs `termination`", "restarts",
    ]  # fmt: skip
    rows = []
    for gap_s in GAPS_S:
        for process_s, pod_s in RESTARTS_S:
            costs = Restarts(process_s, pod_s)
            for policy in ("fifo", *COMPARED):
                cells = [f"{gap_s:g} s, {process_s:g} / {pod_s:g} s, `{policy}`"]
                for field, unit_s in (("makespan_s", 3600), ("jct_mean_s", 60)):
                    cells.append(f"{values(policy, gap_s, costs, field).mean() / unit_s:.2f}")
                    cells += [change(policy, base, gap_s, costs, field) for base in ("fifo", "termination")]
                    if policy == "fifo":
                        cells[-1] = ""
                restarted = values(policy, gap_s, costs, "restarts") + values(
                    policy, gap_s, costs, "migrations"
                )
                rows.append([*cells, f"{restarted.mean():.0f}"])
    return table(header, rows)


def against_sidecar() -> str:
    """Every policy against the rule of SideCar, at one restart cost."""
    costs = Restarts(*RESTARTS_S[1])
    header = ["policy"]
    for gap_s in GAPS_S:
        header += [f"JCT, gaps of {gap_s:g} s", "makespan", "energy"]
    rows = []
    for policy in ("fifo", *OTHERS, *COMPARED):
        cells = [f"`{policy}`"]
        for gap_s in GAPS_S:
            for field in ("jct_mean_s", "makespan_s", "energy_j"):
                ratio = values(policy, gap_s, costs, field) / values("sidecar", gap_s, costs, field)
                cells.append("1" if policy == "sidecar" else interval(ratio))
        rows.append(cells)
    return table(header, rows)


def ours() -> str:
    """Our policies against the rule of SideCar at every restart cost, with the worst seed."""
    header = ["gaps, restart, policy", "JCT", "worst seed", "makespan", "worst seed", "decision p99, ms"]
    rows = []
    for gap_s in GAPS_S:
        for process_s, pod_s in RESTARTS_S:
            costs = Restarts(process_s, pod_s)
            for policy in ("elastic", "elastic-makespan"):
                cells = [f"{gap_s:g} s, {process_s:g} s, `{policy}`"]
                for field in ("jct_mean_s", "makespan_s"):
                    ratio = values(policy, gap_s, costs, field) / values("sidecar", gap_s, costs, field)
                    cells += [interval(ratio, 3), f"{ratio.max():.3f}"]
                slowest_s = values(policy, gap_s, costs, "decision_p99_s").max()
                rows.append([*cells, f"{1e3 * slowest_s:.0f}"])
    return table(header, rows)


def headline() -> str:
    """Published gains, those of the rule, and ours, with 95 % confidence intervals and the best seed."""
    header = [
        "gaps, restart, policy", "makespan vs `fifo`, %", "JCT vs `fifo`, %", "makespan vs `termination`, %",
        "JCT vs `termination`, %",
    ]  # fmt: skip
    rows = [["published, at best", "-45", "-63", "-20", "-37"]]
    for gap_s in GAPS_S:
        for process_s, pod_s in HEADLINE_S:
            costs = Restarts(process_s, pod_s)
            for policy in ("sidecar", "elastic-makespan", "sizing"):
                cells = [f"{gap_s:g} s, {process_s:g} / {pod_s:g} s, `{policy}`"]
                for base in ("fifo", "termination"):
                    for field in ("makespan_s", "jct_mean_s"):
                        ratio = values(policy, gap_s, costs, field) / values(base, gap_s, costs, field)
                        percent = 100 * (ratio - 1)
                        cells.append(f"{interval(percent, 0)}, best {percent.min():.0f}")
                rows.append(cells)
    return table(header, rows)


PARTS = {
    "Against `fifo` and `termination`": gains,
    "Against `sidecar` at restarts of 10 s and 60 s": against_sidecar,
    "Ours against `sidecar` at the same restart cost": ours,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    parser.add_argument("--headline", action="store_true", help="only the published figures")
    asked = parser.parse_args(arguments)
    if asked.headline:
        content = headline()
        print(content)
        if asked.write:
            write("sidecar", content)
        return
    content = "\n\n".join(f"## {title}\n\n{part()}" for title, part in PARTS.items())
    print(content)
    if asked.write:
        write("elastic", content)


if __name__ == "__main__":
    main()
