"""Signals of a utility or a facility: limits on the draw over time, with ramps, notice and worth.

A signal is a JSON document, ``wattsched-signal/1``, or a CSV file with the columns ``from``, ``to`` and
``power_w``. At every moment the least of the standing limit and of all limits in force holds. A limit with a
ramp falls from what held before it, from its begin on, and rises again after its end, so many watts a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, model_validator

from wattsched.instances.errors import InputError, refuse, shown, validated
from wattsched.instances.io import read_json
from wattsched.reading.inputs import meant, notice
from wattsched.reading.tables import LARGEST, Row, bounded, rows_of, text_in
from wattsched.reading.units import Numbers, watts_column
from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import Name, NonNegative, Positive, Strict

FORMAT: Literal["wattsched-signal/1"] = "wattsched-signal/1"
MOST_LIMITS = 10_000
COLUMNS = ("from", "to", "power_w")
OPTIONAL, TEXTS = ("notice_s", "worth_per_kwh", "domain"), ("from", "to", "domain")
MOST_STEPS = 10_000
"""Steps that a ramp becomes at most."""


def _time(value: Any) -> Any:
    """Parse a time of JSON, which is a text there; refuse one without a zone."""
    try:
        found = value if isinstance(value, datetime | NoneType) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"must be a time as 2027-01-31T17:00:00Z, got {shown(value)}") from None
    if found is not None and found.tzinfo is None:
        raise ValueError(f"must have a zone, as 2027-01-31T17:00:00Z has, got {shown(value)}")
    return found


Moment = Annotated[AwareDatetime, BeforeValidator(_time)]
"""A time with a zone."""


class Limit(Strict):
    """A limit on the draw for some time.

    Attributes
    ----------
    begin, to : datetime
        From when, as ``from`` in files, to when it holds; for good without an end.
    power_w : float, optional
        The limit; or `share` of the signal's baseline.
    ramp_w_per_s : float, optional
        By so much the limit falls from its begin on, and rises after its end; at once without it.
    notice_s : float
        It is known so long before it begins.
    worth_per_kwh : float, optional
        Makes it a wish: what not drawing a kWh earns. A limit without is firm.
    domain : str, optional
        Power domain whose draw it limits; the whole site without one.
    """

    model_config = ConfigDict(populate_by_name=True)

    begin: Moment = Field(alias="from")
    to: Moment | None = None
    power_w: Positive | None = None
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    ramp_w_per_s: Positive | None = None
    notice_s: NonNegative = 0.0
    worth_per_kwh: NonNegative | None = None
    domain: Name | None = None

    @property
    def end_s(self) -> float:
        """Seconds since 1970 at its end; infinite without one."""
        return np.inf if self.to is None else self.to.timestamp()

    @model_validator(mode="after")
    def _one_amount(self) -> Self:
        if (self.power_w is None) == (self.share is None):
            raise ValueError("needs either 'power_w' or 'share'")
        if self.to is not None and self.to <= self.begin:
            raise ValueError(f"to: must be after from, {self.begin.isoformat()}, got {self.to.isoformat()}")
        return self


class Signal(Strict):
    """A document of limits.

    Attributes
    ----------
    power_w : float, optional
        Standing limit on the site.
    baseline_w : float, optional
        What would be drawn without limits: shares are of it, and ramps begin there without a standing limit.
    limits : list of Limit
    until : datetime, optional
        When the document is out of date.
    """

    format: Literal["wattsched-signal/1"] = FORMAT
    name: Name = "signal"
    power_w: Positive | None = None
    baseline_w: Positive | None = None
    limits: Annotated[list[Limit], Field(max_length=MOST_LIMITS)] = Field(default_factory=list)
    until: Moment | None = None

    @model_validator(mode="after")
    def _shares_have_a_baseline(self) -> Self:
        before_w = (self.baseline_w, self.power_w)
        refuse(
            f"limits[{n}]: {needs}"
            for n, one in enumerate(self.limits)
            for needs, lacks in (
                ("'share' needs 'baseline_w'", one.share is not None and self.baseline_w is None),
                (
                    "'ramp_w_per_s' needs 'baseline_w' or 'power_w', from which it falls",
                    one.ramp_w_per_s is not None and before_w == (None, None),
                ),
                (
                    "'share' and 'ramp_w_per_s' are of the whole site, not of a domain",
                    one.domain is not None and (one.share, one.ramp_w_per_s) != (None, None),
                ),
            )
            if lacks
        )
        return self

    @property
    def domains(self) -> list[str | None]:
        """Power domains with limits, None for the whole site, which comes first."""
        found = dict.fromkeys(one.domain for one in self.limits)
        return [*[None] * (self.power_w is not None or None in found), *(d for d in found if d is not None)]

    def limit(self, domain: str | None = None) -> PowerLimit:
        """Return the firm limit on the site's draw, or on that of a power domain, over time."""
        before_w = min((w for w in (self.baseline_w, self.power_w) if w is not None), default=np.inf)
        pieces = [
            piece
            for one in self.limits
            if one.domain == domain and one.worth_per_kwh is None
            for piece in _pieces(one, self.watts(one), before_w)
        ]
        standing_w = np.inf if self.power_w is None or domain is not None else self.power_w
        return PowerLimit(standing_w, *np.array(pieces, dtype=float).reshape(-1, 4).T)

    def limits_on(self, domains: Collection[str], source: str = "") -> dict[str, PowerLimit]:
        """Return the firm limits by power domain, that of the site by ''; refuse domains other than these.

        Raises
        ------
        InputError
            With every limit of another domain, in the file `source`.
        """
        told = "is no power domain of the cluster" + ("" if domains else ", which has none")
        if faults := [
            f"limits[{n}].domain: '{one.domain}' {told}{meant(one.domain, domains)}"
            for n, one in enumerate(self.limits)
            if one.domain and one.domain not in domains
        ]:
            raise InputError(faults, source)
        return {domain or "": self.limit(domain) for domain in dict.fromkeys([None, *self.domains])}

    def require_limits(self, source: str, begin_s: float, end_s: float = np.inf, hint: str = "") -> None:
        """Refuse a signal without limits, and give a notice of limits that limit nothing from a time on."""
        if not self.domains:
            raise InputError(["has no limits"], source)
        wishes, told = sum(one.worth_per_kwh is not None for one in self.limits), list[str]()
        if wishes:
            told += [f"{wishes:,} of {len(self.limits):,} limits are wishes, and limit nothing{hint}"]
        limits = [self.limit(domain) for domain in self.domains]
        hold = any(((one.begin_s < end_s) & (one.end_s > begin_s)).any() for one in limits)
        if not hold and wishes < len(self.limits):
            which = "no limit" if self.power_w is None else "no limit but power_w"
            told += [f"{which} holds in the time of the jobs, from {datetime.fromtimestamp(begin_s, UTC)} on"]
        if self.until is not None and self.until.timestamp() <= begin_s:
            told += [f"it counted until {self.until.isoformat()}, and is kept all the same"]
        for line in told:
            notice(f"{source}: assumed: {line}")

    def granting(self, wish: Limit | None = None) -> Signal:
        """Return the signal with one of its wishes, or with all, as firm limits."""
        firm = {"worth_per_kwh": None}
        limits = [one.model_copy(update=firm) if wish in (None, one) else one for one in self.limits]
        return self.model_copy(update={"limits": limits})

    def watts(self, limit: Limit) -> float:
        """Watts of a limit, also of one that is a share of the baseline."""
        return limit.power_w if limit.power_w is not None else (limit.share or 0.0) * (self.baseline_w or 0.0)


