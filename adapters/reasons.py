"""Reasons why jobs wait, as their owners read them: which of them are written in a round, and in which words.

A reason that is new is written at once, one of the same kind with other numbers only after a while. So few
are written in a round that neither the scheduler nor the round notices, however many jobs wait.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

from wattsched.adapters.rounds import Reason
from wattsched.explaining.explain import smaller_requests
from wattsched.instances.sizing.explanation import Alternative
from wattsched.reading.inputs import printable
from wattsched.report.explanation import words_of
from wattsched.report.wording import count
from wattsched.sessions.session_decision import SessionDecision

KeyT = TypeVar("KeyT", bound=Hashable)

AGAIN_S, SAME_KIND_S = 60.0, 600.0
"""Least seconds between two reasons of a job: of another kind, and of the same kind with other numbers."""
LONGEST, MOST_WAYS = 200, 2
"""Characters of a reason, and changes with which a job would start that it names."""
RESTRICTIONS = ("gpu_counts", "frequencies_mhz", "power_limits_w", "batch_sizes")
"""Lists of a job that its owner can make longer."""
EXPLAINED = ("room", "power", "quota", "order")
"""Kinds of reasons of jobs that the decision lets wait."""


class _Written(NamedTuple):
    kind: str
    reason: str
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
        pause_s = SAME_KIND_S if last.kind == kind_of(reason) else AGAIN_S
        return last.reason != reason and now_s >= last.time_s + pause_s

    def note(self, key: Hashable, reason: str, now_s: float) -> None:
        """Note that a job's reason was written, perhaps with more words."""
        self._last[key] = _Written(kind_of(reason), reason, now_s)


def kind_of(reason: str) -> str:
    """Kind of a reason, as of `Reason`."""
    return getattr(reason, "kind", "postponed")


def bounded(reason: str, more: str = "") -> Reason:
    """Return a reason as it is written, on one line; `more` is added where there is room for all of it."""
    text = f"{reason}; {more}" if more and len(f"{reason}; {more}") <= LONGEST else reason
    text = printable(text)
    return Reason(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...", kind_of(reason))


def ways_of(decision: SessionDecision, job: str, time_limit: float) -> str:
    """Say with which other request a waiting job would start now; '' where none is found in time.

    Only what the job's owner can change is told. Pools are none of it: they follow from nodes and partitions.
    """
    found = smaller_requests(
        decision.instance, decision.brief, job, restrictions=RESTRICTIONS, time_limit=time_limit
    )
    ways = [
        count(_gpus(one, job), "GPU") if "gpu_counts" in one.change.lifted else words_of(one) for one in found
    ]
    return f"would start now with {', or with '.join(ways[:MOST_WAYS])}" if ways else ""


def _gpus(one: Alternative, job: str) -> int:
    """GPUs that a job has in an alternative."""
    return sum(own.gpus for own in one.decision.jobs if own.job == job)
