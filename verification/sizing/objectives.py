r"""Costs of outcomes: the objectives, once for decisions as for the least costs of a proof.

For `work-value`: with :math:`Z^>` the sum of the weights of all jobs that are larger than a job per weight,
and :math:`Z^\ge` of those that are at least as large, itself included, a second of its work is worth the root
of :math:`w (Z^> + Z^\ge)`. Its size is its remaining work over the best rate that it has with the fewest
GPUs. Sizes per weight are compared after rounding to 30 binary digits, so that the last digits of a rate do
not decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.arithmetic import DOUBLES, Arithmetic, Number, Numbers
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.outcomes import Outcomes
from wattsched.verification.sizing.uncertainty import worst_case

SHORTEST_HOLD_S = 600.0
"""A restart is spread over this time at least: a configuration is expected to be kept as long."""

OBJECTIVES = {
    "total-completion": "min",
    "makespan": "min",
    "progress": "max",
    "max-min": "max",
    "proportional": "min",
    "goodput": "max",
    "work-value": "max",
    "energy": "min",
    "carbon": "min",
    "money": "min",
}
"""Objectives and their senses."""

RELATIVE = frozenset(("max-min", "proportional"))
"""Objectives of a job's seconds relative to the least that it needs."""

ENERGY = ("energy", "carbon", "money")
"""Objectives that count joules."""

BOTTLENECK = ("makespan", "max-min")
"""Objectives in which the worst job counts; the others are sums."""


class JobTerms(NamedTuple):
    """Terms of jobs in the objective: weights with their sizes, and least seconds to completion.

    `best_s` is from a standing start; `least_s` from now, where going on as a job runs takes no restart.
    For `work-value` the weight is the worth of a second of a job's work.
    """

    weight: Numbers
    weight_size: Numbers
    best_s: Numbers
    least_s: Numbers


class Choices(NamedTuple):
    """Choices of jobs to run or to wait, in arrays of shape (n_choices,).

    Attributes
    ----------
    terms : JobTerms
        Of all jobs.
    job : int array
        Number of the job that chooses.
    runs : bool array, or bool for all
        Others wait.
    seconds, lost_s : arrays
        To completion, and those of a restart among them.
    speed : callable
        The speeds relative to the smallest configuration, where they are needed; 0 of jobs that wait.
    change_cost : array, or 0 for none
        Cost of changes of jobs that run now.
    joules, joules_size : arrays, or 0 where these are asked for elsewhere
        Energy in the scope of the budgets.
    """

    terms: JobTerms
    job: IntArray
    runs: BoolArray | bool
    seconds: Numbers
    lost_s: Numbers
    speed: Callable[[], Numbers]
    change_cost: Numbers | int = 0
    joules: Numbers | int = 0
    joules_size: Numbers | int = 0


def slowed(chosen: Choices, works_s: Numbers, share: Numbers) -> Choices:
    """Return the choices of jobs that are slower by a share.

    Parameters
    ----------
    works_s : array, shape (n_choices,)
        Seconds that each job works, now or, if it waits, later; a restart is not among them.
    share : array, shape (n_choices,)
        Of the job's rate, below 1.
    """
    seconds = chosen.seconds + works_s * share / (1 - share)
    return chosen._replace(seconds=seconds, speed=lambda: chosen.speed() * (1 - share))


def costs_of(instance: Instance, chosen: Choices, arithmetic: Arithmetic) -> tuple[Numbers, Numbers]:
    """Return the costs of choices, with those of changes, and the sizes of these numbers."""
    cost, size = _worth_of(instance, chosen, arithmetic)
    paid = chosen.change_cost
    return (cost, size) if isinstance(paid, int) else (cost + paid, size + arithmetic.magnitude(paid))


def _worth_of(instance: Instance, chosen: Choices, arithmetic: Arithmetic) -> tuple[Numbers, Numbers]:
    """Return the worth of choices, with the sign that makes it a cost, and the sizes of these numbers.

    The arrays hold doubles or `Fraction` objects, so a case computes by ``+ - * /``, comparisons, and the
    arithmetic's `log` and `sqrt`. What it is worth is a product of at most five factors, as the analysis of
    errors in `Doubles` assumes. Its size is the `magnitude` of the product; with a difference in it that of
    the sum in its place, with a logarithm or a root that which comes with it.
    """
    terms, job, seconds = chosen.terms, chosen.job, chosen.seconds
    weight = terms.weight[job]
    match instance.objective:
        case "total-completion" | "makespan":
            cost = weight * seconds
        case "progress":
            cost = (-S_PER_H * chosen.runs) * weight / seconds
        case "max-min":
            cost = -terms.least_s[job] / seconds / weight
        case "proportional":
            slowdown, size = arithmetic.log(seconds / terms.least_s[job])
            return weight * slowdown, weight * size
        case "goodput" | "work-value" as name:
            speed, kept_s = chosen.speed(), arithmetic.number(instance.round_s)
            if name == "work-value":
                kept_s = np.minimum(max(arithmetic.number(SHORTEST_HOLD_S), kept_s), seconds)
            lost = np.minimum(0, chosen.lost_s / kept_s - 1)
            return weight * speed * lost, terms.weight_size[job] * speed
        case "energy" | "carbon" | "money":
            each = per_joule(instance, arithmetic)
            return chosen.joules * each, chosen.joules_size * abs(each)
        case name:
            raise ValueError(f"objective '{name}' is not known")
    return cost, arithmetic.magnitude(cost)


