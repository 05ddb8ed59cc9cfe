"""Rounds of least energy for a goodput, on nodes that are always awake and on nodes that sleep.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/sleeping.py --write [--seeds N]

Every round is solved for the most goodput first, without budgets. Then it is to do a part of that with the
least energy: on nodes that are always awake, and on the same nodes if they sleep as long as no job is there.
Joules are those of the cluster over the round, relative to the round of most goodput on nodes that are always
awake; seconds are those of the call. Seeds begin at 501, on which nothing was chosen.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy.stats import gmean
from suite import say
from tables import asked_over_seeds, machine, table, write

import wattsched
from wattsched import Instance, Result

FIRST, GAP = 501, 1e-3
FAMILIES = ("uniform", "sia-like")
SHARES = (0.5, 0.8)
BASE_POWER_W = 400.0
HEADER = (
    "round",
    "least goodput",
    "nodes",
    "energy, mean",
    "asleep, mean",
    "s, mean",
    "worst",
    "gap proven, worst",
)


def without_budgets(instance: Instance, *, sleeps: bool) -> Instance:
    """The round on pools of nodes of equal base power, under no budget."""
    cluster = instance.cluster.model_dump()
    nodes = [{**node, "base_power_w": BASE_POWER_W, "sleeps": sleeps} for node in cluster["nodes"]]
    known = type(instance.cluster).model_validate({**cluster, "nodes": nodes, "capacity": "nodes"})
    changes = {"cluster": known, "budgets": type(instance.budgets)(), "round_s": 300.0}
    return instance.model_copy(update=changes)


def solved(instance: Instance, share: float, most: float) -> tuple[Result, float]:
    """Answer of least energy for a part of the most goodput, and its seconds."""
    budgets = type(instance.budgets)(least_goodput=share * most)
    begin = time.perf_counter()
    result = wattsched.solve(instance.model_copy(update={"budgets": budgets}), objective="energy", gap=GAP)
    return result, time.perf_counter() - begin


def lines_of(family: str, jobs: int, seeds: int) -> list[list[str]]:
    """Lines of the table for a family: for each part of the goodput, with nodes awake and asleep."""
    found: dict[tuple[float, bool], list[tuple[float, ...]]] = {}
    for seed in range(FIRST, FIRST + seeds):
        say(f"{family} {jobs} --seed {seed}")
        instance: Any = wattsched.generate(family, jobs=jobs, seed=seed)
        awake = without_budgets(instance, sleeps=False)
        best = wattsched.solve(awake, objective="goodput", gap=GAP)
        assert best.objective is not None
        for share in SHARES:
            for sleeps in (False, True):
                made = without_budgets(instance, sleeps=sleeps)
                result, seconds = solved(made, share, best.objective)
                assert not result.faults
                assert result.proven_gap is not None
                energy = result.totals["energy_j"] / best.totals["energy_j"]
                asleep = result.totals.get("nodes_asleep", 0.0) / len(made.cluster.nodes)
                found.setdefault((share, sleeps), []).append((energy, asleep, seconds, result.proven_gap))
    nodes = {False: "always awake", True: "sleep"}
    return [
        [f"`{family}`, {jobs:,} jobs", f"{share:.0%}", nodes[sleeps], *cells(values)]
        for (share, sleeps), values in found.items()
    ]


def cells(values: list[tuple[float, ...]]) -> tuple[str, ...]:
    """Means of energy, of nodes asleep and of seconds, and the worst seconds and gap."""
    energy, asleep, seconds, gap = np.array(values).T
    times = f"{gmean(seconds):.2f}", f"{seconds.max():.2f}", f"{gap.max():.1e}"
    return f"{energy.mean():.1%}", f"{asleep.mean():.0%}", *times


def main() -> None:
    """Print the table."""
    asked = asked_over_seeds(__doc__)
    wattsched.solve(wattsched.generate("uniform", jobs=300))  # modules are imported once
    sizes = (30,) if asked.quick else (200, 1_000)
    rows = [line for family in FAMILIES for jobs in sizes for line in lines_of(family, jobs, asked.seeds)]
    text = table(HEADER, rows)
    print(text)
    if asked.write:
        measured = f"Measured on {machine()}, {asked.seeds} seeds from {FIRST}, gap {GAP:g}."
        write("sleeping", f"{text}\n\n{measured}")


if __name__ == "__main__":
    main()
