"""An explanation: why a job waits, and the least changes of its round with which it would run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from wattsched.instances.errors import InputError, shown, validated
from wattsched.instances.sizing.decision import Assignment
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Strict

FORMAT: Literal["wattsched-explanation/1"] = "wattsched-explanation/1"

COMPLETIONS = ("total-completion", "makespan", "max-min", "proportional")
"""Objectives in which a job that waits counts as complete after the round and its best time."""

RoundName = Literal["kept", "watts", "joules", "alone", "forced"]
"""Rounds that are derived from a round and its decision; ``docs/explain.md`` defines each."""

Amount = Literal["power_w", "energy_j", "carbon_g", "gpus", "tenant_gpus", "min_gpus", "deadline_s"]
"""Fields of a change of which a least amount is proven."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


NEARLY = 1e-3
"""Part of an amount by which a proof may fall short of it."""


class Change(Strict):
    """Change of a round that lets a job run; all fields are additions, but for those of the job itself.

    Attributes
    ----------
    power_w, energy_j, carbon_g : float
        By how much the budget of the round is raised.
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
        Restrictions of the job that are lifted: any pool, GPU count, clock, power limit or batch size of its
        table or model will do.
    """

    power_w: NonNegative = 0.0
    energy_j: NonNegative = 0.0
    carbon_g: NonNegative = 0.0
    gpus: dict[Name, Count] = {}
    tenant_gpus: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    min_gpus: Count | None = None
    deadline_s: Positive | None = None
    later: bool = False
    lifted: list[Literal["pools", "gpu_counts", "frequencies_mhz", "power_limits_w", "batch_sizes"]] = []

    @property
    def amounts(self) -> dict[str, float]:
        """Amounts of the change, by the names of its fields."""
        sums = {"gpus": sum(self.gpus.values())}
        plain = ("power_w", "energy_j", "carbon_g", "tenant_gpus", "min_gpus", "deadline_s")
        found = {name: getattr(self, name) for name in plain} | sums
        return {name: float(amount) for name, amount in found.items() if amount}


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
    kind : str
        What is changed.
    decision : Difference
        What the changed round then decides otherwise.
    least : dict of str to float
        What the proofs show that the change needs at least, by the names of its fields: GPUs first, with any
        watts, then watts with these GPUs. For `min_gpus` the most that is possible.
    proofs : list of Proof
    """

    kind: Literal["none", "power", "energy", "carbon", "gpus", "mixed", "quota",
                  "size", "later", "pool", "deadline", "settings"]  # fmt: skip
    change: Change
    decision: Difference
    least: dict[Amount, NonNegative] = {}
    proofs: list[Proof] = []

    @property
    def proven(self) -> bool:
        """True if nothing less of what is changed would do, but for a thousandth of an amount."""
        return all(self.least.get(name, -1.0) >= amount * (1 - NEARLY) for name, amount in self.change.amounts.items())


class Cost(Strict):
    """Price of letting the job run although nothing else is changed: others stop, shrink, or run later.

    Attributes
    ----------
    later : list of str
        Jobs that are complete later than decided, the worst first, or stop.
    objective, bound : float
        Of the round in which the job must run; the decision's own objective is better by the difference.
    weight : float, optional
        With this weight, a decision in which the job runs is as good as any in which it waits.
    least_weight : float, optional
        Below this weight every decision in which the job runs is worse.
    """

    decision: Difference
    later: list[Name]
    objective: Finite
    bound: Finite | None = None
    certificate: dict[str, Any] | None = None
    weight: Positive | None = None
    least_weight: NonNegative | None = None


class Explanation(Strict):
    """Answer to the question why a job waits, and what would make it run.

    Attributes
    ----------
    instance, digest, objective_name
        Of the round, as its result has them.
    state : {"runs", "waits", "never"}
        ``never``: it cannot run even if no other job did that may stop.
    sentence : str
    reason : str
        Why it never runs, where that needs no proof.
    alternatives : list of Alternative
    cost : Cost, optional
    proof : Proof, optional
        That it never runs.
    unanswered : list of str
        Kinds of changes that were not looked at in time, or of which no proof was found.
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
    unanswered: list[str] = []


def is_explanation(document: Any) -> bool:
    """True if a parsed document is an explanation."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def explanation_of(document: Any, source: str = "") -> Explanation:
    """Validate a parsed document as an explanation; an InputError has one line for each fault."""
    if not is_explanation(document):
        found = document.get("format") if isinstance(document, dict) else None
        raise InputError([f"format: expected '{FORMAT}', found {shown(found)}"], source)
    read: BaseModel = validated(Explanation, document, source)
    assert isinstance(read, Explanation)
    return read
