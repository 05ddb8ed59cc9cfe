r"""`ClairvoyantBound`: a lower bound on every schedule of a trace, with all that it is about, in one file.

It holds jobs with their arrivals and their work, the options of each, the GPUs of each pool, and a budget,
so that nobody needs the trace, its models or this package to prove the bound again.
"""

from __future__ import annotations

import math
from itertools import pairwise
from numbers import Real
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from wattsched.instances.errors import refuse, repeated, require, unknown
from wattsched.topology.fields import LARGEST, Count, Name, NonNegative, Positive, Standing, Strict

FORMAT: Literal["wattsched-replay-bound/1"] = "wattsched-replay-bound/1"

MOST_CELLS = 20_000_000
"""Worths of a kind of jobs by slots, which are looked at together."""

LONGEST_SOURCE = 2_000
"""Characters."""

Price = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Edge = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
"""Limit of a slot in seconds, later than any time of a trace: slots last until all its work can be done."""
Quantity = Literal["energy_j", "carbon_g", "money"]


class RunOptions(Strict):
    """Options that jobs may run as, a row each; a job may change from row to row at any time.

    Attributes
    ----------
    pool : list of str
    gpus : list of int
        GPUs that the option takes of its pool, including those of its block that it leaves unused.
    rate : list of float
        Work per second.
    power_w : list of float
        Draw of the GPUs above that when idle.
    """

    pool: list[Name]
    gpus: list[Count]
    rate: list[Positive]
    power_w: list[NonNegative]

    @model_validator(mode="after")
    def _rows(self) -> Self:
        refuse(_uneven("pool", **dict(self)))
        return self


class TraceJobs(Strict):
    """Jobs of a trace: when they arrive, with how much work, and the name of what they may run as."""

    name: list[Name]
    arrival_s: list[Seconds]
    work: list[Positive]
    options: list[Name]

    @model_validator(mode="after")
    def _rows(self) -> Self:
        refuse([*_uneven("name", **dict(self)), *repeated("name", self.name)])
        return self


class PeriodBudget(Strict):
    """An amount for every period, of which the idle cluster takes its part.

    Attributes
    ----------
    quantity : str
    amount : float
        For each period, in the quantity's unit.
    begin_s, period_s : float
        Periods follow one another from there on.
    time_s, per_kwh : list of float
        What a kilowatt hour takes of it from each time on, before the first as from then on.
    """

    quantity: Quantity
    amount: Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)]
    begin_s: Seconds
    period_s: Annotated[float, Field(ge=1e-3, le=LARGEST, allow_inf_nan=False)]
    time_s: list[Seconds]
    per_kwh: list[NonNegative]

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        faults = list(_uneven("time_s", time_s=self.time_s, per_kwh=self.per_kwh))
        refuse([*faults, *_not_ascending("time_s", self.time_s)])
        return self


class SlotPrices(Strict):
    r"""Prices, and what they prove: no schedule has :math:`\sum_j (C_j - r_j) + q E` below `bound_s`.

    Attributes
    ----------
    joule_price : float
        Seconds of completion time, summed over jobs, that a joule of the jobs counts for: q.
    gpus : dict of str to list of float
        Seconds for a GPU second in each slot, by pool.
    budget : list of float
        Seconds for a unit of the budget in each of the first periods; 0 in later ones.
    worth : dict of str to list of float
        By name of options, seconds that a unit of work is worth; any such list proves a bound.
    bound_s : float
    """

    joule_price: Price
    gpus: dict[Name, list[Price]]
    budget: list[Price] = Field(default_factory=list)
    worth: dict[Name, Annotated[list[Price], Field(min_length=1)]]
    bound_s: Annotated[float, Field(allow_inf_nan=False)]


