"""Watts of a GPU, what a lower clock or power limit does to the computation, and fits of both."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.fields import Count, NonNegative, Positive, Strict


def _increasing(values: list[float], field: ValidationInfo) -> list[float]:
    if any(b <= a for a, b in pairwise(values)):
        raise ValueError(f"{field.field_name} must be increasing, got {values}")
    return values


EXPONENTS, USUAL_EXPONENT = (1.0, 5.0), 3.0
CLOCKS_FOR_EXPONENT = 4
"""Least number of clocks that determines the exponent; with fewer, every exponent fits the measurements."""
TOTAL_WEIGHT = 1e4
"""Weight of the sum of all watts, where that is a board's limit, against relative errors of the watts."""
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
        """Clock over `max_mhz`, above 0 and at most 1, or a ValueError; nan stands for `max_mhz`."""
        f = np.asarray(frequency_mhz, dtype=float)
        f = np.where(np.isnan(f), self.max_mhz, f)
        wrong = f[(f <= 0) | (f > self.max_mhz)]
        if wrong.size:
            raise ValueError(f"frequency_mhz {wrong.flat[0]:g} is not between 0 and max_mhz {self.max_mhz}")
        return f / self.max_mhz

    def stretch(self, frequency_mhz: ArrayLike) -> FloatArray:
        """Compute the time of a sample's computation relative to that at `max_mhz` (>= 1)."""
        return self.stretch_at(self.relative(frequency_mhz))

    def stretch_at(self, relative_frequency: ArrayLike) -> FloatArray:
        """The same at clocks given as a share of `max_mhz`."""
        a = self.memory_bound_share
        return np.asarray(a + (1.0 - a) / np.asarray(relative_frequency, dtype=float))


class PowerModel(Strict):
    """Draw of one GPU: ``static_w + dynamic_w * (f / f_max)^exponent`` computing, `sync_w` waiting.

    The average over an iteration weighs the two with ``T_grad / T_iter`` and the rest. For a profile
    with a power-limit table the table gives the computing draw, and only `sync_w` counts here.
    """

    static_w: NonNegative
    dynamic_w: NonNegative
    exponent: Positive = USUAL_EXPONENT
    sync_w: NonNegative

    def computing_w(self, relative_frequency: ArrayLike = 1.0) -> FloatArray:
        """Draw while computing at a clock given as a share of the highest."""
        return np.asarray(self.static_w + self.dynamic_w * np.asarray(relative_frequency) ** self.exponent)

    def highest_clock(self, max_power_w: float) -> float:
        """Highest clock, as a share of the highest there is, at which the draw keeps within a board's limit.

        0 where no clock does.
        """
        spare_w = max_power_w - self.static_w
        if spare_w >= self.dynamic_w:
            return 1.0
        return float((spare_w / self.dynamic_w) ** (1.0 / self.exponent)) if spare_w > 0 else 0.0


NOISE = 0.05
"""Relative amount by which a measured slowdown may rise with the limit, as no two runs are equally fast."""


class PowerLimitTable(Strict):
    """Measured effect of the board power limit, by local batch.

    Attributes
    ----------
    limit_w : list of float
        Limits, increasing; columns of the tables.
    local_batch : list of int
        Local batches, increasing; rows of the tables.
    slowdown : list of lists of float
        Computation time over the one at the highest limit, >= 1. It falls with the limit, but for `NOISE`.
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
    def _check_tables(self) -> Self:
        for name, table in (("slowdown", self.slowdown), ("power_w", self.power_w)):
            if len(table) != len(self.local_batch) or any(len(row) != len(self.limit_w) for row in table):
                raise ValueError(
                    f"{name} must have {len(self.local_batch)} rows (one per local_batch) "
                    f"of {len(self.limit_w)} values (one per limit_w)"
                )
        for batch, row in zip(self.local_batch, self.slowdown, strict=True):
            lowest = np.minimum.accumulate(row)
            if (rises := np.flatnonzero(np.array(row) > (1.0 + NOISE) * lowest)).size:
                limit_w, value = self.limit_w[rises[0]], row[rises[0]]
                raise ValueError(
                    f"slowdown of local_batch {batch} rises from {lowest[rises[0]]:g} to {value:g} "
                    f"at limit_w {limit_w:g}: more watts never slow a GPU down"
                )
        return self

    def stretch(self, local_batch: ArrayLike, power_limit_w: ArrayLike) -> FloatArray:
        """Compute a computation's time relative to that at the highest limit (>= 1); nan: no limit set."""
        return self._interpolate(self.slowdown, local_batch, power_limit_w)

    def computing_w(self, local_batch: ArrayLike, power_limit_w: ArrayLike) -> FloatArray:
        """Interpolate the draw of one computing GPU in W; a limit of nan means the highest."""
        return self._interpolate(self.power_w, local_batch, power_limit_w)

    def within(self, power_limit_w: ArrayLike, max_power_w: float | None) -> FloatArray:
        """Reduce limits to the board's own, but not below the lowest that was measured."""
        limit = np.asarray(power_limit_w, dtype=float)
        return limit if max_power_w is None else np.minimum(limit, max(max_power_w, self.limit_w[0]))

    def _interpolate(
        self, table: list[list[float]], local_batch: ArrayLike, power_limit_w: ArrayLike
    ) -> FloatArray:
        """Interpolate a table at broadcast local batches and limits; a limit of nan means the highest."""
        limit = np.asarray(power_limit_w, dtype=float)
        low, high = self.limit_w[0], self.limit_w[-1]
        limit = np.where(np.isnan(limit), high, limit)
        wrong = limit[(limit < low) | (limit > high)]
        if wrong.size:
            raise ValueError(f"power_limit_w {wrong.flat[0]:g} is outside the measured {low:g} to {high:g} W")
        row0, row1, down = _between(np.log(self.local_batch), np.log(np.asarray(local_batch, dtype=float)))
        column0, column1, across = _between(np.asarray(self.limit_w), limit)
        values = np.asarray(table)
        first = (1 - across) * values[row0, column0] + across * values[row0, column1]
        second = (1 - across) * values[row1, column0] + across * values[row1, column1]
        return np.asarray((1 - down) * first + down * second)


