"""Fit the iteration time to measured steps, with the loss and the bounds of AdaptDL.

Fit the noise scale: how much larger batches cost in samples.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, least_squares, minimize, minimize_scalar

from wattsched.perfmodels.throughput import Throughput, overlapped_time_s, sync_time_s
from wattsched.topology.arrays import BoolArray, FloatArray

TIMES = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n")
SHAPES = ("gamma", "gamma_c", "memory_bound_share")
SMALLEST_S = 1e-8
SHORTEST_STEP_S = 1e-6
STARTS = 6
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
    predicted_s : ndarray of float64, shape (n,)
        Iteration time of every measurement.
    mean_error, max_error : float
        Relative errors of the iteration time.
    """

    throughput: Throughput
    memory_bound_share: float | None
    predicted_s: FloatArray
    mean_error: float
    max_error: float


@dataclass(frozen=True)
class Steps:
    """Measured training steps, one per index; `sync_time_s` and `clock` (f_max / f) may be absent."""

    gpus: FloatArray
    nodes: FloatArray
    local_batch: FloatArray
    step_time_s: FloatArray
    sync_time_s: FloatArray | None
    clock: FloatArray | None

    @property
    def observed(self) -> BoolArray:
        """Which of `TIMES` and `SHAPES` the measurements say anything about."""
        one_node = (self.gpus > 1) & (self.nodes == 1)
        several_nodes = (self.gpus > 1) & (self.nodes > 1)
        return np.array(
            [
                True,
                True,
                one_node.any(),
                (one_node & (self.gpus > 2)).any(),
                several_nodes.any(),
                (several_nodes & (self.gpus > 2)).any(),
                (self.gpus > 1).any(),
                len(np.unique(self.local_batch)) >= BATCHES_FOR_GAMMA_C,
                self.clock is not None and bool((self.clock > 1).any()),
            ]
        )

    def rows(self, chosen: BoolArray) -> Steps:
        """Return the chosen measurements alone."""
        sync = None if self.sync_time_s is None else self.sync_time_s[chosen]
        clock = None if self.clock is None else self.clock[chosen]
        return Steps(
            self.gpus[chosen],
            self.nodes[chosen],
            self.local_batch[chosen],
            self.step_time_s[chosen],
            sync,
            clock,
        )


def fit_throughput(
    gpus: ArrayLike,
    nodes: ArrayLike,
    local_batch: ArrayLike,
    step_time: ArrayLike,
    sync_time: ArrayLike | None = None,
    frequency: ArrayLike | None = None,
) -> ThroughputFit:
    """Fit `Throughput` (and the memory-bound share) to measured steps.

    Minimises AdaptDL's loss ``RMSE(log T_grad) + RMSE(log T_iter) + 1e-3 (gamma-1)^2 +
    1e-2 ((beta_n/alpha_n)^2 + (beta_r/alpha_r)^2)``; the first term needs `sync_time`. A regime
    without measurements costs nothing, but across nodes at least 1.1 times as much as inside one.
    ``gamma_c`` stays 1 below five different local batches.

    Parameters
    ----------
    gpus, nodes, local_batch : array_like, shape (n,)
        GPUs, the nodes they are spread over, samples per GPU.
    step_time, sync_time : array_like, shape (n,)
        Seconds of a step, and the seconds of it that the GPUs spent synchronising.
    frequency : array_like, shape (n,), optional
        Clock in MHz; the largest is taken as the one at which the parameters hold.

    Returns
    -------
    ThroughputFit

    Raises
    ------
    ValueError
        For fewer than two measurements, values that are not finite and positive, and steps below 1 us.
    """
    steps = _steps(gpus, nodes, local_batch, step_time, sync_time, frequency)
    fitted = _fit(steps)
    predicted = _predict(fitted, steps)[1]
    error = np.abs(predicted / steps.step_time_s - 1.0)
    share = float(fitted[8]) if steps.clock is not None else None
    return ThroughputFit(_throughput(fitted), share, predicted, float(error.mean()), float(error.max()))


def held_out_error(
    gpus: ArrayLike,
    nodes: ArrayLike,
    local_batch: ArrayLike,
    step_time: ArrayLike,
    sync_time: ArrayLike | None = None,
    frequency: ArrayLike | None = None,
    *,
    folds: int = 4,
    seed: int = 0,
) -> FloatArray:
    """Relative errors of every step, predicted by a fit that has not seen it.

    Parameters as for `fit_throughput`; the steps are dealt into `folds` groups at random, and each
    group is predicted from the others.

    Raises
    ------
    ValueError
        As `fit_throughput`, and for fewer steps than twice the folds.
    """
    steps = _steps(gpus, nodes, local_batch, step_time, sync_time, frequency)
    n = len(steps.step_time_s)
    if n < 2 * folds:
        raise ValueError(f"a held-out check with {folds} folds needs {2 * folds} measurements, got {n}")
    fold = np.random.default_rng(seed).permutation(n) % folds
    error = np.empty(n)
    for k in range(folds):
        test = steps.rows(fold == k)
        error[fold == k] = _predict(_fit(steps.rows(fold != k)), test)[1] / test.step_time_s - 1.0
    return np.abs(error)


