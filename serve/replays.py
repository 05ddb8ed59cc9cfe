"""Rounds of a journal decided again under another policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wattsched.instances.errors import InputError
from wattsched.instances.replacing import replaced
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import check
from wattsched.serve.rounds import Round
from wattsched.sessions.session_decision import SessionDecision, decision_of
from wattsched.solving.engine import solve

LIMITS = ("power_w", "energy_j", "carbon_g", "least_goodput")
PER_KWH = ("carbon_g_per_kwh", "price_per_kwh")


@dataclass(frozen=True)
class Policy:
    """Settings under which a round is decided again; None leaves one as it was.

    Parameters
    ----------
    objective : str, optional
        What is optimised.
    power_w : float, optional
        Watts of the site.
    energy_j : float, optional
        Joules of the round.
    carbon_g : float, optional
        Grams of CO2 of the round.
    least_goodput : float, optional
        Goodput of the round, at least.
    carbon_g_per_kwh : float, optional
        Grams of CO2 per kWh.
    price_per_kwh : float, optional
        Money per kWh.
    formulation : str, optional
        How to write the problem.
    solver : str
        Who solves it.
    """

    objective: str | None = None
    power_w: float | None = None
    energy_j: float | None = None
    carbon_g: float | None = None
    least_goodput: float | None = None
    carbon_g_per_kwh: float | None = None
    price_per_kwh: float | None = None
    formulation: str | None = None
    solver: str = "auto"

    def applied_to(self, instance: Instance) -> Instance:
        """The instance of a round with these settings."""
        fields = {"objective": self.objective or instance.objective, **self._told(PER_KWH)}
        changed = replaced(instance, {"budgets": self._told(LIMITS), **fields})
        return type(instance).model_validate(changed.model_dump() | {"jobs": changed.jobs})

    def _told(self, names: tuple[str, ...]) -> dict[str, float]:
        """Return those of some fields that are given."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class Replayed:
    """A round as it was decided, and as it would have been.

    Attributes
    ----------
    number : int
    objective, power_w, running, changes
        Of the decision that the other policy makes; None and 0 where it makes none.
    was_objective : float, optional
        What the recorded decision is worth by the other objective; None where it breaks the other budgets.
    was_power_w, was_running, was_changes
        Of the recorded decision.
    """

    number: int
    objective: float | None
    power_w: float | None
    running: int
    changes: int
    was_objective: float | None
    was_power_w: float | None
    was_running: int
    was_changes: int


def replayed(made: Round, policy: Policy, **limits: Any) -> Replayed:
    """Decide a recorded round again, with what ran then.

    Parameters
    ----------
    made : Round
    policy : Policy
    **limits
        ``gap``, ``time_limit``, ``threads`` and ``seed`` of `wattsched.solve`.
    """
    instance = policy.applied_to(made.decision.instance)
    result = solve(instance, formulation=policy.formulation, solver=policy.solver, conflict=0.0, **limits)
    if result.unsupported:  # the decision is then another one's
        raise InputError([f"round {made.number}: solver '{policy.solver}': {result.unsupported}"])
    again = decision_of(instance, result)
    return Replayed(
        made.number, result.objective, *_figures(again), _worth(made, instance), *_figures(made.decision)
    )


def _worth(made: Round, instance: Instance) -> float | None:
    """Return a recorded decision's objective in another round of the same jobs; None if it does not fit."""
    if not made.decision.solved:
        return None
    report = check(instance, made.decision.result.decision).report
    return None if report is None or report.faults else report.objective


def _figures(decision: SessionDecision) -> tuple[float | None, int, int]:
    """Watts of the site, jobs that run, and jobs that change by a decision."""
    power_w = decision.result.totals.get("power_w")
    return power_w, len(decision.assignments), len(decision.changes)
