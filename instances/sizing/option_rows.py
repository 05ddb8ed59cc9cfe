"""Rows of option tables as arrays, of many tables one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import OptionTable
from wattsched.topology.arrays import FloatArray, IntArray, offsets, ranges
from wattsched.topology.column import NONE, Coded, Made
from wattsched.topology.remembered import remembered

SETTINGS = ("frequency_mhz", "power_limit_w", "batch_size")
"""Optional columns of a table that, with its pool and GPU count, identify a row."""

NUMBERS = ("power_w", "rate", "completion_s", *SETTINGS)
"""Columns of numbers that a table may have, beside the GPU count."""

WHOLE = ("frequency_mhz", "batch_size")
"""Those that are whole."""


@dataclass(frozen=True, eq=False)
class OptionRows:
    """Rows of several tables.

    Attributes
    ----------
    start : int array, shape (n_tables + 1,)
        Rows of table i are ``start[i]`` to ``start[i + 1]``.
    gpus : int array, shape (n_rows,)
    pool : Coded
        Pool, or GPU type, that each row names.
    power_w, rate, completion_s, frequency_mhz, power_limit_w, batch_size : float arrays, shape (n_rows,)
        nan where a table has no such column.
    """

    start: IntArray
    gpus: IntArray
    pool: Coded
    power_w: FloatArray
    rate: FloatArray
    completion_s: FloatArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    batch_size: FloatArray

    @classmethod
    def of(cls, tables: Sequence[OptionTable]) -> OptionRows:
        """Rows of tables."""
        return tables.rows if isinstance(tables, OptionTables) else cls.joined([*map(rows_of, tables)])

    @classmethod
    def joined(cls, parts: Sequence[OptionRows]) -> Self:
        """Tables of all parts, one after the other."""
        sizes = [np.diff(part.start) for part in parts]
        number: dict[str, int] = {}
        codes = [
            np.array([number.setdefault(name, len(number)) for name in part.pool.values])[part.pool.codes]
            for part in parts
            if len(part.gpus)
        ]
        none = np.zeros(0, dtype=np.int64)
        listed = {name: [getattr(part, name) for part in parts] for name in NUMBERS}
        numbers = {name: np.concatenate([np.zeros(0), *columns]) for name, columns in listed.items()}
        return cls(
            start=offsets(np.concatenate([none, *sizes])),
            gpus=np.concatenate([none, *(part.gpus for part in parts)]),
            pool=Coded(np.concatenate([none, *codes]), list(number)),
            **numbers,
        )

    def take(self, tables: IntArray) -> OptionRows:
        """Rows of the tables with these numbers; `NONE` has no rows."""
        size = np.append(np.diff(self.start), 0)[tables]
        rows = ranges(self.start[tables], size)
        numbers = {name: getattr(self, name)[rows] for name in NUMBERS}
        start = offsets(size)
        return OptionRows(start, self.gpus[rows], self.pool.take(rows), **numbers)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self.start) - 1

    @property
    def table(self) -> IntArray:
        """Table of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def made(self, i: int) -> OptionTable:
        """Table i as a model."""
        rows = slice(int(self.start[i]), int(self.start[i + 1]))
        pools = [self.pool.values[code] for code in self.pool.codes[rows].tolist()]
        columns: dict[str, list[Any]] = {"gpus": self.gpus[rows].tolist(), "pool": pools}
        for name in NUMBERS:
            values = getattr(self, name)[rows]
            # A table without rows has the columns that it must have.
            if name in ("power_w", "rate") if not len(values) else not np.isnan(values).any():
                columns[name] = (values.astype(np.int64) if name in WHOLE else values).tolist()
        return OptionTable.model_construct(set(columns), **columns)


@dataclass(frozen=True, eq=False)
class OptionTables(Made[OptionTable]):
    """Tables by column: each becomes a model when it is looked at, and then stays the same one."""

    rows: OptionRows
    _known: dict[int, OptionTable] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def _made(self, place: int) -> OptionTable:
        if place not in self._known:
            self._known[place] = self.rows.made(place)
        return self._known[place]

    def with_more(self, rows: OptionRows) -> OptionTables:
        """These tables, and others behind them."""
        return OptionTables(OptionRows.joined([self.rows, rows]), dict(self._known))

    def take(self, tables: IntArray) -> OptionTables:
        """Some of the tables."""
        known = {i: self._known[t] for i, t in enumerate(tables.tolist()) if t in self._known}
        return OptionTables(self.rows.take(tables), known)


@remembered
def rows_of(table: OptionTable) -> OptionRows:
    """Rows of one table as arrays."""
    n = len(table.gpus)
    absent = np.full(n, np.nan)
    columns = {name: getattr(table, name) for name in NUMBERS}
    numbers = {name: absent if v is None else np.array(v, dtype=float) for name, v in columns.items()}
    pool = Coded.of(table.pool)
    return OptionRows(np.array([0, n]), np.array(table.gpus, dtype=np.int64), pool, **numbers)


@remembered
def rows_of_kinds(instance: Instance) -> OptionRows:
    """Rows of the table of each kind of job of an instance, none of kinds with a performance model.

    The kinds are those of `JobColumns.kinds`.
    """
    jobs = instance.by_column()
    first, _ = jobs.kinds
    options = jobs.coded("options")
    values = options.values
    if not isinstance(values, OptionTables):
        values = [instance.tables[one] if isinstance(one, str) else one for one in values]
    codes = options.codes[first]
    if not len(values):
        return OptionRows.joined([]).take(np.full(len(codes), NONE))
    return OptionRows.of(values).take(codes)
