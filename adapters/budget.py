"""The power cap over time: a number, or a file that may change while we run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from wattsched.instances.errors import InputError, shown, validated
from wattsched.instances.io import read_json
from wattsched.topology.fields import Positive, Strict


def _time(value: Any) -> Any:
    """A time of JSON, which is text there."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"must be a time as 2027-01-31T17:00:00Z, got {shown(value)}") from None


class Change(Strict):
    """Watts from a time on; times have a zone: ``2027-01-31T17:00:00Z``."""

    at: Annotated[AwareDatetime, BeforeValidator(_time)]
    power_w: Positive


def _ordered(changes: list[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: change.at)


class Caps(Strict):
    """The file: watts now, and announced changes."""

    power_w: Positive
    changes: Annotated[list[Change], AfterValidator(_ordered)] = Field(default_factory=list)

    def at(self, time_s: float) -> float:
        """Watts at a time, in seconds since 1970."""
        past = [change.power_w for change in self.changes if change.at.timestamp() <= time_s]
        return past[-1] if past else self.power_w

    def least(self, time_s: float, ahead_s: float) -> float:
        """Least watts from a time on, for `ahead_s` seconds."""
        inside = [c.power_w for c in self.changes if time_s < c.at.timestamp() <= time_s + ahead_s]
        return min([self.at(time_s), *inside])


@dataclass
class Budget:
    """The cap, read anew each time it is asked for.

    Attributes
    ----------
    power_w : float, optional
        Cap without a file; None is no limit.
    file : str, optional
        JSON of `Caps`.
    source : callable, optional
        Reads such JSON from elsewhere, instead of the file; `file` names it then.
    ahead_s : float
        Announced cuts count that long before: jobs need time to stop.
    note : str
        Why the file could not be read the last time; what it said before still counts.
    """

    power_w: float | None = None
    file: str | None = None
    ahead_s: float = 60.0
    note: str = ""
    source: Callable[[], Any] | None = None
    _last: Caps | None = None

    def cap_w(self, time_s: float) -> float:
        """Watts that may be drawn now, and soon.

        Raises
        ------
        InputError
            For a file that could not be read even once.
        """
        if self.file is None:
            return math.inf if self.power_w is None else self.power_w
        try:
            document = read_json(self.file) if self.source is None else self.source()
            self._last, self.note = validated(Caps, document, self.file), ""
        except InputError as error:
            if self._last is None:
                raise
            self.note = f"{self.file}: {'; '.join(error.faults)}; what it said before still counts"
        return self._last.least(time_s, self.ahead_s)
