"""Marginal prices in words: what one more of each budget would save, and what one less would cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattsched.report.terminal import heading, line, table
from wattsched.report.wording import Goal, listed, number, quantity, readable, scarce

if TYPE_CHECKING:
    from rich.console import Console

MOST_PRICES = 12
_PIECES = {"buddy": "block", "parts": "part"}


@dataclass(frozen=True)
class MarginalPrice:
    """Worth of a unit more of a capacity or budget, and cost of one less, in the linear relaxation.

    Attributes
    ----------
    more, less : float
        Improvement per unit more and loss per unit less, in the unit of the objective; -inf and inf where
        nothing would be feasible. Both are negative for a least amount, such as ``least_goodput``.
    more_until, less_until : float
        Units for which that holds; infinite for any number.
    decided : pair of float, optional
        The least and the most that one more improves the best decision, where that was asked for.
    """

    more: float
    more_until: float
    less: float
    less_until: float
    decided: tuple[float, float] | None = None


def print_marginal(
    out: Console, prices: Mapping[str, MarginalPrice], goal: Goal, known: Iterable[str]
) -> None:
    """Print the prices of what is scarce, and the names of the `known` rows that are not."""
    rows = marginal_rows(prices, goal)
    heading(
        out, "Prices", f"of the linear relaxation: what a little more or less of each changes, in {goal.noun}"
    )
    table(out, titles(goal), rows, most=MOST_PRICES, hint=", all by marginal_prices in Python")
    scarce_rows = {row for row, price in prices.items() if price.more or price.less}
    if spare := [scarce(row).label for row in known if row not in scarce_rows]:
        line(out, (f"not scarce, price 0: {listed(spare)}", "dim"), indent=2)


def titles(goal: Goal) -> list[str]:
    """Titles of the columns of `marginal_rows`."""
    return ["", "per", f">more {goal.verb}s", ">up to", ">less costs", ">up to", f">decided: {goal.verb}s"]


def marginal_rows(prices: Mapping[str, MarginalPrice], goal: Goal) -> list[list[str]]:
    """Cells of the capacities and budgets of which a little more or less changes something."""
    return [_cells(row, price, goal) for row, price in prices.items() if price.more or price.less]


def _cells(row: str, price: MarginalPrice, goal: Goal) -> list[str]:
    known = scarce(row)
    scale, prefix = (
        (1.0, "") if known.counted or not known.unit else readable(price.more or price.less, known.unit)
    )
    unit = _PIECES.get(row.partition(":")[0], known.unit)

    def until(amount: float) -> str:
        if math.isinf(amount):
            return "any"
        return number(amount, 3) if known.counted or not known.unit else quantity(amount, known.unit)

    def amount(price: float) -> str:
        return "impossible" if math.isinf(price) else goal.amount(price * scale)

    decided = "" if price.decided is None else " to ".join(dict.fromkeys(map(goal.amount, price.decided)))
    return [
        known.label,
        f"{prefix}{unit}",
        amount(price.more),
        "" if math.isinf(price.more) else until(price.more_until),
        amount(price.less),
        "" if math.isinf(price.less) else until(price.less_until),
        decided,
    ]
