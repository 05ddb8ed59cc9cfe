r"""Certificate trees: a bound that one vector of row prices does not prove is proven case by case.

A node is a leaf, with prices of its own, or a *split*: what a decision may do is on one side of it, all the
rest on the other. So the leaves cover every decision, and the worst of their bounds holds for all. What a
split can say is a matter of the problem; that its two sides leave nothing out is not, as one is the
complement of the other. A leaf that holds no decision needs no other proof: its prices prove more than any
decision could cost. Mixed-integer programs are certified like this in general (Cheung, Gleixner and Steffy
2017, "Verifying integer programming results"); here a leaf is short because one vector of prices proves it.

Splits that count have at most so many of something inside, and more of it outside. Each side is a row like
any other, and leaves below price it under the name ``split:NODE``, the node that has it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from pydantic import Field

from wattsched.instances.errors import InputError, ModelT, refuse, validated
from wattsched.topology.fields import Strict
from wattsched.verification.report import Proof

MOST_NODES = 100_000
"""More nodes are not looked at."""

MOST_SPLITS = 1_000
"""More splits do not lead to a leaf: each takes time at every leaf below. Trees of 2,000 nodes have fewer."""

MOST_SPLITS_IN_ALL = 2_000_000
"""Nor do more to all leaves together: 50,000 of them may be 40 splits deep."""

FIELDS = frozenset(("prices", "split", "inside", "outside"))
"""Fields of a node."""


class Taken(NamedTuple):
    """A split, on which of its sides a leaf is, and the number of the node that has it."""

    split: Mapping[str, Any]
    inside: bool
    node: int


ProveLeaf = Callable[[Mapping[str, object], Sequence[Taken]], Proof]
"""Prices, and the splits that lead to a leaf, to what they prove of the decisions there."""


def prove_tree(prove_leaf: ProveLeaf, nodes: Sequence[Any], sense: str) -> Proof:
    """Bound that all leaves of a tree prove together.

    Parameters
    ----------
    prove_leaf : callable
        A ValueError says what is wrong with a split.
    nodes : sequence of mappings
        The first is the root. Leaves have ``prices``; others ``split``, and ``inside`` and ``outside``, the
        numbers of their children, which come later and are nobody else's.
    sense : {"min", "max"}
    """
    if len(nodes) > MOST_NODES:
        return Proof([f"certificate: a tree of {len(nodes):,} nodes; no more than {MOST_NODES:,} are read"])
    sign = 1.0 if sense == "min" else -1.0
    proofs: list[Proof] = []
    bounds: list[float] = []
    try:
        for number, prices, taken in _leaves(nodes):
            proof = prove_leaf(prices, taken)
            if proof.faults:
                return Proof([f"node {number} of the tree: {fault}" for fault in proof.faults])
            if proof.bound is None or math.isnan(proof.bound):
                return Proof([f"node {number} of the tree: its prices prove nothing"])
            proofs.append(proof)
            bounds.append(sign * proof.bound)
    except ValueError as error:
        return Proof([f"certificate: {error}"])
    return _together(proofs, bounds, sign)


def _leaves(nodes: Sequence[Any]) -> Iterator[tuple[int, Mapping[str, object], list[Taken]]]:
    """Yield number, prices and splits above of every leaf; a ValueError unless the nodes are one tree."""
    met, splits = [False] * len(nodes), 0
    waiting: list[tuple[int, list[Taken]]] = [(0, [])]
    while waiting:
        number, taken = waiting.pop()
        if met[number]:
            raise ValueError(f"node {number} of the tree is reached twice")
        met[number] = True
        node = nodes[number]
        if not isinstance(node, dict):
            raise ValueError(f"node {number} of the tree must be an object")
        if unknown := sorted(map(str, node.keys() - FIELDS)):
            raise ValueError(f"node {number} of the tree: {unknown[0]!r:.80} is not a field of it")
        prices, split = node.get("prices"), node.get("split")
        if prices is not None and split is not None:
            raise ValueError(f"node {number} of the tree has 'prices' and a 'split'; it is a leaf or none")
        if isinstance(prices, dict):
            splits += len(taken)
            if splits > MOST_SPLITS_IN_ALL:
                many = f"more than {MOST_SPLITS_IN_ALL:,} splits in all; no more are read"
                raise ValueError(f"the leaves of the tree are below {many}")
            yield number, prices, taken
            continue
        if not isinstance(split, dict):
            raise ValueError(f"node {number} of the tree needs 'prices' or a 'split'")
        if len(taken) >= MOST_SPLITS:
            raise ValueError(f"node {number} of the tree is below {MOST_SPLITS:,} splits; no more are read")
        for side in ("outside", "inside"):
            child = node.get(side)
            if not isinstance(child, int) or isinstance(child, bool) or not number < child < len(nodes):
                raise ValueError(f"node {number} of the tree: '{side}' must be the number of a later node")
            waiting.append((child, [*taken, Taken(split, side == "inside", number)]))
    if not all(met):
        raise ValueError(f"node {met.index(False)} of the tree is reached by no split")


def _together(proofs: list[Proof], bounds: list[float], sign: float) -> Proof:
    """Return what holds in every case, from all proofs and their bounds as costs (times the sign)."""
    pairs = list(zip(proofs, bounds, strict=True))
    reaches = [bound if proof.reach is None else sign * proof.reach for proof, bound in pairs]
    lenient = min(bound - proof.leeway for proof, bound in pairs)
    bound = min(bounds)
    return Proof(
        bound=sign * bound,
        reach=None if all(proof.reach is None for proof in proofs) else sign * min(reaches),
        leeway=0.0 if math.isinf(bound) else bound - lenient,
        excess=min(proof.excess for proof in proofs),
        exact=all(proof.exact for proof in proofs),
    )


class Prover(ABC):
    """Proves bounds on an instance's objective, also of the decisions on some sides of splits."""

    @abstractmethod
    def __call__(self, prices: Mapping[str, object], taken: Sequence[Taken] = ()) -> Proof:
        """Prove a bound by prices as `report.charges` takes them, of the decisions on some sides of splits.

        A ValueError says what is wrong with a split.
        """


