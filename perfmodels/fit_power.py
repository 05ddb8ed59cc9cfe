"""Fit the watts of a GPU: a curve over the clock, or a table over the power limit."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression, minimize_scalar, nnls

from wattsched.perfmodels.power import PowerLimitTable, PowerModel
from wattsched.topology.arrays import FloatArray

EXPONENTS = (1.0, 5.0)


def fit_power_frequency(
    relative_frequency: ArrayLike,
    power_w: ArrayLike,
    computing_share: ArrayLike = 1.0,
    *,
    sync_w: float | None = None,
) -> PowerModel:
    """Fit ``P = share (static + dynamic x^exponent) + (1 - share) sync`` to measured watts of a GPU.

    Least squares of the relative errors with non-negative watts; exponent between 1 and 5.

    Parameters
    ----------
    relative_frequency : array_like, shape (n,)
        x, the clock over the highest clock. If all are 1 the draw counts as static.
    power_w : array_like, shape (n,)
        Average draw of one GPU.
    computing_share : array_like
        T_grad / T_iter of each measurement.
    sync_w : float, optional
        Draw while waiting in communication. Default: fitted where some share is below 0.95,
        otherwise the static draw.

    Raises
    ------
    ValueError
        For watts or clocks that are not finite and positive.
    """
    p = np.asarray(power_w, dtype=float).ravel()
    x = np.broadcast_to(np.asarray(relative_frequency, dtype=float), p.shape)
    share = np.broadcast_to(np.asarray(computing_share, dtype=float), p.shape)
    for name, values in (("power_w", p), ("relative_frequency", x)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"{name} must be finite and above 0")
    several_clocks = bool(np.ptp(x) > 0)
    fit_sync = sync_w is None and bool(share.min() < 0.95)
    target = (p - (1.0 - share) * (0.0 if sync_w is None else sync_w)) / p

    def watts(exponent: float) -> tuple[FloatArray, float]:
        columns = [share, share * x**exponent if several_clocks else np.zeros_like(p)]
        columns.append(1.0 - share if fit_sync else np.zeros_like(p))
        solution, residual = nnls(np.stack(columns, axis=1) / p[:, None], target)
        return np.asarray(solution), float(residual)

    exponent = 3.0
    if several_clocks:
        exponent = float(minimize_scalar(lambda e: watts(e)[1], bounds=EXPONENTS, method="bounded").x)
    static, dynamic, fitted_sync = watts(exponent)[0].tolist()
    if sync_w is None:
        sync_w = fitted_sync if fit_sync else static
    return PowerModel(static_w=static, dynamic_w=dynamic, exponent=exponent, sync_w=sync_w)


def fit_memory_bound_share(relative_frequency: ArrayLike, slowdown: ArrayLike) -> float:
    """Fit a of ``slowdown = a + (1 - a) / x`` by least squares, between 0 and 1."""
    stretch = 1.0 / np.asarray(relative_frequency, dtype=float) - 1.0
    measured = np.asarray(slowdown, dtype=float) - 1.0
    clock_bound = float(np.sum(stretch * measured) / np.sum(stretch**2)) if np.any(stretch > 0) else 1.0
    return float(np.clip(1.0 - clock_bound, 0.0, 1.0))


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
        One measurement per index; repeated settings are averaged.
    rows : int
        Local batches to keep at most; also no more than half of them, unless that is below 3.

    Raises
    ------
    ValueError
        If some local batch was not measured at every limit.
    """
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
    """Choose the knots of a table one by one, each where it brings the table closest, and fit its rows.

    Close means the sum of squares of the relative errors.
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
