"""Marginal prices: the worth of one more of every capacity and budget, the cost of one less, their range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType

import numpy as np
from pydantic import BaseModel

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.instances.errors import require
from wattsched.report.marginal import MarginalPrice
from wattsched.solvers.parametric import ParametricLp
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits, Solution, rounding
from wattsched.solving.engine import limits_of, model_of, sound_instance
from wattsched.topology.arrays import FloatArray
from wattsched.verification.claims import INTERNAL

NOT_DERIVED = "only linear relaxations whose rows are all capacities and budgets have marginal prices"
NOT_IN_TIME = "the prices were not found within the time limit"

# What is less, relative to the objective and for all that there is of a capacity, is the solver's noise.
_NOISE = 1e-9
_SOLVED_GAP = 1e-6


class NoPricesError(ValueError):
    """There are no marginal prices, or they were not found in time."""


def marginal_prices(
    instance: BaseModel | str | Path,
    *,
    formulation: str | None = None,
    objective: str | None = None,
    solved: bool = False,
    time_limit: float | None = None,
) -> dict[str, MarginalPrice]:
    """Tell what one more unit of each capacity and budget would improve, and what one less would cost.

    These are the one-sided derivatives of the linear relaxation, and the amounts for which they hold. A
    shadow price lies between the two. One more of ``buddy:POOL:SIZE`` or ``parts:POOL:SIZE`` is a whole free
    block or set of that size, which can also be used in smaller parts; of other rows it is a GPU, a watt, a
    joule.

    Parameters
    ----------
    instance, formulation, objective
        As for `solve`.
    solved : bool
        Also decide the instance with one more of each that is scarce in the relaxation.
    time_limit : float, optional
        Seconds for all; decisions with one more that are not found by then are left out.

    Returns
    -------
    dict of str to MarginalPrice
        By the names of `Result.prices`, for the rows that limit the relaxation; others are worth nothing.

    Raises
    ------
    NoPricesError
        A ValueError, for a formulation whose rows are others, an objective that is a bottleneck, and where
        the relaxation takes longer than the time limit.
    ValueError, TypeError, wattsched.InputError
        As of `solve`.
    """
    timer = Timer(limits_of(0.0, time_limit).time_s)
    require("formulation", formulation, (str, NoneType), "a name")
    require("objective", objective, (str, NoneType), "a name")
    require("solved", solved, (bool,), "True or False")
    sound, kind = sound_instance(instance)
    goal = kind.objective(sound.objective if objective is None else objective)
    model = model_of(sound, formulation=formulation, objective=objective, timer=timer)
    program = model.listed
    if not model.lagrangian or program.bottleneck is not None:
        raise NoPricesError(f"formulation '{formulation or kind.default}', objective '{goal}': {NOT_DERIVED}")
    relaxation = ParametricLp(program, timer)
    if math.isinf(relaxation.cost) and timer.over():
        raise NoPricesError(NOT_IN_TIME)
    place = {name: row for row, name in enumerate(program.row_names())}
    at_limit = [
        name for name, row in place.items() if relaxation.limits[row] and not name.startswith(INTERNAL)
    ]
    one_more = {name: _one_more(name, place) for name in at_limit}
    found = {name: _price(relaxation, program, added) for name, added in one_more.items()}
    return _decided(program, found, one_more, timer) if solved else found


def _one_more(name: str, place: Mapping[str, int]) -> FloatArray:
    """One more of a row, as what it adds to the limits of all rows, shape (n_rows,)."""
    added = np.zeros(len(place))
    added[place[name]] = 1.0
    kind, _, rest = name.partition(":")
    pool, _, size = rest.rpartition(":")
    if kind in ("buddy", "parts"):
        added[place[f"gpus:{pool}"]] = int(size)
        for below in range(2, int(size) + 1):
            if (row := place.get(f"{kind}:{pool}:{below}")) is not None:
                added[row] = int(size) - int(size) % below
    return added


def _price(relaxation: ParametricLp, program: Program, more: FloatArray) -> MarginalPrice:
    """Derivatives of the relaxation in both directions."""
    moved = np.flatnonzero(more)
    limit = np.where(np.isfinite(program.row_upper), program.row_upper, program.row_lower)[moved]
    none_left = not limit.all()
    up, down = relaxation.slope(more), None if none_left else relaxation.slope(-more)
    if up is None or (down is None and not none_left):
        raise NoPricesError(NOT_IN_TIME)
    least = _NOISE * max(1.0, abs(relaxation.cost)) / max(1.0, float(np.abs(limit / more[moved]).min()))
    improved = 0.0 if abs(up.per_unit) <= least else -up.per_unit
    if down is None:
        return MarginalPrice(improved, up.until, math.inf, 0.0)
    return MarginalPrice(
        improved, up.until, 0.0 if abs(down.per_unit) <= least else down.per_unit, down.until
    )


def _decided(
    program: Program, prices: Mapping[str, MarginalPrice], one_more: Mapping[str, FloatArray], timer: Timer
) -> dict[str, MarginalPrice]:
    """Prices with the least and the most that one more improves the optimum of the integer program."""
    scarce = [name for name, price in prices.items() if price.more > 0.0 or price.less > 0.0]
    now = _solved(program, timer, 1 + len(scarce))
    told = dict(prices)
    for left, name in zip(range(len(scarce), 0, -1), scarce, strict=True):
        added = one_more[name]
        then = _solved(replace(program, row_upper=program.row_upper + added), timer, left)
        if now.objective is None or then.objective is None:
            continue
        error = rounding(program, now.objective)
        gains = (now.bound - then.objective, now.objective - then.bound)
        least, most = (gain if gain > error else 0.0 for gain in gains)
        told[name] = replace(prices[name], decided=(min(least, most), most))
    return told


def _solved(program: Program, timer: Timer, shares: int) -> Solution:
    """Solution of a program, in one of so many shares of the time left."""
    limits = Limits(gap=_SOLVED_GAP, time_s=timer.share(1.0 / shares).remaining_s())
    return find_solver("auto")(program, limits)
