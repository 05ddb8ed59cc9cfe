"""Replays on disk, to go on with after an interruption.

A checkpoint is a line of JSON, which says what it is of, and a line of JSON with the state of the replay. The
state is what attributes hold that may change: numbers, texts, arrays, and lists, tuples and dictionaries of
them. It is put onto a replay that has been made anew, which knows all classes: the file names none, and
nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from wattsched.environment.version import __version__
from wattsched.instances.io import write_atomically
from wattsched.reading.inputs import open_file
from wattsched.replay.jobs.accounts import Flows
from wattsched.replay.jobs.pools import Block
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace

FAMILY = "wattsched-checkpoint/"
FORMAT = f"{FAMILY}12"
AGAIN = "delete it to begin that replay again"

KINDS = {"b": np.dtype(np.bool_), "i": np.dtype(np.int64), "f": np.dtype(np.float64)}
PLAIN = "booleans, numbers, texts, arrays of 64 bits, and lists, tuples and dictionaries of them"
SEQUENCES: dict[str, Any] = {"block": Block, "flows": Flows, "list": list, "tuple": tuple}
"""Tuples with names, which a state may hold, before those without, and lists."""


def save(path: Path, replay: Replay) -> None:
    """Write a replay, under way or complete, in one step; a ValueError if a policy's state is not plain."""
    try:
        content = json.dumps(_plain(replay, "replay", set()), allow_nan=False).encode()
    except _OddError as error:
        raise ValueError(f"policy '{replay.name}': {error}") from None
    head = {**_head(replay.trace), "sha256": hashlib.sha256(content).hexdigest()}
    write_atomically(path, json.dumps(head).encode() + b"\n" + content)


def load(path: Path, replay: Replay) -> None:
    """Bring a replay that was made anew to where the file has it; a ValueError if it is of another."""
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
    try:
        _restored(replay, _json(content), "replay")
    except _MisfitError as error:
        raise ValueError(f"{path}: is not of this replay: {error}; {AGAIN}") from None


def _head(trace: Trace) -> dict[str, str]:
    """Return the format, version and digest of the trace that a checkpoint must have."""
    digest, rows = hashlib.sha256("\n".join(trace.names).encode()), trace.configurations
    stated = np.array([(job.time_limit_s or 0.0, job.duration_s) for job in (*trace.history, *trace.records)])
    for values in (trace.arrival_s, trace.work, trace.request, rows.rate, rows.power_w, stated):
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


def _plain(value: Any, name: str, seen: set[int]) -> Any:
    """Value as JSON; what is made anew, and an object that was `seen` before, is an empty object."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.ndarray):
        if value.dtype not in KINDS.values():
            raise _OddError(name, f"an array of {value.dtype}")
        return _array(value)
    if isinstance(value, random.Random):
        _, numbers, normal = value.getstate()
        return {"random": [_items(numbers, name, seen), normal]}
    for kind, record in SEQUENCES.items():
        if isinstance(value, record):
            return {kind: _items(value, name, seen)}
    if isinstance(value, dict):
        if not all(isinstance(key, int | str | np.integer) for key in value):
            raise _OddError(name, "a dictionary with keys that are neither whole numbers nor texts")
        return {"dict": [_items(value, name, seen), _items(value.values(), name, seen)]}
    if _is_made_anew(value) or id(value) in seen:
        return {}
    if not hasattr(value, "__dict__"):
        raise _OddError(name, f"a {type(value).__name__}")
    seen.add(id(value))
    return {"object": {key: _plain(one, f"{name}.{key}", seen) for key, one in vars(value).items()}}


def _items(values: Iterable[Any], name: str, seen: set[int]) -> Any:
    """List; numbers of one kind as an array, which is shorter."""
    items = list(values)
    if {type(item) for item in items} in ({float}, {int}, {bool}):
        array = np.array(items)
        if array.dtype in KINDS.values():
            return _array(array)
    return [_plain(item, f"{name}[{i}]", seen) for i, item in enumerate(items)]


def _array(array: np.ndarray[Any, Any]) -> dict[str, list[Any]]:
    return {"array": [array.dtype.kind, list(array.shape), b64encode(array.tobytes()).decode()]}


class _MisfitError(Exception):
    """A state that is not of the replay that it is put onto."""


def _restored(fresh: Any, told: Any, name: str) -> Any:
    """Value of an attribute that is `fresh` at the beginning, None where any plain value may follow.

    A _MisfitError when the two differ in kind, or in the shape of an array that is not empty then.
    """
    try:
        value = _value(fresh, told, name)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise _MisfitError(f"its '{name}' does not fit") from None
    number = isinstance(value, int | float) and isinstance(fresh, int | float)
    if not (value is None or fresh is None or number or type(value) is type(fresh)):
        raise _MisfitError(f"its '{name}' does not fit")
    return value


def _value(fresh: Any, told: Any, name: str) -> Any:
    """Value that is told, or `fresh` with what is told of it; any error means that it is none."""
    if not isinstance(told, dict):
        return told
    if not told:
        return fresh
    ((kind, content),) = told.items()
    match kind:
        case "object":
            held = vars(fresh)
            if _is_made_anew(fresh) or set(content) != set(held):
                raise ValueError
            held.update({key: _restored(held[key], one, f"{name}.{key}") for key, one in content.items()})
            return fresh
        case "random":
            numbers, normal = content
            fresh.setstate((fresh.getstate()[0], tuple(_values(None, numbers, name)), normal))
            return fresh
        case "float":
            return float(content)
        case "array":
            array = _array_of(content)
            if isinstance(fresh, np.ndarray):
                alike = array.shape == fresh.shape or (array.ndim == fresh.ndim and not fresh.size)
                if not alike or array.dtype != fresh.dtype:
                    raise ValueError
            return array
        case "dict":
            keys, values = (_values(None, part, name) for part in content)
            return dict(zip(keys, values, strict=True))
    record, items = SEQUENCES[kind], _values(fresh, content, name)
    return record(*items) if hasattr(record, "_fields") else record(items)


def _values(fresh: Any, content: Any, name: str) -> list[Any]:
    """Items of a list; those of objects are put onto the ones made anew."""
    if isinstance(content, dict):
        return list(_array_of(content["array"]).tolist())
    if not isinstance(content, list):
        raise TypeError
    anew = list(fresh) if isinstance(fresh, list | tuple) else []
    anew = anew if len(anew) == len(content) else [None] * len(content)
    return [_restored(*pair, f"{name}[{i}]") for i, pair in enumerate(zip(anew, content, strict=True))]


def _array_of(content: Any) -> np.ndarray[Any, Any]:
    """Array of a kind and a shape; it is never larger than the file."""
    kind, shape, text = content
    array = np.frombuffer(b64decode(text, validate=True), KINDS[kind]).reshape(shape).copy()
    if list(array.shape) != shape or (kind == "b" and array.view(np.uint8).max(initial=0) > 1):
        raise ValueError
    return array
