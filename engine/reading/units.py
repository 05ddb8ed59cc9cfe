"""Units that headers, names of columns and values state, and their factors to watts, joules, g/kWh, money/kWh.

Upper and lower case count only where they tell ``m`` from ``M``: ``mW`` is a thousandth of a watt, ``MW`` a
million, and ``mw`` is refused, as it may be either. After "per" an ``m`` is a million. A ton is 1,000 kg.
"""

from __future__ import annotations

import re
import warnings
from typing import Literal, NamedTuple

from wattsched.reading.inputs import NoticeWarning, echo, number_in

Quantity = Literal["power", "energy", "carbon", "money"]

KNOWN: dict[Quantity, str] = {
    "power": "W, mW, kW or MW",
    "energy": "J, kJ, MJ, Wh, kWh or MWh",
    "carbon": "g, kg, lb or t per kWh or MWh",
    "money": "EUR, USD, GBP or another currency, or cents or pence, per kWh or MWh",
}
"""What is read of each quantity, for messages; the first is ours."""
OURS: dict[Quantity, str] = {"power": "W", "energy": "J", "carbon": "g/kWh", "money": "money per kWh"}

_PREFIXES = {"": 1.0, "m": 1e-3, "milli": 1e-3, "k": 1e3, "kilo": 1e3, "M": 1e6, "mega": 1e6, "g": 1e9}
_JOULES = {"wh": 3600.0, "j": 1.0}
_J_PER_KWH = 3_600_000.0
_GRAMS = {"g": 1.0, "kg": 1e3, "lb": 453.59237, "t": 1e6}
_MASS = {"gram": "g", "kilogram": "kg", "pound": "lb", "ton": "t", "tonne": "t"}
_CURRENCIES = "eur usd gbp chf sek nok dkk isk pln czk huf ron bgn cad aud nzd jpy cny inr brl mxn krw zar sgd"
_SIGNS = {"€": "EUR", "euro": "EUR", "$": "USD", "us$": "USD", "dollar": "USD", "£": "GBP"}
_COINS = {"¢": "USD", "pence": "GBP", "p": "GBP", "ct": "", "cent": "", "c": ""}
"""Hundredths, of a currency that their name tells or not."""

_PER = r"(?P<prefix>[kmg]?)(?P<energy>wh|j)[\s_-]*e?l?(?![a-z])"
_CURRENCY = rf"(?:{'|'.join([*_CURRENCIES.split(), *map(re.escape, _SIGNS)])})s?"
_COIN = r"(?:¢|pence|p|ct|cents?|c)"
_MONEY = rf"(?P<coin>{_COIN})(?:\s*(?P<of>{_CURRENCY}))?|(?P<currency>{_CURRENCY})\s*(?P<part>{_COIN})?"
_FORMS: dict[Quantity, str] = {
    "power": r"(?<![A-Za-z/])(?P<prefix>(?i:milli|kilo|mega)?|[mkKMgG])(?P<base>[Ww]|[Ww]atts?)(?![A-Za-z/])",
    "energy": r"(?<![A-Za-z/])(?P<prefix>(?i:milli|kilo|mega)?|[mkKMgG])(?P<base>[Ww][Hh]|[Jj]|[Jj]oules?)"
    r"(?![A-Za-z/])",
    "carbon": r"(?<![a-z])(?<!short )(?<!long )(?P<mass>g|kg|lb|t|(?:kilo)?gram|pound|tonne|ton)s?\s*(?:of\s*)?"
    rf"(?:co2(?:[\s-]*e(?:q\w*)?)?|carbon)?\s*(?:/|per)?\s*{_PER}",
    "money": rf"(?<![a-z])(?:(?:{_MONEY})\s*(?:/|per)?|(?:price|cost|tariff|money)\s*(?:/|per))\s*{_PER}"
    rf"|(?<![a-z])(?P<alone>{_CURRENCY})(?![a-z/])(?!\s*(?:/|per))",
}
_REMARKS = {"avg", "mean", "max", "min", "total", "sum", "lca", "utc", "local", "gross", "net", "spot", "day"}
"""Short words in round brackets that are no units."""


class Unit(NamedTuple):
    """Unit that a text states.

    Attributes
    ----------
    factor : float
        What a number in it is multiplied with.
    currency : str
        Of money, where it is told.
    name : str
        The unit as it is written.
    """

    factor: float
    currency: str
    name: str


