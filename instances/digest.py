"""What an instance is known by: a digest of its content, however its file is written."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from itertools import chain, repeat
from typing import Any

import numpy as np
from pydantic import BaseModel

from wattsched.topology.columns import NONE, Coded, RecordColumns

_DOUBLE = struct.Struct("<d")
_AT_ONCE = 20_000


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
    return sha256(b"".join(parts)).hexdigest()


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, str):
        parts.append(_text(value))
    elif isinstance(value, float | int):
        parts.append(b"d" + _DOUBLE.pack(value))
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
    parts.append(b"[%d:" % len(records))
    # A part at a time: small pieces take more memory than what they hold.
    for begin in range(0, len(records), _AT_ONCE):
        some = records.take(np.arange(begin, min(begin + _AT_ONCE, len(records))))
        columns = [_written(some, name, _text(name)) for name in names]
        pieces = zip(repeat(b"{"), *columns, repeat(b"}"), strict=False)
        parts.append(b"".join(chain.from_iterable(pieces)))


def _written(records: RecordColumns[Any], field: str, text: bytes) -> Iterable[bytes]:
    """What is written of a field for each record: nothing for its default."""
    column, default = records.columns[field], records.default(field)
    if isinstance(column, Coded):
        values = {code: column.values[code] for code in set(column.codes.tolist()) - {NONE}}
        written = {code: b"" if v == default else text + _alone(v) for code, v in values.items()}
        written[NONE] = b"" if default is None else text + b"n"
        return map(written.__getitem__, column.codes.tolist())
    if isinstance(column, list):
        encoded = map(str.encode, column)
        return [b"%bs%d:%b" % (text, len(content), content) for content in encoded]
    packed, start = column.astype("<f8").tobytes(), text + b"d"
    each = [start + packed[place : place + 8] for place in range(0, len(packed), 8)]
    # No value is the default where it is none.
    unwritten = records.without(field)
    if default not in (None, ...):
        unwritten |= column == default
    for place in np.flatnonzero(unwritten).tolist():
        each[place] = b""
    return each


def _alone(value: Any) -> bytes:
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _numbers(values: list[Any] | tuple[Any, ...]) -> bytes:
    return b"D%d:" % len(values) + struct.pack(f"<{len(values)}d", *values)


def _text(text: str) -> bytes:
    content = text.encode()
    return b"s%d:%b" % (len(content), content)
