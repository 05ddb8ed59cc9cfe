"""Trajectories of runs give primal integrals, and gaps over time with their spread over runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wattsched.comparisons.run import Run
from wattsched.comparisons.statistics import LEAST_TIME_S, cost_of, ended_s
from wattsched.solvers.solution import relative_gap
from wattsched.solving.trajectory import Improvement
from wattsched.topology.arrays import FloatArray

BAND = (0.1, 0.5, 0.9)
"""Shares of the runs that a band and its line in the middle are quantiles of."""


def with_primal_integrals(runs: Sequence[Run]) -> list[Run]:
    """The runs with their primal integrals, relative to the best decision of the instance among them.

    They end at the time limit; without one, with the longest run of the instance.
    """
    best, longest_s = best_of(runs), defaultdict[tuple[str, str], float](float)
    for run in runs:
        longest_s[run.question] = max(longest_s[run.question], ended_s(run))
    integrated = []
    for run in runs:
        known, limit_s = best.get(run.question), run.time_limit_s
        if known is not None and run.status != "skipped":
            # A decision that was wrong is none.
            steps = () if run.faults else run.trajectory
            until_s = longest_s[run.question] if limit_s is None else limit_s
            run = replace(run, primal_integral_s=primal_integral(steps, known, until_s))
        integrated.append(run)
    return integrated


def best_of(runs: Sequence[Run]) -> dict[tuple[str, str], float]:
    """Best checked objective by instance and objective, where there is any."""
    checked = [run for run in runs if run.checked and run.objective is not None]
    # The best comes last, and stays.
    return {run.question: run.objective or 0.0 for run in sorted(checked, key=cost_of, reverse=True)}


def primal_integral(trajectory: Sequence[Improvement], best: float, until_s: float) -> float:
    r"""Primal integral of Berthold (2013, "Measuring the impact of primal heuristics"), in seconds.

    .. math:: \int_0^T \gamma(t)\,dt, \qquad
        \gamma(t) = \frac{|z(t) - z^*|}{\max(|z(t)|, |z^*|)}

    :math:`z(t)` is the objective of the decision at hand at time t, :math:`z^*` the `best` known. The gap is
    1 without a decision and where both differ in sign, and 0 where both are 0.
    """
    integral_s, gap, since_s = 0.0, 1.0, 0.0
    for time_s, objective, _ in trajectory:
        now_s = min(time_s, until_s)
        integral_s += gap * (now_s - since_s)
        gap, since_s = primal_gap(objective, best), now_s
    return integral_s + gap * max(0.0, until_s - since_s)


def primal_gap(objective: float | None, best: float) -> float:
    """Gap of an objective, None for no decision, to the best one known, as `primal_integral` has it."""
    if objective is None or objective * best < 0.0:
        return 1.0
    largest = max(abs(objective), abs(best))
    return abs(objective - best) / largest if largest > 0.0 else 0.0


class GapBand(NamedTuple):
    """Quantiles of the gaps of several runs, infinite where too few have a decision and a bound.

    Attributes
    ----------
    time_s : float array, shape (n,)
        Of building and solving, ascending.
    low, median, high : float arrays, shape (n,)
        What 10, 50 and 90 % of the runs have at most.
    runs : int
    """

    time_s: FloatArray
    low: FloatArray
    median: FloatArray
    high: FloatArray
    runs: int


def gap_bands(runs: Sequence[Run]) -> dict[str, GapBand]:
    """Gaps over time between each solver's own decision and bound, by formulation and solver.

    They spread over instances and seeds; runs that were skipped do not count. A proof that there is no
    decision is a gap of 0.
    """
    pairs: dict[str, list[tuple[FloatArray, FloatArray]]] = defaultdict(list)
    for run in runs:
        if run.status != "skipped":
            pairs[run.pair].append(_gap_course(run))
    bands = {}
    for pair, courses in pairs.items():
        time_s = np.unique(np.concatenate([times_s for times_s, _ in courses]))
        # Before its first moment a run has no gap.
        table = [
            np.concatenate([[np.inf], gaps])[np.searchsorted(times_s, time_s, "right")]
            for times_s, gaps in courses
        ]
        # Gaps of runs, not means between them: some may be infinite.
        low, median, high = np.quantile(table, BAND, axis=0, method="inverted_cdf")
        bands[pair] = GapBand(time_s, low, median, high, len(courses))
    return bands


def _gap_course(run: Run) -> tuple[FloatArray, FloatArray]:
    """Seconds at which a run's gap changes, and the gap from then on."""
    if run.faults or run.solver_status == "infeasible":
        told = [(ended_s(run), np.inf if run.faults else 0.0)]
    else:
        told = [
            (time_s, np.inf if objective is None or bound is None else relative_gap(objective, bound))
            for time_s, objective, bound in run.trajectory
        ]
    times_s, gaps = zip(*told, strict=True) if told else ((ended_s(run),), (np.inf,))
    return np.maximum(LEAST_TIME_S, times_s), np.array(gaps, dtype=float)
