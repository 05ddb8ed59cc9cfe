"""Rounds of a recorded session: what was asked, what was decided, and when that was taken for what runs."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from wattsched.instances.errors import InputError
from wattsched.results.documents import instance_of, result_of
from wattsched.serve.database import Database, prune
from wattsched.serve.texts import packed
from wattsched.sessions.session_decision import SessionDecision, decision_of


class MissingRoundError(InputError):
    """A round that is not there, or not any more."""


@dataclass(frozen=True)
class Round:
    """A decision that is in the journal.

    Attributes
    ----------
    number : int
        From 1 on, in the order in which the session's decisions were made.
    time : float
        When it was recorded, seconds since 1970.
    decision : SessionDecision
        With its instance and its result.
    unwritten : str
        Why it could not be written into the journal; empty where it was.
    """

    number: int
    time: float
    decision: SessionDecision
    unwritten: str = ""


@dataclass(frozen=True)
class RoundLine:
    """A round in a line.

    Attributes
    ----------
    number : int
    time : float
        When it was recorded, seconds since 1970.
    applied : float, optional
        When it was taken for what runs.
    termination : str
        Why the solver stopped.
    objective_name : str
    objective, bound : float, optional
        As the result has them.
    jobs, running : int
        Jobs of the round, and those that run by its decision.
    power_w : float, optional
        What the site draws by its decision.
    changes : int
        Jobs that the decision has do something else than what they did.
    solve_s : float
        Seconds that the decision took.
    """

    number: int
    time: float
    applied: float | None
    termination: str
    objective_name: str
    objective: float | None
    bound: float | None
    jobs: int
    running: int
    power_w: float | None
    changes: int
    solve_s: float


Contents = tuple[bytes, bytes, bytes]
"""Line, instance and result of a round, as the journal has them."""


class Rounds:
    """The rounds of one session in a journal's file."""

    def __init__(self, file: Database, session: int) -> None:
        self._file, self._session = file, session

    def last(self) -> int:
        """Number of the newest one, 0 without any."""
        ((number,),) = self._file.rows("SELECT max(number) FROM rounds WHERE session = ?", self._session)
        return number or 0

    def lines(self) -> list[RoundLine]:
        """Rounds that are kept, the oldest first, each in a line."""
        query = "SELECT number, time_s, applied_s, summary FROM rounds WHERE session = ? ORDER BY number"
        return [
            RoundLine(number, made_s, applied_s, **self._file.document(summary))
            for number, made_s, applied_s, summary in self._file.rows(query, self._session)
        ]

    def round(self, number: int) -> Round:
        """A round with its instance and decision; a `MissingRoundError` if it is not kept."""
        query = "SELECT time_s, instance, result FROM rounds WHERE session = ? AND number = ?"
        found = self._file.rows(query, self._session, number)
        if not found:
            raise MissingRoundError([f"round: there is no round {number}, or it is not kept any more"])
        ((made_s, instance, result),) = found
        asked = instance_of(self._file.document(instance))
        return Round(number, made_s, decision_of(asked, result_of(self._file.document(result))))

    def after(self, number: int) -> Round:
        """The oldest one that is kept of those after a number."""
        query = "SELECT min(number) FROM rounds WHERE session = ? AND number > ?"
        ((found,),) = self._file.rows(query, self._session, number)
        return self.round(number + 1 if found is None else found)

    @staticmethod
    def packed(decision: SessionDecision) -> Contents:
        """Pack what is recorded of a decision: its line, instance and result."""
        result = decision.brief
        line = {
            "termination": result.termination.reason,
            "objective_name": result.objective_name,
            "objective": result.objective,
            "bound": result.bound,
            "jobs": len(decision.ids),
            "running": len(decision.assignments),
            "power_w": result.totals.get("power_w"),
            "changes": len(decision.changes),
            "solve_s": result.time_s.get("total", 0.0),
        }
        return packed(line), packed(decision.instance), packed(result)

    def add(
        self,
        file: sqlite3.Connection,
        contents: Contents,
        now_s: float,
        kept: int,
        *,
        last: int,
        applied: bool,
    ) -> int:
        """Record a decision in a transaction, and return its number, which is above `last`.

        `kept` rounds stay, and older ones that events need; `applied`: it is what runs from now on.
        """
        query = "SELECT max(number) FROM rounds WHERE session = ?"
        (newest,) = file.execute(query, (self._session,)).fetchone()
        number = max(newest or 0, last) + 1
        row = (self._session, number, now_s, now_s if applied else None, *map(self._file.kept, contents))
        file.execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        prune(file, self._session, number - kept)
        return number
