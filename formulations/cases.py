"""A proof by cases: what branching of a formulation's own hands over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

DecisionT = TypeVar("DecisionT")


@dataclass(frozen=True)
class Cases(Generic[DecisionT]):
    """A certificate tree, and a decision that was found on the way.

    Attributes
    ----------
    nodes : list of mappings
        The root first: ``prices`` of leaves, ``split``, ``inside`` and ``outside`` of others.
    prices : mapping of str to float
        Of the root.
    bound : float
        What the leaves prove together, of the objective as it is minimised.
    decision : object, optional
        One that is better than the one that was known.
    """

    nodes: list[dict[str, Any]]
    prices: Mapping[str, float]
    bound: float
    decision: DecisionT | None = None
