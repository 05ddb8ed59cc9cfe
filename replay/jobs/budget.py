"""Budgets of energy, carbon or money that are renewed every period, and what is left of them at any moment.

A budget counts whatever the cluster draws, idle GPUs and nodes included. The idle draw until the end of the
period is set aside from the start: once no more than that is left, no job may run until the next period. So
no period is ever overspent, whatever a policy does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy.optimize import brentq

from wattsched.instances.units import J_PER_KWH
from wattsched.reading.inputs import meant
from wattsched.replay.jobs.accounts import PerKwh
from wattsched.report.wording import spoken
from wattsched.topology.arrays import FloatArray

Quantity = Literal["energy_j", "carbon_g", "money"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
UNITS: dict[Quantity, str] = {
    "energy_j": "joules",
    "carbon_g": "grams of CO2",
    "money": "that of the tariff",
}
ALIASES: dict[Quantity, tuple[str, ...]] = {
    "energy_j": ("joules", "energy", "kwh"),
    "carbon_g": ("carbon", "co2", "grams"),
    "money": ("cost", "price"),
}
"""Names that users may mean a quantity by."""

Pacing = Literal["even", "price", "plan", "none"]
PACINGS: tuple[Pacing, ...] = get_args(Pacing)

MOST_PERIODS = 1_000_000
_ROUNDING = 1e-12


def require_quantity(name: str) -> None:
    """Refuse an unknown quantity, by a ValueError that names the nearest, and all with their units."""
    if name not in QUANTITIES:
        called = (quantity for quantity, names in ALIASES.items() if name.lower() in names)
        near = meant(next(called, name), QUANTITIES)
        known = ", ".join(f"{quantity} (in {unit})" for quantity, unit in UNITS.items())
        raise ValueError(f"there is no budget '{name}'{near}; there are {known}")


@dataclass(frozen=True)
class Budget:
    """An amount for every period.

    Attributes
    ----------
    quantity : {"energy_j", "carbon_g", "money"}
    amount : float
        Joules, grams or money for each period.
    period_s : float
        Periods follow one another from the first arrival on.
    per_kwh : PerKwh
        What a kWh costs over time, in the unit of the quantity.
    pacing : {"even", "price", "plan", "none"}
        Whether what is left is spent in proportion to the time left, at a price that the policy learns, by a
        plan of the policy for the jobs to come (by one that has neither as with "even"), or whenever policies
        like: a hard total of the period.

    Raises
    ------
    ValueError
        When amount or period is not above 0.
    """

    quantity: Quantity
    amount: float
    period_s: float
    per_kwh: PerKwh
    pacing: Pacing = "even"

    def __post_init__(self) -> None:
        for name in ("amount", "period_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"budget: {name} must be above 0, got {getattr(self, name):g}")

    @classmethod
    def of_energy(cls, amount_j: float, period_s: float, pacing: Pacing = "even") -> Budget:
        """Return a budget of joules, which cost the same at any time."""
        return cls("energy_j", amount_j, period_s, PerKwh.constant(J_PER_KWH), pacing)

    @cached_property
    def planned(self) -> PerKwh:
        """Price of a kWh in plans: 0 where it is negative, as no job may be there to draw then."""
        return PerKwh(self.per_kwh.time_s, np.maximum(self.per_kwh.values, 0.0))

    def even_power_w(self, begin_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
        """Edges of the periods up to `end_s`, and the constant watts that spend each one's amount.

        The watts are nan where a kWh costs nothing.
        """
        begins = np.arange(begin_s, end_s, self.period_s)
        price = self.planned.per_watt(begins, begins + self.period_s)
        even_w = np.divide(self.amount, price, out=np.full(len(begins), np.nan), where=price > 0)
        return np.append(begins, end_s), even_w


@dataclass(frozen=True)
class Allowance:
    """Budget that is left at a moment.

    Attributes
    ----------
    left, left_s : float
        Amount and seconds left of the period.
    even_w : float
        Constant draw of the cluster that spends what is left by then; infinite without pacing, as the next.
    in_proportion_w : float
        Draw now at which what is left beyond the idle draw is spent in proportion to time: less where a kWh
        costs more.
    ahead : float
        What is left beyond the idle draw for each second left, over what the whole period had for each: above
        1 where less was spent than evenly.
    standing_w : float
        Draw when all GPUs are idle.
    spare : float
        What is left beyond the idle draw.
    per_joule : float
        Planned cost of a joule now, in the unit of the budget.
    exhausted : bool
        True if no more than the idle draw is left: no job may run.
    """

    left: float
    left_s: float
    even_w: float
    in_proportion_w: float
    ahead: float
    standing_w: float
    spare: float
    per_joule: float
    exhausted: bool


class Ledger:
    """Spending against a budget, period by period.

    Parameters
    ----------
    standing_w : float
        Draw of the cluster when all its GPUs are idle and all nodes awake.
    last_s : float
        Last moment that is known to come.

    Attributes
    ----------
    end_s, whole : float
        End of the present period, and what it has beyond the idle draw.
    begin_s, spent, short : lists
        Begin of each period, amount spent, and True if policies said at every moment of it that the budget
        kept jobs from drawing more.

    Raises
    ------
    ValueError
        When the budget of a period does not even pay for the idle draw, or there are too many periods.
    """

    _time_s: float
    end_s: float

    def __init__(self, budget: Budget, begin_s: float, standing_w: float, last_s: float = 0.0) -> None:
        if (last_s - begin_s) / budget.period_s > MOST_PERIODS:
            told = f"the last job arrives after {last_s - begin_s:g} s"
            raise ValueError(f"budget: {told}, more than {MOST_PERIODS:,} periods of {budget.period_s:g} s")
        self.budget, self._standing_w = budget, standing_w
        self.begin_s: list[float] = []
        self.spent: list[float] = []
        self.short: list[bool] = []
        self._open(begin_s)

    def advance(self, until_s: float, power_w: float, short: bool) -> None:
        """Count a constant draw until then, at most to the end of the period."""
        self.spent[-1] += power_w * float(self.budget.per_kwh.per_watt(self._time_s, until_s))
        self.short[-1] &= short
        self._time_s = until_s
        if until_s >= self.end_s:
            self._open(self.end_s)

    def next_s(self, power_w: float) -> float:
        """Return the time when this draw must end: with the period, or once only the idle draw is left."""
        spare, over_w = self._spare(), power_w - self._standing_w
        if over_w <= _ROUNDING * power_w or over_w * self._per_watt(self.end_s) <= spare:
            return self.end_s
        if spare <= _ROUNDING * self.budget.amount:
            return self._time_s
        return float(brentq(lambda at_s: over_w * self._per_watt(at_s) - spare, self._time_s, self.end_s))

    def allowance(self) -> Allowance:
        """Return the budget that is left now."""
        left, left_s = self.budget.amount - self.spent[-1], self.end_s - self._time_s
        per_joule = float(self.budget.planned.at(self._time_s)) / J_PER_KWH
        per_watt, spare = self._per_watt(self.end_s), self._spare()
        over_w = max(spare, 0.0) / (left_s * per_joule) if per_joule else math.inf
        exhausted = spare <= _ROUNDING * self.budget.amount
        even_w = left / per_watt if per_watt else math.inf
        if exhausted:  # at the very end of a period even a rounding error would be many watts
            even_w, over_w = min(even_w, self._standing_w), 0.0
        elif self.budget.pacing == "none":
            even_w = over_w = math.inf
        return Allowance(
            left=left,
            left_s=left_s,
            even_w=even_w,
            in_proportion_w=self._standing_w + over_w,
            ahead=max(spare, 0.0) / left_s * self.budget.period_s / self.whole if self.whole else 0.0,
            standing_w=self._standing_w,
            spare=max(spare, 0.0),
            per_joule=per_joule,
            exhausted=exhausted,
        )

    def _spare(self) -> float:
        """Amount that is left beyond the idle draw until the period ends."""
        return self.budget.amount - self.spent[-1] - self._standing_w * self._per_watt(self.end_s)

    def _per_watt(self, until_s: float) -> float:
        """Planned cost of a watt from now until a time."""
        return float(self.budget.planned.per_watt(self._time_s, until_s))

    def _open(self, begin_s: float) -> None:
        if len(self.begin_s) >= MOST_PERIODS:
            raise ValueError(f"budget: the replay has more than {MOST_PERIODS:,} periods")
        self._time_s, self.end_s = begin_s, begin_s + self.budget.period_s
        self.begin_s.append(begin_s)
        self.spent.append(0.0)
        self.short.append(True)
        self.whole = self._spare()
        if self.whole < 0:
            idle = self._standing_w * self._per_watt(self.end_s)
            quantity = self.budget.quantity
            given, needed = (spoken(quantity, amount) for amount in (self.budget.amount, idle))
            raise ValueError(
                f"budget: {quantity} is {given} in the period from {begin_s:g} s on, "
                f"but the idle cluster alone takes {needed}"
            )
