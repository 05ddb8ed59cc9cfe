"""Carbon intensities and prices of electricity from CSV files of times and amounts per kWh or MWh.

Read are the hourly files of the U.S. Energy Information Administration's grids (``avg_CI``) and of
Electricity Maps, its exports (``Datetime (UTC)``, ``Carbon intensity gCO₂eq/kWh (Life cycle)``), tables with
one column per zone, and any file with a column of times and one of numbers; plain or compressed with gzip.
Units that headers or values state are converted (`reading.units`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from wattsched.instances.traces.carbon_columns import USUAL_UNITS, Columns, clock_of, columns_of, zone_in
from wattsched.instances.units import S_PER_H
from wattsched.reading.clocks import LOCAL, MS_PER_S, SECONDS, is_since_1970, moment_s, moments_s
from wattsched.reading.inputs import echo, json_in, listed, naming, notice, number_in, read_text
from wattsched.reading.tables import Row, rows_of, text_in
from wattsched.reading.units import Numbers, Quantity, together, unit_in
from wattsched.topology.arrays import FloatArray

MOST_PER_KWH, FAR = 1_000_000.0, 10.0
REPEATED = 6
"""Equal steps in a row that are the step of the file there; fewer are holes."""
SORT = "sort them; all in UTC; local times without a zone repeat an hour in autumn"
_PLACE = r"(?<![a-z])(?:zone|country|region|area|market|location|hub|node)(?![a-z])"
"""Part of the names of columns that tell where a row's value is of."""
_VAGUE = r"\b(?:local|[ecmp][sd]?t|[cew]es?t|bst|ist|msk|[jkh]st|a[ecwk][sd]t|nz[sd]t)\b"
"""Names of clocks in headers that are of no one zone, or leave open whether it has a summer time."""


@dataclass(frozen=True)
class CarbonTrace:
    """Carbon intensity or price over time.

    Attributes
    ----------
    begin_s : float array, shape (n,)
        Ascending seconds since 1970; a value holds for `step_s` or until the next one begins.
    per_kwh : float array, shape (n,)
        Grams or money; nan where the file has no value.
    step_s : float array, shape (n,)
    source : str
        File and column, for messages.
    currency : str
        Of prices; empty where none is told.
    zoned : bool
        Whether the file tells the zone of its times; without one they are UTC.
    """

    begin_s: FloatArray
    per_kwh: FloatArray
    step_s: FloatArray
    source: str
    currency: str = ""
    zoned: bool = True

    @property
    def begin(self) -> datetime:
        """Time of the first value, in UTC."""
        return datetime.fromtimestamp(float(self.begin_s[0]), tz=UTC)

    def moment(self, text: str) -> datetime:
        """Read a time to be looked up in the file, with a notice if only one of the two has a zone."""
        begin_s, zoned = _utc_s(text)
        if zoned != self.zoned:
            told = "its times have no zone and are UTC" if zoned else f"{echo(text)} has no zone and is UTC"
            notice(f"{self.source}: assumed: {told}")
        return datetime.fromtimestamp(begin_s, UTC)

    def slots(self, begin: datetime, slots: int, slot_s: float) -> list[float]:
        """Mean amounts per kWh in so many slots from a time on; a ValueError if a part has no value."""
        edges = begin.timestamp() + slot_s * np.arange(slots + 1)
        ends = np.minimum(self.begin_s + self.step_s, np.append(self.begin_s[1:], np.inf))
        known = np.isfinite(self.per_kwh)
        begins, ends, values = self.begin_s[known], ends[known], self.per_kwh[known]
        covered_s = _integral(begins, ends, np.ones(len(values)), edges)
        if (short := np.flatnonzero(np.diff(covered_s) < slot_s * (1 - 1e-6))).size:
            slot = int(short[0])
            raise ValueError(
                f"{self.source}: no value for a part of slot {slot}, which begins at {shown(edges[slot])}; "
                f"the file reaches from {shown(self.begin_s[0])} "
                f"to {shown(self.begin_s[-1] + self.step_s[-1])}, "
                f"the horizon of {slots} slots from {shown(edges[0])} to {shown(edges[-1])}"
            )
        return [float(v) for v in np.diff(_integral(begins, ends, values, edges)) / slot_s]


