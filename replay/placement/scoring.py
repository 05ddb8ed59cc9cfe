"""Policies that score every node that fits and take the best one, as a Kubernetes scheduler does.

Scores are whole numbers, so many nodes tie; the first of the best wins. A score depends on the request and on
one node alone, and a placement changes one node: so the scores of each distinct request are kept, and only
nodes that changed since are scored again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from wattsched.replay.placement.state import ClusterState, Placement, Request
from wattsched.topology.arrays import IntArray

BEST = 100
"""Highest score of a node, as in Kubernetes; the lowest is 0."""
MOST_KEPT = 30_000_000
"""Scores to keep at most: the oldest request is forgotten beyond."""


class Rule(ABC):
    """Scores nodes for a request; the higher the better."""

    @abstractmethod
    def score(self, request: Request, state: ClusterState, nodes: IntArray) -> IntArray:
        """Score of each of these nodes, on all of which the task fits, shape (S,).

        It must depend on nothing that changes without a placement on that node.
        """

    def normalise(self, scores: IntArray) -> IntArray:
        """Scores of all nodes on which the task fits on the scale from 0 to `BEST`, shape (S,)."""
        return scores

    def gpu(self, request: Request, state: ClusterState, node: int) -> int:
        """GPU of the chosen node for a share of a GPU: the fullest that has room, unless a rule differs."""
        free = state.gpu_free_milli[node]
        return int(np.where(free >= request.gpu_milli, free, np.iinfo(np.int64).max).argmin())

    def told(self, request: Request, placement: Placement, state: ClusterState) -> None:  # noqa: B027  # may do nothing
        """Learn of a placement; most rules read all they need from the state."""


def stretched(scores: IntArray, if_equal: int) -> IntArray:
    """Scores stretched so that the lowest becomes 0 and the highest `BEST`, rounded down, shape (S,)."""
    low = scores.min()
    span = scores.max() - low
    return (scores - low) * BEST // span if span else np.full_like(scores, if_equal)


class _Kept:
    """Scores of one request."""

    def __init__(self, rules: int, nodes: int):
        self.fits = np.zeros(nodes, dtype=bool)
        self.scores = np.zeros((rules, nodes), dtype=np.int64)
        self.placements = -1


class Scoring:
    """Policy that takes the node with the highest weighted sum of the scores of rules.

    Nodes are compared only where there is a choice, so a single node that fits is taken whatever its score.

    Parameters
    ----------
    rules : sequence of Rule
        At least one.
    weights : sequence of int
        Weight of each rule. The rule with the largest, the last of them in a tie, chooses the GPU in a node.
    """

    def __init__(self, rules: Sequence[Rule], weights: Sequence[int] = (1,)):
        self.rules = list(zip(weights, rules, strict=True))
        self._leading = max(reversed(self.rules), key=lambda pair: pair[0])[1]
        self._kept: dict[Request, _Kept] = {}

    def decide(self, request: Request, state: ClusterState) -> Placement | None:
        """Take the best node that fits."""
        kept = self._refreshed(request, state)
        nodes = np.flatnonzero(kept.fits)
        if not nodes.size:
            return None
        scores = [
            weight * rule.normalise(row[nodes])
            for (weight, rule), row in zip(self.rules, kept.scores, strict=True)
        ]
        node = int(nodes[np.sum(scores, axis=0).argmax()])
        if request.shared:
            return Placement(node, (self._leading.gpu(request, state, node),))
        return Placement(node, state.first_free_gpus(node, request.gpus))

    def told(self, request: Request, placement: Placement | None, state: ClusterState) -> None:
        """Let the rules know."""
        if placement is not None:
            for _weight, rule in self.rules:
                rule.told(request, placement, state)

    def _refreshed(self, request: Request, state: ClusterState) -> _Kept:
        """Scores of a request that are true now."""
        kept = self._kept.get(request)
        if kept is None:
            if len(self._kept) * len(self.rules) * len(state.nodes) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[request] = _Kept(len(self.rules), len(state.nodes))
        if kept.placements < state.placements:
            changed = np.flatnonzero(state.changed > kept.placements)
            fits = state.fits(request, changed)
            kept.fits[changed] = fits
            nodes = changed[fits]
            if nodes.size:
                for (_weight, rule), row in zip(self.rules, kept.scores, strict=True):
                    row[nodes] = rule.score(request, state, nodes)
            kept.placements = state.placements
        return kept
