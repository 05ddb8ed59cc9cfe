"""Grams saved and time gained by looking at the forecast, and certified sizes.

python -m benchmarks.shifting --write [--only shifting-sizes]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Asked, data, machine, run, say, table, timed
from wattsched import solve
from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.heuristics import carbon_blind
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance
from wattsched.results.result import Result
from wattsched.verification.shifting.checker import check

EIA = "carbon-eia-us-2022/{}_2022_hourly.csv.gz"
ZONES = "carbon-electricitymaps/zones123_2022_hourly_lca.csv.gz"
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
SIZES = ((100, 96, 10.0, 20), (200, 48, 60.0, 10), (1000, 96, 60.0, 5))
FIRST_SEED = 101


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
    """The same with an objective and budgets."""
    return instance.model_copy(update={"objective": objective, "budgets": HorizonBudgets(**budgets)})


def unseen(instance: ShiftingInstance, seconds: float) -> Result:
    """Decide for a flat forecast; totals are those under the true one."""
    blind = solve(flat(instance), gap=5e-3, time_limit=seconds)
    if blind.decision is None:
        return blind
    report = check(bounded(instance, instance.objective), blind.decision)
    return blind.model_copy(update={"totals": report.totals})


def saved(instance: ShiftingInstance, seconds: float) -> tuple[float, float, float]:
    """Grams of blind decisions with room in time, with the forecast at their times, and of idle GPUs."""
    quickest = solve(bounded(instance, "mean-completion"), gap=5e-3, time_limit=seconds)
    assert quickest.objective is not None
    roomy = bounded(instance, "carbon", average_completion_s=FACTOR * quickest.objective)
    blind = unseen(roomy, seconds)
    time_s = blind.totals["average_completion_s"] * (1 + 1e-6)
    same_time = bounded(instance, "carbon", average_completion_s=time_s)
    aware = solve(same_time, gap=5e-3, time_limit=seconds, initial_solution=blind)
    return blind.totals["carbon_g"], aware.totals["carbon_g"], standing_g(instance)


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
    flat_g = budget_g
    for _ in range(2):
        blind = unseen(bounded(instance, "mean-completion", carbon_g=flat_g), seconds)
        if blind.decision is None:
            return None
        if (grams := blind.totals["carbon_g"]) <= budget_g * (1 + 1e-6):
            break
        flat_g = idle_g + (flat_g - idle_g) * (budget_g - idle_g) / (grams - idle_g)
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


def horizons(asked: Asked) -> dict[str, list[ShiftingInstance]]:
    """The days of each grid."""
    jobs, slots, grids = (3, 6, list(GRIDS)[:1]) if asked.quick else (JOBS, SLOTS, list(GRIDS))

    def horizon(grid: str, seed: int, start: str) -> ShiftingInstance:
        file, zone = GRIDS[grid]
        carbon = str(data(file))
        return shifting_horizon(jobs=jobs, slots=slots, seed=seed, carbon=carbon, zone=zone, start=start)

    return {grid: [horizon(grid, seed, start) for seed, start in enumerate(STARTS)] for grid in grids}


def savings(asked: Asked) -> str:
    """Means over the days."""
    rows, limit_s = [], 1.0 if asked.quick else asked.small_limit
    for grid, days in horizons(asked).items():
        say(grid)
        blind_g, aware_g, idle_g = np.mean([saved(day, limit_s) for day in days], axis=0)
        jobs_g, saved_g = blind_g - idle_g, blind_g - aware_g
        shares = (f"{100 * saved_g / of:.1f} %" for of in (jobs_g, blind_g))
        rows.append([grid, f"{jobs_g / 1000:.1f}", f"{saved_g / 1000:.2f}", *shares])
    return table(["grid", "kg of jobs, blind", "kg saved", "of the jobs'", "of all"], rows)


def budgets(asked: Asked) -> str:
    """Means over the days."""
    rows, limit_s = [], 1.0 if asked.quick else asked.small_limit
    for grid, days in horizons(asked).items():
        for part in PARTS:
            say(f"{grid}, {part}")
            found = [w for day in days if (w := within(day, part, limit_s)) is not None]
            if not found:
                continue
            times_h = np.array([(w.blind_s, w.aware_s, w.bound_s) for w in found]).mean(axis=0) / 3600
            blind, aware, bound = times_h
            of_rule = ["none", ""]
            if all(w.rule_s is not None for w in found):
                rule = sum(w.rule_s or 0.0 for w in found) / len(found) / 3600
                of_rule = [f"{rule:.2f}", f"{100 * (1 - aware / rule):.1f} %"]
            gained = (f"{100 * (1 - x / blind):.1f} %" for x in (aware, bound))
            hours = (f"{value:.2f}" for value in times_h)
            rows.append([grid, f"{100 * part:.0f} %", of_rule[0], *hours, of_rule[1], *gained])
    header = ["grid", "grams", "`carbon-blind`, h", "flat, h", "forecast, h", "bound, h"]
    return table([*header, "gained on the rule", "on flat", "at most"], rows)


def sizes(asked: Asked) -> str:
    """Gaps of large horizons when the time is over, over many seeds."""
    rows = []
    for jobs, slots, limit_s, seeds in ((4, 12, 1.0, 1),) if asked.quick else SIZES:
        gaps, took_s, greedy = [], [], []
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            instance = shifting_horizon(jobs=jobs, slots=slots, seed=seed)
            result, seconds = timed(lambda of=instance, s=limit_s: solve(of, gap=1e-4, time_limit=s))
            gaps.append(1.0 if result.gap is None else result.gap)
            took_s.append(seconds)
            by_rule = solve(instance, solver="greedy", time_limit=1.0).objective
            if by_rule is not None and result.objective:
                greedy.append(by_rule / result.objective - 1)
        mean = float(np.exp(np.mean(np.log(np.maximum(gaps, 1e-6)))))
        shares = [f"{100 * value:.2g} %" for value in (mean, float(np.median(gaps)), max(gaps))]
        dearer = f"{100 * float(np.median(greedy)):.0f} %" if greedy else "none"
        rows.append(
            [f"{jobs:,} x {slots}", f"{seeds}", f"{limit_s:g}", *shares, f"{max(took_s):.1f}", dearer]
        )
    header = ["jobs x slots", "seeds", "limit, s", "gap, geometric mean", "median", "worst", "most s"]
    return f"{table([*header, '`greedy` costs more by'], rows)}\n\n({machine()}.)"


TABLES = {"shifting-savings": savings, "shifting-budgets": budgets, "shifting-sizes": sizes}

if __name__ == "__main__":
    run(__doc__, TABLES, small_limit=8.0)