def unit_in(text: str, quantity: Quantity) -> Unit | None:
    """Find the unit of a quantity that a header, a column's name or the rest of a value states.

    Raises
    ------
    ValueError
        For letters that stand for two units.
    """
    told = text.replace("₂", "2").replace("_", " ")
    told = told if quantity in ("power", "energy") else told.lower()
    if (found := [*re.finditer(_FORMS[quantity], told)][-1:]) == []:
        return None
    parts, name = found[0].groupdict(), found[0][0].strip()
    if quantity == "carbon":
        mass = _MASS.get(parts["mass"], parts["mass"])
        return Unit(_GRAMS[mass] * _per_kwh(parts), "", name)
    if quantity == "money":
        coin = parts["coin"] or parts["part"] or ""
        sign = parts["currency"] or parts["of"] or parts["alone"] or ""
        sign = sign if sign in _SIGNS else sign.removesuffix("s")
        currency = _SIGNS.get(sign, sign.upper()) or _COINS.get(coin.removesuffix("s"), "")
        return Unit((0.01 if coin else 1.0) * _per_kwh(parts), currency, name)
    prefix, base = parts["prefix"], parts["base"]
    if prefix == "m" and base.islower():
        raise ValueError(f"{echo(name)} may be milli or mega: write m{base.upper()} or M{base.upper()}")
    scale = _PREFIXES[prefix if prefix in _PREFIXES else prefix.lower()]
    return Unit(scale * (_JOULES["wh"] if base.lower() == "wh" else 1.0), "", name)


def _per_kwh(parts: dict[str, str | None]) -> float:
    """Factor of a rate to one per kWh, which one that is per nothing is taken for."""
    if (energy := parts["energy"]) is None:
        return 1.0
    prefix = (parts["prefix"] or "").replace("m", "M")
    return _J_PER_KWH / (_PREFIXES[prefix] * _JOULES[energy])


def without_unit(name: str, quantity: Quantity) -> str:
    """Return a column's name in lower case without the unit that it states."""
    told = name.replace("_", " ")
    return re.sub(_FORMS[quantity], "", told).strip(" []()").lower()


class Numbers:
    """Reader of the numbers of a column, which converts them into our unit.

    Parameters
    ----------
    name : str
        The column's header.
    quantity : {"power", "energy", "carbon", "money"}

    Attributes
    ----------
    stated : bool
        True if the header states a unit, or values do.
    currency : str
        Of money; empty where none is told.

    Raises
    ------
    ValueError
        For a header with an unknown unit.
    """

    def __init__(self, name: str, quantity: Quantity):
        self.quantity = quantity
        self._header, self._bare = unit_in(name, quantity), False
        self.stated, self.currency = self._header is not None, self._header.currency if self._header else ""
        if self._header is None and (unknown := _unknown(name)):
            raise ValueError(self._refused(unknown))

    def __call__(self, text: str) -> float:
        """Read a number with or without its unit.

        Raises
        ------
        ValueError
            For what is no number, an unknown unit, and one that is another than the header's.
        """
        value = re.match(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?=\D|$)", told := text.strip())
        rest = told[value.end() :].strip() if value else ""
        if value is None or not rest:
            self._bare = True
            if self._header is None and self.stated:
                raise ValueError(f"{echo(told)} has no unit, others of its column have")
            return number_in(told) * (self._header.factor if self._header else 1.0)
        own = unit_in(rest, self.quantity)
        if own is None or own.name.lower() != rest.lower().replace("₂", "2").replace("_", " "):
            raise ValueError(self._refused(rest))
        if (of := self._header) and (of.factor, of.currency) != (own.factor, own.currency):
            raise ValueError(f"{echo(told)} is in {own.name}, the header says {of.name}")
        if self._header is None and self._bare:
            raise ValueError(f"{echo(told)} has a unit, others of its column have none")
        if self.stated and own.currency != self.currency:
            raise ValueError(f"{echo(told)} is in {own.currency or 'no currency'}, not in {self.currency}")
        self.stated, self.currency = True, own.currency
        return number_in(value[0]) * own.factor

    def tell(self, place: str) -> None:
        """Warn that numbers without a unit were taken for ours."""
        if not self.stated:
            told = f"in {OURS[self.quantity]}, as neither the header nor the values state a unit"
            warnings.warn(f"{place}: assumed: {told}", NoticeWarning, stacklevel=3)

    def _refused(self, unit: str) -> str:
        return f"the unit {echo(unit)} is not known; {self.quantity} is read in {KNOWN[self.quantity]}"


def _unknown(name: str) -> str | None:
    """Text in a header that must be a unit, though it is none of those that are known."""
    if square := re.findall(r"\[([^]]+)\]", name):
        return str(square[-1])
    for inside in re.findall(r"\(([^)]+)\)", name):
        if re.search(r"/| per ", inside) or (re.fullmatch(r"[A-Za-z]{1,5}", inside) and inside.lower() not in _REMARKS):
            return str(inside)
    rate = re.search(r"\S*\s*(?:/| per |_per_)\s*\S+", name)
    return rate[0].strip() if rate else None
