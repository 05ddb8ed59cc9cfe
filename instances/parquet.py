"""Rounds and their results as Parquet files: a row for every job, and the rest of the document beside them.

The rest is JSON, compressed by zlib, in the file's metadata under the key ``wattsched``.
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from wattsched.environment.extras import missing
from wattsched.instances.errors import InputError
from wattsched.instances.io import document_text
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.reading.inputs import BYTES_PER_MB, TooLargeError, echo, most_mb
from wattsched.topology.arrays import BoolArray, IntArray, offsets
from wattsched.topology.column import NONE, Coded, Column
from wattsched.topology.columns import RecordColumns

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet
except ImportError:
    raise InputError([f"reading and writing Parquet needs {missing('parquet')}"]) from None

VALUES_PER_MB = 1_000_000
"""Entries of columns that a file may have for each megabyte of `inputs.most_mb`: they need no objects."""

_KEY = b"wattsched"
_CURRENT = "current."
"""Beginning of the names of columns of what jobs hold now."""
_JSON = {b"wattsched": b"json"}
"""Metadata of a column whose texts are JSON values."""


def read_parquet(path: str | Path) -> dict[str, Any]:
    """Document of a file, its records in columns of arrays; an `InputError` if it is damaged or not ours."""
    source = str(path)
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            _refuse_large(file.metadata)
            table = file.read()
        document = json.loads(_expanded((table.schema.metadata or {})[_KEY]))
        place = document.pop("records")
    except TooLargeError as error:
        raise InputError([str(error)], source) from None
    except (pa.ArrowException, OSError) as error:
        raise InputError([f"is no Parquet file that can be read: {error}"], source) from None
    except (KeyError, ValueError, TypeError, AttributeError, zlib.error):
        raise InputError(["is a Parquet file, but not of a round or a result"], source) from None
    for name, times in Counter(table.schema.names).items():
        if times > 1:
            raise InputError([f"{place}.{name}: the column is there {times} times"], source)
    try:
        columns = {field.name: _column(table.column(n), field) for n, field in enumerate(table.schema)}
    except ValueError as error:
        raise InputError([f"{place}.{error}"], source) from None
    if place == "jobs":
        return {**document, "jobs": _jobs(columns)}
    return {"decision": _decision(columns), **document}


def parquet_bytes(model: BaseModel) -> bytes:
    """File of a round or of its result; an `InputError` for other problems, and without pyarrow."""
    if getattr(model, "problem", None) != "sizing":
        raise InputError(["Parquet is for rounds (problem sizing) and their results"])
    if isinstance(model, Instance):
        rest = json.loads(document_text(model.model_copy(update={"jobs": []})))
        del rest["jobs"]
        return _bytes(rest, "jobs", model.by_column(), [])
    rest = model.model_dump(mode="json", exclude={"decision"})
    if (decision := getattr(model, "decision", None)) is None:
        rest["decision"], decision = None, Decision(jobs=[], waiting=[])
    return _bytes(rest, "decision", AssignmentColumns.from_records(decision.jobs), decision.waiting)


def _bytes(rest: dict[str, Any], place: str, records: RecordColumns[Any], waiting: list[str]) -> bytes:
    """File of a document and its records, whose place in it is told; the jobs `waiting` have a name only."""
    fields: list[pa.Field] = []
    columns: list[Any] = []
    start = getattr(records, "start", None)
    assigned = records.assigned if isinstance(records, JobColumns) else None
    for name, column in records.columns.items():
        if name == "current" and isinstance(records, JobColumns) and assigned is not None:
            held = dict(_held(assigned, records.running, len(records)))
            fields += [pa.field(field, array.type) for field, array in held.items()]
            columns += held.values()
            continue
        array = _array(column, records.without(name))
        if name in records.several:
            array = pa.ListArray.from_arrays(pa.array(start, pa.int32()), array)
        array = pa.chunked_array([array, pa.array(waiting)] if name == records.key and waiting else [array])
        if waiting and name != records.key:
            array = pa.chunked_array([*array.chunks, pa.nulls(len(waiting), array.type)])
        fields.append(pa.field(name, array.type, metadata=_JSON if _mixed(column) else None))
        columns.append(array)
    metadata = {_KEY: zlib.compress(json.dumps({"records": place, **rest}).encode())}
    table = pa.table(columns, pa.schema(fields, metadata))
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def _held(assigned: AssignmentColumns, running: IntArray, n: int) -> Iterator[tuple[str, pa.Array]]:
    """Names and columns of what n jobs hold, null for those that do not run."""
    place = np.full(n, len(assigned))
    place[running] = np.arange(len(assigned))
    for name, column in assigned.columns.items():
        if name in assigned.several:
            size = np.append(np.diff(assigned.start), 0)[place]
            start = pa.array(offsets(size), pa.int32())
            entries = _array(column, np.zeros(int(size.sum()), dtype=bool))
            yield _CURRENT + name, pa.ListArray.from_arrays(start, entries)
        elif name != assigned.key:
            array = _array(column, assigned.without(name))
            yield _CURRENT + name, array.take(pa.array(place, mask=place == len(assigned)))


def _refuse_large(metadata: Any) -> None:
    """Raise a TooLargeError for a file of more bytes or values than are allowed."""
    most, groups = most_mb(), range(metadata.num_row_groups)
    columns = [metadata.row_group(group).column(c) for group in groups for c in range(metadata.num_columns)]
    size, values = sum(c.total_uncompressed_size for c in columns), sum(c.num_values for c in columns)
    if size > most * BYTES_PER_MB:
        raise TooLargeError(f"is larger than {most * BYTES_PER_MB:,} bytes after decompression")
    if values > most * VALUES_PER_MB:
        raise TooLargeError(f"has more than {most * VALUES_PER_MB:,} values")


def _expanded(content: bytes) -> bytes:
    """Decompress what is beside the rows, no more than is allowed."""
    most = most_mb() * BYTES_PER_MB
    found = zlib.decompressobj().decompress(content, most + 1)
    if len(found) > most:
        raise TooLargeError(f"has more than {most:,} bytes besides its rows")
    return found


def _array(column: Column, none: BoolArray) -> pa.Array:
    """Array of Arrow for a column, null where the mask `none` is true."""
    if isinstance(column, Coded):
        texts = [json.dumps(_dumped(v)) for v in column.values] if _mixed(column) else list(column.values)
        codes = pa.array(column.codes.astype(np.int32), mask=none)
        return pa.DictionaryArray.from_arrays(codes, pa.array(texts, pa.string()))
    if isinstance(column, list):
        return pa.array(column, pa.string())
    return pa.array(column, mask=none if none.any() else None)


def _mixed(column: Any) -> bool:
    """True if a column has a value that is no text, and so is written as JSON."""
    return isinstance(column, Coded) and any(not isinstance(value, str) for value in column.values)


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, BaseModel) else value


def _column(column: pa.ChunkedArray, field: pa.Field) -> Any:
    """Column of a file as one array; JSON values are parsed and coded."""
    found = column.combine_chunks()
    found = pa.chunked_array([found]).combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    if (field.metadata or {}).get(b"wattsched") != b"json":
        return found
    if not pa.types.is_dictionary(found.type):  # others write texts one by one
        found = found.dictionary_encode()
    codes = found.indices.fill_null(NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    return Coded(codes, [_value(field.name, text) for text in found.dictionary.to_pylist()])


def _value(name: str, text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise ValueError(f"{name}: must be JSON, got {echo(text)}") from None


def _jobs(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns of jobs, with a table of what those hold that run."""
    others = {name: column for name, column in columns.items() if not name.startswith(_CURRENT)}
    held = {name.removeprefix(_CURRENT): columns[name] for name in columns.keys() - others.keys()}
    if "gpus" not in held or "name" not in columns:
        return columns
    return {**others, "current": _with_gpus({"job": columns["name"], **held})}


def _with_gpus(columns: dict[str, Any]) -> dict[str, Any]:
    """The rows whose `gpus` are not null; of lists their entries one after the other."""
    runs = columns["gpus"].is_valid()
    found = {name: column.filter(runs) for name, column in columns.items()}
    for name, column in found.items():
        if hasattr(column, "flatten") and str(column.type).startswith("list"):
            found[name] = column.flatten()
    return found


def _decision(columns: dict[str, Any]) -> dict[str, Any] | None:
    """Running jobs by column, and the names of those that wait: they have no GPUs."""
    if "gpus" not in columns or "job" not in columns:
        return None
    waiting = columns["job"].filter(pc.invert(columns["gpus"].is_valid())).to_pylist()
    return {"jobs": _with_gpus(columns), "waiting": waiting}
