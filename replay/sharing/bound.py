r"""What no policy over time can save, by a linear program over the hours that each set runs.

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
from collections.abc import Sequence

import numpy as np

from wattsched.replay.sharing.sets import Classes, Sets
from wattsched.topology.arrays import FloatArray


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
    sets : Sets
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

    power_w, size, done = _columns(sets, of)
    alone_w = np.array([sets.of((c,)).power_w for c in sets.classes])
    total = done.sum(axis=0)
    rows, equal = [], (alone_w @ done)[None, :]
    target = np.ones(1)
    if work is not None:
        weights = np.array(work, dtype=float)
        equal, target = done, weights / float(weights @ alone_w)
    if longer is not None:
        rows.append(size - (1 + longer) * total)
    if active is not None:
        rows.append(active * total - 1)
    upper = (np.array(rows), np.zeros(len(rows))) if rows else (None, None)
    answer = linprog(power_w, A_ub=upper[0], b_ub=upper[1], A_eq=equal, b_eq=target)
    if answer.status != 0 or answer.fun is None:
        raise RuntimeError(f"no policy keeps these limits: {answer.message}")
    return float(answer.fun)


def _columns(sets: Sets, of: Sequence[Classes]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Watts and jobs of each set, shape (S,), and work that it does of each class per hour, shape (C, S)."""
    done = np.zeros((len(sets.classes), len(of)))
    for s, classes in enumerate(of):
        for c, count in Counter(classes).items():
            done[c, s] = count * sets.of((c,)).epoch_s[c] / sets.of(classes).epoch_s[c]
    power_w = np.array([sets.of(classes).power_w for classes in of])
    return power_w, np.array([float(len(classes)) for classes in of]), done
