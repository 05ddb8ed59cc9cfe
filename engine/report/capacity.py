"""Capacity plans: candidates with their costs and bounds, and tables of them in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from wattsched.report.saved import Interval
from wattsched.report.terminal import Told
from wattsched.report.wording import count, duration, listed, money, percent, quantity

Status = Literal["replayed", "cannot win", "unlikely", "cannot run"]

SHOWN = 10
"""Candidates in the table; all are in the JSON."""


@dataclass(frozen=True)
class Option:
    """A cluster and a cap that were considered; money is by the year.

    Attributes
    ----------
    nodes : dict of str to int
        Nodes of each pool.
    power_w : float or None
        The cap.
    status : {"replayed", "cannot win", "unlikely", "cannot run"}
        What became of it: costs were found by replays; no schedule on it can cost as little as the best; it
        would have to cost less than replays suggest by more than any of them does; it cannot run the jobs.
    bound, estimate : float
        No schedule costs less, and what is expected of the policy; infinite where the service level cannot
        be kept.
    cost : Interval, optional
        Over the seeds that were replayed.
    hardware, energy, cap, time : float
        Parts of the cost; of one that was not replayed energy is that of the idle cluster.
    mean_completion_s : float, optional
    seeds : int
        Number of seeds replayed.
    why : str
        Reason why it cannot run.
    """

    nodes: dict[str, int]
    power_w: float | None
    status: Status
    bound: float
    estimate: float
    cost: Interval | None = None
    hardware: float = 0.0
    energy: float = 0.0
    cap: float = 0.0
    time: float = 0.0
    mean_completion_s: float | None = None
    seeds: int = 0
    why: str = ""

    def words(self) -> str:
        """Nodes and cap: ``4 A100, 2 H100, 41 kW``."""
        nodes = [f"{n} {pool}" for pool, n in self.nodes.items() if n]
        return ", ".join([*nodes, *([] if self.power_w is None else [quantity(self.power_w, "W")])])


@dataclass(frozen=True)
class CapacityPlan:
    """What cluster and cap to have for a load; money is by the year.

    Attributes
    ----------
    options : list of Option
        By their cost where they were replayed on all seeds, others by their estimate.
    best : Option or None
        The cheapest; None where none keeps the service level.
    today : Option
    gpu_worth : dict of str to float
        Money that one more GPU of each pool saves at most in the relaxation, at the best.
    kw_worth : float or None
        The same of a kilowatt; None without caps.
    jobs : int
    growth, days : float
        Part by which jobs are more than in the trace, and days that these stand for.
    seeds : list of int
    policy, currency : str
    most_mean_h : float, optional
        The service level.
    """

    options: list[Option]
    best: Option | None
    today: Option
    gpu_worth: dict[str, float]
    kw_worth: float | None
    jobs: int
    growth: float
    days: float
    seeds: list[int]
    policy: str
    currency: str = ""
    most_mean_h: float | None = None
    assumptions: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)


def verdict(plan: CapacityPlan) -> str:
    """Say what to have, what it costs, and what today's cluster would cost."""
    over = f" over {count(len(plan.seeds), 'seed')}" if len(plan.seeds) > 1 else ""
    if (best := plan.best) is None:
        assert plan.most_mean_h is not None
        return f"no candidate keeps a mean completion of {plan.most_mean_h:g} h"
    assert best.cost is not None
    told = f"{_change(plan)}: {_cost(plan, best.cost)} a year{over}"
    if best is plan.today:
        return told
    if plan.today.cost is None:
        return f"{told}; today's cluster {plan.today.why}"
    late = plan.most_mean_h is not None and plan.today.estimate == float("inf")
    return f"{told}; today's cluster would cost {_money(plan, plan.today.cost.mean)}{', too late' * late}"


def _change(plan: CapacityPlan) -> str:
    """What to do with today's cluster: ``buy 2 nodes of H100, ask for a cap of 41 kW``."""
    assert plan.best is not None
    parts = []
    for pool, n in plan.best.nodes.items():
        if more := n - plan.today.nodes[pool]:
            verb = "buy" if more > 0 else "power down"
            parts.append(f"{verb} {count(abs(more), 'node')} of {pool}")
    if plan.best.power_w is not None and plan.best.power_w != plan.today.power_w:
        parts.append(f"ask for a cap of {quantity(plan.best.power_w, 'W')}")
    return ", ".join(parts) or "keep today's cluster"


def _money(plan: CapacityPlan, amount: float) -> str:
    return money(amount, plan.currency)


def _cost(plan: CapacityPlan, cost: Interval) -> str:
    if cost.low is None or cost.high is None:
        return _money(plan, cost.mean)
    return f"{_money(plan, cost.mean)} ({_money(plan, cost.low)} to {_money(plan, cost.high)})"


def tables_of(plan: CapacityPlan) -> list[Told]:
    """Tables of the candidates, of what the best one costs and of what more would be worth."""
    return [candidates(plan), *([parts(plan), worth(plan)] if plan.best else [])]


def candidates(plan: CapacityPlan) -> Told:
    """Build the table of the candidates that cost least."""
    columns = ["candidate", ">cost a year", ">no schedule below", ">mean completion", "", ">seeds"]
    rows = [
        [
            one.words(),
            _money(plan, one.cost.mean) if one.cost else f"about {_money(plan, one.estimate)}",
            _money(plan, one.bound),
            "" if one.mean_completion_s is None else duration(one.mean_completion_s),
            one.status,
            str(one.seeds or ""),
        ]
        for one in plan.options[:SHOWN]
        if one.estimate < float("inf") or one.cost
    ]
    tally = Counter(one.status for one in plan.options)
    told = ", ".join(f"{n:,} {status}" for status, n in tally.items())
    return "Candidates", f"{len(plan.options):,}: {told}", columns, rows


def parts(plan: CapacityPlan) -> Told:
    """Build the table of what makes the cost of the best and of today's cluster."""
    names = ("hardware", "energy", "cap", "time")
    shown = [("best", plan.best), ("today", plan.today)]
    rows = [
        [name, one.words(), *(_money(plan, getattr(one, part)) for part in names)]
        for name, one in shown
        if one is not None and one.cost is not None
    ]
    return "Costs", "a year; time is what the completion time of jobs is worth", ["", "cluster", *(
        f">{name}" for name in names)], rows  # fmt: skip


def worth(plan: CapacityPlan) -> Told:
    """Build the table of what one GPU or kilowatt more would save."""
    rows = [[f"1 GPU of {pool}", _money(plan, amount)] for pool, amount in plan.gpu_worth.items()]
    if plan.kw_worth is not None:
        rows.append(["1 kW of the cap", _money(plan, plan.kw_worth)])
    note = "a year, at most, by the prices of the bound; without what it costs itself"
    return "One more would save", note, ["", ">saved"], rows


def gone(plan: CapacityPlan) -> list[str]:
    """Say why candidates cannot run the jobs, a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for one in plan.options:
        if one.why:
            by_reason.setdefault(one.why, []).append(one.words())
    return [f"{listed(names, most=4)}: {why}" for why, names in by_reason.items()]


def share_replayed(plan: CapacityPlan) -> str:
    """Return the part of the replays of all candidates that were made."""
    return percent(sum(one.seeds for one in plan.options) / (len(plan.options) * len(plan.seeds)))
