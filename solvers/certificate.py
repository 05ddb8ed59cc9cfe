"""Row prices made safe: a bound that everybody can recompute from them."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import FloatArray, Program

# Rounding of the last digit can ask an unbounded column for more than its cost; a slightly
# smaller price loses as much of the bound and keeps it finite.
_SHRINKAGES = (0.0, 1e-13, 1e-11, 1e-9, 1e-7, 1.0)


def certified(program: Program, prices: FloatArray | None) -> tuple[FloatArray, float]:
    """Prices with the right signs, and the Lagrangian bound that they prove.

    Returns
    -------
    prices : float array, shape (n_rows,)
    bound : float
        -inf when neither the prices nor zero prices prove anything.
    """
    y = np.zeros(program.n_rows) if prices is None else np.where(np.isfinite(prices), prices, 0.0)
    y = np.where((y > 0) & ~np.isfinite(program.row_lower), 0.0, y)
    y = np.where((y < 0) & ~np.isfinite(program.row_upper), 0.0, y)
    y = y + 0.0  # no -0.0 for readers to wonder about
    bound = -np.inf
    for shrinkage in _SHRINKAGES:
        shrunk = y * (1.0 - shrinkage)
        bound = program.lagrangian_bound(shrunk)
        if bound > -np.inf:
            return shrunk, bound
    return np.zeros(program.n_rows), bound
