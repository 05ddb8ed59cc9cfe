"""Wall-clock time that is left."""

from __future__ import annotations

import time


class Clock:
    """Counts down from a limit in seconds; None never runs out."""

    def __init__(self, time_s: float | None) -> None:
        self._end = None if time_s is None else time.monotonic() + time_s

    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; None when there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def over(self) -> bool:
        """Whether the limit is reached."""
        return self.remaining_s() == 0.0
