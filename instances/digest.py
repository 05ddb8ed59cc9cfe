"""Digest of an instance's content, the same however its file is written."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple, get_args

import numpy as np
from pydantic import BaseModel

from wattsched.instances.sizing.decision import Holdings
from wattsched.instances.sizing.job import Placement
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.column import NONE, Coded
from wattsched.topology.columns import RecordColumns
from wattsched.topology.remembered import remembered

_DOUBLE = struct.Struct("<d")


def digest_of(instance: BaseModel) -> str:
    """SHA-256 of the content of an instance, in hexadecimal digits; its objective is left out.

    Equal instances have equal digests, whatever the order of fields, the form of numbers and the
    compression of their files, and whether defaults are written; the order of lists counts. What is hashed is
    the instance as a value, written as follows:

    - a number (or true, 1, and false, 0) as ``d`` and its 8 bytes as a double, the lowest first;
    - a text as ``s``, its length in bytes, ``:``, and these bytes (UTF-8); null as ``n``;
    - a list as ``[``, its length, ``:``, and its entries; one of numbers alone as ``D``, its length, ``:``,
      and 8 bytes for each; one of texts alone as ``S``, the list of their lengths in characters, and they;
    - an object as ``{``, for each field its name, as a text, and its value, in the order of the names by code
      points, and ``}``. Of objects with fixed fields those with their default are left out; options in rows
      count as columns;
    - jobs, nodes and groups as ``T``, their number, ``:``, and, in place of each of these fields that one of
      them states, a column, as `_write_columns` has it, and ``}``.
    """
    parts: list[bytes] = []
    _write_fields(instance, parts, ("objective",))
    found = sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _write(value: Any, parts: list[bytes]) -> None:
    """Append the bytes of a value to `parts`, as `digest_of` tells."""
    if isinstance(value, str):
        parts.append(_text(value))
    elif isinstance(value, float | int):
        parts.append(b"d" + _DOUBLE.pack(value))
    elif isinstance(value, Cluster):
        parts.append(_cluster(value))
    elif isinstance(value, BaseModel):
        _write_fields(value, parts)
    elif value is None:
        parts.append(b"n")
    elif isinstance(value, RecordColumns):
        _write_columns(value, parts)
    elif isinstance(value, list | tuple):
        _write_list(value, parts)
    else:
        parts.append(b"{")
        for name in sorted(value):
            parts.append(_text(name))
            _write(value[name], parts)
        parts.append(b"}")


@remembered
def _cluster(cluster: Cluster) -> bytes:
    """Return the bytes to digest of a cluster, which is the same from round to round."""
    parts: list[bytes] = []
    _write_fields(cluster, parts)
    return b"".join(parts)


def _write_fields(model: BaseModel, parts: list[bytes], without: tuple[str, ...] = ()) -> None:
    """Append the fields of a model that have not their default, but for those `without`."""
    content = vars(model)
    parts.append(b"{")
    for field in _fields(type(model)):
        value = content[field.name]
        if value is field.default or value == field.default or field.name in without:
            continue
        parts.append(field.text)
        records = field.records
        if records and isinstance(value, list) and all(isinstance(one, records.record) for one in value):
            value = records.from_records(value)
        _write(value, parts)
    parts.append(b"}")


class _Field(NamedTuple):
    """A field of a model: its name, how that is written, its default, and its records' type by column."""

    name: str
    text: bytes
    default: Any
    records: type[RecordColumns[Any]] | None


@cache
def _fields(model: type[BaseModel]) -> list[_Field]:
    """Fields of a model's type in the order of their names."""
    return [
        _Field(
            name,
            _text(name),
            ... if field.is_required() else field.get_default(call_default_factory=True),
            next(filter(_is_columns, _parts_of(field.annotation)), None),
        )
        for name, field in sorted(model.model_fields.items())
    ]


