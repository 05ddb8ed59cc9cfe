"""Seconds of an iteration (the Pollux/AdaptDL form), what larger batches cost in samples; fits of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from wattsched.perfmodels.measurements import Measurements
from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import Count, NonNegative, Strict

GAMMAS = (1.0, 10.0)
"""Bounds of the overlap exponents: at 1 phases take turns, at 10 they overlap."""
Overlap = Annotated[float, Field(ge=GAMMAS[0], le=GAMMAS[1])]

TIMES = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n")
SHAPES = {"gamma": GAMMAS, "gamma_c": GAMMAS, "memory_bound_share": (0.0, 1.0)}
"""Bounds of the fitted shapes (fitted seconds are 0 or more); the lower one where nothing was measured."""
ALPHAS, BETAS, SHARE = [2, 4], [3, 5], 8
"""Places of alpha_r and alpha_n, beta_r and beta_n, and the share, among values of `TIMES` and `SHAPES`."""
SMALLEST_S = 1e-8
SHORTEST_STEP_S = 1e-6
STARTS = 6
LARGEST_NOISE_SCALE = 1e8
BATCHES_FOR_GAMMA_C = 5


def sync_terms(gpus: ArrayLike, nodes: ArrayLike) -> FloatArray:
    """Compute the factors of alpha_r, beta_r, alpha_n, beta_n in T_sync, shape (..., 4); 0: not involved."""
    k, n = np.broadcast_arrays(np.asarray(gpus, dtype=float), nodes)
    terms = np.zeros((*k.shape, 4))
    for first, regime in ((0, (k > 1) & (n <= 1)), (2, (k > 1) & (n > 1))):
        terms[..., first] = regime
        terms[..., first + 1] = regime * (k - 2.0)
    return terms


def overlapped_time_s(one_s: ArrayLike, other_s: ArrayLike, gamma: float) -> FloatArray:
    """Join two phases: one after the other for gamma 1, nearly at the same time for gamma 10.

    Scaled by the longer phase, so that no power of a small or large number over- or underflows.
    """
    one, other = np.asarray(one_s, dtype=float), np.asarray(other_s, dtype=float)
    longer = np.maximum(one, other)
    ratio = np.minimum(one, other) / np.where(longer > 0, longer, 1.0)
    return np.asarray(longer * (1.0 + ratio**gamma) ** (1.0 / gamma))


class Throughput(Strict):
    """Parameters of the iteration time, in seconds.

    With K GPUs on N nodes and m samples per GPU (Qiao et al., OSDI 2021)::

        T_grad = (alpha_c^gamma_c + (beta_c * m)^gamma_c)^(1/gamma_c)
        T_sync = 0                          K = 1
               = alpha_r + beta_r * (K-2)   N = 1
               = alpha_n + beta_n * (K-2)   N > 1
        T_iter = (T_grad^gamma + T_sync^gamma)^(1/gamma)

    Attributes
    ----------
    alpha_c, beta_c : float
        Computation: seconds per iteration, and per sample on a GPU.
    alpha_r, beta_r : float
        Synchronisation inside one node: constant, and per GPU beyond two.
    alpha_n, beta_n : float
        Synchronisation across nodes.
    gamma : float
        1 (computation and synchronisation take turns) to 10 (they overlap).
    gamma_c : float
        The same for the constant part of the computation (kernel launches, input) and the part per
        sample. With 1, the default, this is AdaptDL's ``T_grad = alpha_c + beta_c * m``.
    """

    alpha_c: NonNegative
    beta_c: NonNegative
    alpha_r: NonNegative = 0.0
    beta_r: NonNegative = 0.0
    alpha_n: NonNegative = 0.0
    beta_n: NonNegative = 0.0
    gamma: Overlap = 1.0
    gamma_c: Overlap = 1.0

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.alpha_c + self.beta_c <= 0:
            raise ValueError("alpha_c and beta_c are both 0: an iteration must take time")
        return self

    def grad_time_s(self, local_batch: ArrayLike, stretch: ArrayLike = 1.0) -> FloatArray:
        """T_grad, the part per sample multiplied by `stretch` (1 at the highest frequency)."""
        samples_s = self.beta_c * np.asarray(local_batch) * np.asarray(stretch)
        return overlapped_time_s(self.alpha_c, samples_s, self.gamma_c)

    def sync_time_s(self, gpus: ArrayLike, nodes: ArrayLike) -> FloatArray:
        """T_sync for `gpus` GPUs spread over `nodes` nodes."""
        return np.asarray(sync_terms(gpus, nodes) @ (self.alpha_r, self.beta_r, self.alpha_n, self.beta_n))

    def iteration_time_s(self, grad_time_s: ArrayLike, gpus: ArrayLike, nodes: ArrayLike) -> FloatArray:
        """T_iter for a computation time and a set of GPUs."""
        return overlapped_time_s(grad_time_s, self.sync_time_s(gpus, nodes), self.gamma)


class StatisticalEfficiency(Strict):
    """Progress per sample at batch B, relative to the reference batch B0.

    ``E(B) = (noise_scale + B0) / (noise_scale + B)``: the goodput efficiency of Pollux (Qiao et al.,
    OSDI 2021), where the noise scale is gradient variance over squared gradient norm, in samples; it is
    also the law ``samples to target = S * (1 + B / noise_scale)`` that measured epochs to a target follow.
    An effective sample is a sample processed at B0, so profiles of one model must share this object.

    Attributes
    ----------
    reference_batch : int
        B0, the batch at which one sample counts as one.
    noise_scale : float
        In samples; large: big batches are as good as small ones.
    """

    reference_batch: Count
    noise_scale: NonNegative

    def of(self, batch_size: ArrayLike) -> FloatArray:
        """E(B): in (0, 1] from `reference_batch` up, above 1 below it."""
        batch = np.asarray(batch_size, dtype=float)
        return np.asarray((self.noise_scale + self.reference_batch) / (self.noise_scale + batch))


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
    without measurements costs nothing, but across nodes at least 1.1 times as much as inside one. Where all
    measurements are of one GPU count and none has `sync_time_s`, synchronisation counts as computation.
    ``gamma_c`` stays 1 below five different local batches. Of several clocks, the largest is taken as the
    one at which the parameters hold. Fewer than two measurements, and steps below 1 us, are a ValueError.
    """
    if len(measurements) < 2:
        raise ValueError(f"a fit needs at least 2 measurements, got {len(measurements)}")
    if (shortest := measurements.step_time_s.min()) < SHORTEST_STEP_S:
        raise ValueError(
            f"step_time_s has the value {shortest:g} s; a step takes at least {SHORTEST_STEP_S:g} s"
        )
    steps = _Steps(measurements, _clock(measurements))
    values = steps.fit()
    _, predicted = steps.predict(values)
    return ThroughputFit(
        Throughput(**dict(zip((*TIMES, "gamma", "gamma_c"), values[:SHARE].tolist(), strict=True))),
        float(values[SHARE]) if measurements.frequency_mhz is not None else None,
        predicted,
        np.abs(predicted / measurements.step_time_s - 1.0),
    )


