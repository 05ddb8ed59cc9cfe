"""A session in a journal: a change is on the disk before the call that makes it returns."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral
from threading import Lock, RLock
from typing import Any, NamedTuple

from wattsched.instances.errors import InputError, require
from wattsched.serve import changes
from wattsched.serve.actions import RecordedActions
from wattsched.serve.database import Database, JournalError
from wattsched.serve.rounds import Contents, Round, RoundLine, Rounds
from wattsched.serve.texts import packed, unpacked
from wattsched.sessions.session import Session
from wattsched.sessions.session_decision import SessionDecision
from wattsched.solving.engine import limits_of, proof_seconds, seconds_of

MOST_EVENTS, LEAST_BYTES = 500, 200_000
"""Events, and compressed bytes of them, after which a state replaces them: opening does not replay more."""

_ROUNDS = 200
"""Rounds after which texts are forgotten that nothing needs any more."""


class ChangedError(Exception):
    """A session that was to be changed as somebody knew it has been changed by another one."""


class _Event(NamedTuple):
    """A change as the journal has it."""

    kind: str
    of_round: int | None
    content: bytes


class RecordedSession(RecordedActions):
    """A `Session` whose changes and decisions are in a journal; safe from several threads.

    Made by `Journal.create` and `Journal.open`.

    Attributes
    ----------
    session : Session
        To be read; it is changed through the methods here alone.
    last : Round, optional
        The newest decision.
    """

    def __init__(
        self, name: str, number: int, document: Mapping[str, Any], file: Database, kept_rounds: int
    ) -> None:
        super().__init__(name, number, file)
        self._document, self._kept = document, kept_rounds
        self._rounds = Rounds(file, number)
        self._changing, self._deciding = RLock(), Lock()
        self.last: Round | None = None
        self._event = 0  # number of the newest
        self._events, self._events_bytes, self._state_bytes = 0, 0, 0  # since the newest state; size of that
        self._updates: dict[str, Any] = {}  # all since the session was made, merged
        self._pending: list[_Event] = []  # made in memory, and not on the disk yet
        self._stale = False  # the session is not what the journal says
        self.session = self._open()

    @property
    def version(self) -> str:
        """Another one after every change; also of a session that is made again under the same name."""
        return f'"{self._id}.{self._event}"'

    @contextmanager
    def known_as(self, versions: str | None) -> Iterator[None]:
        """Change it within, if it is of one of some versions between commas; None and ``*`` are any.

        Raises
        ------
        ChangedError
            Where it is not.
        JournalError
            Where an earlier change could not be written, and the journal cannot be read now, either.
        """
        with self._changing:
            if self._stale:
                self._reopen()
            if versions not in (None, "*") and self.version not in map(str.strip, str(versions).split(",")):
                raise ChangedError(f"the session is of version {self.version} now, not {versions!s:.80}")
            yield

    def upsert(self, jobs: Sequence[Mapping[str, Any]], *, versions: str | None = None) -> str:
        """Add jobs, or change the given fields of those that are there; all of it or nothing.

        Returns the version that this makes, as the other changes do.

        Parameters
        ----------
        jobs : sequence of mapping
            Job records as instance files have them, with a ``name`` each.
        versions : str, optional
            As of `known_as`.

        Raises
        ------
        ChangedError, InputError
            For another version; with every fault.
        JournalError
            Where the journal cannot be written; then nothing is changed.
        """
        return self._change("upsert", jobs, versions)

    def remove(self, ids: Sequence[str], *, versions: str | None = None) -> str:
        """Take jobs out; all of them or none."""
        return self._change("remove", list(ids) if isinstance(ids, tuple) else ids, versions)

    def update(self, *, versions: str | None = None, **told: Any) -> str:
        """Change budgets, nodes and loads: arguments of `Session.update` as JSON."""
        return self._change("update", told, versions)

    def apply(self, round: int, *, versions: str | None = None) -> str:
        """Take a round's decision for what runs now."""
        with changes.told_of_fields():
            require("round", round, (Integral,), "the number of a round")
        return self._change("apply", int(round), versions)

    def _change(self, kind: str, told: Any, versions: str | None) -> str:
        with self.known_as(versions):
            self._begin(kind, told)
            self._commit()
            return self.version

    def _begin(self, kind: str, told: Any) -> None:
        """Make a change in memory, which is to be committed."""
        content = packed(told, {"upsert": "jobs", "remove": "ids"}.get(kind, ""))
        self._make(self.session, kind, told)
        self._pending.append(_Event(kind, told if kind == "apply" else None, content))

    def _commit(self, decided: Contents | None = None, *, applied: bool = False) -> tuple[int, float]:
        """Write pending changes, and a decision after them, to the disk in one piece.

        `applied`: it is what runs from now on. Returns its number, 0 without one, and when it was written.
        """
        events, self._pending = self._pending, []
        last, number, now_s = self.last.number if self.last else 0, 0, time.time()
        with self._told_of_losses(), self._file.transaction() as file:
            self._require_kept(file)
            if decided is not None:
                number = self._rounds.add(file, decided, now_s, self._kept, last=last, applied=applied)
                events = [*events, _Event("apply", number, packed(number))] if applied else events
            if self.fault:  # earlier changes are not there: the state has them all
                self._write_state(file, packed(changes.state_of(self.session, self._updates)))
                events = []
            for place, event in enumerate(events, self._event + 1):
                kind, of_round, content = event
                row = (self._id, place, now_s, kind, of_round, self._file.kept(content))
                file.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", row)
                if of_round is not None:
                    query = "UPDATE rounds SET applied_s = ? WHERE session = ? AND number = ?"
                    if not file.execute(query, (now_s, self._id, of_round)).rowcount:
                        raise InputError([f"round: round {of_round} is not kept any more"])
            self.fault = ""
        if self.fault:
            return last + 1, now_s
        self._event, self._events = self._event + len(events), self._events + len(events)
        self._events_bytes += sum(len(event.content) for event in events)
        if self._events >= MOST_EVENTS or self._events_bytes > max(LEAST_BYTES, self._state_bytes):
            with suppress(JournalError):  # the change itself is there
                self._condense()
        if decided is not None and number % _ROUNDS == 0:
            with suppress(JournalError):
                self._file.sweep()
        with suppress(JournalError):
            self._file.make_room()
        return number, now_s

    @contextmanager
    def _told_of_losses(self) -> Iterator[None]:
        """Write changes within; where that fails, make the session what the journal says, without them."""
        self._stale = True  # until it is on the disk
        try:
            with self._going_on():
                yield
            self._stale = False
        except BaseException:
            with suppress(JournalError, InputError):  # the next change tries again, and says why not
                self._reopen()
            raise

    def _make(self, session: Session, kind: str, told: Any) -> None:
        """Make a change of a kind to a session, now or again; `told` is its document."""
        match kind:
            case "upsert":
                changes.upsert(session, told)
            case "remove":
                changes.remove(session, told)
            case "jobs":
                changes.change_jobs(session, told["jobs"], told["remove"])
            case "update":
                changes.update(session, told)
                self._updates = changes.merged(self._updates, told)
            case "apply":
                decision = self.round(told).decision
                with changes.told_of_fields():
                    session.apply(decision)
            case _:
                raise JournalError(f"the journal is damaged: it has a change of the kind {kind!r:.40}")

    def _open(self) -> Session:
        """The session as the journal has it: its state, and the events since then."""
        session = changes.session_of(self._document)
        self._updates = {}
        self._event, self._state_bytes = 0, 0
        query = "SELECT event, size, document FROM states WHERE session = ?"
        for event, size, content in self._file.rows(query, self._id):
            state = self._file.document(content)
            changes.restore(session, state)
            self._event, self._state_bytes, self._updates = event, size, state["updates"]
        query = "SELECT number, kind, document FROM events WHERE session = ? AND number > ? ORDER BY number"
        events = self._file.rows(query, self._id, self._event)
        for event, kind, content in events:
            self._make(session, kind, self._file.document(content))
            self._event = event
        self._events, self._events_bytes = len(events), sum(len(content) for *_, content in events)
        self.last = self.round(number) if (number := self._rounds.last()) else None
        if self.last is not None:
            session.resume(self.last.decision.brief)
        return session

    def _reopen(self) -> None:
        self.session, self._stale = self._open(), False

    def _condense(self) -> None:
        """Let a state replace the events that have led to it, if it leads to the same session."""
        content = packed(changes.state_of(self.session, self._updates))
        self._events, self._events_bytes, self._state_bytes = 0, 0, len(content)
        if self._leads_here(unpacked(content)):
            with self._file.transaction() as file:
                self._write_state(file, content)

    def _write_state(self, file: sqlite3.Connection, content: bytes) -> None:
        """Write a packed state of the session in place of its events, in a transaction."""
        row = (self._id, self._event, len(content), self._file.kept(content))
        file.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", row)
        file.execute("DELETE FROM events WHERE session = ? AND number <= ?", (self._id, self._event))

    def _leads_here(self, state: Mapping[str, Any]) -> bool:
        """True if a state leads to the session: what changed step by step is not always taken as a whole."""
        again = changes.session_of(self._document)
        try:
            changes.restore(again, state)
        except InputError:
            return False
        return again.to_instance() == self.session.to_instance()

    def solve(
        self,
        *,
        jobs: Sequence[Mapping[str, Any]] = (),
        remove: Sequence[str] = (),
        deadline_s: float | None = None,
        gap: float = 1e-4,
        prove: float | None = 0.0,
        apply: bool = False,
        versions: str | None = None,
    ) -> Round:
        """Decide what every job does next, and record it, as `Session.solve`.

        Parameters
        ----------
        jobs, remove : sequences
            Job records that come or change before that, and names of jobs that go; all of it or nothing.
        deadline_s, gap, prove
            As of `Session.solve`.
        apply : bool
            Take the decision, if there is one, for what runs now.
        versions : str, optional
            As of `known_as`.

        Raises
        ------
        ChangedError, InputError
            For another version; for wrong arguments.
        JournalError
            Where the decision, or what changed before it, cannot be recorded.
        """
        with changes.told_of_fields():
            limits_of(gap, seconds_of("deadline_s", deadline_s))
            proof_seconds(prove)
        # One after the other, so that none is applied that knows less than the one before.
        with self._deciding:
            with self.known_as(versions):
                if jobs or remove:
                    self._begin("jobs", {"jobs": jobs, "remove": list(remove)})
                before = self.session
            try:
                with changes.told_of_fields():
                    decision = self.session.solve(deadline_s=deadline_s, gap=gap, prove=prove)
                contents = self._rounds.packed(decision)
            except BaseException:
                with self._changing:
                    self._commit()  # the jobs that came and went
                raise
            with self._changing:
                return self._recorded(decision, contents, before, apply=apply and decision.solved)

    def _recorded(
        self, decision: SessionDecision, contents: Contents, before: Session, *, apply: bool
    ) -> Round:
        """Write a decision to the disk with all that came before it, and return its round.

        `before` is the session that decided; it is lost where its journal was read again meanwhile.
        """
        if self._stale or self.session is not before:
            raise JournalError("what was changed before the decision could not be recorded")
        refused: InputError | None = None
        if apply:
            try:
                with changes.told_of_fields():
                    self.session.apply(decision)
            except InputError as error:
                refused = error
        number, now_s = self._commit(contents, applied=apply and refused is None)
        self.last = Round(number, now_s, decision, self.fault)
        if refused is not None:
            raise refused
        return self.last

    def cancel(self) -> None:
        """End the decision that is being made, if one is, with what it has; from another thread."""
        self.session.cancel()

    def rounds(self) -> list[RoundLine]:
        """Rounds that are kept, the oldest first, each in a line."""
        return self._rounds.lines()

    def round(self, number: int) -> Round:
        """A round with its instance and decision."""
        last = self.last
        return last if last is not None and last.number == number else self._rounds.round(number)

    def round_after(self, number: int) -> Round:
        """The oldest round that is kept of those after a number."""
        last = self.last
        newest = last is not None and last.number == number + 1
        return last if last is not None and newest else self._rounds.after(number)
