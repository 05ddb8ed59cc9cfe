"""Fit the iteration time, with AdaptDL's loss and bounds, and what larger batches cost in samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, least_squares, minimize, minimize_scalar

from wattsched.perfmodels.measurements import Measurements
from wattsched.perfmodels.throughput import GAMMAS, Throughput, overlapped_time_s, sync_terms
from wattsched.topology.arrays import BoolArray, FloatArray

TIMES = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n")
SHAPES = {"gamma": GAMMAS, "gamma_c": GAMMAS, "memory_bound_share": (0.0, 1.0)}
"""What is fitted: seconds from 0, and shapes with their bounds; the least where nothing was measured."""
ALPHAS, BETAS, SHARE = [2, 4], [3, 5], 8
SMALLEST_S = 1e-8
SHORTEST_STEP_S = 1e-6
STARTS = 6
LARGEST_NOISE_SCALE = 1e8
BATCHES_FOR_GAMMA_C = 5


@dataclass(frozen=True)
class ThroughputFit:
    """Fitted parameters and how well they match.

    Attributes
    ----------
    throughput : Throughput
        The parameters; those of a regime that was never observed follow `fit_throughput`'s rule.
    memory_bound_share : float or None
        Share of the computation that the clock does not change; None without frequencies.
    predicted_s, error : ndarray of float64, shape (n,)
        Iteration time of every measurement, and its relative error, not negative.
    """

    throughput: Throughput
    memory_bound_share: float | None
    predicted_s: FloatArray
    error: FloatArray


def fit_throughput(measurements: Measurements) -> ThroughputFit:
    """Fit `Throughput` (and the memory-bound share) to measured steps.

    Minimises AdaptDL's loss ``RMSE(log T_grad) + RMSE(log T_iter) + 1e-3 ((gamma-1)^2 + (gamma_c-1)^2) +
    1e-2 ((beta_n/alpha_n)^2 + (beta_r/alpha_r)^2)``; the first term needs `sync_time_s`. A regime
    without measurements costs nothing, but across nodes at least 1.1 times as much as inside one.
    ``gamma_c`` stays 1 below five different local batches. Of several clocks, the largest is taken as the
    one at which the parameters hold.

    Raises
    ------
    ValueError
        For fewer than two measurements, and for steps below 1 us.
    """
    if len(measurements) < 2:
        raise ValueError(f"a fit needs at least 2 measurements, got {len(measurements)}")
    if (shortest := measurements.step_time_s.min()) < SHORTEST_STEP_S:
        raise ValueError(
            f"step_time_s has the value {shortest:g} s; a step takes at least {SHORTEST_STEP_S:g} s"
        )
    steps = _Steps(measurements)
    values = steps.fit()
    predicted = steps.predict(values)[1]
    return ThroughputFit(
        Throughput(**dict(zip((*TIMES, "gamma", "gamma_c"), values[:SHARE].tolist(), strict=True))),
        float(values[SHARE]) if measurements.frequency_mhz is not None else None,
        predicted,
        np.abs(predicted / measurements.step_time_s - 1.0),
    )


def held_out_error(measurements: Measurements, *, folds: int = 4, seed: int = 0) -> FloatArray:
    """Relative errors of every step, predicted by a fit that has not seen it.

    The steps are dealt into `folds` groups at random, and each group is predicted from the others.

    Raises
    ------
    ValueError
        For fewer steps than twice the folds.
    """
    n = len(measurements)
    if n < 2 * folds:
        raise ValueError(f"a held-out check with {folds} folds needs {2 * folds} measurements, got {n}")
    fold = np.random.default_rng(seed).permutation(n) % folds
    steps, error = _Steps(measurements), np.empty(n)
    for k in range(folds):
        test = steps.rows(fold == k)
        error[fold == k] = test.predict(steps.rows(fold != k).fit())[1] / test.step_s - 1.0
    return np.abs(error)


class _Steps:
    """Measured steps as the arrays that the loss is made of; `clock` is f_max / f."""

    def __init__(self, measurements: Measurements, max_mhz: float | None = None) -> None:
        self.measurements = m = measurements
        self.step_s, self.local_batch = m.step_time_s, m.local_batch
        self.sync_terms = sync_terms(m.gpus, m.nodes)
        self.max_mhz, self.clock = max_mhz, np.ones(len(m))
        if m.frequency_mhz is not None:
            self.max_mhz = max_mhz or float(m.frequency_mhz.max())
            self.clock = self.max_mhz / m.frequency_mhz
        self.grad_s = m.step_time_s - (m.step_time_s if m.sync_time_s is None else m.sync_time_s)
        self.grad_known = self.grad_s > 0.01 * m.step_time_s
        self.free = self._observed()

    def rows(self, chosen: BoolArray) -> _Steps:
        """Return the chosen steps alone; the clock stays relative to the largest of all."""
        return _Steps(self.measurements.rows(chosen), self.max_mhz)

    def _observed(self) -> BoolArray:
        """Which of `TIMES` and `SHAPES` the measurements say anything about."""
        regimes = [bool(term.any()) for term in self.sync_terms.T > 0]
        several_batches = len(np.unique(self.local_batch)) >= BATCHES_FOR_GAMMA_C
        return np.array([True, True, *regimes, any(regimes), several_batches, (self.clock > 1).any()])

    def predict(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """T_grad and T_iter for the values of `TIMES` and `SHAPES`."""
        gamma, gamma_c, share = values[6:].tolist()
        stretch = share + (1.0 - share) * self.clock
        grad = overlapped_time_s(values[0], values[1] * self.local_batch * stretch, gamma_c)
        return grad, overlapped_time_s(grad, self.sync_terms @ values[2:6], gamma)

    def residuals(self, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Penalties, and logarithmic errors of T_iter and of T_grad where it was measured, by root of n."""
        grad, iteration = self.predict(values)
        iteration_error = np.log(iteration / self.step_s) / np.sqrt(len(self.step_s))
        known = self.grad_known
        grad_error = np.log(grad[known] / self.grad_s[known]) / np.sqrt(max(known.sum(), 1))
        shapes = np.sqrt(1e-3) * (values[6:8] - 1.0)
        growth = 0.1 * values[BETAS] / np.maximum(values[ALPHAS], SMALLEST_S) * self.free[BETAS]
        return np.concatenate([shapes, growth]), iteration_error, grad_error

    def fit(self) -> FloatArray:
        """Values of `TIMES` and `SHAPES`: least squares from several starts, then the loss itself.

        Times are searched as logarithms, which makes the problem indifferent to their scale.
        """
        free = self.free
        least, most = np.array(list(SHAPES.values())).T
        low = np.concatenate([np.full(6, np.log(SMALLEST_S)), least])
        high = np.concatenate([np.full(6, np.log(1e3 * self.step_s.max())), most])

        def values(z: FloatArray) -> FloatArray:
            full = low.copy()
            full[free] = z
            full[:6] = np.where(free[:6], np.exp(full[:6]), 0.0)
            return full

        def squares(z: FloatArray) -> FloatArray:
            return np.concatenate(self.residuals(values(z)))

        def loss(z: FloatArray) -> float:
            penalties, *errors = self.residuals(values(z))
            return float(penalties @ penalties + sum(np.linalg.norm(error) for error in errors))

        starts = [np.clip(start, low + 1e-3, high - 1e-3)[free] for start in self._starts()]
        bounds = (low[free], high[free])
        solutions = [least_squares(squares, start, bounds=bounds, max_nfev=200) for start in starts]
        best = min(solutions, key=lambda solution: float(solution.cost)).x
        polished = minimize(loss, best, method="L-BFGS-B", bounds=Bounds(*bounds)).x
        return self._with_unobserved(values(min((best, polished), key=loss)))

    def _starts(self) -> list[FloatArray]:
        """Return starting points around times of the size of the shortest step."""
        fastest = float(self.step_s.min())
        per_sample = float(np.median(self.step_s / self.local_batch))
        times = np.log([fastest / 2, per_sample / 2, fastest / 4, fastest / 40, fastest / 4, fastest / 40])
        random = np.random.default_rng(0)
        shifts = [np.zeros(6), *(random.normal(0.0, 1.5, 6) for _ in range(1, STARTS))]
        return [
            np.concatenate([times + shift, [1.0 + 0.8 * i, 1.0 + 0.5 * (i % 3), 0.3]])
            for i, shift in enumerate(shifts)
        ]

    def _with_unobserved(self, values: FloatArray) -> FloatArray:
        """Set times at the bound to 0, and the rule for several nodes where none were measured."""
        values[:6] = np.where(values[:6] <= 2 * SMALLEST_S, 0.0, values[:6])
        if values[0] == values[1] == 0:
            values[1] = SMALLEST_S  # the steps look like synchronisation alone
        for inside, across in ((2, 4), (3, 5)):
            if not self.free[across]:
                values[across] = 1.1 * values[inside]
        return values


