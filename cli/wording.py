"""Numbers, units and prices in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattsched.instances.units import J_PER_KWH, S_PER_DAY, S_PER_H

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
LARGEST_UNIT = {"W": 1e6, "J": 1e9, "g": 1e3}
"""Multiples up to which prices are stated: MW, GJ, kg."""

LONGEST = 1e15


def number(value: float, digits: int = 4) -> str:
    """Number with that many significant digits, thousands separated: ``182,345``, ``4.206``, ``0.0031``.

    Beyond 1e15 the rest of the digits would mean nothing: ``1.235e+20``.
    """
    if value == 0:
        return "0"
    if not abs(value) < LONGEST:
        return f"{value:.{digits}g}"
    magnitude = f"{abs(value):.{digits - 1}e}"
    exponent = int(magnitude.split("e")[1])
    if exponent < -5:
        return f"{value:.{digits}g}"
    text = f"{value:,.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(value: float, unit: str) -> str:
    """Amount with a unit of the decimal system: ``9.98 kW``, ``1.5 MJ``, ``812 g``."""
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= s), (1.0, ""))
    return f"{number(value / scale)} {prefix}{unit}"


def energy(joules: float) -> str:
    """Energy in joules and kilowatt hours."""
    return f"{quantity(joules, 'J')} ({number(joules / J_PER_KWH, 3)} kWh)"


def duration(seconds: float) -> str:
    """Time at a glance: ``420 ms``, ``12.5 min``, ``3.4 h``, ``2.1 d``."""
    for unit_s, unit in ((S_PER_DAY, "d"), (S_PER_H, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{number(seconds / unit_s, 3)} {unit}"
    return f"{number(seconds, 3)} s" if seconds >= 1 else f"{number(1000 * seconds, 2)} ms"


def percent(share: float) -> str:
    """Share as a percentage; a small one keeps its first digits."""
    value = 100 * share
    return (
        f"{number(value, 3 if value < 99.95 else 4)} %" if value >= 1e-4 or value == 0 else "below 0.0001 %"
    )


def count(n: int, noun: str) -> str:
    """Count with its noun: ``1 job``, ``1,200 jobs``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{n:,} {noun if n == 1 else plural}"


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names in a row, the first ones and a count when there are many."""
    names = list(names)
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


@dataclass(frozen=True)
class Goal:
    """How an objective reads: its noun, its unit, and what one does to it."""

    noun: str
    unit: str
    verb: str

    def amount(self, value: float) -> str:
        """Value of the objective with its unit."""
        return f"{number(value)} {self.unit}".rstrip()


GOALS = {
    "completion": Goal("weighted completion time", "s", "save"),
    "progress": Goal("weighted progress", "/h", "gain"),
    "makespan": Goal("largest weighted completion time", "s", "save"),
    "max-min": Goal("smallest relative progress", "", "gain"),
    "proportional": Goal("weighted sum of log slowdowns", "", "save"),
    "goodput": Goal("goodput", "", "gain"),
    "flow": Goal("value of the work done", "", "gain"),
}


def goal_of(objective: str, sense: str) -> Goal:
    """Words for an objective; one that has none is called by its name."""
    return GOALS.get(objective, Goal(objective, "", "save" if sense == "min" else "gain"))


@dataclass(frozen=True)
class Scarce:
    """A row of the program in words.

    Attributes
    ----------
    label : str
        What the row limits.
    unit : str
        Unit of its capacity.
    """

    label: str
    unit: str


def scarce(row: str) -> Scarce:
    """Words for a row name such as ``gpus:A100``, ``buddy:A100:8`` or ``power_w:rack3``."""
    kind, _, rest = row.partition(":")
    if kind == "gpus":
        return Scarce(f"{rest} GPUs", "GPU")
    if kind == "buddy":
        pool, _, size = rest.rpartition(":")
        return Scarce(f"{pool} blocks of {size}", "GPU")
    if kind == "power_w":
        return Scarce(f"power cap of {rest}" if rest else "power cap", "W")
    if kind == "energy_j":
        return Scarce("energy budget", "J")
    if kind == "carbon_g":
        return Scarce("carbon budget", "g")
    if kind == "money":
        return Scarce("money budget", "unit of money")
    if kind == "completion_s":
        return Scarce("bound on average completion", "s")
    return Scarce(row, "unit")


def worth(row: str, prices: dict[str, float], goal: Goal, capacity: float | None) -> str:
    """Plain sentence on a row's price: what one more GPU, one more block or a few more watts would change.

    Parameters
    ----------
    capacity : float, optional
        The budget, so that the sentence speaks of a small part of it: prices hold at the margin only.
    """
    if row.startswith("buddy:"):
        pool, _, size = row.removeprefix("buddy:").rpartition(":")
        return (
            f"one more block of {size} would {goal.verb} {goal.amount(_block_price(prices, pool, int(size)))}"
        )
    if row.startswith("gpus:"):
        return f"one more GPU would {goal.verb} {goal.amount(prices[row])}"
    step = 1.0 if capacity is None else _round_part(capacity)
    return f"{quantity(step, scarce(row).unit)} more would {goal.verb} {goal.amount(prices[row] * step)}"


def unit_price(row: str, price: float, goal: Goal) -> str:
    """Price with its unit: ``312 s per GPU``, ``4.2 s per W``, ``31 s per MJ``."""
    unit = scarce(row).unit
    units = [(s, p) for s, p in reversed(PREFIXES) if s <= LARGEST_UNIT.get(unit, 1.0)]
    # The smallest unit that gives a price which can be read.
    scale, prefix = next(((s, p) for s, p in units if abs(price) * s >= 0.1), units[-1])
    return f"{goal.amount(price * scale)} per {prefix}{unit}"


def _block_price(prices: dict[str, float], pool: str, size: int) -> float:
    """Worth of a whole free block: it counts in the rows of its own level and of all smaller ones."""
    levels = [prices.get(f"gpus:{pool}", 0.0)]
    while size > 1:
        levels.append(prices.get(f"buddy:{pool}:{size}", 0.0))
        size //= 2
    return sum(levels) * (1 << (len(levels) - 1))


def _round_part(capacity: float) -> float:
    """Power of ten that is about a hundredth of a budget."""
    return 10.0 ** round(math.log10(capacity / 100)) if capacity > 0 else 1.0
