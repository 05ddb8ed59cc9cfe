"""Programs as MPS and LP text, in the dialect that HiGHS, CBC and GLPK read alike.

Always a minimisation, with one row per choice group; a constant cost is a column fixed at one, because
readers disagree on the sign of a constant. Numbers are written in full, which HiGHS's own writer does not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, hstack

from wattsched.formulations.program import Program
from wattsched.solvers.rows import with_choice_rows

_OBJECTIVE = "cost"
LOWER_SIDE = "_low"
"""End of the name of a row's lower limit in LP files, where the row has two."""
_LONGEST_LABEL = 64
"""Characters of a name that are written: CBC reads names of at most 100, CPLEX lines of at most 560."""
_TERMS_PER_LINE = 5


def to_mps(program: Program) -> str:
    """Program as free MPS; raises ValueError where it has intervals, which no such file can hold."""
    rows, columns, matrix = exported(program)
    lines = ["NAME wattsched FREE", "ROWS", f" N {_OBJECTIVE}", *(f" {row.kind} {row.name}" for row in rows)]
    lines.append("COLUMNS")
    first, index, value = (array.tolist() for array in (matrix.indptr, matrix.indices, matrix.data))
    within, markers = False, itertools.count()
    for j, column in enumerate(columns):
        if column.whole != within:
            within = column.whole
            lines.append(f" MARKER{next(markers)} 'MARKER' '{'INTORG' if within else 'INTEND'}'")
        lines.append(f" {column.name} {_OBJECTIVE} {column.cost!r}")
        entries = range(first[j], first[j + 1])
        lines += [f" {column.name} {rows[index[e]].name} {value[e]!r}" for e in entries]
    if within:
        lines.append(f" MARKER{next(markers)} 'MARKER' 'INTEND'")
    lines.append("RHS")
    sides = ((row.name, {"N": 0.0, "G": row.low}.get(row.kind, row.high)) for row in rows)
    lines += [f" RHS {name} {side!r}" for name, side in sides if side != 0.0]
    ranges = [row for row in rows if row.kind == "L" and row.low != -np.inf]
    lines += ["RANGES"] * bool(ranges) + [f" RNG {row.name} {row.high - row.low!r}" for row in ranges]
    bounds = [f" {kind} BND {column.name}{side}" for column in columns for kind, side in _mps_bounds(column)]
    return "\n".join([*lines, "BOUNDS", *bounds, "ENDATA", ""])


def to_lp(program: Program) -> str:
    """Program in CPLEX's LP format; errors as for `to_mps`."""
    rows, columns, matrix = exported(program)
    names = [column.name for column in columns]
    # All columns, so that each exists, in the order of the program.
    lines = ["Minimize", _lp_row(_OBJECTIVE, [column.cost for column in columns], names), "Subject To"]
    by_row = csr_array(matrix)
    first, index, value = (array.tolist() for array in (by_row.indptr, by_row.indices, by_row.data))
    for i, row in enumerate(rows):
        entries = slice(first[i], first[i + 1])
        # A row without entries needs a term all the same.
        terms = (value[entries], [names[j] for j in index[entries]]) if index[entries] else ([0.0], names[:1])
        # Not all readers know rows with two limits: such a row is written twice.
        sides = [(row.name, "<=", row.high), (f"{row.name}{LOWER_SIDE}", ">=", row.low)]
        for label, relation, side in [(row.name, "=", row.high)] if row.kind == "E" else sides:
            if np.isfinite(side):
                lines.append(f"{_lp_row(label, *terms)} {relation} {side!r}")
    lines += ["Bounds", *filter(None, map(_lp_bounds, columns))]
    general = [f" {column.name}" for column in columns if column.whole and not column.binary]
    binary = [f" {column.name}" for column in columns if column.binary]
    lines += ["Generals"] * bool(general) + general + ["Binaries"] * bool(binary) + binary
    return "\n".join([*lines, "End", ""])


