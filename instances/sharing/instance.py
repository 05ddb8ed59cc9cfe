"""The instance of `sharing`: units with GPUs, jobs of measured classes, and what was measured of sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from wattsched.instances.errors import duplicates, refuse, unknown
from wattsched.instances.sizing.instance import FORMAT, Budget
from wattsched.perfmodels.co_location import EACO_SLOWDOWN, POWER_EXPONENT
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Strict

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)]
MOST_PER_SET = 8

OBJECTIVES: dict[str, Literal["min", "max"]] = {
    "eaco": "min",
    "energy": "min",
    "power": "min",
    "throughput": "max",
}
"""Objectives and their sense; `checker` says what each one is."""


class UnitType(Strict):
    """Units of one kind: whole nodes whose GPUs every job uses together, or single GPUs.

    Attributes
    ----------
    count : int
        Units that there are.
    gpus : int
        GPUs of each.
    idle_power_w, full_power_w, power_exponent : float
        A unit in use draws ``idle + (full - idle) * U ** exponent`` watts at a mean GPU utilisation U from 0
        to 1, unless the set on it was measured.
    sleep_power_w : float
        Draw of a unit on which no job runs.
    pool : str, optional
        Pool whose GPUs units of this type are made of: then a type is a configuration, such as four GPUs at a
        clock, and choosing the type of a set is choosing its size. Such units have no draw asleep.
    """

    name: Name
    count: Count
    gpus: Count = 1
    idle_power_w: NonNegative
    full_power_w: NonNegative
    power_exponent: Annotated[float, Field(gt=0, le=5, allow_inf_nan=False)] = POWER_EXPONENT
    sleep_power_w: NonNegative = 0.0
    pool: Name | None = None

    @property
    def row(self) -> str:
        """Name of the capacity in prices."""
        return f"{'gpus' if self.gpus == 1 else 'nodes'}:{self.name}"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Refuse less draw at full use than idle or asleep."""
        asleep, idle, full = self.sleep_power_w, self.idle_power_w, self.full_power_w
        faults = {
            f"full_power_w {full:g} is below idle_power_w {idle:g}": full < idle,
            f"sleep_power_w {asleep:g} is above full_power_w {full:g}": asleep > full,
        }
        refuse(f"unit type '{self.name}': {fault}" for fault, holds in faults.items() if holds)
        return self


class GpuPool(Strict):
    """GPUs that unit types of several sizes and settings are made of."""

    name: Name
    gpus: Count

    @property
    def row(self) -> str:
        """Name of the capacity in prices."""
        return f"gpus:{self.name}"


class Alone(Strict):
    """Measurements of a class with a unit to itself.

    Attributes
    ----------
    epoch_s : float
        Seconds per epoch, or per any other unit of work.
    utilisation_pct : float
        Mean GPU utilisation.
    memory_pct : float
        Peak GPU memory.
    power_w : float, optional
        Draw of the unit; None takes the law of the unit type.
    """

    epoch_s: Positive
    utilisation_pct: Percent
    memory_pct: Percent = 0.0
    power_w: NonNegative | None = None


class JobClass(Strict):
    """Jobs that behave alike; ``alone`` has the unit types on which they can run."""

    name: Name
    alone: Annotated[dict[Name, Alone], Field(min_length=1)]


class MeasuredSet(Strict):
    """Measurements of jobs that share a unit; a field that is None follows the laws.

    Attributes
    ----------
    unit_type : str
    classes : list of str
        Class of each job, 2 at least, in any order.
    slowdown : list of float
        Epoch time of each job over that alone, in the order of `classes`; equal classes have equal ones.
    power_w, utilisation_pct, memory_pct : float, optional
        Those of the unit, as in `Alone`.
    fits : bool
        False for jobs that were found not to fit together; then no larger set with them does.
    """

    unit_type: Name
    classes: Annotated[list[Name], Field(min_length=2, max_length=MOST_PER_SET)]
    slowdown: list[Factor] = Field(default_factory=list)
    power_w: NonNegative | None = None
    utilisation_pct: Percent | None = None
    memory_pct: Percent | None = None
    fits: bool = True


