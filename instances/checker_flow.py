r"""The objective `flow` as the checker reads it: what a second of each job's work is worth.

With :math:`Z^>` the sum of the weights of all jobs that are larger than a job per weight, and :math:`Z^\ge`
of those that are at least as large, itself included, its value is the root of :math:`w (Z^> + Z^\ge)`. Its
size is its remaining work over the best rate that it has with the fewest GPUs. Sizes per weight are compared
after rounding to 30 binary digits, so that the last digits of a rate do not decide.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction

from wattsched.instances.instance import Instance, Job

SHORTEST_HOLD_S = 600.0


def hold_s(instance: Instance) -> float:
    """Seconds over which a restart is spread: those that a configuration is expected to be kept."""
    return max(SHORTEST_HOLD_S, instance.round_s)


def squared_values(jobs: Iterable[tuple[Job, float]]) -> dict[str, Fraction]:
    """Squares of the values, by the jobs' names.

    Parameters
    ----------
    jobs : iterable of (Job, float)
        All jobs of the instance, with their best rates at the fewest GPUs.
    """
    alike: dict[float, list[Job]] = defaultdict(list)
    for job, reference_rate in jobs:
        alike[_rounded(job.remaining_work / reference_rate / job.weight)].append(job)
    found: dict[str, Fraction] = {}
    larger = Fraction(0)
    for size in sorted(alike, reverse=True):
        until = larger + sum(Fraction(job.weight) for job in alike[size])
        found |= {job.name: Fraction(job.weight) * (larger + until) for job in alike[size]}
        larger = until
    return found


def _rounded(size: float) -> float:
    mantissa, exponent = math.frexp(size)
    return math.ldexp(round(mantissa * 2**30), exponent)