def _parts_of(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and those that it is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts_of(part)


def _is_columns(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, RecordColumns)


def _write_list(values: list[Any] | tuple[Any, ...], parts: list[bytes]) -> None:
    """Append the bytes of a list to `parts`; of texts or of numbers alone at once."""
    # Columns of options are most of an instance.
    try:
        if values and isinstance(values[0], str):
            _write_texts(values, parts)
            return
        if values and isinstance(values[0], float | int):
            parts.append(b"D%d:" % len(values) + struct.pack(f"<{len(values)}d", *values))
            return
    except (TypeError, struct.error):  # not all are of one kind
        pass
    parts.append(b"[%d:" % len(values))
    for value in values:
        _write(value, parts)


def _write_texts(texts: Sequence[str], parts: list[bytes]) -> None:
    joined = "".join(texts).encode()
    parts += [b"S", _doubles(np.fromiter(map(len, texts), float, len(texts))), joined]


def _write_columns(records: RecordColumns[Any], parts: list[bytes]) -> None:
    """Append the columns, by name, in which a record has another value than the field's default.

    - Numbers, counts and truth values are a list of numbers: null is not a number there, 0 of counts.
    - Names are a list of texts.
    - Everything else is ``C``, the list of the different values in the order in which they occur first, and
      the list of their places in it, -1 for null.
    - What jobs hold now is ``H``, the list of the places, and the columns of those that hold something; a
      GPU is an entry of ``node`` and of ``gpu``, by node names, and ``size`` says how many there are.
    """
    parts.append(b"T%d:" % len(records))
    for name in sorted(records.columns):
        if written := _column(records, name):
            parts += [_text(name), *written]
    parts.append(b"}")


def _column(records: RecordColumns[Any], name: str) -> list[bytes]:
    """Bytes of a column, nothing where all have the default."""
    column, default = records.columns[name], records.default(name)
    if isinstance(column, list):
        written: list[bytes] = []
        _write_texts(column, written)
        return written
    if isinstance(column, Coded):
        if len(column.values) and isinstance(column.values[0], Placement):
            return _held(column)
        return _coded(column, default)
    unstated = records.without(name) if default in (None, ...) else column == default
    return [] if unstated.all() else [_doubles(column)]


def _coded(column: Coded, default: Any = ...) -> list[bytes]:
    """Bytes of a column of few values, nothing where all have the default, if there is one."""
    number: dict[bytes, int] = {}
    same = [number.setdefault(_bytes_of(value), len(number)) for value in column.values]
    codes = np.array([*same, NONE])[column.codes]  # the last stands for none
    nowhere = len(number)
    if default is None:
        unstated = NONE
    else:
        unstated = nowhere if default is ... else number.get(_bytes_of(default), nowhere)
    if (codes == unstated).all():
        return []
    used, first = np.unique(codes, return_index=True)
    used = used[np.argsort(first)]
    used = used[used != NONE]
    place = np.full(len(number) + 1, NONE)
    place[used] = np.arange(len(used))
    values = list(number)
    return [b"C[%d:" % len(used), *(values[code] for code in used.tolist()), _doubles(place[codes])]


def _held(column: Coded) -> list[bytes]:
    """Return the bytes to digest of the GPUs that jobs hold; an empty list where none holds any."""
    runs = np.flatnonzero(column.codes != NONE)
    if not len(runs):
        return []
    held = Holdings.of(column.values).take(column.codes[runs])
    size = np.diff(held.start)
    nodes = held.node.values
    rank = np.empty(len(nodes), dtype=np.int64)
    rank[sorted(range(len(nodes)), key=nodes.__getitem__)] = np.arange(len(nodes))
    order = np.lexsort((rank[held.node.codes], np.repeat(np.arange(len(held)), size)))
    written = [b"H", _doubles(runs)]
    for numbers in (held.gpus, held.frequency_mhz, held.power_limit_w, held.batch_size, size):
        written.append(_doubles(numbers))
    for coded in (held.pool, held.set, held.node.take(order)):
        written += _coded(coded) or [b"n"]
    return [*written, _doubles(held.gpu[order])]


def _bytes_of(value: Any) -> bytes:
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _doubles(values: FloatArray | IntArray | BoolArray) -> bytes:
    """A list of numbers; what is no number is written in one way."""
    doubles = values.astype("<f8")
    doubles[np.isnan(doubles)] = np.nan
    return b"D%d:" % len(doubles) + doubles.tobytes()


def _text(text: str) -> bytes:
    content = text.encode()
    return b"s%d:%b" % (len(content), content)
