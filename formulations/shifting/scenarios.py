"""Instances of shifting with scenarios in arrays, and what is done in each scenario or in all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wattsched.formulations.infeasibility import InfeasibilityProof
from wattsched.formulations.shifting import infeasibility
from wattsched.formulations.shifting.columns import fits, is_valid, schedules_of
from wattsched.formulations.shifting.data import Horizon, horizon_of
from wattsched.formulations.timer import Timer
from wattsched.instances.shifting.decision import Plan, ShiftingDecision
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.verification.shifting.scenarios import ScenarioProver

Rule = Callable[[Horizon, str, Timer | None], ShiftingDecision | None]
"""Heuristic: a horizon, the objective and a timer to a decision or None."""


@dataclass(frozen=True)
class Scenarios:
    """Horizons of all scenarios, with their probabilities, and of the mean forecasts; decided slots."""

    instance: ShiftingInstance
    horizons: Mapping[str, tuple[float, Horizon]]
    expected: Horizon
    decided: int


Data = Horizon | Scenarios
"""Arrays that formulations and heuristics of shifting take."""


def data_of(instance: ShiftingInstance) -> Data:
    """Return the arrays of a valid instance, with scenarios or without."""
    if instance.scenarios is None:
        return horizon_of(instance)
    horizons = {
        name: (one.probability, horizon_of(instance.in_scenario(name)))
        for name, one in instance.scenarios.items()
    }
    return Scenarios(instance, horizons, horizon_of(instance.expected()), instance.decided_slots or 0)


def in_all(decided_slots: int, plans: Mapping[str, ShiftingDecision]) -> ShiftingDecision:
    """Return the decision of some plans by scenario, which agree in the decided slots."""
    now = next(iter(plans.values())).first(decided_slots)
    alone = {name: Plan(jobs=plan.jobs, waiting=plan.waiting) for name, plan in plans.items()}
    return ShiftingDecision(jobs=now.jobs, waiting=now.waiting, scenarios=alone)


def one_plan(rule: Rule) -> Callable[[Data, str, Timer | None], ShiftingDecision | None]:
    """Return a heuristic that takes scenarios, too: its plan for the mean forecasts holds in all of them."""

    def decide(data: Data, objective: str, timer: Timer | None = None) -> ShiftingDecision | None:
        if isinstance(data, Horizon):
            return rule(data, objective, timer)
        plan = rule(data.expected, objective, timer)
        # Budgets hold in every scenario, and not for the mean alone.
        if plan is None or not all(_keeps(horizon, plan) for _, horizon in data.horizons.values()):
            return None
        return in_all(data.decided, dict.fromkeys(data.horizons, plan))

    return decide


def _keeps(horizon: Horizon, plan: ShiftingDecision) -> bool:
    """True if a plan keeps all limits of a horizon."""
    schedules = schedules_of(horizon, plan)
    return schedules is not None and fits(horizon, schedules) and is_valid(horizon, schedules)


def diagnose(data: Data) -> list[str]:
    """Explain why an instance has no decision, as `infeasibility.diagnose` does, for each scenario."""
    if isinstance(data, Horizon):
        return infeasibility.diagnose(data)
    return [
        f"scenario '{name}': {reason}"
        for name, (_, horizon) in data.horizons.items()
        for reason in infeasibility.diagnose(horizon)
    ]


def refute(data: Data, prices: Mapping[str, float]) -> InfeasibilityProof | None:
    """Proof that an instance, or one of its scenarios by itself, has no decision, if prices give one."""
    if isinstance(data, Horizon):
        return infeasibility.refute(data, prices)
    for name, (probability, horizon) in data.horizons.items():
        start = f"{name}/"
        own = {row.removeprefix(start): y for row, y in prices.items() if row.startswith(start)}
        own = {row: y / probability for row, y in own.items() if not row.startswith("runs:")}
        if (found := infeasibility.refute(horizon, own)) is not None:
            named = {f"{start}{row}": probability * y for row, y in found.prices.items()}
            proof = ScenarioProver(data.instance)(named)
            if proof.bound is not None and proof.excess > 0:
                return InfeasibilityProof(named, proof.bound, f"scenario '{name}': {found.detail}")
    return None