def _between(knots: FloatArray, x: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the indices of the knots around each x (ends beyond them), and the share of the way between."""
    position = np.interp(x, knots, np.arange(len(knots)))
    before = np.asarray(position, dtype=np.int64)
    return before, np.asarray(np.ceil(position), dtype=np.int64), position - before


def fit_power_frequency(
    relative_frequency: ArrayLike,
    power_w: ArrayLike,
    computing_share: ArrayLike = 1.0,
    *,
    sync_w: float | None = None,
    max_power_w: float | None = None,
) -> PowerModel:
    """Fit ``P = share (static + dynamic x^exponent) + (1 - share) sync`` to measured watts of a GPU.

    Least squares of the relative errors with non-negative watts, of which waiting draws no more than
    computing at the highest clock; exponent 3 below `CLOCKS_FOR_EXPONENT` clocks, else 1 to 5.

    Parameters
    ----------
    relative_frequency : array_like, shape (n,)
        x, the clock over the highest clock. If all are 1 the draw counts as static.
    power_w : array_like, shape (n,)
        Average draw of one GPU; clocks and watts that are not finite and positive are a ValueError.
    computing_share : array_like
        T_grad / T_iter of each measurement.
    sync_w : float, optional
        Draw while waiting in communication. Default: fitted where some share is below 0.95,
        otherwise the static draw.
    max_power_w : float, optional
        The board's limit, above which it draws nothing.
    """
    from scipy.optimize import minimize_scalar, nnls

    p = np.asarray(power_w, dtype=float).ravel()
    x = np.broadcast_to(np.asarray(relative_frequency, dtype=float), p.shape)
    share = np.broadcast_to(np.asarray(computing_share, dtype=float), p.shape)
    for name, values in (("power_w", p), ("relative_frequency", x)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"{name} must be finite and above 0")
    clocks = len(np.unique(x))
    fit_sync = sync_w is None and bool(share.min() < 0.95)
    target = (p - (1.0 - share) * (0.0 if sync_w is None else sync_w)) / p
    # Four parts of the draw at the highest clock: static or dynamic ones, which a waiting GPU draws or not.
    static, waits = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0])
    told = np.array([True, clocks > 1, fit_sync, fit_sync and clocks > 1])

    def watts(exponent: float) -> tuple[FloatArray, float]:
        """Watts of the four parts that fit best at an exponent, and the norm of the relative errors."""
        computing = share[:, None] * np.where(static, 1.0, x[:, None] ** exponent)
        columns = (computing + (1.0 - share)[:, None] * waits) * told / p[:, None]
        solution = np.asarray(nnls(columns, target)[0])
        if max_power_w is not None and solution.sum() > max_power_w:
            # All parts together draw the board's limit.
            spent = np.full((1, 4), TOTAL_WEIGHT / max_power_w)
            solution = np.asarray(nnls(np.vstack([columns, spent]), np.append(target, TOTAL_WEIGHT))[0])
            solution *= min(1.0, max_power_w / solution.sum())
        return solution, float(np.linalg.norm(columns @ solution - target))

    exponent = USUAL_EXPONENT
    if clocks >= CLOCKS_FOR_EXPONENT:
        exponent = float(minimize_scalar(lambda e: watts(e)[1], bounds=EXPONENTS, method="bounded").x)
    found, _ = watts(exponent)
    static_w, dynamic_w = float(found @ static), float(found @ (1.0 - static))
    if sync_w is None:
        sync_w = float(found @ waits) if fit_sync else static_w
    return PowerModel(static_w=static_w, dynamic_w=dynamic_w, exponent=exponent, sync_w=sync_w)


def fit_power_limits(
    local_batch: ArrayLike,
    power_limit_w: ArrayLike,
    step_time_s: ArrayLike,
    power_w: ArrayLike,
    *,
    rows: int = 5,
) -> PowerLimitTable:
    """Condense single-GPU measurements under power limits to a small table.

    Step times are divided by those at the highest limit; slowdown and watts at a few local batches
    follow by least squares, with interpolation in the logarithm of the local batch; a higher limit is
    never slower and never draws less (isotonic regression).

    Parameters
    ----------
    local_batch, power_limit_w, step_time_s, power_w : array_like, shape (n,)
        One measurement per index; repeated settings are averaged. Every local batch needs every limit.
    rows : int
        Local batches to keep at most; also no more than half of them, unless that is below 3.
    """
    from scipy.optimize import isotonic_regression

    batches, batch = np.unique(np.asarray(local_batch, dtype=float), return_inverse=True)
    limits, limit = np.unique(np.asarray(power_limit_w, dtype=float), return_inverse=True)
    cell = batch * len(limits) + limit
    count = np.bincount(cell, minlength=len(batches) * len(limits)).reshape(len(batches), -1)
    if (count == 0).any():
        b, p = np.argwhere(count == 0)[0]
        raise ValueError(
            f"power_limit_w {limits[p]:g} was not measured at local batch {batches[b]:g}; "
            "every local batch needs every limit"
        )

    def cell_means(values: ArrayLike) -> FloatArray:
        total = np.bincount(cell, weights=np.asarray(values, dtype=float), minlength=count.size)
        return total.reshape(count.shape) / count

    time, power = cell_means(step_time_s), cell_means(power_w)
    ratio = time / time[:, -1:]
    most = min(rows, max(3, len(batches) // 2))
    table = np.concatenate([ratio, power], axis=1)
    knots, fitted = _interpolant(batches, table, most)
    slowdown, watts = np.split(np.clip(fitted, table.min(axis=0), table.max(axis=0)), 2, axis=1)
    falling = np.stack([isotonic_regression(row, increasing=False).x for row in slowdown])
    return PowerLimitTable(
        limit_w=limits.tolist(),
        local_batch=[round(b) for b in knots.tolist()],
        slowdown=np.maximum(falling / falling[:, -1:], 1.0).tolist(),
        power_w=[isotonic_regression(row).x.tolist() for row in watts],
    )


def spread(values: FloatArray, at_most: int) -> FloatArray:
    """Return up to `at_most` of the sorted values, ends included, evenly spread in the logarithm."""
    wanted = np.linspace(np.log(values[0]), np.log(values[-1]), at_most)
    nearest = np.abs(np.log(values)[:, None] - wanted).argmin(axis=0)
    return np.asarray(values[np.unique(nearest)])


def _interpolant(batches: FloatArray, table: FloatArray, at_most: int) -> tuple[FloatArray, FloatArray]:
    """Choose up to `at_most` knots among the batches, one by one, and return them and the table's rows there.

    Each lessens the sum of squares of the relative errors by most.
    """
    chosen = sorted({0, len(batches) - 1})

    def fit(indices: list[int]) -> tuple[float, FloatArray]:
        # Linear interpolation in the logarithm: the values at all batches are weights @ those at the knots.
        knots, units = np.log(batches[indices]), np.eye(len(indices))
        weights = np.stack([np.interp(np.log(batches), knots, unit) for unit in units], axis=1)
        columns = [np.linalg.lstsq(weights / c[:, None], np.ones_like(c), rcond=None)[0] for c in table.T]
        rows = np.stack(columns, axis=1).astype(np.float64)
        return float(np.sum((weights @ rows / table - 1.0) ** 2)), rows

    while len(chosen) < min(at_most, len(batches)):
        others = set(range(len(batches))) - set(chosen)
        chosen = min((sorted([*chosen, i]) for i in sorted(others)), key=lambda indices: fit(indices)[0])
    return batches[chosen], fit(chosen)[1]
