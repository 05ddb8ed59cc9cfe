"""Schedules found so far, each of them once."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import IntArray
from wattsched.formulations.shifting.schedule import Schedules


class SchedulePool:
    """Keeps schedules that break no deadline."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, bytes], int] = {}
        self._parts: list[Schedules] = []

    def __len__(self) -> int:
        return len(self._number)

    def add(self, schedules: Schedules) -> Schedules:
        """Keep those that are new, and return them."""
        new = []
        for position, valid in enumerate(np.isfinite(schedules.finish_s).tolist()):
            key = _key(schedules, position)
            if valid and key not in self._number:
                self._number[key] = len(self._number)
                new.append(position)
        kept = schedules.take(np.array(new, dtype=np.int64))
        self._parts.append(kept)
        return kept

    def numbers(self, schedules: Schedules) -> IntArray | None:
        """Numbers of schedules in `all`, None when one is not there."""
        found = [self._number.get(_key(schedules, i)) for i in range(len(schedules))]
        return None if None in found else np.array(found, dtype=np.int64)

    def all(self) -> Schedules:
        """All of them, the oldest first."""
        self._parts = [Schedules.joined(self._parts)]
        return self._parts[0]


def _key(schedules: Schedules, position: int) -> tuple[int, bytes]:
    return int(schedules.job[position]), schedules.option[position].astype(np.int32).tobytes()
