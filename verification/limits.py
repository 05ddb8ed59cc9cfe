"""Limits and demands of an instance, and the instances in which they are others, or are left out.

A *limit* is something that its author could have written otherwise: a budget, a cap, a quota, a number of
GPUs, or what a job demands, such as a deadline. Leaving one out, or easing it, takes no decision away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wattsched.instances.replacing import replaced

STEP = 1e-4
"""Share of a limit below the least value that suffices at which values are shown not to suffice."""


@dataclass(frozen=True)
class Limit:
    """Limit or demand of an instance.

    Attributes
    ----------
    path : tuple of str
        Where the file states it, such as ``("budgets", "power_w")`` and ``("jobs", "train", "can_wait")``; of
        capacities ``("gpus", POOL)``.
    value : float, optional
        As the instance states it; None for a demand that is made or not.
    unit : str
    left_out : object
        What stands in the file without it.
    at : callable
        A number to what stands in the file with that one.
    grown : callable, optional
        An instance and a number, infinite for enough of everything, to the instance with that capacity.
    at_least : bool
        Whether it limits from below, so that lower values are easier.
    step : float
        Values are whole multiples of it beyond that of the file; 0 where they are any.
    total : str
        Total of a checked decision that the limit is on, empty where there is none.
    """

    path: tuple[str, ...]
    value: float | None = None
    unit: str = ""
    left_out: Any = None
    at: Callable[[float], Any] = lambda value: value
    grown: Callable[[Any, float], Any] | None = None
    at_least: bool = False
    step: float = 0.0
    total: str = ""

    @property
    def name(self) -> str:
        """Path in one word, such as ``budgets.power_w``."""
        return (":" if self.grown else ".").join(self.path)

    def easier(self, value: float, other: float) -> bool:
        """True if a value takes fewer decisions away than another."""
        return value < other if self.at_least else value > other

    def below(self, value: float, share: float = STEP) -> float:
        """Return a value that is a little harder: the next whole step, or a `share` of the value."""
        step = self.step or share * max(abs(value), abs(self.value or 0.0))
        return value + step if self.at_least else value - step

    def between(self, one: float, other: float) -> float:
        """Return a value halfway between two, or the nearest whole step to it that is nearer to `one`."""
        if not self.step:
            return (one + other) / 2.0
        return one + self.step * (round((other - one) / self.step) // 2)


def eased(instance: Any, limits: Iterable[Limit], values: Mapping[str, float | None]) -> Any:
    """Return an instance with other values of the limits that are named, None for without the limit."""
    tree: dict[str, Any] = {}
    grown = []
    for limit in limits:
        if limit.name not in values:
            continue
        value = values[limit.name]
        if limit.grown is not None:
            grown.append((limit.grown, float("inf") if value is None else value))
            continue
        branch = tree
        for part in limit.path[:-1]:
            branch = branch.setdefault(part, {})
        branch[limit.path[-1]] = limit.left_out if value is None else limit.at(value)
    # Capacities last: what more of them draws idle is added to the budgets.
    instance = replaced(instance, tree)
    for grow, value in grown:
        instance = grow(instance, value)
    return instance


def budgets(instance: Any, units: Mapping[str, str], totals: Mapping[str, str] = {}) -> Iterator[Limit]:
    """Yield the upper limits among an instance's budgets, by their units, and the totals of other names."""
    for name, unit in units.items():
        if (value := getattr(instance.budgets, name)) is not None:
            yield Limit(("budgets", name), value, unit, total=totals.get(name, name))


def demands(jobs: Iterable[Any], easiest: Mapping[str, Any]) -> Iterator[Limit]:
    """Yield what jobs demand, where it is not what demands nothing.

    Parameters
    ----------
    easiest : mapping of str to object
        Fields of a job, and the value of each that demands nothing.
    """
    for job in jobs:
        for name, nothing in easiest.items():
            stated = getattr(job, name)
            if stated != nothing:
                number = None if isinstance(stated, bool) else float(stated)
                unit = "s" if name.endswith("_s") else ""
                least = name.startswith("least")
                yield Limit(("jobs", job.name, name), number, unit, nothing, at_least=least)
