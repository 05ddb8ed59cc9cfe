"""Programs as MPS and LP files, in the dialect that HiGHS, CBC and GLPK read alike.

Always a minimisation, with one row per choice group; a constant cost is a column fixed at one, because
readers disagree on the sign of a constant. Numbers are written in full.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csc_array, csr_array

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


@dataclass(frozen=True)
class _Table:
    """The program with choice rows, names and Python numbers."""

    rows: list[str]
    columns: list[str]
    matrix: csc_array
    cost: list[float]
    row_lower: list[float]
    row_upper: list[float]
    lower: list[float]
    upper: list[float]
    integer: list[bool]


def write_mps(program: Program, path: str | Path) -> None:
    """Write a program as a free MPS file.

    Raises
    ------
    ValueError
        When the program has intervals, which no such file can hold.
    OSError
        When the file cannot be written; an existing one is then left as it was.
    """
    _write(Path(path), _mps(_table(program)))


def write_lp(program: Program, path: str | Path) -> None:
    """Write a program as a CPLEX LP file; errors as for `write_mps`."""
    _write(Path(path), _lp(_table(program)))


def _table(program: Program) -> _Table:
    if program.intervals is not None:
        raise ValueError("the program places intervals on lines, which MPS and LP files cannot hold")
    matrix, row_lower, row_upper = with_choice_rows(program)
    groups = [f"choice_{k}" for k in range(program.n_groups)]
    table = _Table(
        _unique([*program.row_names(), *groups]),
        _unique(program.column_names()),
        matrix,
        program.cost.tolist(),
        row_lower.tolist(),
        row_upper.tolist(),
        program.lower.tolist(),
        program.upper.tolist(),
        program.integer.tolist(),
    )
    if program.offset == 0.0 and table.columns:
        return table
    return _Table(
        table.rows,
        [*table.columns, "constant"],
        csc_array((matrix.data, matrix.indices, np.append(matrix.indptr, matrix.nnz)),
                  shape=(matrix.shape[0], matrix.shape[1] + 1)),
        [*table.cost, program.offset],
        table.row_lower,
        table.row_upper,
        [*table.lower, 1.0],
        [*table.upper, 1.0],
        [*table.integer, False],
    )  # fmt: skip


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


def _write(path: Path, lines: Iterator[str]) -> None:
    """Write lines to a temporary file beside the target, and rename it when it is complete."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.writelines(lines)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _mps(table: _Table) -> Iterator[str]:
    yield f"NAME wattsched FREE\nROWS\n N {_OBJECTIVE}\n"
    for name, low, high in zip(table.rows, table.row_lower, table.row_upper, strict=True):
        yield f" {_kind(low, high)} {name}\n"
    yield "COLUMNS\n"
    yield from _mps_columns(table)
    yield "RHS\n"
    ranges = []
    for name, low, high in zip(table.rows, table.row_lower, table.row_upper, strict=True):
        kind = _kind(low, high)
        if kind == "N":
            continue
        side = low if kind == "G" else high
        if side != 0.0:
            yield f" RHS {name} {side!r}\n"
        if kind == "L" and low != -np.inf:
            ranges.append(f" RNG {name} {high - low!r}\n")
    if ranges:
        yield "RANGES\n"
        yield from ranges
    yield "BOUNDS\n"
    yield from _mps_bounds(table)
    yield "ENDATA\n"


def _kind(low: float, high: float) -> str:
    if low == high:
        return "E"
    if high != np.inf:
        return "L"
    return "G" if low != -np.inf else "N"


def _mps_columns(table: _Table) -> Iterator[str]:
    first, row, value = (
        array.tolist() for array in (table.matrix.indptr, table.matrix.indices, table.matrix.data)
    )
    within, markers = False, 0
    for j, (name, cost, whole) in enumerate(zip(table.columns, table.cost, table.integer, strict=True)):
        if whole != within:
            yield f" MARKER{markers} 'MARKER' '{'INTORG' if whole else 'INTEND'}'\n"
            within, markers = whole, markers + 1
        yield f" {name} {_OBJECTIVE} {cost!r}\n"
        for e in range(first[j], first[j + 1]):
            yield f" {name} {table.rows[row[e]]} {value[e]!r}\n"
    if within:
        yield f" MARKER{markers} 'MARKER' 'INTEND'\n"


def _mps_bounds(table: _Table) -> Iterator[str]:
    """Bounds of all columns that differ from 0 and infinity; of integer columns always, see below."""
    for name, low, high, whole in zip(table.columns, table.lower, table.upper, table.integer, strict=True):
        if low == high:
            yield f" FX BND {name} {low!r}\n"
        elif whole and (low, high) == (0.0, 1.0):
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


def _lp(table: _Table) -> Iterator[str]:
    yield f"Minimize\n {_OBJECTIVE}:"
    # All columns, so that each exists, in the order of the program.
    yield from _terms(table.cost, table.columns)
    yield "\nSubject To\n"
    yield from _lp_rows(table)
    yield "Bounds\n"
    yield from _lp_bounds(table)
    binary = [w and (low, high) == (0.0, 1.0)
              for w, low, high in zip(table.integer, table.lower, table.upper, strict=True)]  # fmt: skip
    general = [w and not b for w, b in zip(table.integer, binary, strict=True)]
    for title, chosen in (("Generals", general), ("Binaries", binary)):
        if any(chosen):
            yield f"{title}\n"
            for name in itertools.compress(table.columns, chosen):
                yield f" {name}\n"
    yield "End\n"


def _terms(coefficients: list[float], names: list[str]) -> Iterator[str]:
    for i, (a, name) in enumerate(zip(coefficients, names, strict=True)):
        end = "\n " if i % _TERMS_PER_LINE == _TERMS_PER_LINE - 1 else ""
        yield f" {'-' if a < 0 else '+'} {abs(a)!r} {name}{end}"


def _lp_rows(table: _Table) -> Iterator[str]:
    by_row = csr_array(table.matrix)
    first, column, value = (array.tolist() for array in (by_row.indptr, by_row.indices, by_row.data))
    for i, (name, low, high) in enumerate(zip(table.rows, table.row_lower, table.row_upper, strict=True)):
        entries = slice(first[i], first[i + 1])
        names = [table.columns[j] for j in column[entries]]
        coefficients = [float(a) for a in value[entries]]
        if not names:
            names, coefficients = table.columns[:1], [0.0]
        # Not all readers know rows with two limits: such a row is written twice.
        sides = [(name, "=", high)] if low == high else [(name, "<=", high), (f"{name}_low", ">=", low)]
        for label, relation, side in sides:
            if np.isfinite(side):
                yield f" {label}:"
                yield from _terms(coefficients, names)
                yield f" {relation} {side!r}\n"


def _lp_bounds(table: _Table) -> Iterator[str]:
    for name, low, high, whole in zip(table.columns, table.lower, table.upper, table.integer, strict=True):
        if low == high:
            yield f" {name} = {low!r}\n"
        elif (low, high) == (-np.inf, np.inf):
            yield f" {name} free\n"
        elif (low, high) != (0.0, np.inf) and not (whole and (low, high) == (0.0, 1.0)):
            left = "-inf" if low == -np.inf else repr(low)
            yield f" {left} <= {name}\n" if high == np.inf else f" {left} <= {name} <= {high!r}\n"
