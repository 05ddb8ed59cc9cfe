r"""Speeds and power of jobs that share the units of a stream, by their classes, and the savings possible.

Whatever a policy does, its sets run for some times :math:`y_S \ge 0`, which do the work of all jobs:

.. math::
    \min \sum_S P_S\,y_S \quad\text{s.t.}\quad \sum_S \frac{n_{cS}}{\sigma_{cS}}\,y_S = w_c\ \forall c, \quad
    \sum_S n_S\,y_S \le (1 + \ell) \sum_c w_c, \qquad \sum_S y_S \ge a \sum_c w_c

with work :math:`w_c` of class c in hours alone, runs :math:`\ell` longer than alone on average, weighted by
work, and at least a part a of the hours of units that jobs alone would take. Arrivals, moves and the number
of units can only make it dearer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, combinations_with_replacement

import numpy as np

from wattsched.instances.sharing.instance import SharingInstance
from wattsched.verification.sharing.outcomes import Outcomes

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
        self._most = instance.limits.jobs_per_set
        self.classes = range(len(self._names))
        self.of = cache(self._find)

    def admitted(self) -> Iterator[Classes]:
        """Sets that the limits let be formed, the small ones first."""
        for size in range(1, self._most + 1):
            for classes in combinations_with_replacement(self.classes, size):
                if self.of(classes).admitted:
                    yield classes

    def reachable(self) -> list[Classes]:
        """Sets that the limits let be formed, and what may be left of them."""
        sizes = range(1, self._most + 1)
        found = {part for whole in self.admitted() for n in sizes for part in combinations(whole, n)}
        return sorted(found, key=lambda classes: (len(classes), classes))

    def _find(self, classes: Classes) -> Together:
        outcome = self._outcomes.of(self._unit, tuple(self._names[c] for c in classes))
        epoch_s = dict(zip(classes, outcome.epoch_s, strict=True))
        alone_s = {c: outcome.epoch_s[0] if len(classes) == 1 else self.of((c,)).epoch_s[c] for c in epoch_s}
        slower = sum(n * epoch_s[c] / alone_s[c] for c, n in Counter(classes).items())
        return Together(
            outcome.power_w, outcome.utilisation_pct, epoch_s, slower / len(classes), not outcome.refused
        )


def least_energy(
    sets: Sets,
    of: Sequence[Classes],
    work: Sequence[float] | None = None,
    *,
    longer: float | None = None,
    active: float | None = None,
) -> float:
    """Least energy of any policy, over that of all jobs alone; units without jobs draw nothing.

    Parameters
    ----------
    of : sequence of classes
        The sets that may run, those of single jobs among them.
    work : sequence of float, optional
        Work of each class, in hours alone; None for the mix of classes for which most is saved.
    longer : float, optional
        Part by which the jobs may run longer than alone, on average over their work.
    active : float, optional
        Least hours of units, over those of all jobs alone.

    Raises
    ------
    RuntimeError
        If HiGHS fails, as for a bound on the active units that sets do not reach.
    """
    from scipy.optimize import linprog

    done = np.zeros((len(sets.classes), len(of)))
    for s, classes in enumerate(of):
        for c, count in Counter(classes).items():
            done[c, s] = count * sets.of((c,)).epoch_s[c] / sets.of(classes).epoch_s[c]
    power_w = np.array([sets.of(classes).power_w for classes in of])
    size = np.array([float(len(classes)) for classes in of])
    alone_w = np.array([sets.of((c,)).power_w for c in sets.classes])
    total = done.sum(axis=0)
    rows, equal, target = [np.zeros(len(of))], (alone_w @ done)[None, :], np.ones(1)
    if work is not None:
        equal, target = done, np.array(work) / float(np.array(work) @ alone_w)
    if longer is not None:
        rows.append(size - (1 + longer) * total)
    if active is not None:
        rows.append(active * total - 1)
    answer = linprog(power_w, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=equal, b_eq=target)
    if answer.status != 0 or answer.fun is None:
        raise RuntimeError(f"no policy keeps these limits: {answer.message}")
    return float(answer.fun)
