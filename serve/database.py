"""The SQLite file of a journal: its tables, one writer at a time, and what is committed stays."""

from __future__ import annotations

import logging
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

from wattsched.instances.errors import InputError, UnreadableError
from wattsched.reading.inputs import open_file
from wattsched.serve.permissions import keep_private, private_file, require_own
from wattsched.serve.texts import IN_TEXTS, digests_in, split, unpacked

APPLICATION_ID = 0x57415453
"""Number by which SQLite files say that they are ours: ``WATS``."""

FORMAT = 2
"""Since 2 texts are kept once; a journal of format 1 is read, and is of format 2 once it is written."""

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
_TEXTS = "CREATE TABLE texts (digest BLOB PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID"

_WITH_TEXTS = (
    ("sessions", "document"),
    ("events", "document"),
    ("states", "document"),
    ("rounds", "instance"),
    ("rounds", "result"),
)
QUOTA_MB = 1_000.0
"""Default limit of a journal in megabytes."""
_FULL = 0.8
"""Share of the quota beyond which older rounds are deleted."""


_log = logging.getLogger("wattsched.serve")


class JournalError(OSError):
    """The file cannot be written or read any more: it is damaged, the disk is full, or it was closed."""


class Database:
    """One SQLite file in WAL mode, with the arguments of `Journal`; safe from several threads.

    Attributes
    ----------
    fault : str
        Why the newest change could not be written; empty where it was.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, quota_mb: float = QUOTA_MB) -> None:
        self.path, self.fault = str(path), ""
        self._quota_bytes, self._told_full = quota_mb * 1e6, False  # whether a nearly full file was told of
        if not self.path:
            raise InputError(["the file name is empty"])
        self._using = Lock()
        self._require_file(read_only)
        # One lock for all names of the file: links to it lead to the same.
        lock = Path(f"{os.path.realpath(self.path)}-lock")
        with _written(self.path):
            new = not read_only and private_file(lock)
        self._guard = None if read_only else self._take_lock(lock)  # held until it is closed
        try:
            if not (read_only or os.path.exists(self.path)):
                with _written(self.path):
                    private_file(self.path)  # SQLite gives its other files the same mode
            for part in [] if read_only else self._parts():
                require_own(part)
            self._file = self._open_to_read() if read_only else _opened(self.path, "rw")
            self._prepare(read_only)
            for part in [] if read_only else self._parts():
                keep_private(part)
        except (sqlite3.Error, UnicodeDecodeError, InputError) as error:
            if new:
                # Whoever waits for the lock in this moment will refuse the same file.
                lock.unlink(missing_ok=True)
            self._let_go()
            if isinstance(error, InputError):
                raise
            text = "is no journal" if "not a database" in str(error) else f"cannot be opened: {error}"
            raise InputError([text], self.path) from None

    def _require_file(self, read_only: bool) -> None:
        """Refuse what is no file, or cannot be read or written, and say why, which SQLite does not."""
        try:
            if read_only or os.path.lexists(self.path):
                with open_file(self.path):
                    pass
        except OSError as error:
            raise UnreadableError(error, self.path) from None
        if not read_only and os.path.exists(self.path):
            if os.stat(self.path).st_nlink > 1:
                text = "has another name (a hard link), by which another process could write it"
                raise InputError([text], self.path)
            with _written(self.path):
                os.close(os.open(self.path, os.O_RDWR))

    def _parts(self) -> list[str]:
        """Return its files that exist."""
        return [part for end in ("", "-wal", "-shm") if os.path.lexists(part := self.path + end)]

    def _open_to_read(self) -> sqlite3.Connection:
        """Open the file to be read, also in a folder that cannot be written to.

        There SQLite cannot make the ``-shm`` that a reader needs. Nobody writes the file then, and it can be
        read as one that never changes, unless a part of it is still in its ``-wal``.
        """
        file = _opened(self.path, "ro")
        try:
            file.execute("PRAGMA application_id")
        except sqlite3.OperationalError as error:
            file.close()
            wal = Path(f"{self.path}-wal")
            if not any(text in str(error) for text in ("unable to open", "readonly")):
                raise
            if wal.exists() and wal.stat().st_size:
                text = f"its newest changes are in {wal.name}, and the folder cannot be written to"
                raise InputError([f"cannot be opened: {text}; copy both to another one"], self.path) from None
            file = _opened(self.path, "ro&immutable=1")
        return file

    def _take_lock(self, lock: Path) -> sqlite3.Connection:
        """Take a lock that the system releases when the process ends, however it ends."""
        try:
            guard = _opened(str(lock), "rw", patience_s=0.0)
            guard.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            busy = "locked" in str(error)
            text = "is open in another process, which writes it" if busy else f"cannot be opened: {error}"
            raise InputError([text], self.path) from None
        return guard

    def _prepare(self, read_only: bool) -> None:
        """Create the tables of a new file, and refuse files that are no journal."""
        (application,) = self._file.execute("PRAGMA application_id").fetchone()
        (version,) = self._file.execute("PRAGMA user_version").fetchone()
        (tables,) = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != APPLICATION_ID and (tables or application or read_only):
            raise InputError(["is no journal"], self.path)
        if application == APPLICATION_ID and version not in (1, FORMAT):
            raise InputError([f"is a journal of format {version}, this version reads {FORMAT}"], self.path)
        if read_only:
            return
        self._file.execute("PRAGMA journal_mode = WAL")
        # Every commit waits for the disk.
        self._file.execute("PRAGMA synchronous = FULL")
        if not tables or version != FORMAT:
            with self.transaction() as file:
                for statement in [*([] if tables else _TABLES.split(";")), _TEXTS]:
                    file.execute(statement)
                file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                file.execute(f"PRAGMA user_version = {FORMAT}")
        (page,) = self._file.execute("PRAGMA page_size").fetchone()
        self._file.execute(f"PRAGMA max_page_count = {max(1, int(self._quota_bytes / page))}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all changes made within to disk at the end, or none, which is raised as a `JournalError`."""
        with self._using, self._told():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield self._file
                self._file.execute("COMMIT")
                self.fault = ""
            except BaseException as error:
                if isinstance(error, sqlite3.Error):
                    self.fault = str(error)
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise

    def kept(self, content: bytes) -> bytes:
        """Store the texts of a packed document, and return what stands for it here; in a transaction."""
        content, texts = split(content)
        for digest, text in texts.items():
            if not self._file.execute("SELECT 1 FROM texts WHERE digest = ?", (digest,)).fetchone():
                row = (digest, zlib.compress(text, level=1))
                self._file.execute("INSERT INTO texts VALUES (?, ?)", row)
        return content

    def document(self, content: bytes) -> Any:
        """Unpack a document as the file stores it."""
        query = "SELECT content FROM texts WHERE digest = ?"
        try:
            found = [self.rows(query, digest) for digest in digests_in(content)]
            return unpacked(content, [text for ((text,),) in found])
        except (zlib.error, ValueError, TypeError):
            raise JournalError("the journal is damaged: a part of it is no document") from None

    def used_bytes(self) -> int:
        """Return the bytes of the file that are in use."""
        names = ("page_count", "freelist_count", "page_size")
        ((pages,),), ((free,),), ((size,),) = (self.rows(f"PRAGMA {name}") for name in names)
        used: int = (pages - free) * size
        return used

    def make_room(self) -> None:
        """Delete the older half of the rounds when the quota is nearly used up, and unused texts."""
        if self.used_bytes() <= _FULL * self._quota_bytes:
            self._told_full = False
            return
        with self.transaction() as file:
            for session, first, last in file.execute(
                "SELECT session, min(number), max(number) FROM rounds GROUP BY session"
            ).fetchall():
                prune(file, session, (first + last) // 2)
            self._sweep(file)
        if not self._told_full and self.used_bytes() > _FULL * self._quota_bytes:
            self._told_full = True
            text = (
                "the journal %s has used %.0f %% of its quota, and little can be given up (--journal-quota)"
            )
            _log.warning(text, self.path, 100 * self.used_bytes() / self._quota_bytes)

    def sweep(self) -> None:
        """Forget the texts that nothing needs any more; in any case something is written."""
        with self.transaction() as file:
            file.execute(f"PRAGMA user_version = {FORMAT}")
            self._sweep(file)

    @staticmethod
    def _sweep(file: sqlite3.Connection) -> None:
        """Delete the texts that no document needs any more, in a transaction."""
        needed = set[bytes]()
        for table, column in _WITH_TEXTS:
            query = f"SELECT {column} FROM {table} WHERE substr({column}, 1, 1) = ?"
            for (content,) in file.execute(query, (IN_TEXTS,)):
                needed.update(digests_in(content))
        every = {digest for (digest,) in file.execute("SELECT digest FROM texts")}
        file.executemany("DELETE FROM texts WHERE digest = ?", [(one,) for one in every - needed])

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows that a query finds."""
        with self._using, self._told():
            return self._file.execute(query, values).fetchall()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what SQLite raises into a `JournalError`."""
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


def prune(file: sqlite3.Connection, session: int, last: int) -> None:
    """Delete the rounds of a session up to a number, but for those that events need."""
    query = (
        "DELETE FROM rounds WHERE session = :session AND number <= :last AND number NOT IN "
        "(SELECT round FROM events WHERE session = :session AND round IS NOT NULL)"
    )
    file.execute(query, {"session": session, "last": last})


@contextmanager
def _written(path: str) -> Iterator[None]:
    """Say that a file cannot be written, where the system refuses what is done within for it."""
    try:
        yield
    except OSError as error:
        raise InputError([f"cannot be written: {(error.strerror or str(error)).lower()}"], path) from None


def _opened(path: str, mode: str, *, patience_s: float = 10.0) -> sqlite3.Connection:
    """Connect to a file in a mode of SQLite's URIs, waiting so long for others' locks; no implicit BEGIN."""
    # A whole path is always a file: SQLite keeps what is called ":memory:" nowhere else.
    return sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=patience_s,
        check_same_thread=False,
    )
