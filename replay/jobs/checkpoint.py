"""Replays on disk, to go on with after an interruption, and outcomes.

A checkpoint is a line of JSON, which says what it is of, and a pickle of all that a replay holds.

Trust a checkpoint as you trust code: to unpickle a file made for the purpose can run anything. A file that
says that it is of another program version or trace, or whose checksum is wrong, is refused before that.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from pathlib import Path
from typing import TypeVar

from wattsched.instances.io import write_atomically
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.simulation import Replay
from wattsched.replay.jobs.trace import Trace
from wattsched.version import __version__

FORMAT = "wattsched-checkpoint/4"
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
    content = pickle.dumps(what, protocol=5)
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
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"{path}: is not a checkpoint of the format '{FORMAT}'")
    for name, here in _head(of.trace).items():
        if head.get(name) != here:
            raise ValueError(f"{path}: is of another {name}: {head.get(name)}, not {here}")
    if head.get("sha256") != hashlib.sha256(content).hexdigest():
        raise ValueError(f"{path}: is damaged; delete it to begin that replay again")
    try:
        found = pickle.loads(content)
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError) as error:
        raise ValueError(f"{path}: was written by another program: {error}") from None
    if not isinstance(found, kind):
        raise ValueError(f"{path}: holds no {kind.__name__}")
    return found


def _head(trace: Trace) -> dict[str, str]:
    """What a checkpoint must be of."""
    digest, rows = hashlib.sha256("\n".join(trace.names).encode()), trace.configurations
    for values in (trace.arrival_s, trace.work, trace.request, rows.rate, rows.power_w):
        digest.update(values.tobytes())
    return {"format": FORMAT, "version": __version__, "trace": digest.hexdigest()}
