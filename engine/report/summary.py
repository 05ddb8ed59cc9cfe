"""A result on a page: how good it is, what it uses, what budgets are worth, who runs where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from wattsched.report.conflicts import print_conflict
from wattsched.report.marginal import MarginalPrice, print_marginal
from wattsched.report.terminal import bar, heading, line, rest_in, table
from wattsched.report.views import View, view
from wattsched.report.wording import (
    BUDGET_ROWS,
    Goal,
    count,
    duration,
    listed,
    percent,
    proof_text,
    reasons,
    scarce,
    spoken,
    total_label,
    unit_price,
    worth,
)

if TYPE_CHECKING:
    from rich.console import Console

MOST_PRICES = 12
LEAST_TOLD_GAP = 1e-6
NOISE = 1e-9
"""Part of the objective below which no price is told, for all that there is of a row."""

STYLES = {"optimal": "bold green", "feasible": "bold yellow"}

CHANGES = ("restarts", "migrations")
"""Totals that are told only where there are some."""

CHANGE_COST = "change_cost"
"""Total that the objective pays for changes, in its unit."""

CAPACITIES = {"gpus_used": "gpus_available"}
"""Totals whose capacity is another total."""


def stages_of(result: Any, problem: View, instance: Any) -> list[str]:
    """Say of each objective before the last of several in order what it came to, and what is kept of it."""
    found = []
    for place, stage in enumerate(result.stages, start=1):
        first = problem.goal(stage.objective_name, stage.sense, instance)
        told = proof_text(stage.gap, stage.proven_gap, stage.claimed)
        limit = first.amount(result.limits.get(stage.objective_name, stage.objective))
        side = "most" if stage.sense == "min" else "least"
        value = first.amount(stage.objective)
        found.append(f"{place}. {first.noun}: {value}, {told}; afterwards at {side} {limit}")
    return found


def print_result(
    out: Console, result: Any, instance: Any = None, marginal: Mapping[str, MarginalPrice] | None = None
) -> None:
    """Print a `Result`; with its instance also budgets, completion times and what is not scarce.

    With marginal prices these are told, and not the shadow prices that lie between them.
    """
    problem = view(result.problem)
    goal = problem.goal(result.objective_name, result.sense, instance)
    about = result.problem if instance is None else problem.about(instance)
    line(out, (result.instance, "bold"), f": {about}")
    line(out, (f"formulation {result.formulation}, solver {result.solver}", "dim"))
    for told in stages_of(result, problem, instance):
        line(out, told)
    _print_verdict(out, result, goal)
    if result.conflict is not None:
        print_conflict(out, result.conflict)
    for reason in reasons(result.dropped):
        line(out, ("left out", "yellow"), f": {reason}", indent=2)
    for fault in result.faults:
        line(out, ("not used", "yellow"), f": {fault}", indent=2)
    if result.totals:
        _print_totals(out, result.totals, goal, instance)
    if result.decision is not None:
        if marginal is None:
            stated = _above_noise(result, {} if instance is None else capacities(problem, instance))
            _print_prices(out, stated, goal, problem, instance)
        else:
            print_marginal(out, marginal, goal, () if instance is None else capacities(problem, instance))
        problem.print_decision(out, result.decision, instance)
    _print_time(out, result)


class Verdict(NamedTuple):
    """Verdict on an answer, in words; parts that do not apply are empty.

    Attributes
    ----------
    reason, amount : str
        Why it stopped, and the objective.
    gap, stopped, bound : str
        How close it is, who stopped it, and what no decision can have.
    detail : str
        What else is to be known.
    """

    reason: str
    amount: str
    gap: str
    stopped: str
    bound: str
    detail: str


def verdict_of(result: Any, goal: Goal) -> Verdict:
    """Put into words how an answer ended."""
    ended, least = result.termination, result.sense == "min"
    reason = ended.reason.replace("_", " ")
    # Faults are told by themselves.
    detail = "" if ended.detail in result.faults else ended.detail
    if result.objective is None:
        bound = "the solver's word: no certificate proves it" if result.claimed else ""
        if result.bound is not None:
            word = "at least" if least else "at most"
            bound = f"{goal.noun} is {word} {goal.amount(result.bound)} in any decision"
        return Verdict(reason, "", "", "", bound, detail)
    by = "the caller" if ended.limit == "stopped" else f"the {ended.limit} limit"
    if result.bound is None:
        bound, detail = "", ": ".join(filter(None, ("nothing says how good it is", detail)))
    else:
        bound = f"no decision can have {'less' if least else 'more'} than {_bounds(result, goal)}"
    gap = proof_text(result.gap, result.proven_gap, result.claimed)
    if goal.near_zero and result.bound is not None and result.gap >= LEAST_TOLD_GAP:
        gap += f" ({goal.amount(result.absolute_gap)})"
    return Verdict(
        reason,
        goal.amount(result.objective),
        gap,
        f"stopped by {by}" if ended.limit else "",
        bound,
        detail,
    )


def _print_verdict(out: Console, result: Any, goal: Goal) -> None:
    verdict, style = verdict_of(result, goal), STYLES.get(result.termination.reason, "bold red")
    if not verdict.amount:
        out.print()
        line(out, (verdict.reason, style), f": {verdict.detail}" if verdict.detail else "")
        if verdict.bound:
            line(out, (verdict.bound, "dim" if result.bound is None else ""))
        return
    heading(out, f"{goal.noun[:1].upper()}{goal.noun[1:]}")
    stopped = f" ({verdict.stopped})" if verdict.stopped else ""
    line(out, f"{verdict.amount}  ", (verdict.reason, style), f", {verdict.gap}{stopped}", indent=2)
    for sentence in filter(None, (verdict.bound, verdict.detail)):
        line(out, (sentence, "dim"), indent=2)


def _bounds(result: Any, goal: Goal) -> str:
    """The bound, and where it is claimed, what the certificate proves."""
    if not result.claimed:
        return goal.amount(result.bound)
    claimed = f"{goal.amount(result.bound)} (the solver's word)"
    if result.certificate is None:
        return claimed
    return f"{goal.amount(result.certificate.bound)} (proven), {claimed}"


class Use(NamedTuple):
    """Use that a decision makes of something: in words, of how much, and which part; "" and None without."""

    label: str
    amount: str
    of: str = ""
    share: float | None = None


def uses(totals: Mapping[str, float], instance: Any) -> list[Use]:
    """Totals with what there is of them; changes of running jobs are told otherwise."""
    untold = {*CHANGES, CHANGE_COST, *CAPACITIES.values()}
    budgets, currency = getattr(instance, "budgets", None), getattr(instance, "currency", None)
    return [
        _use(name, value, totals.get(CAPACITIES.get(name, ""), getattr(budgets, name, None)), currency)
        for name, value in totals.items()
        if name not in untold
    ]


def _use(name: str, value: float, capacity: float | None, currency: str | None) -> Use:
    known = Use(total_label(name), spoken(name, value, currency))
    if not capacity:
        return known
    return known._replace(of=spoken(name, capacity, currency), share=max(0.0, value / capacity))


def _print_totals(out: Console, totals: Mapping[str, float], goal: Goal, instance: Any) -> None:
    to_completion = getattr(getattr(instance, "budgets", None), "scope", None) == "completion"
    heading(out, "Uses", "energy until all jobs are complete" if to_completion else "")
    rows = [
        (used.label, used.amount, "", "", "")
        if used.share is None
        else (used.label, used.amount, f"of {used.of}", percent(used.share), bar(used.share))
        for used in uses(totals, instance)
    ]
    table(out, ["", ">", ">", ">", ""], rows, header=False)
    if any(totals.get(name) for name in CHANGES):
        changes = [count(int(totals[name]), name[:-1]) for name in CHANGES if name in totals]
        cost = f", which cost {goal.amount(totals[CHANGE_COST])}" if totals.get(CHANGE_COST) else ""
        line(out, f"running jobs: {', '.join(changes)}{cost}", indent=2)


class PriceRow(NamedTuple):
    """Price of a budget: its name, the price in words and as a number, and what more is worth at most."""

    label: str
    price: str
    value: float
    worth: str


def price_rows(stated: Mapping[str, float], goal: Goal, capacities_of: Mapping[str, float]) -> list[PriceRow]:
    """Prices that are not 0; what there is in every slot comes after what there is once."""
    # What ties the plans of scenarios together is no limit that could be another.
    prices = {row: price for row, price in stated.items() if price != 0 and "/runs:" not in row}
    ordered = sorted(prices.items(), key=lambda known: "@" in known[0])
    return [
        PriceRow(
            scarce(row).label,
            unit_price(row, price, goal),
            price,
            worth(row, prices, goal, capacities_of.get(row)),
        )
        for row, price in ordered
    ]


def _above_noise(result: Any, known: Mapping[str, float]) -> dict[str, float]:
    """Prices that mean something for all that there is of a row; less is what solvers' tolerances leave."""
    least = NOISE * max(1.0, abs(result.objective or 0.0))
    return {row: p for row, p in result.prices.items() if abs(p) * max(1.0, known.get(row, 1.0)) > least}


