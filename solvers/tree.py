"""Branch and bound for the sake of proof: the value is known, and every leaf has prices that prove it.

Nothing is looked for. Nodes are cases of a program; the LP relaxation of each has prices, and where these
prove the value the node is a leaf. Where time or nodes run out, the leaves have the prices of the nodes above
them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from wattsched.formulations.counts import Counts
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.bottleneck import Bottleneck
from wattsched.solvers.branching import Branching, ByChoices, ByCounts, Case
from wattsched.solvers.proof import Choices, Node, Tree
from wattsched.topology.arrays import FloatArray

MOST_NODES = 2_000
"""Nodes of a tree, at most."""
_NO_POINTS = 1.0
"""Value to prove of a program without costs: any bound above 0 says that it has no points."""


@dataclass(order=True)
class _Open:
    """A node that is not proven: its case, and prices with the bound that they prove."""

    bound: float
    number: int
    case: Case = field(compare=False)
    prices: FloatArray = field(compare=False)


def prove(
    program: Program,
    value: float,
    timer: Timer,
    *,
    prices: FloatArray | None = None,
    counts: Counts | None = None,
    nodes: int = MOST_NODES,
) -> Tree:
    """Prove that no point costs less than a value, or as much of it as time and nodes allow.

    Parameters
    ----------
    program : Program
        Without a bottleneck.
    value : float
        A bound that is known, or claimed.
    prices : float array, shape (n_rows,), optional
        Those that prove most without branching.
    counts : Counts, optional
        What is split where it is not choice groups; of the same program.
    """
    branching = ByChoices(program) if counts is None else ByCounts(counts)
    y = np.zeros(program.n_rows) if prices is None else prices
    left = [_Open(program.lagrangian_bound(y), 0, branching.root(), y)]
    grown, proven = [Node(y)], np.inf
    while left and left[0].bound < value and len(grown) + 2 <= nodes and not timer.over():
        node = heapq.heappop(left)
        solved = branching.solve(node.case, value, timer)
        if solved is None:
            heapq.heappush(left, node)
            break
        if solved.bound > node.bound:
            node.prices, node.bound = solved.prices, solved.bound
            grown[node.number] = _written(branching, node)
        split = None if solved.bound >= value else branching.split(node.case, solved, node.number, value)
        if split is None:
            proven = min(proven, node.bound)
            continue
        above = grown[node.number]
        above.split, *cases = split
        above.inside, above.outside = len(grown), len(grown) + 1
        for case in cases:
            inherited = branching.inherited(node.prices)
            bound = branching.program(case).lagrangian_bound(inherited)
            heapq.heappush(left, child := _Open(bound, len(grown), case, inherited))
            grown.append(_written(branching, child))
    return Tree(grown, min([proven, *(node.bound for node in left)]))


def prove_threshold(
    bottleneck: Bottleneck, value: float, timer: Timer, nodes: int = MOST_NODES
) -> Tree | None:
    """Prove that no point of a bottleneck's program costs less: the columns that do leave no choice.

    None where that is not proven; an infinite value is proven where there is no point at all. Every leaf has
    prices of the program's rows whose surrogate bound, of the columns that are left there, is at least the
    value.
    """
    place = bottleneck.place(value)
    if place == 0:
        return None
    reached, columns = bottleneck.at(place - 1)
    grown = prove(reached, _NO_POINTS, timer, nodes=nodes)
    if grown.bound < _NO_POINTS:
        return None
    for node in grown.nodes:
        prices = np.zeros(bottleneck.program.n_rows)
        # Multiples of prices prove the same; these are at most 1.
        prices[bottleneck.rows] = node.prices / max(1.0, float(np.abs(node.prices).max(initial=0.0)))
        node.prices = prices
        if isinstance(node.split, Choices):
            node.split = replace(
                node.split, columns=columns[node.split.columns], others=columns[node.split.others]
            )
    return Tree(grown.nodes, bottleneck.cost(place))


def _written(branching: Branching, node: _Open) -> Node:
    """The node of the tree, with the prices of its case."""
    return Node(node.prices[: branching.whole.n_rows], branching.split_prices(node.case, node.prices))
