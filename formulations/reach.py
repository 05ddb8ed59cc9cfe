"""Budgets rescaled where they are so small that solvers, whose tolerances are absolute, ignore them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from wattsched.formulations.model import Model
from wattsched.formulations.tolerances import FEASIBILITY, VIOLATION
from wattsched.topology.arrays import FloatArray

TINY = 1e-2
"""Solvers round by a billionth, and a millionth of a smaller limit is hardly more."""

LARGEST_PRICE = 1e100
"""Larger prices prove no more: they leave the range of numbers when they are multiplied."""

# Uses are cut at this many times the unit: they exceed the capacity as they did before.
_MOST_UNITS = 100.0


def reached(
    use: FloatArray, capacity: float, limit: float, *, least: bool = False
) -> tuple[FloatArray, float, float] | None:
    """Rescale a budget that solvers would round away; return its uses, its capacity, and the unit.

    None where it needs no rescaling: its capacity is not so small, and no use so large, that tolerances
    exceed the budget. A requirement (`least`) is raised to the smallest use, as less is no easier to meet.

    Parameters
    ----------
    use : float array, shape (n_users,)
        Uses by integer columns. Where joules are paid for, some are negative: these make up for others, so
        that none is cut.
    capacity : float
        What is left of the `limit` for them.
    least : bool
        Whether the row is a requirement (at least `capacity`) rather than a budget (at most).
    """
    smallest, largest = float(use.min(initial=np.inf)), float(use.max(initial=0.0))
    rounded = -capacity <= FEASIBILITY * limit and capacity <= 0.0
    tiny = abs(capacity) < TINY and (smallest < TINY or least or capacity < 0.0)
    uneven = not least and VIOLATION * largest > FEASIBILITY * limit
    if smallest < 0.0:
        size = max(abs(capacity), -smallest, largest)
        unit = _unit(size)
        return (use / unit, capacity / unit, unit) if size < TINY else None
    if rounded or not (tiny or uneven):
        return None
    capacity = max(capacity, min(smallest, TINY)) if least else capacity
    unit = _unit(abs(capacity))
    with np.errstate(over="ignore"):
        return np.minimum(use / unit, _MOST_UNITS), capacity / unit, unit


def _unit(size: float) -> float:
    """Least power of two above a size: a division by it loses no digit."""
    _, exponent = np.frexp(size)
    return float(np.ldexp(1.0, int(exponent)))


def in_reach(model: Model[Any], limits: Mapping[str, float]) -> Model[Any]:
    """Return the model with its budget rows, given by name and limit, rescaled where solvers need it."""
    program, table = model.listed, csr_array(model.listed.matrix)
    upper, data, units, names = program.row_upper.copy(), table.data.copy(), {}, program.row_names()
    for name, limit in limits.items():
        row = names.index(name)
        entries = slice(table.indptr[row], table.indptr[row + 1])
        if (rescaled := reached(data[entries], float(upper[row]), limit)) is not None:
            use, upper[row], units[name] = rescaled
            integer = program.integer[table.indices[entries]]
            data[entries] = np.where(integer, use, data[entries] / units[name])
    if not units:
        return model
    named_prices = model.named_prices
    matrix = csr_array((data, table.indices, table.indptr), shape=table.shape).tocsc()
    return replace(
        model,
        program=replace(program, matrix=matrix, row_upper=upper),
        named_prices=None if named_prices is None else lambda y: in_units(named_prices(y), units),
        units=units,
    )


def in_units(prices: dict[str, float], units: Mapping[str, float]) -> dict[str, float]:
    """Convert prices per unit of a rescaled row into prices per unit of the budget, clipped to finite."""
    return {
        name: float(np.clip(price / units.get(name, 1.0), -LARGEST_PRICE, LARGEST_PRICE))
        for name, price in prices.items()
    }
