"""Certificates: the row prices that prove most, and a tree of cases where they do not prove enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wattsched.call import Call
from wattsched.formulations.cases import Cases
from wattsched.formulations.model import Model
from wattsched.result import Certificate, Node
from wattsched.solvers import tree
from wattsched.solvers.solution import proven_bound
from wattsched.topology.arrays import FloatArray

# Of a gap that is asked for, or is nothing, so much is left to rounding.
_LEAST_GAP = 1e-9
_ROUNDING = 1e-9
_LEAST_S = 0.02
# What branching of a problem's own may take at least for a proof, and where nothing limits the call.
_CASES_S, _SEARCH_S = 5.0, 20.0
# Of what is left it may take so much: a step is not interrupted.
_SHARE = 0.95


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
        program, spent_s = self.model.program, call.timer.phase_s
        gap = max(_LEAST_GAP, call.limits.gap * (1.0 - _ROUNDING))
        value = min(bound, cost - gap * abs(cost))
        if self.model.split is None or program.bottleneck is not None or self.bound >= value:
            return None
        # On its own account proving may take as long as all that it follows.
        allowed_s = max(_LEAST_S, sum(spent_s.values())) if call.prove_s is None else call.prove_s
        timer = call.timer.at_most(allowed_s)
        with call.timer.phase("prove"):
            grown = tree.prove(program, value, self.prices, timer)
            nodes = _named(self.model, grown)
        if nodes is None or not self.bound < grown.bound < np.inf:
            return None
        prices, root = self.certificate(), program.reported(grown.bound)
        return None if prices is None else Certificate(prices=prices.prices, bound=root, tree=nodes)


def by_cases(
    call: Call, decision: Any, cost: float, bound: float, certificate: Certificate | None
) -> Cases[Any] | None:
    """What a problem's own branching finds where prices alone do not prove a decision within the gap.

    Parameters
    ----------
    cost, bound : float
        Of the decision, and on the cost as solvers claim it. What they have proved optimal is to be proven
        in a few seconds, or as long as all took that came before; for others there is the time that is left.
    """
    branch, gap = call.problem.branch, max(_LEAST_GAP, call.limits.gap * (1.0 - _ROUNDING))
    proven = -np.inf if certificate is None else call.sign * certificate.bound
    if branch is None or call.by_heuristic or call.timer.over() or proven >= cost - gap * abs(cost):
        return None
    if call.prove_s is not None:
        timer = call.timer.at_most(call.prove_s)
    elif bound >= cost - gap * abs(cost):
        timer = call.timer.at_most(max(_CASES_S, sum(call.timer.phase_s.values())))
    else:
        timer = call.timer.at_most(_SEARCH_S) if call.limits.time_s is None else call.timer.share(_SHARE)
    with call.timer.phase("prove"):
        return branch(call.data, call.instance.objective, decision, gap, timer)


def certificate_of(call: Call, cases: Cases[Any]) -> Certificate:
    """Certificate of a proof by cases; a single case needs no tree."""
    nodes = [Node(**node) for node in cases.nodes] if len(cases.nodes) > 1 else []
    return Certificate(prices=dict(cases.prices), bound=call.sign * cases.bound, tree=nodes)


def _named(model: Model[Any], grown: tree.Tree) -> list[Node] | None:
    """Nodes of a tree in the words of the instance, None where a split has none."""
    assert model.named_prices is not None
    assert model.split is not None
    nodes = []
    for node in grown.nodes:
        if node.columns is None:
            nodes.append(Node(prices=model.named_prices(node.prices)))
            continue
        told = model.split(node.columns)
        if told is None:
            return None
        split, swapped = told
        inside, outside = (node.outside, node.inside) if swapped else (node.inside, node.outside)
        nodes.append(Node(split=split, inside=inside, outside=outside))
    return nodes
