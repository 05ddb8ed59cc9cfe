"""Limits over time, as docs/power.md describes the file of `wattsched replay --signal`.

Comments in quotation marks are sentences of the page. Nothing of the package is imported.
"""

from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

Row = dict[str, Any]


@dataclass
class Limit:
    """A limit of a signal, on the clock of the trace."""

    domain: str
    begin: float
    end: float
    watts: float
    ramp: float | None
    top: float  # where a ramp begins

    def __post_init__(self) -> None:
        # "from `from` on the limit falls by so many watts a second, down to its watts, and from `to` on it
        # rises again at the same rate. Without it, it holds at once"
        steep = 0.0 if self.ramp is None else self.ramp
        deep = max(0.0, self.top - self.watts) if steep else 0.0
        self.down = self.begin + (deep / steep if steep else 0.0)
        self.lowest = self.top - min(deep, steep * (self.end - self.begin)) if deep else self.watts
        self.up = self.end + ((self.top - self.lowest) / steep if deep else 0.0)

    @property
    def moments(self) -> list[float]:
        """The times at which the limit or its slope changes."""
        return [t for t in (self.begin, self.down, self.end, self.up) if t < inf]

    def line(self, moment: float) -> tuple[float, float]:
        """The limit at a moment other than the above, and its slope."""
        if not self.begin < moment < self.up:
            return inf, 0.0
        if moment < min(self.down, self.end):
            return self.top - self.ramp * (moment - self.begin), -self.ramp
        if moment < self.end:
            return self.watts, 0.0
        return self.lowest + self.ramp * (moment - self.end), self.ramp


class Limits:
    """All limits of a signal; times count from the first arrival."""

    def __init__(self, signal: Row | None):
        document = signal["document"] if signal else {}
        # "ramps begin there, or at `power_w` if that is lower"
        self.always = document.get("power_w") or inf
        baseline = document.get("baseline_w") or inf
        start = signal and signal["start"]
        self.limits = []
        for of in document.get("limits", []):
            if of.get("worth_per_kwh") is not None:
                continue  # "Wishes are read, and limit nothing yet."
            watts = of["power_w"] if of.get("power_w") is not None else of["share"] * baseline
            begin, end = seconds(of["from"], start), seconds(of["to"], start) if of.get("to") else inf
            top = min(self.always, baseline)
            self.limits.append(Limit(of.get("domain") or "", begin, end, watts, of.get("ramp_w_per_s"), top))

    @property
    def ramps(self) -> bool:
        return any(limit.ramp is not None for limit in self.limits)

    @property
    def domains(self) -> set[str]:
        return {limit.domain for limit in self.limits}

    @property
    def moments(self) -> list[float]:
        return sorted({t for limit in self.limits for t in limit.moments})

    def within(self, cap: str, begin: float, end: float) -> float:
        """The least limit within a period in which no limit changes its slope."""
        # "At every moment the least of `power_w` and of all limits in force holds."
        found = [inf]
        middle = (begin + end) / 2
        for limit in self.limits:
            if limit.domain == cap:
                value, slope = limit.line(middle)
                found.append(value - abs(slope) * (end - begin) / 2)
        return min(found)

    def at(self, cap: str, moment: float) -> float:
        """The limit right after a moment, of a signal without ramps."""
        mine = [x for x in self.limits if x.domain == cap]
        return min([x.watts for x in mine if x.begin <= moment + 1e-9 and x.end > moment + 1e-9], default=inf)

    def final(self, cap: str) -> float:
        """The limit that holds for good in the end."""
        return min([x.watts for x in self.limits if x.domain == cap and x.end == inf], default=inf)

    def settled(self) -> float:
        """Time from which all limits that hold for good do so."""
        return max([x.down for x in self.limits if x.end == inf], default=-inf)

    def stated(self, cap: str) -> float:
        return min([x.watts for x in self.limits if x.domain == cap], default=inf)

    def lowest(self, cap: str) -> float:
        """The least limit that comes about at any time."""
        return min([x.lowest for x in self.limits if x.domain == cap], default=inf)


def seconds(moment: str, start: str) -> float:
    return (datetime.fromisoformat(moment) - datetime.fromisoformat(start)).total_seconds()