def _steps(
    gpus: ArrayLike,
    nodes: ArrayLike,
    local_batch: ArrayLike,
    step_time: ArrayLike,
    sync_time: ArrayLike | None,
    frequency: ArrayLike | None,
) -> Steps:
    columns = {"gpus": gpus, "nodes": nodes, "local_batch": local_batch, "step_time": step_time}
    arrays = {name: np.asarray(values, dtype=float).ravel() for name, values in columns.items()}
    if frequency is not None:
        arrays["frequency"] = np.asarray(frequency, dtype=float).ravel()
    for name, values in arrays.items():
        if len(values) != len(arrays["gpus"]):
            raise ValueError(f"{name} has {len(values)} values, gpus has {len(arrays['gpus'])}")
        wrong = values[~(np.isfinite(values) & (values > 0))]
        if wrong.size:
            raise ValueError(f"{name} has the value {wrong[0]:g}; it must be finite and above 0")
    if len(arrays["gpus"]) < 2:
        raise ValueError(f"a fit needs at least 2 measurements, got {len(arrays['gpus'])}")
    shortest = arrays["step_time"].min()
    if shortest < SHORTEST_STEP_S:
        raise ValueError(
            f"step_time has the value {shortest:g} s; a step takes at least {SHORTEST_STEP_S:g} s"
        )
    sync = None
    if sync_time is not None:
        sync = np.asarray(sync_time, dtype=float).ravel()
        if len(sync) != len(arrays["gpus"]) or not (np.isfinite(sync) & (sync >= 0)).all():
            raise ValueError("sync_time must have one finite value, 0 or more, per measurement")
    clock = arrays["frequency"].max() / arrays["frequency"] if frequency is not None else None
    return Steps(arrays["gpus"], arrays["nodes"], arrays["local_batch"], arrays["step_time"], sync, clock)


def _predict(values: FloatArray, steps: Steps) -> tuple[FloatArray, FloatArray]:
    """Return T_grad and T_iter for the nine values of `TIMES` and `SHAPES`."""
    alpha_c, beta_c, alpha_r, beta_r, alpha_n, beta_n, gamma, gamma_c, share = values.tolist()
    stretch = 1.0 if steps.clock is None else share + (1.0 - share) * steps.clock
    grad = overlapped_time_s(alpha_c, beta_c * steps.local_batch * stretch, gamma_c)
    sync = sync_time_s(steps.gpus, steps.nodes, alpha_r, beta_r, alpha_n, beta_n)
    return grad, overlapped_time_s(grad, sync, gamma)


def _residuals(values: FloatArray, steps: Steps, free: BoolArray) -> list[FloatArray]:
    """Logarithmic errors of T_iter, of T_grad where it was measured, and the penalties."""
    grad, iteration = _predict(values, steps)
    residuals = [np.log(iteration / steps.step_time_s)]
    if steps.sync_time_s is not None:
        measured_grad = steps.step_time_s - steps.sync_time_s
        known = measured_grad > 0.01 * steps.step_time_s
        residuals.append(np.log(grad[known] / measured_grad[known]))
    shapes = np.sqrt(1e-3) * (values[6:8] - 1.0)
    growth = 0.1 * values[[3, 5]] / np.maximum(values[[2, 4]], SMALLEST_S) * free[[3, 5]]
    return [*residuals, np.concatenate([shapes, growth])]


def _loss(values: FloatArray, steps: Steps, free: BoolArray) -> float:
    *errors, penalties = _residuals(values, steps, free)
    return float(sum(np.sqrt(np.mean(e**2)) for e in errors if e.size) + np.sum(penalties**2))


def _fit(steps: Steps) -> FloatArray:
    """Values of `TIMES` and `SHAPES`: least squares from several starts, then the loss itself.

    Times are searched as logarithms, which makes the problem indifferent to their scale.
    """
    free = steps.observed
    # Logarithms of the times, then gamma, gamma_c and the memory-bound share.
    low = np.array([np.log(SMALLEST_S)] * 6 + [1.0, 1.0, 0.0])
    high = np.array([np.log(1e3 * steps.step_time_s.max())] * 6 + [10.0, 10.0, 1.0])

    def values(z: FloatArray) -> FloatArray:
        full = np.concatenate([np.zeros(6), [1.0, 1.0, 0.0]])
        full[free] = z
        full[:6] = np.where(free[:6], np.exp(np.minimum(full[:6], high[:6])), 0.0)
        return full

    def squares(z: FloatArray) -> FloatArray:
        *errors, penalties = _residuals(values(z), steps, free)
        return np.concatenate([*(e / np.sqrt(max(e.size, 1)) for e in errors), penalties])

    solutions = [
        least_squares(squares, start[free], bounds=(low[free], high[free]), max_nfev=200)
        for start in _starts(steps, low, high)
    ]
    best = min(solutions, key=lambda solution: float(solution.cost))

    def loss(z: FloatArray) -> float:
        return _loss(values(z), steps, free)

    polished = minimize(loss, best.x, method="L-BFGS-B", bounds=Bounds(low[free], high[free]))
    return _with_unobserved(values(min((best.x, polished.x), key=loss)), free)


