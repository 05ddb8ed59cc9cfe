r"""Least energy of any policy for jobs that share the units of a stream.

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
from itertools import combinations, combinations_with_replacement, count

import numpy as np
from scipy.optimize import linprog

from wattsched.replay.sharing.stream import Classes, Sets


def admitted(sets: Sets) -> Iterator[Classes]:
    """Sets that the limits let be formed, the small ones first; of one that they do not, no larger one."""
    for size in count(1):
        formed = [c for c in combinations_with_replacement(sets.classes, size) if sets.of(c).admitted]
        if not formed:
            return
        yield from formed


def reachable(sets: Sets) -> list[Classes]:
    """Sets that the limits let be formed, and what may be left of them."""
    found = {
        part for whole in admitted(sets) for n in range(1, len(whole) + 1) for part in combinations(whole, n)
    }
    return sorted(found, key=lambda classes: (len(classes), classes))


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
    done = np.zeros((len(sets.classes), len(of)))
    for s, classes in enumerate(of):
        for c, number in Counter(classes).items():
            done[c, s] = number * sets.of((c,)).epoch_s[c] / sets.of(classes).epoch_s[c]
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
