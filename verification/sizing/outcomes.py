r"""What each job does in a decision, the rules that concern it alone, and what that is worth.

The objectives stand here once, for decisions as for the least costs of a proof. Of `work-value`: with
:math:`Z^>` the sum of the weights of all jobs that are larger than a job per weight, and :math:`Z^\ge` of
those that are at least as large, itself included, a second of its work is worth the root of
:math:`w (Z^> + Z^\ge)`. Its size is its remaining work over the best rate that it has with the fewest GPUs.
Sizes per weight are compared after rounding to 30 binary digits, so that the last digits of a rate do not
decide.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job
from wattsched.instances.units import S_PER_H
from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.verification.arithmetic import DOUBLES, Arithmetic, Numbers
from wattsched.verification.report import TOLERANCE, exceeds
from wattsched.verification.sizing.configurations import Configurations, JobConfigurations
from wattsched.verification.sizing.pools import gpus_of

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
}
"""Objectives and their senses."""

BOTTLENECK = ("makespan", "max-min")
"""Objectives in which the worst job counts; the others are sums."""


@dataclass(frozen=True)
class Outcome:
    """What a job does and what follows from it; a waiting job has no assignment and draws nothing.

    Of a set of ``members`` each draws an equal part, and the one that ``leads`` has the GPUs.
    """

    job: Job
    configurations: Configurations
    assignment: Assignment | None
    completion_s: float
    rate: float = 0.0
    power_w: float = 0.0
    restarts: bool = False
    members: int = 1
    leads: bool = True


def outcome_of(configurations: JobConfigurations, job: Job, assignment: Assignment | None) -> Outcome | str:
    """Outcome of a job, or why it has none."""
    try:
        alone = configurations.of(job)
    except ValueError as error:
        return f"has no configurations: {error}"
    if not alone.rows:
        return "has no configuration that it could run as, now or later"
    best_s = alone.best_s(job)
    if not 0 < best_s < math.inf:
        return f"is complete after {best_s:g} s at best, which is no time that can be compared"
    held = job.current
    if assignment is None:
        later_s = configurations.instance.round_s + best_s
        return Outcome(job, alone, None, later_s, restarts=held is not None)
    a = assignment
    setting = (a.pool, a.gpus, a.frequency_mhz, a.power_limit_w, a.batch_size)
    members, leads = 1, True
    if a.set is not None:
        in_sets = configurations.in_sets(job.name)
        row = next((r for r in in_sets if (r.set, r.setting) == (a.set, setting)), None)
        if row is None:
            return f"has no configuration in a set '{a.set}' {_words(a)}"
        members, leads = row.members, row.leads
        rate, power_w = row.rate, row.power_w / members
    elif setting not in alone.rows:
        return f"has no configuration {_words(a)}"
    elif setting in alone.ambiguous:
        return f"has several rows {_words(a)}, and the decision cannot say which"
    else:
        rate, power_w = alone.rows[setting]
    restarts = held is not None and (a.gpus, a.batch_size, a.pool) != (held.gpus, held.batch_size, held.pool)
    completion_s = job.remaining_work / rate + (job.restart_s if restarts else 0.0)
    return Outcome(job, alone, a, completion_s, rate, power_w, restarts, members, leads)


def _words(a: Assignment) -> str:
    settings = {
        "frequency_mhz": a.frequency_mhz,
        "power_limit_w": a.power_limit_w,
        "batch_size": a.batch_size,
    }
    given = "".join(f", {name} {value:g}" for name, value in settings.items() if value is not None)
    return f"with {a.gpus} GPUs in pool '{a.pool}'{given}"


def own_faults(outcome: Outcome) -> Iterator[str]:
    """Rules that concern one job alone."""
    job, assignment = outcome.job, outcome.assignment
    deadline_s = job.deadline_s
    if deadline_s is not None and exceeds(outcome.completion_s, deadline_s, TOLERANCE):
        yield f"is complete after {outcome.completion_s:.9g} s, its deadline is {deadline_s:.9g} s"
    if assignment is None:
        if not job.can_wait:
            yield "waits although it may not"
        if not job.preemptible:
            yield "is stopped although it is not preemptible"
    elif not job.preemptible and job.current is not None:
        if outcome.restarts:
            yield "changes GPU count, batch size or pool although it is not preemptible"
        if gpus_of(assignment.nodes) != gpus_of(job.current.nodes):
            yield "moves to other GPUs although it is not preemptible"


def migrates(outcome: Outcome) -> bool:
    """Whether a running job keeps its configuration on other GPUs than it holds."""
    held, assignment = outcome.job.current, outcome.assignment
    if held is None or assignment is None or outcome.restarts or not held.nodes:
        return False
    return gpus_of(held.nodes) != gpus_of(assignment.nodes)


def set_faults(instance: Instance, decision: Decision) -> Iterator[str]:
    """Sets that are not declared, or in which a job is missing, a stranger, or on other GPUs."""
    declared = {one.name: one for one in instance.sets}
    for name, members in _formed(decision).items():
        if name not in declared:
            yield f"job '{members[0].job}' is in the set '{name}', which is not declared"
            continue
        present = {assignment.job for assignment in members}
        for job in declared[name].rates:
            if job not in present:
                yield f"set '{name}' is formed without its job '{job}'"
        first = members[0]
        for other in members:
            if other.job not in declared[name].rates:
                yield f"job '{other.job}' is not in the set '{name}'"
            elif (other.pool, other.gpus) != (first.pool, first.gpus):
                told = f"jobs '{first.job}' and '{other.job}' of set '{name}' have different"
                yield f"{told} pools or GPU counts"
            elif gpus_of(other.nodes) != gpus_of(first.nodes):
                yield f"jobs '{first.job}' and '{other.job}' of set '{name}' have different GPUs"


def users_of(decision: Decision) -> list[Assignment]:
    """Assignments that take GPUs: the jobs alone, and the first of every set."""
    return [*(a for a in decision.jobs if a.set is None), *(found[0] for found in _formed(decision).values())]


def _formed(decision: Decision) -> dict[str, list[Assignment]]:
    found: dict[str, list[Assignment]] = defaultdict(list)
    for assignment in decision.jobs:
        if assignment.set is not None:
            found[assignment.set].append(assignment)
    return found


# --- what outcomes are worth --------------------------------------------------------------------------


class JobTerms(NamedTuple):
    """What jobs bring into the objective: weights with their sizes, and seconds to completion at best.

    Of `work-value` the weight is what a second of a job's work is worth.
    """

    weight: Numbers
    weight_size: Numbers
    best_s: Numbers


class Choices(NamedTuple):
    """What jobs choose, in arrays of shape (n_choices,).

    Attributes
    ----------
    terms : JobTerms
        Of all jobs.
    job : int array
        Who chooses.
    runs : bool array, or bool for all
        Others wait.
    seconds, lost_s : arrays
        To completion, and those of a restart among them.
    speed : callable
        The speeds relative to the smallest configuration, where they are needed; 0 of jobs that wait.
    """

    terms: JobTerms
    job: IntArray
    runs: BoolArray | bool
    seconds: Numbers
    lost_s: Numbers
    speed: Callable[[], Numbers]


def costs_of(instance: Instance, chosen: Choices, arithmetic: Arithmetic) -> tuple[Numbers, Numbers]:
    """What choices are worth, with the sign that makes it a cost, and the sizes of these numbers.

    The arrays hold doubles or `Fraction` objects, so a case computes by ``+ - * /``, comparisons, and the
    arithmetic's `log` and `sqrt`. What it is worth is a product of at most five factors, as the analysis of
    errors in `Doubles` assumes. Its size is the `magnitude` of the product; with a difference in it that of
    the sum in its place, with a logarithm or a root that which comes with it.

    Raises
    ------
    ValueError
        For an objective that has no definition here.
    """
    terms, job, seconds = chosen.terms, chosen.job, chosen.seconds
    weight = terms.weight[job]
    match instance.objective:
        case "total-completion" | "makespan":
            cost = weight * seconds
        case "progress":
            cost = (-S_PER_H * chosen.runs) * weight / seconds
        case "max-min":
            cost = -terms.best_s[job] / seconds / weight
        case "proportional":
            slowdown, size = arithmetic.log(seconds / terms.best_s[job])
            return weight * slowdown, weight * size
        case "goodput" | "work-value" as name:
            speed, kept_s = chosen.speed(), arithmetic.number(instance.round_s)
            if name == "work-value":
                kept_s = np.minimum(max(arithmetic.number(SHORTEST_HOLD_S), kept_s), seconds)
            lost = np.minimum(0, chosen.lost_s / kept_s - 1)
            return weight * speed * lost, terms.weight_size[job] * speed
        case name:
            raise ValueError(f"objective '{name}' is not known")
    return cost, arithmetic.magnitude(cost)


def terms_of(
    instance: Instance, reference_rates: Sequence[float], best_s: Numbers, arithmetic: Arithmetic
) -> JobTerms:
    """Terms of the jobs.

    Parameters
    ----------
    reference_rates : sequence of float
        The jobs' best rates at the fewest GPUs.
    """
    if instance.objective == "work-value":
        return JobTerms(*arithmetic.sqrt(_squared_values(instance.jobs, reference_rates)), best_s)
    weight = arithmetic.array(job.weight for job in instance.jobs)
    return JobTerms(weight, arithmetic.magnitude(weight), best_s)


def _squared_values(jobs: Sequence[Job], reference_rates: Sequence[float]) -> list[Fraction]:
    """Squares of what a second of each job's work is worth."""
    alike: dict[float, list[int]] = defaultdict(list)
    for number, (job, rate) in enumerate(zip(jobs, reference_rates, strict=True)):
        mantissa, exponent = math.frexp(job.remaining_work / rate / job.weight)
        alike[math.ldexp(round(mantissa * 2**30), exponent)].append(number)
    weight = [Fraction(job.weight) for job in jobs]
    squares = [Fraction(0)] * len(weight)
    larger = Fraction(0)
    for size in sorted(alike, reverse=True):
        until = larger + sum(weight[number] for number in alike[size])
        for number in alike[size]:
            squares[number] = weight[number] * (larger + until)
        larger = until
    return squares


def objective_of(instance: Instance, outcomes: list[Outcome]) -> float:
    """Objective of a decision in which every job has an outcome, in the order of the jobs.

    Raises
    ------
    ValueError
        For an objective that has no definition here.
    """
    array = DOUBLES.array
    reference_rates = [o.configurations.reference_rate for o in outcomes]
    rates = array(o.rate for o in outcomes)
    best_s = array(o.configurations.best_s(o.job) for o in outcomes)
    chosen = Choices(
        terms_of(instance, reference_rates, best_s, DOUBLES),
        job=np.arange(len(outcomes)),
        runs=np.array([o.assignment is not None for o in outcomes], dtype=bool),
        seconds=array(o.completion_s for o in outcomes),
        lost_s=array(o.job.restart_s if o.restarts else 0.0 for o in outcomes),
        speed=lambda: rates / array(reference_rates),
    )
    costs = costs_of(instance, chosen, DOUBLES)[0].tolist()
    found = max(costs, default=0.0) if instance.objective in BOTTLENECK else total(costs)
    return found if OBJECTIVES[instance.objective] == "min" else 0.0 - found


def total(values: Iterable[float]) -> float:
    """Exactly rounded sum; infinite when it is too large for a number."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf
