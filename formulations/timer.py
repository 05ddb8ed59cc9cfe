"""Wall-clock time of a call: what is left of its limit, and what each phase took."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def stoppable(stop: threading.Event) -> Iterator[None]:
    """Let an event stop all timers that are made in this block, and the libraries that run in it."""
    before = _stop.set(stop)
    try:
        yield
    finally:
        with suppress(ValueError):  # what is left of a call that was given up ends in another context
            _stop.reset(before)


def stop_event() -> threading.Event | None:
    """Event that stops what runs here; None where nothing does."""
    return _stop.get()


class Timer:
    """Counts down from a limit in seconds; None never runs out.

    Attributes
    ----------
    limit_s : float, optional
    stopped : threading.Event
        Set when the timer was stopped.
    gap : float
        Relative gap that is asked for: a search that knows a bound may end there.
    phase_s : dict of str to float
        Seconds by phase, in the order of their first beginning; without those of a phase that has not ended.
    """

    def __init__(
        self, limit_s: float | None = None, stopped: threading.Event | None = None, gap: float = 0.0
    ) -> None:
        self.limit_s, self.gap = limit_s, gap
        self._begin = time.monotonic()
        self._end = None if limit_s is None else self._begin + limit_s
        self.stopped = stopped or stop_event() or threading.Event()
        self.phase_s: dict[str, float] = {}
        self._begun: dict[str, float] = {}

    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; None when there is no limit."""
        if self.stopped.is_set():
            return 0.0
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def over(self) -> bool:
        """True if the limit is reached."""
        return self.remaining_s() == 0.0

    def elapsed_s(self) -> float:
        """Seconds since the timer was made."""
        return time.monotonic() - self._begin

    def stop(self) -> None:
        """Be over at once, with every timer that was made from this one."""
        self.stopped.set()

    def set_aside(self, seconds: float) -> None:
        """Be over so much before the limit: what is left then is for what comes after."""
        if self.limit_s is not None:
            self._end = self._begin + self.limit_s - seconds

    def share(self, share: float) -> Timer:
        """Timer for a share of what is left."""
        remaining_s = self.remaining_s()
        return Timer(None if remaining_s is None else share * remaining_s, self.stopped, self.gap)

    def at_most(self, seconds: float) -> Timer:
        """Timer for some seconds of what is left."""
        remaining_s = self.remaining_s()
        return Timer(seconds if remaining_s is None else min(seconds, remaining_s), self.stopped, self.gap)

    def until(self, share: float) -> Timer:
        """Timer that is over when this share of the time up to the limit has passed."""
        whole_s = None if self._end is None else self._end - self._begin
        left_s = None if whole_s is None else max(0.0, share * whole_s - self.elapsed_s())
        return Timer(left_s, self.stopped, self.gap)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of this block to a phase; several blocks add up."""
        begin = self._begun[name] = time.perf_counter()
        self.phase_s.setdefault(name, 0.0)
        try:
            yield
        finally:
            self._begun.pop(name, None)
            self.phase_s[name] += time.perf_counter() - begin

    def seconds(self) -> dict[str, float]:
        """Seconds by phase up to now, those of phases that have not ended among them."""
        now, begun = time.perf_counter(), dict(self._begun)
        return {
            name: taken_s + max(0.0, now - begun.get(name, now))
            for name, taken_s in dict(self.phase_s).items()
        }