def _pieces(limit: Limit, power_w: float, before_w: float) -> Iterator[tuple[float, float, float, float]]:
    """Yield the straight lines of a limit: begin, end, watts at the begin, watts at the end."""
    begin_s, end_s = limit.begin.timestamp(), limit.end_s
    if limit.ramp_w_per_s is None or before_w <= power_w:
        yield begin_s, end_s, power_w, power_w
        return
    falls_s = (before_w - power_w) / limit.ramp_w_per_s
    low_s = min(begin_s + falls_s, end_s)
    low_w = before_w - limit.ramp_w_per_s * (low_s - begin_s)
    yield begin_s, low_s, before_w, low_w
    if low_s < end_s:
        yield low_s, end_s, power_w, power_w
    if np.isfinite(end_s):
        yield end_s, end_s + (before_w - low_w) / limit.ramp_w_per_s, low_w, before_w


@dataclass(frozen=True)
class PowerLimit:
    """Watts that may be drawn over time: a standing limit, and straight lines of which the least holds.

    Attributes
    ----------
    standing_w : float
        Infinite for none.
    begin_s, end_s, begin_w, end_w : float arrays, shape (n_lines,)
        Seconds since 1970, and watts at both ends; between them they go straight.
    """

    standing_w: float
    begin_s: FloatArray
    end_s: FloatArray
    begin_w: FloatArray
    end_w: FloatArray

    def least(self, from_s: FloatArray, to_s: FloatArray) -> FloatArray:
        """Least limit from each time up to before another, shape (n,)."""
        found = np.full(len(from_s), self.standing_w)
        for begin_s, end_s, begin_w, end_w in self._lines():
            # A line is least where it begins or ends.
            low_s, high_s = np.maximum(from_s, begin_s), np.minimum(to_s, end_s)
            slope = (end_w - begin_w) / (end_s - begin_s)
            ramp_w = begin_w + slope * (np.where(slope < 0, high_s, low_s) - begin_s) if slope else begin_w
            # Seconds since 1970 are exact to some 1e-7, so a ramp is to 10 microwatts.
            ends_w = np.maximum(np.round(ramp_w, 5), min(begin_w, end_w)) if slope else begin_w
            found = np.where(low_s < high_s, np.minimum(found, ends_w), found)
        return found

    def least_from(self, time_s: float, ahead_s: float = 0.0) -> float:
        """Least limit at a time and for some seconds after it."""
        return float(self.least(np.array([time_s]), np.nextafter([time_s + ahead_s], np.inf))[0])

    def next_change(self, time_s: float) -> tuple[float, float] | None:
        """Return when the limit next becomes another after a time, and its watts (at the end of a ramp)."""
        for at_s in np.unique([*self.begin_s, *self.end_s]).tolist():
            if time_s < at_s < np.inf:
                holds = (self.begin_s <= at_s) & (at_s < self.end_s)
                watts = float(min([self.standing_w, *self.end_w[holds]]))
                if not np.isclose(watts, self.least_from(np.nextafter(at_s, -np.inf))):
                    return at_s, watts
        return None

    def _lines(self) -> Iterator[tuple[float, float, float, float]]:
        columns = (self.begin_s, self.end_s, self.begin_w, self.end_w)
        return zip(*(column.tolist() for column in columns), strict=True)

    def steps(self, step_s: float = 60.0) -> tuple[FloatArray, FloatArray]:
        """Times from which on the limit is another, and its watts, the first before all others.

        A line that falls or rises becomes steps of `step_s` seconds, none above it.
        """
        cuts = [np.array([-np.inf]), self.begin_s, self.end_s]
        cuts += [
            np.arange(begin, end, max(step_s, (end - begin) / MOST_STEPS))
            for begin, end, *watts in self._lines()
            if len({*watts}) > 1
        ]
        time_s = np.unique(np.concatenate(cuts))
        time_s = time_s[time_s < np.inf]
        watts = self.least(time_s, np.append(time_s[1:], np.inf))
        changes = np.append(True, np.diff(watts) != 0)
        return time_s[changes], watts[changes]


