"""Reasons why jobs wait, as their owners read them: which of them are written in a round, and in which words.

A reason that is new is written at once, one of the same kind with other numbers only after a while. So few
are written in a round that neither the scheduler nor the round notices, however many jobs wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from threading import Event
from typing import Any, NamedTuple

from wattsched.adapters.rounds import Reason
from wattsched.explaining.explain import smaller_sizes
from wattsched.explaining.start import starts_by_limits
from wattsched.formulations.timer import Timer
from wattsched.reading.inputs import printable
from wattsched.report.explanation import words_of
from wattsched.sessions.session_decision import SessionDecision

AGAIN_S, SAME_KIND_S = 60.0, 600.0
"""Least seconds between two reasons of a job: of another kind, and of the same kind with other numbers."""
WRITING_S = 2.0
"""Seconds that writing has in any case, in a round that has taken all its time."""
LONGEST = 200
"""Characters of a reason."""


class Waiting(NamedTuple):
    """A job that waits: whom to tell why, its name, what its reason is written to, and the reason."""

    key: Hashable
    name: Any
    target: Any
    reason: str


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
    explain_s : float
        Seconds of a round to look for what follows these reasons.
    """

    def __init__(self, most: int, explain_s: float) -> None:
        self._most, self._explain_s, self._last = most, explain_s, dict[Hashable, _Written]()

    def write(
        self,
        jobs: Sequence[Waiting],
        more: Callable[[set[str], Timer], Mapping[str, tuple[str, ...]]],
        send: Callable[[Any, str], bool],
        until_s: float,
        stop: Event,
    ) -> str:
        """Write the reasons that are due, by a time of the monotonic clock, if there is any left.

        Parameters
        ----------
        jobs : sequence of Waiting
            Those that have waited longest come first.
        more : callable
            What follows the reasons of some jobs, by name, found within a timer's time.
        send : callable
            Writes a reason to a target; False where no more can be written now.
        stop : threading.Event
            Ends the writing.

        Returns
        -------
        str
            What was wrong where nothing could be found to follow; else empty.
        """
        begun_s, failed = time.monotonic(), ""
        due, found = self.due(jobs, begun_s), dict[str, tuple[str, ...]]()
        timer = Timer(max(0.0, min(self._explain_s, until_s - begun_s)))
        try:
            found |= more({str(job.name) for job in due}, timer) if due else {}
        except Exception as error:  # reasons alone are better than no round
            failed = f"{type(error).__name__}: {error}"
        end_s = max(until_s, begun_s + WRITING_S)
        for job in due:
            text = bounded(job.reason, *found.get(str(job.name), ()))
            if stop.is_set() or time.monotonic() > end_s or not send(job.target, text):
                break
            self.note(job, text, begun_s)
        return failed

    def due(self, jobs: Sequence[Waiting], now_s: float) -> list[Waiting]:
        """Return the jobs whose reason is to be written now, those first that have none, then the longest.

        Jobs that are not among these are forgotten. Of jobs without a reason, the first come first.
        """
        self._last = {job.key: self._last[job.key] for job in jobs if job.key in self._last}
        due = [job for job in jobs if self._is_due(job, now_s)]
        never_s = float("-inf")
        due.sort(key=lambda job: self._last[job.key].time_s if job.key in self._last else never_s)
        return due[: self._most]

    def _is_due(self, job: Waiting, now_s: float) -> bool:
        """True if a job has no reason yet, or another one than was written some time ago."""
        if (last := self._last.get(job.key)) is None:
            return True
        pause_s = SAME_KIND_S if last.text.kind == kind_of(job.reason) else AGAIN_S
        return last.reason != job.reason and now_s >= last.time_s + pause_s

    def note(self, job: Waiting, text: Reason, now_s: float) -> None:
        """Note that a job's reason was written, in the words of a text."""
        self._last[job.key] = _Written(job.reason, text, now_s)

    def text_of(self, job: Waiting) -> str:
        """Return the words in which a job's reason was written, or the reason if another one was."""
        last = self._last.get(job.key)
        return last.text if last is not None and last.reason == job.reason else job.reason


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