def _integral(begins: FloatArray, ends: FloatArray, values: FloatArray, at: Any) -> FloatArray:
    """Integral up to the times `at` of a step function that is 0 between its steps."""
    times = np.column_stack([begins, ends]).ravel()
    amounts = np.column_stack([np.zeros(len(values)), values * (ends - begins)]).ravel()
    return np.interp(at, times, np.cumsum(amounts)) if len(times) else np.zeros(len(at))


def read_carbon(
    path: str | Path, column: str | None = None, quantity: Quantity = "carbon", *, may_lack: bool = False
) -> CarbonTrace:
    """Read carbon intensities, or prices.

    Parameters
    ----------
    path : str or Path
        CSV file with or without a header, plain or compressed with gzip. A file without one has two columns,
        times and numbers. The newest rows may come first, and rows again. Or an answer of WattTime's (JSON).
    column : str, optional
        Name of the column (default: the first of `INTENSITY_COLUMNS`, the only one besides the times, or the
        only one that states a unit of the quantity).
    may_lack : bool
        The column may be one of another file, where only one here can be meant.
    quantity : {"carbon", "money"}
        Prices may be negative, intensities may not.

    Raises
    ------
    ValueError
        For a file without rows, an unknown column or unit, a cell that is no time or number, a negative
        intensity, a number above `MOST_PER_KWH`, and times that do not ascend, with the line.
    """
    rows = _points(path) if str(path).removesuffix(".gz").endswith(".json") else rows_of(path, ())
    if (first := next(rows, None)) is None:
        raise ValueError(f"{path}: has no rows of times and numbers")
    header, begun = list(first.cells), [first]
    if len(header) == 2 and _is_time(header[0]):
        # No header: what was taken for it is a row.
        begun.insert(0, Row(dict(zip(header, header, strict=True)), f"{path}, line 1"))
        columns = Columns(header[0], header[1])
    else:
        with naming(path):
            columns = columns_of(path, header, column, quantity, may_lack=may_lack)
    time_column, value_column = columns.time, columns.value
    # One row at a time: a table of all zones has a million cells.
    times, values = list[float](), list[float]()
    with naming(path):
        clock, ends = clock_of(time_column)
    named = value_column != first.cells[value_column]
    place = f"{path}, line 1, column {echo(value_column)}"
    with naming(place):
        beside = columns.unit(first.cells, quantity)
        stated = together(unit_in(value_column, quantity) if named else None, beside)
    usual, unit = USUAL_UNITS.get((value_column.lower(), quantity), ""), stated
    with suppress(ValueError):
        unit = together(unit_in(usual, quantity), stated)
    read = Numbers(value_column if named else "", quantity, f"{path}, line 1", unit)
    least = 0.0 if quantity == "carbon" else -MOST_PER_KWH
    zones: set[bool] = set()
    kept, repeated, before = dict[float, int](), 0, first
    for row in _oldest_first(chain(begun, rows), columns, clock, path):
        after_s = times[-1] if times else -math.inf
        time_s, zoned = _time_in(row, columns, clock, after_s)
        content = hash(tuple(row.cells.values()))
        # Without a zone it may be the hour that comes twice in autumn.
        if zoned and time_s <= after_s and kept.get(time_s) == content:
            repeated += 1
            continue
        kept[time_s] = content
        times.append(time_s)
        zones.add(zoned)
        if len(zones) > 1:
            raise row.fault(time_column, "times with and without a zone are mixed")
        known = row.cells[value_column].strip()
        values.append(row.number(value_column, least, MOST_PER_KWH, read) if known else math.nan)
        for name in columns.units:
            if row.cells[name] != first.cells[name]:
                raise row.fault(name, f"is not {echo(first.cells[name])}, as in the first row")
        if len(times) > 1 and times[-1] <= times[-2]:
            told = f"{row.place}: the times do not ascend, {shown(times[-1])} comes after {shown(times[-2])} "
            raise ValueError(f"{told}({_several_places(before, row, time_column) or SORT})")
        before = row
    begin_s = np.array(times)
    step_s = _steps_s(begin_s)
    source = f"{path}, column '{value_column}'"
    if repeated:
        notice(f"{path}: not used: {repeated:,} rows that are the same as earlier ones")
    cell = _year_first(first.cells[time_column], time_column)
    if moment_s(cell)[1] == SECONDS and is_since_1970(number_in(cell) / MS_PER_S):
        notice(f"{path}: assumed: times are milliseconds since 1970")
    if time_column == "point_time" and not read.stated:
        told = "has no unit, and WattTime's are lb/MWh or others: write it into the header, as [lb/MWh]"
        raise ValueError(f"{source}: {told}")
    if ends:
        step_s = _steps_s(-begin_s[::-1])[::-1]
        begin_s = begin_s - step_s
        told = f"the times of '{time_column}' are the ends of steps of {np.median(step_s):g} s"
        told += f", in {clock}" if clock else ""
        notice(f"{path}: assumed: {told}")
    if time_column.lower() == "datum von":
        notice(f"{path}: assumed: the times of '{time_column}' are of {clock}, as SMARD's are")
    if usual and unit and (stated is None or unit[:2] != stated[:2]):
        notice(f"{source}: assumed: in {usual}, as {value_column} is published")
    _tell_steps(begin_s, step_s, source)
    read.tell(source)
    per_kwh = np.array(values)
    sizes = np.unique(np.abs(per_kwh[np.isfinite(per_kwh)]))
    if len(sizes) > 2 and sizes[-1] > FAR * sizes[-2]:
        odd = int(np.nanargmax(np.abs(per_kwh)))
        told = f"{per_kwh[odd]:g} per kWh at {shown(begin_s[odd])} is {sizes[-1] / sizes[-2]:,.0f} times"
        notice(f"{source}: doubtful: {told} any other; it may stand for a missing value")
    return CarbonTrace(begin_s, per_kwh, step_s, source, read.currency, zones.pop())


