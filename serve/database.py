"""The SQLite file of a journal: its tables, one writer at a time, and what is committed stays."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

import numpy as np
import pydantic_core
from pydantic import BaseModel

from wattsched.inputs import open_file
from wattsched.instances.errors import InputError, UnreadableError, shown
from wattsched.serve.permissions import keep_private, private_file, require_own

APPLICATION_ID = 0x57415453
"""How SQLite files say whose they are: ``WATS``."""

FORMAT = 1

_TABLES = """
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, made_s REAL NOT NULL,
    document BLOB NOT NULL);
CREATE TABLE events (
    session INTEGER NOT NULL, number INTEGER NOT NULL, time_s REAL NOT NULL, kind TEXT NOT NULL,
    round INTEGER, document BLOB NOT NULL, PRIMARY KEY (session, number)) WITHOUT ROWID;
CREATE TABLE states (
    session INTEGER PRIMARY KEY, event INTEGER NOT NULL, size INTEGER NOT NULL, document BLOB NOT NULL);
CREATE TABLE rounds (
    session INTEGER NOT NULL, number INTEGER NOT NULL, time_s REAL NOT NULL, applied_s REAL,
    summary BLOB NOT NULL, instance BLOB NOT NULL, result BLOB NOT NULL, PRIMARY KEY (session, number));
CREATE TABLE actions (
    session INTEGER NOT NULL, key TEXT NOT NULL, begun_s REAL NOT NULL, ended_s REAL,
    begun BLOB NOT NULL, ended BLOB, PRIMARY KEY (session, key));
