"""Documents as a journal keeps them: compressed JSON, and of long ones each text once, under its digest."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pydantic_core
from pydantic import BaseModel

from wattsched.instances.errors import InputError, shown

_SHORT = 8_192
"""Bytes of JSON up to which a document is kept as it is; of longer ones every text is kept once."""
_TEXT = re.compile(rb"[}\]],")
_LEAST, _MOST, _DIGEST = 1_024, 65_536, 16
"""Bytes of a text of a longer document, about, and of its digest."""
_WHOLE, IN_TEXTS = b"\x01", b"\x02"
"""First byte of a document that is to be kept, and of one that is kept as digests; others are compressed."""


def packed(document: Any, name: str = "", *, finite: bool = False) -> bytes:
    """A document as JSON, a short one compressed; numbers and arrays of numpy are as Python's.

    Parameters
    ----------
    name : str
        Of the document, in what is wrong with it.
    finite : bool
        Refuse NaN and infinities, which stand for nothing here.
    """
    if finite and (faults := list(_strange(document, name, finite=True))):
        raise InputError(faults)
    try:
        text = pydantic_core.to_json(document, fallback=_as_python)
        return zlib.compress(text, level=1) if len(text) <= _SHORT else _WHOLE + text
    except (ValueError, RecursionError) as error:
        faults = list(_strange(document, name))
        raise InputError(faults or [f"cannot be written as JSON: {error}"]) from None


def _as_python(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"is a {type(value).__name__}")


def _strange(value: Any, path: str, *, finite: bool = False, depth: int = 50) -> Iterator[str]:
    """Yield the parts of a value that JSON cannot express, with their places, as deep as documents are."""
    entries: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        entries = [(f"{path}.{key}" if path else str(key), entry) for key, entry in value.items()]
        entries += [(path, key) for key in value]
    elif isinstance(value, list | tuple | np.ndarray):
        entries = [(f"{path}[{place}]", entry) for place, entry in enumerate(value)]
    elif isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            yield f"{path}: holds a character that is not valid Unicode"
    elif isinstance(value, float):
        if finite and not math.isfinite(value):
            yield f"{path}: must be a finite number, got {shown(value)}"
    elif value is not None and not isinstance(value, int | np.generic | BaseModel):
        yield f"{path}: cannot be written as JSON, got {value!r:.80}"
    for place, entry in entries if depth else []:
        yield from _strange(entry, place, finite=finite, depth=depth - 1)


def split(content: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Split a packed document into what stands for it in a file, and the texts it needs there, by digest."""
    if content[:1] != _WHOLE:
        return content, {}
    texts = [(blake2b(text, digest_size=_DIGEST).digest(), text) for text in _texts_of(content[1:])]
    return IN_TEXTS + b"".join(digest for digest, _ in texts), dict(texts)


def _texts_of(document: bytes) -> Iterator[bytes]:
    """Cut a document where its content says so, so that stretches that are the same give the same pieces."""
    begin = 0
    for found in _TEXT.finditer(document):
        size = (end := found.end()) - begin
        if size > _MOST or (size > _LEAST and zlib.crc32(document[end - 32 : end]) % 4 == 0):
            yield document[begin:end]
            begin = end
    yield document[begin:]


def digests_in(content: bytes) -> list[bytes]:
    """Digests of the texts of a document that is kept so."""
    ends = range(1, len(content), _DIGEST) if content[:1] == IN_TEXTS else ()
    return [content[place : place + _DIGEST] for place in ends]


def unpacked(content: bytes, texts: Sequence[bytes] = ()) -> Any:
    """The document again, of what `packed` made, or of what stands for it and its compressed texts."""
    if content[:1] == _WHOLE:
        return json.loads(content[1:])
    parts = texts if content[:1] == IN_TEXTS else [content]
    return json.loads(b"".join(map(zlib.decompress, parts)))