def read_signal(path: str | Path) -> Signal:
    """Read a signal, JSON or CSV by the file's name.

    Raises
    ------
    InputError
        With the place in the file.
    OSError
        When it cannot be read.
    """
    source = str(path)
    if not source.removesuffix(".gz").endswith(".csv"):
        return validated(Signal, read_json(path), source)
    try:
        limits = [*_limits(rows_of(path, COLUMNS[:1], (*COLUMNS[1:], *OPTIONAL)), source)]
    except ValueError as error:
        raise InputError([str(error).removeprefix(source).lstrip(",: ")], source) from None
    return validated(Signal, {"limits": limits}, source)


def _limits(rows: Iterator[Row], source: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of the limit in each row of a CSV file; an empty cell is none."""
    found: tuple[str, Numbers] | None = None
    for row in rows:
        power, watts = found = found or watts_column(row.cells, row.place)
        if strange := [name for name in row.cells if name not in (*COLUMNS[:2], power, *OPTIONAL)]:
            raise row.fault(strange[0], f"is not read; read are {', '.join((*COLUMNS, *OPTIONAL))}")
        if row.forms == {} and watts.stated and watts("1") > 1 and "," in row.cells[power]:
            row.forms[power] = None, ","  # Of kilowatts three decimals are watts, and no thousands.
            told = "assumed: decimals follow a comma, as semicolons separate cells"
            notice(f"{source}, column '{power}': {told}")
        names = [name for name, text in row.cells.items() if text.strip()]
        readers = dict.fromkeys(TEXTS, text_in) | {power: partial(bounded, least=-LARGEST, read=watts)}
        limit = {name: row.read(name, readers.get(name, partial(bounded, least=-LARGEST))) for name in names}
        yield {"power_w" if name == power else name: value for name, value in limit.items()}
    if found:
        found[1].tell(f"{source}, column '{found[0]}'")
