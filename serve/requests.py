"""Models of requests, for the OpenAPI description; values that are skipped here are checked in their use."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation, WithJsonSchema

from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.sizing.tenants import Tenant
from wattsched.perfmodels.profile import Profile
from wattsched.topology.cluster import Cluster
from wattsched.topology.fields import NonNegative, Positive, Strict

AnyJob = Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/Job"})]
"""A job record, which may leave out what is known."""


class SessionRequest(Strict):
    """Arguments of `wattsched.Session`, and how often to decide in the background."""

    cluster: Cluster
    objective: str = "work-value"
    capacity: str | dict[str, str] | None = None
    round_s: Positive = 300.0
    change_cost: NonNegative = 0.0
    carbon_g_per_kwh: NonNegative | None = None
    price_per_kwh: NonNegative | None = None
    tables: dict[str, OptionTable] = {}
    profiles: list[Profile] = []
    tenants: dict[str, Tenant] = {}
    formulation: str | None = None
    solver: str = "auto"
    every_s: float | None = Field(None, ge=0.1, le=1e6)


class UpdateRequest(Strict):
    """Arguments of `wattsched.Session.update`; what is not given stays as it is, null takes a limit away."""

    objective: str = ""
    round_s: Positive = 300.0
    change_cost: NonNegative = 0.0
    power_w: Positive | None = None
    energy_j: Positive | None = None
    carbon_g: Positive | None = None
    scope: Literal["round", "completion"] = "round"
    least_goodput: Positive | None = None
    carbon_g_per_kwh: NonNegative | None = None
    price_per_kwh: NonNegative | None = None
    tenants: dict[str, Tenant] = {}
    reserved_w: dict[str, NonNegative] = {}
    down: list[str] = []
    up: list[str] = []
    unavailable: dict[str, list[int]] = {}
    cluster: Cluster | None = None


class JobsRequest(Strict):
    """Job records as instance files have them; of known jobs only the given fields change."""

    jobs: list[AnyJob]


class IdsRequest(Strict):
    """Names of jobs."""

    ids: list[SkipValidation[str]]


class SolveRequest(Strict):
    """Jobs that came, changed and went, how to decide, and whether that is what runs at once."""

    jobs: list[AnyJob] = []
    remove: list[SkipValidation[str]] = []
    deadline_s: SkipValidation[Positive | None] = None
    gap: SkipValidation[Annotated[float, Field(ge=0, lt=1)]] = 1e-4
    prove: SkipValidation[NonNegative | None] = 0.0
    apply: bool = False


REQUESTS = (SessionRequest, UpdateRequest, JobsRequest, IdsRequest, SolveRequest)
