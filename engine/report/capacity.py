"""Capacity plans: candidates with their costs and bounds, and tables of them in words."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from wattsched.report.saved import Interval
from wattsched.report.terminal import Told
from wattsched.report.wording import count, duration, money, quantity, reasons

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
    status : {"replayed", "cannot win", "unlikely", "open", "cannot run"}
        No schedule on one that cannot win costs as little as the best; an unlikely one would have to come
        closer to its bound than any replay did, and one that is open would not, but replays were enough.
    bound, estimate : float
        No schedule costs less, and what the policy is expected to cost; infinite where jobs are too late.
    seeds : int
        Number of seeds on which it was replayed.
    cost : Interval, optional
        Of one that was replayed on all seeds, as `parts` and `mean_completion_s`.
    parts : dict of str to float
        Hardware, energy, cap, and time, the worth of the completion time of jobs.
    why : str
        Reason why it cannot run the jobs.
    """

    nodes: dict[str, int]
    power_w: float | None
    status: str
    bound: float
    estimate: float
    seeds: int = 0
    cost: Interval | None = None
    parts: dict[str, float] = field(default_factory=dict)
    mean_completion_s: float | None = None
    why: str = ""

    def words(self) -> str:
        """Nodes and cap: ``4 A100, 2 H100, 41 kW``."""
        nodes = [f"{n} {pool}" for pool, n in self.nodes.items() if n]
        return ", ".join(nodes if self.power_w is None else [*nodes, quantity(self.power_w, "W")])


@dataclass(frozen=True)
class CapacityPlan:
    """A capacity plan says what cluster and power cap to have for a load; money is by the year.

    Attributes
    ----------
    options : list of Option
        The best, then all others by their estimates.
    best : Option or None
        The cheapest; None where on none jobs are in time.
    today : Option
    worth : dict of str to float
        What one more GPU of each pool, and a kilowatt, saves at most in the relaxation, at the best.
    growth : float
        Part by which jobs are more than in the trace.
    seeds : list of int
    policy, currency : str
    most_mean_h : float, optional
        Most hours of the mean completion time.
    """

    options: list[Option]
    best: Option | None
    today: Option
    worth: dict[str, float]
    growth: float
    seeds: list[int]
    policy: str
    currency: str = ""
    most_mean_h: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values by name; None for what is infinite."""
        found = asdict(self)
        for one in (*found["options"], found["best"] or {}, found["today"]):
            one |= {name: None for name in ("bound", "estimate") if one.get(name) == math.inf}
        return found

    def money(self, amount: float) -> str:
        """Amount in words."""
        return money(amount, self.currency)


def verdict(plan: CapacityPlan) -> str:
    """Say what to have, what it costs, and what today's cluster would cost."""
    if plan.best is None or plan.best.cost is None:
        return f"no candidate has a mean completion time of {plan.most_mean_h:g} h or less"
    cost, there = plan.best.cost, plan.today.nodes
    changes = [
        f"{'buy' if n > there[pool] else 'power down'} {count(abs(n - there[pool]), 'node')} of {pool}"
        for pool, n in plan.best.nodes.items()
        if n != there[pool]
    ]
    if plan.best.power_w is not None and plan.best.power_w != plan.today.power_w:
        changes.append(f"ask for a cap of {quantity(plan.best.power_w, 'W')}")
    told = f"{', '.join(changes) or 'keep what there is'}: {plan.money(cost.mean)} a year"
    if cost.low is not None and cost.high is not None:
        told += f", between {money(cost.low)} and {money(cost.high)} over {count(len(plan.seeds), 'seed')}"
    if plan.best is plan.today or plan.today.cost is None:
        return told
    late = ", where jobs are too late" if plan.today.estimate == math.inf else ""
    return f"{told}; today's cluster would cost {plan.money(plan.today.cost.mean)}{late}"


def reasons_against(plan: CapacityPlan) -> list[str]:
    """Say why candidates cannot run the jobs."""
    return reasons({one.words(): one.why for one in plan.options if one.why})


def tables_of(plan: CapacityPlan) -> list[Told]:
    """Tables of the candidates that cost least, of what makes the costs, and of what more would save."""
    columns = ["", ">cost a year", ">at least", ">completion", ""]
    able = [one for one in plan.options if not one.why]
    in_time = [one for one in able[:SHOWN] if one.estimate < math.inf]
    rows = [
        [
            one.words(),
            _costs(plan, one),
            "" if one.bound == math.inf else plan.money(one.bound),
            "" if one.mean_completion_s is None else duration(one.mean_completion_s),
            f"{one.status} ({one.seeds})" if one.seeds else one.status,
        ]
        for one in in_time or able[:SHOWN]
    ]
    tally = Counter(one.status for one in plan.options)
    note = f"{', '.join(f'{n:,} {status}' for status, n in tally.items())}; at least: under any schedule"
    tables: list[Told] = [("Candidates", note, columns, rows)]
    known = {
        f"{name}: {one.words()}": one for name, one in (("today", plan.today), ("best", plan.best)) if one
    }
    names = [*plan.today.parts]
    parts = [[name, *(plan.money(one.parts[part]) for part in names)] for name, one in known.items()]
    tables.append(("Costs", "a year", ["", *(f">{name}" for name in names)], parts))
    if plan.worth:
        more = [[f"1 {name}", plan.money(amount)] for name, amount in plan.worth.items()]
        tables.append(("One more lowers the bound by", "a year, beside its own cost", ["", ">money"], more))
    return tables


def _costs(plan: CapacityPlan, one: Option) -> str:
    """Say what a candidate costs, if jobs are in time there."""
    if one.estimate == math.inf:
        return "too late"
    return plan.money(one.cost.mean) if one.cost else f"about {plan.money(one.estimate)}"
