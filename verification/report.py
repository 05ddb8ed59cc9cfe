"""Results of checking a decision and of proving a bound, and the rules that all problems have in common."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

TOLERANCE = 1e-6
"""Relative tolerance of budgets, and of the numbers that a result states."""

ROUNDING = 1e-9
"""Relative error of times and amounts of work that counts as rounding."""

CLAIM_TOLERANCE = 1e-9
"""Tolerance of a claimed bound against the proven one, relative to the numbers that it is the sum of."""

LAST_DIGITS = 1e-11
"""Difference between sums that are computed in another order, relative to their terms."""

NEGLIGIBLE_PRICE = 1e-40
"""Smaller prices, the dust of a solver, count as 0: prices may be chosen freely, these cannot matter."""

LARGEST_PRICE = 1e100
"""Larger prices leave the range of doubles when they are multiplied with uses, and prove nothing."""

UNITS = {"power_w": " W", "energy_j": " J", "carbon_g": " g", "average_completion_s": " s"}
"""Units of budgets; money has none."""


@dataclass(frozen=True)
class Report:
    """Faults of a decision, and what it amounts to.

    Attributes
    ----------
    faults : list of str
        One line each; the decision is valid when there is none.
    objective : float, optional
        Recomputed; None when it has no meaning because of the faults.
    totals : dict of str to float
        What the decision uses and does, by names with their units such as ``carbon_g``.
    size : float
        Magnitude of the numbers that the objective is a difference of; 0 where it is none.
    dropped : frozenset of str
        Jobs that wait because they have no option.
    """

    faults: list[str]
    objective: float | None = None
    totals: dict[str, float] = field(default_factory=dict)
    size: float = 0.0
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Proof:
    """Bound that the row prices of a certificate prove.

    Attributes
    ----------
    faults : list of str
        Reasons why the prices prove nothing, one line each.
    bound : float, optional
        Proven: no decision has a better objective; rounded to the safe side.
    reach : float, optional
        Best bound that an honest computation can have found with these prices, where that is known.
    leeway : float
        Amount by which a decision may beat the bound because budgets are checked with a tolerance.
    excess : float
        Amount by which the bound lies above what any decision could cost at most, where that is known: above
        0 proves that there is no decision.
    exact : bool
        True if every number was rational.
    step : float
        What is proven of all but few decisions is rounded to whole multiples of it; 0 where it is not.
    short : str
        What the prices prove to be missing, in words, where they prove that there is no decision.
    """

    faults: list[str] = field(default_factory=list)
    bound: float | None = None
    reach: float | None = None
    leeway: float = 0.0
    excess: float = -math.inf
    exact: bool = False
    step: float = 0.0
    short: str = ""


def reach_of(bound: float, dearest: float) -> float:
    """Best bound on costs that honest rounding can have led to, where `bound` is proven.

    No decision costs more than `dearest`.
    """
    return bound + CLAIM_TOLERANCE * abs(bound) + LAST_DIGITS * abs(dearest)


def pairing_faults(jobs: Collection[str], running: Iterable[str], waiting: Iterable[str]) -> Iterator[str]:
    """Yield a fault for every job that does not run or wait, just once, and for names of no job."""
    running, waiting = list(running), list(waiting)
    named = {*running, *waiting}
    if len(running) + len(waiting) == len(named) and named == set(jobs):
        return
    runs, waits = Counter(running), Counter(waiting)
    for name in dict.fromkeys([*runs, *waits]):
        if name not in jobs:
            yield f"job '{name}' is not in the instance"
            continue
        if runs[name] > 1:
            yield f"job '{name}' is named {runs[name]} times among those that run"
        if waits[name] > 1:
            yield f"job '{name}' is named {waits[name]} times among those that wait"
        if runs[name] and waits[name]:
            yield f"job '{name}' runs and waits"
    for name in jobs:
        if name not in runs and name not in waits:
            yield f"job '{name}' neither runs nor waits"


def budget_faults(
    budgets: Iterable[tuple[str, Any]], totals: Mapping[str, float], tolerance: float
) -> Iterator[str]:
    """Yield a fault for every total above the budget of its name, by a relative tolerance."""
    for name, limit in budgets:
        if limit is not None and name in totals and exceeds(totals[name], limit, tolerance):
            needed, unit = totals[name], UNITS.get(name, "")
            yield f"budgets.{name}: the decision needs {needed:.9g}{unit}, the budget is {limit:.9g}{unit}"


def exceeds(value: float, limit: float, tolerance: float) -> bool:
    """True if a value exceeds its limit by more than a relative tolerance, or is not a number."""
    return not value <= limit + tolerance * abs(limit)


def charges(
    prices: Mapping[str, object],
    limits: Collection[str],
    equalities: Collection[str],
    sense: str,
    demands: Collection[str] = (),
) -> tuple[dict[str, float], list[str]]:
    """Return the cost of a unit of each row by the prices of a certificate, and the faults of the prices.

    Parameters
    ----------
    prices : mapping of str to number
        Derivative of the objective by the bound of a row: not positive for ``min``, not negative for ``max``.
        The other way round for demands, of either sign for equalities. Rows that are not named have price 0.
    limits, equalities, demands : collections of str
        The rows that there are: of which there is so much, exactly so much is used, or at least.

    Returns
    -------
    charged : dict of str to float
        In units of the cost that is minimised; of limits not negative, of demands not positive.
    faults : list of str
    """
    charged: dict[str, float] = {}
    faults = []
    sign = 1.0 if sense == "min" else -1.0
    # Signs of prices by which more of a row makes the objective worse, or better.
    worsens, betters = ("positive", "negative") if sense == "min" else ("negative", "positive")
    for name, price in prices.items():
        this = f"certificate: the price {price!r:.40} of row '{name}'"
        if not is_finite(price):
            faults.append(f"{this} is not a finite number")
        elif abs(price) > LARGEST_PRICE:
            faults.append(f"{this} is beyond {LARGEST_PRICE:g}: it proves nothing")
        elif name in limits and sign * price > 0:
            faults.append(f"{this} is {worsens}: more of it cannot make a {sense} objective worse")
        elif name in demands and sign * price < 0:
            faults.append(f"{this} is {betters}: to ask for more cannot make a {sense} objective better")
        elif name not in limits and name not in equalities and name not in demands:
            faults.append(f"{this} proves nothing: the instance has no row of that name")
        elif abs(price) >= NEGLIGIBLE_PRICE:
            charged[name] = -sign * float(price)
    return charged, faults


def number(content: Mapping[str, object], name: str) -> float | None:
    """A field that is a finite number; None for anything else."""
    value = content.get(name)
    return float(value) if is_finite(value) else None


def is_finite(value: object) -> TypeGuard[int | float]:
    """True if a value is a number in the range of doubles."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond the range
        return False
