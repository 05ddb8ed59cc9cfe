"""Numbers, units and prices in words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from wattsched.instances.units import J_PER_KWH, S_PER_DAY, S_PER_H
from wattsched.reading.inputs import printable as printable

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
LARGEST_UNIT = {"W": 1e6, "J": 1e9, "g": 1e3}
"""Multiples up to which prices are stated: MW, GJ, kg."""

LONGEST = 1e15
MOST_REASONS = 5
LONGEST_LIST = 160
"""Characters of names in a row: two lines of most terminals."""
NEARLY = 1 - 1e-6
"""Part of a larger unit from which on amounts are written in it: what is not shown must not matter."""

TOTALS = {"carbon_g": "CO2", "gpus_used": "GPUs"}
"""Totals that are called otherwise than their names say."""


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
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= NEARLY * s), (1.0, ""))
    return f"{number(value / scale)} {prefix}{unit}"


def money(amount: float, currency: str | None = None) -> str:
    """Amount of money with its currency, where that is told."""
    return f"{number(amount)} {currency}" if currency else number(amount)


def energy(joules: float) -> str:
    """Energy in joules and kilowatt hours."""
    return f"{quantity(joules, 'J')} ({number(joules / J_PER_KWH, 3)} kWh)"


def duration(seconds: float) -> str:
    """Time at a glance: ``420 ms``, ``12.5 min``, ``3.4 h``, ``2.1 d``."""
    for unit_s, unit in ((S_PER_DAY, "d"), (S_PER_H, "h"), (60, "min")):
        if seconds >= NEARLY * unit_s:
            return f"{number(seconds / unit_s, 3)} {unit}"
    return f"{number(seconds, 3)} s" if seconds >= NEARLY else f"{number(1000 * seconds, 2)} ms"


def percent(share: float) -> str:
    """Share as a percentage; a small one keeps its first digits."""
    value = 100 * share
    return f"{number(value, 3 if value < 99.95 else 4)} %"


_UNITS = {"ms": 1e-3, "min": 60.0, "h": float(S_PER_H), "d": float(S_PER_DAY)} | {
    f"{prefix}{unit}": scale for scale, prefix in PREFIXES for unit in ("W", "J", "g")
}
_AMOUNT = re.compile(r"(?:at least )?([+-]?\d[\d,.]*(?:e[+-]?\d+)?) ?(\w*)")


def magnitude(text: str) -> float | None:
    """Size of an amount in words, in seconds, watts, joules, grams or percent; None of other texts."""
    found = _AMOUNT.match(text)
    return None if found is None else float(found[1].replace(",", "")) * _UNITS.get(found[2], 1.0)


def gap_text(gap: float | None) -> str:
    """Relative gap; the last digits of an objective are none."""
    if gap is None:
        return "no bound"
    return f"gap {percent(gap)}" if gap >= 1e-6 else "gap below 0.0001 %"


def proof_text(gap: float | None, proven: float | None, claimed: bool) -> str:
    """Relative gap, and how much of it is proven: ``gap 0.01 % claimed, 0.54 % proven``."""
    if gap is None or not claimed:
        return gap_text(gap)
    text = "nothing" if proven is None else gap_text(proven).removeprefix("gap ")
    if gap_text(gap) == f"gap {text}":
        return f"{gap_text(gap)}, proven but for its last digits"
    return f"{gap_text(gap)} claimed, {text} proven"


def count(n: int, noun: str) -> str:
    """Count with its noun: ``1 job``, ``1,200 jobs``."""
    plural = re.sub("(?<![aeiou])y$", "ie", noun) + "s"
    return f"{n:,} {noun if n == 1 else plural}"


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names in a row, the first ones and a count when there are many."""
    names = list(names)
    shown = names[:most]
    while len(shown) > 1 and sum(map(len, shown)) > LONGEST_LIST:
        shown.pop()
    rest = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + rest


