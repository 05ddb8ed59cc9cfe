"""Actions of adapters on a cluster: each is in the journal before it begins, and how it ended."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wattsched.instances.errors import InputError, require
from wattsched.serve.database import Database, JournalError
from wattsched.serve.texts import packed

KEPT_ACTIONS = 20_000
"""Actions that have ended and are kept, the newest ones, to know a key again."""


@dataclass(frozen=True)
class Action:
    """Action of an adapter outside the service: begun, and perhaps ended.

    Attributes
    ----------
    key : str
        Names it once and for all.
    begun_s, ended_s : float
        Seconds since 1970; `ended_s` is None for one that has not ended.
    begun, ended : dict
        What was to be done, and how it ended.
    """

    key: str
    begun_s: float
    ended_s: float | None
    begun: dict[str, Any]
    ended: dict[str, Any] | None


class RecordedActions:
    """Actions because of a session's decisions, in its journal, or without it where it cannot be written.

    Attributes
    ----------
    name : str
        Of the session.
    goes_on : bool
        Decide in memory while the journal cannot be written, and write all of it when it can again. A round
        says so in `unwritten`. Without it, what cannot be written does not happen.
    fault : str
        Why a session that goes on could not write something; empty since it has written all of it.
    """

    goes_on = False
    fault = ""

    def __init__(self, name: str, number: int, file: Database) -> None:
        self.name, self._id, self._file = name, number, file

    def begin_action(self, key: str, document: Mapping[str, Any]) -> bool:
        """Record what is about to be done; False where an action of that key was begun before.

        Raises
        ------
        InputError
            For a document that JSON cannot say.
        JournalError
            Where it cannot be recorded.
        """
        query = "INSERT OR IGNORE INTO actions (session, key, begun_s, begun) VALUES (?, ?, ?, ?)"
        require("key", key, (str,), "a text")
        row = (self._id, key, time.time(), packed(document, "document", finite=True))
        with self._file.transaction() as file:
            self._require_kept(file)
            return file.execute(query, row).rowcount == 1

    def end_action(self, key: str, document: Mapping[str, Any]) -> None:
        """Record how an action ended, and forget those that ended before the newest `KEPT_ACTIONS`."""
        require("key", key, (str,), "a text")
        ended = packed(document, "document", finite=True)
        with self._going_on(), self._file.transaction() as file:
            query = "UPDATE actions SET ended_s = ?, ended = ? WHERE session = ? AND key = ?"
            known = file.execute(query, (time.time(), ended, self._id, key)).rowcount
            if not known:
                raise InputError([f"key: no action {key!r:.120} was begun"])
            query = "SELECT ended_s FROM actions WHERE session = ? ORDER BY ended_s DESC LIMIT 1 OFFSET ?"
            for (ended_s,) in file.execute(query, (self._id, KEPT_ACTIONS)).fetchall():
                query = "DELETE FROM actions WHERE session = ? AND ended_s <= ?"
                file.execute(query, (self._id, ended_s))

    @contextmanager
    def acting(
        self, key: str, document: Mapping[str, Any], *, starts: bool = False
    ) -> Iterator[dict[str, str]]:
        """Record what is done within, and how it ended: the ``outcome`` to be set in what is yielded.

        Where the journal cannot be written it is done all the same, to keep the cap, unless it starts a job:
        that is a `JournalError`.
        """
        begun, found = False, {"outcome": "no answer"}
        try:
            self.begin_action(key, document)
            begun = True
        except JournalError as error:
            self.fault = str(error)
            if starts:
                raise
        try:
            yield found
        finally:
            if begun:
                self.end_action(key, found)

    def settle(self) -> int:
        """End the actions that were cut off as we were killed, whatever became of them; return how many."""
        cut_off: list[Action] = []
        with self._going_on():
            cut_off = self.actions(unfinished=True)
        for action in cut_off:
            self.end_action(action.key, {"outcome": "cut off; the next round sees what became of it"})
        return len(cut_off)

    def actions(self, *, unfinished: bool = False) -> list[Action]:
        """Actions in the order in which they were begun, or those that have not ended."""
        query = "SELECT key, begun_s, ended_s, begun, ended FROM actions WHERE session = ?"
        query += " AND ended_s IS NULL" if unfinished else ""
        read, rows = self._file.document, self._file.rows(f"{query} ORDER BY begun_s, rowid", self._id)
        return [
            Action(key, begun_s, ended_s, read(begun), None if ended is None else read(ended))
            for key, begun_s, ended_s, begun, ended in rows
        ]

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Note what the journal cannot do, where the session goes on all the same."""
        try:
            yield
        except JournalError as error:
            if not self.goes_on:
                raise
            self.fault = str(error)

    def _require_kept(self, file: sqlite3.Connection) -> None:
        if file.execute("SELECT 1 FROM sessions WHERE id = ?", (self._id,)).fetchone() is None:
            raise InputError([f"the session '{self.name}' was dropped"])
