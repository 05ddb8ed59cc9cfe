"""Units that headers, names of columns and values state, and their factors to ours, the first of `KNOWN`.

Upper and lower case count only where they tell ``m`` from ``M``: ``mW`` is a thousandth of a watt, ``MW`` a
million, and ``mw`` is refused, as it may be either. After "per" an ``m`` is a million. A ton is 1,000 kg.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

from wattsched.reading.inputs import UNKNOWN, echo, naming, notice, number_in

Quantity = Literal["power", "energy", "carbon", "money", "time", "frequency"]

KNOWN: dict[Quantity, str] = {
    "power": "W, mW, kW or MW",
    "energy": "J, kJ, MJ, Wh, kWh or MWh",
    "carbon": "g/kWh, or kg, lb or t per kWh or MWh",
    "money": "money per kWh, or EUR, USD, GBP or the like, cents or pence, per kWh or MWh",
    "time": "s, ms, us, min or h",
    "frequency": "MHz, GHz, kHz or Hz",
}
"""Units of each quantity, for messages; ours is the first."""
_PREFIXES = {"": 1.0, "m": 1e-3, "milli": 1e-3, "k": 1e3, "kilo": 1e3, "M": 1e6, "mega": 1e6, "g": 1e9}
_JOULES = {"wh": 3600.0, "j": 1.0}
_J_PER_KWH = 3_600_000.0
_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "msec": 1e-3, "millisecond": 1e-3, "us": 1e-6}
_SECONDS |= {"min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_MHZ = {"hz": 1e-6, "khz": 1e-3, "mhz": 1.0, "ghz": 1e3}
_GRAMS = {"g": 1.0, "gram": 1.0, "kg": 1e3, "kilogram": 1e3, "lb": 453.59237, "pound": 453.59237}
_GRAMS |= {"t": 1e6, "ton": 1e6, "tonne": 1e6}
_CURRENCIES = (
    "eur usd gbp chf sek nok dkk isk pln czk huf ron bgn cad aud nzd jpy cny inr brl mxn krw zar sgd"
)
_SIGNS = {"€": "EUR", "euro": "EUR", "$": "USD", "us$": "USD", "dollar": "USD", "£": "GBP", "₹": "INR"}
_SIGNS |= {"a$": "AUD", "c$": "CAD", "nz$": "NZD", "s$": "SGD", "r$": "BRL"}
_COINS = {"¢": "USD", "pence": "GBP", "p": "GBP", "gbx": "GBP", "usc": "USD", "euc": "EUR"}
"""Hundredths of which the name tells the currency; ``GBp`` is read as ``GBX``, as case tells it from GBP."""
_BY = "(?:/|per|pro)"
_SLASH = rf"[\s.·*]*{_BY}?\s*"
_CO2 = r"(?:co2(?:[\s-]*e(?:q\w*?)?)?|carbon)"
_PER = r"(?P<prefix>[kmg]?)(?P<base>wh|j)(?:\^?-1|rs?|[\s_-]*e?l?)(?![a-z])"
_CURRENCY = rf"(?:{'|'.join([*_CURRENCIES.split(), *map(re.escape, _SIGNS)])})s?"
_COIN = r"(?:¢|pence|p|gbx|usc|euc|ct|cents?|c)"
_MONEY = rf"(?P<coin>{_COIN})(?:\s+(?P<of>{_CURRENCY}))?|(?P<currency>{_CURRENCY}|rs)\s*(?P<part>{_COIN})?"
_METRIC = r"(?<![A-Za-z/])(?P<prefix>(?i:milli|kilo|mega)?|[mkKMgG])(?P<base>{})(?![A-Za-z/])"
_SCALE = r"(?i:(?<![a-z/])(?<!per )(?P<scale>{})s?(?![a-z/]))"
_FORMS: dict[Quantity, str] = {
    "power": _METRIC.format("[Ww]|[Ww]atts?"),
    "energy": _METRIC.format("[Ww][Hh]|[Jj]|[Jj]oules?"),
    "carbon": rf"(?<![a-z])(?<!short )(?<!long )(?P<mass>{'|'.join(_GRAMS)})s?\s*(?:of\s*)?"
    rf"{_CO2}?{_SLASH}{_PER}",
    "money": rf"(?<![a-z])(?:(?:{_MONEY}){_SLASH}|(?:price|preis|cost|tariff|money)\s*{_BY})\s*{_PER}"
    rf"|(?<![a-z])(?P<alone>{_CURRENCY})(?![a-z/])(?!\s*{_BY})",
    "time": _SCALE.format("|".join(_SECONDS)),
    "frequency": _SCALE.format("|".join(_MHZ)),
}
_MASS = rf"(?:{'|'.join(_GRAMS)})s?"
_PART_OF_UNIT = rf"(?<=\s)(?:{_COIN}|{_MASS}|(?<!per )kwh|[mg]?wh)$|(?<![a-z]){_MASS}\s*(?:of\s*)?{_CO2}$"
"""End of a header that is a part of a unit, as in ``price_ct``, ``co2_kg`` and ``kgCO2``."""
_REMARKS = {"avg", "mean", "max", "min", "total", "sum", "lca", "utc", "local", "gross", "net", "spot", "day"}
"""Short words in round brackets that are no units."""


class Unit(NamedTuple):
    """Unit of a number: the factor to ours, the currency, empty where none is told, and how it is written.

    `per_nothing` is True of a currency alone, which is taken to be per kWh.
    """

    factor: float
    currency: str
    name: str
    per_nothing: bool = False


@lru_cache(maxsize=1024)
def unit_in(text: str, quantity: Quantity) -> Unit | None:
    """Find the unit of a quantity that a text states last; letters that stand for two are a ValueError."""
    plain = _plain(text)
    told = plain if quantity in ("power", "energy") else plain.lower()
    if not (found := [*re.finditer(_FORMS[quantity], told)]):
        return None
    parts, span = found[-1].groupdict(default=""), slice(*found[-1].span())
    name = (plain if len(plain) == len(told) else told)[span].strip()
    prefix, base = parts.get("prefix", ""), parts.get("base", "")
    if quantity in ("power", "energy"):
        if prefix == "m" and base.islower():
            raise ValueError(f"{echo(name)} may be milli or mega: write m{base.upper()} or M{base.upper()}")
        scale = _PREFIXES[prefix if prefix in _PREFIXES else prefix.lower()]
        return Unit(scale * _JOULES.get(base.lower(), 1.0), "", name)
    if of_scale := parts.get("scale"):
        return Unit((_SECONDS | _MHZ)[of_scale.lower()], "", name)
    # What is per nothing is taken to be per kWh.
    joules = _PREFIXES[prefix.replace("m", "M")] * _JOULES.get(base, _J_PER_KWH)
    if quantity == "carbon":
        return Unit(_GRAMS[parts["mass"]] * _J_PER_KWH / joules, "", name)
    coin, sign = parts["coin"] or parts["part"], parts["currency"] or parts["of"] or parts["alone"]
    sign = sign if sign in (*_SIGNS, "rs") else sign.removesuffix("s")
    currency = _SIGNS.get(sign, "INR" if sign == "rs" else sign.upper()) or _COINS.get(coin, "")
    return Unit((0.01 if coin else 1.0) * _J_PER_KWH / joules, currency, name, bool(parts["alone"]))


def together(header: Unit | None, beside: Unit | None) -> Unit | None:
    """Return the unit that a header and what is beside it make together; a ValueError if they contradict.

    A currency alone leaves the energy to the other statement, a dollar sign the currency.
    """
    if header is None or beside is None:
        return header or beside
    both = (header, beside)
    told = [one.currency for one in both if one.currency and not _sign(one)]
    currencies = told or [one.currency for one in both if one.currency] or [""]
    rates = [one for one in both if not one.per_nothing] or [header]
    if len({*currencies}) > 1 or len({one.factor for one in rates}) > 1:
        raise ValueError(f"the header says {header.name}, not {beside.name}")
    return rates[0]._replace(currency=currencies[0])


def _sign(unit: Unit) -> str | None:
    """Return the sign of a unit that several currencies share, if it has one."""
    sign = re.match(r"[$¢]|dollar|rs\b", unit.name, re.I)
    return sign[0] if sign else None


def without_unit(name: str, quantity: Quantity) -> str:
    """Return a column's name in lower case without the unit that it states."""
    return re.sub(_FORMS[quantity], "", _plain(name)).strip(" []()").lower()