def _several_places(before: Row, row: Row, time: str) -> str:
    """Say that two rows are of different zones or kinds, and what to do; empty where they are of one."""
    named = [name for name in row.cells if re.search(_PLACE, name, re.I)]
    if row.cells[time] == before.cells[time]:
        named += [name for name, cell in row.cells.items() if re.search("[a-z]", cell, re.I)]
    other = next((name for name in named if row.cells[name] != before.cells[name]), None)
    if other is None:
        return ""
    told = f"rows are of {echo(before.cells[other])} and of {echo(row.cells[other])} by column {echo(other)}"
    return f"{told}; keep those of one, or give each a column of its own"


def _oldest_first(
    rows: Iterator[Row], columns: Columns, clock: tzinfo | None, path: str | Path
) -> Iterator[Row]:
    """Return the rows, backwards where the newest come first, which a notice says."""
    begun = [*islice(rows, 2)]
    first_s, _ = _time_in(begun[0], columns, clock, -math.inf)
    second_s, _ = _time_in(begun[-1], columns, clock, math.inf)
    rows = chain(begun, rows)
    if second_s >= first_s:
        return rows
    notice(f"{path}: read from its end, as the newest rows come first")
    return reversed([*rows])


def _steps_s(begin_s: FloatArray) -> FloatArray:
    """Seconds that each value holds at most: the step of the file there, such as hours, then quarters."""
    gaps_s = np.diff(begin_s)
    parts = np.split(gaps_s, np.flatnonzero(np.diff(gaps_s)) + 1)
    middle_s = np.quantile(gaps_s if len(gaps_s) else [3600.0], 0.5, method="lower")
    step_s = next((part[0] for part in parts if len(part) >= REPEATED), middle_s)
    found = []
    for part in parts:
        step_s = part[0] if len(part) >= REPEATED else step_s
        found += [step_s] * len(part)
    return np.array([*found, step_s])


