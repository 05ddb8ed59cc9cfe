"""Shifted geometric means and performance profiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.comparisons.run import Run
from wattsched.formulations.program import FloatArray

SHIFT_S = 1.0
LEAST_TIME_S = 1e-3
"""Faster than this is equally fast in a profile."""
LEAST_GAP = 1e-9
"""Smaller than this is equally small in a profile."""
MOST_GAP = 10.0
"""Larger than this is equally large: next to an objective of 0 every gap is."""


@dataclass(frozen=True)
class Summary:
    """How one formulation and solver did over all instances.

    Attributes
    ----------
    runs, solved, skipped : int
        `solved` to the gap asked for.
    build_s, solve_s, total_s : float
        Shifted geometric means over the runs that were not skipped. Those that time stopped, or that failed,
        count with the time limit, or their time if that is longer.
    """

    formulation: str
    solver: str
    runs: int
    solved: int
    skipped: int
    build_s: float
    solve_s: float
    total_s: float


def shifted_geometric_mean(values: Iterable[float], shift: float = SHIFT_S) -> float:
    r"""Shifted geometric mean.

    .. math:: \Bigl(\prod_{i=1}^n (v_i + s)\Bigr)^{1/n} - s

    Returns
    -------
    float
        nan without values.
    """
    array = np.asarray(list(values), dtype=float)
    if not len(array):
        return float("nan")
    return float(np.exp(np.log(array + shift).mean()) - shift)


def summaries(runs: Sequence[Run]) -> list[Summary]:
    """One summary for each formulation and solver, in the order of the runs."""
    pairs: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        pairs[run.formulation, run.solver].append(run)
    return [_summary(formulation, solver, group) for (formulation, solver), group in pairs.items()]


def _summary(formulation: str, solver: str, runs: list[Run]) -> Summary:
    tried = [run for run in runs if run.status != "skipped"]
    return Summary(
        formulation=formulation,
        solver=solver,
        runs=len(runs),
        solved=sum(run.solved for run in runs),
        skipped=len(runs) - len(tried),
        build_s=shifted_geometric_mean(run.build_s or 0.0 for run in tried),
        solve_s=shifted_geometric_mean(_charged(run, run.solve_s) for run in tried),
        total_s=shifted_geometric_mean(_charged(run, run.total_s) for run in tried),
    )


def _charged(run: Run, seconds: float | None) -> float:
    spent = seconds or 0.0
    ended = run.status in ("optimal", "feasible", "infeasible") and run.limit is None and not run.faults
    return spent if ended else max(spent, run.time_limit_s or 0.0)


def times(runs: Iterable[Run]) -> dict[str, dict[str, float]]:
    """Solve seconds by formulation and solver, then instance; infinite where the gap was not reached."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for run in runs:
        seconds = max(LEAST_TIME_S, run.solve_s or 0.0) if run.solved else np.inf
        found[run.pair][run.instance] = seconds
    return dict(found)


def gaps(runs: Iterable[Run]) -> dict[str, dict[str, float]]:
    """Gaps by formulation and solver, then instance, from `LEAST_GAP` to `MOST_GAP`.

    They are infinite without a decision or a bound.
    """
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for run in runs:
        known = run.gap is not None and run.checked and not run.faults
        gap = min(max(LEAST_GAP, run.gap or 0.0), MOST_GAP)
        found[run.pair][run.instance] = gap if known else np.inf
    return dict(found)


def performance_profile(measures: Mapping[str, Mapping[str, float]]) -> dict[str, FloatArray]:
    r"""Performance profile of Dolan and Moré (2002).

    .. math:: r_{ps} = t_{ps} / \min_s t_{ps}, \qquad \rho_s(\tau) = |\{p : r_{ps} \le \tau\}| / n_p

    Parameters
    ----------
    measures : mapping
        Positive measures (less is better) by solver, then problem; infinite where it failed. Problems on
        which everybody failed count in :math:`n_p`.

    Returns
    -------
    dict of str to float array, shape (n_problems,)
        Sorted ratios: :math:`\rho_s` steps up by :math:`1 / n_p` at each finite one.
    """
    problems = sorted({problem for by_problem in measures.values() for problem in by_problem})
    table = np.array([[m.get(p, np.inf) for p in problems] for m in measures.values()], dtype=float)
    table = table.reshape(len(measures), len(problems))
    best = table.min(axis=0, initial=np.inf)
    ratios = np.full_like(table, np.inf)
    np.divide(table, best, out=ratios, where=np.isfinite(table))
    return dict(zip(measures, np.sort(ratios, axis=1), strict=True))
