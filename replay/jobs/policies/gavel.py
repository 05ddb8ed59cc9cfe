r"""`gavel-max-min`: heterogeneity-aware max-min fairness (Narayanan et al., OSDI 2020, sections 4.1 and 5).

An LP gives every job m a share :math:`X_{mp}` of its time on the GPUs of every pool p,

.. math:: \max_X \min_m z_m \frac{\sum_p T_{mp} X_{mp}}{\sum_p T_{mp} X^{equal}_p}
          \quad\text{s.t.}\quad \sum_p X_{mp} \le 1,\ \sum_m z_{mp} X_{mp} \le W_p,

with the rate T of the job on the GPUs asked for, their number z, and :math:`X^{equal}` in proportion to the
GPUs W of the pools. Rounds follow the shares by priorities (`turns`).

Where the paper is silent: a job counts for the block that it takes up, jobs alike have one variable, and room
that the shares leave in a round is given to those left over, in the order of arrival.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.policies.requests import Room
from wattsched.replay.jobs.policies.turns import ROUND_S, Received, Rounds, by_priority
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.topology.arrays import FloatArray, IntArray


class Gavel:
    """Max-min fairness of throughput, on the GPUs asked for, in rounds of six minutes."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s
        trace = setting.trace
        self._rounds = Rounds(ROUND_S)
        self._received = Received(len(trace), len(trace.pools))
        self._gpus = np.array([int(pool.available.sum()) for pool in trace.pools], dtype=float)
        self._jobs: IntArray = np.empty(0, dtype=np.int64)
        self._shares: FloatArray = np.empty((0, len(trace.pools)))

    def decide(self, view: View) -> Decision:
        """Give this round to those that have had least of their share."""
        if (kept := self._rounds.kept(view)) is not None:
            return kept
        received = self._received.share(view)
        if not np.array_equal(view.jobs, self._jobs):
            self._jobs, self._shares = view.jobs, shares(view, self._gpus)
        room, row = Room.whole(view), np.full(len(view), WAITS, dtype=np.int64)
        for j, pool in by_priority(self._shares, received):
            if row[j] == WAITS:
                row[j] = room.take(view.request[j, pool : pool + 1])
        for j in np.flatnonzero(row == WAITS).tolist():
            row[j] = room.take(view.request[j])
        return Decision(row, again_s=self._rounds.next_s)


def shares(view: View, gpus: FloatArray) -> FloatArray:
    """Shares of time that maximise the least normalised throughput.

    Parameters
    ----------
    gpus : float array, shape (n_pools,)
        Available GPUs of each pool.

    Returns
    -------
    float array, shape (n, n_pools)
    """
    alike, of_job, number = np.unique(view.request, axis=0, return_inverse=True, return_counts=True)
    runs = alike != WAITS
    rate = np.where(runs, view.menus.rate[alike], 0.0)
    block = np.where(runs, view.menus.block[alike], 0)
    equal = rate @ (gpus / gpus.sum())
    value = rate / equal[:, None] * block.max(axis=1)[:, None]
    return max_min(value, number[:, None] * block, gpus)[of_job.reshape(-1)]


def max_min(value: FloatArray, use: FloatArray | IntArray, capacity: FloatArray) -> FloatArray:
    """Maximise the least of the sums of ``value * x`` over the rows.

    Parameters
    ----------
    value : float array, shape (n, n_pools)
        0 where a row cannot use a pool.
    use : array, shape (n, n_pools)
        What all of a pool's time takes of its capacity.
    capacity : float array, shape (n_pools,)

    Returns
    -------
    float array, shape (n, n_pools)
        x, at least 0, its rows with sums of at most 1.

    Raises
    ------
    RuntimeError
        If the LP is not solved.
    """
    from scipy.optimize import linprog
    from scipy.sparse import block_array, coo_array

    n, pools = value.shape
    row, pool = np.nonzero(value > 0)
    k = np.arange(len(row))
    ones = np.ones(len(row))
    sums = coo_array((ones, (row, k)), shape=(n, len(row)))
    worth = coo_array((-value[row, pool], (row, k)), shape=(n, len(row)))
    taken = coo_array((use[row, pool], (pool, k)), shape=(pools, len(row)))
    least = coo_array(np.ones((n, 1)))
    rows: Any = block_array([[worth, least], [sums, None], [taken, None]], format="csr")
    answer = linprog(
        np.append(np.zeros(len(row)), -1.0),
        A_ub=rows,
        b_ub=np.concatenate([np.zeros(n), np.ones(n), capacity]),
        method="highs",
    )
    if answer.x is None:
        raise RuntimeError(f"the LP of shares was not solved: {answer.message}")
    x = np.zeros((n, pools))
    x[row, pool] = np.clip(answer.x[:-1], 0.0, 1.0)
    return x
