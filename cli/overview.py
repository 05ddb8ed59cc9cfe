"""An instance on a page: cluster, budgets, jobs."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from wattsched.cli.sets_table import print_sets
from wattsched.cli.terminal import Justify, bar, heading, line, table
from wattsched.cli.wording import count, duration, energy, goal_of, listed, number, quantity
from wattsched.formulations.sizing.budgets import free_gpus, standing_power_w
from wattsched.formulations.sizing.data import expand
from wattsched.instances.clusters import full_power_w
from wattsched.topology.buddy import free_by_level

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.formulations.sizing.data import Options
    from wattsched.instances.sizing.instance import Instance
    from wattsched.topology.pools import Pool

POOL_COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("pool", "left"),
    ("GPU type", "left"),
    ("nodes", "right"),
    ("GPUs", "right"),
    ("idle W", "right"),
    ("max W", "right"),
    ("free GPUs in blocks of", "left"),
)

MOST_POOLS = 16
MOST_DOMAINS = 12


def print_instance(out: Console, instance: Instance) -> None:
    """Print an instance."""
    options = expand(instance)
    line(out, (instance.name, "bold"), f": {instance.problem} round of {duration(instance.round_s)}")
    _print_cluster(out, instance, options)
    _print_budgets(out, instance, options)
    _print_jobs(out, instance, options)
    print_sets(out, instance.sets)


def _print_cluster(out: Console, instance: Instance, options: Options) -> None:
    cluster = instance.cluster
    levels = Counter(group.level for group in cluster.groups)
    tree = [count(n, level) for level, n in levels.items()]
    tree.append(count(len(cluster.nodes), "node"))
    heading(out, f"Cluster {cluster.name}", f"{count(cluster.total_gpus, 'GPU')} in {', '.join(tree)}")
    rows = [
        _pool_row(instance, pool, free)
        for pool, free in list(zip(options.pools, free_gpus(options), strict=True))[:MOST_POOLS]
    ]
    table(out, POOL_COLUMNS, rows)
    if len(options.pools) > MOST_POOLS:
        line(out, (f"... {count(len(options.pools) - MOST_POOLS, 'more pool')}", "dim"), indent=2)


def _pool_row(instance: Instance, pool: Pool, free: np.ndarray) -> tuple[str, ...]:
    kind = instance.cluster.gpu_types[pool.gpu_type]
    levels = free_by_level(pool.blocks, free)
    return (
        pool.name,
        pool.gpu_type if pool.gpu_type != pool.name else "",
        f"{len(pool.nodes):,}",
        f"{int(pool.available.sum()):,}",
        number(kind.idle_power_w),
        "" if kind.max_power_w is None else number(kind.max_power_w),
        free_blocks(levels.tolist()),
    )


def free_blocks(levels: list[int]) -> str:
    """Free GPUs by the smallest block that counts, equal sizes together: ``1-4: 16, 8: 8``."""
    parts = []
    for free, same in groupby(range(len(levels)), key=levels.__getitem__):
        sizes = [1 << k for k in same]
        span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"
        parts.append(f"{span}: {free:,}")
    return ", ".join(parts)


def _print_budgets(out: Console, instance: Instance, options: Options) -> None:
    budgets, cluster = instance.budgets, instance.cluster
    idle, full = standing_power_w(instance, options.pools), full_power_w(cluster, cluster.nodes)
    rows = [_power_row("site", budgets.power_w, idle, full)]
    for domain in cluster.power_domains[:MOST_DOMAINS]:
        nodes = [n for n in cluster.nodes if domain.name in cluster.domain_names()[n.name]]
        standing = standing_power_w(instance, options.pools, domain.name)
        rows.append(_power_row(domain.name, domain.power_cap_w, standing, full_power_w(cluster, nodes)))
    heading(out, "Power", "the cap between the idle cluster and every GPU at its limit")
    columns = ("", "idle", "cap", "full", "")
    table(out, [(c, "right" if c else "left") for c in columns], rows)
    if len(cluster.power_domains) > MOST_DOMAINS:
        line(
            out,
            (f"... {count(len(cluster.power_domains) - MOST_DOMAINS, 'more power domain')}", "dim"),
            indent=2,
        )
    scope = "in this round" if budgets.scope == "round" else "until every job is complete"
    if budgets.energy_j is not None:
        line(out, f"energy budget {energy(budgets.energy_j)} {scope}", indent=2)
    if budgets.carbon_g is not None:
        line(out, f"carbon budget {quantity(budgets.carbon_g, 'g')} of CO2 {scope}", indent=2)
    if instance.carbon_g_per_kwh is not None:
        line(out, f"carbon intensity {number(instance.carbon_g_per_kwh)} g/kWh", indent=2)


def _power_row(label: str, cap: float | None, idle: float, full: float) -> tuple[str, ...]:
    if cap is None:
        return (label, quantity(idle, "W"), "none", quantity(full, "W"), "")
    share = (cap - idle) / (full - idle) if full > idle else 1.0
    return (label, quantity(idle, "W"), quantity(cap, "W"), quantity(full, "W"), bar(share))


def _print_jobs(out: Console, instance: Instance, options: Options) -> None:
    jobs = instance.jobs
    running = sum(job.current is not None for job in jobs)
    deadlines = sum(job.deadline_s is not None for job in jobs)
    fixed = sum(not job.preemptible for job in jobs)
    about = [f"{running} running", f"{deadlines} with a deadline", f"{fixed} not preemptible"]
    heading(out, f"Jobs: {len(jobs):,}", ", ".join(text for text in about if not text.startswith("0 ")))
    goal = goal_of(instance.objective, "min")
    line(out, f"objective {instance.objective} ({goal.noun})", indent=2)
    if not jobs:
        return
    sizes, per_job = _largest_gpus(options), np.diff(options.start)
    rows = []
    for size in np.unique(sizes):
        mine = sizes == size
        rows.append((str(size) if size else "none", f"{mine.sum():,}", _range(per_job[mine])))
    table(out, [("GPUs up to", "right"), ("jobs", "right"), ("options per job", "right")], rows)
    line(out, f"{len(options):,} options in all", indent=2)
    if late := options.jobs_without_options():
        line(out, ("cannot meet their deadlines: ", "bold red"), listed(late), indent=2)


def _largest_gpus(options: Options) -> np.ndarray:
    """Largest GPU count that each job could have."""
    largest = np.zeros(len(options.start) - 1, dtype=np.int64)
    np.maximum.at(largest, options.job, options.gpus)
    return largest


def _range(values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
