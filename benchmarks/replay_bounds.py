"""How far policies are above what no schedule is below, on public traces: completion times and energy.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/replay_bounds.py --write [--seeds 2] [--jobs 2]

The traces and the daily budgets of energy are those of `budgets.py`; models of jobs are drawn by seeds from
`FIRST` on, on which nothing was chosen. `clairvoyant` follows the plan of the bound, with all jobs to come:
what lies between it and `sizing` is what knowing the future gains, as far as that plan tells, and what lies
between it and the bound is the plan's rounding and the bound's looseness. `WATTSCHED_DATA` says where the
traces are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from budgets import GROUNDS, WATTS_PER_GPU, Case, PoolState
from scipy.stats import gmean
from tables import machine, table, write

from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.replay.jobs.bound.clairvoyant import bound_of, parts_of
from wattsched.replay.jobs.outcome import Summary, summary
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.verification.clairvoyant import faults_of

FIRST = 11
ROUND_S, GAP = 60.0, 0.01
FREE = (
    "clairvoyant",
    "sizing",
    "elastic",
    "powerflow",
    "elasticflow+zeus",
    "tiresias-2dlas+zeus",
    "backfill",
)
PRICED = ("sizing", "powerflow", "elasticflow+zeus")
"""At whose mean completion times the energy is bounded; these bounds hold at the others' too."""
SPENDING = ("clairvoyant", "sizing", "powerflow", "elasticflow+zeus")
HEADER = ("trace, policy", "mean JCT, h", "no schedule below, h", "above it, %", "worst seed, %", "p99, h")
ENERGY = ("energy, kWh", "none below at that mean, kWh", "above that, %")


@dataclass(frozen=True)
class Found:
    """Replays of a seed by policy, the bound on their means, and least joules at each; seconds it took."""

    runs: dict[str, Summary]
    least_s: float
    least_j: dict[str, float]
    bound_s: float


def bounded(pool: PoolState, watts: float | None, seed: int) -> Found:
    """Replay a seed under all policies, and bound every schedule."""
    trace = pool.trace(seed)
    budget = None if watts is None else Case(pool, watts).budget(trace)
    context = PolicyContext(trace, round_s=ROUND_S, gap=GAP, budget=budget)
    runs = {}
    for name in FREE if budget is None else SPENDING:
        made = policy_of(name, context)
        runs[name] = summary(simulate(trace, made, name=name, round_s=ROUND_S, budget=budget))
    begin = time.perf_counter()
    means_s = [runs[name].jct_mean_s for name in PRICED] if budget is None else []
    bound = bound_of(parts_of(trace, budget, energy=len(means_s) > 0), means_s)
    seconds = time.perf_counter() - begin
    if faults := faults_of(bound):
        raise SystemExit(f"{pool.name}, seed {seed}: {faults[0]}")
    print(f"{pool.name}, {watts} W, seed {seed}: {seconds:.0f} s", file=sys.stderr)
    least_j = {name: bound.energy_j(run.jct_mean_s) for name, run in runs.items()} if means_s else {}
    return Found(runs, bound.mean_completion_s, least_j, seconds)


def rows_of(where: str, found: Sequence[Found]) -> Iterator[list[str]]:
    """A line for each policy."""
    for name in found[0].runs:
        runs = [one.runs[name] for one in found]
        above = np.array([run.jct_mean_s / one.least_s for run, one in zip(runs, found, strict=True)])
        means = [run.jct_mean_s / S_PER_H for run in runs], [one.least_s / S_PER_H for one in found]
        row = [f"{where}: {name}", *(f"{np.mean(hours):.2f}" for hours in means)]
        row += [f"{100 * (gmean(above) - 1):.1f}", f"{100 * (above.max() - 1):.1f}"]
        row += [f"{np.mean([run.jct_p99_s for run in runs]) / S_PER_H:.1f}"]
        if found[0].least_j:
            least_j, used_j = np.array([[one.least_j[name], one.runs[name].energy_j] for one in found]).T
            row += [f"{used_j.mean() / J_PER_KWH:,.0f}", f"{least_j.mean() / J_PER_KWH:,.0f}"]
            row += [f"{100 * (gmean(used_j / least_j) - 1):.1f}"]
        yield row


def content(seeds: int, jobs: int) -> Iterator[str]:
    """Both tables, with one more trace each time."""
    free: list[list[str]] = []
    spending: list[list[str]] = []
    took: list[float] = []
    with ProcessPoolExecutor(jobs) as pool:
        for watts in (None, 0, 1):
            for ground in GROUNDS:
                each = None if watts is None else WATTS_PER_GPU[ground.gpu_type][watts]
                found = list(pool.map(partial(bounded, ground, each), range(FIRST, FIRST + seeds)))
                where = ground.name if each is None else f"{ground.name}, {each:g} W"
                (free if watts is None else spending).extend(rows_of(where, found))
                took += [one.bound_s for one in found]
                told = (
                    f"Of {seeds} seeds from {FIRST} on: means, and geometric means of what is above. Bounds "
                )
                told += f"took {min(took):.0f} to {max(took):.0f} s each, {machine()}"
                parts = [table([*HEADER, *ENERGY], free)]
                parts += (
                    ["## Within budgets of energy for every day", table(HEADER, spending)] if spending else []
                )
                yield "\n\n".join([*parts, told])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/tables")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args()
    for text in content(asked.seeds, asked.jobs):
        if asked.write:
            write("replay-bounds", text)
    print(text)


if __name__ == "__main__":
    main()
