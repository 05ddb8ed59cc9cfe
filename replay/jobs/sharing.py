r"""Jobs that share their GPUs: how much longer each takes, and what each counts for of the watts.

The utilisation of a configuration is its draw above idle over that of a GPU at its highest,

.. math:: u = \frac{P - P_{idle}}{P_{max} - P_{idle}},

and utilisations add up to L, as EaCO measured (`perfmodels.co_location`). Each of n jobs then takes
:math:`\max(L, \sigma(n, \min(L, 1)))` times as long as alone, with EaCO's fitted law :math:`\sigma`: beyond
full GPUs they take turns. The GPUs draw :math:`P_{idle} + (P_{max} - P_{idle}) \min(L, 1)`. Each job counts
for an equal part of the GPUs and of their idle watts, and for the rest in proportion to its utilisation. One
that restarts already counts among those that share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wattsched.perfmodels.co_location import EACO_SLOWDOWN
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import FloatArray, IntArray


class Shares(NamedTuple):
    """What becomes of jobs that share their GPUs.

    Attributes
    ----------
    slowdown : float array, shape (n,)
        Run time over that alone.
    part : float array, shape (n,)
        Part of the GPUs that each job counts for.
    busy_w : float array, shape (n,)
        Each job's part of the draw above the idle one.
    """

    slowdown: FloatArray
    part: FloatArray
    busy_w: FloatArray


class Sharing:
    """Sharing in the configurations of a trace.

    Attributes
    ----------
    utilisation : float array, shape (n_rows,)
    """

    def __init__(self, trace: Trace) -> None:
        menus = trace.menus
        self._range_w = menus.gpus * trace.highest_w[menus.pool] - trace.idle_w
        above = np.maximum(menus.power_w - trace.idle_w, 0.0)
        used = np.divide(above, self._range_w, out=np.ones(len(menus)), where=self._range_w > 0)
        self.utilisation: FloatArray = np.minimum(used, 1.0)

    def of(self, rows: IntArray, sets: IntArray) -> Shares:
        """Work out what sharing does to jobs.

        Parameters
        ----------
        rows : int array, shape (n,)
            Configurations; those of a set have the same pool and GPU count.
        sets : int array, shape (n,)
            Number of the set that each belongs to; all members of a set are there.
        """
        _, of_job, jobs = np.unique(sets, return_inverse=True, return_counts=True)
        used = self.utilisation[rows]
        load = np.bincount(of_job, used)[of_job].astype(float)
        number = jobs[of_job].astype(float)
        busy_w = used * np.maximum(self._range_w[rows], 0.0) / np.maximum(load, 1.0)
        return Shares(slowdown(number, load), 1.0 / number, busy_w)


def slowdown(jobs: float | FloatArray, load: float | FloatArray) -> FloatArray:
    """Run time of each of so many jobs that share GPUs over that alone.

    Parameters
    ----------
    jobs, load : float or float arrays of one shape
        Number of jobs, and sum of their utilisations.
    """
    return np.maximum(EACO_SLOWDOWN.of(jobs, np.minimum(load, 1.0)), load)
