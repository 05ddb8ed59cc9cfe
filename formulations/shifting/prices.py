"""Prices of GPUs in slots and of budgets: their names, and what they make a schedule cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.program import FloatArray
from wattsched.formulations.shifting.horizon import CRITERIA, Horizon


@dataclass(frozen=True)
class Prices:
    """What schedules are charged, never negative.

    Attributes
    ----------
    criteria : float array, shape (4,)
        Price of each criterion; the objective's is one more than that of its budget.
    gpu : float array, shape (n_pools * slots,)
        Price of a GPU in each cell; infinite where none is to be had.
    """

    criteria: FloatArray
    gpu: FloatArray

    def per_joule(self, horizon: Horizon) -> FloatArray:
        """Price of a joule in every slot and, last, after the horizon, shape (slots + 1,)."""
        return np.asarray(self.criteria[1:] @ horizon.per_joule)

    def mixed(self, other: Prices, share: float) -> Prices:
        """Between these prices and others, `share` of these."""
        return Prices(
            share * self.criteria + (1 - share) * other.criteria, share * self.gpu + (1 - share) * other.gpu
        )


def budget_rows(horizon: Horizon) -> Iterator[tuple[int, str, float]]:
    """Number of the criterion, name, and limit without the idle GPUs' part of every budget."""
    for which, name in enumerate(CRITERIA):
        if np.isfinite(horizon.budget[which]):
            yield which, name, float(horizon.budget[which] - horizon.standing[which])


def row_names(horizon: Horizon) -> list[str]:
    """Name of every cell, by pool and then slot, and of every budget."""
    cells = [f"gpus:{pool}@{slot}" for pool in horizon.instance.pools for slot in range(horizon.slots)]
    return cells + [name for _, name, _ in budget_rows(horizon)]


def names_of_prices(named: list[tuple[str, int]], row_prices: FloatArray) -> dict[str, float] | None:
    """Prices of named rows of a program, without those of the wrong sign."""
    return {name: float(row_prices[row]) for name, row in named if row_prices[row] < 0}