def _starts(steps: Steps, low: FloatArray, high: FloatArray) -> list[FloatArray]:
    """Return starting points around times of the size of the shortest step."""
    fastest = float(steps.step_time_s.min())
    per_sample = float(np.median(steps.step_time_s / steps.local_batch))
    times = np.log([fastest / 2, per_sample / 2, fastest / 4, fastest / 40, fastest / 4, fastest / 40])
    random = np.random.default_rng(0)
    starts = []
    for i in range(STARTS):
        shift = 0.0 if i == 0 else random.normal(0.0, 1.5, 6)
        start = np.concatenate([times + shift, [1.0 + 0.8 * i, 1.0 + 0.5 * (i % 3), 0.3]])
        starts.append(np.clip(start, low + 1e-3, high - 1e-3))
    return starts


def _with_unobserved(values: FloatArray, free: BoolArray) -> FloatArray:
    """Set times at the bound to 0, and the rule for several nodes where none were measured."""
    values = values.copy()
    values[:6] = np.where(values[:6] <= 2 * SMALLEST_S, 0.0, values[:6])
    if values[0] == values[1] == 0:
        values[1] = SMALLEST_S  # the steps look like synchronisation alone
    for inside, across in ((2, 4), (3, 5)):
        if not free[across]:
            values[across] = 1.1 * values[inside]
    return values


def _throughput(values: FloatArray) -> Throughput:
    return Throughput(**dict(zip((*TIMES, "gamma", "gamma_c"), values[:8].tolist(), strict=True)))


LARGEST_NOISE_SCALE = 1e8


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
    batch = np.asarray(batch_size, dtype=float)
    samples = np.asarray(samples_to_target, dtype=float)
    for name, values in (("batch_size", batch), ("samples_to_target", samples)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"{name} must be finite and above 0")
    if len(np.unique(batch)) < 2:
        raise ValueError("a noise scale needs measurements at two batches or more")

    def residuals(log_noise: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        difference = np.log(samples) - np.log1p(batch / np.exp(log_noise))
        return np.asarray(difference - difference.mean())

    low, high = np.log(batch.min() / 100.0), np.log(LARGEST_NOISE_SCALE)
    grid = np.linspace(low, high, 200)
    near = int(np.argmin([np.sum(residuals(z) ** 2) for z in grid]))
    bounds = (float(grid[max(near - 1, 0)]), float(grid[min(near + 1, len(grid) - 1)]))
    best = minimize_scalar(lambda z: float(np.sum(residuals(z) ** 2)), bounds=bounds, method="bounded")
    return float(np.exp(best.x)), float(np.abs(np.expm1(residuals(float(best.x)))).max())


def read_validation(folder: Path) -> tuple[list[int], list[float]]:
    """Batches and samples to the same progress from the ``validation-B.csv`` files of Pollux.

    ``progress`` counts iterations at the smallest batch that would teach as much: its increments are
    the gains that Pollux computes from ``grad_sqr`` and ``grad_var``.

    Raises
    ------
    ValueError
        If the folder holds no such file.
    """
    files = {int(path.stem.split("-")[1]): path for path in folder.glob("validation-*.csv")}
    if not files:
        raise ValueError(f"no validation-B.csv file in {folder}")
    batches = sorted(files)
    samples = []
    for batch in batches:
        with files[batch].open(newline="", encoding="utf-8") as stream:
            last = list(csv.DictReader(stream))[-1]
        samples.append(batch * float(last["iteration"]) / float(last["progress"]))
    return batches, samples


def read_epochs_to_target(
    path: Path, dataset: str, network: str, target: float
) -> tuple[list[int], list[float]]:
    """Batches and mean epochs to the target metric from the ``summary_train.csv`` of Zeus.

    A batch of which some run never reached the target is left out.

    Raises
    ------
    ValueError
        If no batch reached the target.
    """
    epochs: dict[int, list[float]] = {}
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if (row["dataset"], row["network"]) == (dataset, network) and np.isclose(
                float(row["target_metric"]), target
            ):
                reached = float(row["target_epoch"]) if row["target_epoch"] else float("nan")
                epochs.setdefault(int(row["batch_size"]), []).append(reached)
    means = {batch: float(np.mean(values)) for batch, values in sorted(epochs.items())}
    means = {batch: mean for batch, mean in means.items() if np.isfinite(mean)}
    if not means:
        raise ValueError(f"{path.name}: no batch of {network} on {dataset} reached {target}")
    return list(means), list(means.values())
