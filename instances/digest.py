"""What an instance is known by: a digest of its content, however its file is written."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
from pydantic import BaseModel

from wattsched.instances.sizing.holdings import Holdings
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.columns import NONE, Coded, RecordColumns
from wattsched.topology.ragged import Ragged
from wattsched.topology.remembered import remembered

_DOUBLE = struct.Struct("<d")
_AT_ONCE = 1 << 15
"""Records that are written at once: they stay in the processor's cache."""


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
      count as columns.
    """
    parts: list[bytes] = []
    _write_fields(instance, parts, ("objective",))
    found = sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _write(value: Any, parts: list[bytes]) -> None:
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
        _write_records(value, parts)
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
    """What is written of a cluster, which is the same from round to round."""
    parts: list[bytes] = []
    _write_fields(cluster, parts)
    return b"".join(parts)


def _write_fields(model: BaseModel, parts: list[bytes], without: tuple[str, ...] = ()) -> None:
    """Write the fields that have not their default."""
    content = vars(model)
    parts.append(b"{")
    for name, text, default in _fields(type(model)):
        value = content[name]
        if value is not default and value != default and name not in without:
            parts.append(text)
            _write(value, parts)
    parts.append(b"}")


@cache
def _fields(model: type[BaseModel]) -> list[tuple[str, bytes, Any]]:
    """Names of the fields, as texts and as they are written, and their defaults."""
    return [
        (name, _text(name), ... if field.is_required() else field.get_default(call_default_factory=True))
        for name, field in sorted(model.model_fields.items())
    ]


def _write_list(values: list[Any] | tuple[Any, ...], parts: list[bytes]) -> None:
    # Columns of options are most of an instance.
    try:
        if values and isinstance(values[0], str):
            texts = "".join(values).encode()
            parts += [b"S", _numbers([len(text) for text in values]), texts]
            return
        if values and isinstance(values[0], float | int):
            parts.append(_numbers(values))
            return
    except (TypeError, struct.error):  # not all are of one kind
        pass
    parts.append(b"[%d:" % len(values))
    for value in values:
        _write(value, parts)


def _write_records(records: RecordColumns[Any], parts: list[bytes]) -> None:
    """Write the records as a list of models would be."""
    names = sorted(records.columns.keys() - records.several.keys())
    fields = [_field(records, name) for name in names]
    parts.append(b"[%d:" % len(records))
    for first in range(0, len(records), _AT_ONCE):
        some = slice(first, min(first + _AT_ONCE, len(records)))
        written: list[Ragged | bytes] = [b"{", *(field(some) for field in fields), b"}"]
        parts.append(Ragged.joined(some.stop - first, written).content.tobytes())


def _field(records: RecordColumns[Any], field: str) -> Callable[[slice], Ragged]:
    """What is written of a field for some records: nothing for its default."""
    column, default, text = records.columns[field], records.default(field), _text(field)
    if isinstance(column, Coded) and isinstance(holdings := column.values, Holdings):
        return _held(holdings, column.codes, text)
    if isinstance(column, Coded):
        each = [b"" if value == default else text + _alone(value) for value in column.values]
        # The last stands for none.
        table = Ragged.of([*each, b"" if default is None else text + b"n"])
        return lambda some: table.take(column.codes[some] % len(table))
    if isinstance(column, list):
        return lambda some: _texts(column[some], text)
    # No value is the default where it is none.
    unwritten = records.without(field)
    if default not in (None, ...):
        unwritten |= column == default
    return lambda some: _doubles(column[some], text).where(~unwritten[some])


def _held(holdings: Holdings, codes: IntArray, text: bytes) -> Callable[[slice], Ragged]:
    """Placements as their models would be written."""
    nodes, numbers = holdings.node.values, ("batch_size", "frequency_mhz", "power_limit_w")
    by_name = sorted(range(len(nodes)), key=nodes.__getitem__)
    rank = np.empty(len(nodes), dtype=np.int64)
    rank[by_name] = np.arange(len(nodes))
    names = Ragged.of([_text(nodes[code]) for code in by_name])

    def write(some: slice) -> Ragged:
        runs = codes[some] != NONE
        held = holdings.take(codes[some][runs])
        given = {name: getattr(held, name) for name in numbers}
        fields = {
            name: _doubles(values, _text(name)).where(values > 0)  # 0 and nan are none
            for name, values in given.items()
        }
        fields["gpus"] = _doubles(held.gpus, _text("gpus"))
        fields["nodes"] = _nodes(held, rank, names)
        fields |= {name: _named(getattr(held, name), name) for name in ("pool", "set")}
        written = (fields[name] for name in sorted(fields))
        return Ragged.joined(len(held), [text + b"{", *written, b"}"]).merged(runs.astype(np.int64))

    return write


def _nodes(held: Holdings, rank: IntArray, names: Ragged) -> Ragged:
    """Nodes with the numbers of their GPUs, ordered by name."""
    holder, node = np.repeat(np.arange(len(held)), np.diff(held.start)), rank[held.node.codes]
    order = np.lexsort((node, holder))
    holder, node = holder[order], node[order]
    first = np.flatnonzero(np.diff(holder, prepend=-1) | np.diff(node, prepend=-1))
    counts = np.diff(first, append=len(order))
    gpus = Ragged.doubles(held.gpu[order]).merged(counts)
    nodes = Ragged.joined(len(first), [names.take(node[first]), b"D", _digits(counts), b":", gpus])
    of_each = nodes.merged(np.bincount(holder[first], minlength=len(held)))
    return Ragged.joined(len(held), [_text("nodes") + b"{", of_each, b"}"]).where(np.diff(held.start) > 0)


def _named(column: Coded, field: str) -> Ragged:
    table = Ragged.of([*(_text(field) + _text(value) for value in column.values), b""])
    return table.take(column.codes % len(table))


def _texts(texts: list[str], text: bytes) -> Ragged:
    content = Ragged.texts(texts)
    return Ragged.joined(len(texts), [text + b"s", _digits(content.size), b":", content])


def _doubles(values: FloatArray | IntArray | BoolArray, text: bytes) -> Ragged:
    return Ragged.joined(len(values), [text + b"d", Ragged.doubles(values)])


def _digits(numbers: IntArray) -> Ragged:
    """Whole numbers in decimal digits."""
    values, place = np.unique(numbers, return_inverse=True)
    return Ragged.of([b"%d" % value for value in values.tolist()]).take(place)


def _alone(value: Any) -> bytes:
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _numbers(values: list[Any] | tuple[Any, ...]) -> bytes:
    return b"D%d:" % len(values) + struct.pack(f"<{len(values)}d", *values)


def _text(text: str) -> bytes:
    content = text.encode()
    return b"s%d:%b" % (len(content), content)
