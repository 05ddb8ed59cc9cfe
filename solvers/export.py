"""Programs as MPS and LP text, in the dialect that HiGHS, CBC and GLPK read alike.

Always a minimisation, with one row per choice group; a constant cost is a column fixed at one, because
readers disagree on the sign of a constant. Numbers are written in full, which HiGHS's own writer does not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, hstack

from wattsched.formulations.program import Program
from wattsched.solvers.rows import with_choice_rows

_OBJECTIVE = "cost"
_LONGEST_NAME = 80
_TERMS_PER_LINE = 5
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
# Not a letter first, or what an LP reader takes for a number or a keyword.
_MISREAD = re.compile(
    r"^([^A-Za-z]|[eE][0-9]|$)|^(inf|infinity|free|st|s_t|end|bounds?|min|max|minimi[sz]e|maximi[sz]e"
    r"|subject|such|gen|generals?|int|integers?|bin|binary|binaries|sos|sos1|sos2|semi|cost|constant)$",
    re.IGNORECASE,
)


def to_mps(program: Program) -> str:
    """Program as free MPS.

    Raises
    ------
    ValueError
        When the program has intervals, which no such file can hold.
    """
    return "".join(_mps(*_table(program)))


def to_lp(program: Program) -> str:
    """Program in CPLEX's LP format; errors as for `to_mps`."""
    return "".join(_lp(*_table(program)))


class _Row(NamedTuple):
    name: str
    low: float
    high: float


class _Column(NamedTuple):
    name: str
    cost: float
    low: float
    high: float
    whole: bool

    @property
    def binary(self) -> bool:
        return self.whole and (self.low, self.high) == (0.0, 1.0)


_Table = tuple[list[_Row], list[_Column], csc_array]
"""The rows, choice rows included, the columns and the coefficients."""


def _table(program: Program) -> _Table:
    if program.intervals is not None:
        raise ValueError("the program places intervals on lines, which MPS and LP files cannot hold")
    explicit = with_choice_rows(program)
    limits = (explicit.row_lower.tolist(), explicit.row_upper.tolist())
    rows = [_Row(*row) for row in zip(_unique(explicit.row_names()), *limits, strict=True)]
    arrays = (program.cost, program.lower, program.upper, program.integer)
    values = zip(_unique(program.column_names()), *(array.tolist() for array in arrays), strict=True)
    columns, matrix = [_Column(*column) for column in values], explicit.matrix
    if program.offset != 0.0 or not columns:
        columns.append(_Column("constant", float(program.offset), 1.0, 1.0, whole=False))
        matrix = csc_array(hstack([matrix, csc_array((len(rows), 1))]))
    return rows, columns, matrix


def _unique(names: Iterable[str]) -> list[str]:
    """Names of letters, digits and underscores that differ from each other and from keywords."""
    seen: set[str] = set()
    result = []
    for name in names:
        safe = _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME]
        if _MISREAD.match(safe):
            safe = f"n_{safe}"
        candidate = safe
        for number in itertools.count(2):
            if candidate not in seen:
                break
            candidate = f"{safe}_{number}"
        seen.add(candidate)
        result.append(candidate)
    return result


def _mps(rows: list[_Row], columns: list[_Column], matrix: csc_array) -> Iterator[str]:
    kinds = [_kind(row) for row in rows]
    yield f"NAME wattsched FREE\nROWS\n N {_OBJECTIVE}\n"
    for row, kind in zip(rows, kinds, strict=True):
        yield f" {kind} {row.name}\n"
    yield "COLUMNS\n"
    yield from _mps_columns(rows, columns, matrix)
    yield "RHS\n"
    for row, kind in zip(rows, kinds, strict=True):
        side = {"N": 0.0, "G": row.low}.get(kind, row.high)
        if side != 0.0:
            yield f" RHS {row.name} {side!r}\n"
    ranges = [row for row, kind in zip(rows, kinds, strict=True) if kind == "L" and row.low != -np.inf]
    if ranges:
        yield "RANGES\n"
    for row in ranges:
        yield f" RNG {row.name} {row.high - row.low!r}\n"
    yield "BOUNDS\n"
    for column in columns:
        yield from _mps_bounds(column)
    yield "ENDATA\n"


