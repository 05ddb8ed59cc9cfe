"""How much less a sample teaches when the batch is larger."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wattsched.topology.cluster import Count, NonNegative, Strict


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

    def of(self, batch_size: ArrayLike) -> NDArray[np.float64]:
        """E(B): in (0, 1] from `reference_batch` up, above 1 below it."""
        batch = np.asarray(batch_size, dtype=float)
        return np.asarray((self.noise_scale + self.reference_batch) / (self.noise_scale + batch))
