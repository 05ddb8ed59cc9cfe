r"""The surrogate bound of bottleneck objectives: what prices prove of the worst job's value.

Let every job take an option that is worth :math:`t` or better. At prices :math:`\lambda \ge 0` the rows allow
charges of :math:`\lambda U` together, so if even the least charges sum to more,

.. math:: \sum_j \min_{o \in O_j:\ c_{jo} \le t} \sum_r \lambda_r a_{r,jo} > \sum_r \lambda_r U^r ,

some job is worse than :math:`t` in every decision. The least :math:`t` for which this does not hold bounds
the objective; multiples of the prices prove the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import IntArray
from wattsched.verification.arithmetic import Arithmetic, Numbers


class Reach(NamedTuple):
    """Values of the options of some jobs, and the charges that they pay, job by job.

    Attributes
    ----------
    start : int array, shape (n_jobs,)
        Index of each job's first option.
    low, high : arrays, shape (n_options,)
        Ends of the options' values, infinite for options that are late: by the checker's tolerance in `low`,
        by any arithmetic in `high`.
    charge : array, shape (n_options,)
        Not above the charge of each option.
    """

    start: IntArray
    low: Numbers
    high: Numbers
    charge: Numbers

    @classmethod
    def joined(cls, parts: Iterable[Reach]) -> Reach:
        """Reach of the jobs of all parts."""
        starts, *values = zip(*parts, strict=True)
        sizes = np.cumsum([0, *(len(low) for low in values[0])])
        moved = [start + size for start, size in zip(starts, sizes, strict=False)]
        return cls(np.concatenate(moved), *map(np.concatenate, values))

    def surely(self) -> Numbers:
        """Values of the options that are surely in time; of jobs that have none, of the others."""
        none = np.minimum.reduceat(self.high, self.start) == np.inf
        return np.where(np.repeat(none, np.diff([*self.start, len(self.low)])), self.low, self.high)

    def threshold(self, values: Numbers, capacity: Fraction, arithmetic: Arithmetic) -> Fraction:
        """Least value up to which options can pay no more than a capacity; the worst one if there is none.

        Parameters
        ----------
        values : array, shape (n_options,)
            `low` or `high`.
        """

        def pays_no_more(threshold: object) -> bool:
            least = np.minimum.reduceat(np.where(values <= threshold, self.charge, np.inf), self.start)
            return bool(np.all(least < np.inf)) and arithmetic.sum_below(least) <= capacity

        levels = np.unique(values[values < np.inf])
        place = bisect_left(levels, True, key=pays_no_more)
        return Fraction(levels[min(place, len(levels) - 1)])

    def none_fits(self, capacity: Fraction, arithmetic: Arithmetic) -> bool:
        """True if the options that pay least pay more than a capacity: there is no decision then."""
        least = np.minimum.reduceat(np.where(self.low < np.inf, self.charge, np.inf), self.start)
        return bool(np.any(least == np.inf)) or arithmetic.sum_below(least) > capacity
