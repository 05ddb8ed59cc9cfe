"""Moves that make room for jobs of 8 GPUs on openb's nodes: the fewest, a greedy rule, and the proven bound.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.defragmentation --write [--seeds 10]

The cluster is that of openb, 1,213 nodes with 6,212 GPUs, and its tasks come in random order, each with its
whole GPUs or one for a part of one, by best fit, until 99 % of the GPUs are in use. Then tasks end at random
until the load is as stated. Asked for are so many jobs of 8 GPUs more than fit without a move. The greedy
rule empties the node with the fewest jobs (of equal ones, the fewest GPUs) whose jobs all fit on other nodes,
each on the fullest that has room, again and again.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import numpy as np

import wattsched
from benchmarks.harness import Asked, data, machine, run, say, table, timed
from wattsched import Instance
from wattsched.instances.sizing.job import Job, OptionTable, Placement
from wattsched.instances.traces.openb import read_tasks
from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import pools_of

FIRST, SIZE, FULL = 501, 8, 0.99
LOADS, MORE = (0.80, 0.90, 0.95), (5, 10, 20, 30)
LISTS = ("default", "multigpu50")
HEADER = ("tasks", "load", "jobs more", "rounds in which they fit", "fewest moves, mean", "bound", "proven",
          "optimal", "greedy succeeds", "its moves over the fewest", "GPUs per move", "greedy", "pauses",
          "s, mean", "worst")  # fmt: skip
FILES = "alibaba-gpu-2023"


def openb_round(cluster: Cluster, sizes: list[int], load: float, seed: int) -> Instance:
    """Round in which tasks of these sizes were placed by best fit, and some have ended."""
    draw = np.random.default_rng(seed)
    free = {node.name: [*range(node.gpus)] for node in cluster.nodes}
    used, held = 0, list[tuple[str, list[int]]]()
    for gpus in draw.choice(sizes, size=2 * cluster.total_gpus).tolist():
        fitting = [name for name, left in free.items() if len(left) >= gpus]
        if used >= FULL * cluster.total_gpus:
            break
        if fitting:
            name = min(fitting, key=lambda name: len(free[name]))
            held.append((name, free[name][:gpus]))
            free[name], used = free[name][gpus:], used + gpus
    draw.shuffle(held)
    while used > load * cluster.total_gpus:
        used -= len(held.pop()[1])
    pools = {name: pool.name for pool in pools_of(cluster) for name in pool.nodes}
    jobs = []
    for j, (name, gpus) in enumerate(held):
        options = OptionTable(gpus=[len(gpus)], pool=[pools[name]], power_w=[1.0], rate=[1.0])
        current = Placement(gpus=len(gpus), pool=pools[name], nodes={name: gpus})
        jobs.append(Job(name=f"job{j}", options=options, current=current))
    return Instance(cluster=cluster, jobs=jobs)


def greedy_moves(instance: Instance, more: int) -> tuple[int, int]:
    """Empty nodes of 8 GPUs by the greedy rule; return how many, and the moves that it takes."""
    pool = {name: p for p, one in enumerate(pools_of(instance.cluster)) for name in one.nodes}
    free, jobs = {node.name: node.gpus for node in instance.cluster.nodes}, defaultdict[str, list[int]](list)
    for job in instance.jobs:
        ((name, gpus),) = job.current.nodes.items()
        free[name] -= len(gpus)
        jobs[name].append(len(gpus))
    left = {name for name, gpus in jobs.items() if free[name] + sum(gpus) == SIZE}
    moves = 0
    for done in range(more):
        for name in sorted(left, key=lambda name: (len(jobs[name]), sum(jobs[name]), name)):
            here = {to: free[to] for to in free if pool[to] == pool[name] and to != name and jobs[to]}
            if (homes := _homes(jobs[name], here)) is not None:
                break
        else:
            return done, moves
        for gpus, to in homes:
            free[to] -= gpus
            jobs[to].append(gpus)
        moves += len(jobs.pop(name))
        left.remove(name)
        jobs[name] = []
    return more, moves


def _homes(sizes: list[int], free: dict[str, int]) -> list[tuple[int, str]] | None:
    """The fullest node with room for each job, the largest first; None where one has no room."""
    homes = []
    for gpus in sorted(sizes, reverse=True):
        fitting = [name for name, left in free.items() if left >= gpus]
        if not fitting:
            return None
        homes.append((gpus, min(fitting, key=lambda name: free[name])))
        free[homes[-1][1]] -= gpus
    return homes


def defragmentation(asked: Asked) -> str:
    """One row for each task list, load and number of jobs that are to fit besides those that do."""
    folder = data(FILES)
    cluster = wattsched.read_cluster(folder / "openb_node_list_gpu_node.csv")
    cluster = cluster.model_copy(update={"capacity": "nodes"})
    pools = [pool.name for pool in pools_of(cluster) if pool.gpus_per_node == SIZE]
    rows = []
    for tasks in LISTS[:1] if asked.quick else LISTS:
        gpus = read_tasks(folder / f"openb_pod_list_{tasks}.csv").gpus
        for load in LOADS[:1] if asked.quick else LOADS:
            found: dict[int, list[tuple[float, ...]]] = {more: [] for more in MORE}
            for seed in range(FIRST, FIRST + asked.seeds):
                instance = openb_round(cluster, gpus[gpus > 0].tolist(), load, seed)
                used = {name for job in instance.jobs for name in job.current.nodes}
                fit = sum(node.gpus == SIZE and node.name not in used for node in cluster.nodes)
                for more in MORE:
                    say(f"{tasks}, {load:.0%}, {more} more, seed {seed}")
                    ask = partial(wattsched.defragment, instance, size=SIZE, count=fit + more, pools=pools)
                    plan, seconds = timed(ask)
                    done, moves = greedy_moves(instance, more)
                    if plan.moves is not None:
                        greedy = moves if done == more else np.nan
                        best = plan.reason == "optimal"
                        found[more].append(
                            (
                                plan.moves,
                                greedy,
                                plan.bound,
                                plan.proven_bound,
                                best,
                                len(plan.pauses),
                                seconds,
                            )
                        )
            rows += [
                _row(f"`{tasks}`", load, more, np.array(values), asked.seeds)
                for more, values in found.items()
            ]
    return f"{table(HEADER, rows)}\n\nMeasured on {machine()}, {asked.seeds} seeds from {FIRST}."


def _row(tasks: str, load: float, more: int, values: FloatArray, seeds: int) -> list[str]:
    """Means over the rounds in which so many fit; those of the greedy rule over the rounds that it solves."""
    head = [tasks, f"{load:.0%}", f"{more}", f"{len(values)} of {seeds}"]
    if not len(values):
        return [*head, *[""] * (len(HEADER) - len(head))]
    moves, greedy, bound, proven, best, pauses, seconds = values.T
    solved = ~np.isnan(greedy)
    ratio = f"{np.exp(np.log(greedy[solved] / moves[solved]).mean()):.2f}" if solved.any() else ""
    return [
        *head,
        f"{moves.mean():.1f}",
        f"{bound.mean():.1f}",
        f"{proven.mean():.1f}",
        f"{best.sum():.0f}",
        f"{solved.sum()}",
        ratio,
        f"{SIZE * more * len(moves) / moves.sum():.2f}",
        f"{SIZE * more * solved.sum() / greedy[solved].sum():.2f}" if solved.any() else "",
        f"{pauses.sum():.0f}",
        f"{seconds.mean():.1f}",
        f"{seconds.max():.1f}",
    ]


TABLES = {"defragmentation": defragmentation}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=10)
