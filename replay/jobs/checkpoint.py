"""Replays on disk, to go on with after an interruption.

A checkpoint is a line of JSON, which says what it is of, a line of JSON with the state of the replay, and the
bytes of its arrays. The state is what attributes hold that may change: numbers, texts, arrays, and lists,
tuples and dictionaries of them. It is put onto a replay that has been made anew, which knows all classes: the
file names none, and nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from wattsched.inputs import open_file
from wattsched.instances.io import write_atomically
from wattsched.replay.jobs.accounts import Flows
from wattsched.replay.jobs.pools import Block
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace
from wattsched.version import __version__

FAMILY = "wattsched-checkpoint/"
FORMAT = f"{FAMILY}7"
AGAIN = "delete it to begin that replay again"

KINDS = {"b": np.dtype(np.bool_), "i": np.dtype(np.int64), "f": np.dtype(np.float64)}
PLAIN = "booleans, numbers, texts, arrays of 64 bits, and lists, tuples and dictionaries of them"
RECORDS: dict[str, Any] = {"block": Block, "flows": Flows}
"""Tuples with names, which a state may hold."""


class Checkpoints:
    """Writes a replay that is under way to a file, again and again.

    Parameters
    ----------
    every_s : float
        Wall-clock seconds between two of them.
    """

    def __init__(self, path: Path, every_s: float) -> None:
        self._path, self._every_s = path, every_s
        self._due = time.monotonic() + every_s

    def keep(self, replay: Replay) -> None:
        """Write it, if that is due.

        Raises
        ------
        OSError
            When the file cannot be written.
        """
        if time.monotonic() >= self._due:
            save(self._path, replay)
            self._due = time.monotonic() + self._every_s


def save(path: Path, replay: Replay) -> None:
    """Write a replay, under way or complete, in one step; there is never half a file of this name.

    Raises
    ------
    OSError
        When the file cannot be written.
    ValueError
        When the policy holds what is neither made anew nor plain.
    """
    state = _State()
    try:
        told = json.dumps(state.of(replay, "replay"), allow_nan=False).encode()
    except _OddError as error:
        raise ValueError(f"policy '{replay.name}': {error}") from None
    content = told + b"\n" + b"".join(state.arrays)
    head = {**_head(replay.trace), "sha256": hashlib.sha256(content).hexdigest()}
    write_atomically(path, json.dumps(head).encode() + b"\n" + content)


def load(path: Path, replay: Replay) -> None:
    """Bring a replay that has been made anew to where the file has it.

    Raises
    ------
    ValueError
        When the file is none of ours, damaged, or of another version, trace or policy.
    OSError
        When it cannot be read.
    """
    with open_file(path) as file:
        line, _, content = file.read().partition(b"\n")
    head = _json(line)
    kind = head.get("format") if isinstance(head, dict) else None
    if not isinstance(kind, str) or not kind.startswith(FAMILY):
        raise ValueError(f"{path}: is not a checkpoint of the format '{FORMAT}'")
    if kind != FORMAT:
        raise ValueError(f"{path}: is of the format {kind[:40]!r}, which is not read any more; {AGAIN}")
    for name, here in _head(replay.trace).items():
        if head.get(name) != here:
            raise ValueError(f"{path}: is of another {name}: {str(head.get(name))[:80]!r}, not '{here}'")
    if head.get("sha256") != hashlib.sha256(content).hexdigest():
        raise ValueError(f"{path}: is damaged; {AGAIN}")
    told, _, arrays = content.partition(b"\n")
    try:
        _Restored(arrays).onto(replay, _json(told), "replay")
    except _MisfitError as error:
        raise ValueError(f"{path}: is not of this replay: {error}; {AGAIN}") from None


def _head(trace: Trace) -> dict[str, str]:
    """Return the format, version and digest of the trace that a checkpoint must have."""
    digest, rows = hashlib.sha256("\n".join(trace.names).encode()), trace.configurations
    for values in (trace.arrival_s, trace.work, trace.request, rows.rate, rows.power_w):
        digest.update(values.tobytes())
    return {"format": FORMAT, "version": __version__, "trace": digest.hexdigest()}


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_made_anew(value: Any) -> bool:
    """True if a value never changes: a function, a class, a frozen dataclass."""
    parameters = getattr(value, "__dataclass_params__", None)
    return callable(value) or (parameters is not None and bool(parameters.frozen))


class _OddError(Exception):
    """A value that no checkpoint can hold."""

    def __init__(self, name: str, found: str) -> None:
        super().__init__(f"{name} is {found}; a checkpoint holds {PLAIN}")


class _State:
    """Plain values of what a replay holds, and the bytes of its arrays, one after the other."""

    def __init__(self) -> None:
        self.arrays: list[bytes] = []
        self._length = 0
        self._seen: set[int] = set()

    def of(self, value: Any, name: str) -> Any:
        """Value as JSON; what is made anew is an empty object."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.ndarray):
            if value.dtype not in KINDS.values():
                raise _OddError(name, f"an array of {value.dtype}")
            return {"array": self._array(value)}
        if isinstance(value, random.Random):
            _, numbers, normal = value.getstate()
            return {"random": [self._items(numbers, name), normal]}
        for record, kind in RECORDS.items():
            if isinstance(value, kind):
                return {record: self._items(value, name)}
        if isinstance(value, list | tuple):
            return {type(value).__name__: self._items(value, name)}
        if isinstance(value, dict):
            if not all(isinstance(key, int | str | np.integer) for key in value):
                raise _OddError(name, "a dictionary with keys that are neither whole numbers nor texts")
            return {"dict": [self._items(value, name), self._items(value.values(), name)]}
        if _is_made_anew(value) or id(value) in self._seen:
            return {}
        if not hasattr(value, "__dict__"):
            raise _OddError(name, f"a {type(value).__name__}")
        self._seen.add(id(value))
        return {"object": {key: self.of(one, f"{name}.{key}") for key, one in vars(value).items()}}

    def _items(self, values: Iterable[Any], name: str) -> Any:
        """List; numbers of one kind as an array, which is shorter."""
        items = list(values)
        if {type(item) for item in items} in ({float}, {int}, {bool}):
            array = np.array(items)
            if array.dtype in KINDS.values():
                return {"array": self._array(array)}
        return [self.of(item, f"{name}[{i}]") for i, item in enumerate(items)]

    def _array(self, array: np.ndarray[Any, Any]) -> list[Any]:
        self.arrays.append(array.tobytes())
        self._length += array.nbytes
        return [array.dtype.kind, list(array.shape), self._length - array.nbytes]


