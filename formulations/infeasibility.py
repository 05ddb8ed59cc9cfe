"""Instances without a decision: what proves it, and which limits are short, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BUDGETS = {
    "completion_s": "average_completion_s",
    **{name: name for name in ("power_w", "energy_j", "carbon_g", "money")},
}
"""Field of the instance's budgets by row."""

POOLS = ("gpus", "nodes")
"""Prefixes of the names of rows of pools and units."""


@dataclass(frozen=True)
class ShortRow:
    """A row that cannot be satisfied, in the row's unit.

    Attributes
    ----------
    row : str
    needed : float
        Least use that is possible; for a lower limit, the use that is demanded.
    available : float
        The row's upper limit; for a lower limit, the greatest use that is possible.
    short_by : float
        The difference.
    alone : bool
        True when no choice satisfies this row, whatever the other rows say. Otherwise `short_by` is this
        row's part in the least relative increase of limits, over all rows, that makes the program feasible.
    at_least : float
        What the limit lacks at least if no other one is changed.
    """

    row: str
    needed: float
    available: float
    short_by: float
    alone: bool
    at_least: float

    def times(self, unit: float) -> ShortRow:
        """The row in the unit of its name, where it was counted in a unit of so many of these."""
        ends = self.needed * unit, self.available * unit, self.short_by * unit
        return ShortRow(self.row, *ends, self.alone, self.at_least * unit)


@dataclass(frozen=True)
class InfeasibilityProof:
    """Prices whose bound no decision can reach, that bound, and what is short in words."""

    prices: Mapping[str, float]
    bound: float
    detail: str


class InfeasibleError(Exception):
    """While a formulation built its program, it proved that the instance has no decision."""

    def __init__(self, detail: str, proof: InfeasibilityProof | None = None) -> None:
        super().__init__(detail)
        self.detail, self.proof = detail, proof


def is_limit(row: str) -> bool:
    """True if a row is a budget or a pool: a limit that could be another."""
    return row in BUDGETS or row.partition(":")[0] in POOLS


def describe_limit(data: object, short: ShortRow) -> str | None:
    """Say what a budget or a pool lacks, or which job has no place; None for rows that stand for neither.

    A budget or a pool lacks at least what is said if no other limit is changed.
    """
    kind, _, name = short.row.partition(":")
    if kind == "job" and short.alone:
        return f"job '{name}' can neither run now nor wait"
    if is_limit(short.row):
        return f"{BUDGETS.get(short.row, short.row)} is short by at least {short.at_least:.6g}"
    return None
