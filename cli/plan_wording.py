"""Objectives, totals and prices of problems with decisions of their own, in words."""

from __future__ import annotations

from wattsched.cli.wording import (
    Goal,
    Scarce,
    duration,
    energy,
    number,
    percent,
    quantity,
    scarce,
    unit_price,
)

GOALS = {
    ("shifting", "completion"): Goal("average completion time", "s", "save"),
    ("shifting", "carbon"): Goal("carbon", "g", "save"),
    ("shifting", "energy"): Goal("energy", "J", "save"),
    ("shifting", "money"): Goal("cost", "", "save"),
    ("sharing", "eaco"): Goal("weighted energy and epoch time", "kWh and h", "save"),
    ("sharing", "energy"): Goal("energy until all running jobs are complete", "kWh", "save"),
    ("sharing", "power"): Goal("power", "W", "save"),
    ("sharing", "throughput"): Goal("normalised throughput", "", "gain"),
}


def goal_of_plan(problem: str, objective: str, sense: str) -> Goal:
    """Words for an objective; one that has none is called by its name."""
    return GOALS.get((problem, objective), Goal(objective, "", "save" if sense == "min" else "gain"))


def spoken(name: str, value: float) -> tuple[str, str]:
    """A total in words: its name without the unit, and the amount with it."""
    for suffix, words in (
        ("_w", lambda watts: quantity(watts, "W")),
        ("_j", energy),
        ("_g", lambda grams: quantity(grams, "g")),
        ("_s", duration),
        ("_pct", lambda share: percent(share / 100)),
    ):
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", " "), words(value)
    return name.replace("_", " "), number(value)


def priced(row: str, price: float, goal: Goal) -> tuple[str, str]:
    """A price in words: what is scarce, and what a unit more of it is worth."""
    kind, _, slot = row.partition("@")
    if slot:
        of = scarce(kind)
        return f"{of.label} in slot {slot}", f"{goal.amount(price)} per {of.unit}"
    if row.startswith("nodes:"):
        return f"{row.removeprefix('nodes:')} nodes", f"{goal.amount(price)} per node"
    known: Scarce = scarce(row)
    if known.unit == "unit":
        return row.replace("_", " "), goal.amount(price)
    return known.label, unit_price(row, price, goal)
