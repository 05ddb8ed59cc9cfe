"""Seconds of an iteration (the Pollux/AdaptDL form), and what a sample teaches in larger batches."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Count, NonNegative, Strict

GAMMAS = (1.0, 10.0)
"""From phases that take turns to phases that overlap."""
Overlap = Annotated[float, Field(ge=GAMMAS[0], le=GAMMAS[1])]


def sync_terms(gpus: ArrayLike, nodes: ArrayLike) -> FloatArray:
    """What T_sync multiplies alpha_r, beta_r, alpha_n and beta_n with, shape (..., 4); 0: not involved."""
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
