"""Grams saved and time gained by looking at the forecast, and certified sizes.

``python benchmarks/shifting.py --write`` puts the tables into docs/tables. It needs WATTSCHED_DATA, the
folder of the public data sets.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tables import machine, table, write

from wattsched import solve
from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.heuristics import carbon_blind
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance
from wattsched.result import Result
from wattsched.verification.shifting.checker import check

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
PARTS = (1.0, 0.9)
SIZES = ((200, 48), (1000, 96))


@dataclass(frozen=True)
class Compared:
    """Grams with room in time, and grams of idle GPUs."""

    blind_g: float
    aware_g: float
    standing_g: float


@dataclass(frozen=True)
class WithinBudget:
    """Average completion times at equal grams: of the rule, blind, with the forecast, and no less than."""

    rule_s: float | None
    blind_s: float
    aware_s: float
    bound_s: float


def flat(instance: ShiftingInstance) -> ShiftingInstance:
    """The same without a forecast: its average in every slot."""
    values = (instance.carbon_g_per_kwh or [])[: instance.slots]
    return instance.model_copy(update={"carbon_g_per_kwh": [sum(values) / len(values)] * len(values)})


def bounded(instance: ShiftingInstance, objective: str, **budgets: float) -> ShiftingInstance:
    return instance.model_copy(update={"objective": objective, "budgets": HorizonBudgets(**budgets)})


def unseen(instance: ShiftingInstance, seconds: float) -> Result:
    """Decide for a flat forecast; totals are those under the true one."""
    blind = solve(flat(instance), gap=5e-3, time_limit=seconds)
    if blind.decision is None:
        return blind
    report = check(bounded(instance, instance.objective), blind.decision)
    return blind.model_copy(update={"totals": report.totals})


def compare(instance: ShiftingInstance, seconds: float) -> Compared:
    """Decide at a flat forecast and at the true one: grams at equal times, and times at equal grams."""
    quickest = solve(bounded(instance, "mean-completion"), gap=5e-3, time_limit=seconds)
    assert quickest.objective is not None
    roomy = bounded(instance, "carbon", average_completion_s=FACTOR * quickest.objective)
    result = unseen(roomy, seconds)
    blind = result.totals
    same_time = bounded(instance, "carbon", average_completion_s=blind["average_completion_s"] * (1 + 1e-6))
    aware = solve(same_time, gap=5e-3, time_limit=seconds, initial_solution=result).totals
    return Compared(blind["carbon_g"], aware["carbon_g"], standing_g(instance))


def standing_g(instance: ShiftingInstance) -> float:
    """Grams of idle GPUs."""
    nobody = bounded(instance, "carbon").model_copy(update={"jobs": []})
    return check(nobody, ShiftingDecision(jobs=[], waiting=[])).totals["carbon_g"]


def within(instance: ShiftingInstance, part: float, seconds: float) -> WithinBudget | None:
    """Decide within a part of the grams that the rule's jobs emit without a budget; None where nobody does.

    The decision for a flat forecast has a budget of its own, cut until it keeps to the true one.
    """
    free = bounded(instance, "mean-completion")
    idle_g = standing_g(instance)
    rule_g = check(free, carbon_blind(horizon_of(free), "mean-completion")).totals["carbon_g"]
    budget_g = idle_g + part * (rule_g - idle_g)
    rule = carbon_blind(
        horizon_of(bounded(instance, "mean-completion", carbon_g=budget_g)), "mean-completion"
    )
    told_g = budget_g
    for _ in range(2):
        blind = unseen(bounded(instance, "mean-completion", carbon_g=told_g), seconds)
        if blind.decision is None:
            return None
        if (grams := blind.totals["carbon_g"]) <= budget_g * (1 + 1e-6):
            break
        told_g = idle_g + (told_g - idle_g) * (budget_g - idle_g) / (grams - idle_g)
    # What is left over after the last cut, or of the budget, counts for both.
    equal = bounded(instance, "mean-completion", carbon_g=grams * (1 + 1e-9))
    aware = solve(equal, gap=2e-3, time_limit=seconds, initial_solution=blind)
    assert aware.objective is not None
    return WithinBudget(
        None if rule is None else check(free, rule).totals["average_completion_s"],
        blind.totals["average_completion_s"],
        aware.objective,
        aware.bound or 0.0,
    )


def horizons(data: Path, grid: str) -> list[ShiftingInstance]:
    """The days of a grid."""
    file, zone = GRIDS[grid]
    return [
        shifting_horizon(jobs=JOBS, slots=SLOTS, seed=seed, carbon=str(data / file), zone=zone, start=start)
        for seed, start in enumerate(STARTS)
    ]


def budgets(data: Path, seconds: float) -> str:
    """Means over the days."""
    rows = []
    for grid in GRIDS:
        for part in PARTS:
            tried = [within(instance, part, seconds) for instance in horizons(data, grid)]
            if not (found := [w for w in tried if w is not None]):
                continue
            blind, aware, bound = (
                sum(getattr(w, name) for w in found) / len(found) / 3600
                for name in ("blind_s", "aware_s", "bound_s")
            )
            rules = [w.rule_s for w in found if w.rule_s is not None]
            rule = sum(rules) / len(rules) / 3600 if len(rules) == len(found) else None
            hours = [f"{value:.2f}" for value in (blind, aware, bound)]
            gained = [f"{100 * (1 - x / blind):.1f} %" for x in (aware, bound)]
            of_rule = ["none", ""]
            if rule is not None:
                of_rule = [f"{rule:.2f}", f"{100 * (1 - aware / rule):.1f} %"]
            rows.append([grid, f"{100 * part:.0f} %", of_rule[0], *hours, of_rule[1], *gained])
            print(rows[-1], flush=True)
    header = ["grid", "grams", "`carbon-blind`, h", "flat, h", "forecast, h", "bound, h"]
    return table([*header, "gained on the rule", "on flat", "at most"], rows)


def savings(data: Path, seconds: float) -> str:
    """Means over the days."""
    rows = []
    for grid in GRIDS:
        found = [compare(instance, seconds) for instance in horizons(data, grid)]
        jobs_g = sum(c.blind_g - c.standing_g for c in found)
        saved_g = sum(c.blind_g - c.aware_g for c in found)
        rows.append(
            [
                grid,
                f"{jobs_g / len(found) / 1000:.1f}",
                f"{saved_g / len(found) / 1000:.2f}",
                f"{100 * saved_g / jobs_g:.1f} %",
                f"{100 * saved_g / sum(c.blind_g for c in found):.1f} %",
            ]
        )
        print(rows[-1], flush=True)
    header = [
        "grid",
        "kg of jobs, blind",
        "kg saved",
        "of the jobs'",
        "of all",
    ]
    return table(header, rows)


def sizes(seconds: float) -> str:
    """Gap and seconds of large horizons."""
    rows = []
    for jobs, slots in SIZES:
        begin = time.perf_counter()
        result = solve(shifting_horizon(jobs=jobs, slots=slots, seed=1), gap=1e-3, time_limit=seconds)
        took = time.perf_counter() - begin
        assert result.objective is not None
        assert result.gap is not None
        greedy = solve(
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
    parser.add_argument("--seconds", type=float, default=55.0, help="for each large horizon")
    parser.add_argument("--small-seconds", type=float, default=8.0, help="for each comparison")
    parser.add_argument("--only", choices=["savings", "budgets", "sizes"])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    arguments = parser.parse_args()
    if "WATTSCHED_DATA" not in os.environ:
        raise SystemExit("set WATTSCHED_DATA to the folder of the public data sets")
    data, parts = Path(os.environ["WATTSCHED_DATA"]), {}
    if arguments.only in (None, "sizes"):
        parts["sizes"] = f"{sizes(arguments.seconds)}\n\n({machine()}.)"
    if arguments.only in (None, "savings"):
        parts["savings"] = savings(data, arguments.small_seconds)
    if arguments.only in (None, "budgets"):
        parts["budgets"] = budgets(data, arguments.small_seconds)
    for part, content in parts.items():
        print(f"\n{content}\n")
        if arguments.write:
            write(f"shifting-{part}", content)


if __name__ == "__main__":
    main()