CREATE INDEX events_of_rounds ON events (session, round) WHERE round IS NOT NULL;
CREATE INDEX unfinished_actions ON actions (session, begun_s) WHERE ended_s IS NULL;
CREATE INDEX ended_actions ON actions (session, ended_s);
"""


class JournalError(OSError):
    """The file cannot be written or read any more: it is damaged, the disk is full, or it was closed."""


def packed(document: Any, name: str = "", *, finite: bool = False) -> bytes:
    """A document as JSON, compressed; numbers and arrays of numpy are as Python's.

    Parameters
    ----------
    name : str
        Of the document, in what is wrong with it.
    finite : bool
        Refuse NaN and infinities, which stand for nothing here.

    Raises
    ------
    InputError
        For what JSON cannot say.
    """
    if finite and (faults := list(_strange(document, name, finite=True))):
        raise InputError(faults)
    try:
        return zlib.compress(pydantic_core.to_json(document, fallback=_as_python), level=1)
    except (ValueError, RecursionError) as error:
        faults = list(_strange(document, name))
        raise InputError(faults or [f"cannot be written as JSON: {error}"]) from None


def _as_python(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"is a {type(value).__name__}")


def _strange(value: Any, path: str, *, finite: bool = False, depth: int = 50) -> Iterator[str]:
    """What JSON cannot say, with its place, as deep as documents are."""
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


def unpacked(content: bytes) -> Any:
    """The document again.

    Raises
    ------
    JournalError
        For what is none: the file is damaged.
    """
    try:
        return json.loads(zlib.decompress(content))
    except (zlib.error, ValueError, TypeError):
        raise JournalError("the journal is damaged: a part of it is no document") from None


class Database:
    """One SQLite file in WAL mode; safe from several threads.

    Parameters
    ----------
    path : str or Path
        Is made where it is not there.
    read_only : bool
        Look at it only, which several processes can while another one writes.

    Raises
    ------
    InputError
        For what is no journal, and for one that another process writes.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = str(path)
        if not self.path:
            raise InputError(["the file name is empty"])
        self._using = Lock()
        self._require_file(read_only)
        lock = Path(f"{self.path}-lock")
        new = not read_only and _made(lock, self.path)
        self._guard = None if read_only else self._guarded(lock)
        try:
            if not (read_only or os.path.exists(self.path)):
                _made(Path(self.path), self.path)  # SQLite gives its other files the same mode
            for part in self._parts(read_only):
                require_own(part)
            self._file = self._looking() if read_only else _opened(self.path, "rw")
            self._prepare(read_only)
            for part in self._parts(read_only):
                keep_private(part)
        except (sqlite3.Error, UnicodeDecodeError, InputError) as error:
            if new:
                # Who waits for it in this moment refuses the same file.
                lock.unlink(missing_ok=True)
            self._let_go()
            if isinstance(error, InputError):
                raise
            told = "is no journal" if "not a database" in str(error) else f"cannot be opened: {error}"
            raise InputError([told], self.path) from None

    def _require_file(self, read_only: bool) -> None:
        """Refuse what is no file, or cannot be read or written, and say why, which SQLite does not."""
        try:
            if read_only or os.path.lexists(self.path):
                with open_file(self.path):
                    pass
        except OSError as error:
            raise UnreadableError(error, self.path) from None
        if not read_only and os.path.exists(self.path):
            try:
                os.close(os.open(self.path, os.O_RDWR))
            except OSError as error:
                raise _unwritable(error, self.path) from None

    def _parts(self, read_only: bool) -> list[str]:
        """Files that are there and written to."""
        every = [] if read_only else [self.path + end for end in ("", "-wal", "-shm")]
        return [part for part in every if os.path.lexists(part)]

    def _looking(self) -> sqlite3.Connection:
        """The file to be read, in a folder that cannot be written to as well.

        There SQLite cannot make the ``-shm`` that a reader needs. Nobody writes the file then, and it can be
        read as one that never changes, unless a part of it is still in its ``-wal``.
        """
        file = _opened(self.path, "ro")
        try:
            file.execute("PRAGMA application_id")
        except sqlite3.OperationalError as error:
            file.close()
            wal = Path(f"{self.path}-wal")
            if not any(told in str(error) for told in ("unable to open", "readonly")):
                raise
            if wal.exists() and wal.stat().st_size:
                told = f"its newest changes are in {wal.name}, and the folder cannot be written to"
                raise InputError([f"cannot be opened: {told}; copy both to another one"], self.path) from None
            file = _opened(self.path, "ro&immutable=1")
        return file

    def _guarded(self, lock: Path) -> sqlite3.Connection:
        """A lock that the system takes away from a process that dies, whatever it dies of."""
        try:
            guard = _opened(str(lock), "rw", patience_s=0.0)
            guard.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            busy = "locked" in str(error)
            told = "is open in another process, which writes it" if busy else f"cannot be opened: {error}"
            raise InputError([told], self.path) from None
        return guard

    def _prepare(self, read_only: bool) -> None:
        """Make the tables of a new file, and refuse the files of others."""
        (mark,) = self._file.execute("PRAGMA application_id").fetchone()
        (form,) = self._file.execute("PRAGMA user_version").fetchone()
        (tables,) = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if mark != APPLICATION_ID and (tables or mark or read_only):
            raise InputError(["is no journal"], self.path)
        if mark == APPLICATION_ID and form != FORMAT:
            raise InputError([f"is a journal of format {form}, this version reads {FORMAT}"], self.path)
        if read_only:
            return
        self._file.execute("PRAGMA journal_mode = WAL")
        # Every commit waits for the disk.
        self._file.execute("PRAGMA synchronous = FULL")
        if not tables:
            with self.transaction() as file:
                for statement in _TABLES.split(";"):
                    file.execute(statement)
                file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                file.execute(f"PRAGMA user_version = {FORMAT}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of what is done within, on the disk when it is left, or nothing of it.

        Raises
        ------
        JournalError
            Where it could not be written.
        """
        with self._using, self._told():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield self._file
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows that a query finds.

        Raises
        ------
        JournalError
            Where the file cannot be read any more.
        """
        with self._using, self._told():
            return self._file.execute(query, values).fetchall()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise JournalError(f"the journal {self.path} cannot be used: {error}") from None

    def close(self) -> None:
        """Write everything into the one file, and let others write it."""
        with self._using, self._told():
            try:
                self._file.close()
            finally:
                self._let_go()

    def _let_go(self) -> None:
        if self._guard is not None:
            self._guard.close()


def _made(lock: Path, path: str) -> bool:
    """Make an empty file where there is none; whether there was none.

    Raises
    ------
    InputError
        Where the folder cannot be written to.
    """
    try:
        return private_file(lock)
    except OSError as error:
        raise _unwritable(error, path) from None


def _unwritable(error: OSError, path: str) -> InputError:
    return InputError([f"cannot be written: {(error.strerror or str(error)).lower()}"], path)


def _opened(path: str, mode: str, *, patience_s: float = 10.0) -> sqlite3.Connection:
    # A whole path is always a file: SQLite keeps what is called ":memory:" nowhere else.
    return sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=patience_s,
        check_same_thread=False,
    )
