"""Columns of files of carbon intensities and prices: of times and their zones, of values and their units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from wattsched.reading.inputs import MOST_COLUMNS as MOST
from wattsched.reading.inputs import echo, listed, meant, notice
from wattsched.reading.tables import tell_unread
from wattsched.reading.units import Quantity, Unit, together, unit_in, unknown_unit, without_unit

TIME_COLUMNS = (
    *("datetime_utc", "datetime (utc)", "date (utc)", "utc time", "interval_start_utc", "interval start"),
    *("interval_start", "settlementdate", "datetime", "timestamp", "point_time", "time", "date", "utc"),
    *("hourutc", "timeutc", "mtu (utc)", "mtu (cet/cest)", "datum von", "time stamp", "from", "valid_from"),
    *("intervalstarttime_gmt", "start time", "start_time", "start"),
)
ZONE_COLUMNS = ("tz", "timezone", "time_zone", "time zone", "utc_offset", "utc offset")
USUAL_UNITS: dict[tuple[str, Quantity], str] = {("moer", "carbon"): "lb/MWh", ("rrp", "money"): "AUD/MWh"}
USUAL_UNITS |= {(f"{name}eur", "money"): "EUR/MWh" for name in ("spotprice", "dayaheadprice")}
USUAL_UNITS |= {(f"{name}dkk", "money"): "DKK/MWh" for name in ("spotprice", "dayaheadprice")}
USUAL_UNITS |= {(f"value_{which}_vat", "money"): "p/kWh" for which in ("exc", "inc")}
"""Units of columns that do not state them: of WattTime, the Australian and Danish markets, and Octopus."""
_SECOND = "forecast|predict|prognos|intraday"
"""Parts of names of columns that are taken only if asked for, beside one of what was, or of the day ahead."""
INTENSITY_COLUMNS = (
    *("avg_ci_g_per_kwh", "avg_ci", "ci_lca_g_per_kwh", "carbon intensity gco₂eq/kwh (life cycle)"),
    *("carbon intensity gco₂eq/kwh (lca)", "carbon_intensity_g_per_kwh", "carbon_intensity_avg"),
    *("carbon_intensity", "carbonintensity", "g_per_kwh"),
)
"""Names of columns that are taken without being asked for, in lower case, the first that is there."""


class Columns(NamedTuple):
    """Names of the columns that are read: of times, values, and, where there are some, zones and units."""

    time: str
    value: str
    zone: str = ""
    units: tuple[str, ...] = ()

    def unit(self, cells: Mapping[str, str], quantity: Quantity) -> Unit | None:
        """Return the unit that columns of a row state; a ValueError if it is unknown, or they contradict.

        A column of energies, such as MWh, is of money per so much of it.
        """
        stated = None
        for name in self.units:
            if text := cells[name].strip():
                money = unit_in(f"money per {re.sub('^(/|per )', '', text)}", quantity)
                if (unit := unit_in(text, quantity) or money) is None:
                    raise unknown_unit(text, quantity)
                stated = together(stated, unit)
        return stated


def columns_of(
    path: str | Path, header: Sequence[str], asked: str | None, quantity: Quantity, *, may_lack: bool
) -> Columns:
    """Choose columns as `read_carbon` is asked to; notices name those that are not read."""
    time = _time_column(path, header)
    zone = next((name for name in header if name.lower() in ZONE_COLUMNS and not clock_of(time)[0]), "")
    # What columns of units and currencies are of; the currency is the first.
    plain = {name: name.lower().replace("_", " ") for name in sorted(header, key=str.lower)}
    of = {name: re.sub(" ?(units?|currency)$", "", words) for name, words in plain.items()}
    others = [name for name in header if name not in (time, zone) and of[name] == plain[name]]
    value = _value_column(path, others, asked, quantity, may_lack=may_lack)
    of_value = ("", plain[value], without_unit(value, quantity))
    units = tuple(name for name in of if of[name] != plain[name] and of[name] in of_value)
    unread = (name for name in header if name not in (time, value, zone, *units))
    tell_unread(path, unread, f" for {'prices' if quantity == 'money' else 'carbon intensities'}")
    return Columns(time, value, zone, units)


def zone_in(cell: str) -> tzinfo:
    """Time zone of a cell, such as +10:30, UTC or Europe/Berlin; anything else is a ValueError."""
    zone, _ = clock_of(f"UTC{cell}" if cell[:1] in ("+", "-") else cell)
    if zone is None:
        raise ValueError(
            f"{echo(cell)} is no zone that is read; write +10:30, UTC, Europe/Berlin or the like"
        )
    return zone


def clock_of(column: str) -> tuple[tzinfo | None, bool]:
    """Time zone of a column, None if untold, as in ``(UTC+1)``; and True if its times are ends.

    ``UTC time`` of EIA's hourly files and ``SETTLEMENTDATE`` of the Australian market, which has no summer
    time, are ends. ``CET/CEST`` of ENTSO-E and ``Datum von`` of SMARD are Central European time.
    """
    name = column.lower().replace("_", " ")
    if name == "settlementdate":
        return timezone(timedelta(hours=10)), True
    zone = re.search(r"(?:\b|hour|time)(?:utc|gmt)\b\s*(?:([+-])\s*(\d{1,2})(?::?(\d\d))?)?", name)
    sign, hours, minutes = zone.groups(default="0") if zone else "000"
    ahead = (-1 if sign == "-" else 1) * timedelta(hours=int(hours), minutes=int(minutes))
    clock: tzinfo | None = timezone(ahead) if zone else None
    if re.search(r"\bcet/cest\b|^datum von$", name):
        clock = ZoneInfo("Europe/Berlin")
    for named in re.findall(r"[A-Z]\w+(?:/[A-Z][\w+-]*)+", column):
        with suppress(KeyError, OSError, ValueError):  # as for Date/Time
            clock = ZoneInfo(named)
    return clock, name == "utc time" or re.search(r"\bend(?:s|ing)?\b", name) is not None


def _time_column(path: str | Path, header: Sequence[str]) -> str:
    """Column of times: a usual name, one with a zone first, or the first of two columns."""
    plain = {name: re.sub(r"\s*[\[(][A-Z]\w+/.*", "", name).lower() for name in header}  # without its zone
    if found := [name for name in header if {name.lower(), plain[name]} & {*TIME_COLUMNS}]:
        return next((name for name in found if clock_of(name)[0]), found[0])
    if header[0] in ("", "index") or len(header) != 2:
        names, there = ", ".join(TIME_COLUMNS), listed(header, most=MOST)
        told = "read are tables with one, of times like 2022-07-01 02:00+02:00, and one of numbers"
        raise ValueError(f"{path}, line 1: no column of times ({names}), found {there}; {told}")
    return header[0]


def _value_column(
    path: str | Path, others: Sequence[str], asked: str | None, quantity: Quantity, *, may_lack: bool
) -> str:
    """Column of values among those besides the times; see `read_carbon`."""
    stating = [one for one in others if unit_in(one, quantity) or (one.lower(), quantity) in USUAL_UNITS]
    if may_lack and asked not in (None, *others) and 1 in (len(others), len(stating)):
        taken = others if len(others) == 1 else stating
        notice(f"{path}: assumed: the column {echo(taken[0])} is taken, as there is no {echo(asked)}")
        return taken[0]
    if asked is not None and asked not in others:
        told = meant(asked, others) or f", found {listed(others, most=MOST)}"
        raise ValueError(f"{path}, line 1: no column {echo(asked)}{told}")
    lowered = {name.lower(): name for name in reversed(others)}
    usual = [lowered[name] for name in INTENSITY_COLUMNS if name in lowered and quantity == "carbon"]
    first = [one for one in stating if len(stating) == 1 or not re.search(_SECOND, one, re.I)]
    actual = [one for one in others if re.search(r"\bactual\b", one, re.I)]
    alone = next((some for some in (others, first, actual) if len(some) == 1), [])
    if found := [asked] if asked is not None else usual or alone:
        rest = [name for name in (others if found == actual else stating) if name != found[0]]
        if asked is None and rest:
            notice(f"{path}: assumed: the column {echo(found[0])} is taken, not {listed(rest, most=MOST)}")
        return found[0]
    told = f"no zone is named: one of the columns {listed(others, most=MOST)}; give it as `zone`"
    raise ValueError(f"{path}, line 1: {told}")
