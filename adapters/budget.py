"""The power cap over time: a number, or a file that may change while we run; and where it is not known.

The file is a signal (`instances.signals`) of the site and its power domains, or a list of the site's changes.
Watts stand by the name of the power domain, and by '' for the site.

One rule for what is not known: what runs goes on, nothing starts, and an alarm is told. Where the site states
a fail-safe cap, it counts after a minute.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from wattsched.instances.errors import InputError, validated
from wattsched.instances.io import read_json
from wattsched.instances.signals import Moment, PowerLimit, Signal
from wattsched.topology.fields import Positive, Strict

GRACE_S = 60.0
"""So long the cap is not known before a fail-safe cap counts: a file may be missing for a moment."""
AGREE_S, BELIEVED_S = 2.0, 3600.0
"""Seconds that two clocks may differ, and after which a clock that was set is believed."""


class Change(Strict):
    """Watts from a time on; times have a zone: ``2027-01-31T17:00:00Z``."""

    at: Moment
    power_w: Positive


def _ordered(changes: list[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: change.at)


class Caps(Strict):
    """The file: watts now, announced changes, and until when it counts."""

    power_w: Positive
    changes: Annotated[list[Change], AfterValidator(_ordered)] = Field(default_factory=list)
    until: Moment | None = None

    @property
    def limit(self) -> PowerLimit:
        """Cap over time."""
        begin_s = np.array([-np.inf, *(change.at.timestamp() for change in self.changes)])
        watts = np.array([self.power_w, *(change.power_w for change in self.changes)])
        kept = np.append(np.diff(begin_s) > 0, True)  # Of changes at one time the last counts.
        begin_s, watts = begin_s[kept], watts[kept]
        return PowerLimit(np.inf, begin_s, np.append(begin_s[1:], np.inf), watts, watts)


class Stated(NamedTuple):
    """Limits over time that a document states, until when it counts, and what to tell of it."""

    limits: Mapping[str, PowerLimit] = {}
    until: datetime | None = None
    notes: tuple[str, ...] = ()


def stated(document: Any, file: str, domains: Collection[str] = ()) -> Stated:
    """Read the document of a cap: a signal, by any field that only signals have; refuse other domains."""
    of_signal = Signal.model_fields.keys() - Caps.model_fields.keys()
    if not (isinstance(document, dict) and document.keys() & of_signal):
        caps = validated(Caps, document, file)
        return Stated({"": caps.limit}, caps.until)
    signal = validated(Signal, document, file)
    if signal.power_w is None and "limits" not in signal.model_fields_set:
        raise InputError(["needs 'power_w' or 'limits': it limits nothing"], file)
    wishes = sum(one.worth_per_kwh is not None for one in signal.limits)
    notes = {
        f"{file}: {wishes} of {len(signal.limits)} limits are wishes, which limit nothing here": wishes > 0,
        f"{file}: has no firm limit": signal.power_w is None and wishes == len(signal.limits),
    }
    told = tuple(note for note, holds in notes.items() if holds)
    return Stated(signal.limits_on(domains, file), signal.until, told)


class Cap(NamedTuple):
    """The caps at a moment, by power domain; that of the site, '', is always there, infinite for none.

    Attributes
    ----------
    now_w : mapping of str to float
        Watts that may be drawn now.
    soon_w : mapping of str to float
        The least of now and of the cuts that are announced for the next time.
    later_w : mapping of str to float
        The least of these and of the cuts that what starts now has to outlast.
    unknown : str
        Why the cap is not known, so that nothing may start; empty where it is.
    alarms : tuple of str
        What an operator has to see to.
    next_s, next_w : mapping of str to float
        When each cap changes next, in seconds since 1970, and its watts then.
    notes : tuple of str
        What else an operator should know of the caps.
    """

    now_w: Mapping[str, float]
    soon_w: Mapping[str, float]
    later_w: Mapping[str, float]
    unknown: str = ""
    alarms: tuple[str, ...] = ()
    next_s: Mapping[str, float] = {}
    next_w: Mapping[str, float] = {}
    notes: tuple[str, ...] = ()

    @property
    def cut_later(self) -> bool:
        """True if less may be drawn under some cap later than soon."""
        return any(watts < self.soon_w[name] for name, watts in self.later_w.items())

    def cuts(self, before: Cap) -> bool:
        """Return True if less may be drawn now under any cap than `before`."""
        return any(watts < before.now_w.get(name, math.inf) for name, watts in self.now_w.items())


@dataclass
class Budget:
    """The cap, read anew each time it is asked for; safe from several threads.

    A clock that is set does not move the changes of a file: for an hour the least cap of all times from the
    old time to the new one counts.

    Attributes
    ----------
    power_w : float, optional
        Cap without a file; None is no limit.
    file : str, optional
        JSON of `Caps`, or of a `Signal`.
    source : callable, optional
        Reads such JSON from elsewhere, instead of the file; `file` names it then.
    ahead_s : float
        Announced cuts count that long before: jobs need time to stop.
    lasting_s : float
        Nothing starts that a cut that is announced for so many seconds would stop.
    fail_safe_w : float, optional
        Cap on the site that counts when the file's has not been known for `GRACE_S`.
    domains : collection of str
        Power domains of the site, which a signal may limit.
    clock, monotonic : callable
        Seconds since 1970, and seconds of a clock that nobody sets.
    """

    power_w: float | None = None
    file: str | None = None
    ahead_s: float = 60.0
    lasting_s: float = 0.0
    source: Callable[[], Any] | None = None
    fail_safe_w: float | None = None
    domains: Collection[str] = ()
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _last: Stated | None = None
    _stands: tuple[str, ...] = ()
    # `clock` less `monotonic` before the clock was set; since when it differs, and since when the cap is not
    # known, both by `monotonic`.
    _anchor_s: float = math.nan
    _set_since_s: float = math.inf
    _unknown_since_s: float = math.inf
    _reading: Lock = field(default_factory=Lock)

    def stand_at(self, time_s: float) -> None:
        """Take it to be a time of the past for good, such as that of a saved snapshot."""
        self.clock = self.monotonic = lambda: time_s
        at = datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")
        self._stands = (f"{self.file}: read as at {at}, the time of the snapshot",)

    def cap(self) -> Cap:
        """Watts that may be drawn now, and soon.

        Raises
        ------
        InputError
            For a file that could not be read even once or is out of date, where there is no fail-safe cap.
        """
        if self.file is None:
            power_w = self.least_w(0.0)
            return Cap(power_w, power_w, power_w)
        with self._reading:
            return self._of_file(self.file)

    def least_w(self, for_s: float) -> dict[str, float]:
        """Return the least watts under each cap for some seconds from now on, by what was read last."""
        if self.file is None:
            return {"": math.inf if self.power_w is None else self.power_w}
        first_s, last_s, _ = self._times()
        limits = (self._last or Stated()).limits
        least_w = {
            name: limit.least_from(first_s, last_s - first_s + for_s) for name, limit in limits.items()
        }
        return {"": math.inf} | least_w

    def _of_file(self, file: str) -> Cap:
        """Cap by the file, or by what it said last where it cannot be read; messages name it `file`."""
        unknown, first = "", self._last is None and self.fail_safe_w is None
        try:
            document = read_json(file) if self.source is None else self.source()
            self._last = stated(document, file, self.domains)
        except InputError as error:
            if first:
                raise
            unknown = "; ".join(error.faults)
        _, last_s, alarms = self._times()
        limits, until, notes = self._last or Stated()
        if not unknown and until is not None and last_s >= until.timestamp():
            unknown = f"it counted until {until.isoformat()}"
            if first:
                self._last = None
                raise InputError([f"until: {unknown}"], file)
        now_w, soon_w, later_w = map(self.least_w, (0.0, self.ahead_s, max(self.ahead_s, self.lasting_s)))
        self._unknown_since_s = min(self._unknown_since_s, self.monotonic()) if unknown else math.inf
        if unknown:
            text = f"the cap is not known ({file}: {unknown}): nothing starts, and what it said still counts"
            if self.fail_safe_w is not None:
                text += f", from {GRACE_S:.0f} s on at most {self.fail_safe_w:,.0f} W"
                if self.monotonic() >= self._unknown_since_s + GRACE_S:
                    for watts in (now_w, soon_w, later_w):
                        watts[""] = min(watts[""], self.fail_safe_w)
            alarms.append(text)
        changes = {name: limit.next_change(last_s) for name, limit in limits.items()}
        then = [{name: one[part] for name, one in changes.items() if one} for part in (0, 1)]
        return Cap(now_w, soon_w, later_w, unknown, tuple(alarms), then[0], then[1], notes + self._stands)

    def _times(self) -> tuple[float, float, list[str]]:
        """The first and the last time that it may be now, in seconds since 1970, and alarms of the clock."""
        time_s, run_s = self.clock(), self.monotonic()
        if math.isnan(self._anchor_s):
            self._anchor_s = time_s - run_s
        set_s = time_s - run_s - self._anchor_s
        if abs(set_s) <= AGREE_S:
            self._set_since_s = math.inf
            return time_s, time_s, []
        self._set_since_s = min(self._set_since_s, run_s)
        if run_s >= self._set_since_s + BELIEVED_S:
            self._anchor_s, self._set_since_s = time_s - run_s, math.inf
            return time_s, time_s, []
        text = f"the clock was set {'forward' if set_s > 0 else 'back'} by {abs(set_s):,.0f} s"
        text += f": the least cap of both times counts for {BELIEVED_S / 60:.0f} minutes"
        return min(time_s, time_s - set_s), max(time_s, time_s - set_s), [text]
