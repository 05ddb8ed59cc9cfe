"""One user's job stops nobody: whatever its text raises is why that job waits, and expanding has an end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import TypeVar

from pydantic import ValidationError

from wattsched.instances.errors import InputError
from wattsched.reading.inputs import echo

NameT = TypeVar("NameT", bound=Hashable)

_SHARE = 0.3
"""Part of a decision's time in which jobs are looked at; the rest is for deciding."""
_LEAST = 0.25
"""Part of it that a decision has in any case."""

_ROW_S, _JOB_ROWS = 2e-5, 5
"""Seconds in which a session takes a row of a job's options, and rows that a job itself counts for."""


def why(error: Exception) -> str:
    """Say why a job waits whose text raised something, also where nobody thought of it."""
    if isinstance(error, InputError):
        return error.faults[0] if len(error.faults) == 1 else "; ".join(error.faults)
    text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    message = echo(" ".join(text.split()), quote="", most=200)
    return f"what it says cannot be used ({type(error).__name__}{': ' * bool(message)}{message})"


@contextmanager
def alone(name: NameT, left_out: dict[NameT, str]) -> Iterator[None]:
    """Leave one job out, with its reason, for whatever a step that looks at it raises."""
    try:
        yield
    except Exception as error:
        left_out[name] = why(error)


def in_turn(users: Mapping[NameT, str], seed: float) -> list[NameT]:
    """Jobs in an order that is fair to their `users`: one job of each, then another of each.

    Who is first, and with which job, is another one for every seed, such as the time of a round.
    """
    names = list(users)
    random.Random(seed).shuffle(names)
    before, turn = Counter[str](), dict[NameT, int]()
    for name in names:
        turn[name] = before[users[name]]
        before[users[name]] += 1
    return sorted(names, key=turn.__getitem__)


class Clock:
    """The seconds that a round has to decide: a part of them is for looking at what jobs say."""

    def __init__(self, deadline_s: float = inf) -> None:
        self._deadline_s, self._begun_s, self._spent_s = deadline_s, time.monotonic(), 0.0

    @property
    def left_s(self) -> float:
        """Seconds that are left for the decision."""
        return max(_LEAST * self._deadline_s, self._begun_s + self._deadline_s - time.monotonic())

    def spend(self, rows: int) -> None:
        """Count what it will take to tell the session of a job with so many options."""
        self._spent_s += _ROW_S * (_JOB_ROWS + rows)

    def require_time(self) -> None:
        """Refuse a job that there is no time to look at."""
        if time.monotonic() - self._begun_s + self._spent_s > _SHARE * self._deadline_s:
            raise InputError(["was not looked at in this round: those before it took all the time for that"])
