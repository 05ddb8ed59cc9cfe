"""The journal: every change and every decision of sessions in one file, which outlives the process."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from threading import Lock
from typing import Any

from wattsched.instances.errors import InputError, require, require_range
from wattsched.serve.changes import session_of
from wattsched.serve.database import QUOTA_MB, Database, JournalError
from wattsched.serve.recorded import RecordedSession
from wattsched.serve.rounds import Round, RoundLine, Rounds
from wattsched.serve.texts import packed

KEPT_ROUNDS = 1000
"""Rounds of each session that a journal keeps by default, the newest ones."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of sessions: they are parts of addresses and of file names."""


class Journal:
    """Sessions whose changes and decisions are on the disk before they are acknowledged.

    Whatever the process ends by, kill -9 included, the sessions are opened again as they were after the last
    acknowledged change. One process writes a file; others may read it meanwhile. Safe from several threads.

    Parameters
    ----------
    path : str or Path
        The file; it is made where it is not there. ``PATH-wal``, ``PATH-shm`` and ``PATH-lock`` belong to it.
    kept_rounds : int
        So many rounds of each session are kept, and those that what runs now comes from.
    read_only : bool
        Look at a journal that another process may be writing.
    quota_mb : float
        Megabytes that the file may have. From four fifths on rounds are given up, the oldest first; beyond it
        nothing can be written, as on a full disk.

    Raises
    ------
    InputError
        For a file that is no journal, and one that another process writes.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        kept_rounds: int = KEPT_ROUNDS,
        read_only: bool = False,
        quota_mb: float = QUOTA_MB,
    ) -> None:
        require("path", path, (str, Path), "a path")
        require("kept_rounds", kept_rounds, (Integral,), "a whole number")
        require_range(kept_rounds >= 1, "kept_rounds", "at least 1", kept_rounds)
        require("quota_mb", quota_mb, (Real,), "a number")
        require_range(quota_mb > 0, "quota_mb", "positive", quota_mb)
        self._file = Database(path, read_only=read_only, quota_mb=quota_mb)
        self.quota_mb = quota_mb
        self._kept_rounds = kept_rounds
        self._opening, self._opened = Lock(), dict[str, RecordedSession]()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sessions(self) -> list[str]:
        """Names of the sessions, in the order in which they were made."""
        names = [name for (name,) in self._file.rows("SELECT name FROM sessions ORDER BY id")]
        if not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
            raise JournalError("the journal is damaged: a session has no name")
        return names

    def create(self, name: str, document: Mapping[str, Any]) -> RecordedSession:
        """Make a session; an `InputError` has every fault, or that the name is in use.

        Parameters
        ----------
        name : str
            Letters, digits, and ``._-`` after the first character; at most 100.
        document : mapping
            Arguments of `wattsched.Session` as JSON: ``cluster``, ``objective``, ``capacity``, ...
        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            text = "must be letters, digits, '.', '_' and '-', at most 100, and begin with a letter or digit"
            raise InputError([f"name: {text}, got {name!r:.120}"])
        session_of(document)
        with self._file.transaction() as file:
            if file.execute("SELECT 1 FROM sessions WHERE name = ?", (name,)).fetchone():
                raise InputError([f"name: there is a session '{name}'"])
            row = (name, time.time(), self._file.kept(packed(document)))
            file.execute("INSERT INTO sessions (name, made_s, document) VALUES (?, ?, ?)", row)
        return self.open(name)

    def open(self, name: str) -> RecordedSession:
        """A session as it was after the last acknowledged change; it is opened once, whoever asks."""
        number, document = self._known(name)
        with self._opening:
            if name not in self._opened:
                self._opened[name] = RecordedSession(name, number, document, self._file, self._kept_rounds)
            return self._opened[name]

    def opened(self, name: str) -> RecordedSession | None:
        """A session that is open already, without a look at the file."""
        return self._opened.get(name)

    def cancel(self) -> None:
        """End the decisions that are being made with what they have; from another thread."""
        for session in list(self._opened.values()):
            session.cancel()

    def document(self, name: str) -> dict[str, Any]:
        """Arguments that a session was made with."""
        _, document = self._known(name)
        return document

    def rounds(self, name: str) -> list[RoundLine]:
        """The rounds of a session that are kept, the oldest first, each in a line."""
        number, _ = self._known(name)
        return Rounds(self._file, number).lines()

    def round(self, name: str, number: int) -> Round:
        """A round of a session, as `Rounds.round`."""
        session, _ = self._known(name)
        return Rounds(self._file, session).round(number)

    def drop(self, name: str) -> None:
        """Forget a session with all that it decided."""
        number, _ = self._known(name)
        with self._opening, self._file.transaction() as file:
            self._opened.pop(name, None)
            file.execute("DELETE FROM sessions WHERE id = ?", (number,))
            for table in ("events", "states", "rounds", "actions"):
                file.execute(f"DELETE FROM {table} WHERE session = ?", (number,))

    @property
    def fault(self) -> str:
        """Reason why the newest change could not be written; empty where it was."""
        return self._file.fault

    def used_bytes(self) -> int:
        """Bytes of the file that hold something."""
        return self._file.used_bytes()

    def retry(self) -> None:
        """Look whether the file can be written again; where it still cannot, it is a `JournalError`."""
        self._file.sweep()

    def close(self) -> None:
        """Write everything into the one file; the sessions take no change any more."""
        self._file.close()

    def _known(self, name: str) -> tuple[int, dict[str, Any]]:
        """Number of a session in the file, and its arguments; an `InputError` where there is none."""
        found = self._file.rows("SELECT id, document FROM sessions WHERE name = ?", name)
        if not found:
            raise InputError([f"there is no session {name!r:.120}"], self._file.path)
        ((number, document),) = found
        return number, self._file.document(document)
