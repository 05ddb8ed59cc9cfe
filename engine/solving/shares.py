"""Shares of time: how long each job runs on which GPUs, where jobs take turns; `time_shares`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.time_shares import KEPT, TIES, Prices, Ties, prices_of, program_of, repaired
from wattsched.instances.errors import require_known
from wattsched.instances.time_shares import TimeShareInstance, instance_of
from wattsched.reading.arguments import require_types
from wattsched.topology.arrays import BoolArray, FloatArray
from wattsched.verification.time_shares import check_shares

NEAR = 1e-4
"""Shares are this close to their bound, relative to it, or they are none."""

_FAR = "rate: the jobs' rates over their demands are too far apart for shares within 1e-4 of the best"


@dataclass(frozen=True)
class TimeShares:
    """Shares of time; they are checked.

    Attributes
    ----------
    share : float array, shape (n_options,)
        Part of its time that a job spends on each of its options.
    objective : float
        What the shares are worth: the least progress, the sum of all progress, or the seconds until the last
        job is complete.
    bound : float
        What no shares are better than; it follows from the prices.
    prices : dict of str to float
        What one more GPU of each type (``gpus:TYPE``) or watt (``power_w``) adds to the progress that counts.
    dropped : dict of str to str
        Jobs that have no time, and why.
    instance : TimeShareInstance
    """

    share: FloatArray
    objective: float
    bound: float
    prices: dict[str, float]
    dropped: dict[str, str]
    instance: TimeShareInstance = field(repr=False)

    @property
    def gap(self) -> float:
        """Gap between objective and bound, relative to the objective."""
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-300)

    @property
    def progress(self) -> FloatArray:
        """Progress of each job, as a part of its demand, shape (n_jobs,)."""
        return self.instance.progress(self.share)

    def by_job(self) -> dict[str, dict[str, float]]:
        """Share of each job on each type of GPUs."""
        of = self.instance
        table = np.zeros((len(of.jobs), len(of.types)))
        np.add.at(table, (of.job, of.type_of), self.share)
        return {
            job: dict(zip(of.types, row, strict=True))
            for job, row in zip(of.jobs, table.tolist(), strict=True)
        }


def time_shares(
    available: Mapping[str, float],
    jobs: Sequence[str],
    *,
    pool: Any,
    gpus: Any,
    rate: Any,
    start: Any = None,
    power_w: Any = None,
    objective: str = "max-min",
    weight: Any = None,
    reference: Any = None,
    remaining_work: Any = None,
    power_cap_w: float | None = None,
    ties: Ties = "goodput",
) -> TimeShares:
    r"""Share the time of GPUs of several types among jobs that take turns on them; by a linear program.

    Parameters
    ----------
    available : mapping of str to float
        GPUs of each type.
    jobs : sequence of str, length n
    start : int array, shape (n + 1,), optional
        Options of job i are the rows ``start[i]`` to ``start[i + 1]`` of the columns that follow; default:
        one option each.
    pool, gpus, rate, power_w : arrays, or one value for all options
        Type, GPU count, work per second and watts of every option; `power_w` only where there is a cap.
    objective : {"max-min", "goodput", "makespan"}
        The least progress, the sum of all progress, or when the last job is complete. Progress is the rate of
        a job over its demand.
    weight : array or number, optional
        Of jobs: what they are entitled to, or what their progress is worth.
    reference : array or number, optional
        Rate that counts as 1. Default: of "max-min" the rate of a job that spends its time on the types in
        proportion to their GPUs; of "goodput" 1.
    remaining_work : array or number, optional
        What is left to do; "makespan" must have it, where it is the demand.
    power_cap_w : float, optional
        Cap on the average draw of the options.
    ties : {"goodput", "max-min", "any"}
        What is asked for among optima of the least progress: the largest sum of progress; the largest least
        progress of the other jobs, and so on (lexicographic, Gavel's water filling); or nothing.

    Returns
    -------
    TimeShares
        Options that do not fit the cluster or the cap at once have no share, nor have jobs without others.

    Raises
    ------
    ValueError, TypeError
        That names the argument; also where rates and demands are too many orders of magnitude apart.
    """
    require_types(time_shares, given := locals())
    require_known("ties", ties, TIES)
    return shares_of(instance_of(**{name: value for name, value in given.items() if name != "ties"}), ties)


def shares_of(instance: TimeShareInstance, ties: Ties = "goodput") -> TimeShares:
    """Solve a validated round of time shares.

    Raises
    ------
    ValueError
        Where rates and demands are so far apart that doubles do not find shares near their bound.
    RuntimeError
        If what was found does not pass the checker.
    """
    served = instance.served
    if instance.objective == "goodput":
        share, duals = _solved(program_of(instance))
    else:
        share, duals = _solved(program_of(instance, raised=served))
        if ties != "any" and served.any():
            share = _among_optima(instance, share, duals, ties)
    share, prices = repaired(instance, share[: instance.n_options]), prices_of(instance, duals)
    verdict = check_shares(
        instance, share.tolist(), prices.progress.tolist(), prices.gpus.tolist(), prices.power_w
    )
    if verdict.faults:
        raise RuntimeError(f"the shares do not pass the checker: {verdict.faults[0]}")
    if not abs(verdict.bound - verdict.objective) <= NEAR * abs(verdict.objective):
        raise ValueError(_FAR)
    reason = "no option makes progress and fits the GPUs and the cap"
    dropped = {instance.jobs[j]: reason for j in np.flatnonzero(~served).tolist()}
    return TimeShares(share, verdict.objective, verdict.bound, _named(instance, prices), dropped, instance)


def _among_optima(
    instance: TimeShareInstance, share: FloatArray, duals: FloatArray, ties: Ties
) -> FloatArray:
    """Shares of the same least progress that are best by `ties`; an optimum and its duals are given."""
    raised: BoolArray = instance.served.copy()
    floor = np.zeros(len(raised))
    while True:
        # Of shares that keep within all limits, so that the next program has a point.
        least = instance.progress(repaired(instance, share[: instance.n_options]))[raised].min()
        floor[raised] = KEPT * least
        # A job whose progress has a price has no more in any optimum.
        last = raised & (prices_of(instance, duals).progress > 1e-9)
        raised &= ~last
        if ties == "goodput" or not raised.any() or not last.any():
            break
        step = _optimum(program_of(instance, raised=raised, floor=np.where(raised, 0.0, floor)))
        if step is None:
            break
        share, duals = step
    # Tolerances of the solver may leave no point where floors are close to what is possible.
    if (step := _optimum(program_of(instance, floor=floor))) is not None:
        share, _ = step
    return share


def _solved(program: Program) -> tuple[FloatArray, FloatArray]:
    """Optimum of a program that has one, and its duals."""
    if (found := _optimum(program)) is None:
        raise ValueError(_FAR)
    return found


def _optimum(program: Program) -> tuple[FloatArray, FloatArray] | None:
    """Optimum of a linear program and its duals, None where it has none."""
    from wattsched.solvers.lp import solve_lp
    from wattsched.solvers.solution import Limits

    if program.n_columns == 0:
        return np.zeros(0), np.zeros(program.n_rows)
    solution = solve_lp(program, Limits())
    return None if solution.x is None or solution.prices is None else (solution.x, solution.prices)


def _named(instance: TimeShareInstance, prices: Prices) -> dict[str, float]:
    """Prices other than 0, in progress of a job where the least progress counts."""
    total = float(prices.progress.sum()) if instance.objective != "goodput" else 1.0
    found = {f"gpus:{name}": price for name, price in zip(instance.types, prices.gpus.tolist(), strict=True)}
    found["power_w"] = prices.power_w
    return {name: price / total for name, price in found.items() if price > 0.0}
