"""Watts of a GPU and what a lower clock or power limit does to the computation."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.cluster import Count, NonNegative, Positive, Strict


def _increasing(values: list[float], field: ValidationInfo) -> list[float]:
    if any(b <= a for a, b in pairwise(values)):
        raise ValueError(f"{field.field_name} must be increasing, got {values}")
    return values


INCREASING = (Field(min_length=1), AfterValidator(_increasing))
Counts = Annotated[list[Count], *INCREASING]


class FrequencyModel(Strict):
    """The clock as a knob: computation per sample takes ``a + (1 - a) * max_mhz / f`` times as long.

    Attributes
    ----------
    max_mhz : int
        Clock at which the throughput parameters hold.
    choices_mhz : list of int
        Clocks to offer, increasing, none above `max_mhz`.
    memory_bound_share : float
        a, the share of the computation that a lower clock does not slow down.
    """

    max_mhz: Count
    choices_mhz: Counts
    memory_bound_share: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _highest(self) -> Self:
        if self.choices_mhz[-1] > self.max_mhz:
            raise ValueError(f"choices_mhz has {self.choices_mhz[-1]}, above max_mhz {self.max_mhz}")
        return self

    def relative(self, frequency_mhz: ArrayLike) -> FloatArray:
        """Clock over `max_mhz`; nan stands for `max_mhz`.

        Raises
        ------
        ValueError
            For a clock that is not above 0 or is above `max_mhz`.
        """
        f = np.asarray(frequency_mhz, dtype=float)
        f = np.where(np.isnan(f), self.max_mhz, f)
        wrong = f[(f <= 0) | (f > self.max_mhz)]
        if wrong.size:
            raise ValueError(f"frequency_mhz {wrong.flat[0]:g} is not between 0 and max_mhz {self.max_mhz}")
        return f / self.max_mhz

    def stretch(self, frequency_mhz: ArrayLike) -> FloatArray:
        """How much longer the computation of a sample takes than at `max_mhz` (>= 1)."""
        a = self.memory_bound_share
        return np.asarray(a + (1.0 - a) / self.relative(frequency_mhz))


class PowerModel(Strict):
    """Draw of one GPU: ``static_w + dynamic_w * (f / f_max)^exponent`` computing, `sync_w` waiting.

    The average over an iteration weighs the two with ``T_grad / T_iter`` and the rest. For a profile
    with a power-limit table the table gives the computing draw, and only `sync_w` counts here.
    """

    static_w: NonNegative
    dynamic_w: NonNegative
    exponent: Positive = 3.0
    sync_w: NonNegative

    def computing_w(self, relative_frequency: ArrayLike = 1.0) -> FloatArray:
        """Draw while computing at a clock given as a share of the highest."""
        return np.asarray(self.static_w + self.dynamic_w * np.asarray(relative_frequency) ** self.exponent)


class PowerLimitTable(Strict):
    """Measured effect of the board power limit, by local batch.

    Attributes
    ----------
    limit_w : list of float
        Limits, increasing; columns of the tables.
    local_batch : list of int
        Local batches, increasing; rows of the tables.
    slowdown : list of lists of float
        Computation time over the one at the highest limit, >= 1.
    power_w : list of lists of float
        Average draw of one computing GPU.

    Notes
    -----
    Values between limits are interpolated linearly, between local batches linearly in the logarithm;
    below the first and above the last local batch the table is constant.
    """

    limit_w: Annotated[list[Positive], *INCREASING]
    local_batch: Counts
    slowdown: list[list[Annotated[float, Field(ge=1, allow_inf_nan=False)]]]
    power_w: list[list[Positive]]

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        for name, table in (("slowdown", self.slowdown), ("power_w", self.power_w)):
            if len(table) != len(self.local_batch) or any(len(row) != len(self.limit_w) for row in table):
                raise ValueError(
                    f"{name} must have {len(self.local_batch)} rows (one per local_batch) "
                    f"of {len(self.limit_w)} values (one per limit_w)"
                )
        return self

    def stretch(self, local_batch: ArrayLike, power_limit_w: ArrayLike) -> FloatArray:
        """How much longer the computation takes than at the highest limit (>= 1); nan: no limit set."""
        return self._interpolate(self.slowdown, local_batch, power_limit_w)

    def computing_w(self, local_batch: ArrayLike, power_limit_w: ArrayLike) -> FloatArray:
        """Draw of one GPU while computing; nan as the limit stands for the highest."""
        return self._interpolate(self.power_w, local_batch, power_limit_w)

    def _interpolate(
        self, table: list[list[float]], local_batch: ArrayLike, power_limit_w: ArrayLike
    ) -> FloatArray:
        limit = np.asarray(power_limit_w, dtype=float)
        low, high = self.limit_w[0], self.limit_w[-1]
        limit = np.where(np.isnan(limit), high, limit)
        wrong = limit[(limit < low) | (limit > high)]
        if wrong.size:
            raise ValueError(f"power_limit_w {wrong.flat[0]:g} is outside the measured {low:g} to {high:g} W")
        row, below, down = _between(np.log(self.local_batch), np.log(np.asarray(local_batch, dtype=float)))
        column, right, across = _between(np.asarray(self.limit_w), limit)
        values = np.asarray(table)
        upper = (1 - across) * values[row, column] + across * values[row, right]
        lower = (1 - across) * values[below, column] + across * values[below, right]
        return np.asarray((1 - down) * upper + down * lower)


def _between(knots: FloatArray, x: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Knots before and after each x, the ends beyond them, and the share of the way from one to the other."""
    position = np.interp(x, knots, np.arange(len(knots)))
    before = np.asarray(position, dtype=np.int64)
    return before, np.asarray(np.ceil(position), dtype=np.int64), position - before