class ClairvoyantBound(Strict):
    """Bounds on every schedule of the jobs of a trace, also of those that know the future.

    Attributes
    ----------
    pools : dict of str to int
        GPUs of each.
    options : dict of str to RunOptions
    jobs : TraceJobs
    standing_w : float
        Least draw of the cluster besides what its jobs draw above idle GPUs.
    budget : PeriodBudget, optional
    slot_edges_s : list of float
        Where slots begin, and where the last one ends; after that nothing has a price.
    proofs : list of SlotPrices
        The first is of the completion times alone.
    source : str
        Which file the jobs are said to be of, with its SHA-256, and which seed; nothing proves that.
    """

    format: Literal["wattsched-replay-bound/1"] = FORMAT
    source: Annotated[str, Field(max_length=LONGEST_SOURCE)] = ""
    pools: dict[Name, Count]
    options: dict[Name, RunOptions]
    jobs: TraceJobs
    standing_w: Standing
    budget: PeriodBudget | None = None
    slot_edges_s: Annotated[list[Edge], Field(min_length=2)]
    proofs: Annotated[list[SlotPrices], Field(min_length=1)]

    @model_validator(mode="after")
    def _together(self) -> Self:
        """Refuse parts that do not fit together, and a first proof that puts a price on joules."""
        faults = [*_not_ascending("slot_edges_s", self.slot_edges_s)]
        if self.proofs[0].joule_price:
            faults.append(f"proofs[0].joule_price: must be 0, got {self.proofs[0].joule_price:g}")
        if self.jobs.arrival_s and min(self.jobs.arrival_s) < self.slot_edges_s[0]:
            faults.append(f"slot_edges_s: begins at {self.slot_edges_s[0]:g}, after the first arrival")
        if self.jobs.arrival_s and max(self.jobs.arrival_s) >= self.slot_edges_s[-1]:
            faults.append(f"slot_edges_s: ends at {self.slot_edges_s[-1]:g}, before the last arrival")
        if self.budget is not None and self.budget.begin_s > self.slot_edges_s[0]:
            begin = f"{self.budget.begin_s:g}, after the first slot at {self.slot_edges_s[0]:g}"
            faults.append(f"budget.begin_s: is {begin}")
        faults += unknown("jobs", "options", self.jobs.options, self.options)
        for name, options in self.options.items():
            faults += unknown(f"options.{name}", "pool", options.pool, self.pools)
        for number, proof in enumerate(self.proofs):
            faults += self._price_faults(f"proofs[{number}]", proof)
        refuse(faults)
        return self

    def _price_faults(self, place: str, proof: SlotPrices) -> list[str]:
        """Faults of the proof at a place: other pools, slots or options than there are, or too many."""
        slots = len(self.slot_edges_s) - 1
        faults = list(unknown(f"{place}.gpus", "pool", proof.gpus, self.pools))
        faults += [
            f"{place}.gpus.{pool}: has {len(prices)} prices for {slots} slots"
            for pool, prices in proof.gpus.items()
            if len(prices) != slots
        ]
        faults += unknown(f"{place}.worth", "options", proof.worth, self.options)
        faults += [f"{place}.worth: lacks '{name}'" for name in {*self.jobs.options} - proof.worth.keys()]
        if max((len(worth) for worth in proof.worth.values()), default=0) * slots > MOST_CELLS:
            faults.append(f"{place}.worth: times {slots:,} slots makes more than {MOST_CELLS:,} numbers")
        if proof.budget and self.budget is None:
            faults.append(f"{place}.budget: has prices, but there is no budget")
        return faults

    @property
    def mean_completion_s(self) -> float:
        """Lower bound on the mean time from arrival to completion of any schedule."""
        proven_s = max(proof.bound_s for proof in self.proofs if proof.joule_price == 0)
        return max(0.0, proven_s) / len(self.jobs.name)

    def energy_j(self, mean_completion_s: float) -> float:
        """Lower bound on the cluster's joules up to the last completion, given the mean completion time.

        A proof says that total completion time plus price times the jobs' joules is at least `bound_s`.
        Solved for the joules, each bounds them from below; standing watts until the earliest end come on top.

        Raises
        ------
        TypeError, ValueError
            For an argument that is no number, or not above 0 and finite.
        """
        require("mean_completion_s", mean_completion_s, (Real,), "a number")
        if not 0 < mean_completion_s < math.inf:
            raise ValueError(f"mean_completion_s: must be above 0 and finite, got {mean_completion_s:g}")
        total_s = mean_completion_s * len(self.jobs.name)
        jobs_j = [(proof.bound_s - total_s) / proof.joule_price for proof in self.proofs if proof.joule_price]
        fastest = {name: max(rows.rate) for name, rows in self.options.items()}
        columns = zip(self.jobs.arrival_s, self.jobs.work, self.jobs.options, strict=True)
        end_s = max(arrival_s + work / fastest[name] for arrival_s, work, name in columns)
        return max([0.0, *jobs_j]) + self.standing_w * (end_s - min(self.jobs.arrival_s))


def _uneven(first: str, **columns: list[object] | list[str] | list[int] | list[float]) -> list[str]:
    """Return faults: columns that are not as long as the first, or a table without rows."""
    rows = len(columns[first])
    if not rows:
        return [f"{first}: has no rows"]
    return [
        f"{name}: is of length {len(column)}, '{first}' of {rows}"
        for name, column in columns.items()
        if len(column) != rows
    ]


def _not_ascending(name: str, times: list[float]) -> list[str]:
    """Return a fault for the first time that does not come after the one before."""
    for before, after in pairwise(times):
        if after <= before:
            return [f"{name}: {after:g} does not come after {before:g}"]
    return []
