r"""Jobs that share the GPUs of a node: what EaCO measured, and laws for sets that nobody measured.

On a node with two Xeon Gold 6240 and eight V100, ImageNet classifiers were trained for 90 epochs, alone and
together, each on all eight GPUs (EaCO, arXiv 2412.08294, tables 1 to 4). For other sets:

- utilisation adds up (measured sets: within 6 points) and stops at 100 %;
- peak memory adds up, which is on the safe side, by up to 62 points for the set of four;
- the node draws :math:`P = 356 + 178.8\,U^{0.478}` watts at a mean GPU utilisation of U percent (fitted on
  the ten measured points, residuals up to 66 W);
- n jobs whose utilisations add up to L (1 is a full GPU) take
  :math:`\sigma = \max(L,\ 1 + (n - 1)(a + b L^p))` times as long per epoch as alone (`fit_slowdown`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import FloatArray

EPOCHS = 90
"""Epochs of every measured run."""

IDLE_W, FULL_W, POWER_EXPONENT = 356.0, 356.0 + 178.8 * 100**0.478, 0.478
"""The fitted node power at no and at full utilisation, and its exponent."""


class Run(NamedTuple):
    """A measured run: one job alone, or several jobs on one node.

    Attributes
    ----------
    power_w : float
        Mean draw of the node.
    energy_kwh : float
        Energy of the run as published.
    jct_h : float
        Job completion time, mean over the jobs of the node.
    utilisation_pct : float
        Mean over time of the mean GPU utilisation.
    memory_pct : float
        Peak GPU memory.
    """

    power_w: float
    energy_kwh: float
    jct_h: float
    utilisation_pct: float
    memory_pct: float


ALEXNET, RESNET18, RESNET50, VGG16 = "AlexNet", "ResNet-18", "ResNet-50", "VGG-16"

ALONE = {
    ALEXNET: Run(712, 24.73, 34.76, 4.72, 4.21),
    RESNET18: Run(959, 33.69, 35.13, 11.17, 14.63),
    RESNET50: Run(1330, 47.87, 36.01, 36.61, 43.92),
    VGG16: Run(1533, 55.38, 36.13, 48.01, 51.29),
}
"""Each job with the node to itself (EaCO, tables 1 and 2)."""

SHARED = {
    (ALEXNET, RESNET50): Run(1390, 50.93, 36.63, 40.25, 46.25),
    (ALEXNET, VGG16): Run(1506, 54.97, 36.51, 55.16, 52.96),
    (RESNET18, VGG16): Run(1644, 60.84, 37.01, 61.06, 52.54),
    (ALEXNET, RESNET18, RESNET50): Run(1541, 59.01, 38.28, 52.24, 55.88),
    (ALEXNET, RESNET18, VGG16): Run(1713, 65.55, 38.26, 66.99, 52.75),
    (ALEXNET, RESNET18, RESNET50, VGG16): Run(1944, 93.66, 44.21, 96.64, 52.54),
}
"""Jobs that share the node (EaCO, tables 3 and 4).

The energy of the set of four is not its power times its time: at 1,944 W it is that of 48.2 h, not of 44.2 h.
"""


class SlowdownLaw(NamedTuple):
    """Parameters a, b and p of the slowdown of sets that nobody measured."""

    per_job: float
    per_load: float
    exponent: float

    def of(self, jobs: float | FloatArray, load: float | FloatArray) -> FloatArray:
        """Epoch time in a set over that alone.

        Parameters
        ----------
        jobs, load : float or arrays of one shape
            Number of jobs, and sum of their utilisations alone; 1 is a full GPU.
        """
        shared = 1.0 + (np.asarray(jobs) - 1.0) * (
            self.per_job + self.per_load * np.power(load, self.exponent)
        )
        return np.asarray(np.maximum(load, shared))


EXPONENTS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


def fit_slowdown(jobs: Sequence[int], load: Sequence[float], slowdown: Sequence[float]) -> SlowdownLaw:
    """Fit the law to measured sets: least squares in a and b, and the exponent with the least worst residual.

    Parameters
    ----------
    jobs, load, slowdown : sequences of one length, two at least
        As of `SlowdownLaw.of`.
    """
    if len(jobs) < 2:
        raise ValueError(f"a slowdown law needs at least 2 measured sets, got {len(jobs)}")
    others, loads = np.array(jobs, dtype=float) - 1.0, np.array(load, dtype=float)
    excess = np.array(slowdown, dtype=float) - 1.0
    fits = []
    for exponent in EXPONENTS:
        terms = np.stack([others, others * loads**exponent], axis=1)
        found = np.linalg.lstsq(terms, excess, rcond=None)[0]
        fits.append((float(np.max(np.abs(terms @ found - excess))), exponent, found))
    _, exponent, (per_job, per_load) = min(fits, key=lambda fit: fit[0])
    return SlowdownLaw(max(0.0, float(per_job)), max(0.0, float(per_load)), exponent)


def measured_slowdown(members: Sequence[str]) -> float:
    """Mean completion time of a measured set over that of its jobs alone (3.0 to 24.5 % more).

    The 3 to 7.8 % and 19 % of the publication are shares of the time together. Other sets are a KeyError.
    """
    return SHARED[tuple(members)].jct_h / float(np.mean([ALONE[name].jct_h for name in members]))


EACO_SLOWDOWN = fit_slowdown(
    [len(members) for members in SHARED],
    [sum(ALONE[name].utilisation_pct for name in members) / 100 for members in SHARED],
    [measured_slowdown(members) for members in SHARED],
)
"""The law fitted to the six sets (residuals up to 0.9 points)."""


def power_at(
    utilisation_pct: float | FloatArray,
    idle_w: float | FloatArray = IDLE_W,
    full_w: float | FloatArray = FULL_W,
    exponent: float | FloatArray = POWER_EXPONENT,
) -> FloatArray:
    """Watts of EaCO's node at a mean GPU utilisation, or of one with other watts at 0 and at 100 %."""
    share = np.minimum(np.asarray(utilisation_pct) / 100.0, 1.0)
    return np.asarray(idle_w + (np.asarray(full_w) - idle_w) * share**exponent)