def held_out_error(measurements: Measurements, *, folds: int = 4, seed: int = 0) -> FloatArray:
    """Relative errors of every step, predicted by a fit that has not seen it.

    The steps are dealt into `folds` groups at random, and each group is predicted from the others. Fewer
    steps than twice the folds are a ValueError.
    """
    n = len(measurements)
    if n < 2 * folds:
        raise ValueError(f"a held-out check with {folds} folds needs {2 * folds} measurements, got {n}")
    fold = np.random.default_rng(seed).permutation(n) % folds
    clock, error = _clock(measurements), np.empty(n)
    for k in range(folds):
        test, others = (_Steps(measurements.rows(part), clock[part]) for part in (fold == k, fold != k))
        _, predicted_s = test.predict(others.fit())
        error[fold == k] = predicted_s / test.step_s - 1.0
    return np.abs(error)


def tells_sync(m: Measurements) -> bool:
    """True if measurements tell synchronisation from computation: by its time, or by several GPU counts."""
    return m.sync_time_s is not None or bool(np.ptp(m.gpus) > 0)


def _clock(m: Measurements) -> FloatArray:
    return np.ones(len(m)) if m.frequency_mhz is None else m.frequency_mhz.max() / m.frequency_mhz


class _Steps:
    """Measured steps as the arrays that the loss is made of; `clock` is f_max / f.

    Attributes
    ----------
    grad_known, grad_s : ndarray
        Mask of the steps of which T_grad was measured, and T_grad of those.
    free : ndarray of bool
        Which of `TIMES` and `SHAPES` the measurements say anything about; the others are not fitted.
    """

    def __init__(self, m: Measurements, clock: FloatArray) -> None:
        self.step_s, self.local_batch, self.clock = m.step_time_s, m.local_batch, clock
        self.sync_terms = sync_terms(m.gpus, m.nodes)
        grad_s = m.step_time_s - (m.step_time_s if m.sync_time_s is None else m.sync_time_s)
        self.grad_known = grad_s > 0.01 * m.step_time_s  # less is rounding
        self.grad_s = grad_s[self.grad_known]
        told = tells_sync(m)
        regimes = [told and bool(term.any()) for term in self.sync_terms.T > 0]
        several_batches = len(np.unique(m.local_batch)) >= BATCHES_FOR_GAMMA_C
        self.free = np.array([True, True, *regimes, any(regimes), several_batches, (clock > 1).any()])

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
        grad_error = np.log(grad[self.grad_known] / self.grad_s) / np.sqrt(max(len(self.grad_s), 1))
        shapes = np.sqrt(1e-3) * (values[6:8] - 1.0)
        growth = 0.1 * values[BETAS] / np.maximum(values[ALPHAS], SMALLEST_S) * self.free[BETAS]
        return np.concatenate([shapes, growth]), iteration_error, grad_error

    def fit(self) -> FloatArray:
        """Values of `TIMES` and `SHAPES`: least squares from several starts, then the loss itself.

        Times are searched as logarithms, which makes the problem indifferent to their scale.
        """
        from scipy.optimize import Bounds, least_squares, minimize

        free = self.free
        least, most = np.array(list(SHAPES.values())).T
        low = np.concatenate([np.full(6, np.log(SMALLEST_S)), least])
        high = np.concatenate([np.full(6, np.log(1e3 * self.step_s.max())), most])

        def values(z: FloatArray) -> FloatArray:
            """Values of `TIMES` and `SHAPES` from the variables, those that are free."""
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
        """Return starting points, times as logarithms, around times of the size of the shortest step."""
        fastest = float(self.step_s.min())
        per_sample = float(np.median(self.step_s / self.local_batch))
        times = np.log([fastest / 2, per_sample / 2, fastest / 4, fastest / 40, fastest / 4, fastest / 40])
        random = np.random.default_rng(0)
        # Times vary at random, gamma, gamma_c and the share over their ranges.
        shifts = [np.zeros(6), *(random.normal(0.0, 1.5, 6) for _ in range(1, STARTS))]
        return [
            np.concatenate([times + shift, [1.0 + 0.8 * i, 1.0 + 0.5 * (i % 3), 0.3]])
            for i, shift in enumerate(shifts)
        ]

    def _with_unobserved(self, values: FloatArray) -> FloatArray:
        """Set times at their bound to 0, and unmeasured ones across nodes by the rule of `fit_throughput`."""
        values[:6] = np.where(values[:6] <= 2 * SMALLEST_S, 0.0, values[:6])
        if values[0] == values[1] == 0:
            values[1] = SMALLEST_S  # the steps look like synchronisation alone
        for inside, across in (ALPHAS, BETAS):
            if not self.free[across]:
                values[across] = 1.1 * values[inside]
        return values


def fit_noise_scale(batch_size: ArrayLike, samples_to_target: ArrayLike) -> tuple[float, float]:
    """Fit ``samples = S (1 + B / noise_scale)`` by least squares of logarithms.

    Parameters
    ----------
    batch_size, samples_to_target : array_like, shape (n,)
        Global batch, two different ones at least, and samples (or epochs) that training with it takes to the
        same goal.

    Returns
    -------
    noise_scale : float
        In samples; at most 1e8, where batches up to a million cost nothing measurable.
    max_error : float
        Largest relative error of the samples.
    """
    from scipy.optimize import minimize_scalar

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