def reasons(dropped: Mapping[str, str]) -> list[str]:
    """Jobs that are left out, one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for job, reason in dropped.items():
        by_reason.setdefault(reason, []).append(job)
    lines = [f"{listed(jobs)}: {reason}" for reason, jobs in by_reason.items()]
    beyond = sum(map(len, list(by_reason.values())[MOST_REASONS:]))
    return [*lines[:MOST_REASONS], *([f"{count(beyond, 'more job')}"] if beyond else [])]


def setting(frequency_mhz: float | None, power_limit_w: float | None) -> str:
    """Clock or power limit: ``1410 MHz``, ``250 W``; empty for neither."""
    stated = ((frequency_mhz, "MHz"), (power_limit_w, "W"))
    return ", ".join(f"{value:g} {unit}" for value, unit in stated if value is not None)


UNITS: dict[str, Callable[[float], str]] = {
    "w": lambda watts: quantity(watts, "W"),
    "j": energy,
    "g": lambda grams: quantity(grams, "g"),
    "s": duration,
    "gpus": lambda gpus: f"{number(gpus)} {'GPU' if gpus == 1 else 'GPUs'}",
    "pct": lambda share: percent(share / 100),
}
"""Functions from an amount to words, by the suffix of a total's name; a new unit is one line here."""


def spoken(name: str, value: float, currency: str | None = None) -> str:
    """Amount of a total, with the unit that its name ends in; of money with its currency."""
    if name == "money":
        return money(value, currency)
    _, joint, unit = name.rpartition("_")
    return UNITS.get(unit if joint else "", number)(value)


def total_label(name: str) -> str:
    """Name of a total without its unit."""
    kind, _, objective = name.partition(":")
    if objective:
        return f"{kind} {objective}"
    return TOTALS.get(name, re.sub(f"_({'|'.join(UNITS)})$", "", name).replace("_", " "))


@dataclass(frozen=True)
class Goal:
    """Words for an objective: its name, its unit and a verb.

    Attributes
    ----------
    noun, unit, verb : str
        What it is, what it is in, and what one does to it.
    in_steps : bool
        Whether the optimum changes by steps, as that of the worst job does: prices are means, and no bounds.
    near_zero : bool
        Whether it is a difference or a logarithm, of which no share says much: how far the bound is, is told.
    """

    noun: str
    unit: str = ""
    verb: str = "save"
    in_steps: bool = False
    near_zero: bool = False

    def amount(self, value: float) -> str:
        """Value of the objective with its unit."""
        return f"{number(value)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Scarce:
    """A row of a program in words.

    Attributes
    ----------
    label : str
        What the row limits.
    unit : str
        Unit of its capacity; empty where nothing is known of the row.
    counted : bool
        Whether there is a whole number of it.
    """

    label: str
    unit: str = ""
    counted: bool = False


SCARCE = {
    "energy_j": ("energy budget", "J"),
    "carbon_g": ("carbon budget", "g"),
    "money": ("money budget", "unit of money"),
    "completion_s": ("bound on average completion", "s"),
    "least_goodput": ("least goodput", "unit of goodput"),
}
"""Row of a budget to what it limits, and its unit."""

BUDGET_ROWS = {"average_completion_s": "completion_s"}
"""Budgets whose rows are called otherwise."""


