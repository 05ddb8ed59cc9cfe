"""Reasons why jobs wait, as their owners read them: which of them are written in a round, and in which words.

A reason that is new is written at once, one of the same kind with other numbers only after a while. So few
are written in a round that neither the scheduler nor the round notices, however many jobs wait.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, datetime
from math import ceil
from typing import NamedTuple, TypeVar

from wattsched.adapters.rounds import Reason
from wattsched.explaining.explain import smaller_sizes
from wattsched.explaining.start import starts_by_limits
from wattsched.formulations.timer import Timer
from wattsched.reading.inputs import printable
from wattsched.report.explanation import words_of
from wattsched.sessions.session_decision import SessionDecision

KeyT = TypeVar("KeyT", bound=Hashable)

AGAIN_S, SAME_KIND_S = 60.0, 600.0
"""Least seconds between two reasons of a job: of another kind, and of the same kind with other numbers."""
LONGEST = 200
"""Characters of a reason."""


class _Written(NamedTuple):
    reason: str
    text: Reason
    time_s: float


class ReasonsWritten:
    """The last reason of each waiting job that was written, by a key of the job.

    Parameters
    ----------
    most : int
        Reasons that are written in a round at most.
    """

    def __init__(self, most: int) -> None:
        self._most, self._last = most, dict[Hashable, _Written]()

    def due(self, why: Mapping[KeyT, str], now_s: float) -> list[KeyT]:
        """Return the jobs whose reason is to be written now, those first that have none, then the longest.

        Jobs that are not in `why` are forgotten. Of jobs without a reason, the first in `why` come first.
        """
        self._last = {key: last for key, last in self._last.items() if key in why}
        due = [key for key, reason in why.items() if self._is_due(key, reason, now_s)]
        never_s = float("-inf")
        due.sort(key=lambda key: self._last[key].time_s if key in self._last else never_s)
        return due[: self._most]

    def _is_due(self, key: Hashable, reason: str, now_s: float) -> bool:
        """True if a job has no reason yet, or another one than was written some time ago."""
        if (last := self._last.get(key)) is None:
            return True
        pause_s = SAME_KIND_S if last.text.kind == kind_of(reason) else AGAIN_S
        return last.reason != reason and now_s >= last.time_s + pause_s

    def note(self, key: Hashable, reason: str, text: Reason, now_s: float) -> None:
        """Note that a job's reason was written, in the words of a text."""
        self._last[key] = _Written(reason, text, now_s)

    def text_of(self, key: Hashable, reason: str) -> str:
        """Return the words in which a job's reason was written, or the reason if another one was."""
        last = self._last.get(key)
        return last.text if last is not None and last.reason == reason else reason


def kind_of(reason: str) -> str:
    """Kind of a reason, as of `Reason`."""
    return getattr(reason, "kind", "postponed")


def bounded(reason: str, *more: str) -> Reason:
    """Return a reason as it is written, on one line; of `more` each is added where there is room for it."""
    text = reason
    for part in filter(None, more):
        text = f"{text}; {part}" if len(f"{text}; {part}") <= LONGEST else text
    text = printable(text)
    return Reason(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...", kind_of(reason))


def additions(
    decision: SessionDecision, jobs: Iterable[str], limits_s: Mapping[str, float], time_s: float, timer: Timer
) -> dict[str, tuple[str, ...]]:
    """Return what follows reasons of waiting jobs: with which smaller size each would start now, and when.

    A smaller size is what the owner of a job can change; that more watts or a larger quota would help follows
    from the reason. When a job starts follows from limits of time, in seconds from `time_s` on (since 1970).
    """
    if timer.over():
        return {}
    instance, known = decision.instance, decision.brief.decision
    starts_s = starts_by_limits(instance, known, limits_s, timer.share(0.5)) if limits_s else {}
    when = {job: _start_text(time_s + seconds) for job, seconds in starts_s.items()}
    return {job: (_smaller_size(decision, job, timer), when.get(job, "")) for job in jobs}


def _smaller_size(decision: SessionDecision, job: str, timer: Timer) -> str:
    """Say with which smaller size a waiting job would start now; '' where none is found in time."""
    if timer.over() or job not in decision.instance.by_column().place:
        return ""
    found = smaller_sizes(decision.instance, decision.brief, job, time_limit=timer.remaining_s() or 0.0)
    return f"would start now with {words_of(found[0], job)}" if found else ""


def _start_text(time_s: float) -> str:
    """Say until when a job is expected to start, a time since 1970, as a local time to the minute."""
    when = datetime.fromtimestamp(ceil(time_s / 60) * 60, UTC).astimezone()
    return f"expected to start by {when:%Y-%m-%dT%H:%M} if no others come"
