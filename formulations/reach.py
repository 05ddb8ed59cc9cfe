"""Budgets in units in which solvers, whose tolerances are absolute, can tell what keeps them."""

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

# What uses more than there is is as impossible if it uses so many times as much.
_BEYOND = 100.0


def reached(
    use: FloatArray, capacity: float, limit: float, *, least: bool = False
) -> tuple[FloatArray, float, float] | None:
    """Rescale a budget that solvers would round away; return its uses, what there is of it, and the unit.

    None where solvers can tell it as it is: neither is there so little, nor does one use so much, that they
    would round it away. Where anything is to be had, the least that one column gives is.

    Parameters
    ----------
    use : float array, shape (n_users,)
        Of columns that are whole numbers, not negative.
    capacity : float
        What is left of the limit.
    least : bool
        Whether there must be as much at least.
    """
    smallest, largest = float(use.min(initial=np.inf)), float(use.max(initial=0.0))
    rounded = -capacity <= FEASIBILITY * limit and capacity <= 0.0
    little = abs(capacity) < TINY and (smallest < TINY or least or capacity < 0.0)
    much = not least and VIOLATION * largest > FEASIBILITY * limit
    if rounded or smallest < 0.0 or not (little or much):
        return None
    capacity = max(capacity, min(smallest, TINY)) if least else capacity
    unit = float(np.ldexp(1.0, int(np.frexp(abs(capacity))[1])))
    with np.errstate(over="ignore"):
        return np.minimum(use / unit, _BEYOND), capacity / unit, unit


def in_reach(model: Model[Any], limits: Mapping[str, float]) -> Model[Any]:
    """The model with rows of its budgets, by their names and limits, in units that solvers can tell."""
    program, table = model.listed, csr_array(model.listed.matrix)
    upper, data, units, names = program.row_upper.copy(), table.data.copy(), {}, program.row_names()
    for name, limit in limits.items():
        row = names.index(name)
        entries = slice(table.indptr[row], table.indptr[row + 1])
        if (known := reached(data[entries], float(upper[row]), limit)) is not None:
            whole = program.integer[table.indices[entries]]
            data[entries] = np.where(whole, known[0], data[entries] / known[2])
            _, upper[row], units[name] = known
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
    """Prices of rows in their names' units, some of which have other units in the program."""
    return {
        name: float(np.clip(price / units.get(name, 1.0), -LARGEST_PRICE, LARGEST_PRICE))
        for name, price in prices.items()
    }