class CountSplit(Strict):
    """A split that counts: at most so many of something inside, more of it outside."""

    at_most: Annotated[int, Field(ge=0, le=10**9)]

    @abstractmethod
    def unknown_in(self, instance: Any) -> Iterator[str]:
        """Yield a fault for every name that the instance does not have."""


SplitT = TypeVar("SplitT", bound=CountSplit)


@dataclass(frozen=True)
class Counted(Generic[SplitT]):
    """The row of a side of a split, `what`: ``count <= limit`` inside, ``count >= limit`` outside."""

    row: str
    what: SplitT
    inside: bool
    limit: int


class CountingProver(Prover, Generic[SplitT]):
    """A prover whose splits count; each split is read once, however many leaves it leads to."""

    split: type[SplitT]

    def __init__(self, instance: Any):
        self.instance = instance
        self._read: dict[int, tuple[Mapping[str, Any], SplitT]] = {}

    def counted(self, taken: Sequence[Taken]) -> list[Counted[SplitT]]:
        """Return the rows of the sides of splits; a ValueError says what is wrong with a split."""
        rows = []
        for split, inside, node in taken:
            # The split is kept, so that nothing else can have its identity.
            if id(split) not in self._read:
                what = read_split(self.split, split)
                refuse(what.unknown_in(self.instance))
                self._read[id(split)] = split, what
            _, what = self._read[id(split)]
            rows.append(Counted(f"split:{node}", what, inside, what.at_most + (not inside)))
        return rows


def read_split(model: type[ModelT], split: Mapping[str, Any]) -> ModelT:
    """Validate a split; a ValueError says what is wrong with it."""
    try:
        return validated(model, split)
    except InputError as error:
        raise ValueError(f"split.{error.faults[0]}") from None
