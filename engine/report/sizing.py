"""Reports on rounds and their decisions: cluster, budgets, jobs and sets, and the assignment of every job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.formulations.sizing.budgets import quotas_of, standing_power_w
from wattsched.formulations.sizing.data import expand, options_of, without_options
from wattsched.formulations.sizing.left_out import decided_jobs
from wattsched.formulations.sizing.matching import matching_options
from wattsched.formulations.sizing.rooms import rooms_of
from wattsched.instances.clusters import full_power_w
from wattsched.report.tenants import print_tenants
from wattsched.report.terminal import bar, heading, line, rest_in, table
from wattsched.report.views import View
from wattsched.report.wording import Goal, count, duration, energy, listed, number, quantity, reasons, setting
from wattsched.topology.pools import pools_of
from wattsched.topology.room import Room

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.formulations.sizing.data import Options
    from wattsched.formulations.sizing.jobs import RoundJobs
    from wattsched.instances.sizing.decision import Assignment, Decision
    from wattsched.instances.sizing.instance import Instance, JobSet
    from wattsched.instances.sizing.job import Job
    from wattsched.instances.sizing.job_columns import JobColumns
    from wattsched.report.html.page import Part
    from wattsched.topology.arrays import IntArray

POOL_COLUMNS = ("pool", "GPU type", ">nodes", ">GPUs", ">idle W", ">max W", "free GPUs in blocks of")

MOST_POOLS = 16
MOST_COUNTS = 4
MOST_DOMAINS = 12
NEARLY_W = 1 + 1e-6


def print_instance(out: Console, instance: Instance) -> None:
    """Print the cluster, budgets, jobs, tenants and sets of an instance."""
    jobs = decided_jobs(instance)
    examples, n_alike = _examples(jobs)
    options = options_of(jobs, examples)
    line(out, (instance.name, "bold"), f": {instance.problem} round of {duration(instance.round_s)}")
    _print_cluster(out, instance, options)
    _print_budgets(out, instance, options)
    _print_jobs(out, instance, options, examples, n_alike)
    print_tenants(out, instance, options, examples, n_alike)
    print_sets(out, instance.sets)


def _print_cluster(out: Console, instance: Instance, options: Options) -> None:
    cluster = instance.cluster
    levels = Counter(cluster.group_columns().coded("level").tolist())
    tree = [count(n, level) for level, n in levels.items()]
    tree.append(count(len(cluster.nodes), "node"))
    heading(out, f"Cluster {cluster.name}", f"{count(cluster.total_gpus, 'GPU')} in {', '.join(tree)}")
    rooms = rooms_of(options.of)
    rows = [_pool_row(instance, room) for room in rooms]
    in_blocks = all(room.pool.capacity == "blocks" for room in rooms)
    columns = POOL_COLUMNS if in_blocks else (*POOL_COLUMNS[:-1], "free GPUs")
    table(out, columns, rows, most=MOST_POOLS)
    if sleepers := int(np.count_nonzero(cluster.node_columns().flags("sleeps"))):
        line(out, f"{count(sleepers, 'node')} may sleep as long as no job is there", indent=2)


def _pool_row(instance: Instance, room: Room) -> tuple[str, ...]:
    pool = room.pool
    kind = instance.cluster.gpu_types[pool.gpu_type]
    return (
        pool.name,
        pool.gpu_type if pool.gpu_type != pool.name else "",
        f"{len(pool.nodes):,}",
        f"{int(pool.available.sum()):,}",
        number(kind.idle_power_w),
        "" if kind.max_power_w is None else number(kind.max_power_w),
        _free(room),
    )


def _free(room: Room) -> str:
    """Describe the free GPUs as jobs can use them: in blocks, ``8 on 2 nodes, 7 on 1``, or by number."""
    match room.pool.capacity:
        case "blocks":
            return _blocks(room.vacant.free_gpus.tolist())
        case "count":
            return f"any {int(np.count_nonzero(room.free)):,}"
    counts = sorted(Counter(room.on_nodes.tolist()).items(), reverse=True)
    parts = [f"{gpus} on {count(nodes, 'node')}" for gpus, nodes in counts if gpus]
    return ", ".join(parts[:MOST_COUNTS]) + (", ..." if len(parts) > MOST_COUNTS else "")


def _blocks(levels: list[int]) -> str:
    """Describe the free GPUs by block size, sizes of equal counts together: ``1-4: 16, 8: 8``."""
    parts = []
    for free, same in groupby(range(len(levels)), key=levels.__getitem__):
        sizes = [str(1 << k) for k in same]
        parts.append(f"{'-'.join(dict.fromkeys((sizes[0], sizes[-1])))}: {free:,}")
    return ", ".join(parts)


def _print_budgets(out: Console, instance: Instance, options: Options) -> None:
    budgets, cluster = instance.budgets, instance.cluster
    idle, full = standing_power_w(options.of), full_power_w(cluster, cluster.nodes)
    rows = [_power_row("site", budgets.power_w, idle, full)]
    nodes, feeds = cluster.node_columns(), cluster.node_domains()
    for domain in cluster.power_domains[:MOST_DOMAINS]:
        inside = np.array([domain.name in names for names in feeds.values])[feeds.codes]
        fed = nodes.take(np.flatnonzero(inside))
        standing = standing_power_w(options.of, domain.name)
        full_w = full_power_w(cluster, fed) + domain.reserved_w
        rows.append(_power_row(domain.name, domain.power_cap_w, standing, full_w))
    heading(out, "Power", "the cap between the idle cluster and every GPU at its board limit")
    columns = ["", ">idle", ">cap", ">full", ""]
    table(out, columns, rows, beyond=len(cluster.power_domains) - MOST_DOMAINS)
    _print_draw_beyond(out, instance, options, full)
    scope = "in this round" if budgets.scope == "round" else "until every job is complete"
    if budgets.energy_j is not None:
        line(out, f"energy budget {energy(budgets.energy_j)} {scope}", indent=2)
    if budgets.carbon_g is not None:
        line(out, f"carbon budget {quantity(budgets.carbon_g, 'g')} of CO2 {scope}", indent=2)
    if instance.carbon_g_per_kwh is not None:
        line(out, f"carbon intensity {number(instance.carbon_g_per_kwh)} g/kWh", indent=2)
    if instance.price_per_kwh is not None:
        price = f"{number(instance.price_per_kwh)} {instance.currency or ''}".rstrip()
        line(out, f"price of energy {price} per kWh", indent=2)
    if budgets.least_goodput is not None:
        line(out, f"least goodput {number(budgets.least_goodput)}", indent=2)
    for name, limit in budgets.reached.items():
        line(out, f"limit on {name} {number(limit)}", indent=2)
    if instance.unlike:
        told = f"{count(len(instance.unlike), 'decision')} to differ from in {count(instance.differ, 'job')}"
        line(out, told, indent=2)


def _print_draw_beyond(out: Console, instance: Instance, options: Options, full_w: float) -> None:
    """Print the pools in which options draw more than the boards are rated at, as measured ones can."""
    alone = np.flatnonzero((options.pool >= 0) & (options.job_set < 0))
    most_w = np.zeros(len(options.pools))
    np.maximum.at(most_w, options.pool[alone], options.power_w[alone] / options.gpus[alone])
    draws = []
    for pool, draw_w in zip(options.pools, most_w.tolist(), strict=True):
        kind = instance.cluster.gpu_types[pool.gpu_type]
        board_w = kind.max_power_w or kind.idle_power_w
        if draw_w > NEARLY_W * board_w:
            full_w += (draw_w - board_w) * int(pool.available.sum())
            draws.append(f"up to {quantity(draw_w, 'W')} on a GPU of {pool.name}")
    if draws:
        line(out, f"options draw beyond that: {listed(draws)}; full then {quantity(full_w, 'W')}", indent=2)


def _power_row(label: str, cap: float | None, idle: float, full: float) -> tuple[str, ...]:
    room = "" if cap is None else bar((cap - idle) / (full - idle) if full > idle else 1.0)
    cap_text = "none" if cap is None else quantity(cap, "W")
    return (label, quantity(idle, "W"), cap_text, quantity(full, "W"), room)


def _examples(jobs: RoundJobs) -> tuple[IntArray, IntArray]:
    """Return one job of each group of jobs with the same options, and the sizes of the groups."""
    is_alike = ~jobs.jobs.fixed & ~jobs.in_sets & (jobs.restart_s == 0.0)
    # Deadlines and limits of energy rule options out by the work of each job.
    is_alike &= np.isinf(jobs.latest_s) & np.isinf(jobs.most_j)
    alike, others = np.flatnonzero(is_alike), np.flatnonzero(~is_alike)
    _, first, n_alike = np.unique(
        2 * jobs.kind[alike] + jobs.must_run[alike], return_index=True, return_counts=True
    )
    examples = np.concatenate([alike[first], others])
    order = np.argsort(examples)
    return examples[order], np.concatenate([n_alike, np.ones(len(others), dtype=np.int64)])[order]


def _print_jobs(
    out: Console, instance: Instance, options: Options, examples: IntArray, n_alike: IntArray
) -> None:
    """Print counts of jobs and options; `options` are of `examples`, each one of `n_alike` such jobs."""
    jobs = options.of.jobs
    deadlines = np.count_nonzero(~np.isnan(jobs.numbers("deadline_s")))
    about = [f"{len(jobs.running)} running", f"{deadlines} with a deadline"]
    about.append(f"{np.count_nonzero(jobs.fixed)} not preemptible")
    about.append(f"{len(options.of.left_out)} left out")
    heading(
        out, f"Jobs: {len(instance.jobs):,}", ", ".join(text for text in about if not text.startswith("0 "))
    )
    goal = VIEW.goal(instance.objective, "min")
    line(out, f"objective {instance.objective} ({goal.noun})", indent=2)
    if (costs := np.unique(options.of.change_cost[jobs.running])).any():
        least_and_most = dict.fromkeys(goal.amount(cost) for cost in (costs[0], costs[-1]))
        line(out, f"a running job that changes or stops costs {' to '.join(least_and_most)}", indent=2)
    for reason in reasons(options.of.left_out):
        line(out, ("left out", "yellow"), f": {reason}", indent=2)
    if not jobs:
        return
    largest, rows = np.zeros(len(jobs), dtype=np.int64), []
    np.maximum.at(largest, options.job, options.gpus)
    largest, n_options = largest[examples], np.diff(options.start)[examples]
    for size in np.unique(largest):
        same = largest == size
        least_and_most = dict.fromkeys(f"{n:,}" for n in (n_options[same].min(), n_options[same].max()))
        rows.append((str(size) if size else "none", f"{n_alike[same].sum():,}", " to ".join(least_and_most)))
    table(out, [">GPUs up to", ">jobs", ">options per job"], rows)
    line(out, f"{int(n_alike @ n_options):,} options in all", indent=2)
    if late := [jobs.names[j] for j in without_options(options.of)]:
        line(out, ("cannot meet their deadlines, and may not wait: ", "bold red"), listed(late), indent=2)


MOST_SETS = 12
MOST_SET_JOBS = 6

SET_COLUMNS = ("set", ">GPUs", "pool", ">set to", ">W", "jobs and their rates")


def print_sets(out: Console, sets: list[JobSet]) -> None:
    """Print the first sets of an instance; nothing when there are none."""
    if not sets:
        return
    heading(out, f"Sets: {len(sets):,}", "jobs that may share GPUs")
    rows = []
    for s in sets[:MOST_SETS]:
        rates = listed((f"{job} {number(rate)}" for job, rate in s.rates.items()), MOST_SET_JOBS)
        settings = setting(s.frequency_mhz, s.power_limit_w)
        rows.append((s.name, str(s.gpus), s.pool, settings, number(s.power_w), rates))
    table(out, SET_COLUMNS, rows, beyond=len(sets) - MOST_SETS)


MOST_ROWS = 20
MOST_NODES = 3

DECISION_COLUMNS = ("job", ">GPUs", "pool", "in set", ">set to", ">batch", ">done in", "now", "nodes")


def print_decision(out: Console, decision: Decision, instance: Instance | None = None) -> None:
    """Print the first jobs that run and the names of those that wait."""
    heading(out, "Decision", f"{len(decision.jobs):,} run, {len(decision.waiting):,} wait")
    shown = decision.jobs[:MOST_ROWS]
    jobs = {} if instance is None else _jobs_of(instance, shown)
    finish_s = {} if instance is None else completion_times_s(instance, shown)
    rows = [_row(a, jobs.get(a.job), finish_s.get(a.job)) for a in shown]
    table(out, DECISION_COLUMNS, rows, beyond=len(decision.jobs) - MOST_ROWS, hint=rest_in(instance))
    if decision.waiting:
        line(out, f"waiting: {listed(decision.waiting)}", indent=2)
        if stopped := 0 if instance is None else _stopped(instance, decision):
            many = "all" if stopped == len(decision.waiting) else f"{stopped:,}"
            who = "it" if len(decision.waiting) == 1 else f"{many} of them"
            line(out, f"{who} ran before: preempted", indent=2)


def _jobs_of(instance: Instance, shown: list[Assignment]) -> dict[str, Job]:
    """Return the jobs of some assignments, by name."""
    jobs = instance.by_column()
    return {job.name: job for job in jobs.take(_numbers_of(jobs, {one.job for one in shown}))}


def _numbers_of(jobs: JobColumns, names: set[str]) -> IntArray:
    return np.array([j for j, name in enumerate(jobs.names) if name in names], dtype=np.int64)


def _stopped(instance: Instance, decision: Decision) -> int:
    """Count the waiting jobs that run now."""
    jobs = instance.by_column()
    running = {jobs.names[j] for j in jobs.running.tolist()}
    return sum(name in running for name in decision.waiting) if running else 0


def completion_times_s(instance: Instance, running: list[Assignment]) -> dict[str, float]:
    """Return the seconds to completion of some jobs that run, restarts included."""
    from wattsched.instances.sizing.decision import Decision

    names = {assignment.job for assignment in running}
    formed = {assignment.set for assignment in running}
    sets = [declared for declared in instance.sets if declared.name in formed]
    members = {name for declared in sets for name in declared.rates}
    every = instance.by_column()
    jobs = every.take(_numbers_of(every, names | members))
    options = expand(instance.model_copy(update={"jobs": jobs, "sets": sets}))
    chosen = matching_options(options, Decision(jobs=running, waiting=[]))
    pairs = zip(jobs.names, chosen.tolist(), strict=True)
    return {name: float(options.completion_s[c]) for name, c in pairs if c >= 0}


def _row(assignment: Assignment, job: Job | None, finish_s: float | None) -> tuple[str, ...]:
    return (
        assignment.job,
        str(assignment.gpus),
        assignment.pool,
        assignment.set or "",
        setting(assignment.frequency_mhz, assignment.power_limit_w),
        "" if assignment.batch_size is None else str(assignment.batch_size),
        "" if finish_s is None else duration(finish_s),
        _change(assignment, job),
        places(assignment.nodes),
    )


def _change(assignment: Assignment, job: Job | None) -> str:
    """Say whether a job that runs already restarts, migrates or stays; empty for other jobs."""
    if job is None or job.current is None:
        return ""
    current = job.current
    if any(getattr(current, name) != getattr(assignment, name) for name in ("gpus", "pool", "batch_size")):
        return "restarts"
    now, then = ({name: sorted(gpus) for name, gpus in one.nodes.items()} for one in (current, assignment))
    return "migrates" if current.nodes and now != then else "stays"


def places(nodes: dict[str, list[int]]) -> str:
    """Format GPUs by node: ``n3:0-7 n4:0-3``."""
    named = [f"{name}:{ranges(gpus)}" for name, gpus in list(nodes.items())[:MOST_NODES]]
    if len(nodes) > MOST_NODES:
        named.append(f"+{count(len(nodes) - MOST_NODES, 'node')}")
    return " ".join(named)


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers with runs joined: ``0-3,6``."""
    ordered = sorted(numbers)
    if not ordered:
        return ""
    cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(ordered)) if b != a + 1), len(ordered)]
    runs = [(ordered[a], ordered[b - 1]) for a, b in pairwise(cuts)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def about(instance: Instance) -> str:
    """Summarise a round: its jobs, GPUs and nodes."""
    cluster = instance.cluster
    jobs, gpus = count(len(instance.jobs), "job"), count(cluster.total_gpus, "GPU")
    return f"{jobs} on {gpus} in {count(len(cluster.nodes), 'node')}"


def capacities(instance: Instance) -> dict[str, float]:
    """Return GPUs of pools, caps of power domains and quotas of tenants, by the names of their rows."""
    rows = {f"gpus:{pool.name}": float(pool.available.sum()) for pool in pools_of(instance.cluster)}
    rows |= {f"power_w:{domain.name}": domain.power_cap_w for domain in instance.cluster.power_domains}
    return rows | {quota.name: float(quota.limit) for quota in quotas_of(instance)}


def rows_of(decision: Decision) -> list[dict[str, Any]]:
    """Return a row for every job; waiting jobs have 0 GPUs."""
    running = [{"job": one.job, "waiting": False, **one.model_dump()} for one in decision.jobs]
    return [*running, *({"job": name, "waiting": True, "gpus": 0} for name in decision.waiting)]


def parts_of(instance: Instance, decision: Decision) -> Iterator[Part]:
    """Yield the parts of a report: a map of the cluster, the assignments, and the waiting jobs."""
    from wattsched.report.html.page import Cell, Lines, Picture, Row, Table
    from wattsched.report.html.pictures import NodeMap, cluster_map, map_note
    from wattsched.report.html.solved import MOST_ROWS, cut_note

    running = decision.jobs
    holders: dict[str, dict[int, int]] = {}
    for place, assignment in enumerate(running):
        for node, gpus in assignment.nodes.items():
            holders.setdefault(node, {}).update(dict.fromkeys(gpus, place))
    nodes = [
        NodeMap(node.name, node.gpus, holders.get(node.name, {}), frozenset(node.unavailable))
        for node in instance.cluster.nodes
    ]
    body = cluster_map(nodes, [assignment.job for assignment in running])
    yield Picture("Cluster", body, map_note(nodes))
    shown = list(running[:MOST_ROWS])
    jobs, finish_s = _jobs_of(instance, shown), completion_times_s(instance, shown)
    longest_s = max(finish_s.values(), default=1.0)
    rows = []
    for place, assignment in enumerate(shown):
        texts = _row(assignment, jobs.get(assignment.job), finish_s.get(assignment.job))
        cells = [Cell(text) for text in texts]
        cells[1] = Cell(texts[1], float(assignment.gpus))
        if (seconds := finish_s.get(assignment.job)) is not None:
            cells[6] = Cell(texts[6], seconds, seconds / longest_s)
        rows.append(Row(cells, place))
    used = [c for c in range(len(DECISION_COLUMNS)) if any(row.cells[c].text for row in rows)]
    columns = [DECISION_COLUMNS[c] for c in used]
    kept = [Row([row.cells[c] for c in used], row.job) for row in rows]
    about = f"{len(decision.jobs):,} run, {len(decision.waiting):,} wait"
    yield Table("Decision", columns, kept, "; ".join(filter(None, [about, cut_note(len(running))])))
    if decision.waiting:
        yield Lines("Waiting", [listed(decision.waiting, most=500)])


VIEW = View(
    goals={
        "total-completion": Goal("weighted completion time", "s"),
        "progress": Goal("weighted progress", "/h", "gain"),
        "makespan": Goal("largest weighted completion time", "s", in_steps=True),
        "max-min": Goal("smallest relative progress", "", "gain", in_steps=True),
        "proportional": Goal("weighted sum of log slowdowns", near_zero=True),
        "goodput": Goal("goodput", "", "gain"),
        "work-value": Goal("value of the work done", "", "gain"),
        "energy": Goal("energy", "J"),
        "carbon": Goal("carbon", "g"),
        "money": Goal("cost", near_zero=True),
    },
    about=about,
    print_instance=print_instance,
    print_decision=print_decision,
    rows=rows_of,
    capacities=capacities,
    parts=parts_of,
)
