"""Columns and rows of a program, added one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array

from wattsched.formulations.program import Block, FloatArray, IntArray, Program


class SparseRows:
    """Collects columns and rows, and makes a program of them."""

    def __init__(self) -> None:
        self._columns: list[tuple[str, float, float, bool]] = []
        self._rows: list[tuple[str, float, float]] = []
        self._row: list[int] = []
        self._column: list[int] = []
        self._value: list[float] = []

    @property
    def n_columns(self) -> int:
        """Number of columns so far."""
        return len(self._columns)

    def column(self, name: str, lower: float, upper: float, *, integer: bool = False) -> int:
        """Add a column and return its number."""
        self._columns.append((name, lower, upper, integer))
        return len(self._columns) - 1

    def row(
        self,
        name: str,
        columns: Sequence[int],
        values: Sequence[float],
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
    ) -> int:
        """Add a row and return its number; values of a column named twice add up."""
        number = len(self._rows)
        self._rows.append((name, lower, upper))
        self._row += [number] * len(columns)
        self._column += columns
        self._value += values
        return number

    def program(self, cost: FloatArray, group_start: IntArray, offset: float) -> Program:
        """Program that minimises the cost; the first columns are its choice groups."""
        matrix = coo_array(
            (np.array(self._value, dtype=float), (self._row, self._column)),
            shape=(len(self._rows), len(self._columns)),
        )
        row_names, row_lower, row_upper = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        names, lower, upper, integer = zip(*self._columns, strict=True) if self._columns else ((), (), (), ())
        return Program(
            cost=cost,
            matrix=matrix.tocsc(),
            row_lower=np.array(row_lower, dtype=float),
            row_upper=np.array(row_upper, dtype=float),
            lower=np.array(lower, dtype=float),
            upper=np.array(upper, dtype=float),
            integer=np.array(integer, dtype=bool),
            group_start=group_start.astype(np.int64),
            rows=(Block("row", len(row_names), row_names.__getitem__),),
            columns=(Block("column", len(names), names.__getitem__),),
            offset=offset,
        )
