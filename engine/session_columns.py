"""Input of a session's callers, from numpy, Arrow and lists: names, fields, GPUs in use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from wattsched.instances.errors import InputError, lines_of, repeated, validated
from wattsched.instances.sizing.decision import Assignment, AssignmentColumns
from wattsched.instances.sizing.job import Job, by_column
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.topology.column import Coded, as_list


def plain(value: Any) -> Any:
    """Numbers and arrays of numpy, wherever they are, as Python's own."""
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def named(field: str, ids: Iterable[str]) -> list[str]:
    """Names of jobs or nodes, each once."""
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
    """Columns of fields that jobs have, of the right length."""
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
    """A list as files have it: no number is None, as it is nan in arrays, in fields that may have none."""
    if Job.model_fields[field].default is not None:
        lacking = isinstance(column, np.ndarray) and column.dtype.kind == "f" and np.isnan(column).any()
        return plain(column) if lacking or isinstance(column, list | tuple) else column
    if not isinstance(column, list | tuple):
        return column
    return [None if isinstance(entry, float) and entry != entry else plain(entry) for entry in column]


def jobs_of_columns(columns: Mapping[str, Any]) -> JobColumns:
    """Validate columns of jobs."""
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
    """Options of a job, those by row by column."""
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
    """Return what jobs hold, as assignments."""
    if isinstance(held, AssignmentColumns):
        return divided(held, set(names))[0]
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