def _kind(row: _Row) -> str:
    if row.low == row.high:
        return "E"
    if row.high != np.inf:
        return "L"
    return "G" if row.low != -np.inf else "N"


def _mps_columns(rows: list[_Row], columns: list[_Column], matrix: csc_array) -> Iterator[str]:
    first, row, value = (array.tolist() for array in (matrix.indptr, matrix.indices, matrix.data))
    within, markers = False, 0
    for j, column in enumerate(columns):
        if column.whole != within:
            yield f" MARKER{markers} 'MARKER' '{'INTORG' if column.whole else 'INTEND'}'\n"
            within, markers = column.whole, markers + 1
        yield f" {column.name} {_OBJECTIVE} {column.cost!r}\n"
        for e in range(first[j], first[j + 1]):
            yield f" {column.name} {rows[row[e]].name} {value[e]!r}\n"
    if within:
        yield f" MARKER{markers} 'MARKER' 'INTEND'\n"


def _mps_bounds(column: _Column) -> Iterator[str]:
    """Bounds of a column that differ from 0 and infinity; of an integer column always, see below."""
    name, _, low, high, whole = column
    if low == high:
        yield f" FX BND {name} {low!r}\n"
    elif column.binary:
        yield f" BV BND {name}\n"
    elif (low, high) == (-np.inf, np.inf):
        yield f" FR BND {name}\n"
    else:
        # Some readers give integer columns an upper bound of one, unless told otherwise, and some
        # a lower bound of minus infinity when the upper one is negative.
        if low != 0.0 or whole or high < 0.0:
            yield f" MI BND {name}\n" if low == -np.inf else f" LO BND {name} {low!r}\n"
        if high != np.inf:
            yield f" UP BND {name} {high!r}\n"
        elif whole:
            yield f" PL BND {name}\n"


def _lp(rows: list[_Row], columns: list[_Column], matrix: csc_array) -> Iterator[str]:
    names = [column.name for column in columns]
    yield f"Minimize\n {_OBJECTIVE}:"
    # All columns, so that each exists, in the order of the program.
    yield from _terms([column.cost for column in columns], names)
    yield "\nSubject To\n"
    by_row = csr_array(matrix)
    first, index, value = (array.tolist() for array in (by_row.indptr, by_row.indices, by_row.data))
    for i, row in enumerate(rows):
        entries = slice(first[i], first[i + 1])
        # A row without entries needs a term all the same.
        terms = (value[entries], [names[j] for j in index[entries]]) if index[entries] else ([0.0], names[:1])
        yield from _lp_row(row, *terms)
    yield "Bounds\n"
    for column in columns:
        yield from _lp_bounds(column)
    general = [column.name for column in columns if column.whole and not column.binary]
    binary = [column.name for column in columns if column.binary]
    for title, members in (("Generals", general), ("Binaries", binary)):
        if members:
            yield "\n ".join([title, *members]) + "\n"
    yield "End\n"


def _terms(coefficients: list[float], names: list[str]) -> Iterator[str]:
    for i, (a, name) in enumerate(zip(coefficients, names, strict=True)):
        end = "\n " if i % _TERMS_PER_LINE == _TERMS_PER_LINE - 1 else ""
        yield f" {'-' if a < 0 else '+'} {abs(a)!r} {name}{end}"


def _lp_row(row: _Row, coefficients: list[float], names: list[str]) -> Iterator[str]:
    # Not all readers know rows with two limits: such a row is written twice.
    sides = [(row.name, "<=", row.high), (f"{row.name}_low", ">=", row.low)]
    for label, relation, side in [(row.name, "=", row.high)] if row.low == row.high else sides:
        if np.isfinite(side):
            yield f" {label}:"
            yield from _terms(coefficients, names)
            yield f" {relation} {side!r}\n"


def _lp_bounds(column: _Column) -> Iterator[str]:
    name, _, low, high, _ = column
    if low == high:
        yield f" {name} = {low!r}\n"
    elif (low, high) == (-np.inf, np.inf):
        yield f" {name} free\n"
    elif (low, high) != (0.0, np.inf) and not column.binary:
        left = "-inf" if low == -np.inf else repr(low)
        yield f" {left} <= {name}\n" if high == np.inf else f" {left} <= {name} <= {high!r}\n"
