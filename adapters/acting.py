"""Record each action on a cluster in the journal: that it begins, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wattsched.serve.database import JournalError
from wattsched.serve.recorded import RecordedSession


class RecordedActions:
    """Actions on a cluster, each with a line in the journal before and after.

    Attributes
    ----------
    journal : RecordedSession
        Where they are kept.
    number : int
        Of the round, which tells attempts apart.
    fault : str
        Why the journal could not be written in this round.
    """

    journal: RecordedSession
    number: int = 0
    fault: str = ""

    @contextmanager
    def recorded(
        self, key: str, about: Mapping[str, Any], *, starts: bool = False
    ) -> Iterator[dict[str, str]]:
        """Keep what is done within; its ``outcome`` is to be set.

        What keeps the cap is done also where it cannot be kept in the journal; what starts a job is not.

        Raises
        ------
        JournalError
            For a start that cannot be kept.
        """
        begun, found = False, {"outcome": "no answer"}
        try:
            self.journal.begin_action(key, about)
            begun = True
        except JournalError as error:
            self.fault = str(error)
            if starts:
                raise
        try:
            yield found
        finally:
            if begun:
                self._end(key, found)

    def give_way(self, load: Any, cap_w: float) -> bool:
        """Take back what may start and has no room or no watts any more; whether there was any."""
        return False

    def settle(self) -> int:
        """End the actions that a kill of ours cut off; what became of them is seen outside. How many."""
        try:
            cut_off = self.journal.actions(unfinished=True)
        except JournalError as error:
            self.fault = str(error)
            return 0
        for action in cut_off:
            self._end(action.key, {"outcome": "cut off; the next round sees what became of it"})
        return len(cut_off)

    def _end(self, key: str, found: Mapping[str, str]) -> None:
        try:
            self.journal.end_action(key, found)
        except JournalError as error:
            self.fault = str(error)
