r"""What a second of each job's work is worth where rounds follow one another: the values of `flow`.

For jobs with speed-up :math:`\sqrt{k}` on k GPUs, weights :math:`w_j` and sizes :math:`T_j`, in the order
:math:`T_1 / w_1 > T_2 / w_2 > \dots`, the least total weighted completion time is linear in the sizes
(heSRPT: Berg, Vesilo, Harchol-Balter, Performance 2020, weighted flow time, with p = 1/2). Up to a factor
that is the same for all, its derivative by :math:`T_k` is

.. math:: v_k = \sqrt{Z_k^2 - Z_{k-1}^2} = \sqrt{w_k (Z_{k-1} + Z_k)}, \qquad Z_k = w_1 + \dots + w_k .
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import FloatArray

HOLD_S = 600.0
"""Seconds that a configuration is expected to be kept, where the round is not longer."""

_BITS = 30


def work_values(size_s: FloatArray, weight: FloatArray) -> FloatArray:
    """Value of a second of each job's work in its smallest configuration.

    Parameters
    ----------
    size_s : float array, shape (n_jobs,)
        Seconds that each job still takes in its smallest configuration.
    weight : float array, shape (n_jobs,)

    Returns
    -------
    float array, shape (n_jobs,)
        Sizes per weight count to 30 binary digits. Those of equals lie between the same two sums: squares are
        means over the orders that they could be in, and the order of the jobs does not matter.
    """
    mantissa, exponent = np.frexp(size_s / weight)
    rounded = np.ldexp(np.rint(np.ldexp(mantissa, _BITS)), exponent)
    _, place = np.unique(-rounded, return_inverse=True)
    of_equals = np.bincount(place, weight)
    until = np.cumsum(of_equals)
    return np.sqrt(weight * (until - of_equals + until)[place])