class Row(NamedTuple):
    """A row as it is written: its name and limits."""

    name: str
    low: float
    high: float

    @property
    def kind(self) -> str:
        """MPS's letter."""
        if self.low == self.high:
            return "E"
        return "L" if self.high != np.inf else "G" if self.low != -np.inf else "N"


class Column(NamedTuple):
    """A column as it is written: its name, cost and bounds, and whether it is a whole number."""

    name: str
    cost: float
    low: float
    high: float
    whole: bool

    @property
    def binary(self) -> bool:
        """True if the column is 0 or 1."""
        return self.whole and (self.low, self.high) == (0.0, 1.0)


class Exported(NamedTuple):
    """Rows, choice rows included, columns and coefficients of a program, as they are written to a file.

    The columns are the program's, and last, where it has a constant cost, one that is fixed at one.
    """

    rows: list[Row]
    columns: list[Column]
    matrix: csc_array


def exported(program: Program) -> Exported:
    """Return the rows and columns that `to_mps` and `to_lp` write, with their names; errors as theirs."""
    if program.intervals is not None:
        raise ValueError("the program places intervals on lines, which MPS and LP files cannot hold")
    explicit = with_choice_rows(program)
    limits = (explicit.row_lower.tolist(), explicit.row_upper.tolist())
    rows = [Row(*row) for row in zip(_numbered("r", explicit.row_names()), *limits, strict=True)]
    arrays = (program.cost, program.lower, program.upper, program.integer)
    values = zip(_numbered("x", program.column_names()), *(array.tolist() for array in arrays), strict=True)
    columns, matrix = [Column(*column) for column in values], explicit.matrix
    if program.offset != 0.0 or not columns:
        columns.append(Column("constant", float(program.offset), 1.0, 1.0, whole=False))
        matrix = csc_array(hstack([matrix, csc_array((len(rows), 1))]))
    return Exported(rows, columns, matrix)


def _numbered(letter: str, names: Iterable[str]) -> list[str]:
    """Names that differ by their number, and that no reader takes for a number or a keyword: ``x7_train``."""
    labels = (re.sub(r"\W", "_", name, flags=re.ASCII)[:_LONGEST_LABEL] for name in names)
    return [f"{letter}{number}_{label}" for number, label in enumerate(labels)]


def _mps_bounds(column: Column) -> list[tuple[str, str]]:
    """MPS's kind and value of bounds that are not 0 and infinity; of an integer column always, see below."""
    _, _, low, high, whole = column
    if low == high:
        return [("FX", f" {low!r}")]
    if column.binary:
        return [("BV", "")]
    if (low, high) == (-np.inf, np.inf):
        return [("FR", "")]
    bounds = []
    # Some readers give integer columns an upper bound of one, unless told otherwise, and some
    # a lower bound of minus infinity when the upper one is negative.
    if low != 0.0 or whole or high < 0.0:
        bounds.append(("MI", "") if low == -np.inf else ("LO", f" {low!r}"))
    if high != np.inf or whole:
        bounds.append(("PL", "") if high == np.inf else ("UP", f" {high!r}"))
    return bounds


def _lp_row(label: str, coefficients: list[float], names: list[str]) -> str:
    """Sum of columns by name, each times its coefficient, on as many lines as readers need."""
    terms = [
        f"{'-' if a < 0 else '+'} {abs(a)!r} {name}" for a, name in zip(coefficients, names, strict=True)
    ]
    lines = (terms[i : i + _TERMS_PER_LINE] for i in range(0, len(terms), _TERMS_PER_LINE))
    return f" {label}: " + "\n  ".join(map(" ".join, lines))


def _lp_bounds(column: Column) -> str:
    """Bounds of a column, empty where they are what readers assume."""
    name, _, low, high, _ = column
    if low == high:
        return f" {name} = {low!r}"
    if (low, high) == (-np.inf, np.inf):
        return f" {name} free"
    if (low, high) == (0.0, np.inf) or column.binary:
        return ""
    left = "-inf" if low == -np.inf else repr(low)
    return f" {left} <= {name}" + ("" if high == np.inf else f" <= {high!r}")