def scarce(row: str) -> Scarce:
    """Words for a row name such as ``gpus:A100@7``, ``buddy:A100:8`` or ``power_w:rack3``."""
    kind, _, rest = row.partition(":")
    if of_scenario := re.fullmatch(
        r"([^:]+)/((?:gpus:|groups:|power_w|carbon_g|energy_j|money|completion_s).*)", row
    ):
        known = scarce(of_scenario[2])
        return replace(known, label=f"{known.label} in {of_scenario[1]}")
    match kind:
        case "gpus":
            # Pools under a power cap have an @ in their names, too.
            pool, _, slot = rest.rpartition("@")
            text = f"{pool} GPUs in slot {slot}" if pool and slot.isdecimal() else f"{rest} GPUs"
            return Scarce(text, "GPU", counted=True)
        case "groups":
            groups, _, slot = rest.rpartition("@")
            pool, _, size = groups.rpartition(":")
            return Scarce(f"groups of {size} {pool} GPUs in slot {slot}", "group", counted=True)
        case "buddy":
            pool, _, size = rest.rpartition(":")
            return Scarce(f"{pool} blocks of {size}", "GPU", counted=True)
        case "parts":
            pool, _, size = rest.rpartition(":")
            return Scarce(f"{pool} parts of {size} of a node", "GPU", counted=True)
        case "nodes" | "node":
            return Scarce(f"{rest} nodes" if kind == "nodes" else f"nodes like {rest}", "node", counted=True)
        case "tenant_gpus" | "cohort_gpus":
            return Scarce(f"GPUs of {kind.removesuffix('_gpus')} {rest}", "GPU", counted=True)
        case "tenant_power_w":
            return Scarce(f"power of tenant {rest}", "W")
        case "tenant_energy_j":
            return Scarce(f"energy of tenant {rest}", "J")
        case "tenant_carbon_g":
            return Scarce(f"carbon of tenant {rest}", "g")
        case "objective":
            return Scarce(f"limit on {rest}", f"unit of {rest}")
        case _ if cap := re.fullmatch(r"power_w(?::(.+?))?(?:@(\d+))?", row):
            of, slot = cap.groups()
            where = f"{f' of {of}' if of else ''}{f' in slot {slot}' if slot else ''}"
            return Scarce(f"power cap{where}", "W")
    return Scarce(*SCARCE.get(row, (row.replace("_", " "), "")))


def worth(row: str, prices: Mapping[str, float], goal: Goal, capacity: float | None) -> str:
    """Plain sentence on a row's price: what one more GPU, one more block or a few more watts would change.

    The least cost of the linear relaxation is a convex function of what there is. So an amount times its
    price is the most that so much more can save, and the least that it costs where more has to be done.

    Parameters
    ----------
    capacity : float, optional
        The budget, so that the sentence speaks of a small part of it: where the price still tells something.
    """
    known, price = scarce(row), prices[row]
    most, least = ("about", "about") if goal.in_steps else ("at most", "at least")
    if row.startswith("buddy:"):
        pool, _, size = row.removeprefix("buddy:").rpartition(":")
        block = _block_price(prices, pool, int(size))
        return f"one more block of {size} would {goal.verb} {most} {goal.amount(block)}"
    if known.counted:
        return f"one more {known.unit} would {goal.verb} {most} {goal.amount(price)}"
    if not known.unit:
        return ""
    # The power of ten that is about a hundredth of the budget.
    step = 10.0 ** round(math.log10(capacity / 100)) if capacity is not None and capacity > 0 else 1.0
    if price < 0:  # there must be so much of it
        return f"{number(step)} more of it would cost {least} {goal.amount(-price * step)}"
    return f"{quantity(step, known.unit)} more would {goal.verb} {most} {goal.amount(price * step)}"


def unit_price(row: str, price: float, goal: Goal) -> str:
    """Price with its unit: ``312 s per GPU``, ``4.2 s per W``, ``31 s per MJ``."""
    unit = scarce(row).unit
    if not unit:
        return goal.amount(price)
    scale, prefix = readable(price, unit)
    return f"{goal.amount(price * scale)} per {prefix}{unit}"


def readable(price: float, unit: str) -> tuple[float, str]:
    """Smallest multiple of a unit for which a price can be read, and its prefix."""
    units = [(s, p) for s, p in reversed(PREFIXES) if s <= LARGEST_UNIT.get(unit, 1.0)]
    return next(((s, p) for s, p in units if abs(price) * s >= 0.1), units[-1])


def _block_price(prices: Mapping[str, float], pool: str, size: int) -> float:
    """Worth of a whole free block: it counts in the rows of its own level and of all smaller ones."""
    levels = [prices.get(f"gpus:{pool}", 0.0)]
    while size > 1:
        levels.append(prices.get(f"buddy:{pool}:{size}", 0.0))
        size //= 2
    return sum(levels) * (1 << (len(levels) - 1))
