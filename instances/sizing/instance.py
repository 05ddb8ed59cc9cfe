"""The instance of a scheduling round: cluster, jobs, budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from wattsched.instances.errors import duplicates, refuse, repeated, unknown
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.instances.sizing.job_columns import JobColumns, ModelKind
from wattsched.instances.sizing.tenants import Tenant, tenant_faults
from wattsched.instances.sizing.uncertainty import Deviation, Uncertainty, uncertainty_faults
from wattsched.instances.units import J_PER_KWH
from wattsched.perfmodels.profile import Configurations, Profile, Profiles
from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.columns import COLUMNS, ROWS, form_of
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Price, Strict
from wattsched.topology.pools import Pool

FORMAT: Literal["wattsched-instance/1"] = "wattsched-instance/1"


PER_KWH = {"carbon": "carbon_g_per_kwh", "money": "price_per_kwh"}
"""Objectives that are energy at so much for a kilowatt hour, and the field that says how much."""

Budget = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


def lacking(instance: Instance) -> list[str]:
    """Return a fault for each field that the objective needs and the instance lacks, or cannot go with."""
    found = []
    for name in (instance.objective, *instance.budgets.objectives):
        if (needed := PER_KWH.get(name)) is not None and getattr(instance, needed) is None:
            found.append(f"the objective '{name}' needs '{needed}'")
    if instance.uncertainty is not None and instance.budgets.objectives:
        found.append("budgets.objectives: cannot go with 'uncertainty', whose worst case is no sum over jobs")
    return [*found, *uncertainty_faults(instance.uncertainty, instance.by_column(), instance.objective)]


def content_of_kinds(instance: Instance, jobs: JobColumns) -> list[Any]:
    """Key of a cache: all that the options of the kinds of jobs depend on but the cluster."""
    others = dict(instance.tables), list(instance.profiles), dict(instance.tenants)
    return [*jobs.content_of_kinds, *others]


def per_joule(instance: Instance) -> dict[str, float]:
    """Return the value of one joule in each objective that counts energy; 0 where its price is not given."""
    priced = {name: getattr(instance, field) or 0.0 for name, field in PER_KWH.items()}
    return {"energy": 1.0, **{name: each / J_PER_KWH for name, each in priced.items()}}


class JobSet(Strict):
    """Jobs that may share the same GPUs: all of them take this option, or none does.

    Attributes
    ----------
    pool : str
        A pool, or a GPU type, which stands for every pool of that type.
    gpus : int
        GPUs that all the jobs use together.
    power_w : float
        Draw of these GPUs while all the jobs run; every job counts for an equal part of it.
    rates : dict of str to float
        The jobs, two at least, with the rate of each in the set, in the unit of its options' rate.
    frequency_mhz, power_limit_w : optional
        Settings of the GPUs.
    batch_sizes : dict of str to int
        Of the jobs that have one.
    """

    name: Name
    pool: Name
    gpus: Count
    power_w: NonNegative
    rates: Annotated[dict[Name, Positive], Field(min_length=2)]
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    batch_sizes: dict[Name, Count] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _batches_of_members(self) -> Self:
        unknown_jobs = [f"'{name}'" for name in self.batch_sizes if name not in self.rates]
        if unknown_jobs:
            raise ValueError(f"batch_sizes names {', '.join(unknown_jobs)}, but rates does not")
        return self


class Budgets(Strict):
    """Limits of the round; None is no limit.

    Attributes
    ----------
    power_w : float, optional
        Site power at any moment: GPUs (idle ones included) and node base power.
    energy_j, carbon_g : float, optional
        Energy and carbon, counted as `scope` says.
    scope : {"round", "completion"}
        ``round``: what the whole cluster draws during this round. ``completion``: what the
        GPUs of the jobs draw until every job is complete, a waiting job with its
        least-energy option (as PowerFlow's budget, Gu et al., arXiv 2304.06381).
    least_goodput : float, optional
        What the objective `goodput` would be worth, at least.
    objectives : dict of str to float
        Values of other objectives that the decision must reach: at most, or where more is better at least.
        What moves cost is not counted.
    """

    power_w: Budget | None = None
    energy_j: Budget | None = None
    carbon_g: Budget | None = None
    scope: Literal["round", "completion"] = "round"
    least_goodput: Budget | None = None
    objectives: dict[Name, Annotated[float, Field(allow_inf_nan=False)] | None] = Field(default_factory=dict)

    @property
    def reached(self) -> dict[str, float]:
        """Objectives whose values are limited, and the limits."""
        return {name: limit for name, limit in self.objectives.items() if limit is not None}


class Instance(Strict):
    """One scheduling round, ready to be solved.

    Attributes
    ----------
    objective : str
        Name of what is optimised.
    round_s : float
        Length of the round: a job that waits begins after it.
    change_cost : float
        What the objective pays for each running job that changes GPU count, batch size, pool or GPUs, or
        stops, where the job does not say.
    carbon_g_per_kwh : float, optional
        Carbon intensity of the round.
    price_per_kwh : float, optional
        What energy costs in the round; below 0 where drawing is paid for.
    currency : str, optional
        Of that price, for reports.
    profiles : list of Profile
        Performance models besides those of the catalogue.
    tables : dict of str to OptionTable
        Options that several jobs share, by name.
    tenants : dict of str to Tenant
        Quotas and weights of groups of jobs, by name.
    jobs : list of Job, or JobColumns
        A list of jobs, or jobs by column.
    sets : list of JobSet
        Jobs that may share GPUs.
    uncertainty : Uncertainty, optional
        Deviations of watts and rates that power caps and the objective are protected against.
    unlike : list of Decision
        Decisions that the one sought has to differ from: `differ` jobs at least do something else.
    """

    format: Literal["wattsched-instance/1"] = FORMAT
    name: Name = "instance"
    problem: Literal["sizing"] = "sizing"
    objective: Name = "work-value"
    round_s: Positive = 300.0
    change_cost: NonNegative = 0.0
    carbon_g_per_kwh: NonNegative | None = None
    price_per_kwh: Price | None = None
    currency: Name | None = None
    budgets: Budgets = Budgets()
    cluster: Cluster
    profiles: list[Profile] = Field(default_factory=list)
    tables: dict[Name, OptionTable] = Field(default_factory=dict)
    tenants: dict[Name, Tenant] = Field(default_factory=dict)
    jobs: Annotated[
        Annotated[list[Job], Tag(ROWS)] | Annotated[JobColumns, Tag(COLUMNS)], Discriminator(form_of)
    ]
    sets: list[JobSet] = Field(default_factory=list)
    uncertainty: Uncertainty | None = None
    unlike: list[Decision] = Field(default_factory=list)
    differ: Count = 1

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse(self.contradictions())
        return self

    def table_of(self, job: Job) -> OptionTable:
        """Table of a job without a model; KeyError if it names an unknown one."""
        assert job.options is not None
        return self.tables[job.options] if isinstance(job.options, str) else job.options

    def profile_of(self, model: str, gpu_type: str) -> Profile | None:
        """Profile of a model for a GPU type or its stand-in, of the instance, else of the catalogue."""
        return Profiles(tuple(self.profiles)).find(model, gpu_type, self.cluster.gpu_types[gpu_type].profile)

    def configurations_of(self, job: Job | ModelKind, pool: Pool) -> Configurations | None:
        """Return the configurations of a job, or of a kind of jobs, with a model in a pool.

        Rates and draws are those of the pool's GPU type; None where nobody has a profile of the model on it.
        """
        profile, choices = self._choices_of(job, pool)
        if profile is None:
            return None
        gpu_type = self.cluster.gpu_types[pool.gpu_type]
        found = profile.configurations(pool.gpus_per_node, **choices)
        return replace(
            found,
            rate=found.rate * gpu_type.speed_factor,
            power_w=found.power_w * gpu_type.power_factor,
            power_limit_w=np.round(found.power_limit_w * gpu_type.power_factor, 6),
        )

    def most_configurations(self, job: Job | ModelKind, pool: Pool) -> int:
        """At most how many configurations `configurations_of` would make, without making any."""
        profile, choices = self._choices_of(job, pool)
        return 0 if profile is None else profile.count(**choices)

    def _choices_of(self, job: Job | ModelKind, pool: Pool) -> tuple[Profile | None, dict[str, Any]]:
        """Profile of a job's model on the GPUs of a pool, and the arguments of its `configurations`."""
        gpu_type = self.cluster.gpu_types[pool.gpu_type]
        return None if job.model is None else self.profile_of(job.model, pool.gpu_type), {
            "gpu_counts": job.gpu_counts,
            "batch_sizes": job.batch_sizes,
            "frequencies_mhz": job.frequencies_mhz or gpu_type.frequencies_mhz,
            "power_limits_w": gpu_type.limits_of_stand_in(job.power_limits_w),
            "max_power_w": gpu_type.max_power_of_stand_in_w,
        }

    def by_column(self) -> JobColumns:
        """Jobs by column."""
        return JobColumns.from_records(self.jobs)

    def deviations(self, jobs: JobColumns, name: Deviation) -> FloatArray:
        """Share by which the watts or rates of each job deviate; 0 where nothing is uncertain."""
        known = self.uncertainty
        return np.zeros(len(jobs)) if known is None else known.of_jobs(jobs, name, self.objective)

    def contradictions(self) -> Iterator[str]:
        """Yield names given twice, names of things that do not exist, and fields that contradict each other.

        A copy of an instance with other fields may have such faults.
        """
        jobs = self.by_column()
        yield from repeated("job name", jobs.names)
        yield from duplicates("set name", self.sets)
        options, names = jobs.coded("options"), jobs.names
        strange = options.where(lambda table: isinstance(table, str) and table not in self.tables)
        for j in np.flatnonzero(strange).tolist():
            yield f"job '{names[j]}' names the unknown table '{options.values[options.codes[j]]}'"
        kept = jobs.fixed & jobs.shares
        for j in np.flatnonzero(kept).tolist():
            yield f"job '{names[j]}' shares its GPUs (current.set) and so cannot keep them (preemptible)"
        fixed = {names[j]: bool(jobs.fixed[j]) for j in range(len(jobs))} if self.sets else {}
        for declared in self.sets:
            yield from unknown(f"set '{declared.name}'", "job", declared.rates, fixed)
            for name in declared.rates:
                if fixed.get(name):
                    yield f"set '{declared.name}': job '{name}' keeps its GPUs (preemptible: false)"
        yield from tenant_faults(self.tenants, jobs)
        if self.budgets.carbon_g is not None and self.carbon_g_per_kwh is None:
            yield "a carbon budget needs 'carbon_g_per_kwh'"
        if self.carbon_g_per_kwh is None:
            for name in (name for name, tenant in self.tenants.items() if tenant.carbon_g is not None):
                yield f"tenants.{name}.carbon_g: a carbon quota needs 'carbon_g_per_kwh'"
        yield from lacking(self)
