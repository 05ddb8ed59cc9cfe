"""Limits on objectives: what those before leave to the next one, and the instances that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattsched.verification.report import is_finite


def limit_after(value: float, sense: str, tolerance: float) -> float:
    """Return the worst value that an objective may have afterwards: a share of its value is given up."""
    return value + (tolerance if sense == "min" else -tolerance) * abs(value)


def tighter(limit: float | None, other: float, sense: str) -> float:
    """Return the harder of two limits on an objective, the first of which may be none."""
    if limit is None:
        return other
    return min(limit, other) if sense == "min" else max(limit, other)


def with_objectives(instance: Any, limits: Mapping[str, float | None], senses: Mapping[str, str]) -> Any:
    """Return an instance whose budgets also limit other objectives, or without its limits for None."""
    known = dict(instance.budgets.objectives)
    for name, limit in limits.items():
        stated = known.pop(name, None)
        if limit is not None:
            known[name] = tighter(stated, limit, senses[name])
    return instance.model_copy(update={"budgets": instance.budgets.model_copy(update={"objectives": known})})


def limits_of_stages(
    stages: Sequence[Mapping[str, Any]], tolerance: float, senses: Mapping[str, str]
) -> dict[str, float]:
    """Return the limits that the results of objectives leave to the next one.

    Raises
    ------
    ValueError
        For a stage without a value, or with an objective that was there before.
    """
    limits: dict[str, float] = {}
    for number, stage in enumerate(stages):
        name, value = stage.get("objective_name"), stage.get("objective")
        if not isinstance(name, str) or name not in senses or name in limits or not is_finite(value):
            raise ValueError(f"stages[{number}]: says no value of an objective of its own")
        limits[name] = limit_after(value, senses[name], tolerance)
    return limits
