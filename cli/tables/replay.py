"""Replays on a page: one line per policy, means over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wattsched.report.terminal import heading, line, table
from wattsched.report.wording import count, duration, energy, number, percent

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.replay.jobs.outcome import Summary
    from wattsched.replay.jobs.trace import Trace


def print_replays(out: Console, trace: Trace, found: Mapping[str, Sequence[Summary]], round_s: float) -> None:
    """Print the tables of completion times, of the cluster and of the decisions."""
    gpus = sum(int(pool.available.sum()) for pool in trace.pools)
    seeds = len(next(iter(found.values())))
    rounds = f"rounds of {duration(round_s)}" if round_s else "decisions at every event"
    line(out, f"{count(len(trace), 'job')} on {count(gpus, 'GPU')}, {rounds}; {_means(seeds)}")
    heading(out, "Completion", "from arrival to completion; rho above 1 is later than with a fair share")
    columns = ["mean", "median", "p95", "p99", "queueing", "makespan", "rho", "rho > 1"]
    fields = ["jct_mean_s", "jct_median_s", "jct_p95_s", "jct_p99_s", "queueing_mean_s", "makespan_s"]
    _table(
        out,
        columns,
        {
            policy: [
                *(duration(_mean(runs, field)) for field in fields),
                number(_mean(runs, "rho_mean"), 3),
                percent(_mean(runs, "unfair_fraction")),
            ]
            for policy, runs in found.items()
        },
    )
    heading(out, "Cluster", "everything that it draws, idle GPUs and nodes included")
    _table(
        out,
        ["energy", "CO2", "GPUs in use", "GPU hours", "fragmented"],
        {
            policy: [
                energy(_mean(runs, "energy_j")),
                f"{number(grams / 1000)} kg" if (grams := _mean(runs, "carbon_g")) else "",
                percent(_mean(runs, "gpu_utilisation")),
                number(_mean(runs, "gpu_h")),
                percent(_mean(runs, "fragmentation")),
            ]
            for policy, runs in found.items()
        },
    )
    _print_budget(out, found)
    heading(out, "Decisions", "what they ask of jobs, wall-clock time, and certified gap where there is one")
    _table(
        out,
        ["rounds", "restarts", "preemptions", "migrations", "median", "p99", "mean gap", "largest gap"],
        {
            policy: [
                *(
                    number(_mean(runs, field))
                    for field in ("rounds", "restarts", "preemptions", "migrations")
                ),
                f"{1000 * _mean(runs, 'decision_median_s'):.2f} ms",
                f"{1000 * _mean(runs, 'decision_p99_s'):.2f} ms",
                *(_gap(runs, field) for field in ("gap_mean", "gap_max")),
            ]
            for policy, runs in found.items()
        },
    )


def _print_budget(out: Console, found: Mapping[str, Sequence[Summary]]) -> None:
    """Print how much of the budget was used, if there is one."""
    if all(run.budget_used_max is None for runs in found.values() for run in runs):
        return
    heading(out, "Budget", "part of it that was used in a period")
    _table(
        out,
        ["most used", "least used, if short all the time"],
        {
            policy: [_share(runs, "budget_used_max", max), _share(runs, "budget_used_min", min)]
            for policy, runs in found.items()
        },
    )


def _share(runs: Sequence[Summary], field: str, extreme: Callable[[list[float]], float]) -> str:
    values = [getattr(run, field) for run in runs if getattr(run, field) is not None]
    return percent(extreme(values)) if values else ""


def _means(seeds: int) -> str:
    return f"means over {count(seeds, 'seed')}" if seeds > 1 else "one seed"


def _table(out: Console, titles: list[str], rows: Mapping[str, list[str]]) -> None:
    table(
        out,
        ["policy", *(f">{title}" for title in titles)],
        [[policy, *cells] for policy, cells in rows.items()],
    )


def _mean(runs: Sequence[Summary], field: str) -> float:
    return float(np.mean([getattr(run, field) for run in runs]))


def _gap(runs: Sequence[Summary], field: str) -> str:
    values = [getattr(run, field) for run in runs if getattr(run, field) is not None]
    return f"{np.mean(values):.1e}" if values else ""
