"""An explanation: why a job waits, and the least changes of its round with which it would run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from wattsched.instances.sizing.decision import Assignment
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Strict

FORMAT: Literal["wattsched-explanation/1"] = "wattsched-explanation/1"

COMPLETIONS = ("total-completion", "makespan", "max-min", "proportional")
"""Objectives in which a job that waits counts as complete after the round and its best time."""

LINEAR = ("total-completion", "progress", "proportional", "goodput")
"""Objectives in which a job's weight is a factor of its own term, and of no other."""

RoundName = Literal["kept", "watts", "joules", "forced"]
"""Rounds that are derived from a round and its decision; ``docs/explain.md`` defines each."""

Amount = Literal[
    "power_w", "energy_j", "carbon_g", "power_domains", "gpus", "tenant_gpus", "min_gpus", "deadline_s"
]
"""Fields of a change that are amounts."""

Restriction = Literal["pools", "gpu_counts", "frequencies_mhz", "power_limits_w", "batch_sizes"]
"""Fields in which a job restricts the options of its table or model."""

NEARLY = 1e-3
"""Part of an amount by which a proof may fall short of it."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Change(Strict):
    """Change of a round that lets a job run.

    Attributes
    ----------
    power_w, energy_j, carbon_g : float
        By how much budgets of the round are raised.
    power_domains : dict of str to float
        Watts by which caps of power domains are raised.
    gpus : dict of str to int
        GPUs that pools have more, on new nodes like their last one.
    tenant_gpus : int
        By how much the quota of GPUs of the job's tenant is raised.
    min_gpus : int, optional
        Least GPU count that the job then asks for.
    deadline_s : float, optional
        Its deadline then.
    later : bool
        Whether the job takes an option with which it is complete later than if it waits for its best one.
    lifted : list of str
        Restrictions of the job that are lifted.
    """

    power_w: NonNegative = 0.0
    energy_j: Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)] = 0.0
    carbon_g: NonNegative = 0.0
    power_domains: dict[Name, NonNegative] = {}
    gpus: dict[Name, Count] = {}
    tenant_gpus: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    min_gpus: Count | None = None
    deadline_s: Positive | None = None
    later: bool = False
    lifted: list[Restriction] = []

    @property
    def amounts(self) -> dict[Amount, float]:
        """Amounts of the change, by the names of its fields."""
        found = {name: getattr(self, name) for name in get_args(Amount)}
        sums = {name: sum(by.values()) if isinstance(by, dict) else by for name, by in found.items()}
        return {name: float(amount) for name, amount in sums.items() if amount}

    @property
    def without_budgets(self) -> Change:
        """The change with the budgets as they are."""
        return self.model_copy(update={"power_w": 0.0, "energy_j": 0.0, "carbon_g": 0.0})


class Proof(Strict):
    """Certificate of a derived round: that it has no decision, or a bound on its objective."""

    round: RoundName
    change: Change = Change()
    certificate: dict[str, Any]


class Difference(Strict):
    """Parts of a decision that differ from the one that is explained."""

    jobs: list[Assignment]
    waiting: list[Name]


class Alternative(Strict):
    """One way to let the job run at once, with no other job later than decided.

    Attributes
    ----------
    decision : Difference
        What the changed round then decides otherwise.
    least : dict of str to float
        What the proofs show that the change needs at least, by the names of its fields: GPUs at any watts,
        watts with these GPUs. For `min_gpus` the most that is possible.
    """

    change: Change
    decision: Difference
    least: dict[Amount, Annotated[float, Field(ge=0, le=1e18)]] = {}
    proofs: list[Proof] = []

    @property
    def proven(self) -> bool:
        """True if nothing less of what is changed would do, but for a thousandth of an amount."""
        amounts = self.change.amounts.items()
        least = all(self.least.get(name, -1.0) >= amount * (1 - NEARLY) for name, amount in amounts)
        return least and (bool(self.proofs) or not self.change.lifted)


class Cost(Strict):
    """Price of letting the job run although nothing is changed: others stop, shrink, or run later.

    Attributes
    ----------
    later : list of str
        Other jobs that are complete later than decided, or stop; those first that lose most weighted time.
    objective, bound : float
        Of the round in which the job must run, and what its certificate proves.
    weight : float, optional
        With this weight of the job, this decision is as good as any in which it waits.
    """

    decision: Difference
    later: list[Name]
    objective: Finite
    bound: Finite | None = None
    certificate: dict[str, Any] | None = None
    weight: Positive | None = None


class Start(Strict):
    """When a waiting job is expected to start, in seconds from the round on, if nothing else happens.

    It is no claim that is checked: it follows from later decisions, of which no record is kept.
    """

    earliest_s: NonNegative
    latest_s: NonNegative


class Explanation(Strict):
    """Answer to the question why a job waits, and what would make it run.

    Attributes
    ----------
    instance, digest, objective_name
        Of the round, as its result has them.
    state : {"runs", "waits", "never"}
        ``never``: it cannot run now, whatever the others do.
    reason : str
        Why it has no option, where it has none.
    proof : Proof, optional
        That it cannot run.
    start : Start, optional
        When it is expected to start; None where durations are not stated, or none was found in time.
    unanswered : list of str
        What was not found in time.
    """

    format: Literal["wattsched-explanation/1"] = FORMAT
    instance: Name
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    objective_name: Name
    job: Name
    state: Literal["runs", "waits", "never"]
    sentence: str
    reason: str = ""
    alternatives: list[Alternative] = []
    cost: Cost | None = None
    proof: Proof | None = None
    start: Start | None = None
    unanswered: list[str] = []
