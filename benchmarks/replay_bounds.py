"""Measure how far policies are above a bound on all schedules, on public traces: completion times and energy.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.replay_bounds --write [--processes 2]

Traces and daily budgets of energy are those of `budgets.py`; models of jobs are drawn by seeds from 11 on, on
which nothing was chosen. `clairvoyant` follows the plan of the bound, with all jobs to come: what lies
between it and `sizing` is what knowing the future gains, as far as that plan tells, and what lies between it
and the bound is the plan's rounding and the bound's looseness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import gmean

from benchmarks.harness import Asked, in_processes, machine, run, say, table, timed
from benchmarks.replays import GAP, GROUNDS, ROUND_S, WATTS_PER_GPU, Case, Ground
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.replay.jobs.bound.clairvoyant import bound_of, parts_of
from wattsched.replay.jobs.outcome import Summary, summary
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.verification.clairvoyant import faults_of

FIRST = 11
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


def bounded(seed: int, ground: Ground, watts: float | None) -> Found:
    """Replay a seed under all policies, and bound every schedule."""
    trace = ground.trace(seed)
    budget = None if watts is None else Case(ground, watts).budget(trace)
    context = PolicyContext(trace, round_s=ROUND_S, gap=GAP, budget=budget)
    runs = {}
    for name in FREE if budget is None else SPENDING:
        made = policy_of(name, context)
        runs[name] = summary(simulate(trace, made, name=name, round_s=ROUND_S, budget=budget))
    means_s = [runs[name].jct_mean_s for name in PRICED] if budget is None else []
    bound, seconds = timed(lambda: bound_of(parts_of(trace, budget, energy=len(means_s) > 0), means_s))
    if faults := faults_of(bound):
        raise SystemExit(f"{ground.name}, seed {seed}: {faults[0]}")
    say(f"{ground.name}, {watts} W, seed {seed}: {seconds:.0f} s")
    least_j = {name: bound.energy_j(one.jct_mean_s) for name, one in runs.items()} if means_s else {}
    return Found(runs, bound.mean_completion_s, least_j, seconds)


def rows_of(where: str, found: Sequence[Found]) -> Iterator[list[str]]:
    """A line for each policy."""
    least_s = np.array([one.least_s for one in found])
    for name in found[0].runs:
        mean_s, p99_s, used_j = np.array(
            [(r.jct_mean_s, r.jct_p99_s, r.energy_j) for r in (one.runs[name] for one in found)]
        ).T
        above = mean_s / least_s
        row = [f"{where}: {name}", *(f"{hours.mean() / S_PER_H:.2f}" for hours in (mean_s, least_s))]
        row += [f"{100 * (gmean(above) - 1):.1f}", f"{100 * (above.max() - 1):.1f}"]
        row += [f"{p99_s.mean() / S_PER_H:.1f}"]
        if found[0].least_j:
            least_j = np.array([one.least_j[name] for one in found])
            row += [f"{joules.mean() / J_PER_KWH:,.0f}" for joules in (used_j, least_j)]
            row += [f"{100 * (gmean(used_j / least_j) - 1):.1f}"]
        yield row


def replay_bounds(asked: Asked) -> str:
    """Both tables."""
    free: list[list[str]] = []
    spending: list[list[str]] = []
    took_s: list[float] = []
    grounds = (GROUNDS[1].shortened(0.1, 2),) if asked.quick else GROUNDS
    for watts in (None, 0, 1):
        for ground in grounds:
            each = None if watts is None else WATTS_PER_GPU[ground.gpu_type][watts]
            work = partial(bounded, ground=ground, watts=each)
            found = list(in_processes(work, range(FIRST, FIRST + asked.seeds), asked.processes))
            where = ground.name if each is None else f"{ground.name}, {each:g} W"
            (free if watts is None else spending).extend(rows_of(where, found))
            took_s += [one.bound_s for one in found]
    about = (
        f"Of {asked.seeds} seeds from {FIRST} on: means, and geometric means of what is above. Bounds took "
        f"{min(took_s):.0f} to {max(took_s):.0f} s each, {machine()}"
    )
    parts = (table([*HEADER, *ENERGY], free), "## Within budgets of energy for every day")
    return "\n\n".join([*parts, table(HEADER, spending), about])


TABLES = {"replay-bounds": replay_bounds}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=2, processes=2)