def fit_noise_scale(batch_size: ArrayLike, samples_to_target: ArrayLike) -> tuple[float, float]:
    """Fit ``samples = S (1 + B / noise_scale)`` by least squares of logarithms.

    Parameters
    ----------
    batch_size, samples_to_target : array_like, shape (n,)
        Global batch, and samples (or epochs) that training with it takes to the same goal.

    Returns
    -------
    noise_scale : float
        In samples; at most 1e8, where batches up to a million cost nothing measurable.
    max_error : float
        Largest relative error of the samples.

    Raises
    ------
    ValueError
        For fewer than two different batches, or values that are not finite and positive.
    """
    batch, samples = np.asarray(batch_size, dtype=float), np.asarray(samples_to_target, dtype=float)
    for name, values in (("batch_size", batch), ("samples_to_target", samples)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"{name} must be finite and above 0")
    if len(np.unique(batch)) < 2:
        raise ValueError("a noise scale needs measurements at two batches or more")

    def residuals(log_noise: float) -> FloatArray:
        difference = np.log(samples) - np.log1p(batch / np.exp(log_noise))
        return np.asarray(difference - difference.mean())

    def squares(log_noise: float) -> float:
        return float(np.sum(residuals(log_noise) ** 2))

    grid = np.linspace(np.log(batch.min() / 100.0), np.log(LARGEST_NOISE_SCALE), 200)
    near = int(np.argmin([squares(z) for z in grid]))
    bounds = (float(grid[max(near - 1, 0)]), float(grid[min(near + 1, len(grid) - 1)]))
    best = float(minimize_scalar(squares, bounds=bounds, method="bounded").x)
    return float(np.exp(best)), float(np.abs(np.expm1(residuals(best))).max())
