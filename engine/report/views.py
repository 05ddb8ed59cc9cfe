"""Views of the instances and decisions of each problem: one value per problem, in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from wattsched.report.terminal import heading, table
from wattsched.report.wording import BUDGET_ROWS, Goal, scarce, spoken

if TYPE_CHECKING:
    from rich.console import Console


def print_budgets(out: Console, budgets: Any, currency: str | None = None) -> None:
    """Print a problem's budgets, if there are any."""
    given = [(name, value) for name, value in budgets if value is not None and name != "objectives"]
    given += [(f"objective:{name}", limit) for name, limit in getattr(budgets, "objectives", {}).items()]
    if given:
        heading(out, "Budgets")
        rows = [
            (scarce(BUDGET_ROWS.get(name, name)).label, spoken(name, value, currency))
            for name, value in given
        ]
        table(out, ["", ">"], rows, header=False)


@dataclass(frozen=True)
class View:
    """Functions and words that print the instances and decisions of a problem.

    Attributes
    ----------
    goals : mapping of str to Goal
        Words for its objectives.
    about : callable
        Instance to its size in words.
    print_instance : callable
        Prints an instance on a console.
    print_decision : callable
        Prints a decision, with its instance or None.
    rows : callable
        Decision to the rows of a table, one per job or task, whose name comes first.
    capacities : callable
        Instance to its capacities besides budgets, by the names of their rows.
    parts : callable, optional
        Instance and decision to the parts of a page (`html.page`) about the decision; default: its rows.
    """

    goals: Mapping[str, Goal]
    about: Callable[[Any], str]
    print_instance: Callable[[Console, Any], None]
    print_decision: Callable[[Console, Any, Any], None]
    rows: Callable[[Any], list[dict[str, Any]]]
    capacities: Callable[[Any], dict[str, float]] = lambda instance: {}
    parts: Callable[[Any, Any], Iterable[Any]] | None = None

    def goal(self, objective: str, sense: str, instance: Any = None) -> Goal:
        """Words for an objective, of money in the instance's currency; one without is called by its name."""
        found = self.goals.get(objective, Goal(objective, verb="save" if sense == "min" else "gain"))
        currency = getattr(instance, "currency", None) if objective == "money" else None
        return replace(found, unit=currency) if currency else found


VIEWS = {
    "sizing": "wattsched.report.sizing",
    "shifting": "wattsched.report.shifting",
    "sharing": "wattsched.report.sharing",
    "placement": "wattsched.report.placement",
}


def view(problem: str) -> View:
    """View of a problem."""
    found: View = import_module(VIEWS[problem]).VIEW
    return found
