"""A result on a page: how good it is, what it uses, what budgets are worth, who runs where."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wattsched.cli.decision_table import print_decision
from wattsched.cli.terminal import bar, heading, line, table
from wattsched.cli.wording import (
    count,
    duration,
    energy,
    goal_of,
    listed,
    percent,
    quantity,
    scarce,
    unit_price,
    worth,
)

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.instances.sizing.instance import Instance
    from wattsched.result import Result

MOST_PRICES = 12
STYLES = {"optimal": "bold green", "feasible": "bold yellow"}


def print_result(out: Console, result: Result, instance: Instance | None = None) -> None:
    """Print a result; with its instance also budgets, waiting times and what is not scarce."""
    _print_header(out, result, instance)
    _print_verdict(out, result)
    if result.totals is not None:
        _print_totals(out, result, instance)
    if result.decision is not None:
        _print_prices(out, result, instance)
        print_decision(out, result.decision, instance)
    _print_time(out, result)


def _print_header(out: Console, result: Result, instance: Instance | None) -> None:
    about = ""
    if instance is not None:
        cluster = instance.cluster
        jobs, gpus = count(len(instance.jobs), "job"), count(cluster.total_gpus, "GPU")
        about = f": {jobs} on {gpus} in {count(len(cluster.nodes), 'node')}"
    line(out, (result.instance, "bold"), about)
    line(out, (f"formulation {result.formulation}, solver {result.solver}", "dim"))


def _print_verdict(out: Console, result: Result) -> None:
    ended, goal = result.termination, goal_of(result.objective_name, result.sense)
    style = STYLES.get(ended.reason, "bold red")
    if result.objective is None:
        out.print()
        detail = f": {ended.detail}" if ended.detail else ""
        line(out, (ended.reason.replace("_", " "), style), detail)
        if result.bound is not None:
            word = "at least" if result.sense == "min" else "at most"
            line(out, f"{goal.noun} is {word} {goal.amount(result.bound)} in any decision")
        return
    heading(out, f"{goal.noun[:1].upper()}{goal.noun[1:]}")
    stopped = f" (stopped by the {ended.limit} limit)" if ended.limit else ""
    gap = "no bound" if result.gap is None else f"gap {percent(result.gap)}"
    line(out, f"{goal.amount(result.objective)}  ", (ended.reason, style), f", {gap}{stopped}", indent=2)
    if result.bound is not None:
        word = "less" if result.sense == "min" else "more"
        line(out, (f"no decision can have {word} than {goal.amount(result.bound)}", "dim"), indent=2)
    if ended.detail:
        line(out, (ended.detail, "dim"), indent=2)


def _print_totals(out: Console, result: Result, instance: Instance | None) -> None:
    totals = result.totals
    assert totals is not None
    budgets = None if instance is None else instance.budgets
    scope = "energy until all jobs are complete" if budgets and budgets.scope == "completion" else ""
    power_w, energy_j, carbon_g = (
        (None, None, None) if budgets is None else (budgets.power_w, budgets.energy_j, budgets.carbon_g)
    )
    rows = [
        _used("GPUs", totals.gpus_used, totals.gpus_available, "{:,}".format),
        _used("power", totals.power_w, power_w, lambda watts: quantity(watts, "W")),
        _used("energy", totals.energy_j, energy_j, energy),
    ]
    if totals.carbon_g is not None:
        rows.append(_used("CO2", totals.carbon_g, carbon_g, lambda grams: quantity(grams, "g")))
    heading(out, "Uses", scope)
    table(
        out,
        [("", "left"), ("used", "right"), ("of", "right"), ("", "right"), ("", "left")],
        rows,
        header=False,
    )
    if totals.restarts or totals.migrations:
        moved = [count(totals.restarts, "restart"), count(totals.migrations, "migration")]
        line(out, f"running jobs: {', '.join(moved)}", indent=2)


def _used(label: str, value: float, capacity: float | None, words: Callable[[float], str]) -> tuple[str, ...]:
    if not capacity:
        return (label, words(value), "", "", "")
    share = value / capacity
    return (label, words(value), f"of {words(capacity)}", percent(share), bar(share))


def _print_prices(out: Console, result: Result, instance: Instance | None) -> None:
    goal = goal_of(result.objective_name, result.sense)
    prices = {row: price for row, price in result.prices.items() if price > 0}
    if not prices and instance is None:
        return
    heading(out, "Prices", f"what a little more of each budget would {goal.verb} in {goal.noun}")
    capacities = {} if instance is None else capacities_of(instance)
    rows = [
        (scarce(row).label, unit_price(row, price, goal), worth(row, prices, goal, capacities.get(row)))
        for row, price in list(prices.items())[:MOST_PRICES]
    ]
    table(out, [("", "left"), ("", "right"), ("", "left")], rows, header=False)
    if len(prices) > MOST_PRICES:
        line(out, (f"... {len(prices) - MOST_PRICES} more, use --json or -o", "dim"), indent=2)
    spare = [scarce(row).label for row in capacities if row not in prices]
    if spare:
        line(out, (f"not scarce, price 0: {listed(spare)}", "dim"), indent=2)


def capacities_of(instance: Instance) -> dict[str, float]:
    """Budgets of an instance by the names of their rows, those of GPUs included."""
    from wattsched.topology.pools import pools_of

    budgets = instance.budgets
    rows = {f"gpus:{pool.name}": float(pool.available.sum()) for pool in pools_of(instance.cluster)}
    named = {"power_w": budgets.power_w, "energy_j": budgets.energy_j, "carbon_g": budgets.carbon_g}
    rows |= {name: value for name, value in named.items() if value is not None}
    return rows | {f"power_w:{domain.name}": domain.power_cap_w for domain in instance.cluster.power_domains}


def _print_time(out: Console, result: Result) -> None:
    phases = [f"{name} {duration(s)}" for name, s in result.time_s.items() if name != "total"]
    total = result.time_s.get("total")
    if total is None:
        return
    out.print()
    size = "" if result.size is None else f"{result.size.columns:,} columns, {result.size.rows:,} rows; "
    line(out, (f"{size}{duration(total)}: {', '.join(phases)}", "dim"))
