"""Rounds of least energy for a goodput, on nodes that are always awake and on nodes that sleep.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.sleeping --write [--seeds 20]

Every round is solved for the most goodput first, without budgets. Then it is to do a part of that with the
least energy: on nodes that are always awake, and on the same nodes if they sleep as long as no job is there.
Joules are those of the cluster over the round, relative to the round of most goodput on nodes that are always
awake; seconds are those of the call. Seeds begin at 501, on which nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import wattsched
from benchmarks.harness import Asked, machine, mean_and_worst, run, say, table, timed
from wattsched import Instance

FIRST, GAP = 501, 1e-3
BASE_POWER_W = 400.0
PARTS = [(share, sleeps) for share in (0.5, 0.8) for sleeps in (False, True)]
"""Shares of the most goodput, on nodes that stay awake and on nodes that sleep."""
HEADER = ("round", "least goodput", "nodes", "energy, mean", "asleep, mean", "s, mean", "worst",
          "gap proven, worst")  # fmt: skip


def without_budgets(instance: Instance, *, sleeps: bool) -> Instance:
    """The round on pools of nodes of equal base power, under no budget."""
    cluster = instance.cluster.model_dump()
    nodes = [{**node, "base_power_w": BASE_POWER_W, "sleeps": sleeps} for node in cluster["nodes"]]
    known = type(instance.cluster).model_validate({**cluster, "nodes": nodes, "capacity": "nodes"})
    changes = {"cluster": known, "budgets": type(instance.budgets)(), "round_s": 300.0}
    return instance.model_copy(update=changes)


def measured(instance: Instance) -> Iterator[tuple[float, float, float, float]]:
    """For each part the energy, the share of nodes asleep, the seconds and the proven gap."""
    best = wattsched.solve(without_budgets(instance, sleeps=False), objective="goodput", gap=GAP)
    assert best.objective is not None
    for share, sleeps in PARTS:
        made = without_budgets(instance, sleeps=sleeps)
        budgets = type(made.budgets)(least_goodput=share * best.objective)
        of = made.model_copy(update={"budgets": budgets})
        result, seconds = timed(lambda of=of: wattsched.solve(of, objective="energy", gap=GAP))
        assert not result.faults
        assert result.proven_gap is not None
        energy = result.totals["energy_j"] / best.totals["energy_j"]
        yield (
            energy,
            result.totals.get("nodes_asleep", 0.0) / len(made.cluster.nodes),
            seconds,
            result.proven_gap,
        )


def sleeping(asked: Asked) -> str:
    """One row for each family, size and part."""
    wattsched.solve(wattsched.generate("uniform", jobs=300))  # modules are imported once
    rows = []
    for family in ("uniform", "sia-like"):
        for jobs in (30,) if asked.quick else (200, 1_000):
            found = []
            for seed in range(FIRST, FIRST + asked.seeds):
                say(f"{family} {jobs} --seed {seed}")
                instance: Any = wattsched.generate(family, jobs=jobs, seed=seed)
                found.append(list(measured(instance)))
            for (share, sleeps), values in zip(PARTS, np.array(found).transpose(1, 2, 0), strict=True):
                energy, asleep, seconds, gap = values
                nodes = "sleep" if sleeps else "always awake"
                figures = (f"{energy.mean():.1%}", f"{asleep.mean():.0%}", *mean_and_worst(seconds))
                rows.append(
                    [f"`{family}`, {jobs:,} jobs", f"{share:.0%}", nodes, *figures, f"{gap.max():.1e}"]
                )
    return f"{table(HEADER, rows)}\n\nMeasured on {machine()}, {asked.seeds} seeds from {FIRST}, gap {GAP:g}."


TABLES = {"sleeping": sleeping}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20)
