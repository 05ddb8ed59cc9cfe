"""Speeds and power of jobs that share the units of a stream, by their classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

from wattsched.instances.sharing.instance import SharingInstance
from wattsched.verification.sharing.checker import Outcomes

Classes = tuple[int, ...]
"""Numbers of classes in ascending order, one per job."""


@dataclass(frozen=True)
class Together:
    """Speed of the jobs of one set, and power and utilisation of their unit.

    Attributes
    ----------
    power_w, utilisation_pct : float
        Of their unit.
    epoch_s : dict of int to float
        Seconds per epoch by class.
    slowdown : float
        Mean over the jobs of the epoch time over that alone.
    admitted : bool
        True if the instance's limits let the set be formed. What is left of one when a job is complete goes
        on in any case.
    """

    power_w: float
    utilisation_pct: float
    epoch_s: dict[int, float]
    slowdown: float
    admitted: bool


class Sets:
    """The sets of an instance with units of one type.

    Attributes
    ----------
    classes : range
        Numbers of the classes.
    of : callable
        Classes to how jobs of them run `Together`, which is remembered.

    Raises
    ------
    ValueError
        If there are several types of units.
    """

    def __init__(self, instance: SharingInstance):
        if len(instance.unit_types) != 1:
            raise ValueError(f"unit_types: a stream needs units of one type, got {len(instance.unit_types)}")
        self._unit = instance.unit_types[0].name
        self._names = [job_class.name for job_class in instance.classes]
        self._outcomes = Outcomes(instance)
        self.classes = range(len(self._names))
        self.of = cache(self._find)

    def _find(self, classes: Classes) -> Together:
        outcome = self._outcomes.of(self._unit, tuple(self._names[c] for c in classes))
        epoch_s = dict(zip(classes, outcome.epoch_s, strict=True))
        alone_s = {c: outcome.epoch_s[0] if len(classes) == 1 else self.of((c,)).epoch_s[c] for c in epoch_s}
        slower = sum(n * epoch_s[c] / alone_s[c] for c, n in Counter(classes).items())
        return Together(
            outcome.power_w, outcome.utilisation_pct, epoch_s, slower / len(classes), not outcome.refused
        )
