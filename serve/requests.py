"""What requests have, for the OpenAPI description; what they mean is checked where they are done."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.instances.sizing.tenants import Tenant
from wattsched.perfmodels.profile import Profile
from wattsched.topology.cluster import Cluster
from wattsched.topology.fields import NonNegative, Positive, Strict


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

    jobs: list[Job]


class IdsRequest(Strict):
    """Names of jobs."""

    ids: list[str]


class SolveRequest(Strict):
    """Jobs that came, changed and went, how to decide, and whether that is what runs at once."""

    jobs: list[Job] = []
    remove: list[str] = []
    deadline_s: Positive | None = None
    gap: float = Field(1e-4, ge=0, lt=1)
    prove: NonNegative | None = 0.0
    apply: bool = False


REQUESTS = (SessionRequest, UpdateRequest, JobsRequest, IdsRequest, SolveRequest)