def per_joule(instance: Instance, arithmetic: Arithmetic) -> Number:
    """Return the cost of a joule in an objective of energy, carbon or money."""
    if instance.objective == "energy":
        return 1
    priced = instance.carbon_g_per_kwh if instance.objective == "carbon" else instance.price_per_kwh
    return arithmetic.number(priced or 0.0) / J_PER_KWH


def goodput_of(speed: Numbers, weight: Numbers, lost_s: Numbers, round_s: Number) -> Numbers:
    """Goodput of jobs by their speeds relative to the smallest configuration, less what restarts lose."""
    return np.asarray(weight * speed * np.maximum(0, 1 - lost_s / round_s))


def terms_of(
    of: JobConfigurations,
    reference_rates: FloatArray,
    best_s: Numbers,
    least_s: Numbers,
    arithmetic: Arithmetic,
    objective: str,
) -> JobTerms:
    """Terms of all jobs in an objective.

    Parameters
    ----------
    reference_rates : float array, shape (n_jobs,)
        The jobs' best rates at the fewest GPUs.
    """
    weight = arithmetic.array(of.weight)
    if objective != "work-value":
        return JobTerms(weight, arithmetic.magnitude(weight), best_s, least_s)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        size = of.jobs.numbers("remaining_work") / reference_rates / of.weight
    return JobTerms(*arithmetic.sqrt(_squared_values(weight, size, arithmetic)), best_s, least_s)


def _squared_values(weight: Numbers, size: FloatArray, arithmetic: Arithmetic) -> Numbers:
    """Squares of what a second of each job's work is worth, by weights and sizes (of `work-value`)."""
    mantissa, exponent = np.frexp(size)
    # Jobs of one rounded size are alike, the largest first.
    _, alike = np.unique(-np.ldexp(np.round(mantissa * 2**30), exponent), return_inverse=True)
    order = np.argsort(alike, kind="stable")
    last = np.cumsum(np.bincount(alike))
    # Weights of all jobs larger than the largest, than the next size, and so on, and of all.
    until = np.append(arithmetic.array([0]), arithmetic.running_sums(weight[order])[last - 1])
    return np.asarray(weight * (until[alike] + until[alike + 1]))


def goodput_in_all(outcomes: Outcomes) -> float:
    """Goodput of a decision, summed over its jobs."""
    of, jobs, runs = outcomes.configurations, outcomes.jobs, outcomes.runs
    speed = np.where(runs, outcomes.rate, 0.0) / of.reference_rate[jobs]
    lost_s = np.where(outcomes.restarts, of.jobs.numbers("restart_s")[jobs], 0.0)
    return total(goodput_of(speed, of.weight[jobs], lost_s, of.instance.round_s).tolist())


def objective_of(
    instance: Instance,
    outcomes: Outcomes,
    joules: FloatArray | float = 0.0,
    besides_j: float = 0.0,
    *,
    moves_cost: bool = True,
) -> float:
    """Objective of a decision in which every job has an outcome, in the worst case where it is uncertain.

    Parameters
    ----------
    joules : float array, shape (n_jobs,)
        Energy of each job in the scope of the budgets, where the objective counts it.
    besides_j : float
        Energy of nodes that are awake for jobs.
    moves_cost : bool
        Whether what a job pays that moves without a restart counts.
    """
    of, jobs = outcomes.configurations, outcomes.jobs
    reference_rate = of.reference_rate[jobs]
    least_s = of.least_s if instance.objective in RELATIVE else of.best_s
    chosen = Choices(
        terms_of(of, reference_rate, of.best_s[jobs], least_s[jobs], DOUBLES, instance.objective),
        job=jobs,
        runs=outcomes.runs,
        seconds=outcomes.completion_s,
        lost_s=np.where(outcomes.restarts, of.jobs.numbers("restart_s"), 0.0),
        speed=lambda: np.where(outcomes.runs, outcomes.rate, 0.0) / reference_rate,
        change_cost=outcomes.change_cost if moves_cost else outcomes.restart_cost,
        joules=np.asarray(joules),
    )
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        cost, _ = costs_of(instance, chosen, DOUBLES)
        costs, worst = cost.tolist(), _worst_case(instance, outcomes, chosen, cost)
        if instance.objective in ENERGY:
            costs.append(besides_j * max(0.0, per_joule(instance, DOUBLES)))
    found = max(costs, default=0.0) if instance.objective in BOTTLENECK else total([*costs, worst])
    return found if OBJECTIVES[instance.objective] == "min" else 0.0 - found  # no -0


def _worst_case(instance: Instance, outcomes: Outcomes, chosen: Choices, cost: FloatArray) -> float:
    """Return what slower jobs add to the cost of a decision in the worst case."""
    of, jobs = outcomes.configurations, outcomes.jobs
    share = instance.deviations(of.jobs, "rate_deviation")[jobs]
    if instance.uncertainty is None or not share.any():
        return 0.0
    later_s = (of.best_s - of.start_s)[jobs]
    works_s = np.where(outcomes.runs, chosen.seconds - chosen.lost_s, later_s)
    slow, _ = costs_of(instance, slowed(chosen, works_s, share), DOUBLES)
    return worst_case(instance.uncertainty, np.maximum(0.0, slow - cost))


def total(values: Iterable[float]) -> float:
    """Exactly rounded sum; infinite when it is too large for a number."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf
