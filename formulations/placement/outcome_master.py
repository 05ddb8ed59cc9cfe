"""Prices of tasks and nodes from an LP over some outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from wattsched.formulations.placement.master import RestrictedMaster
from wattsched.topology.arrays import FloatArray, IntArray

Counts = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class Prices:
    """Duals of the LP, and its optimum.

    Attributes
    ----------
    task_worth : (P,) float
        What hosting a task of each profile may cost and is still worth it.
    node_cost : (C,) float
        What using a node of each class costs besides, 0 or more.
    nodes : (K,) float
        How many nodes use each outcome so far, at the optimum.
    cost : float
        The optimum.
    """

    task_worth: FloatArray
    node_cost: FloatArray
    nodes: FloatArray
    cost: float

    def reduced(self, cls: IntArray, hosted: Counts, cost: FloatArray) -> FloatArray:
        """Costs of outcomes beyond their prices, shape (K,); parameters as of `OutcomeMaster.add`."""
        return np.asarray(cost - hosted @ self.task_worth + self.node_cost[cls])


class OutcomeMaster:
    r"""LP that grows by outcomes.

    .. math::
        \min \sum_k \Bigl(c_k - \sum_p w_p a_{kp}\Bigr) \lambda_k \quad\text{s.t.}\quad
        \sum_k a_{kp} \lambda_k \le d_p\ \forall p,\quad
        \sum_{k\ \text{of class}\ c} \lambda_k \le n_c\ \forall c,\quad \lambda \ge 0

    Parameters
    ----------
    demand : (P,) int
        d, tasks of each profile.
    count : (C,) int
        n, nodes of each class.
    worth : (P,) float
        w, cost of not hosting a task.
    """

    def __init__(self, demand: IntArray, count: IntArray, worth: FloatArray):
        self._worth, self._nodes = worth, len(count)
        self._saved: list[float] = []
        self._lp = RestrictedMaster("outcomes")
        self._lp.add_rows(-np.inf, np.concatenate([demand, count]))

    def add(self, cls: IntArray, hosted: Counts, cost: FloatArray) -> None:
        """Add outcomes: their classes (K,), the tasks of each profile (K, P), their costs (K,)."""
        size = len(cls)
        member = csr_array((np.ones(size), cls, np.arange(size + 1)), shape=(size, self._nodes))
        saved = hosted @ self._worth
        self._saved += saved.tolist()
        self._lp.add_columns(hstack([csr_array(hosted.astype(float)), member]).T, cost - saved)

    def reprice(self, column: int, cost: float) -> None:
        """Change the cost of an outcome."""
        self._lp.change_costs([column], cost - self._saved[column])

    def prices(self) -> Prices:
        """Duals of the optimum over the outcomes so far.

        Raises
        ------
        RuntimeError
            If HiGHS does not find it.
        """
        if not self._saved:
            return Prices(self._worth, np.zeros(self._nodes), np.zeros(0), 0.0)
        optimum = self._lp.solve()
        of_tasks, of_nodes = np.split(np.minimum(optimum.prices, 0.0), [len(self._worth)])
        return Prices(self._worth + of_tasks, -of_nodes, optimum.x, optimum.cost)
