r"""How fragmented the free GPUs are, by FGD's measure (Weng et al., USENIX ATC 2023, section 3.1).

FGD counts, for a task drawn from the workload, the free GPUs that it could not use where they are:

.. math:: F(M) = \sum_{m \in M} p_m F(m).

Here M are the block sizes of the GPU counts that the trace's jobs ask for, :math:`p_m` is their share of the
jobs, and a free GPU is a fragment for jobs of a size when it lies in no free aligned block of that size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattsched.replay.jobs.ground import Ground
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.buddy import block_size


class Fragmentation:
    """Integrates free GPUs and fragments over time.

    Attributes
    ----------
    free_gpu_s, fragment_gpu_s : float
        GPU seconds that were free, and F(M) over time.
    """

    def __init__(self, trace: Trace, grounds: Sequence[Ground]) -> None:
        levels = np.log2(block_size(trace.requested_gpus)).astype(np.int64)
        self._jobs = np.bincount(levels, minlength=1)
        self._n_jobs = max(1, len(trace))
        self._grounds = grounds
        self.free_gpu_s = self.fragment_gpu_s = 0.0
        self._free = self._fragments = 0.0
        self.measure()

    @property
    def now(self) -> float:
        """Share of the free GPUs that are fragments, 0 when none is free."""
        return self._fragments / self._free if self._free else 0.0

    @property
    def mean(self) -> float:
        """Share of the free GPU time so far."""
        return self.fragment_gpu_s / self.free_gpu_s if self.free_gpu_s else 0.0

    def advance(self, seconds: float) -> None:
        """Count GPUs that stay free so long."""
        self.free_gpu_s += self._free * seconds
        self.fragment_gpu_s += self._fragments * seconds

    def measure(self) -> None:
        """Count the free GPUs of this moment."""
        free = usable = 0
        for ground in self._grounds:
            by_level = ground.occupancy.free_gpus
            free += int(by_level[0])
            # Larger jobs than the pool's blocks use none of them.
            reach = self._jobs[: len(by_level)]
            usable += int(reach @ by_level[: len(reach)])
        self._free, self._fragments = float(free), free - usable / self._n_jobs
