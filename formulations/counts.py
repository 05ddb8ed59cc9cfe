"""Certificate trees: counts by which they split decisions, and trees that a formulation grows by itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from wattsched.formulations.program import Program
from wattsched.topology.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array


Side = tuple[dict[str, Any], bool, int]
"""A split in the words of certificates, on which of its sides a case is, and the number of its node."""


@dataclass(frozen=True)
class Sums:
    """Sums of a program's columns that are whole numbers in every decision.

    Attributes
    ----------
    program : Program
        Every decision is a point of it.
    matrix : csr_array, shape (n_sums, n_columns)
        How often each column counts.
    level : int array, shape (n_sums,)
        Sums of a lower level are split first.
    """

    program: Program
    matrix: csr_array
    level: IntArray


@dataclass(frozen=True)
class Counts(Sums):
    """Sums by which certificates split; no column reaches its bounds, so the rows' prices prove the whole.

    Attributes
    ----------
    named_prices : callable
        Prices of the rows to those of certificates, in the objective's sense.
    named : callable
        Describes a sum, by its number, in the words of certificates.
    proven : callable, optional
        Prices of certificates, and the sides of splits of a case, to a bound that they prove of it; for
        formulations whose program proves less by itself.
    fixed : mapping, optional
        The first split, which counts columns that the program lacks: they cost more than ``beyond`` at
        ``prices`` of certificates.
    """

    named_prices: Callable[[FloatArray], dict[str, float]]
    named: Callable[[int], dict[str, Any]]
    proven: Callable[[dict[str, float], Sequence[Side]], float] | None = None
    fixed: Mapping[str, Any] | None = None


class Counting:
    """Builds `Counts` entry by entry; a key names a count, which columns add to."""

    def __init__(self) -> None:
        self.keys: dict[Hashable, int] = {}
        self._levels: list[int] = []
        self._entries: list[tuple[int, int, float]] = []

    def add(self, level: int, key: Hashable, column: int, times: float = 1.0) -> None:
        """Let a column add `times` to the count of a key; a new key gets this level."""
        number = self.keys.setdefault(key, len(self.keys))
        if number == len(self._levels):
            self._levels.append(level)
        self._entries.append((number, column, times))

    def counts(
        self,
        program: Program,
        named_prices: Callable[[FloatArray], dict[str, float]],
        named: Callable[[Any], dict[str, Any]],
        proven: Callable[[dict[str, float], Sequence[Side]], float] | None = None,
    ) -> Counts:
        """Return the counts so far; ``named`` describes a key in the words of certificates."""
        from scipy.sparse import coo_array

        number, column, times = np.array(self._entries, dtype=float).reshape(-1, 3).T
        places = number.astype(np.int64), column.astype(np.int64)
        matrix = coo_array((times, places), shape=(len(self.keys), program.n_columns)).tocsr()
        keys = list(self.keys)
        return Counts(program, matrix, np.array(self._levels), named_prices, lambda i: named(keys[i]), proven)


DecisionT = TypeVar("DecisionT")


@dataclass(frozen=True)
class Cases(Generic[DecisionT]):
    """A certificate tree, and a decision that was found while it grew.

    Attributes
    ----------
    nodes : list of mappings
        The root first: ``prices`` of leaves, ``split``, ``inside`` and ``outside`` of others.
    prices : mapping of str to float
        Of the root.
    bound : float
        Lower bound that the leaves prove together, on the objective as it is minimised.
    decision : object, optional
        One that is better than the incumbent.
    """

    nodes: list[dict[str, Any]]
    prices: Mapping[str, float]
    bound: float
    decision: DecisionT | None = None
