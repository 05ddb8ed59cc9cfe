"""Shifted geometric means with intervals, paired tests, and performance profiles.

Do the answers to one instance agree? Each is checked alone; here they are held against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattsched.comparisons.run import Run
from wattsched.results.problems import PROBLEMS, problem
from wattsched.solvers.registry import get as find_solver
from wattsched.topology.arrays import FloatArray

SHIFT_S = 1.0
LEAST_TIME_S = 1e-3
"""Faster than this is equally fast in a profile."""
LEAST_GAP = 1e-9
"""Smaller than this is none."""
MOST_GAP = 10.0
"""Larger than this is equally large: next to an objective of 0 every gap is."""


# Fewer pairs cannot differ with any certainty; draws of the bootstrap.
_FEWEST_PAIRS, _DRAWS = 5, 2_000


@dataclass(frozen=True)
class Summary:
    """Runs and mean times of one formulation and solver over all instances.

    Attributes
    ----------
    runs, solved, skipped : int
        `solved` to the gap asked for, by this solver's own decision and bound, or proven infeasible by it.
    build_s, solve_s, total_s : float
        Shifted geometric means over the runs that were not skipped: for the program, for the solver, and for
        the whole call. Those that are not solved count with the time limit, or their time if that is longer.
    primal_integral_s : float
        Shifted geometric mean of `primal_integral` over the runs that have one; nan without any.
    solve_interval_s : pair of float, optional
        95 % interval of `solve_s` over other instances like these, by bootstrap of instances; None for fewer
        than two.
    p_of_best : float, optional
        Probability of differences as large as those to the quickest one, were both as quick: Wilcoxon's
        signed-rank test on the mean logarithms of the seconds, paired by instance. None for the quickest, and
        where there are no five instances.
    """

    formulation: str
    solver: str
    runs: int
    solved: int
    skipped: int
    build_s: float
    solve_s: float
    total_s: float
    primal_integral_s: float = float("nan")
    solve_interval_s: tuple[float, float] | None = None
    p_of_best: float | None = None

    @property
    def pair(self) -> str:
        """Formulation and solver in one word."""
        return f"{self.formulation} {self.solver}".rstrip()


def shifted_geometric_mean(values: Iterable[float], shift: float = SHIFT_S) -> float:
    r"""Shifted geometric mean.

    .. math:: \Bigl(\prod_{i=1}^n (v_i + s)\Bigr)^{1/n} - s

    It is nan without values.
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
    found = [_summary(formulation, solver, group) for (formulation, solver), group in pairs.items()]
    tried = [one for one in found if one.runs > one.skipped]
    if len(tried) < 2:
        return found
    best = min(tried, key=lambda one: one.solve_s)
    of_best = pairs[best.formulation, best.solver]
    return [
        one if one is best else replace(one, p_of_best=_p_of(pairs[one.formulation, one.solver], of_best))
        for one in found
    ]


def virtual_best(runs: Sequence[Run]) -> Summary | None:
    """Summary of the quickest run of every instance and seed; None where there is no choice among several."""
    together: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in runs:
        if run.status != "skipped":
            together[run.instance, run.seed].append(run)
    if not any(len(group) > 1 for group in together.values()):
        return None
    quickest = [min(group, key=lambda run: _charged(run, run.solve_s)) for group in together.values()]
    return _summary("virtual best", "", quickest)


def _p_of(runs: Sequence[Run], others: Sequence[Run]) -> float | None:
    """Wilcoxon's two-sided probability for the mean logarithms of seconds, paired by instance.

    Seeds of one instance are no independent pairs.
    """
    from scipy.stats import wilcoxon

    known = [_mean_logarithms(some) for some in (runs, others)]
    both = sorted(known[0].keys() & known[1].keys())
    if len(both) < _FEWEST_PAIRS:
        return None
    difference = np.array([known[0][name] - known[1][name] for name in both])
    return float(wilcoxon(difference).pvalue) if difference.any() else 1.0


def _mean_logarithms(runs: Iterable[Run]) -> dict[str, float]:
    """Mean logarithm of the seconds of each instance, over its seeds."""
    found: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.status != "skipped":
            found[run.instance].append(float(np.log(max(LEAST_TIME_S, _charged(run, run.solve_s)))))
    return {name: sum(values) / len(values) for name, values in found.items()}


def _interval(runs: Sequence[Run]) -> tuple[float, float] | None:
    """95 % interval of the shifted geometric mean, by bootstrap of instances; None for fewer than two."""
    together: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        together[run.instance].append(float(np.log(_charged(run, run.solve_s) + SHIFT_S)))
    if len(together) < 2:
        return None
    values = np.array([sum(of) / len(of) for of in together.values()])
    draws = np.random.default_rng(0).integers(len(values), size=(_DRAWS, len(values)))
    low, high = np.quantile(np.exp(values[draws].mean(axis=1)) - SHIFT_S, (0.025, 0.975))
    return float(low), float(high)


