"""Beam search of all classes at once for outcomes that cost less than their price."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wattsched.formulations.placement.outcome_master import Prices
from wattsched.formulations.placement.outcome_tree import OutcomeTree
from wattsched.topology.arrays import FloatArray, IntArray

_PATIENCE = 4
"""Tasks that the beam goes on without finding a better outcome: the first on a CPU package pays for all."""
_TOLERANCE = 1e-6
"""Share of the dearest price by which an outcome must be better."""


class _Beam(NamedTuple):
    """States that a beam holds, and their costs at given prices."""

    state: IntArray
    value: FloatArray


def better_states(tree: OutcomeTree, prices: Prices, width: int) -> IntArray:
    """States whose cost is below their price, up to `width` of each class."""
    least = -_TOLERANCE * max(float(prices.task_worth.max(initial=0.0)), 1e-12)
    beam = _Beam(np.arange(tree.roots), prices.node_cost)
    best, idle = np.full(tree.roots, least), np.zeros(tree.roots, dtype=np.int64)
    seen = [_Beam(np.zeros(0, dtype=np.int64), np.zeros(0))]
    while len(beam.state):
        beam = _one_more(tree, prices, beam, width)
        seen.append(beam)
        cls = tree.cls[beam.state]
        now = best.copy()
        np.minimum.at(now, cls, beam.value)
        idle = np.where(now < best, 0, idle + 1)
        best = now
        going = (idle < _PATIENCE)[cls]
        beam = _Beam(beam.state[going], beam.value[going])
    state = np.concatenate([part.state for part in seen])
    value = np.concatenate([part.value for part in seen])
    good = value < least
    state, value = state[good], value[good]
    return state[first_of_class(tree.cls[state], value, width)]


def _one_more(tree: OutcomeTree, prices: Prices, beam: _Beam, width: int) -> _Beam:
    """The best states with one task more than those of the beam, up to `width` of each class."""
    value = beam.value[:, None] + tree.next_cost[beam.state] - prices.task_worth
    few = min(width + 1, value.shape[1])
    profile = np.argpartition(value, few - 1, axis=1)[:, :few]
    parent = np.repeat(np.arange(len(value)), few)
    profile = profile.ravel()
    value = value[parent, profile]
    possible = np.flatnonzero(np.isfinite(value))
    parent, profile, value = parent[possible], profile[possible], value[possible]
    if len(value) > tree.room():
        return _Beam(np.zeros(0, dtype=np.int64), np.zeros(0))
    state = beam.state[parent]
    cls, key = tree.cls[state], tree.key[state] + tree.mark[profile]
    order = np.lexsort((value, key, cls))
    cls, key = cls[order], key[order]
    distinct = np.ones(len(order), dtype=bool)
    distinct[1:] = (cls[1:] != cls[:-1]) | (key[1:] != key[:-1])
    kept = order[distinct]
    kept = kept[first_of_class(tree.cls[state[kept]], value[kept], width)]
    return _Beam(tree.hosting_one_more(state[kept], profile[kept]), value[kept])


def first_of_class(cls: IntArray, value: FloatArray, most: int) -> IntArray:
    """Positions of the least values of every class, up to `most` of each."""
    order = np.lexsort((value, cls))
    ordered = cls[order]
    place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return order[place < most]
