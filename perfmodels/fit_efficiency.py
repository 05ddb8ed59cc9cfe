"""Fit the noise scale: how much larger batches cost in samples."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

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
