"""Tables of docs/shifting.md: grams saved and time gained by looking at the forecast, and certified sizes.

``python benchmarks/shifting.py --write`` needs WATTSCHED_DATA, the folder of the public data sets.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

from pages import DOCS, machine, replace_part, table

from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.checker import check
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance
from wattsched.planning import plan

EIA, ZONES = (
    "carbon-eia-us-2022/{}_2022_hourly.csv.gz",
    "carbon-electricitymaps/zones123_2022_hourly_lca.csv.gz",
)
GRIDS = {
    "California (CISO)": (EIA.format("CISO"), None),
    "Texas (ERCO)": (EIA.format("ERCO"), None),
    "Mid-Atlantic (PJM)": (EIA.format("PJM"), None),
    "Germany (DE)": (ZONES, "DE"),
    "Spain (ES)": (ZONES, "ES"),
    "France (FR)": (ZONES, "FR"),
}
STARTS = ("2022-04-12T00:00", "2022-10-11T00:00")
JOBS, SLOTS, FACTOR = 40, 48, 2.0
SIZES = ((200, 48), (1000, 96))


@dataclass(frozen=True)
class Compared:
    """Grams with room in time, idle GPUs' grams, and average completion times within a budget."""

    blind_g: float
    aware_g: float
    standing_g: float
    blind_s: float
    aware_s: float


def flat(instance: ShiftingInstance) -> ShiftingInstance:
    """The same without a forecast: its average in every slot."""
    values = (instance.carbon_g_per_kwh or [])[: instance.slots]
    return instance.model_copy(update={"carbon_g_per_kwh": [sum(values) / len(values)] * len(values)})


def bounded(instance: ShiftingInstance, objective: str, **budgets: float) -> ShiftingInstance:
    return instance.model_copy(update={"objective": objective, "budgets": HorizonBudgets(**budgets)})


def seen(instance: ShiftingInstance, seconds: float) -> dict[str, float]:
    """What the decision of a flat forecast amounts to under the true one."""
    decision = plan(flat(instance), gap=5e-3, time_limit=seconds).decision
    return check(bounded(instance, instance.objective), decision).totals


def compare(instance: ShiftingInstance, seconds: float) -> Compared:
    """Decide at a flat forecast and at the true one: grams at equal times, and times at equal grams."""
    quickest = plan(bounded(instance, "completion"), gap=5e-3, time_limit=seconds)
    assert quickest.objective is not None
    roomy = bounded(instance, "carbon", average_completion_s=FACTOR * quickest.objective)
    blind = seen(roomy, seconds)
    same_time = bounded(instance, "carbon", average_completion_s=blind["average_completion_s"] * (1 + 1e-6))
    aware = plan(same_time, gap=5e-3, time_limit=seconds).totals
    budget_g = (quickest.totals["carbon_g"] + blind["carbon_g"]) / 2
    tight = seen(bounded(instance, "completion", carbon_g=budget_g), seconds)
    same_grams = bounded(instance, "completion", carbon_g=tight["carbon_g"] * (1 + 1e-6))
    faster = plan(same_grams, gap=5e-3, time_limit=seconds).totals
    nobody = bounded(instance, "carbon").model_copy(update={"jobs": []})
    standing = check(nobody, ShiftingDecision(jobs=[], waiting=[])).totals
    return Compared(
        blind["carbon_g"],
        aware["carbon_g"],
        standing["carbon_g"],
        tight["average_completion_s"],
        faster["average_completion_s"],
    )


def savings(data: Path, seconds: float) -> str:
    """Means over the days."""
    rows = []
    for grid, (file, zone) in GRIDS.items():
        found = []
        for seed, start in enumerate(STARTS):
            instance = shifting_horizon(
                jobs=JOBS, slots=SLOTS, seed=seed, carbon=str(data / file), zone=zone, start=start,
            )  # fmt: skip
            found.append(compare(instance, seconds))
        jobs_g = sum(c.blind_g - c.standing_g for c in found)
        saved_g = sum(c.blind_g - c.aware_g for c in found)
        quicker = sum(1 - c.aware_s / c.blind_s for c in found) / len(found)
        rows.append(
            [
                grid,
                f"{jobs_g / len(found) / 1000:.1f}",
                f"{saved_g / len(found) / 1000:.2f}",
                f"{100 * saved_g / jobs_g:.1f} %",
                f"{100 * saved_g / sum(c.blind_g for c in found):.1f} %",
                f"{100 * quicker:.1f} %",
            ]
        )
        print(rows[-1], flush=True)
    header = [
        "grid",
        "kg of jobs, blind",
        "kg saved",
        "of the jobs'",
        "of all",
        "time gained within a budget",
    ]
    return table(header, rows)


def sizes(seconds: float) -> str:
    """Gap and seconds of large horizons."""
    rows = []
    for jobs, slots in SIZES:
        begin = time.perf_counter()
        result = plan(shifting_horizon(jobs=jobs, slots=slots, seed=1), gap=1e-3, time_limit=seconds)
        took = time.perf_counter() - begin
        assert result.objective is not None
        assert result.gap is not None
        greedy = plan(
            shifting_horizon(jobs=jobs, slots=slots, seed=1), solver="greedy", time_limit=1.0
        ).objective
        rows.append(
            [
                f"{jobs:,} x {slots}",
                f"{result.objective:,.0f}",
                f"{result.bound or 0.0:,.0f}",
                f"{100 * result.gap:.2f} %",
                f"{took:.0f}",
                "none" if greedy is None else f"{greedy:,.0f}",
            ]
        )
        print(rows[-1], flush=True)
    return table(["jobs x slots", "average completion, s", "bound", "gap", "seconds", "`greedy`"], rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=95.0, help="for each large horizon")
    parser.add_argument("--small-seconds", type=float, default=6.0, help="for each comparison")
    parser.add_argument("--only", choices=["savings", "sizes"])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/shifting.md")
    arguments = parser.parse_args()
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    parts = {}
    if arguments.only != "savings":
        parts["sizes"] = f"{sizes(arguments.seconds)}\n\n({machine()}.)"
    if arguments.only != "sizes":
        parts["savings"] = savings(Path(os.environ["WATTSCHED_DATA"]), arguments.small_seconds)
    for part, content in parts.items():
        print(f"\n{content}\n")
        if arguments.write:
            replace_part(DOCS / "shifting.md", part, content)


if __name__ == "__main__":
    main()
