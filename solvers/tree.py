"""Branch and bound for the sake of proof: the value is known, and every leaf has prices that prove it.

Nothing is looked for. Nodes restrict choice groups; the LP relaxation of each, solved from the last one's
basis, has prices, and where these prove the value the node is a leaf. Of an infeasible node a ray of the dual
proves any value. Where time or nodes run out, the leaves have the prices of the nodes above them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import highspy
import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FRACTIONAL
from wattsched.solvers.lp import Status, has_point, loaded, run, scaled
from wattsched.solvers.solution import Limits, certified
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

MOST_NODES = 20_000
"""Nodes of a tree, at most."""

# How far along a ray of the dual prices are tried, in steps of this factor.
_RAY = 8.0
_RAY_STEPS = 60


@dataclass
class Node:
    """A node of a tree: a leaf, or a split of a group.

    Attributes
    ----------
    prices : float array, shape (n_rows,)
        That prove its bound; of a node that was split they are its own, and prove less than its leaves.
    columns, others : int arrays, optional
        Of the group that is split: what is left of it inside, and outside.
    inside, outside : int
        Numbers of the children.
    """

    prices: FloatArray
    columns: IntArray | None = None
    others: IntArray | None = None
    inside: int = -1
    outside: int = -1


@dataclass(frozen=True)
class Tree:
    """A proof by cases.

    Attributes
    ----------
    nodes : list of Node
        The root first, children after their parents.
    bound : float
        What the leaves prove together.
    """

    nodes: list[Node]
    bound: float


@dataclass(order=True)
class _Open:
    """A node that is not proven: what is known to bound it, and the columns that are left."""

    bound: float
    number: int
    keep: BoolArray = field(compare=False)


def prove(program: Program, value: float, prices: FloatArray, timer: Timer, nodes: int = MOST_NODES) -> Tree:
    """Prove that no point costs less than a value, or as much of it as time and nodes allow.

    Parameters
    ----------
    program : Program
        Without a bottleneck.
    value : float
        A bound that is known, or claimed.
    prices : float array, shape (n_rows,)
        Those that prove most without branching.
    """
    relaxation, grown = _Relaxation(program), [Node(prices)]
    left = [_Open(program.lagrangian_bound(prices), 0, np.ones(program.n_choices, dtype=bool))]
    proven = np.inf
    while left and left[0].bound < value:
        if len(grown) + 2 > nodes or timer.over():
            break
        node = heapq.heappop(left)
        solved = relaxation.solve(node.keep, value, timer)
        if solved is None:
            heapq.heappush(left, node)
            break
        x, y, bound = solved
        if bound > node.bound:
            grown[node.number].prices, node.bound = y, bound
        split = None if bound >= value or x is None else _split(program, node.keep, x, y)
        if split is None:
            proven = min(proven, node.bound)
            continue
        _grow(grown, left, node, program, split)
    return Tree(grown, min([proven, *(node.bound for node in left)]))


def _grow(grown: list[Node], waiting: list[_Open], node: _Open, program: Program, split: IntArray) -> None:
    """Split a node; its children begin with its prices."""
    first, end = _group_of(program, int(split[0]))
    left = first + np.flatnonzero(node.keep[first:end])
    others = np.setdiff1d(left, split)
    inside, outside = node.keep.copy(), node.keep.copy()
    inside[others] = outside[split] = False
    above = grown[node.number]
    above.columns, above.others = split, others
    above.inside, above.outside = len(grown), len(grown) + 1
    for keep in (inside, outside):
        heapq.heappush(waiting, _Open(_bound(program, above.prices, keep), len(grown), keep))
        grown.append(Node(above.prices))


def _group_of(program: Program, column: int) -> tuple[int, int]:
    group = int(np.searchsorted(program.group_start, column, side="right")) - 1
    return int(program.group_start[group]), int(program.group_start[group + 1])


def _split(program: Program, keep: BoolArray, x: FloatArray, prices: FloatArray) -> IntArray | None:
    """Some columns of the fractional group whose columns differ most in priced use: the cheaper part.

    None where no group is fractional.
    """
    fraction = x[: program.n_choices]
    split = (fraction > FRACTIONAL) & (fraction < 1 - FRACTIONAL)
    if not split.any():
        return None
    use = abs(program.matrix[:, : program.n_choices]).T @ np.abs(prices)
    starts = program.group_start[:-1]
    least = np.minimum.reduceat(np.where(split, use, np.inf), starts)
    most = np.maximum.reduceat(np.where(split, use, -np.inf), starts)
    first, end = program.group_start[int(np.argmax(most - least)) :][:2]
    columns = np.arange(first, end)
    columns = columns[keep[columns]]
    below = use[columns] <= float(use[columns] @ fraction[columns])
    if below.all() or not below.any():
        # Both sides need a column, even where the last one is the only one that is split.
        below = columns <= min(columns[split[columns]][0], columns[-2])
    return np.asarray(columns[below])


def _bound(program: Program, prices: FloatArray, keep: BoolArray) -> float:
    """Lagrangian bound of the points that take columns that are kept."""
    n = program.n_choices
    reduced = (program.cost - program.matrix.T @ prices)[:n]
    start = program.group_start[:-1]
    least = np.minimum.reduceat(reduced, start)
    kept = np.minimum.reduceat(np.where(keep, reduced, np.inf), start)
    return program.lagrangian_bound(prices) + float((kept - least).sum())


class _Relaxation:
    """The LP relaxation of a program, of which some choice columns are left, from the last basis."""

    def __init__(self, program: Program) -> None:
        self._program, self._model = program, scaled(program)
        self._solver = loaded(self._model, Limits(), Timer(), relaxed=True)
        self._solver.setOptionValue("presolve", "off")
        self._columns = np.arange(program.n_choices, dtype=np.int32)

    def solve(
        self, keep: BoolArray, value: float, timer: Timer
    ) -> tuple[FloatArray | None, FloatArray, float] | None:
        """Point, prices and their bound; no point where a ray proves the value; None if time is over."""
        program, model, solver = self._program, self._model, self._solver
        n = program.n_choices
        lower, upper = model.program.lower[:n], model.program.upper[:n]
        solver.changeColsBounds(n, self._columns, lower, np.where(keep, upper, 0.0))
        if (left_s := timer.remaining_s()) is not None:
            solver.setOptionValue("time_limit", solver.getRunTime() + left_s)
        status = run(solver)
        if status == Status.kInfeasible:
            return None if (ray := self._ray()) is None else self._along(ray, keep, value)
        solution = solver.getSolution()
        if status != Status.kOptimal or not has_point(solver) or not solution.dual_valid:
            return None
        prices, _ = certified(program, model.prices(np.asarray(solution.row_dual), program.n_rows))
        return model.point(np.asarray(solution.col_value)), prices, _bound(program, prices, keep)

    def _ray(self) -> FloatArray | None:
        status, found, ray = self._solver.getDualRay()
        if status != highspy.HighsStatus.kOk or not found:
            return None
        return self._model.prices(np.asarray(ray), self._program.n_rows)

    def _along(
        self, ray: FloatArray, keep: BoolArray, value: float
    ) -> tuple[FloatArray | None, FloatArray, float] | None:
        """Prices so far along a ray that they prove the value."""
        ray = ray / max(float(np.abs(ray).max(initial=0.0)), 1e-300)
        for sign in (1.0, -1.0):
            for step in range(_RAY_STEPS):
                prices, _ = certified(self._program, sign * ray * _RAY**step)
                if (bound := _bound(self._program, prices, keep)) >= value:
                    return None, prices, bound
        return None
