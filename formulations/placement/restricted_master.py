"""Configuration LP over the patterns found so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, vstack

from wattsched.formulations.growing_lp import solve_growing
from wattsched.formulations.placement.node_types import NodeTypes
from wattsched.formulations.placement.pattern_prices import TOTALS, Accepted, sizes
from wattsched.formulations.placement.pattern_pricing import Patterns
from wattsched.instances.placement.tables import TaskTable
from wattsched.topology.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class MasterSolution:
    """Optimum of the LP over some patterns.

    Parameters
    ----------
    cost_w : float
        The optimum: with nothing missing, an upper bound on that over all patterns.
    profile, total, node, memory : (M,), (3,), (K,), (K,) float
        Duals of the rows; those of memory are at most 0, those of node types of any sign, the others at
        least 0.
    accepted : (M,) float
        Tasks of each profile.
    missing : float
        Tasks and amounts that the LP paid for not having.
    nodes : (P,) float
        Nodes that carry each pattern.
    """

    cost_w: float
    profile: FloatArray
    total: FloatArray
    node: FloatArray
    memory: FloatArray
    accepted: FloatArray
    missing: float
    nodes: FloatArray


class RestrictedMaster:
    """The rows of `Prices.bound_w` as an LP that grows by patterns, solved by HiGHS.

    Parameters
    ----------
    types : NodeTypes
        K node types.
    profiles : TaskTable
        M profiles.
    packed : (M,) bool
        Profiles that need a place in a pattern.
    accepted : Accepted
    weight : float
        Of the power of a pattern in its cost.
    gpu_reward_w : float
        Watts that an accepted task takes off the cost per GPU that it asks for.
    """

    def __init__(
        self,
        types: NodeTypes,
        profiles: TaskTable,
        packed: BoolArray,
        accepted: Accepted,
        weight: float,
        gpu_reward_w: float,
    ):
        import highspy

        self._weight = weight
        self._profiles, self._types = len(profiles), len(types)
        self._demands = self._profiles + TOTALS
        self._highs: Any = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        count = types.count.astype(np.float64)
        lower = np.concatenate(
            [np.zeros(self._profiles), accepted.totals, count, np.full(len(count), -np.inf)]
        )
        upper = np.concatenate([np.full(self._demands, np.inf), count, count * types.nodes.memory_mib])
        none = np.zeros(0)
        self._highs.addRows(len(lower), lower, upper, 0, _ints(0 * count), _ints(none), none)
        size = sizes(profiles)
        rest = csc_array((2 * self._types, self._profiles))
        taken = vstack([csc_array(np.diag(np.where(packed, -1.0, 0.0))), csc_array(size), rest])
        self._add(taken, -gpu_reward_w * size[0], accepted.least, accepted.most)
        missing = csc_array(np.eye(len(lower), self._demands))
        self._add(missing, np.zeros(self._demands), np.zeros(self._demands), np.full(self._demands, np.inf))

    def limit(self, missing_w: FloatArray) -> None:
        """Set the watts for a task of each profile, a GPU, a vCPU and a task too few, shape (M + 3,).

        They keep the LP feasible while patterns are few, and are what the duals of these rows can be at most.
        """
        columns = np.arange(self._profiles, self._profiles + self._demands)
        self._highs.changeColsCost(len(columns), _ints(columns), missing_w)

    def add(self, patterns: Patterns) -> None:
        """Add patterns."""
        kind = csc_array((np.arange(self._types)[:, None] == patterns.type).astype(np.float64))
        hosted = csc_array(patterns.hosted.T.astype(np.float64))
        matrix = vstack([hosted, csc_array((TOTALS, len(patterns))), kind, kind * patterns.memory_mib])
        nothing = np.zeros(len(patterns))
        self._add(matrix, self._weight * patterns.power_w, nothing, nothing + np.inf)

    def _add(self, matrix: Any, cost: FloatArray, lower: FloatArray, upper: FloatArray) -> None:
        matrix = csc_array(matrix)
        start, index = _ints(matrix.indptr[:-1]), _ints(matrix.indices)
        self._highs.addCols(len(cost), cost, lower, upper, matrix.nnz, start, index, matrix.data)

    def solve(self) -> MasterSolution:
        """Optimum over the patterns so far.

        Raises
        ------
        RuntimeError
            If HiGHS does not find it.
        """
        solve_growing(self._highs, "patterns")
        solution = self._highs.getSolution()
        rows = np.cumsum([self._profiles, TOTALS, self._types])
        profile, total, node, memory = np.split(np.array(solution.row_dual), rows)
        accepted, missing, nodes = np.split(
            np.array(solution.col_value), np.cumsum([self._profiles, self._demands])
        )
        cost_w = float(self._highs.getInfo().objective_function_value)
        return MasterSolution(cost_w, profile, total, node, memory, accepted, float(missing.sum()), nodes)


def _ints(values: NDArray[Any]) -> NDArray[np.int32]:
    return values.astype(np.int32)
