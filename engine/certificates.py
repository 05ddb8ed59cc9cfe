"""Certificates: the row prices that prove most, and a tree of cases where they do not prove enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wattsched.call import Call
from wattsched.formulations.model import Model
from wattsched.formulations.timer import Timer
from wattsched.result import Certificate, Node
from wattsched.solvers import tree
from wattsched.solvers.solution import proven_bound
from wattsched.topology.arrays import FloatArray

# Of a gap that is asked for, or is nothing, so much is left to rounding.
_LEAST_GAP = 1e-9
_ROUNDING = 1e-9
# Columns times nodes of a tree that nobody asked for: half a second's worth, as long as most solves take.
_USUAL_WORK = 400_000


@dataclass(frozen=True)
class Priced:
    """The row prices of a program that prove most of all that are known.

    Attributes
    ----------
    model : Model
        Its rows have names, and every decision is a point of its program.
    prices : float array, shape (n_rows,)
    bound : float
        On the cost.
    """

    model: Model[Any]
    prices: FloatArray
    bound: float

    @classmethod
    def best(cls, model: Model[Any], known: list[FloatArray]) -> Priced:
        """The best of some prices."""
        bounds = [proven_bound(model.program, y) for y in known]
        best = int(np.argmax(bounds))
        return cls(model, known[best], bounds[best])

    def certificate(self) -> Certificate | None:
        """Certificate of the prices alone."""
        if not np.isfinite(self.bound) or self.model.named_prices is None:
            return None
        bound = self.model.program.reported(self.bound)
        return Certificate(prices=self.model.named_prices(self.prices), bound=bound)

    def proven_further(self, call: Call, cost: float, bound: float) -> Certificate | None:
        """Certificate with a tree that proves a claimed bound, or as much of it as the time for that allows.

        None where the prices alone prove it already, or the formulation has no trees.

        Parameters
        ----------
        cost : float
            Of the decision.
        bound : float
            On the cost, as solvers claim it; no more is proven than the gap asked for needs.
        """
        program = self.model.program
        gap = max(_LEAST_GAP, call.limits.gap * (1.0 - _ROUNDING))
        value = min(bound, cost - gap * abs(cost))
        if self.model.split is None or program.bottleneck is not None or self.bound >= value:
            return None
        # Nodes and not seconds limit what nobody asked for: it is the same on every machine.
        nodes_most = _USUAL_WORK // program.n_columns if call.prove_s is None else tree.MOST_NODES
        limits_s = [s for s in (call.prove_s, call.timer.remaining_s()) if s is not None]
        with call.timer.phase("prove"):
            timer = Timer(min(limits_s, default=None))
            grown = tree.prove(program, value, self.prices, timer, min(nodes_most, tree.MOST_NODES))
            nodes = _named(self.model, grown)
        if nodes is None or not self.bound < grown.bound < np.inf:
            return None
        root = self.certificate()
        if root is None:
            return None
        proven = program.reported(grown.bound)
        return Certificate(prices=root.prices, bound=proven, price_bound=root.bound, tree=nodes)


def _named(model: Model[Any], grown: tree.Tree) -> list[Node] | None:
    """Nodes of a tree in the words of the instance, None where a split has none."""
    assert model.named_prices is not None
    assert model.split is not None
    nodes = []
    for node in grown.nodes:
        if node.columns is None or node.others is None:
            nodes.append(Node(prices=model.named_prices(node.prices)))
            continue
        told = model.split(node.columns, node.others)
        if told is None:
            return None
        split, swapped = told
        inside, outside = (node.outside, node.inside) if swapped else (node.inside, node.outside)
        nodes.append(Node(split=split, inside=inside, outside=outside))
    return nodes
