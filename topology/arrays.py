"""The array types that all parts name, and what numpy lacks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def ranges(start: IntArray, size: IntArray) -> IntArray:
    """All numbers from each start on, as many as its size says, one range after the other."""
    skipped = np.cumsum(size) - size
    return np.asarray(np.arange(int(size.sum())) + np.repeat(start - skipped, size))
