"""Input of a session's callers, from numpy, Arrow and lists: names, fields, GPUs in use, own tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import NoneType
from typing import Any

import numpy as np
from pydantic import ValidationError

from wattsched.instances.errors import InputError, lines_of, repeated, validated
from wattsched.instances.sizing.decision import Assignment, AssignmentColumns
from wattsched.instances.sizing.job import Job, OptionTable, by_column
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.option_rows import NUMBERS, SETTINGS, WHOLE, OptionRows, OptionTables
from wattsched.topology.arrays import IntArray, alike
from wattsched.topology.column import NONE, Coded, as_list, from_arrow, length, with_codes
from wattsched.topology.fields import LARGEST, LONGEST_NAME, MOST

_PLAIN = frozenset({int, float, str, bool, NoneType})

TABLE = tuple(OptionTable.model_fields)
"""Arguments of `Session.upsert` that are columns of the jobs' own tables."""


def plain(value: Any) -> Any:
    """Numbers and arrays of numpy, wherever they are, as Python's own."""
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def named(field: str, ids: Iterable[str]) -> list[str]:
    """Names of jobs or nodes, each once, as a list; messages name the argument `field`."""
    names: Any = ids
    for method in ("to_pylist", "tolist"):  # of Arrow and numpy
        names = getattr(ids, method)() if hasattr(ids, method) else names
    if isinstance(names, str | Mapping) or not isinstance(names, Iterable):
        raise TypeError(f"{field} must be a sequence of names, got {ids!r:.80}")
    found: list[Any] = list(names)
    for place, name in enumerate(found):
        if not isinstance(name, str):
            raise TypeError(f"{field} must be a sequence of names, and {field}[{place}] is {name!r:.80}")
    if faults := list(repeated("job" if field == "ids" else "node", found)):
        raise InputError(faults)
    return found


