"""Replay jobs on clusters of two GPU types under `elastic`, valued by GPU seconds and by the slowest option.

    python benchmarks/elastic_values.py [--write] [--seeds 10]

The grounds are those of benchmarks/grounds.py with half of the nodes of A100 and half of V100. What a second
of a job is worth was chosen on those of benchmarks/budgets.py and on `CHOSEN_ON` of benchmarks/grounds.py,
seeds 100 to 102. ``--write`` puts the table into docs/tables. `WATTSCHED_DATA` says where the traces are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from budgets import ROUND_S, PoolState
from grounds import GROUNDS, Figures
from scipy.stats import gmean
from tables import asked_over_seeds, table, write

from wattsched.instances.clusters import known_gpu_type
from wattsched.replay.jobs.policies.elastic import Cost, Elastic, rank, rank_weights, useful
from wattsched.replay.jobs.policies.rounds import RoundOptions
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Cluster, Node

TYPES = ("A100", "V100")
HEADER = (
    "ground", "jobs", "by the slowest option: mean JCT, h", "by GPU seconds, over that", "worst seed", "p99",
    "preemptions of a job", "by the slowest",
)  # fmt: skip


def by_slowest(options: RoundOptions) -> FloatArray:
    """Cost of heSRPT's value per second of a job in its slowest option."""
    rate = np.where(options.waiting, np.inf, options.rate)
    slowest = np.minimum.reduceat(rate, options.start[:-1])
    value = rank_weights(options.work / slowest) / slowest
    return np.asarray(-value[options.job] * options.rate * useful(options))


def mixed(nodes: int) -> Cluster:
    """Nodes of eight GPUs, as many of one type as of the other."""
    names = [(f"{kind}-{number}", kind) for kind in TYPES for number in range(max(1, nodes // 2))]
    types = {kind: known_gpu_type(kind) for kind in TYPES}
    return Cluster(gpu_types=types, nodes=[Node(name=name, gpu_type=kind, gpus=8) for name, kind in names])


def replayed(trace: Trace, cost: Cost) -> Figures:
    """Replay jobs under `elastic` with a value."""
    policy = Elastic(PolicyContext(trace, round_s=ROUND_S), cost)
    return Figures.of(simulate(trace, policy, name="elastic", round_s=ROUND_S))


def row(ground: PoolState, seeds: Sequence[int]) -> tuple[tuple[str, ...], FloatArray]:
    """A line, and the ratios of every seed: of the mean and the 99th percentile."""
    found = []
    for seed in seeds:
        trace = ground.trace(seed, mixed(ground.nodes))
        each = (replayed(trace, cost) for cost in (by_slowest, rank))
        found.append([(one.mean_h, one.p99_h, one.preemptions) for one in each])
        print(f"{ground.name}, seed {seed}", file=sys.stderr)
    slow, ours = np.array(found).transpose(1, 2, 0)
    ratio = ours[:2] / slow[:2]
    stopped = (f"{each[2].mean():.2f}" for each in (ours, slow))
    return (ground.name, str(len(trace)), f"{slow[0].mean():.2f}", *over(ratio), *stopped), ratio


def over(ratio: FloatArray) -> tuple[str, ...]:
    """Geometric mean and worst of the first ratios, and geometric mean of the second."""
    mean, p99 = gmean(ratio, axis=1)
    return f"{mean:.3f}", f"{ratio[0].max():.3f}", f"{p99:.2f}"


def rows(grounds: Sequence[PoolState], seeds: int) -> Iterator[tuple[str, ...]]:
    """Lines of all grounds, and one of all together."""
    ratios = []
    for ground in grounds:
        cells, ratio = row(ground, range(seeds))
        ratios.append(ratio)
        yield cells
    yield "all", "", "", *over(np.concatenate(ratios, axis=1)), "", ""


def main() -> None:
    """Command line."""
    asked = asked_over_seeds(__doc__, seeds=10)
    grounds = (replace(GROUNDS[0], days=(15, 15.1), nodes=4),) if asked.quick else GROUNDS
    content = table(HEADER, list(rows(grounds, 1 if asked.quick else asked.seeds)))
    if asked.write:
        write("elastic-values", content)
    print(content)


if __name__ == "__main__":
    main()
