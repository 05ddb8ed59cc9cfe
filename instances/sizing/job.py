"""A job of a round: what it is worth, what it holds, and what it may run as."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from wattsched.instances.errors import refuse
from wattsched.topology.fields import Count, GpuNumber, Name, NonNegative, Positive, Strict

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1e6
DeviationShare = Annotated[float, Field(ge=0.0, le=0.99, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=SMALLEST_WEIGHT, le=LARGEST_WEIGHT, allow_inf_nan=False)]


class Placement(Strict):
    """GPUs and settings that a running job holds now.

    ``nodes`` maps node names to GPU numbers; an empty mapping means that the concrete GPUs are not known.
    Jobs that share their GPUs now name the same ``set``.
    """

    gpus: Count
    pool: Name
    set: Name | None = None
    frequency_mhz: Count | None = None
    power_limit_w: Positive | None = None
    batch_size: Count | None = None
    nodes: dict[Name, list[GpuNumber]] = Field(default_factory=dict)

    @property
    def places(self) -> list[tuple[str, int]]:
        """Node and number of each GPU."""
        return [(node, gpu) for node, gpus in self.nodes.items() for gpu in gpus]


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
        """Refuse columns of different lengths, and both or none of rate and completion time."""
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
        first: dict[tuple[object, ...], int] = {}
        for i, row in enumerate(self.settings()):
            if first.setdefault(row, i) != i:
                raise ValueError(f"rows {first[row]} and {i} have the same settings: {row}")
        return self

    def settings(self) -> Iterator[tuple[object, ...]]:
        """GPU count and pool of every row, and those settings that the table has."""
        columns = (self.gpus, self.pool, self.frequency_mhz, self.power_limit_w, self.batch_size)
        return zip(*(column for column in columns if column is not None), strict=True)


def also_rows(schema: dict[str, Any]) -> None:
    """Add the third form of `Job.options`, a list of row objects, to the JSON Schema."""
    rows = {"type": "array", "minItems": 1, "items": {"type": "object"}}
    union = "anyOf" if "anyOf" in schema else "oneOf"
    schema[union] = [*schema[union], rows]


def by_column(value: Any) -> Any:
    """Turn options that are a list of like rows into columns; what is no list stays as it is."""
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
    Annotated[Name, Tag("name")] | Annotated[OptionTable, Tag("table")],
    # Only the faults of the form that a value resembles are reported.
    Discriminator(lambda value: "table" if isinstance(value, dict | OptionTable) else "name"),
]


class Job(Strict):
    """A job of the round, with a table of options or a performance model.

    Attributes
    ----------
    weight : float
        Priority, from 1e-6 to 1e6.
    tenant : str, optional
        Name in ``Instance.tenants`` of whose quotas and weight are the job's, too.
    deadline_s : float, optional
        Latest completion, seconds from now. Options that miss it are not offered.
    min_gpus, max_gpus : int, optional
        Bounds on the GPU count while running.
    pools : list of str, optional
        Pools or GPU types that the job may use (default: all).
    restart_s : float
        Time lost when a running job changes GPU count, batch size or pool, or is stopped.
    change_cost : float, optional
        Price of the same, and of a move to other GPUs of the pool, in the unit of the objective (default:
        that of the instance).
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
    power_deviation, rate_deviation : float, optional
        Shares by which its watts and rates deviate, instead of those of the instance's `uncertainty`.
    """

    name: Name
    weight: Weight = 1.0
    tenant: Name | None = None
    deadline_s: Positive | None = None
    min_gpus: Count | None = None
    max_gpus: Count | None = None
    pools: list[Name] | None = None
    restart_s: NonNegative = 0.0
    change_cost: NonNegative | None = None
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
    power_deviation: DeviationShare | None = None
    rate_deviation: DeviationShare | None = None

    _by_column = field_validator("options", mode="before")(by_column)

    @model_validator(mode="after")
    def _one_source_of_options(self) -> Self:
        refuse(faults_of(self))
        return self


def faults_of(job: Job) -> Iterator[str]:
    """Yield the contradictions between the fields of a job."""
    if (job.options is None) == (job.model is None):
        yield "give exactly one of 'options' and 'model'"
    elif job.min_gpus and job.max_gpus and job.min_gpus > job.max_gpus:
        yield f"min_gpus {job.min_gpus} is above max_gpus {job.max_gpus}"
    elif not job.preemptible and (job.current is None or not job.current.nodes):
        yield "a job that is not preemptible needs 'current' with its nodes"