def fields_of(columns: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Columns of fields that jobs have, of the length `n`, with None where no number stands in a list."""
    known = Job.model_fields.keys() - {"name", "current"}
    faults = [f"'{name}' is no field of a job" for name in columns if name not in known]
    for name, column in columns.items():
        entries = column.codes if isinstance(column, Coded) else column
        one = isinstance(entries, str) or getattr(entries, "ndim", 1) == 0
        if one or not hasattr(entries, "__len__"):
            faults.append(f"{name}: must have a value for each of {n} jobs, got {entries!r:.80}")
        elif len(entries) != n:
            faults.append(f"{name}: has {len(entries)} values for {n} jobs")
    if faults:
        raise InputError(faults)
    return {name: _without_nan(name, column) for name, column in columns.items()}


def _without_nan(field: str, column: Any) -> Any:
    """A column of a field, in lists of which None stands for no number, as in files, instead of nan.

    Fields that must have a number keep nan, in a list, which then is refused.
    """
    if Job.model_fields[field].default is not None:
        lacking = isinstance(column, np.ndarray) and column.dtype.kind == "f" and np.isnan(column).any()
        return plain(column) if lacking or isinstance(column, list | tuple) else column
    if not isinstance(column, list | tuple):
        return column
    return [None if isinstance(entry, float) and entry != entry else plain(entry) for entry in column]


def jobs_of_columns(columns: Mapping[str, Any]) -> JobColumns:
    """Jobs from columns of their fields, validated; an InputError with every fault."""
    if isinstance(listed := columns.get("options"), list):
        columns = {**columns, "options": [_by_column(j, options) for j, options in enumerate(listed)]}
    try:
        return JobColumns.of(columns)
    except ValidationError as error:
        listed = {name: as_list(column) for name, column in columns.items()}
        raise InputError(lines_of(error, listed)) from None
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(str(error).split("; ")) from None


def _by_column(j: int, options: Any) -> Any:
    """Options of job j; those that are by row are given by column."""
    try:
        return by_column(options)
    except ValueError as error:
        raise InputError([f"options[{j}]: {error}"]) from None


def divided(
    assignments: AssignmentColumns, jobs: Collection[str]
) -> tuple[AssignmentColumns, AssignmentColumns]:
    """The assignments of some jobs, and those of all others."""
    mine = np.array([name in jobs for name in assignments.names], dtype=bool)
    return assignments.take(np.flatnonzero(mine)), assignments.take(np.flatnonzero(~mine))


def assignments_of(
    names: list[str], held: AssignmentColumns | Sequence[Mapping[str, Any] | None]
) -> AssignmentColumns:
    """Return what the jobs of these names hold, one entry for each or assignments, as assignments."""
    if isinstance(held, AssignmentColumns):
        mine, _ = divided(held, set(names))
        return mine
    listed = None if isinstance(held, str | Mapping) or not isinstance(held, Sequence) else list(held)
    if listed is None:
        raise InputError([f"held: must be a mapping or None for each job, got {held!r:.80}"])
    if len(listed) != len(names):
        raise InputError([f"held: has {len(listed)} values for {len(names)} jobs"])
    rows, faults = [], list[str]()
    for name, one in zip(names, listed, strict=True):
        if one is None:
            continue
        if not isinstance(one, Mapping):
            faults.append(f"job '{name}': held: must be a mapping or None, got {one!r:.80}")
            continue
        try:
            row = validated(Assignment, {**plain(one), "job": name})
        except InputError as error:
            faults += [f"job '{name}': held.{fault}" for fault in error.faults]
            continue
        if (gpus := sum(map(len, row.nodes.values()))) != row.gpus:
            faults.append(f"job '{name}': held.gpus is {row.gpus}, but nodes lists {gpus}")
        rows.append(row)
    if faults:
        raise InputError(faults)
    return AssignmentColumns.from_records(rows)


def rows_of_columns(
    names: list[str], start: Sequence[int] | IntArray | None, columns: Mapping[str, Any]
) -> OptionRows:
    """Options of each job, which are the rows ``start[i]`` to ``start[i + 1]`` of the columns.

    An InputError with every fault.
    """
    listed = {name: _column(name, column) for name, column in columns.items()}
    given = {name: length(column) for name, column in listed.items() if not isinstance(column, str)}
    # As many as most of them have: one that is too long is named, not all others.
    [(n_rows, _)] = Counter(given.values()).most_common(1) or [(0, 0)]
    if faults := [f"{name}: has {n} rows, others {n_rows}" for name, n in given.items() if n != n_rows]:
        raise InputError(faults)
    if start is None and len(names) != 1:
        raise InputError([f"start: is missing, which tells the rows of {len(names)} jobs apart"])
    bounds = [0, n_rows] if start is None else _listed("start", start)
    if not isinstance(bounds, list) or not all(isinstance(end, int) for end in bounds):
        raise InputError([f"start: must be whole numbers, got {bounds!r:.80}"])
    if len(bounds) != len(names) + 1 or bounds[0] != 0 or bounds[-1] != n_rows or bounds != sorted(bounds):
        message = f"{len(names) + 1} ascending numbers from 0 to {n_rows}, the number of rows"
        raise InputError([f"start: must be {message}"])
    sound = _sound_rows(np.array(bounds, dtype=np.int64), listed)
    if sound is not None:
        return sound
    # What has a fault is validated table by table, which takes long, and tells where it is.
    lists = {name: _listed(name, column) for name, column in listed.items()}
    lists = {name: [column] * n_rows if isinstance(column, str) else column for name, column in lists.items()}
    if faults := [
        f"{name}[{row}]: must be one value, got {value!r:.80}"
        for name, column in lists.items()
        for row, value in enumerate(column)
        if isinstance(value, list | tuple | dict)
    ]:
        raise InputError(faults)
    found = []
    for name, first, end in zip(names, bounds[:-1], bounds[1:], strict=True):
        try:
            rows = {column: values[first:end] for column, values in lists.items()}
            found.append(validated(OptionTable, rows))
        except InputError as error:
            faults += [f"job '{name}': {fault}" for fault in error.faults]
    if faults:
        raise InputError(faults)
    return OptionRows.of(found)


def _sound_rows(start: IntArray, columns: Mapping[str, Any]) -> OptionRows | None:
    """Rows of all tables at once, None where one may have a fault, which is then to be found."""
    needed, either = {"gpus", "pool", "power_w"}, {"rate", "completion_s"} & columns.keys()
    pool = None if not needed <= columns.keys() or len(either) != 1 else _texts(columns["pool"], start[-1])
    arrays = {name: _numbers(column) for name, column in columns.items() if name != "pool"}
    whole = ("gpus", *WHOLE)
    if pool is None or any(
        column is None or (name in whole and column.dtype.kind != "i") for name, column in arrays.items()
    ):
        return None
    sound = all(
        (array >= (1 if name in whole else 0)).all()
        and (array <= (MOST if name in whole else LARGEST)).all()
        and (name == "power_w" or (array > 0).all())
        for name, array in arrays.items()
    )
    table = np.repeat(np.arange(len(start) - 1), np.diff(start))
    stated = [arrays[name] for name in ("gpus", *SETTINGS) if name in arrays]
    if not sound or len(alike([table, pool.codes, *stated])[0]) < len(table):  # a table has a row twice
        return None
    absent = np.full(len(table), np.nan)
    numbers = {name: arrays[name].astype(float) if name in arrays else absent for name in NUMBERS}
    return OptionRows(start, arrays["gpus"].astype(np.int64), pool, **numbers)


def _texts(column: Any, n: int) -> Coded | None:
    """Names of pools of `n` rows, from a column or one name for all; None where a name may have a fault."""
    if isinstance(column, str):
        found = Coded(np.zeros(n, dtype=np.int64), [column])
    elif isinstance(column, Coded):
        found = column
    else:
        found = Coded.of(name if isinstance(name, str) else None for name in column)
    named = all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in found.values)
    return found if named and (found.codes >= 0).all() else None


def _numbers(column: Any) -> Any:
    """A column as an array of numbers, None where it may not be one."""
    if isinstance(column, list | tuple):
        whole = all(type(value) is int for value in column)
        if not whole and not all(type(value) in (int, float) for value in column):
            return None
        try:
            return np.array(column, dtype=np.int64 if whole else float)
        except OverflowError:
            return None
    if not isinstance(column, np.ndarray) or isinstance(column, np.ma.MaskedArray) or column.ndim != 1:
        return None
    if column.dtype.kind == "f":
        # Halves cannot even be compared with the largest number that there may be.
        return column.astype(float, copy=False)
    return column if column.dtype.kind == "i" else None


def _column(field: str, column: Any) -> Any:
    """A column of a table as it is, or that of Arrow as numpy's or a list, or one name for all rows."""
    # What is missing in whole numbers would make fractions of them.
    lacking = hasattr(column, "to_pylist") and getattr(column, "null_count", False)
    column = column.to_pylist() if lacking else from_arrow(column)
    if isinstance(column, Coded):
        return with_codes(field, column)
    return column if isinstance(column, str | np.ndarray) else _listed(field, column)


@dataclass(frozen=True)
class KnownTables:
    """Tables of jobs, of which equal ones are one.

    Attributes
    ----------
    tables : OptionTables
    number : dict of bytes to int
        Of each by its content.
    """

    tables: OptionTables = field(default_factory=lambda: OptionTables(OptionRows.joined([])))
    number: Mapping[bytes, int] = field(default_factory=dict)

    def with_more(self, rows: OptionRows) -> tuple[Coded, KnownTables]:
        """A column that numbers the table of each job, whose rows these are, and all tables with new ones."""
        known, new, numbers = dict(self.number), list[int](), list[int]()
        for i, content in enumerate(_contents_of(rows, self.tables.rows.pool.values)):
            number = known.setdefault(content, len(known))
            if number == len(self.tables) + len(new):
                new.append(i)
            numbers.append(number)
        if not new:
            return Coded(np.array(numbers, dtype=np.int64), self.tables), self
        tables = self.tables.with_more(rows.take(np.array(new, dtype=np.int64)))
        return Coded(np.array(numbers, dtype=np.int64), tables), KnownTables(tables, known)

    def pointed(self, jobs: JobColumns) -> JobColumns:
        """Jobs, whose options may be numbers of these tables, with the tables as they have grown."""
        options = jobs.coded("options")
        grown = isinstance(options.values, OptionTables) and options.values is not self.tables
        return _with_options(jobs, Coded(options.codes, self.tables)) if grown else jobs

    def without_unused(self, jobs: JobColumns) -> tuple[JobColumns, KnownTables]:
        """Jobs and the tables that they use; not every time, as that takes as long as there are tables."""
        if len(self.tables) <= 2 * len(jobs) + 100:
            return jobs, self
        options = jobs.coded("options")
        if options.values is not self.tables:
            # Some jobs name tables of the session: others have theirs as models.
            return jobs, KnownTables()
        numbers, used = self.used_by(options.codes)
        return _with_options(jobs, Coded(numbers, used.tables)), used

    def used_by(self, numbers: IntArray) -> tuple[IntArray, KnownTables]:
        """Return the new numbers of the tables that are used, and those tables without all others."""
        used = np.unique(numbers[numbers != NONE])
        place = np.full(len(self.tables) + 1, NONE)
        place[used] = np.arange(len(used))
        places = place.tolist()
        left = {content: places[n] for content, n in self.number.items() if places[n] != NONE}
        return place[numbers], KnownTables(self.tables.take(used), left)


def _with_options(jobs: JobColumns, options: Coded) -> JobColumns:
    return JobColumns({**jobs.columns, "options": options})


def _contents_of(rows: OptionRows, pools: Sequence[str]) -> Iterator[bytes]:
    """Yield the bytes that each table is known by, with pools numbered after those given."""
    number = {name: code for code, name in enumerate(pools)}
    codes = [number.setdefault(name, len(number)) for name in rows.pool.values]
    pool = np.array(codes, dtype=float)[rows.pool.codes]
    every = np.stack([pool, rows.gpus.astype(float), *(getattr(rows, name) for name in NUMBERS)], axis=1)
    return (every[first:end].tobytes() for first, end in pairwise(rows.start.tolist()))


def _listed(field: str, column: Any) -> Any:
    """A column of a table as a list, or one name for all rows."""
    if isinstance(column, str):
        return column
    for method in ("tolist", "to_pylist"):  # of numpy and Arrow
        column = getattr(column, method)() if hasattr(column, method) else column
    if not isinstance(column, Sequence):
        raise InputError([f"{field}: must be a column, got {column!r:.80}"])
    return list(column) if _PLAIN.issuperset(map(type, column)) else plain(list(column))
