"""Paces of a daily budget: evenly, at a price that is learned, and by a plan for the jobs to come.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.pacing --write [--seeds 3] [--runs FILE]

`sizing` against PowerFlow's rule with the same budgets and the same knowledge of durations, on the six
grounds of benchmarks/grounds.py, on which nothing was chosen. The plan's constants were chosen on `GROUNDS`
and `CHOSEN_ON` of benchmarks/replays.py, on seed 100.

Budgets of carbon are those of GreenFlow's table, besides under `clairvoyant`, which follows the plan of the
bound on every schedule with all jobs to come. FILE keeps these runs; those that it has are not run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.stats import gmean

from benchmarks.harness import Asked, in_processes, remembered, run, say, table
from benchmarks.replays import CARBON_RULE, HELD_OUT, OURS, RULE, Case, Figures, carbon_cases, cases_of
from wattsched.instances.units import S_PER_H
from wattsched.replay.jobs.budget import Pacing
from wattsched.replay.jobs.knowledge import Knows

PACES: tuple[Pacing, ...] = ("even", "price", "plan")
KNOWN: tuple[Knows, ...] = ("exact", "history")
HEADER = (
    "ground, budget", "durations", "rule, h",
    *(f"{pace}{what}" for pace in PACES for what in (", over rule", ", worst seed")),
    "plan, p99 over rule's", "plan over even",
)  # fmt: skip


def seed_of(seed: int, case: Case, knows: Knows) -> dict[str, Figures]:
    """Replay a seed of a case under the rule, and under ours at every pace."""
    trace = case.ground.trace(seed)
    found = {"rule": Figures.of(case.replayed(trace, RULE, knows=knows))}
    found |= {pace: Figures.of(case.replayed(trace, OURS, knows=knows, pacing=pace)) for pace in PACES}
    say(f"{case.name}, {knows}, seed {seed}")
    return found


def line(where: str, knows: Knows, found: Sequence[dict[str, Figures]]) -> list[str]:
    """A line of the table: geometric means over seeds."""
    mean_h = {name: np.array([seed[name].mean_h for seed in found]) for name in ("rule", *PACES)}
    over = [mean_h[pace] / mean_h["rule"] for pace in PACES]
    p99 = gmean([seed["plan"].p99_h / seed["rule"].p99_h for seed in found])
    return [
        where,
        knows,
        f"{gmean(mean_h['rule']):.2f}",
        *(text for ratio in over for text in (f"{gmean(ratio):.3f}", f"{ratio.max():.3f}")),
        f"{p99:.2f}",
        f"{gmean(mean_h['plan'] / mean_h['even']):.3f}",
    ]


def pacing(asked: Asked) -> str:
    """The table."""
    rows, everything = list[list[str]](), {knows: list[dict[str, Figures]]() for knows in KNOWN}
    chosen = (HELD_OUT[0].shortened(0.1, 2),) if asked.quick else HELD_OUT
    for case in cases_of(chosen):
        for knows in KNOWN:
            replays = partial(seed_of, case=case, knows=knows)
            found = list(in_processes(replays, range(asked.seeds), asked.processes))
            rows.append(line(case.name, knows, found))
            everything[knows] += found
    rows += [line("all", knows, found) for knows, found in everything.items()]
    return table(HEADER, rows)


CARBON_HEADER = (
    "ground, zone, budget", "durations", "clairvoyant, h", "rule above it, %",
    *(f"{pace}{what}" for pace in PACES for what in (" above it, %", ", worst seed, %")),
)  # fmt: skip


def carbon_seed(seed: int, case: Case) -> dict[str, float]:
    """Hours of a seed of a case under GreenFlow's rule, at every pace, and with all jobs to come."""
    trace = case.ground.trace(seed)
    runs = {policy: case.replayed(trace, policy) for policy in (CARBON_RULE, "clairvoyant")}
    runs |= {pace: case.replayed(trace, OURS, pacing=pace) for pace in PACES}
    say(f"{case.name}, {case.zone}, seed {seed}")
    return {name: float(outcome.jct_s.mean()) / S_PER_H for name, outcome in runs.items()}


def carbon_line(where: str, found: Sequence[dict[str, float]]) -> list[str]:
    """A line of the table: geometric means over seeds above those with all jobs to come."""
    least = np.array([seed["clairvoyant"] for seed in found])
    above = {
        name: 100 * (np.array([seed[name] for seed in found]) / least - 1) for name in (CARBON_RULE, *PACES)
    }
    mean = {name: 100 * (gmean(1 + percent / 100) - 1) for name, percent in above.items()}
    ours = [text for pace in PACES for text in (f"{mean[pace]:.1f}", f"{above[pace].max():.1f}")]
    return [where, "exact", f"{gmean(least):.2f}", f"{mean[CARBON_RULE]:.1f}", *ours]


def carbon(asked: Asked) -> str:
    """Budgets of carbon."""
    rows, everything = list[list[str]](), list[dict[str, float]]()
    for case in carbon_cases(quick=asked.quick):
        where = f"{case.ground.name}, {case.zone}, {case.watts_per_gpu:g} W"
        found = [
            remembered(asked.runs, f"{where}, seed {seed}", partial(carbon_seed, seed, case))
            for seed in range(asked.seeds)
        ]
        rows.append(carbon_line(where, found))
        everything += found
    return table(CARBON_HEADER, [*rows, carbon_line("all", everything)])


TABLES = {"pacing": pacing, "carbon-pacing": carbon}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=3, processes=2, runs="")