class _MisfitError(Exception):
    """A state that is not of the replay that it is put onto."""


class _Restored:
    """Puts a state onto what has been made anew."""

    def __init__(self, arrays: bytes) -> None:
        self._arrays = arrays

    def onto(self, fresh: Any, told: Any, name: str) -> Any:
        """Value of an attribute; `fresh` is that of the beginning, None where any plain value may follow.

        Raises
        ------
        _MisfitError
            When the two differ in kind, or in the shape of an array that is not empty at the beginning.
        """
        if told == {}:
            return fresh
        if isinstance(told, dict):
            _require(len(told) == 1, name)
            ((kind, content),) = told.items()
            if kind == "object":
                return self._object(fresh, content, name)
            if kind == "random":
                return self._random(fresh, content, name)
            told = self._plain(fresh, kind, content, name)
        _require(not isinstance(told, list) or isinstance(fresh, list | None), name)
        number = isinstance(told, int | float) and isinstance(fresh, int | float)
        _require(told is None or fresh is None or number or type(told) is type(fresh), name)
        return told

    def _plain(self, fresh: Any, kind: str, content: Any, name: str) -> Any:
        """Value of a kind that is written as an object of JSON."""
        if kind == "float":
            _require(content in ("inf", "-inf", "nan"), name)
            return float(content)
        if kind == "array":
            array = self._array(content, name)
            if isinstance(fresh, np.ndarray):
                same = array.shape == fresh.shape or (array.ndim == fresh.ndim and not fresh.size)
                _require(same and array.dtype == fresh.dtype, name)
            return array
        if kind == "dict":
            _require(isinstance(content, list) and len(content) == 2, name)
            keys, values = (self._items(None, part, name) for part in content)
            _require(len(keys) == len(values) and all(isinstance(key, int | str) for key in keys), name)
            return dict(zip(keys, values, strict=True))
        items = self._items(fresh, content, name)
        if kind in RECORDS:
            _require(len(items) == len(RECORDS[kind]._fields), name)
            return RECORDS[kind](*items)
        _require(kind in ("list", "tuple"), name)
        return items if kind == "list" else tuple(items)

    def _items(self, fresh: Any, content: Any, name: str) -> list[Any]:
        """Items of a list; those of objects are put onto the ones made anew."""
        if isinstance(content, dict):
            _require(set(content) == {"array"}, name)
            array = self._array(content["array"], name)
            _require(array.ndim == 1, name)
            return list(array.tolist())
        _require(isinstance(content, list), name)
        anew = list(fresh) if isinstance(fresh, list | tuple) else []
        anew = anew if len(anew) == len(content) else [None] * len(content)
        return [self.onto(*pair, f"{name}[{i}]") for i, pair in enumerate(zip(anew, content, strict=True))]

    def _array(self, content: Any, name: str) -> Any:
        """Array of kind, shape and place; it is never larger than the file."""
        _require(isinstance(content, list) and len(content) == 3, name)
        kind, shape, begin = content
        _require(isinstance(kind, str) and kind in KINDS and isinstance(shape, list), name)
        _require(all(type(size) is int and 0 <= size <= len(self._arrays) for size in [*shape, begin]), name)
        dtype, size = KINDS[kind], math.prod(shape)
        _require(len(shape) <= 2 and begin + size * dtype.itemsize <= len(self._arrays), name)
        values = np.frombuffer(self._arrays, np.uint8, size * dtype.itemsize, begin)
        _require(kind != "b" or not values.size or values.max() <= 1, name)
        return values.view(dtype).reshape(shape).copy()

    def _object(self, fresh: Any, content: Any, name: str) -> Any:
        _require(hasattr(fresh, "__dict__") and not _is_made_anew(fresh), name)
        _require(isinstance(content, dict) and set(content) == set(vars(fresh)), name)
        for key, value in content.items():
            vars(fresh)[key] = self.onto(vars(fresh)[key], value, f"{name}.{key}")
        return fresh

    def _random(self, fresh: Any, content: Any, name: str) -> Any:
        _require(isinstance(fresh, random.Random), name)
        _require(isinstance(content, list) and len(content) == 2, name)
        version, *_ = fresh.getstate()
        try:
            fresh.setstate((version, tuple(self._items(None, content[0], name)), content[1]))
        except (TypeError, ValueError, OverflowError):
            _require(False, name)
        return fresh


def _require(holds: bool, name: str) -> None:
    if not holds:
        raise _MisfitError(f"its '{name}' does not fit")
