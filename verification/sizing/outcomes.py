r"""The objective `work-value` as the checker reads it: what a second of each job's work is worth.

With :math:`Z^>` the sum of the weights of all jobs that are larger than a job per weight, and :math:`Z^\ge`
of those that are at least as large, itself included, its value is the root of :math:`w (Z^> + Z^\ge)`. Its
size is its remaining work over the best rate that it has with the fewest GPUs. Sizes per weight are compared
after rounding to 30 binary digits, so that the last digits of a rate do not decide.

What each job does in a decision, the rules that concern it alone, and what it is worth.

The checker's rules of sets: all jobs of a declared set run on the same GPUs, or none is in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance, Job
from wattsched.verification.sizing.cluster import gpus_of
from wattsched.verification.sizing.configurations import Configuration, Menu

SHORTEST_HOLD_S = 600.0


def hold_s(instance: Instance) -> float:
    """Seconds over which a restart is spread: those that a configuration is expected to be kept."""
    return max(SHORTEST_HOLD_S, instance.round_s)


def squared_values(jobs: Iterable[tuple[Job, float]]) -> dict[str, Fraction]:
    """Squares of the values, by the jobs' names.

    Parameters
    ----------
    jobs : iterable of (Job, float)
        All jobs of the instance, with their best rates at the fewest GPUs.
    """
    alike: dict[float, list[Job]] = defaultdict(list)
    for job, reference_rate in jobs:
        alike[_rounded(job.remaining_work / reference_rate / job.weight)].append(job)
    found: dict[str, Fraction] = {}
    larger = Fraction(0)
    for size in sorted(alike, reverse=True):
        until = larger + sum(Fraction(job.weight) for job in alike[size])
        found |= {job.name: Fraction(job.weight) * (larger + until) for job in alike[size]}
        larger = until
    return found


def _rounded(size: float) -> float:
    mantissa, exponent = math.frexp(size)
    return math.ldexp(round(mantissa * 2**30), exponent)


TOLERANCE = 1e-6
"""Relative tolerance of every comparison."""

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


@dataclass(frozen=True)
class Outcome:
    """What a job does and what follows from it; a waiting job has no assignment and draws nothing.

    Of a set of ``members`` each draws an equal part, and the one that ``leads`` has the GPUs.
    """

    job: Job
    menu: Menu
    assignment: Assignment | None
    completion_s: float
    rate: float = 0.0
    power_w: float = 0.0
    restarts: bool = False
    members: int = 1
    leads: bool = True


def outcome_of(
    instance: Instance,
    job: Job,
    menu: Menu,
    assignment: Assignment | None,
    in_sets: Sequence[Configuration] = (),
) -> Outcome | str:
    """Outcome of a job, or why it has none; `in_sets` is what it may run as in sets."""
    if not menu.rows:
        return "has no configuration that it could run as, now or later"
    best_s = menu.best_s(job)
    if not 0 < best_s < math.inf:
        return f"is complete after {best_s:g} s at best, which is no time that can be compared"
    if assignment is None:
        completion_s = instance.round_s + best_s
        return Outcome(job, menu, None, completion_s, restarts=job.current is not None)
    setting = (
        assignment.pool,
        assignment.gpus,
        assignment.frequency_mhz,
        assignment.power_limit_w,
        assignment.batch_size,
    )
    members, leads = 1, True
    if assignment.set is not None:
        row = next((r for r in in_sets if (r.set, r.setting) == (assignment.set, setting)), None)
        if row is None:
            return f"has no configuration in a set '{assignment.set}' {_words(assignment)}"
        members, leads = row.members, row.leads
        rate, power_w = row.rate, row.power_w / members
    elif setting not in menu.rows:
        return f"has no configuration {_words(assignment)}"
    elif setting in menu.ambiguous:
        return f"has several rows {_words(assignment)}, and the decision cannot say which"
    else:
        rate, power_w = menu.rows[setting]
    held = job.current
    restarts = held is not None and (
        (assignment.gpus, assignment.batch_size, assignment.pool) != (held.gpus, held.batch_size, held.pool)
    )
    completion_s = job.remaining_work / rate + (job.restart_s if restarts else 0.0)
    return Outcome(job, menu, assignment, completion_s, rate, power_w, restarts, members, leads)


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
    if deadline_s is not None and not outcome.completion_s <= deadline_s * (1 + TOLERANCE):
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


def objective_of(instance: Instance, outcomes: list[Outcome]) -> float:
    """Objective of a decision in which every job has an outcome.

    Raises
    ------
    ValueError
        For an objective that has no definition here.
    """
    if not outcomes:
        return 0.0
    match instance.objective:
        case "total-completion":
            return total(o.job.weight * o.completion_s for o in outcomes)
        case "makespan":
            return max(o.job.weight * o.completion_s for o in outcomes)
        case "progress":
            running = (o for o in outcomes if o.assignment is not None)
            return total(o.job.weight * 3600.0 / o.completion_s for o in running)
        case "max-min":
            return min(o.menu.best_s(o.job) / o.completion_s / o.job.weight for o in outcomes)
        case "proportional":
            return total(o.job.weight * math.log(o.completion_s / o.menu.best_s(o.job)) for o in outcomes)
        case "goodput":
            return total(o.job.weight * _speed(o, instance.round_s) for o in outcomes)
        case "work-value":
            squares = squared_values((o.job, o.menu.reference_rate) for o in outcomes)
            held_s = hold_s(instance)
            return total(
                math.sqrt(squares[o.job.name]) * _speed(o, min(held_s, o.completion_s)) for o in outcomes
            )
    raise ValueError(f"objective '{instance.objective}' is not known")


def total(values: Iterable[float]) -> float:
    """Exactly rounded sum; infinite when it is too large for a number."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def _speed(outcome: Outcome, kept_s: float) -> float:
    """Speed relative to the smallest configuration, less the part of the time that a restart takes."""
    if outcome.assignment is None:
        return 0.0
    lost_s = outcome.job.restart_s if outcome.restarts else 0.0
    return outcome.rate / outcome.menu.reference_rate * max(0.0, 1.0 - lost_s / kept_s)


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
            elif gpus_of(other.nodes) != gpus_of(first.nodes):
                yield f"jobs '{first.job}' and '{other.job}' of set '{name}' have different GPUs"


def users_of(decision: Decision) -> list[Assignment]:
    """Assignments that take GPUs: the jobs alone, and the first of every set."""
    return [*(a for a in decision.jobs if a.set is None), *(found[0] for found in _formed(decision).values())]


def _formed(decision: Decision) -> dict[str, list[Assignment]]:
    found: dict[str, list[Assignment]] = {}
    for assignment in decision.jobs:
        if assignment.set is not None:
            found.setdefault(assignment.set, []).append(assignment)
    return found
