"""Replays on disk, to go on with after an interruption, and outcomes.

A checkpoint is a line of JSON, which says what it is of, and a pickle. The trace is not in it: it is taken
from a replay that is made anew.

Trust a checkpoint as you trust code: to unpickle a file made for the purpose can run anything. A file that
says that it is of another program version or trace, or whose checksum is wrong, is refused before that.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from wattsched.instances.io import write_atomically
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace
from wattsched.version import __version__

FORMAT = "wattsched-checkpoint/3"
T = TypeVar("T", Replay, Outcome)


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
            save(self._path, replay, replay)
            self._due = time.monotonic() + self._every_s


def save(path: Path, what: Replay | Outcome, of: Replay) -> None:
    """Write a replay or its outcome in one step; there is never half a file of this name.

    Raises
    ------
    OSError
        When the file cannot be written.
    """
    body = io.BytesIO()
    _Pickler(body, _given(of.trace)).dump(what)
    content = body.getvalue()
    head = {**_head(of.trace), "sha256": hashlib.sha256(content).hexdigest()}
    write_atomically(path, json.dumps(head).encode() + b"\n" + content)


def load(path: Path, kind: type[T], of: Replay) -> T:
    """Read a replay or an outcome.

    Parameters
    ----------
    kind : type
        Replay or Outcome.
    of : Replay
        The same replay, made anew.

    Raises
    ------
    ValueError
        When the file is none of ours, damaged, or of another version or trace.
    OSError
        When it cannot be read.
    """
    line, _, content = path.read_bytes().partition(b"\n")
    head = _parsed(line)
    if head is None or head.get("format") != FORMAT:
        raise ValueError(f"{path}: is not a checkpoint of the format '{FORMAT}'")
    for name, here in _head(of.trace).items():
        if head.get(name) != here:
            raise ValueError(f"{path}: is of another {name}: {head.get(name)}, not {here}")
    if head.get("sha256") != hashlib.sha256(content).hexdigest():
        raise ValueError(f"{path}: is damaged; delete it to begin that replay again")
    try:
        found = _Unpickler(io.BytesIO(content), _given(of.trace)).load()
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError) as error:
        raise ValueError(f"{path}: was written by another program: {error}") from None
    if not isinstance(found, kind):
        raise ValueError(f"{path}: holds no {kind.__name__}")
    return found


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return head if isinstance(head, dict) else None


def _head(trace: Trace) -> dict[str, str]:
    """What a checkpoint must be of."""
    digest, rows = hashlib.sha256("\n".join(trace.names).encode()), trace.configurations
    for values in (trace.arrival_s, trace.work, trace.request, rows.rate, rows.power_w):
        digest.update(values.tobytes())
    return {"format": FORMAT, "version": __version__, "trace": digest.hexdigest()}


def _given(trace: Trace) -> dict[str, object]:
    """The trace and its parts, which are made anew, by name."""
    given: dict[str, object] = {"trace": trace}
    given |= {f"trace.{field.name}": getattr(trace, field.name) for field in fields(trace)}
    return given | {f"trace.pools.{number}": pool for number, pool in enumerate(trace.pools)}


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, given: dict[str, object]) -> None:
        super().__init__(file, protocol=5)
        self._names = {id(value): name for name, value in given.items()}

    def persistent_id(self, obj: Any) -> str | None:
        return self._names.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, given: dict[str, object]) -> None:
        super().__init__(file)
        self._given = given

    def persistent_load(self, pid: Any) -> object:
        if pid not in self._given:
            raise pickle.UnpicklingError(f"it refers to '{pid}', which the replay does not have")
        return self._given[pid]