def _tell_steps(begin_s: FloatArray, step_s: FloatArray, source: str) -> None:
    """Say where steps become several times as long, as where a file lacks rows for a stretch."""
    changes = np.flatnonzero(step_s[1:] > step_s[:-1] * (1 + 1e-6)) + 1
    if longer := [f"of {step_s[at] / S_PER_H:g} h from {shown(begin_s[at])} on" for at in changes]:
        notice(f"{source}: assumed: steps {listed(longer, quote='', most=3)}, after shorter ones")


def start_time(start: str | datetime, source: str | None = None) -> datetime:
    """Read when a horizon or trace begins; without a zone UTC, with a notice for a file, else refused."""
    time_s, zoned = _utc_s(str(start))
    if not zoned and source is None:
        raise ValueError(f"start: must have a zone, as 2027-01-31T17:00:00Z has, got {echo(start)}")
    if not zoned:
        notice(f"{source}: assumed: {echo(start)} has no zone and is UTC")
    return datetime.fromtimestamp(time_s, UTC)


def utc_time(text: str) -> datetime:
    """Read a time as ISO 8601, without a zone in UTC, or as seconds since 1970; else a ValueError."""
    time_s, _ = _utc_s(text)
    return datetime.fromtimestamp(time_s, UTC)


def _utc_s(text: str) -> tuple[float, bool]:
    """Seconds since 1970, and True if the text tells their zone."""
    found_s, form = moment_s(text)
    if form == SECONDS and not is_since_1970(found_s):
        raise ValueError(f"{echo(text)} is neither seconds since 1970 nor a date like 2022-07-01 02:00+02:00")
    return found_s, form != LOCAL


def _is_time(text: str) -> bool:
    with suppress(ValueError):
        return bool(utc_time(text))
    return False


def _time_in(row: Row, columns: Columns, clock: tzinfo | None, after_s: float) -> tuple[float, bool]:
    """Return the `_seconds` of a row, in the zone that a column of its tells where there is one."""
    zone = row.read(columns.zone, zone_in) if columns.zone else clock
    return row.read(columns.time, partial(_seconds, zone, columns.time, after_s))


def _points(path: str | Path) -> Iterator[Row]:
    """Yield the points of an answer of WattTime's as rows; a ValueError for other documents."""
    with naming(path):
        document = json_in(read_text(path))
        try:
            column, points = f"value [{document['meta']['units']}]", document["data"]
            rows = [{"point_time": str(one["point_time"]), column: str(one["value"])} for one in points]
        except (KeyError, TypeError):
            told = "is no answer of WattTime's, with points in `data` and their `units` in `meta`"
            raise ValueError(told) from None
    yield from (Row(cells, f"{path}, data[{number}]") for number, cells in enumerate(rows))


def _seconds(clock: tzinfo | None, column: str, after_s: float, text: str) -> tuple[float, bool]:
    """Seconds since 1970 of a text, and True if it or `clock` tells their zone; of two readings the next."""
    time_s, zoned = _utc_s(_year_first(text_in(text), column))
    if not (zoned or clock) and (vague := re.search(_VAGUE, column.replace("_", " "), re.I)):
        told = "is no zone that is read; write (Europe/Berlin), (UTC+01:00) or the like"
        raise ValueError(f"{echo(vague[0])} {told}")
    both_s = moments_s(time_s, clock) if clock and not zoned else [time_s]
    return next((one_s for one_s in both_s if one_s > after_s), both_s[-1]), zoned or clock is not None


def _year_first(text: str, column: str) -> str:
    """Return a time as ISO 8601 from columns of ENTSO-E and SMARD: the day comes first, and begin and end."""
    begin = r"(\d\d)[./](\d\d)[./](\d{4}) ([\d:]+)(?: \((CES?T|UTC)\))?(?: - .*)?"
    if not re.match("mtu|datum von", column, re.I) or not (found := re.fullmatch(begin, text.strip())):
        return text
    day, month, year, clock, zone = found.groups()
    return f"{year}-{month}-{day} {clock}{ {'CET': '+01:00', 'CEST': '+02:00', 'UTC': 'Z'}.get(zone, '') }"


def shown(seconds: float) -> str:
    """Time of so many seconds since 1970, in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M")
