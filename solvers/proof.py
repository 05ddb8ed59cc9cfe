"""Proofs by cases: trees of splits whose leaves have prices that bound their points."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from wattsched.topology.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class AtMost:
    """A split: the count with the number `count` is at most `most` inside, and more outside."""

    count: int
    most: int


@dataclass(frozen=True)
class Choices:
    """A split: what is left of a group inside, and outside."""

    columns: IntArray
    others: IntArray


Split = Choices | AtMost


@dataclass
class Node:
    """A node of a tree: a leaf, or a split.

    Attributes
    ----------
    prices : float array, shape (n_rows,)
        That prove its bound; of a node that was split they are its own, and prove less than its leaves.
    of_splits : dict of int to float
        Prices of the sides of splits that count, by the numbers of the nodes above that have them.
    of_groups : float array, shape (n_groups,), optional
        Prices of groups, where the bound is one of blocks (`plans`).
    split : optional
    inside, outside : int
        Numbers of the children.
    """

    prices: FloatArray
    of_splits: dict[int, float] = field(default_factory=dict)
    of_groups: FloatArray | None = None
    split: Split | None = None
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

    def cut(self, leaves: int) -> list[Node]:
        """Nodes of the tree as it was while it had at most so many leaves; every split gave it one more."""
        most = 2 * leaves - 1
        return [
            node if node.split is None or node.outside < most else replace(node, split=None)
            for node in self.nodes[:most]
        ]