def _print_prices(
    out: Console, stated: Mapping[str, float], goal: Goal, problem: View, instance: Any
) -> None:
    known = {} if instance is None else capacities(problem, instance)
    priced = price_rows(stated, goal, known)
    if not priced and not known:
        return
    text = "" if goal.in_steps else ", in the linear relaxation"
    heading(out, "Prices", f"what more of each budget would {goal.verb} in {goal.noun}{text}")
    rows = [(row.label, row.price, row.worth) for row in priced]
    table(out, ["", ">", ""], rows, header=False, most=MOST_PRICES, hint=rest_in(instance))
    if spare := [scarce(row).label for row in known if not stated.get(row)]:
        line(out, (f"not scarce, price 0: {listed(spare)}", "dim"), indent=2)


def capacities(problem: View, instance: Any) -> dict[str, float]:
    """Capacities and budgets of an instance by the names of their rows."""
    budgets = {
        BUDGET_ROWS.get(name, name): value
        for name, value in getattr(instance, "budgets", ())
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return problem.capacities(instance) | budgets


def _print_time(out: Console, result: Any) -> None:
    phases = [f"{name} {duration(s)}" for name, s in result.time_s.items() if name != "total"]
    total = result.time_s.get("total")
    if total is None:
        return
    out.print()
    size = "" if result.size is None else f"{result.size.columns:,} columns, {result.size.rows:,} rows; "
    line(out, (f"{size}{': '.join(filter(None, [duration(total), ', '.join(phases)]))}", "dim"))