class Slowdown(Strict):
    """Law of the slowdown in sets that nobody measured.

    ``max(L, 1 + (n - 1) * (per_job + per_load * L ** exponent))`` for n jobs whose utilisations alone add up
    to L; 1 is a full GPU.
    """

    per_job: NonNegative = EACO_SLOWDOWN.per_job
    per_load: NonNegative = EACO_SLOWDOWN.per_load
    exponent: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = EACO_SLOWDOWN.exponent


class Limits(Strict):
    """Limits on every set of jobs that share a unit.

    Attributes
    ----------
    jobs_per_set : int
        Jobs on one unit at most, from 1 to 8.
    utilisation_pct, memory_pct : float
        Largest mean GPU utilisation and peak GPU memory.
    """

    jobs_per_set: Annotated[int, Field(ge=1, le=MOST_PER_SET)] = 4
    utilisation_pct: Percent = 100.0
    memory_pct: Percent = 100.0


class Job(Strict):
    """A job; earlier ones in the file have arrived earlier.

    Attributes
    ----------
    job_class : str
    remaining_epochs : float
        Work that is left.
    deadline_s : float, optional
        Latest completion, seconds from now.
    exclusive : bool
        Whether it must have a unit to itself.
    can_wait : bool
        False when it must run in this round.
    """

    name: Name
    job_class: Name
    remaining_epochs: Positive = 1.0
    deadline_s: Annotated[float, Field(allow_inf_nan=False)] | None = None
    exclusive: bool = False
    can_wait: bool = True


class Budgets(Strict):
    """Upper limits; None is no limit.

    Attributes
    ----------
    power_w : float, optional
        Draw of all units, sleeping ones included.
    energy_j, carbon_g : float, optional
        Until the jobs that run now are complete, each with its share of its unit's power; jobs that wait and
        sleeping units do not count.
    objectives : dict of str to float
        Values of other objectives that the decision must reach: at most, or where more is better at least.
    """

    power_w: Budget | None = None
    energy_j: Budget | None = None
    carbon_g: Budget | None = None
    objectives: dict[Name, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)

    @property
    def amounts(self) -> dict[str, float]:
        """Budgets of watts, joules and grams, by name."""
        stated = {"power_w": self.power_w, "energy_j": self.energy_j, "carbon_g": self.carbon_g}
        return {name: limit for name, limit in stated.items() if limit is not None}


class SharingInstance(Strict):
    """Instance of `sharing`: which jobs share a unit in this round.

    Attributes
    ----------
    alpha : float
        Weight of energy (kWh, sum over the jobs) in the objective ``eaco``; the mean epoch time (h) has the
        rest.
    waiting_penalty : float
        Cost of a job that waits, as a multiple of the most that it could cost alone on a unit.
    round_s : float
        Length of the round: a job that waits begins after it.
    carbon_g_per_kwh : float, optional
    unmeasured : {"law", "refuse"}
        ``law`` lets sets be formed that nobody measured, and the laws say how they run; ``refuse`` does not.
    """

    format: Literal["wattsched-instance/1"] = FORMAT
    name: Name = "instance"
    problem: Literal["sharing"]
    objective: Name = "eaco"
    alpha: Fraction = 0.5
    waiting_penalty: Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)] = 2.0
    round_s: Positive = 300.0
    carbon_g_per_kwh: NonNegative | None = None
    budgets: Budgets = Budgets()
    limits: Limits = Limits()
    unmeasured: Literal["law", "refuse"] = "law"
    slowdown: Slowdown = Slowdown()
    pools: list[GpuPool] = Field(default_factory=list)
    unit_types: Annotated[list[UnitType], Field(min_length=1)]
    classes: list[JobClass]
    sets: list[MeasuredSet] = Field(default_factory=list)
    jobs: list[Job]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse(contradictions(self))
        return self