def _summary(formulation: str, solver: str, runs: list[Run]) -> Summary:
    """Summary of all runs of one formulation and solver."""
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
        primal_integral_s=shifted_geometric_mean(
            run.primal_integral_s for run in tried if run.primal_integral_s is not None
        ),
        solve_interval_s=_interval(tried),
    )


def _charged(run: Run, seconds: float | None) -> float:
    """Seconds that count in means: a run that did not solve its instance used up its time."""
    spent = seconds or 0.0
    return spent if run.solved else max(spent, run.time_limit_s or 0.0)


def ended_s(run: Run) -> float:
    """Seconds of building and solving."""
    return (run.build_s or 0.0) + (run.solve_s or 0.0)


def times(runs: Iterable[Run]) -> dict[str, dict[str, float]]:
    """Seconds to build and solve by formulation and solver, then instance and seed; infinite if not solved.

    A formulation that generates its columns does so while it is built.
    """
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for run in runs:
        seconds = max(LEAST_TIME_S, ended_s(run))
        found[run.pair][run.case] = seconds if run.solved else np.inf
    return dict(found)


def gaps(runs: Iterable[Run]) -> dict[str, dict[str, float]]:
    """Gaps that solvers found by themselves, by formulation and solver, then instance and seed.

    They are `MOST_GAP` at most, infinite without a decision or a bound, and 0 where none exists, proven.
    """
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for run in runs:
        known = run.solved or (run.solver_gap is not None and not run.faults)
        gap = min(run.solver_gap or 0.0, MOST_GAP)
        found[run.pair][run.case] = (gap if gap > LEAST_GAP else 0.0) if known else np.inf
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


ROUNDING = 1e-6
"""Relative difference that counts as rounding."""


def disagreements(runs: Iterable[Run]) -> list[str]:
    """Contradictions between runs of one instance and objective, one sentence each.

    A run contradicts another when its bound is beyond the other's checked objective, when it proved that
    there is no decision and the other has one, or when both are optimal and their objectives are further
    apart than the gaps asked for allow. What `solve` itself found wrong with an answer counts too, and so
    does an optimum of a user's formulation that is cheaper than its decision.
    """
    together: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        together[run.question].append(run)
    return [sentence for group in together.values() for sentence in _within(group)]


_OTHER_COSTS = (
    "has an optimum that is better than its own decision (gap {:.1e}, and no limit stopped it): what the "
    "formulation minimises is not the objective"
)


def _misprices(run: Run) -> bool:
    """True if an exact solver was done, yet the decision does not have the value that it found.

    `solve` states what a decision is worth by itself. A formulation whose costs are too low then shows as a
    gap that nothing explains.
    """
    limited = run.limit is not None or run.solver_limit is not None
    done = run.status == "feasible" and not (limited or run.detail or run.faults)
    is_users = not any(run.formulation in problem(name).formulations for name in PROBLEMS)
    # Solvers measure the gap against one value, `solve` against another.
    return (
        done
        and is_users
        and (run.solver_gap or 0.0) > 2 * run.gap_asked + ROUNDING
        and find_solver(run.solver).exact
    )


def _within(runs: Sequence[Run]) -> list[str]:
    """Sentences on faults of, and contradictions between, runs of one instance and objective."""
    found = [f"{run.instance}: {run.pair}: {fault}" for run in runs for fault in run.faults]
    found += [
        f"{run.instance}: {run.pair} {_OTHER_COSTS.format(run.solver_gap)}" for run in runs if _misprices(run)
    ]
    checked = [run for run in runs if run.objective is not None and run.checked]
    best = min(checked, key=cost_of, default=None)
    if best is None:
        return found
    for run in runs:
        if run.faults or run.status == "skipped" or run is best:
            continue
        if why := _contradiction(run, best):
            found.append(f"{run.instance}: {run.pair} {why}; {best.pair} has a checked {best.objective:.10g}")
    return found


def _contradiction(run: Run, best: Run) -> str:
    """Return the claim of a run that the best checked decision contradicts; empty when there is none."""
    assert best.objective is not None
    slack = ROUNDING * max(1.0, abs(best.objective))
    if "infeasible" in (run.solver_status, run.status):
        return "proved that there is no decision"
    for bound in (run.solver_bound, run.bound):
        if bound is not None and _signed(run, bound) > cost_of(best) + slack:
            return f"has the bound {bound:.10g}"
    for status, objective in ((run.solver_status, run.solver_objective), (run.status, run.objective)):
        if status != "optimal" or objective is None:
            continue
        if _signed(run, objective) - run.gap_asked * abs(objective) > cost_of(best) + slack:
            return f"calls {objective:.10g} optimal to a gap of {run.gap_asked:g}"
    return ""


def cost_of(run: Run) -> float:
    """Objective of a run that has one, to be minimised."""
    assert run.objective is not None
    return _signed(run, run.objective)


def _signed(run: Run, value: float) -> float:
    """Value to be minimised."""
    return -value if run.sense == "max" else value
