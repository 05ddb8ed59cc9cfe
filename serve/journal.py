"""The journal: what sessions were told and what they decided, in one SQLite file.

A change is written, and on the disk, before whoever asked for it is told that it holds: a process that is
killed at any moment goes on where it was. SQLite's write-ahead log keeps the file whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

from wattsched.instances.errors import InputError, require, require_range

FORMAT = "wattsched-journal/1"

_MAGIC = b"SQLite format 3\x00"
_TABLES = """
CREATE TABLE about (format TEXT NOT NULL);
CREATE TABLE session (name TEXT PRIMARY KEY, document BLOB NOT NULL);
CREATE TABLE change (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, at_s REAL NOT NULL, kind TEXT NOT NULL,
    content BLOB NOT NULL
);
CREATE TABLE round (
    session TEXT NOT NULL, number INTEGER NOT NULL, at_s REAL NOT NULL, applied_s REAL, summary TEXT NOT NULL,
    instance BLOB NOT NULL, result BLOB NOT NULL, PRIMARY KEY (session, number)
);
CREATE TABLE action (
    session TEXT NOT NULL, key TEXT NOT NULL, begun_s REAL NOT NULL, document BLOB NOT NULL, ended_s REAL,
    outcome BLOB, PRIMARY KEY (session, key)
);
"""


@dataclass(frozen=True)
class Round:
    """A decision that was made.

    Attributes
    ----------
    number : int
        From 1 on, in each session.
    at_s, applied_s : float
        When it was made, and when it became what runs, in seconds since 1970; None if it did not.
    summary : dict
        ``reason``, ``objective``, ``bound``, ``gap``, ``running``, ``waiting``, ``power_w``, ``restarts`` and
        ``seconds``.
    """

    number: int
    at_s: float
    applied_s: float | None
    summary: dict[str, Any]


@dataclass(frozen=True)
class Action:
    """What somebody began to do because of a decision, and how it ended; None while it has not.

    Attributes
    ----------
    key : str
    begun_s, ended_s : float
        In seconds since 1970.
    document, outcome : dict
    """

    key: str
    begun_s: float
    document: dict[str, Any]
    ended_s: float | None
    outcome: dict[str, Any] | None


class Journal:
    """A journal file.

    Parameters
    ----------
    path : str or Path
        Of the file, which is made if it is not there.
    keep : int
        Rounds that are kept of each session; older ones are forgotten.
    read_only : bool
        Only look at what is there, also while another process writes.

    Raises
    ------
    InputError
        If the file is no journal, cannot be read or written, or another process writes it.
    """

    def __init__(self, path: str | Path, *, keep: int = 1_000, read_only: bool = False) -> None:
        require("path", path, (str, os.PathLike), "a path")
        require("keep", keep, (int,), "a whole number")
        require_range(keep >= 1, "keep", "at least 1", keep)
        self.path, self.keep = Path(path), keep
        self._lock, self._guard = RLock(), None if read_only else _claimed(self.path)
        try:
            self._file = self._opened(read_only)
        except (sqlite3.Error, InputError) as error:
            self._release()
            faults = error.faults if isinstance(error, InputError) else [f"is no journal: {error}"]
            raise InputError(faults, str(path)) from None

    def _opened(self, read_only: bool) -> sqlite3.Connection:
        if read_only and not self.path.is_file():
            raise InputError(["there is no such file"])
        # SQLite would write over what is too short to be anything.
        if self.path.is_file() and (begin := self.path.open("rb").read(len(_MAGIC))) not in (b"", _MAGIC):
            raise InputError([f"is no journal: it begins with {begin!r}"])
        mode = "ro" if read_only else "rwc"
        uri = f"{self.path.resolve().as_uri()}?mode={mode}"
        file = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
        try:
            known = file.execute("SELECT name FROM sqlite_master").fetchall()
            if not known and not read_only:
                # A file that is killed while it is made is empty, or whole.
                file.execute("PRAGMA journal_mode = WAL")
                file.executescript(
                    f"BEGIN IMMEDIATE; {_TABLES} INSERT INTO about VALUES ('{FORMAT}'); COMMIT;"
                )
            found = file.execute("SELECT format FROM about").fetchone() if known or not read_only else None
            if found is None or found[0] != FORMAT:
                raise InputError([f"is no journal, which would say '{FORMAT}'"])
            # Whatever is acknowledged is on the disk, though the machine may lose its power.
            file.execute("PRAGMA synchronous = FULL")
        except BaseException:
            file.close()
            raise
        return file

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
            self._release()

    def _release(self) -> None:
        if self._guard is not None:
            os.close(self._guard)
            self._guard = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def writing(self) -> bool:
        """Whether a transaction of this thread goes on; only of use to whom has begun one."""
        return self._file.in_transaction

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of some changes, or none of them; they are on the disk when this ends.

        Raises
        ------
        InputError
            If they cannot be written.
        """
        with self._lock:
            try:
                self._file.execute("BEGIN IMMEDIATE")
                yield
                self._file.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    self._file.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise InputError([f"cannot be written: {error}"], str(self.path)) from None
                raise

    # -- sessions and changes -------------------------------------------------------------------------

    def sessions(self) -> list[str]:
        """Names of the sessions."""
        return [name for (name,) in self._read("SELECT name FROM session ORDER BY name")]

    def document(self, session: str) -> Any:
        """Document of a session, to which its later `changes` belong; None where there is no such session."""
        found = self._read("SELECT document FROM session WHERE name = ?", session)
        return _unpacked(found[0][0]) if found else None

    def store(self, session: str, document: Mapping[str, Any]) -> None:
        """Keep a document of a session, in place of that before and the changes since then."""
        self._write("DELETE FROM change WHERE session = ?", session)
        self._write("INSERT OR REPLACE INTO session VALUES (?, ?)", session, _packed(document))

    def changes(self, session: str) -> list[tuple[str, Any]]:
        """What was changed since the document: kinds and contents."""
        found = self._read("SELECT kind, content FROM change WHERE session = ? ORDER BY id", session)
        return [(kind, _unpacked(content)) for kind, content in found]

    def append(self, session: str, kind: str, content: Any) -> None:
        """Keep a change."""
        row = (session, time.time(), kind, _packed(content))
        self._write("INSERT INTO change (session, at_s, kind, content) VALUES (?, ?, ?, ?)", *row)

    def count_changes(self, session: str) -> int:
        """How many changes there are since the document."""
        return int(self._read("SELECT COUNT(*) FROM change WHERE session = ?", session)[0][0])

    def forget(self, session: str) -> None:
        """Remove a session with all that is known of it."""
        for table, column in (("session", "name"), ("change", "session"), ("round", "session")):
            self._write(f"DELETE FROM {table} WHERE {column} = ?", session)
        self._write("DELETE FROM action WHERE session = ?", session)

    # -- rounds ---------------------------------------------------------------------------------------

    def add_round(
        self, session: str, summary: Mapping[str, Any], instance: Mapping[str, Any], result: Mapping[str, Any]
    ) -> Round:
        """Keep a round under the next number, and forget the oldest one where there are too many."""
        last = self._read("SELECT MAX(number) FROM round WHERE session = ?", session)[0][0] or 0
        made = Round(last + 1, time.time(), None, dict(summary))
        row = (session, made.number, made.at_s, json.dumps(made.summary), _packed(instance), _packed(result))
        self._write("INSERT INTO round VALUES (?, ?, ?, NULL, ?, ?, ?)", *row)
        self._write("DELETE FROM round WHERE session = ? AND number <= ?", session, made.number - self.keep)
        return made

    def rounds(self, session: str) -> list[Round]:
        """Rounds that are kept, in their order."""
        order = "FROM round WHERE session = ? ORDER BY number"
        found = self._read(f"SELECT number, at_s, applied_s, summary {order}", session)
        return [Round(number, at, applied, json.loads(summary)) for number, at, applied, summary in found]

    def round(self, session: str, number: int) -> tuple[Any, Any] | None:
        """Documents of the instance and the result of a round; None where it is not kept."""
        asked = "SELECT instance, result FROM round WHERE session = ? AND number = ?"
        found = self._read(asked, session, number)
        return (_unpacked(found[0][0]), _unpacked(found[0][1])) if found else None

    def mark_applied(self, session: str, number: int) -> None:
        """Say of a round that its decision runs."""
        changed = "UPDATE round SET applied_s = ? WHERE session = ? AND number = ?"
        self._write(changed, time.time(), session, number)

    # -- actions --------------------------------------------------------------------------------------

    def begin_action(self, session: str, key: str, document: Mapping[str, Any]) -> bool:
        """Keep that something is being done; False where that was begun before."""
        row = (session, key, time.time(), _packed(document))
        return self._write("INSERT OR IGNORE INTO action VALUES (?, ?, ?, ?, NULL, NULL)", *row) == 1

    def end_action(self, session: str, key: str, outcome: Mapping[str, Any]) -> bool:
        """Keep how something ended; False where it was not begun, or has ended before."""
        ended = "ended_s = ?, outcome = ? WHERE session = ? AND key = ? AND ended_s IS NULL"
        return self._write(f"UPDATE action SET {ended}", time.time(), _packed(outcome), session, key) == 1

    def actions(self, session: str, *, unfinished: bool = False) -> list[Action]:
        """What was begun, in that order; of that, only what has not ended."""
        asked = "SELECT key, begun_s, document, ended_s, outcome FROM action WHERE session = ?"
        asked += f"{' AND ended_s IS NULL' if unfinished else ''} ORDER BY begun_s, rowid"
        return [
            Action(key, begun, _unpacked(document), ended, outcome and _unpacked(outcome))
            for key, begun, document, ended, outcome in self._read(asked, session)
        ]

    # -- inside ---------------------------------------------------------------------------------------

    def _read(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            try:
                return self._file.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise InputError([f"cannot be read: {error}"], str(self.path)) from None

    def _write(self, statement: str, *values: Any) -> int:
        """How many rows were written; on the disk when the transaction ends, if there is one."""
        with self._lock:
            if self._file.in_transaction:
                return self._file.execute(statement, values).rowcount
            with self.transaction():
                return self._file.execute(statement, values).rowcount


def _claimed(path: Path) -> int:
    """Lock of the one process that writes a journal, for as long as it lives."""
    try:
        guard = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError([f"cannot be written: {error.strerror or error}"], str(path)) from None
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(guard)
        raise InputError(["is written by another process"], str(path)) from None
    return guard


def _packed(content: Any) -> bytes:
    return zlib.compress(json.dumps(content, allow_nan=False, separators=(",", ":")).encode(), 1)


def _unpacked(content: bytes) -> Any:
    try:
        return json.loads(zlib.decompress(content))
    except (zlib.error, ValueError) as error:
        raise InputError([f"holds what cannot be read: {error}"]) from None