def faults_of(instance: SharingInstance) -> list[str]:
    """Return the faults of fields that contradict each other: jobs that fit on no unit."""
    limits = instance.limits
    homeless = {
        job_class.name
        for job_class in instance.classes
        if not any(
            alone.utilisation_pct <= limits.utilisation_pct and alone.memory_pct <= limits.memory_pct
            for alone in job_class.alone.values()
        )
    }
    return [
        f"job '{job.name}': class '{job.job_class}' is above limits.utilisation_pct or limits.memory_pct "
        f"on every unit type"
        for job in instance.jobs
        if job.job_class in homeless
    ]


def contradictions(instance: SharingInstance) -> Iterator[str]:
    """One line each: names that are unknown or given twice, and values that contradict others."""
    yield from duplicates("pool", instance.pools)
    yield from duplicates("unit type", instance.unit_types)
    yield from duplicates("class", instance.classes)
    yield from duplicates("job", instance.jobs)
    yield from _bad_unit_types(instance)
    yield from _bad_sets(instance)
    types = {unit_type.name for unit_type in instance.unit_types}
    for known in instance.classes:
        yield from unknown(f"class '{known.name}'", "unit type", known.alone, types)
    classes = {job_class.name for job_class in instance.classes}
    for job in instance.jobs:
        yield from unknown(f"job '{job.name}'", "class", [job.job_class], classes)
        if job.deadline_s is not None and job.deadline_s <= 0:
            yield f"job '{job.name}': deadline_s {job.deadline_s:g} is in the past"
    if instance.budgets.carbon_g is not None and instance.carbon_g_per_kwh is None:
        yield "a carbon budget needs 'carbon_g_per_kwh'"


def _bad_unit_types(instance: SharingInstance) -> Iterator[str]:
    """Unit types of unknown pools, of the name of one, or of one and with a draw asleep."""
    pools = {pool.name for pool in instance.pools}
    for unit in instance.unit_types:
        if unit.name in pools:
            yield f"'{unit.name}' is the name of a pool and of a unit type"
        if unit.pool is not None:
            yield from unknown(f"unit type '{unit.name}'", "pool", [unit.pool], pools)
            if unit.sleep_power_w > 0:
                sleep_w = f"{unit.sleep_power_w:g}"
                yield f"unit type '{unit.name}' is of a pool: sleep_power_w must be 0, not {sleep_w}"


def _bad_sets(instance: SharingInstance) -> Iterator[str]:
    """Measured sets that are there twice, name what is unknown, or contradict themselves."""
    types = {unit_type.name for unit_type in instance.unit_types}
    alone = {job_class.name: job_class.alone for job_class in instance.classes}
    seen = Counter((s.unit_type, tuple(sorted(s.classes))) for s in instance.sets)
    for (unit_type, classes), count in seen.items():
        if count > 1:
            yield f"the set {', '.join(classes)} on '{unit_type}' is given {count} times"
    for i, measured in enumerate(instance.sets):
        yield from unknown(f"sets[{i}]", "unit type", [measured.unit_type], types)
        yield from unknown(f"sets[{i}]", "class", measured.classes, alone)
        for name in measured.classes:
            if measured.unit_type in types and measured.unit_type not in alone.get(name, types):
                yield f"sets[{i}]: class '{name}' has nothing measured alone on '{measured.unit_type}'"
        given, needed = len(measured.slowdown), len(measured.classes)
        if measured.fits and given != needed:
            yield f"sets[{i}].slowdown has {given} numbers for {needed} classes"
        first: dict[str, float] = {}
        for name, slowdown in zip(measured.classes, measured.slowdown, strict=False):
            if measured.fits and given == needed and first.setdefault(name, slowdown) != slowdown:
                yield f"sets[{i}].slowdown: two jobs of class '{name}' have {first[name]:g} and {slowdown:g}"