@lru_cache(maxsize=1024)
def _plain(text: str) -> str:
    """Return a text without what separates parts of a unit: ``kg (CO₂)_per_kWh`` is ``kg CO2 per kWh``."""
    return re.sub("GBp(?![a-zA-Z])", "GBX", re.sub(r"[\s_()]+", " ", text.replace("₂", "2"))).strip()


def unknown_unit(unit: str, quantity: Quantity) -> ValueError:
    """Return the error that a unit is none of those of a quantity."""
    return ValueError(f"the unit {echo(unit)} is not known; read are {KNOWN[quantity]}")


class Numbers:
    """Reader of the numbers of a column, which converts them into our unit; `UNKNOWN` watts are nan.

    The header's is `unit` where more than its name tells. `stated` is True if it or a value stated one,
    `_bare` once a value had none, and `currency` is that of money, or empty. A header with an unknown unit is
    a ValueError that names place and column.
    """

    def __init__(self, name: str, quantity: Quantity, place: str = "", unit: Unit | None = None):
        self.quantity, self._bare = quantity, False
        self._own: Unit | None = None  # that of the last value, where values state units
        with naming(f"{place}, column {echo(name)}"):
            self._header = unit or unit_in(name, quantity)
            if self._header is None and (unknown := _unknown(name)):
                raise unknown_unit(unknown, quantity)
        self.stated, self.currency = self._header is not None, self._header.currency if self._header else ""

    def __call__(self, text: str) -> float:
        """Read a number with or without its unit; anything else, and another unit, is a ValueError."""
        told, header = text.strip(), self._header
        value = re.match(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?=\D|$)", told)
        if self.quantity == "power" and value and float(value[0]) in UNKNOWN:
            return math.nan
        if value is None or value[0] == told:
            self._bare = True
            if header is None and self.stated:
                raise ValueError(f"{echo(told)} has no unit, others of its column have")
            return number_in(told) * (header.factor if header else 1.0)
        rest = told[value.end() :].strip()
        if re.match(r",\d", rest):
            raise ValueError(f"{echo(told)} has a comma; write decimals and thousands as in 1234.5")
        own = unit_in(rest, self.quantity)
        if own is None or own.name.lower() != _plain(rest).lower():
            raise unknown_unit(rest, self.quantity)
        try:
            unit = together(header, own) or own
        except ValueError as fault:
            raise ValueError(f"{echo(told)}: {fault}") from None
        if header is None and self._bare:
            raise ValueError(f"{echo(told)} has a unit, others of its column have none")
        if self._own and unit.currency != self.currency:
            raise ValueError(f"{echo(told)} is in {own.currency or 'no currency'}, others in {self.currency}")
        if self._own and unit.per_nothing != self._own.per_nothing:
            raise ValueError(f"{echo(told)} is in {own.name}, others in {self._own.name}")
        self.stated, self.currency, self._own = True, unit.currency, unit
        return number_in(value[0]) * unit.factor

    def tell(self, place: str) -> None:
        """Warn of what was assumed of the unit, and that numbers without one were taken for ours."""
        told, unit = list[str](), self._header or self._own
        if unit and unit.per_nothing:
            names_none = "the header names no energy" if self._header else "no value names an energy"
            told.append(f"{unit.name} per kWh, as {names_none}")
        if unit and re.search(r"\btons?\b", unit.name, re.I):
            told.append(f"{echo(unit.name)}: a ton is metric, 1,000 kg")
        if unit and (sign := _sign(unit)):
            told.append(f"{sign} is of {unit.currency}")
        if not self.stated:
            told.append(f"in {KNOWN[self.quantity].split(',')[0]}, as neither header nor values state a unit")
        for one in told:
            notice(f"{place}: assumed: {one}")


def watts_column(names: Iterable[str], place: str) -> tuple[str, Numbers]:
    """Return the column of watts among those of a table, ``watts`` for none, and what reads it."""
    column = next((name for name in names if name and without_unit(name, "power") in ("", "power")), "watts")
    return column, Numbers(column, "power", place)


def _unknown(name: str) -> str | None:
    """Return the text in a header that must be a unit, though it is none of those that are known."""
    if square := re.findall(r"\[([^]]+)\]", name):
        return str(square[-1])
    for inside in re.findall(r"\(([^)]+)\)", name):
        if re.search(r"/| (?:per|pro) ", inside) or re.fullmatch(r"[A-Za-z]{1,5}", inside):
            return None if inside.lower() in _REMARKS else str(inside)
    rate = re.search(r"\S*\s*(?:/| per )\s*\S+", _plain(name))
    rate = rate or re.search(_PART_OF_UNIT, _plain(name), re.I)
    return rate[0].strip() if rate else None
