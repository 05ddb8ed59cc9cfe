"""The instance of a scheduling round: cluster, jobs, budgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from wattsched.perfmodels.profile import Profile
from wattsched.topology.cluster import Cluster, Count, Name, NonNegative, Positive, Strict

FORMAT: Literal["wattsched-instance/1"] = "wattsched-instance/1"


Weight = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
Budget = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


class Placement(Strict):
    """What a running job holds now.

    ``nodes`` maps node names to GPU numbers; an empty mapping means that the concrete GPUs are not known.
    Jobs that share their GPUs now name the same ``set``.
    """

    gpus: Count
    pool: Name
    set: Name | None = None
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    batch_size: Count | None = None
    nodes: dict[Name, list[Annotated[int, Field(ge=0)]]] = Field(default_factory=dict)


class OptionTable(Strict):
    """Measured configurations, one per row, stored by column.

    Attributes
    ----------
    gpus : list of int
        GPU count.
    pool : list of str
        A pool, or a GPU type, which stands for every pool of that type.
    power_w : list of float
        Draw of all GPUs of the job together.
    rate : list of float, optional
        Work per second; a job is complete after ``remaining_work / rate`` seconds.
    completion_s : list of float, optional
        Seconds to completion, instead of `rate` (then ``remaining_work`` scales it).
    frequency_mhz, power_limit_w, batch_size : list, optional
        Settings that go with the row. No two rows may agree in all settings, GPU count and pool.
    """

    gpus: list[Count]
    pool: list[Name]
    power_w: list[NonNegative]
    rate: list[Positive] | None = None
    completion_s: list[Positive] | None = None
    frequency_mhz: list[Count] | None = None
    power_limit_w: list[Positive] | None = None
    batch_size: list[Count] | None = None

    @model_validator(mode="after")
    def _same_lengths(self) -> Self:
        if (self.rate is None) == (self.completion_s is None):
            raise ValueError("give exactly one of 'rate' and 'completion_s'")
        columns = {name: value for name, value in self if value is not None}
        lengths = {name: len(value) for name, value in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns differ in length: {lengths}")
        return self

    @model_validator(mode="after")
    def _distinct_rows(self) -> Self:
        """A decision names settings, so they must single out a row."""
        columns = (self.gpus, self.pool, self.frequency_mhz, self.power_limit_w, self.batch_size)
        first: dict[tuple[object, ...], int] = {}
        for i, row in enumerate(zip(*(c for c in columns if c is not None), strict=True)):
            if first.setdefault(row, i) != i:
                raise ValueError(f"rows {first[row]} and {i} have the same settings: {row}")
        return self


def _branch(value: Any) -> str:
    """Which of the two forms of `Options` a value wants to be, so that only its faults are reported."""
    return "table" if isinstance(value, dict | OptionTable) else "name"


def also_rows(schema: dict[str, Any]) -> None:
    """Add the third form of `Job.options`, a list of row objects, to the JSON Schema."""
    rows = {"type": "array", "minItems": 1, "items": {"type": "object"}}
    union = "anyOf" if "anyOf" in schema else "oneOf"
    schema[union] = [*schema[union], rows]


def by_column(value: Any) -> Any:
    """Turn options that are a list of row objects into columns; what is no list stays as it is.

    Raises
    ------
    ValueError
        For rows that are no objects, or lack a field that others have.
    """
    if not isinstance(value, list):
        return value
    if not value or not all(isinstance(row, dict) for row in value):
        raise ValueError("a list of options must hold one object per option")
    fields = dict.fromkeys(key for row in value for key in row)
    gaps = [f"option {i} lacks '{key}'" for i, row in enumerate(value) for key in fields if key not in row]
    if gaps:
        raise ValueError("; ".join(gaps[:5]))
    return {key: [row[key] for row in value] for key in fields}


Options = Annotated[
    Annotated[Name, Tag("name")] | Annotated[OptionTable, Tag("table")], Discriminator(_branch)
]


class Job(Strict):
    """A job of the round, with a table of options or a performance model.

    Attributes
    ----------
    weight : float
        Priority, from 1e-6 to 1e6.
    deadline_s : float, optional
        Latest completion, seconds from now. Options that miss it are not offered.
    min_gpus, max_gpus : int, optional
        Bounds on the GPU count while running.
    pools : list of str, optional
        Pools or GPU types that the job may use (default: all).
    restart_s : float
        Time lost when a running job changes GPU count, batch size or pool, or is stopped.
    preemptible : bool
        False keeps a running job on its GPUs; only its frequency or power limit may change.
    can_wait : bool
        False when the job must run in this round.
    current : Placement, optional
        What the job holds now, for a running job.
    options : str or OptionTable, optional
        Own table, a list of row objects, or the name of a table in ``Instance.tables``.
    remaining_work : float
        In the unit of the options' rate; for a model: samples (at the reference batch size).
    model : str, optional
        Name of a performance model in the instance's profiles or the catalogue.
    batch_sizes, gpu_counts, frequencies_mhz, power_limits_w : list, optional
        Choices to offer, for jobs with a model.
    """

    name: Name
    weight: Weight = 1.0
    deadline_s: Positive | None = None
    min_gpus: Count | None = None
    max_gpus: Count | None = None
    pools: list[Name] | None = None
    restart_s: NonNegative = 0.0
    preemptible: bool = True
    can_wait: bool = True
    current: Placement | None = None
    options: Annotated[Options | None, Field(json_schema_extra=also_rows)] = None
    remaining_work: Positive = 1.0
    model: Name | None = None
    batch_sizes: list[Count] | None = None
    gpu_counts: list[Count] | None = None
    frequencies_mhz: list[Count] | None = None
    power_limits_w: list[Positive] | None = None

    _by_column = field_validator("options", mode="before")(by_column)

    @model_validator(mode="after")
    def _one_source_of_options(self) -> Self:
        if (self.options is None) == (self.model is None):
            raise ValueError("give exactly one of 'options' and 'model'")
        if self.min_gpus and self.max_gpus and self.min_gpus > self.max_gpus:
            raise ValueError(f"min_gpus {self.min_gpus} is above max_gpus {self.max_gpus}")
        if not self.preemptible and (self.current is None or not self.current.nodes):
            raise ValueError("a job that is not preemptible needs 'current' with its nodes")
        return self


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
        strangers = [f"'{name}'" for name in self.batch_sizes if name not in self.rates]
        if strangers:
            raise ValueError(f"batch_sizes names {', '.join(strangers)}, but rates does not")
        return self


class Budgets(Strict):
    """Upper limits of the round; None is no limit.

    Attributes
    ----------
    power_w : float, optional
        Site power at any moment: GPUs (idle ones included) and node base power.
    energy_j, carbon_g : float, optional
        Energy and carbon, counted as `scope` says.
    scope : {"round", "completion"}
        ``round``: what the whole cluster draws during this round. ``completion``: what the
        GPUs of the jobs draw until every job is complete, a waiting job with its
        least-energy option: the budget of PowerFlow (Gu et al., arXiv 2304.06381).
    """

    power_w: Budget | None = None
    energy_j: Budget | None = None
    carbon_g: Budget | None = None
    scope: Literal["round", "completion"] = "round"


class Instance(Strict):
    """One scheduling round, ready to be solved.

    Raises
    ------
    pydantic.ValidationError
        With one entry per fault.
    """

    format: Literal["wattsched-instance/1"] = FORMAT
    name: Name = "instance"
    problem: Literal["sizing"] = "sizing"
    objective: Name = "work-value"
    round_s: Positive = 300.0
    carbon_g_per_kwh: NonNegative | None = None
    budgets: Budgets = Budgets()
    cluster: Cluster
    profiles: list[Profile] = Field(default_factory=list)
    tables: dict[Name, OptionTable] = Field(default_factory=dict)
    jobs: list[Job]
    sets: list[JobSet] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = []
        seen: set[str] = set()
        for job in self.jobs:
            if job.name in seen:
                faults.append(f"duplicate job name '{job.name}'")
            seen.add(job.name)
            if isinstance(job.options, str) and job.options not in self.tables:
                faults.append(f"job '{job.name}' names the unknown table '{job.options}'")
        faults += self._faults_of_sets()
        if self.budgets.carbon_g is not None and self.carbon_g_per_kwh is None:
            faults.append("a carbon budget needs 'carbon_g_per_kwh'")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults_of_sets(self) -> Iterator[str]:
        jobs = {job.name: job for job in self.jobs}
        seen: set[str] = set()
        for declared in self.sets:
            if declared.name in seen:
                yield f"duplicate set name '{declared.name}'"
            seen.add(declared.name)
            for name in declared.rates:
                if name not in jobs:
                    yield f"set '{declared.name}' names the unknown job '{name}'"
                elif not jobs[name].preemptible:
                    yield f"set '{declared.name}': job '{name}' keeps its GPUs (preemptible: false)"
        for job in self.jobs:
            if job.current is not None and job.current.set is not None and not job.preemptible:
                yield f"job '{job.name}' shares its GPUs (current.set) and so cannot keep them (preemptible)"
