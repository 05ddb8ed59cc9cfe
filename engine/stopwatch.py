"""Seconds of a call: how long each phase took, and what is left of the limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Stopwatch:
    """Base of a call's state; the time runs from its making."""

    begin: float = field(default_factory=time.perf_counter)
    time_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.time_s[name] = self.time_s.get(name, 0.0) + time.perf_counter() - begin

    def left_s(self, limit_s: float | None) -> float | None:
        """Seconds left of a limit, at least a few milliseconds; None without a limit."""
        if limit_s is None:
            return None
        return max(0.01, limit_s - (time.perf_counter() - self.begin))

    def stopped_s(self) -> dict[str, float]:
        """Seconds by phase, with the total until now."""
        self.time_s["total"] = time.perf_counter() - self.begin
        return dict(self.time_s)
